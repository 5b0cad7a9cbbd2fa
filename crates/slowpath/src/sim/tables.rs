// SPDX-License-Identifier: Apache-2.0
//! Results as Parquet files that any engine reads: `docs/reference/simulator.md` describes them.
//!
//! The same scenario and seed give the same files, byte for byte.

use super::summary::{ENDLESS, LinkUse, links, workload_of_query};
use arrow_array::builder::{Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use slowpath_netsim::results::{FlowRecord, Results};
use slowpath_netsim::scenario::Scenario;
use slowpath_netsim::topology::Node;
use slowpath_switch::DropReason;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the columns are and mean. Raised by any change but a new column at the end.
pub const SCHEMA_VERSION: u16 = 1;
/// Rows that are held in memory until they are encoded.
const BATCH: usize = 1 << 16;
/// Results are written once and read many times, but a run should not wait for them.
const ZSTD_LEVEL: i32 = 3;

/// A table that was not written.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file system refuses.
    #[error("cannot create {path}: {error}")]
    Create {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It cannot be encoded, or not be written to its end.
    #[error("cannot write {path}: {error}")]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        error: ParquetError,
    },
}

/// What every file says of itself.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// What kind of results: begins the tables' names.
    pub family: &'a str,
    /// The scenario file's name.
    pub name: &'a str,
    /// The scenario's text, as it was run.
    pub text: &'a str,
    /// The seed.
    pub seed: u64,
}

/// A value of a row.
pub(crate) enum Value<'a> {
    Null,
    Int(u64),
    Text(&'a str),
}

use Value::{Int, Null, Text};

fn optional<'a>(value: Option<u64>) -> Value<'a> {
    value.map_or(Null, Int)
}

/// A column in the making.
enum Column {
    Int(Int64Builder),
    Text(StringBuilder),
}

/// The columns of a table: name, and whether it is a number.
pub(crate) type Columns = &'static [(&'static str, bool)];
const NUMBER: bool = true;
const TEXT: bool = false;

/// Columns of `flows.parquet`.
pub const FLOWS: Columns = &[
    ("flow", NUMBER),
    ("workload", TEXT),
    ("source", TEXT),
    ("destination", TEXT),
    ("bytes", NUMBER),
    ("arrived_bytes", NUMBER),
    ("start_ps", NUMBER),
    ("completion_ps", NUMBER),
    ("query", NUMBER),
    ("retransmissions", NUMBER),
    ("timeouts", NUMBER),
    ("path", TEXT),
];
/// Columns of `queries.parquet`.
pub const QUERIES: Columns = &[
    ("query", NUMBER),
    ("workload", TEXT),
    ("start_ps", NUMBER),
    ("completion_ps", NUMBER),
    ("flows", NUMBER),
];
/// Columns of `queues.parquet`.
pub const QUEUES: Columns = &[
    ("time_ps", NUMBER),
    ("switch", TEXT),
    ("port", NUMBER),
    ("neighbour", TEXT),
    ("packets", NUMBER),
    ("bytes", NUMBER),
];
/// Columns of `links.parquet`.
pub const LINKS: Columns = &[
    ("node", TEXT),
    ("port", NUMBER),
    ("neighbour", TEXT),
    ("rate_bits_per_second", NUMBER),
    ("packets", NUMBER),
    ("bytes", NUMBER),
    ("marked", NUMBER),
    ("dropped", NUMBER),
    ("dropped_bytes", NUMBER),
    ("detoured", NUMBER),
    ("most_packets", NUMBER),
];
/// Columns of `events.parquet`.
pub const EVENTS: Columns = &[
    ("time_ps", NUMBER),
    ("workload", TEXT),
    ("dropped", NUMBER),
    ("marked", NUMBER),
    ("detours", NUMBER),
];
/// Columns of `counts.parquet`.
pub const COUNTS: Columns = &[("workload", TEXT), ("what", TEXT), ("count", NUMBER)];

/// A file in the making.
pub(crate) struct Table {
    writer: ArrowWriter<File>,
    schema: Arc<Schema>,
    columns: Vec<Column>,
    rows: usize,
}

impl Table {
    pub(crate) fn create(
        directory: &Path,
        table: &str,
        columns: Columns,
        about: About<'_>,
        fill: impl FnOnce(&mut Table) -> Result<(), ParquetError>,
    ) -> Result<(), TableError> {
        let path = directory.join(format!("{table}.parquet"));
        let file = File::create(&path).map_err(|error| TableError::Create {
            path: path.clone(),
            error,
        })?;
        let encode = || -> Result<(), ParquetError> {
            let field = |&(name, is_number): &(&str, bool)| {
                let kind = if is_number {
                    DataType::Int64
                } else {
                    DataType::Utf8
                };
                Field::new(name, kind, true)
            };
            let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
            let options = ArrowWriterOptions::new()
                .with_properties(properties(table, about)?)
                .with_skip_arrow_metadata(true);
            let new = |&(_, is_number): &(&str, bool)| match is_number {
                true => Column::Int(Int64Builder::new()),
                false => Column::Text(StringBuilder::new()),
            };
            let mut table = Table {
                writer: ArrowWriter::try_new_with_options(file, schema.clone(), options)?,
                schema,
                columns: columns.iter().map(new).collect(),
                rows: 0,
            };
            fill(&mut table)?;
            table.flush()?;
            table.writer.close().map(|_| ())
        };
        encode().map_err(|error| TableError::Write { path, error })
    }

    pub(crate) fn row<const N: usize>(
        &mut self,
        values: [Value<'_>; N],
    ) -> Result<(), ParquetError> {
        for (column, value) in self.columns.iter_mut().zip(values) {
            match column {
                Column::Int(builder) => builder.append_option(match value {
                    Int(number) => Some(number.cast_signed()),
                    _ => None,
                }),
                Column::Text(builder) => builder.append_option(match value {
                    Text(text) => Some(text),
                    _ => None,
                }),
            }
        }
        self.rows += 1;
        if self.rows == BATCH {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ParquetError> {
        self.rows = 0;
        let finish = |column: &mut Column| -> ArrayRef {
            match column {
                Column::Int(builder) => Arc::new(builder.finish()),
                Column::Text(builder) => Arc::new(builder.finish()),
            }
        };
        let arrays = self.columns.iter_mut().map(finish).collect();
        let batch = RecordBatch::try_new(self.schema.clone(), arrays)?;
        self.writer.write(&batch)
    }
}

fn properties(table: &str, about: About<'_>) -> Result<WriterProperties, ParquetError> {
    let producer = format!("slowpath {}", env!("CARGO_PKG_VERSION"));
    let pairs = [
        ("slowpath.schema_version", SCHEMA_VERSION.to_string()),
        ("slowpath.producer", producer.clone()),
        ("slowpath.table", format!("{}.{table}", about.family)),
        ("slowpath.scenario_name", about.name.to_owned()),
        ("slowpath.scenario", about.text.to_owned()),
        ("slowpath.seed", about.seed.to_string()),
    ];
    let pairs = pairs.map(|(key, value)| KeyValue::new(key.to_owned(), value));
    Ok(WriterProperties::builder()
        .set_created_by(producer)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_key_value_metadata(Some(pairs.to_vec()))
        .build())
}

/// Writes all tables into a directory, which is made if it is not there.
///
/// # Errors
/// The first table that could not be written.
pub fn write(
    directory: &Path,
    about: About<'_>,
    scenario: &Scenario,
    results: &Results,
) -> Result<(), TableError> {
    std::fs::create_dir_all(directory).map_err(|error| TableError::Create {
        path: directory.to_owned(),
        error,
    })?;
    let topology = &scenario.topology;
    let name = |node: Node| topology.name(node);
    let workload = |number: usize| &*scenario.workloads[number].name;
    Table::create(directory, "flows", FLOWS, about, |table| {
        for flow in &results.flows {
            let path = path(scenario, flow);
            table.row([
                Int(flow.id),
                Text(workload(usize::from(flow.label))),
                Text(name(Node::Host(flow.source.0))),
                Text(name(Node::Host(flow.destination.0))),
                optional((flow.bytes < ENDLESS).then_some(flow.bytes)),
                Int(flow.arrived),
                Int(flow.start.0),
                optional(flow.completion().map(|time| time.0)),
                optional(flow.query),
                Int(flow.retransmissions.into()),
                Int(flow.timeouts.into()),
                path.as_deref().map_or(Null, Text),
            ])?;
        }
        Ok(())
    })?;
    Table::create(directory, "queries", QUERIES, about, |table| {
        for query in &results.queries {
            table.row([
                Int(query.id),
                Text(workload(workload_of_query(query.id))),
                Int(query.start.0),
                optional(query.completion().map(|time| time.0)),
                Int(query.flows.into()),
            ])?;
        }
        Ok(())
    })?;
    Table::create(directory, "queues", QUEUES, about, |table| {
        for sample in &results.queues {
            let port = usize::from(sample.port.0);
            let peer = topology.switches()[sample.switch.0 as usize].ports[port].peer;
            table.row([
                Int(sample.at.0),
                Text(name(Node::Switch(sample.switch.0))),
                Int(sample.port.0.into()),
                Text(name(peer)),
                Int(sample.packets.into()),
                Int(sample.bytes),
            ])?;
        }
        Ok(())
    })?;
    Table::create(directory, "links", LINKS, about, |table| {
        for link in links(topology, results) {
            let LinkUse { from, to, .. } = link;
            table.row([
                Text(name(from)),
                optional(link.port.map(u64::from)),
                Text(name(to)),
                Int(link.rate),
                Int(link.packets),
                Int(link.bytes),
                Int(link.marked),
                Int(link.dropped),
                Int(link.dropped_bytes),
                Int(link.detoured),
                optional(link.most_packets.map(u64::from)),
            ])?;
        }
        Ok(())
    })?;
    Table::create(directory, "events", EVENTS, about, |table| {
        for (number, stretch) in (0..).zip(&results.stretches) {
            for (label, workload) in scenario.workloads.iter().enumerate() {
                let counts = [stretch.dropped, stretch.marked, stretch.detours];
                let [dropped, marked, detours] = counts.map(|by_label| by_label[label]);
                if dropped + marked + detours > 0 {
                    table.row([
                        Int(number * results.stretch.0),
                        Text(&workload.name),
                        Int(dropped),
                        Int(marked),
                        Int(detours),
                    ])?;
                }
            }
        }
        Ok(())
    })?;
    Table::create(directory, "counts", COUNTS, about, |table| {
        for (what, count) in of_the_run(results) {
            table.row([Null, Text(what), Int(count)])?;
        }
        for (number, workload) in scenario.workloads.iter().enumerate() {
            let label = &results.labels[number];
            let dropped = |reason: DropReason| label.dropped[reason as usize];
            for (what, count) in [
                ("packets_sent", label.sent),
                ("marked", label.marked),
                ("dropped_buffer_full", dropped(DropReason::BufferFull)),
                ("dropped_ttl_expired", dropped(DropReason::TtlExpired)),
                ("dropped_no_route", dropped(DropReason::NoRoute)),
                ("detours", label.detours),
                ("packets_detoured", label.detoured_packets),
            ] {
                table.row([Text(&workload.name), Text(what), Int(count)])?;
            }
        }
        Ok(())
    })
}

/// What counts for the run as a whole.
fn of_the_run(results: &Results) -> [(&'static str, u64); 11] {
    let counts = &results.conservation;
    [
        ("end_ps", results.end.0),
        ("events", results.events),
        ("packets_sent", counts.sent),
        ("packets_delivered", counts.delivered),
        ("packets_dropped", counts.dropped),
        ("packets_in_network", counts.in_network),
        ("packet_hops", counts.hops),
        ("path_lengths", counts.path_lengths),
        ("most_packets", results.most_packets),
        ("most_connections", results.most_connections),
        ("queue_samples_lost", results.queue_samples_lost),
    ]
}

/// The switches on a flow's way, if the scenario asks for ways.
fn path(scenario: &Scenario, flow: &FlowRecord) -> Option<String> {
    if !scenario.paths {
        return None;
    }
    let name = |switch: u32| scenario.topology.name(Node::Switch(switch));
    let names: Vec<&str> = flow.path.iter().map(|(switch, _)| name(switch.0)).collect();
    Some(names.join(" > "))
}

#[cfg(test)]
mod tests {
    use super::{COUNTS, EVENTS, FLOWS, LINKS, QUERIES, QUEUES};

    #[test]
    fn every_column_is_documented() {
        let doc = include_str!("../../../../docs/reference/simulator.md");
        for (table, columns) in [
            ("flows", FLOWS),
            ("queries", QUERIES),
            ("queues", QUEUES),
            ("links", LINKS),
            ("events", EVENTS),
            ("counts", COUNTS),
        ] {
            let (_, section) = doc.split_once(&format!("### {table}.parquet")).unwrap();
            let section = section.split("\n## ").next().unwrap_or(section);
            let section = section.split("\n### ").next().unwrap_or(section);
            for (column, _) in columns {
                assert!(
                    section.contains(&format!("`{column}`")),
                    "{table}: {column}"
                );
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Results of a run as Parquet files: `docs/reference/simulator.md` describes them.

use super::series::ends;
use super::slowdown::{ENDLESS, Ideals};
use super::summary::{LinkUse, links, workload_of_query};
use super::table::Value::{Int, Null, Text};
use super::table::{Columns, Metadata, NUMBER, TEXT, Table, TableError};
use slowpath_netsim::results::{FlowRecord, Results};
use slowpath_netsim::scenario::Scenario;
use slowpath_netsim::topology::Node;
use slowpath_switch::DropReason;
use slowpath_table::ParquetError;
use std::path::Path;

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
    ("ideal_ps", NUMBER),
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
    ("pauses_sent", NUMBER),
    ("pauses_received", NUMBER),
    ("paused_ps", NUMBER),
    ("overruns", NUMBER),
];
/// Columns of `flow-series.parquet`.
pub const FLOW_SERIES: Columns = &[
    ("time_ps", NUMBER),
    ("flow", NUMBER),
    ("cwnd_packets", NUMBER),
    ("arrived_bytes", NUMBER),
];
/// Columns of `link-series.parquet`.
pub const LINK_SERIES: Columns = &[
    ("time_ps", NUMBER),
    ("node", TEXT),
    ("neighbour", TEXT),
    ("packets", NUMBER),
    ("bytes", NUMBER),
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

/// Writes all tables of a run into a directory, which is created if it does not exist.
///
/// # Errors
/// The first table that cannot be written.
pub fn write(
    directory: &Path,
    metadata: Metadata<'_>,
    scenario: &Scenario,
    results: &Results,
) -> Result<(), TableError> {
    slowpath_files::create_folder(directory).map_err(|error| TableError::Create {
        path: directory.to_owned(),
        error,
    })?;
    let run = Run { scenario, results };
    type Fill<'a> = fn(&Run<'a>, &mut Table) -> Result<(), ParquetError>;
    let tables: [(&str, Columns, Fill<'_>); 6] = [
        ("flows", FLOWS, Run::flows),
        ("queries", QUERIES, Run::queries),
        ("queues", QUEUES, Run::queues),
        ("links", LINKS, Run::links),
        ("events", EVENTS, Run::events),
        ("counts", COUNTS, Run::counts),
    ];
    let series: [(&str, Columns, Fill<'_>); 2] = [
        ("flow-series", FLOW_SERIES, Run::flow_series),
        ("link-series", LINK_SERIES, Run::link_series),
    ];
    // Tables of what no one asked for would be empty.
    let asked = scenario.series.is_some();
    let series = series.into_iter().filter(|_| asked);
    for (name, columns, fill) in tables.into_iter().chain(series) {
        Table::create(directory, name, columns, metadata, |table| {
            fill(&run, table)
        })?;
    }
    Ok(())
}

/// A scenario and its results.
struct Run<'a> {
    scenario: &'a Scenario,
    results: &'a Results,
}

impl Run<'_> {
    fn name(&self, node: Node) -> &str {
        self.scenario.topology.name(node)
    }

    fn workload(&self, number: usize) -> &str {
        &self.scenario.workloads[number].name
    }

    fn flows(&self, table: &mut Table) -> Result<(), ParquetError> {
        let mut ideals = Ideals::new(self.scenario);
        for flow in &self.results.flows {
            let path = path(self.scenario, flow);
            table.row([
                Int(flow.id),
                Text(self.workload(usize::from(flow.label))),
                Text(self.name(Node::Host(flow.source.0))),
                Text(self.name(Node::Host(flow.destination.0))),
                (flow.bytes < ENDLESS).then_some(flow.bytes).into(),
                Int(flow.arrived),
                Int(flow.start.0),
                flow.completion().map(|time| time.0).into(),
                flow.query.into(),
                Int(flow.retransmissions.into()),
                Int(flow.timeouts.into()),
                path.as_deref().map_or(Null, Text),
                ideals.of(flow).map(|time| time.0).into(),
            ])?;
        }
        Ok(())
    }

    fn queries(&self, table: &mut Table) -> Result<(), ParquetError> {
        for query in &self.results.queries {
            table.row([
                Int(query.id),
                Text(self.workload(workload_of_query(query.id))),
                Int(query.start.0),
                query.completion().map(|time| time.0).into(),
                Int(query.flows.into()),
            ])?;
        }
        Ok(())
    }

    fn queues(&self, table: &mut Table) -> Result<(), ParquetError> {
        let switches = self.scenario.topology.switches();
        for sample in &self.results.queues {
            let port = usize::from(sample.port.0);
            let peer = switches[sample.switch.0 as usize].ports[port].peer;
            table.row([
                Int(sample.at.0),
                Text(self.name(Node::Switch(sample.switch.0))),
                Int(sample.port.0.into()),
                Text(self.name(peer)),
                Int(sample.packets.into()),
                Int(sample.bytes),
            ])?;
        }
        Ok(())
    }

    fn links(&self, table: &mut Table) -> Result<(), ParquetError> {
        for link in links(&self.scenario.topology, self.results) {
            let LinkUse { from, to, .. } = link;
            table.row([
                Text(self.name(from)),
                link.port.map(u64::from).into(),
                Text(self.name(to)),
                Int(link.rate),
                Int(link.packets),
                Int(link.bytes),
                Int(link.marked),
                Int(link.dropped),
                Int(link.dropped_bytes),
                Int(link.detoured),
                link.most_packets.map(u64::from).into(),
                link.pauses.map(|pauses| pauses.sent).into(),
                link.pauses.map(|pauses| pauses.received).into(),
                link.pauses.map(|pauses| pauses.paused.0).into(),
                link.pauses.map(|pauses| pauses.overruns).into(),
            ])?;
        }
        Ok(())
    }

    fn flow_series(&self, table: &mut Table) -> Result<(), ParquetError> {
        for sample in &self.results.windows {
            table.row([
                Int(sample.at.0),
                Int(sample.flow),
                Int(sample.segments.into()),
                Int(sample.arrived),
            ])?;
        }
        Ok(())
    }

    fn link_series(&self, table: &mut Table) -> Result<(), ParquetError> {
        for sample in &self.results.lines {
            let Some([from, to]) = ends(&self.scenario.topology, sample.line) else {
                continue;
            };
            table.row([
                Int(sample.at.0),
                Text(self.name(from)),
                Text(self.name(to)),
                Int(sample.packets),
                Int(sample.bytes),
            ])?;
        }
        Ok(())
    }

    fn events(&self, table: &mut Table) -> Result<(), ParquetError> {
        for (number, stretch) in (0..).zip(&self.results.stretches) {
            for (label, workload) in self.scenario.workloads.iter().enumerate() {
                let counts = [stretch.dropped, stretch.marked, stretch.detours];
                let [dropped, marked, detours] = counts.map(|by_label| by_label[label]);
                if dropped + marked + detours > 0 {
                    table.row([
                        Int(number * self.results.stretch.0),
                        Text(&workload.name),
                        Int(dropped),
                        Int(marked),
                        Int(detours),
                    ])?;
                }
            }
        }
        Ok(())
    }

    fn counts(&self, table: &mut Table) -> Result<(), ParquetError> {
        for (what, count) in run_counts(self.results) {
            table.row([Null, Text(what), Int(count)])?;
        }
        for (number, workload) in self.scenario.workloads.iter().enumerate() {
            let label = &self.results.labels[number];
            let dropped = |reason: DropReason| label.dropped[reason as usize];
            for (what, count) in [
                ("packets_sent", label.sent),
                ("marked", label.marked),
                ("dropped_buffer_full", dropped(DropReason::BufferFull)),
                ("dropped_ttl_expired", dropped(DropReason::TtlExpired)),
                ("dropped_no_route", dropped(DropReason::NoRoute)),
                ("dropped_early", dropped(DropReason::Early)),
                ("detours", label.detours),
                ("packets_detoured", label.detoured_packets),
            ] {
                table.row([Text(&workload.name), Text(what), Int(count)])?;
            }
        }
        Ok(())
    }
}

/// Counts of the whole run.
fn run_counts(results: &Results) -> Vec<(&'static str, u64)> {
    let counts = &results.conservation;
    let mut all = vec![
        ("end_ps", results.end.0),
        ("events", results.events),
        ("packets_sent", counts.sent),
        ("packets_delivered", counts.delivered),
        ("packets_copied", counts.copies),
        ("packets_lost_on_links", counts.lost),
        ("packets_dropped", counts.dropped),
        ("packets_in_network", counts.in_network),
        ("packet_hops", counts.hops),
        ("path_lengths", counts.path_lengths),
        ("most_packets", results.most_packets),
        ("most_connections", results.most_connections),
        ("queue_samples_lost", results.queue_samples_lost),
    ];
    if !results.flowlets.is_empty() {
        let flowlets = results.flowlets.iter().map(|(_, counts)| counts);
        all.extend([
            ("flowlets", flowlets.clone().map(|it| it.flowlets).sum()),
            ("path_changes", flowlets.map(|it| it.path_changes).sum()),
        ]);
    }
    all
}

/// The switches on a flow's path, if the scenario asks for paths.
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
    use super::{COUNTS, EVENTS, FLOW_SERIES, FLOWS, LINK_SERIES, LINKS, QUERIES, QUEUES};

    #[test]
    fn every_column_is_documented() {
        let doc = include_str!("../../../docs/reference/simulator.md");
        for (table, columns) in [
            ("flows", FLOWS),
            ("queries", QUERIES),
            ("queues", QUEUES),
            ("links", LINKS),
            ("flow-series", FLOW_SERIES),
            ("link-series", LINK_SERIES),
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

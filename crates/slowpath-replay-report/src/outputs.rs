// SPDX-License-Identifier: Apache-2.0
//! The files of a replay: packets of both ends, and the state of the sockets.

use crate::replayed::Batch;
use crate::{SIDES, end_name};
use arrow_array::builder::{Int64Builder, StringBuilder, UInt32Builder, UInt64Builder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::arrow_writer::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use slowpath_recording::fields::{FLAG, Variable};
use slowpath_recording::{Connection, Recording};
use slowpath_replay::relabel;
use slowpath_replay::{FIRST_PORT, Probe};
use slowpath_trace::read::{Input, Inputs};
use slowpath_trace::write;
use std::fs::File;
use std::io::{BufWriter, Cursor, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file or folder that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct OutputError(pub String);

/// Captures, by end.
const NAMES: [&str; 2] = ["client.pcapng", "server.pcapng"];
/// Rows that are held in memory until they are encoded.
const ROWS: usize = 1 << 15;
/// Begins the names of folders that go with their process.
const PASSING: &str = "slowpath-replay-";

/// So many of them may have been left behind by processes with one number.
const MOST_LEFT: u32 = 1000;

/// A folder that is removed with this value.
#[derive(Debug)]
pub struct Working {
    /// Where it is.
    pub path: PathBuf,
}

impl Working {
    /// A new folder among temporary files.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn new() -> Result<Self, OutputError> {
        let mut attempt = 0;
        loop {
            let name = format!("{PASSING}{}-{attempt}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Working { path }),
                // Of a process with the same number that was killed.
                Err(error) if error.kind() == ErrorKind::AlreadyExists && attempt < MOST_LEFT => {
                    attempt += 1;
                }
                Err(error) => {
                    let path = path.display();
                    return Err(OutputError(format!("cannot create {path}: {error}")));
                }
            }
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// A column of `probes.parquet`.
#[derive(Clone, Debug)]
pub struct Probed {
    /// The name that the user gave.
    pub name: String,
    /// The variable.
    pub variable: Variable,
}

/// Writes captures and probes into a folder, which is created if it does not exist.
///
/// # Errors
/// A file cannot be written.
pub fn write(
    folder: &Path,
    recording: &Recording,
    batches: &[Batch],
    probed: &[Probed],
) -> Result<(), OutputError> {
    let failed = |path: &Path, error: &dyn std::fmt::Display| {
        OutputError(format!("cannot write {}: {error}", path.display()))
    };
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    for (end, name) in NAMES.iter().enumerate() {
        let path = folder.join(name);
        capture(&path, end, recording, batches).map_err(|error| failed(&path, &error))?;
    }
    if !probed.is_empty() {
        let path = folder.join("probes.parquet");
        probes(&path, recording, batches, probed).map_err(|error| failed(&path, &error))?;
    }
    Ok(())
}

/// `functions.txt`: each run's handler and the functions that it called.
///
/// # Errors
/// The file cannot be written.
pub fn functions(
    folder: &Path,
    recording: &Recording,
    batches: &[Batch],
) -> Result<(), OutputError> {
    let mut text = String::new();
    for batch in batches {
        let connection = batch
            .places
            .first()
            .map(|place| &recording.connections[*place]);
        for line in batch.replayed.functions.lines() {
            match named_run(line).zip(connection) {
                Some(((end, run), connection)) => {
                    let runs = &connection.ends[end].runs;
                    if let Some(it) = usize::try_from(run).ok().and_then(|run| runs.get(run)) {
                        let name = end_name(end as u8);
                        text += &format!("{name} run {run}, {} ns: {:?}\n", it.at.0, it.handler);
                    }
                }
                None => {
                    text += line;
                    text.push('\n');
                }
            }
        }
    }
    let path = folder.join("functions.txt");
    std::fs::write(&path, text)
        .map_err(|error| OutputError(format!("cannot write {}: {error}", path.display())))
}

/// The end and the run of a line that names one.
fn named_run(line: &str) -> Option<(usize, u64)> {
    let (end, rest) = line.split_once(" run ")?;
    let end = SIDES.iter().position(|name| *name == end)?;
    Some((end, rest.split(' ').next()?.parse().ok()?))
}

fn capture(
    path: &Path,
    end: usize,
    recording: &Recording,
    batches: &[Batch],
) -> Result<(), Box<dyn std::error::Error>> {
    let mut packets = Vec::new();
    for batch in batches {
        let Some(captures) = &batch.replayed.captures else {
            continue;
        };
        let connections: Vec<&Connection> = batch
            .places
            .iter()
            .map(|place| &recording.connections[*place])
            .collect();
        let bytes = std::fs::read(&captures[end])?;
        packets.extend(relabel::packets(
            &bytes,
            &connections,
            FIRST_PORT,
            end,
            recording.origin.epoch,
        ));
    }
    // By way of pcap: the writer copies.
    let passing = Cursor::new(relabel::pcap(packets));
    let inputs = Inputs::new(vec![Input::Stream(
        path.display().to_string(),
        Box::new(passing),
    )])?;
    let mut out = BufWriter::new(File::create(path)?);
    write::copy(inputs, |_| true, &write::Comments::new(), &mut out)?;
    Ok(())
}

/// `probes.parquet`: one row a run of a handler.
fn probes(
    path: &Path,
    recording: &Recording,
    batches: &[Batch],
    probed: &[Probed],
) -> Result<(), Box<dyn std::error::Error>> {
    let mut fields = vec![
        Field::new("connection", DataType::UInt32, false),
        Field::new("end", DataType::Utf8, false),
        Field::new("run", DataType::UInt64, false),
        Field::new("time_ns", DataType::UInt64, false),
    ];
    fields.extend(probed.iter().map(|it| match it.variable {
        Variable::Checked(_) => Field::new(&it.name, DataType::UInt32, false),
        Variable::More(place) => Field::new(&it.name, DataType::Int64, place == FLAG),
    }));
    let schema = Arc::new(Schema::new(fields));
    let properties = WriterProperties::builder()
        .set_created_by(format!("slowpath {}", env!("CARGO_PKG_VERSION")))
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .build();
    let file = File::create(path)?;
    let mut writer = ArrowWriter::try_new(file, schema.clone(), Some(properties))?;
    for batch in batches {
        for rows in batch.replayed.probes.chunks(ROWS) {
            let rows = Rows {
                batch,
                rows,
                recording,
            };
            writer.write(&rows.encode(&schema, probed)?)?;
        }
    }
    writer.close()?;
    Ok(())
}

struct Rows<'a> {
    batch: &'a Batch,
    rows: &'a [Probe],
    recording: &'a Recording,
}

impl Rows<'_> {
    fn encode(&self, schema: &Arc<Schema>, probed: &[Probed]) -> Result<RecordBatch, ParquetError> {
        let mut connection = UInt32Builder::new();
        let mut end = StringBuilder::new();
        let mut run = UInt64Builder::new();
        let mut time = UInt64Builder::new();
        for probe in self.rows {
            let place = self.batch.places.get(probe.connection as usize);
            connection.append_value(place.map_or(u32::MAX, |place| *place as u32));
            end.append_value(end_name(probe.end));
            run.append_value(probe.run);
            let connection = place.and_then(|place| self.recording.connections.get(*place));
            let at = connection.map_or(probe.at, |it| it.moment(probe.end.into(), probe.at));
            time.append_value(at.0.saturating_add_signed(self.recording.origin.epoch));
        }
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(connection.finish()),
            Arc::new(end.finish()),
            Arc::new(run.finish()),
            Arc::new(time.finish()),
        ];
        for it in probed {
            columns.push(match it.variable {
                Variable::Checked(field) => {
                    let mut values = UInt32Builder::new();
                    values.extend(self.rows.iter().map(|probe| Some(probe.fields[field])));
                    Arc::new(values.finish())
                }
                Variable::More(place) => {
                    let mut values = Int64Builder::new();
                    let value = |probe: &Probe| probe.more.get(place).copied();
                    // No acknowledgment was looked at: there are no flags of one.
                    let there = |value: &i64| place != FLAG || *value != 0;
                    values.extend(self.rows.iter().map(|probe| value(probe).filter(there)));
                    Arc::new(values.finish())
                }
            });
        }
        Ok(RecordBatch::try_new(schema.clone(), columns)?)
    }
}

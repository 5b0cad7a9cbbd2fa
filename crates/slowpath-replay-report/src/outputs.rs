// SPDX-License-Identifier: Apache-2.0
//! The files of a replay: packets of both ends, and the state of the sockets.

use crate::replayed::Batch;
use crate::{SIDES, end_name};
use slowpath_files::OutputFile;
use slowpath_recording::fields::{FLAG, Variable};
use slowpath_recording::{Connection, Recording};
use slowpath_replay::relabel;
use slowpath_replay::{FIRST_PORT, Probe};
use slowpath_table::{Column, Kind, Settings, Value, Writer};
use slowpath_trace::read::{Input, Inputs};
use slowpath_trace::write;
use std::io::{Cursor, ErrorKind};
use std::path::{Path, PathBuf};

/// A file or folder that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct OutputError(pub String);

/// Captures, by end.
const NAMES: [&str; 2] = ["client.pcapng", "server.pcapng"];
/// Begins the names of folders that go with their process.
const PASSING: &str = "slowpath-replay-";

/// The most of them that processes with one number may have left behind.
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
            match slowpath_files::new_folder(&path) {
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
    slowpath_files::create_folder(folder).map_err(|error| failed(folder, &error))?;
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
    slowpath_files::write(&path, text)
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
    slowpath_files::write_with(path, |out| {
        write::copy(inputs, |_| true, &write::Comments::new(), out)
    })?;
    Ok(())
}

/// `probes.parquet`: one row a run of a handler.
fn probes(
    path: &Path,
    recording: &Recording,
    batches: &[Batch],
    probed: &[Probed],
) -> Result<(), Box<dyn std::error::Error>> {
    let mut columns = vec![
        Column::new("connection", Kind::UInt32).required(),
        Column::new("end", Kind::Text).required(),
        Column::new("run", Kind::UInt64).required(),
        Column::new("time_ns", Kind::UInt64).required(),
    ];
    columns.extend(probed.iter().map(|it| match it.variable {
        Variable::Checked(_) => Column::new(&it.name, Kind::UInt32).required(),
        Variable::More(place) => {
            let column = Column::new(&it.name, Kind::Int64);
            if place == FLAG {
                column
            } else {
                column.required()
            }
        }
    }));
    let settings = Settings {
        producer: format!("slowpath {}", env!("CARGO_PKG_VERSION")),
        zstd_level: 3,
        ..Settings::default()
    };
    let file = OutputFile::create(path)?;
    let mut writer = Writer::new(file.handle()?, columns, &settings)?;
    for batch in batches {
        for probe in &batch.replayed.probes {
            writer.row(row(recording, batch, probe, probed))?;
        }
    }
    writer.close()?;
    Ok(file.commit()?)
}

/// The row of a run of a handler.
fn row<'a>(
    recording: &Recording,
    batch: &Batch,
    probe: &'a Probe,
    probed: &'a [Probed],
) -> impl Iterator<Item = Value<'a>> {
    let place = batch.places.get(probe.connection as usize);
    let connection = place.and_then(|place| recording.connections.get(*place));
    let at = connection.map_or(probe.at, |it| it.moment(probe.end.into(), probe.at));
    let at = at.0.saturating_add_signed(recording.origin.epoch);
    let number = place.map_or(u32::MAX, |place| *place as u32);
    let head = [
        Value::UInt(number.into()),
        Value::Text(end_name(probe.end)),
        Value::UInt(probe.run),
        Value::UInt(at),
    ];
    let values = probed.iter().map(|it| match it.variable {
        Variable::Checked(field) => Value::UInt(probe.fields[field].into()),
        Variable::More(place) => {
            // No acknowledgment was looked at: there are no flags of one.
            let there = |value: &i64| place != FLAG || *value != 0;
            let value = probe.more.get(place).copied().filter(there);
            value.map_or(Value::Null, Value::Int)
        }
    });
    head.into_iter().chain(values)
}

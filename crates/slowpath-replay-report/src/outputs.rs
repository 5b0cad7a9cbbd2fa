// SPDX-License-Identifier: Apache-2.0
//! The files of a replay: packets of both ends, and the state of the sockets.

use crate::frames::Frames;
use crate::replayed::Batch;
use crate::{SIDES, end_name};
use slowpath_files::OutputFile;
use slowpath_recording::fields::{FLAG, Field, Variable};
use slowpath_recording::{Connection, Handler, Recording};
use slowpath_replay::relabel;
use slowpath_replay::{Captures, FIRST_PORT, Probe};
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

/// A variable that was asked for: a column of `probes.parquet`, a line of the page.
#[derive(Clone, Debug)]
pub struct Probed {
    /// The name that the user gave.
    pub name: String,
    /// The variable.
    pub variable: Variable,
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> OutputError {
    OutputError(format!("cannot write {}: {error}", path.display()))
}

/// Writes the captures of both ends into a folder, which is created if it does not exist; gives the frame of each packet.
///
/// # Errors
/// A file cannot be written.
pub fn captures(
    folder: &Path,
    recording: &Recording,
    all: &[Captures],
) -> Result<Frames, OutputError> {
    slowpath_files::create_folder(folder).map_err(|error| failed(folder, &error))?;
    let mut frames = Frames::default();
    for (end, name) in NAMES.iter().enumerate() {
        let path = folder.join(name);
        let packets = capture(&path, end, recording, all);
        frames.add(end as u8, &packets.map_err(|error| failed(&path, &error))?);
    }
    Ok(frames)
}

impl Probed {
    /// Its value after a run; `None`: no acknowledgment was looked at, so that there are no flags of one.
    fn value(&self, probe: &Probe) -> Option<i64> {
        match self.variable {
            Variable::Checked(field) => Some(probe.fields[field].into()),
            Variable::More(place) => {
                let there = |value: &i64| place != FLAG || *value != 0;
                probe.more.get(place).copied().filter(there)
            }
        }
    }

    /// The same in its unit; `None` also without a socket, and where it stands for no limit or no sample.
    pub(crate) fn measured(&self, probe: &Probe, hz: u32) -> Option<f64> {
        let there = probe.fields[Field::State] != 0;
        let value = self.value(probe).filter(|_| there)?;
        self.variable.measured(value, hz)
    }
}

/// Writes captures and probes into a folder, which is created if it does not exist; gives the frame of each packet.
///
/// # Errors
/// A file cannot be written.
pub fn write(
    folder: &Path,
    recording: &Recording,
    batches: &[Batch],
    probed: &[Probed],
) -> Result<Frames, OutputError> {
    let all: Vec<Captures> = batches.iter().filter_map(Batch::captures).collect();
    let frames = captures(folder, recording, &all)?;
    if !probed.is_empty() {
        let path = folder.join("probes.parquet");
        probes(&path, recording, batches, probed).map_err(|error| failed(&path, &error))?;
    }
    Ok(frames)
}

/// `functions.txt`: each run's handler and the functions that it called; the frame of a packet that came in.
///
/// # Errors
/// The file cannot be written.
pub fn functions(
    folder: &Path,
    recording: &Recording,
    batches: &[Batch],
    frames: &Frames,
) -> Result<(), OutputError> {
    let mut text = String::new();
    for batch in batches {
        let number = batch.places.first().copied().unwrap_or(usize::MAX);
        let connection = recording.connections.get(number);
        for line in batch.replayed.functions.lines() {
            match named_run(line).zip(connection) {
                Some(((end, run), connection)) => {
                    let runs = &connection.ends[end].runs;
                    if let Some(it) = usize::try_from(run).ok().and_then(|run| runs.get(run)) {
                        let name = end_name(end as u8);
                        let frame = match it.handler {
                            Handler::Packet { number: packet, .. } => {
                                frames.name(number, 1 - end as u8, &[packet as usize])
                            }
                            _ => None,
                        };
                        let frame = frame.map_or(String::new(), |frame| format!(" [{frame}]"));
                        let (at, handler) = (it.at.0, &it.handler);
                        text += &format!("{name} run {run}, {at} ns: {handler:?}{frame}\n");
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

/// Writes the capture of an end; gives its packets in the order of the file, with the connections' numbers.
fn capture(
    path: &Path,
    end: usize,
    recording: &Recording,
    all: &[Captures],
) -> Result<Vec<relabel::Packet>, Box<dyn std::error::Error>> {
    let mut packets = Vec::new();
    for captures in all {
        let places = captures.places.iter();
        let connections: Vec<&Connection> =
            places.map(|place| &recording.connections[*place]).collect();
        let bytes = std::fs::read(&captures.files[end])?;
        let epoch = recording.origin.epoch;
        let own = relabel::packets(&bytes, &connections, FIRST_PORT, end, epoch);
        packets.extend(own.into_iter().map(|mut packet| {
            packet.connection = captures.places[packet.connection];
            packet
        }));
    }
    // By way of pcap: the writer copies.
    let passing = Cursor::new(relabel::pcap(&mut packets));
    let inputs = Inputs::new(vec![Input::Stream(
        path.display().to_string(),
        Box::new(passing),
    )])?;
    slowpath_files::write_with(path, |out| {
        write::copy(inputs, |_| true, &write::Comments::new(), out)
    })?;
    Ok(packets)
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
        Variable::More(_) => it.value(probe).map_or(Value::Null, Value::Int),
    });
    head.into_iter().chain(values)
}

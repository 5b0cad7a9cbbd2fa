// SPDX-License-Identifier: Apache-2.0
//! Replays compared with their recording.

use crate::end_name;
use crate::frames::{Frames, HINT};
use crate::output::{DivergenceOutput, ExactRunsOutput, value};
use slowpath_recording::{Handler, RecorderKind, Recording, Run};
use slowpath_replay::{Captures, Difference, Probe, ReplayResult, Replayed};
use slowpath_text::{Paint, count};
use std::io::Write;
use std::time::Duration;

/// The connections that one kernel replayed.
#[derive(Debug)]
pub struct Batch {
    /// The numbers of its connections.
    pub places: Vec<usize>,
    /// What the kernel did.
    pub replayed: Replayed,
}

impl Batch {
    /// Its captures, if it has any.
    pub fn captures(&self) -> Option<Captures> {
        Some(Captures {
            places: self.places.clone(),
            files: self.replayed.captures.clone()?,
        })
    }
}

/// The sum of a figure of both ends over all connections.
pub fn sum(batches: &[Batch], of: fn(&ReplayResult) -> [u64; 2]) -> u64 {
    let results = batches.iter().flat_map(|batch| &batch.replayed.results);
    results.map(|result| of(result).iter().sum::<u64>()).sum()
}

/// A connection whose replay is not what was recorded.
#[derive(Clone, Debug)]
pub struct Differing<'a> {
    /// The connection's number.
    pub connection: usize,
    difference: &'a Difference,
    runs: [u64; 2],
    /// Both ends' state there.
    state: Vec<&'a Probe>,
    frames: &'a Frames,
}

/// The connections whose replay differs, by number; `frames` are those of the written captures.
pub fn differing<'a>(batches: &'a [Batch], frames: &'a Frames) -> Vec<Differing<'a>> {
    let mut all = Vec::new();
    for batch in batches {
        for (at, (place, result)) in batch.places.iter().zip(&batch.replayed.results).enumerate() {
            let Some(difference) = &result.difference else {
                continue;
            };
            let own = |probe: &&Probe| probe.connection as usize == at;
            // The last of each end is where it stopped.
            let last = |end: u8| {
                let probes = batch.replayed.probes.iter().rev();
                probes.filter(own).find(|probe| probe.end == end)
            };
            all.push(Differing {
                connection: *place,
                difference,
                runs: result.runs,
                state: [0, 1].into_iter().filter_map(last).collect(),
                frames,
            });
        }
    }
    all.sort_by_key(|found| found.connection);
    all
}

impl Differing<'_> {
    /// As a JSON object.
    pub fn json(&self, recording: &Recording) -> serde_json::Value {
        let connection = &recording.connections[self.connection];
        let fields = |probe: &Probe| {
            let fields = probe.fields.iter();
            fields.map(|(field, value)| (field.name(), value)).collect()
        };
        let state = self.state.iter();
        value(&DivergenceOutput {
            connection: self.connection,
            client: connection.addresses[0].to_string(),
            server: connection.addresses[1].to_string(),
            end: end_name(self.difference.end),
            run: self.difference.run,
            packet: self
                .packet(recording)
                .map(|(end, packet)| self.frames.json(self.connection, end, packet)),
            how: self.difference.how.to_string(),
            expected: self.difference.expected,
            found: self.difference.found,
            exact_runs: ExactRunsOutput {
                client: self.runs[0],
                server: self.runs[1],
            },
            state: state
                .map(|probe| (end_name(probe.end), fields(probe)))
                .collect(),
        })
    }

    /// The recorded run at which it diverged.
    fn run<'r>(&self, recording: &'r Recording) -> Option<&'r Run> {
        let ends = &recording.connections[self.connection].ends;
        let runs = &ends[usize::from(self.difference.end & 1)].runs;
        runs.get(usize::try_from(self.difference.run).ok()?)
    }

    /// The packet that came in then, and the end that sent it.
    fn packet(&self, recording: &Recording) -> Option<(u8, usize)> {
        match self.run(recording)?.handler {
            Handler::Packet { number, .. } => {
                Some((1 - (self.difference.end & 1), number as usize))
            }
            _ => None,
        }
    }

    fn line(&self, recording: &Recording) -> String {
        let [client, server] = recording.connections[self.connection].addresses;
        let what = self.run(recording);
        let what = what.map_or_else(String::new, |run| format!(" ({:?})", run.handler));
        let frame = self
            .packet(recording)
            .and_then(|(end, packet)| self.frames.name(self.connection, end, &[packet]))
            .map_or_else(String::new, |frame| format!(" [{frame}]"));
        format!(
            "connection {}, {client} > {server}: diverged at run {} of the {}{what}: {}, {} expected, {} found{frame}",
            self.connection,
            self.difference.run,
            end_name(self.difference.end),
            self.difference.how,
            self.difference.expected,
            self.difference.found,
        )
    }
}

/// The state of an end as the replay left it: what is not 0.
fn standing(probe: &Probe) -> String {
    let set: Vec<String> = probe
        .fields
        .iter()
        .filter(|(_, value)| *value != 0)
        .map(|(field, value)| format!("{} {value}", field.name()))
        .collect();
    match set.is_empty() {
        true => "no socket".to_owned(),
        false => set.join(", "),
    }
}

/// Writes how many connections replayed as recorded, and each difference.
///
/// # Errors
/// Writing fails.
pub fn write(
    batches: &[Batch],
    differing: &[Differing<'_>],
    recording: &Recording,
    took: Duration,
    paint: Paint,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let all: usize = batches.iter().map(|batch| batch.places.len()).sum();
    let alike = all - differing.len();
    let summary = if recording.origin.recorder == RecorderKind::Tracepoints {
        format!("{alike} of {all} connections replayed as far as was observed")
    } else {
        format!("{alike} of {all} connections replayed exactly")
    };
    writeln!(
        out,
        "{}: {} runs of handlers, {} packets, {:.2} s",
        paint.bold(&summary),
        count(sum(batches, |result| result.runs)),
        count(sum(batches, |result| result.packets)),
        took.as_secs_f64()
    )?;
    for found in differing {
        writeln!(out, "{}", found.line(recording))?;
        for probe in &found.state {
            writeln!(out, "  {}: {}", end_name(probe.end), standing(probe))?;
        }
    }
    let unnamed = |it: &Differing<'_>| it.frames.is_empty() && it.packet(recording).is_some();
    if differing.iter().any(unnamed) {
        writeln!(out, "{HINT}")?;
    }
    Ok(())
}

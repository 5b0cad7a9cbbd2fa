// SPDX-License-Identifier: Apache-2.0
//! Recordings by tracepoints alone: what was inferred otherwise so that replays go further, and how far was seen.

use super::{Replay, end_name};
use crate::failure::Failure;
use crate::progress::Progress;
use serde_json::{Value, json};
use slowpath_lab::virtual_time::Kernel;
use slowpath_model::Micros;
use slowpath_recording::TRACEPOINTS;
use slowpath_recording::{Connection, Outcome, Recording};
use slowpath_replay::fit::{Alteration, Change};
use slowpath_replay::{FitOptions, Fitted};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Fits a light recording, unless nobody wants that. `None`: it is as it was recorded.
pub(super) fn fit(
    args: &Replay,
    kernel: &Kernel,
    recording: &Recording,
    chosen: &[usize],
    folder: &Path,
) -> Result<Option<Fitted>, Failure> {
    if args.no_fit || recording.origin.recorder != TRACEPOINTS {
        return Ok(None);
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let options = FitOptions {
        jobs: args.jobs.unwrap_or(processors).max(1),
        ..FitOptions::default()
    };
    let begun = Instant::now();
    let mut progress = (!args.quiet).then(|| Progress::new("fitting", Duration::ZERO));
    let fitted = slowpath_replay::fit(kernel, recording, chosen, &options, folder, &mut |it| {
        let Some(progress) = &mut progress else {
            return;
        };
        let elapsed = begun.elapsed();
        let share = it.replays as f64 / it.most.max(1) as f64;
        progress.expect(elapsed.div_f64(share.clamp(1e-3, 1.0)));
        let note = format!("{} connections left, {} replays", it.searched, it.replays);
        progress.at(Micros(elapsed.as_micros() as u64), &note);
    });
    let fitted = fitted.map_err(|error| Failure::Recording {
        file: args.file.clone(),
        reason: error.to_string(),
    })?;
    Ok(Some(fitted))
}

/// The last run of each end at whose beginning the recorder looked, and when that was in milliseconds after the connection's beginning.
fn seen_until(connection: &Connection) -> [Option<(usize, f64)>; 2] {
    let begun = connection.ends[0].runs.first().map_or(0, |run| run.at.0);
    connection.ends.each_ref().map(|end| {
        let looked = end.runs.iter().rposition(|run| {
            let mut all = run.outcomes.iter();
            all.any(|it| matches!(it, Outcome::Observed { .. }))
        })?;
        let at = end.runs[looked].at.0;
        Some((looked, at.saturating_sub(begun) as f64 / 1e6))
    })
}

pub(super) fn seen_json(recording: &Recording, chosen: &[usize]) -> Value {
    let one = |number: &usize| {
        let connection = recording.connections.get(*number)?;
        let mut value = json!({ "connection": number });
        for (end, seen) in (0..).zip(seen_until(connection)) {
            value[end_name(end)] = seen.map_or(
                Value::Null,
                |(run, milliseconds)| json!({ "run": run, "milliseconds": milliseconds }),
            );
        }
        Some(value)
    };
    chosen.iter().filter_map(one).collect()
}

/// Which of it was fitted.
fn is_of(change: &Change) -> Option<u64> {
    (!matches!(change.what, Alteration::AllPaced(_))).then_some(change.place.run)
}

pub(super) fn json(fit: &Fitted) -> Value {
    let change = |it: &Change| {
        json!({
            "end": end_name(it.place.end),
            "run": is_of(it),
            "what": it.what.to_string(),
        })
    };
    let one = |(number, changes): &(usize, Vec<Change>)| {
        json!({
            "connection": number,
            "changes": changes.iter().map(change).collect::<Value>(),
        })
    };
    fit.changes.iter().map(one).collect()
}

pub(super) fn tell(
    recording: &Recording,
    chosen: &[usize],
    fit: Option<&Fitted>,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    if let Some(fit) = fit.filter(|fit| !fit.changes.is_empty()) {
        writeln!(
            out,
            "fitted: {} connections, of which something is replayed otherwise than it was inferred ({} replays)",
            fit.changes.len(),
            fit.replays
        )?;
    }
    for (number, changes) in fit.iter().flat_map(|fit| &fit.changes) {
        let told = changes.iter().map(|it| match is_of(it) {
            Some(run) => format!("run {run} of the {}: {}", end_name(it.place.end), it.what),
            None => format!("the {}: {}", end_name(it.place.end), it.what),
        });
        let told: Vec<String> = told.collect();
        writeln!(out, "connection {number}: fitted, {}", told.join("; "))?;
    }
    if let [number] = chosen
        && let Some(connection) = recording.connections.get(*number)
    {
        for (end, seen) in (0..).zip(seen_until(connection)) {
            let name = end_name(end);
            match seen {
                Some((run, at)) => {
                    writeln!(
                        out,
                        "the {name} was seen up to run {run}, {at:.3} ms after the beginning"
                    )?;
                }
                None => writeln!(out, "the {name} was never seen")?,
            }
        }
    }
    Ok(())
}

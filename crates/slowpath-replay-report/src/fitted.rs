// SPDX-License-Identifier: Apache-2.0
//! Recordings by tracepoints only: what was inferred otherwise so that replays go further, and
//! how far the recorder observed.

use crate::end_name;
use crate::output::{ChangeOutput, FittedOutput, ObservedOutput, ObservedRunOutput, value};
use serde_json::Value;
use slowpath_recording::{Connection, Outcome, Recording};
use slowpath_replay::Fitted;
use slowpath_replay::fit::{Alteration, Change};
use std::io::Write;

/// The last run of each end at whose beginning the recorder looked, and when that was in milliseconds after the connection's beginning.
fn observed_until(connection: &Connection) -> [Option<(usize, f64)>; 2] {
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

/// How far the recorder observed each connection, as JSON.
pub fn observed_json(recording: &Recording, chosen: &[usize]) -> Value {
    let one = |number: &usize| {
        let connection = recording.connections.get(*number)?;
        let run = |(run, milliseconds)| ObservedRunOutput { run, milliseconds };
        let [client, server] = observed_until(connection).map(|it| it.map(run));
        Some(ObservedOutput {
            connection: *number,
            client,
            server,
        })
    };
    value(&chosen.iter().filter_map(one).collect::<Vec<_>>())
}

/// Which of it was fitted.
fn is_of(change: &Change) -> Option<u64> {
    (!matches!(change.what, Alteration::AllPaced(_))).then_some(change.place.run)
}

/// The changes as JSON.
pub fn json(fit: &Fitted) -> Value {
    let change = |it: &Change| ChangeOutput {
        end: end_name(it.place.end),
        run: is_of(it),
        what: it.what.to_string(),
    };
    let one = |(number, changes): &(usize, Vec<Change>)| FittedOutput {
        connection: *number,
        changes: changes.iter().map(change).collect(),
    };
    value(&fit.changes.iter().map(one).collect::<Vec<_>>())
}

/// Writes the changes, and how far the recorder observed a single connection.
///
/// # Errors
/// Writing fails.
pub fn write(
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
        let texts = changes.iter().map(|it| match is_of(it) {
            Some(run) => format!("run {run} of the {}: {}", end_name(it.place.end), it.what),
            None => format!("the {}: {}", end_name(it.place.end), it.what),
        });
        let texts: Vec<String> = texts.collect();
        writeln!(out, "connection {number}: fitted, {}", texts.join("; "))?;
    }
    if let [number] = chosen
        && let Some(connection) = recording.connections.get(*number)
    {
        for (end, observed) in (0..).zip(observed_until(connection)) {
            let name = end_name(end);
            match observed {
                Some((run, at)) => {
                    writeln!(
                        out,
                        "the {name} was observed up to run {run}, {at:.3} ms after the beginning"
                    )?;
                }
                None => writeln!(out, "the {name} was never observed")?,
            }
        }
    }
    Ok(())
}

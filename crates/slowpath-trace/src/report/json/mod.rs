// SPDX-License-Identifier: Apache-2.0
//! JSON: one object a line: the capture, each connection, then the counters of a log and the
//! results of pairing.
//!
//! Every line is a `TraceOutput`; `docs/schema/trace.json` is its schema.

mod capture;
mod connection;
mod log;
mod pair;
#[cfg(test)]
mod schema;
mod verdict;

use super::counters::LogComparison;
use super::figures::micros;
use super::pairing::PairedConnection;
use super::{CaptureReport, RankedConnection};
use capture::CaptureOutput;
use connection::ConnectionOutput;
use log::{LogNotes, LogOutput};
use pair::PairOutput;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use slowpath_model::ProblemSet;
use std::io::{self, Write};
use std::time::Duration;

/// An object of the output.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
enum TraceOutput {
    Capture(Box<CaptureOutput>),
    Connection(Box<ConnectionOutput>),
    LogNotes(LogNotes),
    Log(LogOutput),
    Pair(PairOutput),
}

impl TraceOutput {
    /// As JSON, its keys in alphabetical order.
    fn value(&self) -> Value {
        // Serialising to a value fails for maps without string keys only; no output has one.
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// Writes all objects.
///
/// # Errors
/// `out` cannot be written to.
pub fn write(
    report: &CaptureReport,
    counters: Option<&LogComparison>,
    paired: &[PairedConnection],
    out: &mut dyn Write,
) -> io::Result<()> {
    let capture = TraceOutput::Capture(Box::new(CaptureOutput::of(report)));
    writeln!(out, "{}", capture.value())?;
    connections(&report.connections, out)?;
    if let Some(log) = counters {
        if !log.notes.is_empty() {
            let notes = TraceOutput::LogNotes(LogNotes::of(log));
            writeln!(out, "{}", notes.value())?;
        }
        for counted in &log.connections {
            let counted = TraceOutput::Log(LogOutput::of(counted));
            writeln!(out, "{}", counted.value())?;
        }
    }
    for paired in paired {
        let paired = TraceOutput::Pair(PairOutput::of(paired));
        writeln!(out, "{}", paired.value())?;
    }
    Ok(())
}

/// Connections that one thread formats at a time.
const SHARE: usize = 64;

/// Formats connections on all cores; writes them in their order.
fn connections(all: &[RankedConnection], out: &mut dyn Write) -> io::Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for round in all.chunks(SHARE * threads) {
        let texts: Vec<String> = std::thread::scope(|scope| {
            let shares = round
                .chunks(SHARE)
                .map(|share| scope.spawn(|| lines(share)));
            let running: Vec<_> = shares.collect();
            running
                .into_iter()
                .map(|thread| match thread.join() {
                    Ok(text) => text,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
                .collect()
        });
        for text in texts {
            out.write_all(text.as_bytes())?;
        }
    }
    Ok(())
}

fn lines(share: &[RankedConnection]) -> String {
    let lines = share.iter().map(|ranked| {
        let connection = TraceOutput::Connection(Box::new(ConnectionOutput::of(ranked)));
        format!("{}\n", connection.value())
    });
    lines.collect()
}

/// Microseconds of a time, null if it is not known.
fn optional(time: Option<Duration>) -> Option<f64> {
    time.map(micros)
}

/// The names of the problems.
fn problems(set: ProblemSet) -> Vec<&'static str> {
    set.iter().map(|problem| problem.name()).collect()
}

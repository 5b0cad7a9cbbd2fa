// SPDX-License-Identifier: Apache-2.0
//! What is claimed of a connection, comparable between a capture and a changed one.

use crate::capture::Connected;
use slowpath_trace::segment::Endpoint;
use slowpath_trace::tcp::{Ending, Side};
use slowpath_trace::verdict::TraceProblem;
use std::fmt;

/// A finding, with the end instead of the side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    pub problem: TraceProblem,
    pub from: Option<Endpoint>,
    /// Milliseconds.
    pub time: Option<f64>,
    pub share: f64,
    pub events: Option<u64>,
    /// The first and the last frame that show it.
    pub frames: Option<(u64, u64)>,
}

impl Claim {
    /// Whether it is the same problem of the same end.
    pub fn is_like(&self, other: &Claim) -> bool {
        self.problem == other.problem && self.from == other.from
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.problem)?;
        if let Some(from) = self.from {
            write!(f, " of port {}", from.port)?;
        }
        if let Some(time) = self.time {
            write!(f, " {time:.3} ms ({:.1} %)", 100.0 * self.share)?;
        }
        write!(f, " {:?} times, frames {:?}", self.events, self.frames)
    }
}

/// The findings of a connection.
pub fn claims(connection: &Connected) -> Vec<Claim> {
    let judged = &connection.report;
    let end = |side: Side| judged.report.endpoint(side);
    let claim = |f: &slowpath_trace::verdict::TraceFinding| Claim {
        problem: f.problem,
        from: f.from.map(end),
        time: f.time.map(|t| t.as_secs_f64() * 1e3),
        share: f.share,
        events: f.events,
        frames: f.frames.map(|(first, last)| (first.frame, last.frame)),
    };
    judged.verdicts.findings.iter().map(claim).collect()
}

/// How a connection ended, with the end instead of the side.
pub fn ending(connection: &Connected) -> (Ending, Option<Endpoint>) {
    let report = &connection.report.report;
    match report.ending {
        Ending::HalfClosed(side) => (
            Ending::HalfClosed(Side::Client),
            Some(report.endpoint(side)),
        ),
        Ending::Reset(side) => (Ending::Reset(Side::Client), Some(report.endpoint(side))),
        other => (other, None),
    }
}

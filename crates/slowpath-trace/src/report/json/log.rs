// SPDX-License-Identifier: Apache-2.0
//! A log's counters beside the packets, as JSON.

use super::super::capture::moment;
use super::super::counters::{ConnectionCounters, LogComparison};
use super::super::csv::name;
use super::super::figures::micros;
use super::problems;
use crate::verdict::join::Row;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use slowpath_model::{Micros, Problem};
use slowpath_text::wall;
use std::collections::BTreeMap;

/// What is missing from the log: `{"type": "log_notes"}`.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(super) struct LogNotes {
    notes: Vec<String>,
}

impl LogNotes {
    pub(super) fn of(log: &LogComparison) -> Self {
        LogNotes {
            notes: log.notes.clone(),
        }
    }
}

/// A figure by both.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct ComparedFigure {
    /// By `tcp_info`; null: the kernel does not count it.
    counters: Option<u64>,
    packets: u64,
    /// They are the same as far as the log shows.
    agrees: Option<bool>,
}

/// Time of each problem in microseconds; null: not judged or not known.
type ProblemTimes = BTreeMap<&'static str, Option<f64>>;

/// An interval by both.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct IntervalOutput {
    /// RFC 3339 in UTC.
    from: String,
    to: String,
    /// How much of it the capture covers.
    captured_us: f64,
    /// Of the problems that the counters found.
    counters_us: BTreeMap<&'static str, u64>,
    packets_us: ProblemTimes,
    /// The problem that took most time by the counters.
    #[cfg_attr(test, schemars(schema_with = "super::schema::problem"))]
    by_counters: &'static str,
    /// The problem that took most time by the packets.
    #[cfg_attr(test, schemars(schema_with = "super::schema::problem"))]
    by_packets: &'static str,
    /// Both are the same; null: nothing of it was captured.
    agrees: Option<bool>,
    /// Problems that the counters could not measure.
    unmeasured: Vec<&'static str>,
    delayed_acks: u64,
    delayed_ack_samples: u64,
}

/// The counters of one end of a connection: `{"type": "log"}`.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(super) struct LogOutput {
    /// The connection's number.
    connection: u64,
    /// Whose log it is: `client` or `server`.
    side: &'static str,
    /// The network namespace of the socket.
    netns: u32,
    /// When the log has it first, RFC 3339 in UTC.
    #[serde(rename = "first_seen")]
    first_observed: String,
    /// When the log has it last.
    #[serde(rename = "last_seen")]
    last_observed: String,
    /// It has closed, so that the counters are final.
    closed: bool,
    figures: BTreeMap<&'static str, ComparedFigure>,
    /// Over the whole life.
    counters_us: ProblemTimes,
    /// Over what was captured.
    packets_us: ProblemTimes,
    intervals: Vec<IntervalOutput>,
}

impl IntervalOutput {
    fn of(row: &Row) -> Self {
        let length = row.to.0.saturating_sub(row.from.0).max(0) as u64 / 1000;
        let counters = row.counters.iter();
        IntervalOutput {
            from: moment(row.from),
            to: moment(row.to),
            captured_us: micros(row.covered),
            counters_us: counters
                .map(|f| (f.problem.name(), f.share.time_of(Micros(length)).0))
                .collect(),
            packets_us: by_problem(|p| p.is_of_snap().then(|| micros(row.packets.of_problem(p)))),
            by_counters: row.by_counters().name(),
            by_packets: row.by_packets().name(),
            agrees: row.agrees(),
            unmeasured: problems(row.unmeasured),
            delayed_acks: row.delayed_acks.0,
            delayed_ack_samples: row.delayed_acks.1,
        }
    }
}

impl LogOutput {
    pub(super) fn of(counted: &ConnectionCounters) -> Self {
        let lifetime = &counted.lifetime;
        let figures = lifetime.figures.iter().map(|f| {
            let compared = ComparedFigure {
                counters: f.counters,
                packets: f.packets,
                agrees: f.agrees(),
            };
            (f.key, compared)
        });
        let counters = counted.joined.counters;
        let packets = &counted.joined.packets;
        LogOutput {
            connection: counted.number,
            side: name(counted.side),
            netns: lifetime.netns,
            first_observed: wall(lifetime.observed.0),
            last_observed: wall(lifetime.observed.1),
            closed: lifetime.closed,
            figures: figures.collect(),
            counters_us: by_problem(|p| counters.map(|c| c[p as usize].0 as f64)),
            packets_us: by_problem(|p| p.is_of_snap().then_some(packets[p as usize].0 as f64)),
            intervals: counted.joined.rows.iter().map(IntervalOutput::of).collect(),
        }
    }
}

fn by_problem(time: impl Fn(Problem) -> Option<f64>) -> ProblemTimes {
    (Problem::ALL.into_iter())
        .map(|p| (p.name(), time(p)))
        .collect()
}

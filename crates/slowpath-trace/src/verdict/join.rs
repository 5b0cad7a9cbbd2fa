// SPDX-License-Identifier: Apache-2.0
//! Counters and packets of one connection side by side.
//!
//! What enters: the problem intervals that a slowpath log has of one end of a connection,
//! and the verdict on what that end sent. What leaves: a [`Row`] an interval: what the counters said of
//! it and what the packets say of the same stretch of time.
//!
//! Both times are the host's wall clock where the capture was made on the logging host;
//! otherwise give [`join`] the difference (capture's clock less log's). An interval
//! that the capture covers in part only has [`Row::covered`] below its length, and the
//! packets' shares are of that part.

use super::findings::DirectionVerdict;
use super::limit::{Shares, between};
use crate::segment::Timestamp;
use slowpath_model::{
    ConnectionSummary, Finding, FourTuple, Micros, Problem, ProblemInterval, ProblemSet,
};
use std::time::Duration;

/// An interval of the log, and the same time in the capture.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The interval's beginning, on the capture's clock.
    pub from: Timestamp,
    /// Its end.
    pub to: Timestamp,
    /// What the counters said; empty between two problem intervals.
    pub counters: Vec<Finding>,
    /// What the counters could not measure.
    pub unmeasured: ProblemSet,
    /// What the packets say.
    pub packets: Shares,
    /// How much of it the capture covers.
    pub covered: Duration,
    /// Delayed ACKs and samples by the oracle.
    pub delayed_acks: (u64, u64),
}

impl Row {
    /// The problem that took most of the time by the counters; none in a quiet interval.
    #[must_use]
    pub fn by_counters(&self) -> Problem {
        // Of those that packets are judged for.
        let judged = self.counters.iter().filter(|f| f.problem.is_of_snap());
        judged
            .map(|f| f.problem)
            .next()
            .unwrap_or(Problem::SenderAppLimited)
    }

    /// The problem that took most of the time by the packets, from 1 % on.
    #[must_use]
    pub fn by_packets(&self) -> Problem {
        let least = self
            .covered
            .mul_f64(slowpath_diagnose::Thresholds::default().min_share);
        Problem::ALL
            .into_iter()
            .skip(1)
            .map(|p| (self.packets.of_problem(p), std::cmp::Reverse(p as u8), p))
            .filter(|(time, ..)| *time > Duration::ZERO && *time >= least)
            .max()
            .map_or(Problem::SenderAppLimited, |(.., p)| p)
    }

    /// Whether both name the same problem; `None` where nothing of it was captured.
    #[must_use]
    pub fn agrees(&self) -> Option<bool> {
        (self.covered > Duration::ZERO).then(|| self.by_counters() == self.by_packets())
    }
}

/// One connection's log and packets over a whole connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Joined {
    /// By time.
    pub rows: Vec<Row>,
    /// Time of each problem by the counters, indexed by its number, where the log has a
    /// summary.
    pub counters: Option<[Micros; Problem::ALL.len()]>,
    /// And by the packets.
    pub packets: [Micros; Problem::ALL.len()],
}

/// Whether a log's connection is the one between these ends, observed from its `local` end.
#[must_use]
pub fn is_same(
    tuple: FourTuple,
    local: crate::segment::Endpoint,
    remote: crate::segment::Endpoint,
) -> bool {
    let socket = |e: crate::segment::Endpoint| std::net::SocketAddr::new(e.address, e.port);
    tuple == FourTuple::new(socket(local), socket(remote))
}

/// Puts the log's intervals of one end of a connection beside what the packets say of the
/// data it sent. `ahead`: nanoseconds by which the capture's clock is ahead of the log's.
/// The stretches between problem intervals, in which the log says nothing, become rows
/// without findings.
#[must_use]
pub fn join(
    intervals: &[ProblemInterval],
    summary: Option<&ConnectionSummary>,
    verdict: &DirectionVerdict,
    ahead: i64,
) -> Joined {
    let mut ordered: Vec<&ProblemInterval> = intervals.iter().collect();
    ordered.sort_by_key(|i| i.end);
    let clock = |micros: i64| Timestamp(micros.saturating_mul(1_000).saturating_add(ahead));
    let first = verdict.line.intervals().next().map(|i| i.from.time);
    let last = verdict.line.intervals().next_back().map(|i| i.to.time);
    let mut rows = Vec::new();
    let mut reached = first;
    for interval in ordered {
        let to = clock(interval.end.0);
        let from = clock((interval.end - interval.duration).0);
        if let Some(before) = reached
            && before < from
        {
            rows.push(row(before, from, None, verdict));
        }
        rows.push(row(from, to, Some(interval), verdict));
        reached = Some(reached.map_or(to, |r| r.max(to)));
    }
    if let (Some(reached), Some(last)) = (reached, last)
        && reached < last
    {
        rows.push(row(reached, last, None, verdict));
    }
    let shares = verdict.line.shares();
    Joined {
        rows,
        counters: summary.map(|s| s.problem_time),
        packets: Problem::ALL.map(|p| Micros::from(shares.of_problem(p))),
    }
}

fn row(
    from: Timestamp,
    to: Timestamp,
    interval: Option<&ProblemInterval>,
    verdict: &DirectionVerdict,
) -> Row {
    let packets = verdict.line.within(from, to);
    Row {
        from,
        to,
        counters: interval.map(|i| i.findings.clone()).unwrap_or_default(),
        unmeasured: interval.map_or(ProblemSet::EMPTY, |i| i.unmeasured),
        covered: packets.total().min(Duration::from_nanos(between(from, to))),
        packets,
        delayed_acks: verdict.delayed_acks.within(from, to),
    }
}

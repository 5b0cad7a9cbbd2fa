// SPDX-License-Identifier: Apache-2.0
//! Sweeps: what is kept of each run, and what the runs of a combination say in all.
//!
//! [`DoneRuns`] keeps the runs that are done, for an interrupted sweep to go on.
//!
//! What enters: a [`Sweep`] and a [`RunResult`] for each of its runs, in their order. What leaves: one table
//! ([`table::write`]), means over the seeds with confidence intervals ([`points`]), as text, JSON or a page ([`SweepReport`]).
//!
//! What is promised: the same results give the same bytes, whichever run was done first.

mod done_runs;
mod page;
mod points;
pub mod table;
mod terminal;

pub use done_runs::{DoneRuns, DoneRunsError, Header, SWEEP_FILES};
pub use points::{Estimate, Point, PointWorkload, points};

use crate::distribution::Percentiles;
use crate::slowdown::Slowdowns;
use crate::summary::{SizeSummary, Summary, WorkloadSummary};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use slowpath_netsim::sweep::Sweep;
use slowpath_text::Paint;
use std::io::{self, Write};

/// Completion times in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completions {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean: u64,
    /// The median.
    pub p50: u64,
    /// The 95th percentile.
    pub p95: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The largest.
    pub max: u64,
}

impl Completions {
    fn of(times: &Percentiles) -> Self {
        let ps = |us: f64| (us * 1e6).round() as u64;
        Completions {
            count: times.count,
            mean: ps(times.mean_us),
            p50: ps(times.p50_us),
            p95: ps(times.p95_us),
            p99: ps(times.p99_us),
            max: ps(times.max_us),
        }
    }
}

/// Slowdowns in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowdownResult {
    /// The median.
    pub p50: u64,
    /// The 95th percentile.
    pub p95: u64,
    /// The 99th percentile.
    pub p99: u64,
}

impl SlowdownResult {
    fn of(slowdowns: &Slowdowns) -> Self {
        let thousandths = |value: f64| (value * 1e3).round() as u64;
        SlowdownResult {
            p50: thousandths(slowdowns.p50),
            p95: thousandths(slowdowns.p95),
            p99: thousandths(slowdowns.p99),
        }
    }
}

/// What one workload of one run gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadResult {
    /// The workload's name.
    pub name: String,
    /// Flows that began.
    pub flows: u64,
    /// Those that are done.
    pub flows_done: u64,
    /// Payload that arrived in order, over the simulated time.
    pub goodput_bits_per_second: u64,
    /// Flow completion times; `None` if no flow is done.
    pub fct: Option<Completions>,
    /// Over the ideal ones; `None` if no flow has one.
    pub slowdown: Option<SlowdownResult>,
    /// The same by flow size, if there are several.
    pub sizes: Vec<SizeResult>,
    /// Queries that were asked.
    pub queries: u64,
    /// Those whose every flow is done.
    pub queries_done: u64,
    /// Query completion times; `None` if no query is done.
    pub qct: Option<Completions>,
    /// Packets that hosts sent, ACKs included.
    pub packets_sent: u64,
    /// Marks.
    pub packets_marked: u64,
    /// Packets dropped.
    pub packets_dropped: u64,
    /// Detours.
    pub detours: u64,
    /// Segments sent again.
    pub retransmissions: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
}

/// Flows of about one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeResult {
    /// Larger than this, bytes.
    pub above_bytes: u64,
    /// The largest size, bytes; `None`: any.
    pub up_to_bytes: Option<u64>,
    /// Flows that began.
    pub flows: u64,
    /// Their completion times; `None` if none is done.
    pub fct: Option<Completions>,
    /// Over the ideal ones; `None` if no flow has one.
    pub slowdown: Option<SlowdownResult>,
}

/// What one run gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResult {
    /// Its number in the sweep.
    pub run: u64,
    /// Its workloads.
    pub workloads: Vec<WorkloadResult>,
}

impl RunResult {
    /// What is kept of a run's summary.
    pub fn new(run: u64, summary: &Summary) -> Self {
        RunResult {
            run,
            workloads: summary.workloads.iter().map(workload).collect(),
        }
    }
}

fn workload(of: &WorkloadSummary) -> WorkloadResult {
    let sizes = if of.sizes.len() > 1 {
        &of.sizes[..]
    } else {
        &[]
    };
    WorkloadResult {
        name: of.name.clone(),
        flows: of.flows,
        flows_done: of.flows_done,
        goodput_bits_per_second: of.goodput_bits_per_second.round() as u64,
        fct: of.fct.as_ref().map(Completions::of),
        slowdown: of.slowdown.as_ref().map(SlowdownResult::of),
        sizes: sizes.iter().map(size).collect(),
        queries: of.queries,
        queries_done: of.queries_done,
        qct: of.qct.as_ref().map(Completions::of),
        packets_sent: of.packets_sent,
        packets_marked: of.packets_marked,
        packets_dropped: of.packets_dropped,
        detours: of.detours,
        retransmissions: of.retransmissions,
        timeouts: of.timeouts,
    }
}

fn size(of: &SizeSummary) -> SizeResult {
    SizeResult {
        above_bytes: of.above_bytes,
        up_to_bytes: of.up_to_bytes,
        flows: of.flows,
        fct: of.fct.as_ref().map(Completions::of),
        slowdown: of.slowdown.as_ref().map(SlowdownResult::of),
    }
}

/// A sweep, reported.
#[derive(Clone, Debug)]
pub struct SweepReport<'a> {
    name: &'a str,
    sweep: &'a Sweep,
    points: Vec<Point>,
}

impl<'a> SweepReport<'a> {
    /// Of the scenario in the file of that name; `results` are those of all runs, in their order.
    pub fn new(name: &'a str, sweep: &'a Sweep, results: &[RunResult]) -> Self {
        SweepReport {
            name,
            sweep,
            points: points(sweep, results),
        }
    }

    /// As a JSON object, with `kind` as its `type`.
    pub fn json(&self, kind: &str) -> Value {
        let vary = self.sweep.vary.iter();
        let vary: Vec<Value> = vary
            .map(|one| json!({ "key": one.key, "values": one.values }))
            .collect();
        json!({
            "type": kind,
            "scenario": self.name,
            "runs": self.sweep.runs(),
            "seeds": self.sweep.seeds,
            "vary": vary,
            "points": self.points,
        })
    }

    /// As a page with plots; `text` is the scenario's.
    pub fn page(&self, text: &str) -> String {
        page::page(self.name, self.sweep, &self.points, text)
    }

    /// As text.
    ///
    /// # Errors
    /// Writing fails.
    pub fn write(&self, paint: Paint, out: &mut impl Write) -> io::Result<()> {
        terminal::write(self.name, self.sweep, &self.points, paint, out)
    }
}

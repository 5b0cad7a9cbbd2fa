// SPDX-License-Identifier: Apache-2.0
//! Sums over all connections, those that have closed included: what an exporter shows.
//!
//! Nothing here ever goes down, and nothing grows with time: sums, and a bounded table of
//! applications. An application gets a name of its own here once and for good; what
//! belongs to others goes to `other`, as does what an application had before it got one.

use rustc_hash::FxHashMap;
use slowpath_diagnose::Totals;
use slowpath_model::{IntervalVerdict, ListenerInterval, Micros, Owner, Problem, Snapshot};
use std::sync::Arc;

/// Applications whose time is watched for a name of their own.
const MAX_CANDIDATES: usize = 1_024;

/// Problem time with which an application gets one of the last names; the first half of
/// them goes to whoever comes first.
const HEAVY: Micros = Micros(60_000_000);

/// The name of what has no name of its own.
pub const OTHER: &str = "other";

/// Upper bounds of the buckets of [`HostTotals::rtt`]: from a rack to a satellite and past
/// it, each two to two and a half times the one before.
pub const RTT_BOUNDS: [Micros; 16] = Micros::each([
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000,
]);

/// Durations by size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    bounds: &'static [Micros],
    /// One more than bounds: the last holds what is longer than all.
    counts: Box<[u64]>,
    sum: Micros,
}

impl Histogram {
    /// An empty one with these upper bounds, in ascending order.
    pub fn new(bounds: &'static [Micros]) -> Self {
        Histogram {
            bounds,
            counts: vec![0; bounds.len() + 1].into(),
            sum: Micros::ZERO,
        }
    }

    /// Counts one.
    pub fn observe(&mut self, value: Micros) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket] += 1;
        self.sum += value;
    }

    /// The upper bounds, each included in its bucket.
    pub fn bounds(&self) -> &'static [Micros] {
        self.bounds
    }

    /// How many lie in each bucket; the last one has no bound.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// What they add up to.
    pub fn sum(&self) -> Micros {
        self.sum
    }
}

/// Time and events of problems, indexed by the problem's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProblemTotals {
    /// Time, from the findings; a coarse finding counts its interval whole.
    pub time: [Micros; Problem::ALL.len()],
    /// Events.
    pub events: [u64; Problem::ALL.len()],
}

impl ProblemTotals {
    fn add(&mut self, problem: Problem, time: Micros, events: u64) {
        let i = problem as usize;
        self.time[i] += time;
        self.events[i] = self.events[i].saturating_add(events);
    }

    /// What a connection had, the time that no problem took left out.
    fn of(totals: &Totals) -> Self {
        let mut charges = ProblemTotals {
            time: totals.problem_time,
            events: totals.problem_events,
        };
        charges.time[Problem::SenderAppLimited as usize] = Micros::ZERO;
        charges
    }

    fn merge(&mut self, others: &ProblemTotals) {
        for problem in Problem::ALL {
            let i = problem as usize;
            self.add(problem, others.time[i], others.events[i]);
        }
    }

    fn is_zero(&self) -> bool {
        self.time.iter().all(|t| *t == Micros::ZERO) && self.events.iter().all(|e| *e == 0)
    }
}

/// Problems by application, in a table of bounded size.
#[derive(Clone, Debug)]
pub struct Applications {
    limit: usize,
    named: FxHashMap<Arc<str>, ProblemTotals>,
    candidates: FxHashMap<Arc<str>, Micros>,
    other: ProblemTotals,
    folded: u64,
}

impl Applications {
    fn new(limit: usize) -> Self {
        Applications {
            limit,
            named: FxHashMap::default(),
            candidates: FxHashMap::default(),
            other: ProblemTotals::default(),
            folded: 0,
        }
    }

    /// Names at most.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Those that have a name here, in no order.
    pub fn named(&self) -> impl ExactSizeIterator<Item = (&str, &ProblemTotals)> {
        self.named.iter().map(|(name, charges)| (&**name, charges))
    }

    /// What belongs to no name here.
    pub fn other(&self) -> &ProblemTotals {
        &self.other
    }

    /// How often something went to `other`.
    pub fn folded(&self) -> u64 {
        self.folded
    }

    fn charge(&mut self, name: &Arc<str>, charges: &ProblemTotals) {
        if let Some(known) = self.named.get_mut(name) {
            known.merge(charges);
        } else if &**name == OTHER {
            // Whoever is called that is one of them.
            self.other.merge(charges);
        } else if self.promote(name, charges) {
            self.candidates.remove(name);
            self.named.insert(name.clone(), *charges);
        } else {
            self.folded += 1;
            self.other.merge(charges);
        }
    }

    /// Whether an application without a name gets one now.
    fn promote(&mut self, name: &Arc<str>, charges: &ProblemTotals) -> bool {
        if self.named.len() < self.limit / 2 {
            return true;
        }
        if self.named.len() >= self.limit {
            return false;
        }
        if !self.candidates.contains_key(name) && self.candidates.len() >= MAX_CANDIDATES {
            // The lightest half has to begin anew.
            let mut times: Vec<Micros> = self.candidates.values().copied().collect();
            let (_, median, _) = times.select_nth_unstable(MAX_CANDIDATES / 2);
            let median = *median;
            self.candidates.retain(|_, time| *time > median);
        }
        let time = self.candidates.entry(name.clone()).or_default();
        for taken in charges.time {
            *time += taken;
        }
        *time >= HEAVY
    }
}

/// What all connections did in sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Payload bytes acknowledged by peers.
    pub bytes_acked: u64,
    /// Payload bytes received.
    pub bytes_received: u64,
    /// Segments with payload sent, those sent again included.
    pub segments_sent: u64,
    /// Segments sent again.
    pub segments_retransmitted: u64,
}

/// Sums over all connections since the agent's start.
#[derive(Clone, Debug)]
pub struct HostTotals {
    /// Connections met that were not known before.
    pub met: u64,
    /// Of those, opened while the agent observed.
    pub opened: u64,
    /// Connections that have closed.
    pub closed: u64,
    /// Verdicts added up.
    pub totals: Totals,
    /// Traffic of connections while they were observed; of those opened while
    /// it observed all of it.
    pub traffic: Traffic,
    /// The smoothed RTT of each connection at each poll that found it changed.
    pub rtt: Histogram,
    /// Problems by application.
    pub applications: Applications,
    unknown: Arc<str>,
}

impl HostTotals {
    /// With at most so many names of applications.
    pub(crate) fn new(applications: usize) -> Self {
        HostTotals {
            met: 0,
            opened: 0,
            closed: 0,
            totals: Totals::default(),
            traffic: Traffic::default(),
            rtt: Histogram::new(&RTT_BOUNDS),
            applications: Applications::new(applications),
            unknown: Arc::from("unknown"),
        }
    }

    /// More names, or no more than there are.
    pub(crate) fn set_applications(&mut self, limit: usize) {
        self.applications.limit = limit;
    }

    pub(crate) fn meet(&mut self, born_here: bool) {
        self.met += 1;
        self.opened += u64::from(born_here);
    }

    /// A connection went from one snapshot to the next.
    pub(crate) fn follow(&mut self, before: &Snapshot, after: &Snapshot) {
        let (before, after) = (&before.stats, &after.stats);
        let traffic = &mut self.traffic;
        for (sum, from, to) in [
            (
                &mut traffic.bytes_acked,
                before.bytes_acked,
                after.bytes_acked,
            ),
            (
                &mut traffic.bytes_received,
                before.bytes_received,
                after.bytes_received,
            ),
            (
                &mut traffic.segments_sent,
                before.data_segments_out,
                after.data_segments_out,
            ),
            (
                &mut traffic.segments_retransmitted,
                before.retransmitted,
                after.retransmitted,
            ),
        ] {
            *sum = sum.saturating_add(to.saturating_sub(from));
        }
        if let Some(rtt) = after.srtt {
            self.rtt.observe(rtt);
        }
    }

    /// A verdict on a connection with this life so far. What it had before its owner was
    /// known is charged with it; `charged` says whether that has been done.
    pub(crate) fn judge(
        &mut self,
        verdict: &IntervalVerdict,
        totals: &Totals,
        owner: &Owner,
        charged: &mut bool,
    ) {
        self.totals.add(verdict);
        if verdict.findings.is_empty() {
            return;
        }
        if *charged {
            let mut charges = ProblemTotals::default();
            for f in &verdict.findings {
                let time = f.share.time_of(verdict.interval());
                charges.add(f.problem, time, f.events.unwrap_or(0));
            }
            let name = self.name(owner);
            self.applications.charge(&name, &charges);
        } else if owner.name().is_some() {
            self.settle(totals, owner, charged);
        }
    }

    /// A listener turned connections away.
    pub(crate) fn listen(&mut self, interval: &ListenerInterval) {
        let mut charges = ProblemTotals::default();
        for f in &interval.findings {
            let time = f.share.time_of(interval.duration);
            charges.add(f.problem, time, f.events.unwrap_or(0));
        }
        for problem in Problem::ALL {
            let i = problem as usize;
            self.totals.problem_time[i] += charges.time[i];
            let events = &mut self.totals.problem_events[i];
            *events = events.saturating_add(charges.events[i]);
        }
        let name = self.name(&interval.owner);
        self.applications.charge(&name, &charges);
    }

    /// Charges what a connection had so far to its owner, or to `unknown`; once.
    pub(crate) fn settle(&mut self, totals: &Totals, owner: &Owner, charged: &mut bool) {
        if std::mem::replace(charged, true) {
            return;
        }
        let charges = ProblemTotals::of(totals);
        if !charges.is_zero() {
            let name = self.name(owner);
            self.applications.charge(&name, &charges);
        }
    }

    fn name(&self, owner: &Owner) -> Arc<str> {
        owner.name().unwrap_or(&self.unknown).clone()
    }
}

#[cfg(test)]
mod tests;

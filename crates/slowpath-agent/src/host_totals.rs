// SPDX-License-Identifier: Apache-2.0
//! Sums over all connections, those that have closed included: what an exporter shows.
//!
//! Nothing here grows with time: sums that never go down, and a bounded table of applications,
//! whose sums never go down while they have labels of their own (`applications`).

mod applications;
mod heavy_hitters;
mod histogram;
mod labels;

pub use applications::{
    ANSWER_BOUNDS, APPLICATION_RTT_BOUNDS, Answers, ApplicationTotals, Applications, OTHER,
    ProblemTotals,
};
pub use histogram::Histogram;
pub use labels::{LabelSet, OwnerLabel, OwnerLabels};

pub(crate) use applications::Charge;
pub(crate) use labels::Labelled;

use slowpath_diagnose::Totals;
use slowpath_model::{
    AnswerSums, IntervalVerdict, ListenerInterval, Micros, Owner, Problem, Snapshot, TurnSums,
};

/// Upper bounds of the buckets of [`HostTotals::rtt`]: from a rack to a satellite and past
/// it, each two to two and a half times the one before.
pub const RTT_BOUNDS: [Micros; 16] = Micros::each([
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000,
]);

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
}

impl HostTotals {
    /// Has series for up to `applications` applications, by these labels.
    pub(crate) fn new(applications: usize, labels: OwnerLabels) -> Self {
        HostTotals {
            met: 0,
            opened: 0,
            closed: 0,
            totals: Totals::default(),
            traffic: Traffic::default(),
            rtt: Histogram::new(&RTT_BOUNDS),
            applications: Applications::new(applications, labels),
        }
    }

    /// A copy to read, as small as can be: it is made while a poll waits.
    pub fn snapshot(&self) -> Self {
        HostTotals {
            totals: self.totals,
            rtt: self.rtt.clone(),
            applications: self.applications.snapshot(),
            ..*self
        }
    }

    /// More applications, or no more than there are.
    pub(crate) fn set_applications(&mut self, limit: usize) {
        self.applications.set_limit(limit);
    }

    /// The work of each minute.
    pub(crate) fn end_round(&mut self) {
        self.applications.end_round();
    }

    pub(crate) fn meet(&mut self, born_here: bool) {
        self.met += 1;
        self.opened += u64::from(born_here);
    }

    /// A connection went from one snapshot to the next.
    pub(crate) fn follow(
        &mut self,
        before: &Snapshot,
        after: &Snapshot,
        owner: &Owner,
        charge: &mut Charge,
    ) {
        let whose = Labelled {
            owner,
            port: after.tuple.service_port(before.origin),
        };
        let application = self.applications.totals_of(&whose, charge);
        answers(application, before, after);
        let (before, after) = (&before.stats, &after.stats);
        let sent = after
            .data_segments_out
            .saturating_sub(before.data_segments_out);
        application.segments_sent = application.segments_sent.saturating_add(sent);
        let again = after.retransmitted.saturating_sub(before.retransmitted);
        let retransmitted = &mut application.segments_retransmitted;
        *retransmitted = retransmitted.saturating_add(again);
        if let Some(rtt) = after.srtt {
            application.rtt.observe(rtt);
        }
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
    /// known is charged with it; `charge` says whether that has been done.
    pub(crate) fn judge(
        &mut self,
        verdict: &IntervalVerdict,
        totals: &Totals,
        whose: Labelled<'_>,
        charge: &mut Charge,
    ) {
        self.totals.add(verdict);
        if verdict.findings.is_empty() {
            return;
        }
        if charge.done {
            let mut charges = ProblemTotals::default();
            for f in &verdict.findings {
                let time = f.share.time_of(verdict.interval());
                charges.add(f.problem, time, f.events.unwrap_or(0));
            }
            self.applications.charge(&whose, &charges);
        } else if whose.owner.name().is_some() {
            self.settle(totals, whose, charge);
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
        let whose = Labelled {
            owner: &interval.owner,
            port: interval.local.port(),
        };
        self.applications.charge(&whose, &charges);
    }

    /// Charges what a connection had so far to its owner, or to `unknown`; once.
    pub(crate) fn settle(&mut self, totals: &Totals, whose: Labelled<'_>, charge: &mut Charge) {
        if std::mem::replace(&mut charge.done, true) {
            return;
        }
        let charges = ProblemTotals::of(totals);
        if !charges.is_zero() {
            self.applications.charge(&whose, &charges);
        }
    }
}

/// The answers that came between two snapshots: the application's own where it serves, else its
/// peer's. Exchanges that overlap have none.
fn answers(application: &mut ApplicationTotals, before: &Snapshot, after: &Snapshot) {
    let Some(now) = after.turns.ended() else {
        return;
    };
    let (which, end): (Answers, fn(&TurnSums) -> &AnswerSums) = if after.tuple.serves(before.origin)
    {
        (Answers::Given, |turns| &turns.here)
    } else {
        (Answers::Awaited, |turns| &turns.peer)
    };
    let none = AnswerSums::default();
    let (before, now) = (before.turns.ended().map_or(&none, end), end(now));
    if now.ended_since(before) > 0 {
        let time = now.time.saturating_sub(before.time);
        let histogram = application.answers_mut(which);
        histogram.observe_all(now.latest_since(before), time);
    }
}

#[cfg(test)]
mod tests;

// SPDX-License-Identifier: Apache-2.0
//! What one end of one connection shows of one problem.
//!
//! Every figure that stands beside a share comes from here, so that it is of the same end, the same time and the
//! same source as the share: how long the problem lasted is the verdicts' time, counters are those of the time
//! observed, gauges those of the last interval with the problem.

use super::end::End;
use crate::advice::{self, HostFigures};
use crate::interactions::FoundInteraction;
use crate::tally::{self, Tally};
use slowpath_diagnose::Advice;
use slowpath_model::{ConnectionId, Deltas, FourTuple, Micros, MonoNanos, Problem, TcpStats};

/// One problem at one end of one connection.
#[derive(Clone, Debug, PartialEq)]
pub struct EndEvidence {
    problem: Problem,
    tuple: FourTuple,
    tally: Tally,
    stats: TcpStats,
    /// The time that its share is of.
    within: Micros,
}

impl EndEvidence {
    /// Of an end that had something to do for `within`.
    pub(super) fn of(end: &End<'_>, problem: Problem, within: Micros) -> Self {
        EndEvidence {
            problem,
            tuple: end.tuple,
            tally: end.tally.clone(),
            stats: *end.stats,
            within,
        }
    }

    /// The problem.
    pub const fn problem(&self) -> Problem {
        self.problem
    }

    /// The addresses of the end.
    pub const fn tuple(&self) -> FourTuple {
        self.tuple
    }

    /// The part of the time with something to do that the problem took, 0 to 1.
    pub fn share(&self) -> f64 {
        let time = self.tally.totals.problem_time[self.problem as usize];
        tally::share(time, self.within)
    }

    /// Whether how long it lasted is not measured.
    pub const fn is_coarse(&self) -> bool {
        self.tally.coarse.contains(self.problem)
    }

    /// The statistics behind it.
    pub fn deltas(&self) -> Deltas {
        self.tally.deltas_of(self.problem)
    }

    /// The numbers behind it, in words.
    pub fn numbers(&self) -> Vec<String> {
        self.tally.evidence(self.problem, self.within)
    }

    /// What to do, where `found` are the interactions known.
    pub fn advice(&self, host: HostFigures, found: &[FoundInteraction]) -> Advice {
        let of_this = |found: &&FoundInteraction| {
            let mut members = found.members.iter();
            members.any(|(_, tuple, _)| *tuple == self.tuple)
        };
        let own = host.with(Some(&self.stats));
        let context = advice::with_interactions(own, found.iter().filter(of_this));
        // Advice reads the verdict's evidence and findings, not which connection it names.
        let nameless = ConnectionId {
            boot_id: 0,
            netns: 0,
            cookie: 0,
            start: MonoNanos(0),
        };
        let verdict = self.tally.verdict(nameless, self.problem);
        advice::on(&self.tally.finding(self.problem), &verdict, &context)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Verdicts added up over time.

use crate::{Measures, Thresholds};
use serde::{Deserialize, Serialize};
use slowpath_model::{ConnectionSummary, IntervalVerdict, Micros, Precedence, Problem, ProblemSet};

/// A connection's verdicts added up over its life or a window of it.
///
/// The fields lie in this order: what every interval touches comes before what few do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(C)]
pub struct Totals {
    /// Time observed: the sum of the intervals.
    pub observed: Micros,
    /// Verdicts that contributed.
    pub polls: u64,
    /// Problems that could not be measured in some interval.
    pub unmeasured: ProblemSet,
    /// Time each problem took, indexed by the problem's number ([`Problem::ALL`]), from
    /// the findings: what stayed below the thresholds is not in it. A coarse finding
    /// counts its interval whole; problems may overlap. `SenderAppLimited` is what the
    /// others left of each interval, if they did not overlap: a lower bound.
    pub problem_time: [Micros; Problem::ALL.len()],
    /// Events of each problem, indexed likewise.
    pub problem_events: [u64; Problem::ALL.len()],
}

impl Totals {
    /// Adds the verdict on one interval.
    pub fn add(&mut self, verdict: &IntervalVerdict) {
        let interval = verdict.interval();
        let mut limited = Micros::ZERO;
        for finding in &verdict.findings {
            let time = finding.share.time_of(interval);
            let events = &mut self.problem_events[finding.problem as usize];
            *events = events.saturating_add(finding.events.unwrap_or(0));
            self.problem_time[finding.problem as usize] += time;
            if finding.problem.precedence() != Precedence::Detail {
                limited += time;
            }
        }
        self.problem_time[Problem::SenderAppLimited as usize] += interval.saturating_sub(limited);
        self.observed += interval;
        self.polls += 1;
        for problem in verdict.unmeasured.iter() {
            self.unmeasured.insert(problem);
        }
    }

    /// Adds an interval whose rules found nothing: what [`Totals::add`] would add for its
    /// verdict, which need not be built.
    pub fn quiet(&mut self, measures: &Measures) {
        let interval = measures.interval();
        self.problem_time[Problem::SenderAppLimited as usize] += interval;
        self.observed += interval;
        self.polls += 1;
        for problem in measures.unmeasured().iter() {
            self.unmeasured.insert(problem);
        }
    }

    /// Adds time in which the connection was observed to do nothing at all: no data in flight
    /// or queued, no counter changed.
    pub fn idle(&mut self, time: Micros) {
        self.problem_time[Problem::SenderAppLimited as usize] += time;
        self.observed += time;
    }

    /// Adds what another window of the same connection holds.
    pub fn merge(&mut self, other: &Totals) {
        self.observed += other.observed;
        self.polls = self.polls.saturating_add(other.polls);
        for problem in Problem::ALL {
            let i = problem as usize;
            self.problem_time[i] += other.problem_time[i];
            self.problem_events[i] = self.problem_events[i].saturating_add(other.problem_events[i]);
        }
        for problem in other.unmeasured.iter() {
            self.unmeasured.insert(problem);
        }
    }

    /// The fraction of the observed time that `problem` took, in 0..=1; 0 if nothing was
    /// observed.
    pub fn share(&self, problem: Problem) -> f64 {
        if self.observed == Micros::ZERO {
            return 0.0;
        }
        let time = self.problem_time[problem as usize].min(self.observed);
        time.0 as f64 / self.observed.0 as f64
    }

    /// The problem that took most time ([`Problem::dominating`]); `SenderAppLimited` if none took [`Thresholds::min_share`] of it.
    pub fn dominating(&self, thresholds: &Thresholds) -> Problem {
        let times = Problem::ALL.into_iter().zip(self.problem_time);
        Problem::dominating(
            times
                .skip(1)
                .filter(|(_, time)| thresholds.is_notable(*time, self.observed)),
        )
    }

    /// Puts these totals into a summary.
    pub fn fill(&self, summary: &mut ConnectionSummary) {
        summary.observed = self.observed;
        summary.polls = self.polls;
        summary.problem_time = self.problem_time;
        summary.problem_events = self.problem_events;
        summary.unmeasured = self.unmeasured;
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Verdicts added up over time, and over connections, with their evidence.

use slowpath_diagnose::{Thresholds, Totals};
use slowpath_model::{
    ConnectionId, Deltas, Finding, IntervalVerdict, Micros, MonoNanos, Precedence, Problem,
    ProblemSet, Share,
};

/// [`Totals`] with the summed evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Time and events of each problem.
    pub totals: Totals,
    /// Problems of which some interval was counted whole because its duration is unknown.
    pub coarse: ProblemSet,
    /// Counters summed, gauges as they were last.
    pub deltas: Deltas,
}

impl Tally {
    /// Adds one interval.
    pub fn add(&mut self, verdict: &IntervalVerdict) {
        self.totals.add(verdict);
        let coarse = verdict.findings.iter().filter(|f| f.share == Share::Coarse);
        for finding in coarse {
            self.coarse.insert(finding.problem);
        }
        self.deltas = sum(&self.deltas, &verdict.deltas);
    }

    /// Adds time without any change.
    pub fn idle(&mut self, time: Micros) {
        self.totals.idle(time);
    }

    /// Adds what was added up elsewhere; gauges are taken from `other`.
    pub fn merge(&mut self, other: &Tally) {
        self.totals.merge(&other.totals);
        for problem in other.coarse.iter() {
            self.coarse.insert(problem);
        }
        self.deltas = sum(&self.deltas, &other.deltas);
    }

    /// The share of the observed time that a problem took, 0..=1.
    pub fn share(&self, problem: Problem) -> f64 {
        self.totals.share(problem)
    }

    /// The problem that took most time; `SenderAppLimited` if none is notable.
    pub fn dominating(&self) -> Problem {
        self.totals.dominating(&Thresholds::default())
    }

    /// Problems other than `SenderAppLimited` that were found, most time first.
    pub fn found(&self) -> Vec<Problem> {
        found(&self.totals.problem_time)
    }

    /// The whole time as one interval.
    pub fn verdict(&self, connection: ConnectionId) -> IntervalVerdict {
        let findings = self
            .found()
            .into_iter()
            .map(|problem| self.finding(problem));
        IntervalVerdict {
            connection,
            from: MonoNanos(0),
            to: MonoNanos(0) + self.totals.observed,
            dominating: self.dominating(),
            findings: findings.collect(),
            unmeasured: self.totals.unmeasured,
            deltas: self.deltas,
        }
    }

    /// One problem over the whole time.
    pub fn finding(&self, problem: Problem) -> Finding {
        let i = problem as usize;
        Finding {
            problem,
            share: Share::Measured(self.totals.problem_time[i]),
            events: problem
                .has_events()
                .then_some(self.totals.problem_events[i]),
        }
    }
}

/// Problems other than `SenderAppLimited` that took any time, most first.
pub fn found(time: &[Micros; Problem::ALL.len()]) -> Vec<Problem> {
    let mut found: Vec<Problem> = Problem::ALL
        .into_iter()
        .skip(1)
        .filter(|p| time[*p as usize] > Micros::ZERO)
        .collect();
    found.sort_by_key(|p| std::cmp::Reverse(time[*p as usize]));
    found
}

/// Time of all problems but `SenderAppLimited`, and those that are part of others.
pub fn trouble(time: &[Micros; Problem::ALL.len()]) -> Micros {
    let problems = Problem::ALL.into_iter().skip(1);
    problems
        .filter(|p| p.precedence() != Precedence::Detail)
        .fold(Micros::ZERO, |sum, p| sum + time[p as usize])
}

/// `part` of `whole`, 0..=1; 0 of nothing.
pub fn share(part: Micros, whole: Micros) -> f64 {
    if whole == Micros::ZERO {
        0.0
    } else {
        (part.0 as f64 / whole.0 as f64).min(1.0)
    }
}

fn sum(a: &Deltas, b: &Deltas) -> Deltas {
    macro_rules! added {
        ($($field:ident),*) => {
            Deltas {
                $($field: match (a.$field, b.$field) {
                    (Some(x), Some(y)) => Some(x + y),
                    (x, y) => x.or(y),
                },)*
                ..*b
            }
        };
    }
    added!(
        bytes_sent,
        bytes_acked,
        bytes_received,
        retransmitted,
        fast_recoveries,
        timeouts,
        rtt_sum,
        rtt_count,
        delayed_acks,
        busy,
        rwnd_limited,
        sndbuf_limited,
        bytes_written,
        writes,
        bytes_read,
        reads,
        thin_timeouts,
        acks_after_timeout
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{self as fake, finding, verdict};

    #[test]
    fn coarse_problems_and_evidence_are_kept() {
        let mut tally = Tally::default();
        let second = Micros::from_millis(1000);
        let part = Share::Measured(Micros::from_millis(700));
        let window = finding(Problem::ReceiverWindowLimited, part);
        let timeout = finding(Problem::Timeout, Share::Coarse);
        tally.add(&verdict(1, second, vec![window]));
        tally.add(&verdict(1, second, vec![timeout]));
        assert!(tally.coarse.contains(Problem::Timeout));
        assert!(!tally.coarse.contains(Problem::ReceiverWindowLimited));
        assert_eq!(
            tally.found(),
            [Problem::Timeout, Problem::ReceiverWindowLimited]
        );
        let whole = tally.verdict(fake::id(1));
        assert_eq!(whole.interval(), Micros::from_millis(2000));
        assert_eq!(whole.finding(Problem::Timeout).unwrap().events, Some(1));
        assert_eq!(whole.deltas.bytes_acked, Some(8_000_000));
    }

    #[test]
    fn missing_counters_stay_missing() {
        let mut tally = Tally::default();
        let mut v = verdict(1, Micros::from_millis(10), vec![]);
        v.deltas.timeouts = None;
        v.deltas.bytes_acked = Some(5);
        tally.add(&v);
        tally.add(&v);
        assert_eq!(tally.deltas.timeouts, None);
        assert_eq!(tally.deltas.bytes_acked, Some(10));
    }
}

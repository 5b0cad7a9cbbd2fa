// SPDX-License-Identifier: Apache-2.0
//! Verdicts added up over time, and over connections, with their evidence.

use slowpath_diagnose::{Thresholds, Totals};
use slowpath_model::{
    ConnectionId, Deltas, Finding, IntervalVerdict, Micros, MonoNanos, Precedence, Problem,
    ProblemSet, Share,
};
use slowpath_text::evidence;

/// [`Totals`] with the summed evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Time and events of each problem.
    pub totals: Totals,
    /// Problems of which some interval was counted whole because its duration is unknown.
    pub coarse: ProblemSet,
    /// Counters summed, gauges as they were last.
    pub deltas: Deltas,
    /// The last interval with each problem that was found, for its gauges.
    latest_with: Vec<(Problem, Deltas)>,
}

impl Tally {
    /// What was added up elsewhere.
    pub fn new(totals: Totals, deltas: Deltas) -> Self {
        Tally {
            totals,
            deltas,
            ..Tally::default()
        }
    }

    /// Adds one interval.
    pub fn add(&mut self, verdict: &IntervalVerdict) {
        self.totals.add(verdict);
        let coarse = verdict.findings.iter().filter(|f| f.share == Share::Coarse);
        for finding in coarse {
            self.coarse.insert(finding.problem);
        }
        for finding in &verdict.findings {
            self.note(finding.problem, &verdict.deltas);
        }
        self.deltas = sum(&self.deltas, &verdict.deltas);
    }

    fn note(&mut self, problem: Problem, deltas: &Deltas) {
        match self.latest_with.iter_mut().find(|(p, _)| *p == problem) {
            Some((_, latest)) => *latest = *deltas,
            None => self.latest_with.push((problem, *deltas)),
        }
    }

    /// The evidence of a problem: counters summed, gauges as they were at the end of the last interval that
    /// has the problem.
    pub fn deltas_of(&self, problem: Problem) -> Deltas {
        let mut latest = self.latest_with.iter().filter(|(p, _)| *p == problem);
        let gauges = latest.next().map_or(self.deltas, |(_, deltas)| *deltas);
        with_counters(&self.deltas, gauges)
    }

    /// The numbers behind a problem, of `within`, the time that its share is of.
    pub fn evidence(&self, problem: Problem, within: Micros) -> Vec<String> {
        evidence::of(&self.finding(problem), &self.deltas_of(problem), within)
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
        for (problem, deltas) in &other.latest_with {
            self.note(*problem, deltas);
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

    /// The whole time as one interval, with the evidence of one problem.
    pub fn verdict(&self, connection: ConnectionId, problem: Problem) -> IntervalVerdict {
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
            deltas: self.deltas_of(problem),
        }
    }

    /// One problem over the whole time.
    pub fn finding(&self, problem: Problem) -> Finding {
        let i = problem as usize;
        Finding {
            problem,
            share: match self.coarse.contains(problem) {
                true => Share::Coarse,
                false => Share::Measured(self.totals.problem_time[i]),
            },
            events: problem
                .has_events()
                .then_some(self.totals.problem_events[i]),
        }
    }
}

/// What a verdict found of a problem: of SenderAppLimited, which is no finding, the time that the others left.
pub fn finding_of(verdict: &IntervalVerdict, problem: Problem) -> Finding {
    verdict.finding(problem).copied().unwrap_or_else(|| {
        let interval = verdict.interval();
        let share = crate::watch::share_of(verdict, problem);
        Finding {
            problem,
            share: Share::Measured(Micros((interval.0 as f64 * share) as u64)),
            events: None,
        }
    })
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

macro_rules! with_fields {
    ($combine:expr, $a:expr, $b:expr; $($field:ident),*) => {
        Deltas {
            $($field: $combine($a.$field, $b.$field),)*
            ..$b
        }
    };
}

macro_rules! counters {
    ($combine:ident, $a:expr, $b:expr) => {
        with_fields!(
            $combine,
            $a,
            $b;
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
    };
}

/// The counters of both, the gauges of `b`.
fn sum(a: &Deltas, b: &Deltas) -> Deltas {
    fn added<T: std::ops::Add<Output = T>>(a: Option<T>, b: Option<T>) -> Option<T> {
        match (a, b) {
            (Some(x), Some(y)) => Some(x + y),
            (x, y) => x.or(y),
        }
    }
    counters!(added, a, *b)
}

/// The counters of `a`, the gauges of `b`.
fn with_counters(a: &Deltas, b: Deltas) -> Deltas {
    fn first<T>(a: Option<T>, _: Option<T>) -> Option<T> {
        a
    }
    counters!(first, a, b)
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
        let whole = tally.verdict(fake::id(1), Problem::Timeout);
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

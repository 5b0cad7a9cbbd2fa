// SPDX-License-Identifier: Apache-2.0
//! Which findings count for an exit status: those of certain problems, from a certain share on.
//!
//! A problem counts if
//!
//! 1. it is among those that were named, or none was named and it is not `SenderAppLimited`;
//! 2. one connection had it at all;
//! 3. for at least the share that was asked for of the time that this connection was observed.
//!
//! Shares are of single connections: what one connection suffers does not vanish among a
//! thousand healthy ones.

use crate::tally;
use slowpath_model::{Micros, Problem, ProblemSet};

/// Which findings count; by default all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Criterion {
    /// Problems that count; none: all but `SenderAppLimited`.
    pub problems: ProblemSet,
    /// The least share of a connection's time, 0 to 1.
    pub min_share: f64,
}

impl Criterion {
    /// Whether the problem counts.
    pub fn names(&self, problem: Problem) -> bool {
        if self.problems.is_empty() {
            problem != Problem::SenderAppLimited
        } else {
            self.problems.contains(problem)
        }
    }

    /// Whether so much of this time with the problem counts.
    pub fn is_met(&self, problem: Problem, time: Micros, of: Micros) -> bool {
        self.names(problem) && time > Micros::ZERO && tally::share(time, of) >= self.min_share
    }

    /// Whether any of these times of problems counts, in a connection that was observed for so
    /// long.
    pub fn is_met_by(&self, time: &[Micros; Problem::ALL.len()], observed: Micros) -> bool {
        let mut problems = Problem::ALL.into_iter();
        problems.any(|p| self.is_met(p, time[p as usize], observed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(pairs: &[(Problem, u64)]) -> [Micros; Problem::ALL.len()] {
        let mut times = [Micros::ZERO; Problem::ALL.len()];
        for (problem, ms) in pairs {
            times[*problem as usize] = Micros::from_millis(*ms);
        }
        times
    }

    /// Ten seconds of a connection: 2 s of timeouts, 100 ms of delayed ACKs, the rest its own.
    #[test]
    fn a_problem_counts_by_its_name_and_its_share_of_one_connection() {
        let observed = Micros::from_millis(10_000);
        let time = times(&[
            (Problem::SenderAppLimited, 7_900),
            (Problem::Timeout, 2_000),
            (Problem::DelayedAck, 100),
        ]);
        let met = |problems: &[Problem], percent: f64| {
            let problems = problems.iter().copied().collect();
            let min_share = percent / 100.0;
            Criterion {
                problems,
                min_share,
            }
            .is_met_by(&time, observed)
        };
        assert!(met(&[], 0.0) && met(&[], 20.0) && !met(&[], 20.1));
        assert!(met(&[Problem::DelayedAck], 1.0) && !met(&[Problem::DelayedAck], 1.1));
        assert!(met(&[Problem::DelayedAck, Problem::Timeout], 20.0));
        assert!(!met(&[Problem::FastRetransmit], 0.0));
    }

    #[test]
    fn the_applications_own_time_is_no_problem_and_nothing_meets_nothing() {
        let observed = Micros::from_millis(10);
        let own = times(&[(Problem::SenderAppLimited, 10)]);
        assert!(!Criterion::default().is_met_by(&own, observed));
        assert!(!Criterion::default().is_met_by(&times(&[]), Micros::ZERO));
        // Of no time at all no part can be had.
        let some = Criterion {
            min_share: 0.01,
            ..Criterion::default()
        };
        assert!(!some.is_met_by(&times(&[(Problem::Timeout, 1)]), Micros::ZERO));
    }
}

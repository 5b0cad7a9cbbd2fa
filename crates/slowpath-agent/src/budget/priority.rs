// SPDX-License-Identifier: Apache-2.0
//! Which connections are sampled more often: those with problems in the past T_history.

use super::ladder::PRIORITIES;
use rustc_hash::FxHashMap;
use slowpath_model::{Micros, MonoNanos};

/// SNAP's T_history: a problem counts for so long.
pub(crate) const HISTORY: Micros = Micros(60_000_000);

/// The share of T_history that problems take of the worst connections.
const WORST: f64 = 0.25;

/// Connections with problems that are distinguished; further ones count as having none.
const MAX: usize = 262_144;

/// Connections whose calls are logged one by one.
const MAX_SUSPECTS: usize = 4_096;

/// A connection to be treated otherwise from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub cookie: u64,
    /// Its priority, which is the number of its rate.
    pub priority: u8,
    /// It had a problem at the latest sample: its calls are of interest.
    pub suspect: bool,
}

/// What is remembered of a connection that had a problem.
#[derive(Clone, Copy, Debug)]
struct ProblemHistory {
    /// The end of the latest interval with a problem.
    problem: MonoNanos,
    /// The latest sample.
    sample: MonoNanos,
    /// Time with problems, the past fading by e in T_history, over T_history.
    share: f64,
    suspect: bool,
}

/// The connections that had problems.
#[derive(Debug, Default)]
pub(crate) struct Priorities {
    histories: FxHashMap<u64, ProblemHistory>,
    /// Since they were last taken.
    pub changes: Vec<Change>,
    suspects: usize,
    pub samples: [u64; PRIORITIES],
}

impl Priorities {
    /// A sample of a connection of this priority found problems in the interval of that
    /// length, or none; gives its priority from now on.
    pub fn sample(
        &mut self,
        cookie: u64,
        priority: u8,
        now: MonoNanos,
        problem: Option<Micros>,
    ) -> u8 {
        self.samples[usize::from(priority).min(PRIORITIES - 1)] += 1;
        if priority == 0 && problem.is_none() {
            return 0;
        }
        if !self.histories.contains_key(&cookie) && self.histories.len() >= MAX {
            return 0;
        }
        let history = self.histories.entry(cookie).or_insert(ProblemHistory {
            problem: now,
            sample: now,
            share: 0.0,
            suspect: false,
        });
        let span = HISTORY.as_secs_f64();
        history.share *= (-now.since(history.sample).as_secs_f64() / span).exp();
        history.sample = now;
        self.suspects -= usize::from(history.suspect);
        history.suspect = problem.is_some() && self.suspects < MAX_SUSPECTS;
        self.suspects += usize::from(history.suspect);
        if let Some(interval) = problem {
            history.problem = now;
            history.share += interval.min(HISTORY).as_secs_f64() / span;
        }
        let after = if now.since(history.problem) > HISTORY {
            0
        } else if history.share < WORST {
            1
        } else {
            2
        };
        // Repeated at each sample: another connection may have its place in the table.
        self.changes.push(Change {
            cookie,
            priority: after,
            suspect: history.suspect,
        });
        if after == 0 {
            self.histories.remove(&cookie);
        }
        after
    }

    /// A connection of this priority is no more.
    pub fn closed(&mut self, cookie: u64, priority: u8) {
        if priority > 0 {
            if self.histories.remove(&cookie).is_some_and(|p| p.suspect) {
                self.suspects -= 1;
            }
            self.changes.push(Change {
                cookie,
                priority: 0,
                suspect: false,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> MonoNanos {
        MonoNanos((1e9 + seconds * 1e9) as u64)
    }

    const HALF: Micros = Micros(500_000);

    #[test]
    fn one_problem_is_remembered_for_t_history() {
        let mut priorities = Priorities::default();
        assert_eq!(priorities.sample(7, 0, at(0.0), None), 0);
        assert!(
            priorities.changes.is_empty(),
            "nothing is kept of the healthy"
        );
        let mut priority = priorities.sample(7, 0, at(1.0), Some(HALF));
        assert_eq!(priority, 1);
        for second in 2..=61 {
            priority = priorities.sample(7, priority, at(f64::from(second)), None);
            assert_eq!(priority, 1, "{second}");
        }
        assert_eq!(priorities.sample(7, priority, at(61.1), None), 0);
        assert!(priorities.histories.is_empty());
        assert_eq!(priorities.samples, [2, 61, 0]);
    }

    /// Problems all the time fill a quarter of the faded past when 1 - exp(-t / T) reaches
    /// it: after 0.288 T, however often it is sampled.
    #[test]
    fn the_worst_are_chosen_by_time_not_by_the_number_of_samples() {
        for interval in [0.05, 0.5, 2.0] {
            let mut priorities = Priorities::default();
            let mut priority = 0;
            let mut samples = 0u32;
            while priority < 2 {
                samples += 1;
                let now = at(f64::from(samples) * interval);
                let length = Micros((interval * 1e6) as u64);
                priority = priorities.sample(7, priority, now, Some(length));
            }
            let after = f64::from(samples) * interval;
            let expected = 60.0 * -(0.75f64.ln());
            assert!(
                (after - expected).abs() <= interval + 0.5,
                "{interval}: {after}"
            );
        }
    }

    #[test]
    fn a_connection_that_closes_is_forgotten() {
        let mut priorities = Priorities::default();
        let priority = priorities.sample(7, 0, at(0.0), Some(HALF));
        priorities.closed(7, priority);
        priorities.closed(8, 0);
        assert!(priorities.histories.is_empty());
        let last = Change {
            cookie: 7,
            priority: 0,
            suspect: false,
        };
        assert_eq!(priorities.changes.last(), Some(&last));
    }
}

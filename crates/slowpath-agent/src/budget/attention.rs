// SPDX-License-Identifier: Apache-2.0
//! Which connections deserve more looks: those with problems in the past T_history.

use super::ladder::STANDINGS;
use rustc_hash::FxHashMap;
use slowpath_model::{Micros, MonoNanos};

/// SNAP's T_history: a problem counts for so long.
pub(crate) const HISTORY: Micros = Micros(60_000_000);

/// The share of T_history that problems take of the worst connections.
const WORST: f64 = 0.25;

/// Connections with problems that are told apart; further ones count as having none.
const MAX: usize = 262_144;

/// Connections whose calls are logged one by one.
const MAX_SUSPECTS: usize = 4_096;

/// A connection to be treated otherwise from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub cookie: u64,
    /// Its standing, which is the number of its rate.
    pub standing: u8,
    /// It had a problem at the latest look: its calls are of interest.
    pub suspect: bool,
}

/// What is remembered of a connection that had a problem.
#[derive(Clone, Copy, Debug)]
struct Past {
    /// The end of the latest interval with a problem.
    problem: MonoNanos,
    /// The latest look.
    look: MonoNanos,
    /// Time with problems, the past fading by e in T_history, over T_history.
    share: f64,
    suspect: bool,
}

/// The connections that had problems.
#[derive(Debug, Default)]
pub(crate) struct Attention {
    pasts: FxHashMap<u64, Past>,
    /// Since they were last taken.
    pub changes: Vec<Change>,
    suspects: usize,
    pub looks: [u64; STANDINGS],
}

impl Attention {
    /// A look at a connection of this standing found problems in the interval of that
    /// length, or none; gives its standing from now on.
    pub fn look(
        &mut self,
        cookie: u64,
        standing: u8,
        now: MonoNanos,
        problem: Option<Micros>,
    ) -> u8 {
        self.looks[usize::from(standing).min(STANDINGS - 1)] += 1;
        if standing == 0 && problem.is_none() {
            return 0;
        }
        if !self.pasts.contains_key(&cookie) && self.pasts.len() >= MAX {
            return 0;
        }
        let past = self.pasts.entry(cookie).or_insert(Past {
            problem: now,
            look: now,
            share: 0.0,
            suspect: false,
        });
        let history = HISTORY.as_secs_f64();
        past.share *= (-now.since(past.look).as_secs_f64() / history).exp();
        past.look = now;
        self.suspects -= usize::from(past.suspect);
        past.suspect = problem.is_some() && self.suspects < MAX_SUSPECTS;
        self.suspects += usize::from(past.suspect);
        if let Some(interval) = problem {
            past.problem = now;
            past.share += interval.min(HISTORY).as_secs_f64() / history;
        }
        let after = if now.since(past.problem) > HISTORY {
            0
        } else if past.share < WORST {
            1
        } else {
            2
        };
        // Said again at each look: another connection may have its place in the table.
        self.changes.push(Change {
            cookie,
            standing: after,
            suspect: past.suspect,
        });
        if after == 0 {
            self.pasts.remove(&cookie);
        }
        after
    }

    /// A connection of this standing is no more.
    pub fn gone(&mut self, cookie: u64, standing: u8) {
        if standing > 0 {
            if self.pasts.remove(&cookie).is_some_and(|p| p.suspect) {
                self.suspects -= 1;
            }
            self.changes.push(Change {
                cookie,
                standing: 0,
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
        let mut attention = Attention::default();
        assert_eq!(attention.look(7, 0, at(0.0), None), 0);
        assert!(
            attention.changes.is_empty(),
            "nothing is kept of the healthy"
        );
        let mut standing = attention.look(7, 0, at(1.0), Some(HALF));
        assert_eq!(standing, 1);
        for second in 2..=61 {
            standing = attention.look(7, standing, at(f64::from(second)), None);
            assert_eq!(standing, 1, "{second}");
        }
        assert_eq!(attention.look(7, standing, at(61.1), None), 0);
        assert!(attention.pasts.is_empty());
        assert_eq!(attention.looks, [2, 61, 0]);
    }

    /// Problems all the time fill a quarter of the faded past when 1 - exp(-t / T) reaches
    /// it: after 0.288 T, however often is looked.
    #[test]
    fn the_worst_are_told_by_time_not_by_the_number_of_looks() {
        for interval in [0.05, 0.5, 2.0] {
            let mut attention = Attention::default();
            let mut standing = 0;
            let mut looks = 0u32;
            while standing < 2 {
                looks += 1;
                let now = at(f64::from(looks) * interval);
                let length = Micros((interval * 1e6) as u64);
                standing = attention.look(7, standing, now, Some(length));
            }
            let after = f64::from(looks) * interval;
            let expected = 60.0 * -(0.75f64.ln());
            assert!(
                (after - expected).abs() <= interval + 0.5,
                "{interval}: {after}"
            );
        }
    }

    #[test]
    fn who_closes_is_forgotten() {
        let mut attention = Attention::default();
        let standing = attention.look(7, 0, at(0.0), Some(HALF));
        attention.gone(7, standing);
        attention.gone(8, 0);
        assert!(attention.pasts.is_empty());
        let last = Change {
            cookie: 7,
            standing: 0,
            suspect: false,
        };
        assert_eq!(attention.changes.last(), Some(&last));
    }
}

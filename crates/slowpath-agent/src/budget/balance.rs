// SPDX-License-Identifier: Apache-2.0
//! How much faster or slower polls come just now than the rung says.
//!
//! The [ladder](super::ladder) sets rates for good, and what was drawn at the old ones takes
//! seconds to come due. Chance, searches, rounds and the log's threads move the cost within
//! those seconds. So the CPU that was meant to be spent and was not is kept account of, and
//! polls come faster while there is some left, slower while too much was spent. What waits for
//! its poll waits for a number of polls, so all rates change in step, at once, and their
//! ratios stay.
//!
//! 1. The account grows by the goal each second and shrinks by what is spent.
//! 2. The rate of polls is the rung's times 1 + account / (goal x [`TIME`]): deviations die
//!    away with that time constant.
//! 3. The account is bounded: of one large piece of work, the next seconds make good only what
//!    leaves their own mean above the lower end, and of a calm only what leaves it below the
//!    upper.
//!
//! The factor depends on CPU time spent in the past and on nothing that a poll would meet.

use super::Budget;
use super::brake::WINDOW;
use slowpath_model::{Micros, MonoNanos};

/// Time constant, in seconds.
const TIME: f64 = 1.5;

/// The parts of the way from the goal to the lower and to the upper end that the next five
/// seconds may make good.
const DEBT: f64 = 0.3;
const CREDIT: f64 = 0.5;

/// Factors.
const SLOWEST: f64 = 0.2;
const FASTEST: f64 = 1.5;

/// The account.
#[derive(Debug)]
pub(crate) struct Balance {
    /// Seconds of CPU that are left.
    left: f64,
    at: MonoNanos,
}

impl Balance {
    pub fn new(now: MonoNanos) -> Self {
        Balance { left: 0.0, at: now }
    }

    /// `cpu` was spent until `now`, while `goal` of a core was meant to be.
    pub fn spent(&mut self, now: MonoNanos, cpu: Micros, goal: f64, budget: &Budget) {
        let earned = goal * now.since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        let window = WINDOW.as_secs_f64();
        let debt = DEBT * (goal - budget.low()).max(0.0) * window;
        let credit = CREDIT * (budget.high() - goal).max(0.0) * window;
        self.left = (self.left + earned - cpu.as_secs_f64()).clamp(-debt, credit);
    }

    /// By which the rate of polls is multiplied. `most`: the rung's rates are the highest there
    /// are, and polls come no faster.
    pub fn factor(&self, goal: f64, most: bool) -> f64 {
        let fastest = if most { 1.0 } else { FASTEST };
        (1.0 + self.left / (goal * TIME)).clamp(SLOWEST, fastest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Budget {
        Budget::percent(1.0, 2.0).unwrap()
    }

    fn at(ms: u64) -> MonoNanos {
        MonoNanos(1_000_000_000 + ms * 1_000_000)
    }

    /// Spends `base` of a core times the factor, a millisecond at a time; gives what was spent
    /// in each second, in percent.
    fn run(balance: &mut Balance, from: u64, seconds: u64, base: f64) -> Vec<f64> {
        let second = |s: u64| {
            let mut spent = 0.0;
            for ms in (from + s) * 1_000..(from + s + 1) * 1_000 {
                let cpu = base * balance.factor(0.015, false) * 1e3;
                balance.spent(at(ms), Micros(cpu as u64), 0.015, &budget());
                spent += cpu.floor() / 1e3;
            }
            spent / 10.0
        };
        (0..seconds).map(second).collect()
    }

    /// With base b the account settles where b (1 + x) is the goal, within a few time constants.
    #[test]
    fn what_the_rung_misses_by_a_fifth_is_made_good() {
        for base in [0.0125, 0.018] {
            let mut balance = Balance::new(at(0));
            let spent = run(&mut balance, 0, 12, base);
            // Whole microseconds are spent: 15 of them each millisecond, 7 % too few at most.
            assert!((1.39..=1.51).contains(&spent[11]), "{base}: {spent:?}");
        }
    }

    #[test]
    fn a_large_piece_leaves_the_next_five_seconds_above_the_lower_end() {
        let mut balance = Balance::new(at(0));
        run(&mut balance, 0, 10, 0.015);
        balance.spent(at(10_000), Micros(80_000), 0.015, &budget());
        let after = run(&mut balance, 10, 5, 0.015);
        let mean = after.iter().sum::<f64>() / 5.0;
        assert!((1.1..1.4).contains(&mean), "{after:?}");
        assert!(after[0] < after[4]);
    }

    #[test]
    fn after_a_calm_it_is_not_faster_than_bounded_nor_at_the_highest_rates() {
        let mut balance = Balance::new(at(0));
        balance.spent(at(60_000), Micros::ZERO, 0.015, &budget());
        assert!((balance.factor(0.015, false) - FASTEST).abs() < 1e-9);
        assert!((balance.factor(0.015, true) - 1.0).abs() < 1e-9);
        let after = run(&mut balance, 60, 5, 0.015);
        assert!(after.iter().sum::<f64>() / 5.0 < 1.9, "{after:?}");
    }
}

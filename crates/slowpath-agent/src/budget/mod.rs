// SPDX-License-Identifier: Apache-2.0
//! The CPU budget (SNAP section 7): connections with problems are sampled more often,
//! the others more rarely, so that the whole agent costs what it may.
//!
//! What enters: the time, the CPU spent, which connection was sampled and whether it had
//! a problem. What leaves: how often to poll, with what probability each poll samples a
//! connection ([`ladder`]), and which connections are to be sampled more often
//! ([`attention`]). No clock, no I/O.
//!
//! What is promised:
//! - **Order.** SNAP speeds up the connection with the most problems in the past T_history
//!   and slows down the one with the fewest. Here three priorities move instead of single
//!   connections: those without a problem in the past minute, those with one, and those
//!   with problems for a quarter of it. The first are slowed down first and down to the
//!   floor before the second are touched, and so on; back in the opposite order.
//! - **Ratio.** A connection with a problem is sampled at least four times as often as one
//!   without, on every rung.
//! - **Bounds.** No connection more often than 5.7 times in the configured interval, none
//!   more rarely than once in 32 intervals.
//! - **The band holds.** Between two steps of the ladder polls come faster or slower, so that
//!   each five seconds cost what they should ([`balance`]).
//! - **The upper end holds.** A poll that would carry the mean of five seconds over it is
//!   left out ([`brake`]). Which are left out depends on the past only, never on what the
//!   poll would have met: what is left still sees time averages.

pub(crate) mod balance;
pub(crate) mod brake;
pub(crate) mod controller;
pub(crate) mod ladder;
pub(crate) mod priority;
pub(crate) mod program_cost;

use slowpath_model::Micros;
use std::fmt;
use std::str::FromStr;

/// How much of one core the agent may and should use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    low: f64,
    high: f64,
}

/// Why a text is no budget.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// Not two numbers.
    #[error("{0:?} is not LOW,HIGH: two percentages of one core, as in 1,2")]
    Shape(String),
    /// Not in order.
    #[error("the budget {0:?} must have 0 < LOW < HIGH <= 100")]
    Order(String),
}

impl Budget {
    /// From `low` to `high` percent of one core.
    ///
    /// # Errors
    /// Unless 0 < low < high <= 100.
    pub fn percent(low: f64, high: f64) -> Result<Self, BudgetError> {
        if low > 0.0 && low < high && high <= 100.0 {
            return Ok(Budget {
                low: low / 100.0,
                high: high / 100.0,
            });
        }
        Err(BudgetError::Order(format!("{low},{high}")))
    }

    /// The lower end, as a share of one core.
    pub fn low(&self) -> f64 {
        self.low
    }

    /// The upper end, as a share of one core.
    pub fn high(&self) -> f64 {
        self.high
    }

    /// What the process should use while BPF programs use `events` in others' contexts: with
    /// them the middle of the budget. They cannot be slowed down, so if they leave less, the
    /// process still gets what keeps the mean of any five seconds above the lower end.
    pub(crate) fn goal(&self, events: f64) -> f64 {
        let middle = (self.low + self.high) / 2.0;
        (middle - events).max(middle.min(1.35 * self.low))
    }

    /// The same while other work waits for room: polls make it.
    pub(crate) fn goal_beside_work(&self, events: f64) -> f64 {
        self.goal(events).min(1.15 * self.low)
    }

    /// What work that can wait may bring the mean of five seconds to; the rest is left to polls,
    /// which would pause for seconds otherwise.
    pub(crate) fn room_for_work(&self) -> f64 {
        0.95 * self.high
    }

    /// Whether the BPF programs leave less than the lower end.
    pub(crate) fn is_exceeded_by(&self, events: f64) -> bool {
        self.low + events > self.high
    }

    /// What turning a segment of the log into Parquet may take, as a share of one core: a
    /// quarter of the upper end, so three segments that wait leave a quarter to the polls.
    pub(crate) fn conversion(&self) -> f64 {
        self.high / 4.0
    }

    /// How long work that is wanted but not urgent has to wait after it cost `cpu`, so that
    /// it takes a tenth of the budget at most.
    pub(crate) fn rest_after(&self, cpu: Micros) -> Micros {
        Micros((cpu.0 as f64 / (self.high / 10.0)) as u64)
    }
}

impl FromStr for Budget {
    type Err = BudgetError;

    fn from_str(text: &str) -> Result<Self, BudgetError> {
        let number = |text: &str| text.trim().trim_end_matches('%').parse::<f64>().ok();
        let (low, high) = text
            .split_once(',')
            .and_then(|(low, high)| Some((number(low)?, number(high)?)))
            .ok_or_else(|| BudgetError::Shape(text.to_owned()))?;
        Budget::percent(low, high).map_err(|_| BudgetError::Order(text.to_owned()))
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.low * 100.0, self.high * 100.0)
    }
}

/// How the budget is met at present.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetState {
    /// What may be used.
    pub budget: Budget,
    /// CPU of this process in the past five seconds, as a share of one core.
    pub used: f64,
    /// CPU that the BPF programs took in others' contexts, as a share of one core, as last
    /// sampled; `None` where that cannot be known. It counts against the budget.
    pub events: Option<f64>,
    /// Polls a second.
    pub polls: f64,
    /// Samples a second of a connection that changes all the time and had no problem in the
    /// past minute.
    pub quiet_rate: f64,
    /// The same for one that had a problem.
    pub problem_rate: f64,
    /// The same for one that had problems for a quarter of the minute.
    pub worst_rate: f64,
    /// Polls left out because they would have passed the upper end.
    pub left_out: u64,
    /// It cannot be met: everything is at its lowest rate, or the BPF programs leave less
    /// than the lower end.
    pub exceeded: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_share_is_taken_off_but_not_the_lower_end() {
        let budget = Budget::percent(1.0, 2.0).unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(budget.goal(0.0), 0.015));
        assert!(near(budget.goal(0.001), 0.014));
        assert!(near(budget.goal(0.5), 0.0135));
        assert!(!budget.is_exceeded_by(0.0099) && budget.is_exceeded_by(0.0101));
    }

    #[test]
    fn budgets_are_read_and_wrong_ones_refused() {
        let budget: Budget = "1,2".parse().unwrap();
        assert_eq!((budget.low(), budget.high()), (0.01, 0.02));
        assert_eq!(
            "0.5%, 1.5%".parse::<Budget>().unwrap().to_string(),
            "0.5,1.5"
        );
        for text in ["", "1", "1;2", "1,2,3", "a,b"] {
            assert!(
                matches!(text.parse::<Budget>(), Err(BudgetError::Shape(_))),
                "{text}"
            );
        }
        for text in ["2,1", "1,1", "0,1", "-1,1", "1,101", "NaN,2", "1,inf"] {
            assert!(
                matches!(text.parse::<Budget>(), Err(BudgetError::Order(_))),
                "{text}"
            );
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Which rung of the ladder meets the budget.
//!
//! The cost of a rung is predicted from what was measured on the present one:
//!
//! 1. What the polls cost, less what an empty one costs, belongs to the samples; each
//!    priority's part grows with the rate at which its connections are sampled. (At most:
//!    one that changes rarely is not sampled more often.)
//! 2. An empty poll's cost grows with the rate of polls.
//! 3. Half of the work of rounds, other threads and views is taken to grow with the samples,
//!    the other half not to depend on the rung.
//!
//! Measured is per poll, not per second, so the chance in the number of polls is no part of
//! it. If the goal, which is the budget's middle less the programs' share, is missed by more than the deadband, the rung whose predicted
//! cost comes nearest is taken, but none that is predicted to more than double the cost.
//! Then nothing is measured until most of what was drawn at the old rates has come due.

use super::Budget;
use super::ladder::{LAST, PRIORITIES, Rates, START, rates};
use slowpath_model::{Micros, MonoNanos};

/// Shortest time over which is measured.
const SHORT: Micros = Micros(1_000_000);

/// Time over which is measured while the cost lies within the budget.
const LONG: Micros = Micros(4_000_000);

/// Fewest polls from which is concluded.
const FEW: u64 = 8;

/// Longest wait after a change, if no poll is left out.
const SETTLING: f64 = 8.0;

/// The middle counts as met this near to it: [`super::balance`] makes good what is less. Near the
/// lowest rates several steps make little difference, and with 0.12 chance sent it to and fro.
const DEADBAND: f64 = 0.2;

/// How fast the estimate of what does not depend on the rung forgets.
const BESIDES: Micros = Micros(60_000_000);

/// An empty poll costs no more than this; a cheap poll that costs more had samples in it.
const EMPTY: Micros = Micros(100);

/// What has been measured since it began.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    polls: u64,
    cpu: Micros,
    cheapest: Option<Micros>,
    samples: [u64; PRIORITIES],
    /// CPU besides the polls proper.
    besides: Micros,
}

/// The controller.
#[derive(Debug)]
pub(crate) struct Controller {
    budget: Budget,
    /// Seconds.
    interval: f64,
    /// Each poll samples every connection: the polls themselves come at the rate of those
    /// without problems.
    whole: bool,
    rung: usize,
    since: MonoNanos,
    /// Polls until what was drawn at the old rates is done with.
    unsettled: u64,
    measured: Measured,
    /// CPU share that does not depend on the rung.
    besides: f64,
    besides_known: MonoNanos,
    exceeded: bool,
}

impl Controller {
    pub fn new(budget: Budget, interval: Micros, whole: bool, now: MonoNanos) -> Self {
        Controller {
            budget,
            interval: interval.as_secs_f64(),
            whole,
            rung: START,
            since: now,
            unsettled: 0,
            measured: Measured::default(),
            besides: 0.0,
            besides_known: now,
            exceeded: false,
        }
    }

    pub fn set_interval(&mut self, interval: Micros) {
        self.interval = interval.as_secs_f64();
    }

    /// Rates a second.
    pub fn rates(&self) -> Rates {
        let mut rates = self.on(self.rung);
        rates.polls /= self.interval;
        for rate in &mut rates.samples {
            *rate /= self.interval;
        }
        rates
    }

    /// Rates an interval.
    fn on(&self, rung: usize) -> Rates {
        let rates = rates(rung);
        if !self.whole {
            return rates;
        }
        let polls = rates.samples[0];
        Rates {
            polls,
            samples: [polls; PRIORITIES],
        }
    }

    /// Nothing is left to speed up.
    pub fn is_highest(&self) -> bool {
        self.rung == 0
    }

    /// Nothing is left to slow down, and it costs more than the budget.
    pub fn exceeded(&self) -> bool {
        self.exceeded
    }

    /// A poll was made: its own cost, and how many connections of each priority it sampled.
    pub fn polled(&mut self, cpu: Micros, samples: [u64; PRIORITIES]) {
        if self.unsettled > 0 {
            self.unsettled -= 1;
            return;
        }
        let m = &mut self.measured;
        m.polls += 1;
        m.cpu += cpu;
        m.cheapest = Some(m.cheapest.map_or(cpu, |c| c.min(cpu)));
        for (sum, n) in m.samples.iter_mut().zip(samples) {
            *sum += n;
        }
    }

    /// CPU was spent besides the polls proper: rounds, other threads, the views.
    pub fn besides(&mut self, cpu: Micros) {
        self.measured.besides += cpu;
    }

    /// Decides at `now`; whether the rates have changed. `events` is the share of a core
    /// that BPF programs take in others' contexts; `pressed` if the upper end has been
    /// reached, so that polls are left out.
    pub fn decide(&mut self, now: MonoNanos, events: f64, pressed: bool) -> bool {
        let elapsed = now.since(self.since);
        if elapsed >= SHORT {
            self.learn_besides(now);
        }
        if pressed && self.rung == LAST {
            self.exceeded = true;
        }
        let few = if self.whole { 1 } else { FEW };
        if self.measured.polls < few || (elapsed < SHORT && !pressed) {
            return false;
        }
        let besides = self.besides;
        let goal = self.budget.goal(events);
        let limit = self.budget.high();
        let predictions = self.predictions();
        let Some(present) = predictions.map(|p| p[self.rung] + besides) else {
            return false;
        };
        if elapsed < LONG && (self.budget.low() * 1.05..=limit * 0.95).contains(&present) {
            return false;
        }
        self.exceeded = self.rung == LAST && present > limit;
        let rung = if (present / goal - 1.0).abs() <= DEADBAND {
            self.rung
        } else {
            predictions.map_or(self.rung, |p| self.best(&self.with_besides(&p), goal))
        };
        let before = std::mem::replace(&mut self.rung, rung);
        if rung == before {
            self.fade(now);
            return false;
        }
        self.unsettled = self.settling(before);
        self.begin(now);
        true
    }

    /// The older half of what was measured counts half.
    fn fade(&mut self, now: MonoNanos) {
        self.since = now;
        let m = &mut self.measured;
        m.polls = m.polls.div_ceil(2);
        m.cpu.0 /= 2;
        for samples in &mut m.samples {
            *samples /= 2;
        }
    }

    fn begin(&mut self, now: MonoNanos) {
        self.since = now;
        self.measured = Measured::default();
    }

    /// Such work comes in lumps: a slow mean is kept.
    fn learn_besides(&mut self, now: MonoNanos) {
        let since = now.since(self.besides_known);
        if since == Micros::ZERO {
            return;
        }
        let spent = std::mem::take(&mut self.measured.besides);
        let share = spent.as_secs_f64() / since.as_secs_f64();
        let weight = 1.0 - (-since.as_secs_f64() / BESIDES.as_secs_f64()).exp();
        self.besides += weight * (share - self.besides);
        self.besides_known = now;
    }

    /// CPU share of the polls on every rung; `None` if no poll was measured.
    fn predictions(&self) -> Option<[f64; LAST + 1]> {
        let m = &self.measured;
        let cheapest = m.cheapest?;
        let empty = cheapest.min(EMPTY).as_secs_f64();
        let a_poll = m.cpu.as_secs_f64() / m.polls as f64;
        let sampled: u64 = m.samples.iter().sum();
        let here = self.rates();
        let mut all = [0.0; LAST + 1];
        for (rung, share) in all.iter_mut().enumerate() {
            let there = self.on(rung);
            let samples: f64 = (0..PRIORITIES)
                .map(|s| {
                    let part = if sampled == 0 {
                        0.0
                    } else {
                        m.samples[s] as f64 / sampled as f64
                    };
                    let change = there.samples[s] / self.interval / here.samples[s];
                    part * change * here.polls * (a_poll - empty)
                })
                .sum();
            *share = samples + empty * there.polls / self.interval;
        }
        Some(all)
    }

    /// With what comes besides: half of it, the log's threads, is taken to grow with the
    /// samples.
    fn with_besides(&self, polls: &[f64; LAST + 1]) -> [f64; LAST + 1] {
        let here = polls[self.rung].max(1e-9);
        polls.map(|p| p + self.besides * (0.5 + 0.5 * p / here))
    }

    /// The rung nearest to `goal`. Of equal ones the highest if there is room, else the
    /// nearest.
    fn best(&self, predictions: &[f64; LAST + 1], goal: f64) -> usize {
        let present = predictions[self.rung];
        let limit = (2.0 * present).max(goal / 4.0);
        let miss = |rung: usize| {
            let tie = if present < goal {
                rung
            } else {
                rung.abs_diff(self.rung)
            };
            ((predictions[rung] - goal).abs(), tie)
        };
        (0..=LAST)
            .filter(|rung| *rung >= self.rung || predictions[*rung] <= limit)
            // Rates that make no difference are not raised for nothing in one go.
            .filter(|rung| *rung + 8 >= self.rung)
            .min_by(|a, b| {
                miss(*a)
                    .partial_cmp(&miss(*b))
                    .unwrap_or(std::cmp::Ordering::Equal)
            })
            .unwrap_or(self.rung)
    }

    /// Polls until what was drawn on rung `before` adds less than a tenth to what is drawn
    /// now. At rate `r` it comes due as exp(-r t), and it was `r` over the new rate as much.
    fn settling(&self, before: usize) -> u64 {
        if self.whole {
            return 0;
        }
        let all: u64 = self.measured.samples.iter().sum();
        let (before, after) = (rates(before), rates(self.rung));
        let wait = (0..PRIORITIES)
            .filter(|s| self.measured.samples[*s] * 10 >= all)
            .map(|s| {
                let excess = (before.samples[s] / after.samples[s]).max(1.0);
                (10.0 * excess).ln() / before.samples[s] * self.interval
            })
            .fold(0.0, f64::max);
        (wait.min(SETTLING) / self.interval * after.polls) as u64
    }
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;

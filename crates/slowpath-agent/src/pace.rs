// SPDX-License-Identifier: Apache-2.0
//! When to poll under a CPU budget, and what the views get to see of it: joins the parts of
//! [`crate::budget`] with the agent's clock and its eyes.

use crate::agent::PollReport;
use crate::budget::attention::Attention;
use crate::budget::brake::Brake;
use crate::budget::controller::Controller;
use crate::budget::events::{Meter, Sampler};
use crate::budget::{Budget, BudgetState};
use crate::eyes::Eyes;
use slowpath_model::{Micros, MonoNanos, Tier};
use std::time::Duration;

/// Work that can wait: what it cost last, and when it may be done again.
#[derive(Clone, Copy, Debug, Default)]
struct Errand {
    cost: Micros,
    done: MonoNanos,
    not_before: MonoNanos,
}

/// Kinds of work that can wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// A look at every connection that lives.
    Sweep,
    /// A search for owners.
    Owners,
    /// A round over the listening sockets.
    Listeners,
    /// The round of each minute.
    Round,
    /// A slice of the summaries of living connections.
    Summaries,
}

/// Kinds of [`Work`].
const KINDS: usize = Work::Summaries as usize + 1;

/// The longest time that summaries wait for room in the budget: an agent that cannot meet it
/// still writes a slice as often, since nothing else tells of connections without problems.
const SUMMARIES_WAIT: Micros = Micros(5_000_000);

/// A budget being kept.
pub(crate) struct Pace {
    budget: Budget,
    controller: Controller,
    brake: Brake,
    events: Sampler,
    interval: Micros,
    /// CPU of the process that has been accounted for.
    accounted: Micros,
    /// What a poll costs.
    expected: Micros,
    errands: [Errand; KINDS],
    /// Reports since the views last looked, added up.
    sum: PollReport,
    next_refresh: MonoNanos,
}

impl Pace {
    pub fn new(
        budget: Budget,
        interval: Duration,
        tier: Tier,
        now: MonoNanos,
        cpu: Micros,
    ) -> Self {
        Pace {
            budget,
            controller: Controller::new(budget, interval.into(), tier == Tier::InetDiag, now),
            brake: Brake::new(now),
            events: Sampler::new(now),
            interval: interval.into(),
            accounted: cpu,
            expected: Micros::ZERO,
            errands: Default::default(),
            sum: PollReport::default(),
            next_refresh: now,
        }
    }

    /// Tells the eyes the present rates.
    pub fn apply(&self, eyes: &mut Eyes) {
        let rates = self.controller.rates();
        eyes.thin(&rates.looks.map(|rate| (rate / rates.polls).min(1.0)));
    }

    /// The mean of the time between two polls.
    pub fn mean(&self) -> Duration {
        Duration::from_secs_f64(1.0 / self.controller.rates().polls)
    }

    pub fn set_interval(&mut self, interval: Duration) {
        self.interval = interval.into();
        self.controller.set_interval(interval.into());
    }

    fn programs(&self) -> f64 {
        self.events.share().unwrap_or(0.0)
    }

    fn limit(&self) -> f64 {
        self.budget.limit(self.programs())
    }

    /// Whether a poll may be made now; `cpu` is the process's own so far. If not, the rates
    /// may have changed.
    pub fn may_poll(&mut self, now: MonoNanos, cpu: Micros, eyes: &mut Eyes) -> bool {
        // The views, other threads.
        let others = cpu.saturating_sub(self.accounted);
        self.accounted = cpu;
        self.brake.spent(now, others);
        self.controller.besides(others);
        if self.brake.allows(now, self.expected, self.limit()) {
            return true;
        }
        if self.controller.decide(now, self.programs(), true) {
            self.apply(eyes);
        }
        false
    }

    /// Whether work that can wait may be done now.
    pub fn may(&mut self, work: Work, now: MonoNanos) -> bool {
        let limit = self.limit();
        let errand = self.errands[work as usize];
        let overdue = matches!(work, Work::Summaries) && now.since(errand.done) >= SUMMARIES_WAIT;
        now >= errand.not_before && (overdue || self.brake.has_room(now, errand.cost, limit))
    }

    /// That work was done, and cost so much.
    pub fn did(&mut self, work: Work, now: MonoNanos, cost: Micros) {
        self.errands[work as usize] = Errand {
            cost,
            done: now,
            not_before: now + self.budget.rest_after(cost),
        };
    }

    /// A poll was made: `cpu` is the process's own so far, `work` what it cost besides
    /// looking at connections that were due.
    pub fn polled(
        &mut self,
        now: MonoNanos,
        cpu: Micros,
        work: Micros,
        attention: &mut Attention,
        eyes: &mut Eyes,
    ) {
        let cost = cpu.saturating_sub(self.accounted);
        self.accounted = cpu;
        self.brake.spent(now, cost);
        let proper = cost.saturating_sub(work);
        self.controller.besides(cost.saturating_sub(proper));
        let looks = std::mem::take(&mut attention.looks);
        if proper > Micros::ZERO {
            self.expected = Micros((3 * self.expected.0 + proper.0) / 4);
            self.controller.polled(proper, looks);
        }
        for change in attention.changes.drain(..) {
            eyes.attend(&change);
        }
        self.events.tick(now, eyes);
        if self.controller.decide(now, self.programs(), false) {
            self.apply(eyes);
        }
    }

    /// Adds a report up. What comes out is for the views if they are due, and else what they
    /// will see.
    pub fn report(&mut self, now: MonoNanos, report: Option<PollReport>) -> PollReport {
        if let Some(new) = report {
            let sum = &mut self.sum;
            sum.sockets = new.sockets;
            sum.emitted += new.emitted;
            sum.closed += new.closed;
            sum.missed = sum.missed.max(new.missed);
            sum.repeats += new.repeats;
            sum.problems += new.problems;
            sum.cpu += new.cpu;
        }
        self.sum.at = now;
        if now < self.next_refresh {
            return self.sum;
        }
        self.next_refresh = now + self.interval;
        let sum = PollReport {
            refresh: true,
            ..self.sum
        };
        self.sum = PollReport {
            sockets: sum.sockets,
            ..PollReport::default()
        };
        sum
    }

    /// How the budget is met.
    pub fn state(&self, now: MonoNanos) -> BudgetState {
        let rates = self.controller.rates();
        let [quiet_rate, problem_rate, worst_rate] = rates.looks;
        BudgetState {
            budget: self.budget,
            used: self.brake.used(now),
            events: self.events.share(),
            polls: rates.polls,
            quiet_rate,
            problem_rate,
            worst_rate,
            left_out: self.brake.left_out,
            exceeded: self.controller.exceeded()
                || self.budget.goal(self.programs()) + self.programs() > self.budget.high(),
        }
    }
}

impl Meter for Eyes {
    fn begin(&mut self) -> bool {
        self.sample_statistics(true)
    }

    fn end(&mut self) {
        self.sample_statistics(false);
    }

    fn nanos(&self) -> u64 {
        let programs = self.programs();
        let outside = programs.iter().filter(|p| !p.within_polls());
        outside.map(|p| p.nanos).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> MonoNanos {
        MonoNanos(1_000_000_000_000 + ms * 1_000_000)
    }

    fn pace() -> Pace {
        let budget = Budget::percent(1.0, 2.0).unwrap();
        let half = Duration::from_millis(500);
        Pace::new(budget, half, Tier::Bpf, at(0), Micros::ZERO)
    }

    #[test]
    fn summaries_take_a_tenth_of_the_budget() {
        let mut pace = pace();
        let mut slices = 0;
        for ms in (0..60_000).step_by(31) {
            if pace.may(Work::Summaries, at(ms)) {
                slices += 1;
                pace.did(Work::Summaries, at(ms), Micros(6_000));
            }
        }
        // 6 ms at 0.2 % of a core are 3 s, and the poll that comes then.
        assert!((19..=21).contains(&slices), "{slices}");
    }

    #[test]
    fn only_summaries_come_without_room_and_only_so_often() {
        let mut pace = pace();
        for work in [Work::Summaries, Work::Round] {
            pace.did(work, at(0), Micros(6_000));
        }
        let mut made = Vec::new();
        for ms in (0..20_000).step_by(100) {
            // Twice what the budget allows, all the time.
            pace.brake.spent(at(ms), Micros(4_000));
            assert!(ms < 3_500 || !pace.may(Work::Round, at(ms)));
            if ms >= 3_500 && pace.may(Work::Summaries, at(ms)) {
                made.push(ms);
                pace.did(Work::Summaries, at(ms), Micros(6_000));
            }
        }
        assert_eq!(made, [5_000, 10_000, 15_000]);
    }
}

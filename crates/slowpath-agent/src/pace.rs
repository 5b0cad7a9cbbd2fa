// SPDX-License-Identifier: Apache-2.0
//! When to poll under a CPU budget, what work may be done beside, and what the views get of
//! it: joins the parts of [`crate::budget`]. No clock, no I/O.

use crate::budget::balance::Balance;
use crate::budget::brake::Brake;
use crate::budget::controller::Controller;
use crate::budget::ladder::PRIORITIES;
use crate::budget::program_cost::Sampler;
use crate::budget::{Budget, BudgetState};
use crate::poll_report::PollReport;
use slowpath_model::{Micros, MonoNanos, Tier};
use std::time::Duration;

/// With which probability each poll samples a connection, by its priority.
pub(crate) type Probabilities = [f64; PRIORITIES];

/// Work that can wait: what it cost last, and when it may be done again.
#[derive(Clone, Copy, Debug, Default)]
struct DeferredWork {
    /// `None` until it has been done.
    cost: Option<Micros>,
    not_before: MonoNanos,
    /// Since when it waits for the budget.
    waits: Option<MonoNanos>,
}

/// Kinds of work that can wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A poll that meets every connection that lives.
    Sweep,
    /// A scan for owners.
    Owners,
    /// A piece of a search for connections without storage in the kernel.
    Search,
    /// A round over the listening sockets.
    Listeners,
    /// The round of each minute.
    Round,
    /// A slice of the summaries of living connections.
    Summaries,
    /// Questions to conntrack, for a few connections.
    RealPeers,
}

/// Kinds of [`Work`].
const KINDS: usize = Work::RealPeers as usize + 1;

impl Work {
    /// What it may cost a connection, in nanoseconds, as long as it has not been done: about
    /// what it cost where it was measured. The first time is as expensive as the next.
    fn guess(self) -> u64 {
        match self {
            Work::Sweep => 1_500,
            Work::Owners => 1_000,
            Work::Round => 300,
            Work::Search | Work::Listeners | Work::Summaries | Work::RealPeers => 0,
        }
    }

    /// The longest time that it waits for the budget. Nothing waits for ever: an agent that
    /// cannot meet its budget still has summaries, the only records of connections without
    /// problems, and everything else, more rarely.
    fn patience(self) -> Micros {
        match self {
            Work::Summaries => Micros(5_000_000),
            Work::RealPeers | Work::Listeners | Work::Owners => Micros(15_000_000),
            Work::Sweep | Work::Search | Work::Round => Micros(30_000_000),
        }
    }
}

/// A budget being kept.
pub(crate) struct Pace {
    budget: Budget,
    controller: Controller,
    brake: Brake,
    balance: Balance,
    /// What BPF programs cost in others' contexts.
    pub(crate) program_cost: Sampler,
    interval: Micros,
    /// CPU of the process that has been accounted for.
    accounted: Micros,
    /// What a poll costs.
    expected: Micros,
    deferred: [DeferredWork; KINDS],
    /// Connections that live.
    connections: u64,
    /// Reports since the views were last refreshed, added up.
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
            balance: Balance::new(now),
            program_cost: Sampler::new(now),
            interval: interval.into(),
            accounted: cpu,
            expected: Micros::ZERO,
            deferred: Default::default(),
            connections: 0,
            sum: PollReport::default(),
            next_refresh: now,
        }
    }

    /// The present rates.
    pub fn probabilities(&self) -> Probabilities {
        let rates = self.controller.rates();
        (rates.samples).map(|rate| (rate / rates.polls).min(1.0))
    }

    /// The upper end of the budget, as a share of one core.
    pub(crate) fn high(&self) -> f64 {
        self.budget.high()
    }

    /// The mean of the time between two polls.
    pub fn mean(&self) -> Duration {
        Duration::from_secs_f64(1.0 / (self.controller.rates().polls * self.factor()))
    }

    fn factor(&self) -> f64 {
        self.balance
            .factor(self.goal(), self.controller.is_highest())
    }

    pub fn set_interval(&mut self, interval: Duration) {
        self.interval = interval.into();
        self.controller.set_interval(interval.into());
    }

    fn programs(&self) -> f64 {
        self.program_cost.share().unwrap_or(0.0)
    }

    /// The process has used `cpu` more until now.
    fn spent(&mut self, now: MonoNanos, cpu: Micros) {
        self.brake.spent(now, cpu);
        let goal = self.goal();
        self.balance.spent(now, cpu, goal, &self.budget);
    }

    fn goal(&self) -> f64 {
        let programs = self.programs();
        if self
            .deferred
            .iter()
            .any(|deferred| deferred.waits.is_some())
        {
            self.budget.goal_beside_work(programs)
        } else {
            self.budget.goal(programs)
        }
    }

    /// The process has used `cpu` so far, at the beginning of a poll: what came since the
    /// previous one was spent by the views and other threads.
    pub fn begin_poll(&mut self, now: MonoNanos, cpu: Micros) {
        let others = cpu.saturating_sub(self.accounted);
        self.accounted = cpu;
        self.spent(now, others);
        self.controller.besides(others);
    }

    /// Whether a poll may be made now; if not, that counts as one left out.
    pub fn admit_poll(&mut self, now: MonoNanos) -> bool {
        self.brake.allows(now, self.expected, self.budget.high())
    }

    /// Decides on the rates; gives new ones, if they change. `pressed`: a poll was left out.
    pub fn decide(&mut self, now: MonoNanos, pressed: bool) -> Option<Probabilities> {
        let changed = self.controller.decide(now, self.programs(), pressed);
        changed.then(|| self.probabilities())
    }

    /// Whether work that can wait may be done now; if not, it waits from now on.
    pub fn admit(&mut self, work: Work, now: MonoNanos) -> bool {
        let deferred = &mut self.deferred[work as usize];
        if now < deferred.not_before {
            return false;
        }
        let guess = Micros(work.guess().saturating_mul(self.connections) / 1_000);
        let cost = deferred.cost.unwrap_or(guess);
        if (self.brake).fits(now, cost, self.budget.room_for_work()) {
            deferred.waits = None;
            return true;
        }
        let waits = *deferred.waits.get_or_insert(now);
        now.since(waits) >= work.patience()
    }

    /// That work was done, and cost so much.
    pub fn did(&mut self, work: Work, now: MonoNanos, cost: Micros) {
        self.deferred[work as usize] = DeferredWork {
            cost: Some(cost),
            not_before: now + self.budget.rest_after(cost),
            waits: None,
        };
    }

    /// A poll was made: `cpu` is the process's own so far, `proper` what sampling the
    /// connections that were due cost of that; the rest is other work and other threads.
    pub fn polled(
        &mut self,
        now: MonoNanos,
        cpu: Micros,
        proper: Micros,
        samples: [u64; PRIORITIES],
    ) {
        let cost = cpu.saturating_sub(self.accounted);
        self.accounted = cpu;
        self.spent(now, cost);
        self.controller.besides(cost.saturating_sub(proper));
        if proper > Micros::ZERO {
            self.expected = Micros((3 * self.expected.0 + proper.0) / 4);
            self.controller.polled(proper, samples);
        }
    }

    /// Adds a report up. What comes out is for the views if they are due, and else what they
    /// will see.
    pub fn report(&mut self, now: MonoNanos, report: Option<PollReport>) -> PollReport {
        if let Some(new) = report {
            let sum = &mut self.sum;
            sum.sockets = new.sockets;
            self.connections = new.sockets;
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
        let factor = self.factor();
        let [quiet_rate, problem_rate, worst_rate] = rates.samples.map(|rate| rate * factor);
        BudgetState {
            budget: self.budget,
            used: self.brake.used(now),
            events: self.program_cost.share(),
            polls: rates.polls * factor,
            quiet_rate,
            problem_rate,
            worst_rate,
            left_out: self.brake.left_out,
            exceeded: self.controller.exceeded() || self.budget.is_exceeded_by(self.programs()),
        }
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
            if pace.admit(Work::Summaries, at(ms)) {
                slices += 1;
                pace.did(Work::Summaries, at(ms), Micros(6_000));
            }
        }
        // 6 ms at 0.2 % of a core are 3 s, and the poll that comes then.
        assert!((19..=21).contains(&slices), "{slices}");
    }

    /// Twice what the budget allows, all the time: everything comes, and only so often.
    #[test]
    fn no_work_waits_for_ever() {
        use Work::*;
        for work in [
            Sweep, Owners, Search, Listeners, Round, Summaries, RealPeers,
        ] {
            let mut pace = pace();
            pace.did(work, at(0), Micros(2_000));
            let mut made = Vec::new();
            for ms in (0..120_000).step_by(100) {
                pace.brake.spent(at(ms), Micros(4_000));
                if ms >= 2_600 && pace.admit(work, at(ms)) {
                    made.push(ms);
                    pace.did(work, at(ms), Micros(2_000));
                }
            }
            // After each a second of rest: 2 ms are a tenth of 2 % of it.
            let period = work.patience().0 / 1_000 + 1_000;
            assert!(made[0] <= 2_600 + period, "{work:?}: {made:?}");
            assert!(
                made.windows(2).all(|w| w[1] - w[0] == period),
                "{work:?}: {made:?}"
            );
            assert!(made.len() as u64 >= 110_000 / period, "{work:?}: {made:?}");
        }
    }

    /// Of 20,000 connections, 30 ms: as much as is left of five seconds at 1.24 %.
    #[test]
    fn what_was_never_done_is_taken_to_cost_something() {
        let mut pace = pace();
        let sockets = 20_000;
        pace.report(
            at(0),
            Some(PollReport {
                sockets,
                ..PollReport::default()
            }),
        );
        pace.brake.spent(at(0), Micros(70_000));
        assert!(!pace.admit(Work::Sweep, at(100)));
        assert!(!pace.admit(Work::Sweep, at(4_900)));
        assert!(pace.admit(Work::Sweep, at(5_200)));
    }

    #[test]
    fn work_that_fitted_the_budget_begins_to_wait_anew() {
        let mut pace = pace();
        let full = Micros(100_000);
        pace.brake.spent(at(0), full);
        assert!(!pace.admit(Work::Round, at(100)));
        assert!(pace.admit(Work::Round, at(6_000)), "it fits again");
        pace.brake.spent(at(29_000), full);
        assert!(
            !pace.admit(Work::Round, at(30_200)),
            "it waits only since now"
        );
    }
}

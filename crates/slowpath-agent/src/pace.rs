// SPDX-License-Identifier: Apache-2.0
//! When to poll under a CPU budget, and what the views get to see of it: joins the parts of
//! [`crate::budget`] with the agent's clock and its eyes.

use crate::agent::PollReport;
use crate::budget::balance::Balance;
use crate::budget::brake::Brake;
use crate::budget::controller::Controller;
use crate::budget::priority::Priorities;
use crate::budget::program_cost::{Meter, Sampler};
use crate::budget::{Budget, BudgetState};
use crate::observer::Observer;
use slowpath_model::{Micros, MonoNanos, Tier};
use slowpath_observe::bpf::Programs;
use std::time::Duration;

/// Work that can wait: what it cost last, and when it may be done again.
#[derive(Clone, Copy, Debug, Default)]
struct DeferredWork {
    /// `None` until it has been done.
    cost: Option<Micros>,
    not_before: MonoNanos,
    /// Since when it waits for room.
    waits: Option<MonoNanos>,
}

/// Kinds of work that can wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// A look at every connection that lives.
    Sweep,
    /// A search for owners.
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
    /// What it may cost a connection, in nanoseconds, as long as it has not been done: about what it
    /// cost where it was measured. The first time is as large as the others.
    fn guess(self) -> u64 {
        match self {
            Work::Sweep => 1_500,
            Work::Owners => 1_000,
            Work::Round => 300,
            Work::Search | Work::Listeners | Work::Summaries | Work::RealPeers => 0,
        }
    }

    /// The longest time that it waits for room in the budget. Nothing waits for ever: an agent
    /// that cannot meet its budget still has summaries, which alone tell of connections without
    /// problems, and all else, more rarely.
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
    events: Sampler,
    /// Of a recorder, which are no part of the eyes.
    others: Programs,
    interval: Micros,
    /// CPU of the process that has been accounted for.
    accounted: Micros,
    /// What a poll costs.
    expected: Micros,
    deferred: [DeferredWork; KINDS],
    /// Connections that live.
    connections: u64,
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
            balance: Balance::new(now),
            events: Sampler::new(now),
            others: Programs::default(),
            interval: interval.into(),
            accounted: cpu,
            expected: Micros::ZERO,
            deferred: Default::default(),
            connections: 0,
            sum: PollReport::default(),
            next_refresh: now,
        }
    }

    /// Tells the eyes the present rates.
    pub fn apply(&self, observer: &mut Observer) {
        let rates = self.controller.rates();
        observer.thin(&rates.samples.map(|rate| (rate / rates.polls).min(1.0)));
    }

    /// These programs, too, count as running in others' contexts.
    pub(crate) fn mind(&mut self, programs: Programs) {
        self.others = programs;
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
        self.events.share().unwrap_or(0.0)
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

    /// Whether a poll may be made now; `cpu` is the process's own so far. If not, the rates
    /// may have changed.
    pub fn may_poll(&mut self, now: MonoNanos, cpu: Micros, observer: &mut Observer) -> bool {
        // The views, other threads.
        let others = cpu.saturating_sub(self.accounted);
        self.accounted = cpu;
        self.spent(now, others);
        self.controller.besides(others);
        if self.brake.allows(now, self.expected, self.budget.high()) {
            return true;
        }
        if self.controller.decide(now, self.programs(), true) {
            self.apply(observer);
        }
        false
    }

    /// Whether work that can wait may be done now.
    pub fn may(&mut self, work: Work, now: MonoNanos) -> bool {
        let deferred = &mut self.deferred[work as usize];
        if now < deferred.not_before {
            return false;
        }
        let guess = Micros(work.guess().saturating_mul(self.connections) / 1_000);
        let cost = deferred.cost.unwrap_or(guess);
        if (self.brake).has_room(now, cost, self.budget.room_for_work()) {
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

    /// A poll was made: `cpu` is the process's own so far, `proper` what looking at the
    /// connections that were due cost of that; the rest is other work and other threads.
    pub fn polled(
        &mut self,
        now: MonoNanos,
        cpu: Micros,
        proper: Micros,
        priorities: &mut Priorities,
        observer: &mut Observer,
    ) {
        let cost = cpu.saturating_sub(self.accounted);
        self.accounted = cpu;
        self.spent(now, cost);
        self.controller.besides(cost.saturating_sub(proper));
        let samples = std::mem::take(&mut priorities.samples);
        if proper > Micros::ZERO {
            self.expected = Micros((3 * self.expected.0 + proper.0) / 4);
            self.controller.polled(proper, samples);
        }
        for change in priorities.changes.drain(..) {
            observer.attend(&change);
        }
        let others = &self.others;
        self.events.tick(now, &mut All { observer, others });
        if self.controller.decide(now, self.programs(), false) {
            self.apply(observer);
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
            events: self.events.share(),
            polls: rates.polls * factor,
            quiet_rate,
            problem_rate,
            worst_rate,
            left_out: self.brake.left_out,
            exceeded: self.controller.exceeded() || self.budget.is_exceeded_by(self.programs()),
        }
    }
}

/// All programs whose run times are booked.
struct All<'a> {
    observer: &'a mut Observer,
    others: &'a Programs,
}

impl Meter for All<'_> {
    fn begin(&mut self) -> bool {
        self.observer.sample_statistics(true)
    }

    fn end(&mut self) {
        self.observer.sample_statistics(false);
    }

    fn nanos(&self) -> u64 {
        let programs = self.observer.programs();
        let outside = programs.iter().filter(|p| !p.within_polls());
        outside.map(|p| p.nanos).sum::<u64>() + self.others.nanos()
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
                if ms >= 2_600 && pace.may(work, at(ms)) {
                    made.push(ms);
                    pace.did(work, at(ms), Micros(2_000));
                }
            }
            // After each a second of rest: 2 ms are a tenth of 2 % of it.
            let apart = work.patience().0 / 1_000 + 1_000;
            assert!(made[0] <= 2_600 + apart, "{work:?}: {made:?}");
            assert!(
                made.windows(2).all(|w| w[1] - w[0] == apart),
                "{work:?}: {made:?}"
            );
            assert!(made.len() as u64 >= 110_000 / apart, "{work:?}: {made:?}");
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
        assert!(!pace.may(Work::Sweep, at(100)));
        assert!(!pace.may(Work::Sweep, at(4_900)));
        assert!(pace.may(Work::Sweep, at(5_200)));
    }

    #[test]
    fn who_found_room_begins_to_wait_anew() {
        let mut pace = pace();
        let full = Micros(100_000);
        pace.brake.spent(at(0), full);
        assert!(!pace.may(Work::Round, at(100)));
        assert!(pace.may(Work::Round, at(6_000)), "there is room again");
        pace.brake.spent(at(29_000), full);
        assert!(
            !pace.may(Work::Round, at(30_200)),
            "it waits only since now"
        );
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The agent without I/O and clocks: what a poll does, in which order, and what of it fits a
//! CPU budget.
//!
//! What enters: clock readings, the observer's snapshots and what its scans found. What
//! leaves: [`Step`]s for the caller to carry out ([`AgentCore::next_step`]),
//! [`ObserverCommand`]s, requests to the recorder, and records to [`Host::record`].
//!
//! One poll:
//! 1. [`AgentCore::begin_poll`] says whether it may be made.
//! 2. [`AgentCore::next_step`] gives the steps one after the other ([`steps`]). The caller
//!    carries each out, hands in what it gave, and reports its CPU time to
//!    [`AgentCore::done`].
//! 3. [`AgentCore::end_poll`] accounts for it; [`AgentCore::commands`] go to the observer.

mod calls;
mod coverage;
mod schedule;
mod steps;
#[cfg(test)]
mod tests;

pub(crate) use coverage::RoundReading;
pub(crate) use steps::Step;

use crate::budget::priority::{Change, Priorities};
use crate::clock::ClockReading;
use crate::host::{Host, Record};
use crate::listeners::{ListenerScan, Listeners};
use crate::owner_scans::OwnerScanTimes;
use crate::pace::{Pace, Probabilities, Work};
use crate::poll_report::PollReport;
use crate::reconcile::Reconciler;
use crate::summaries::SummaryRotation;
use crate::tracker::{ConnectionTracker, Intake, PollTime};
use calls::CallLog;
use coverage::CoverageRounds;
use schedule::PollSchedule;
use slowpath_model::{Capabilities, LossCounters, Micros, MonoNanos};
use slowpath_observe::PollReport as Observed;
use std::time::Duration;

/// What the observer is to do from now on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ObserverCommand {
    /// Sample connections with these probabilities, by priority.
    Rates(Probabilities),
    /// Treat a connection by its priority.
    Priority(Change),
}

/// The poll under way.
#[derive(Debug, Default)]
struct PollState {
    began: ClockReading,
    /// Closes that the kernel knew to have lost when the poll began.
    closes_dropped: u64,
    /// The place of the next step in the table of steps.
    next_step: usize,
    /// Something could not be read: what is left of the poll is left out.
    failed: bool,
    observed: Observed,
    problems: u64,
    /// CPU time of work other than sampling the connections that were due.
    work: Micros,
}

/// What the core is made of.
pub(crate) struct CoreOptions {
    /// Mean of the polling interval.
    pub(crate) interval: Duration,
    /// Seed of the polling times; `None` takes one from the system.
    pub(crate) seed: Option<u64>,
    /// Keeps a CPU budget, if there is one.
    pub(crate) pace: Option<Pace>,
    pub(crate) capabilities: Capabilities,
    /// A log is kept.
    pub(crate) logs: bool,
}

/// The agent without I/O and clocks.
pub(crate) struct AgentCore {
    pub(crate) tracker: ConnectionTracker,
    pub(crate) listeners: Listeners,
    pub(crate) capabilities: Capabilities,
    pub(crate) pace: Option<Pace>,
    pub(crate) schedule: PollSchedule,
    pub(crate) owner_scans: OwnerScanTimes,
    pub(crate) calls: CallLog,
    pub(crate) coverage: CoverageRounds,
    reconciler: Reconciler,
    rotation: SummaryRotation,
    logs: bool,
    poll: PollState,
    /// The observer has to be given these.
    rates: Option<Probabilities>,
    /// The views were due for a refresh: what closed has been shown.
    refreshed: bool,
    pub(crate) polls: u64,
    /// CPU time of all polls.
    pub(crate) cpu: Micros,
}

impl AgentCore {
    /// The first poll is due at `now`.
    pub(crate) fn new(
        mut tracker: ConnectionTracker,
        options: CoreOptions,
        now: MonoNanos,
    ) -> Self {
        let rates = options.pace.as_ref().map(Pace::probabilities);
        if rates.is_some() {
            tracker.consumers.priorities = Some(Priorities::default());
        }
        AgentCore {
            tracker,
            listeners: Listeners::default(),
            capabilities: options.capabilities,
            pace: options.pace,
            schedule: PollSchedule::new(options.interval, options.seed, now),
            owner_scans: OwnerScanTimes::new(now),
            calls: CallLog::default(),
            coverage: CoverageRounds::new(now),
            reconciler: Reconciler::default(),
            rotation: SummaryRotation::new(now),
            logs: options.logs,
            poll: PollState::default(),
            rates,
            refreshed: true,
            polls: 0,
            cpu: Micros::ZERO,
        }
    }

    /// A poll is due, and the next one is scheduled; `closes_dropped` as the kernel counts
    /// now. Gives whether it may be made, or else the report of the one left out.
    pub(crate) fn begin_poll(
        &mut self,
        began: ClockReading,
        closes_dropped: u64,
    ) -> Result<(), PollReport> {
        let now = began.now;
        self.schedule
            .plan_next(now, self.pace.as_ref().map(Pace::mean));
        if let Some(pace) = &mut self.pace {
            pace.begin_poll(now, began.process_cpu);
            if !pace.admit_poll(now) {
                self.rates = pace.decide(now, true).or(self.rates);
                let report = pace.report(now, None);
                self.refreshed |= report.refresh;
                return Err(report);
            }
        }
        self.poll = PollState {
            began,
            closes_dropped,
            ..PollState::default()
        };
        let refreshed = std::mem::take(&mut self.refreshed);
        let time = PollTime {
            now,
            wall: began.wall,
        };
        self.tracker.begin_poll(time, refreshed);
        self.listeners.begin_poll(refreshed);
        Ok(())
    }

    /// When the poll under way began.
    pub(crate) fn now(&self) -> MonoNanos {
        self.poll.began.now
    }

    /// Takes the snapshots of [`Step::Observe`].
    pub(crate) fn intake<'a>(&'a mut self, host: &'a mut dyn Host) -> Intake<'a> {
        let tracker = &mut self.tracker;
        Intake { tracker, host }
    }

    /// All snapshots were taken. `all`: the poll met every connection; `counts_closes`: the
    /// kernel counts what opens and closes.
    pub(crate) fn observed(
        &mut self,
        observed: Observed,
        all: bool,
        counts_closes: bool,
        host: &mut dyn Host,
    ) {
        if all && observed.left_over == 0 {
            let gone = self.tracker.close_unmet(host);
            self.reconciler.swept(self.poll.closes_dropped, gone);
        }
        self.poll.problems = self.tracker.end_poll();
        if counts_closes {
            let known = self.tracker.living();
            self.reconciler
                .polled(observed.walked, observed.visited, observed.closed, known);
        }
        self.coverage.polled(&observed, counts_closes);
        let began = &self.poll.began;
        if let Some(mut stretch) = self.coverage.stretch(began.now, began.wall) {
            stretch.unmeasured = self.capabilities.unmeasured_set();
            host.record(Record::Coverage(&stretch));
        }
        self.poll.observed = observed;
    }

    /// The snapshots could not be read to the end.
    pub(crate) fn observation_failed(&mut self) {
        self.poll.problems = self.tracker.end_poll();
    }

    /// A step failed: the rest of the poll is left out, but for what does not depend on it.
    pub(crate) fn fail_poll(&mut self) {
        self.poll.failed = true;
    }

    /// A scan for owners ended, or why it failed.
    pub(crate) fn owners_scanned(&mut self, result: Result<(), String>, host: &mut dyn Host) {
        if result.is_err() {
            self.tracker.owner_scan_failed(host);
        }
        self.owner_scans.ended(result, &mut self.capabilities);
    }

    /// What a scan of the listeners found.
    pub(crate) fn listeners_scanned(&mut self, scan: ListenerScan, host: &mut dyn Host) {
        let time = (self.poll.began.now, self.poll.began.wall);
        let owners = &mut self.tracker.owners;
        for interval in self.listeners.scanned(scan, owners, time, host) {
            self.tracker.log_listener(&interval, host);
        }
    }

    /// Logs the summaries whose turn it is.
    pub(crate) fn save_due(&mut self, host: &mut dyn Host) {
        self.tracker.save_due(&mut self.rotation, host);
    }

    /// A search found `found` connections that the polls do not meet; `None`: there is more
    /// to search.
    pub(crate) fn searched(&mut self, found: Option<u64>) {
        if let Some(found) = found {
            self.reconciler.searched(found);
        }
    }

    /// The work of each minute.
    pub(crate) fn end_round(&mut self, reading: RoundReading, host: &mut dyn Host) {
        if self.pace.is_none() {
            self.tracker.save_summaries(host);
        }
        self.tracker.settle_host_totals();
        self.record_coverage(self.poll.began.now, reading, host);
    }

    /// Logs what was observed and lost since the last record of coverage.
    pub(crate) fn record_coverage(
        &mut self,
        now: MonoNanos,
        reading: RoundReading,
        host: &mut dyn Host,
    ) {
        let losses = self.losses(reading.losses);
        let missed = self.reconciler.end_round();
        let unknown_owners = self.tracker.take_unknown_owners();
        let unmeasured = self.capabilities.unmeasured_set();
        let mut coverage = self.coverage.end(now, &reading);
        coverage.missed = coverage.missed.max(missed);
        (coverage.owners_unknown, coverage.unknown_owners) = unknown_owners;
        coverage.losses = losses;
        coverage.cpu = self.cpu;
        coverage.unmeasured = unmeasured;
        self.coverage.record(now, coverage, host);
    }

    /// What was lost so far, with what the observer and the log have lost.
    pub(crate) fn losses(&self, outside: LossCounters) -> LossCounters {
        let mut losses = outside;
        losses.calls_dropped += self.calls.dropped;
        losses.closes_dropped += self.reconciler.uncounted;
        losses.storage_failed += self.listeners.lost();
        losses
    }

    /// The poll ends at these readings of the clocks.
    pub(crate) fn end_poll(&mut self, ended: ClockReading) -> PollReport {
        let PollState {
            began,
            observed,
            problems,
            work,
            ..
        } = self.poll;
        let cpu = ended.process_cpu.saturating_sub(began.process_cpu);
        self.polls += 1;
        self.cpu += cpu;
        let report = PollReport {
            at: observed.at,
            sockets: observed.visited,
            emitted: observed.emitted,
            closed: observed.closed,
            missed: observed.missed,
            repeats: observed.repeats,
            problems,
            cpu,
            refresh: true,
        };
        let Some(pace) = &mut self.pace else {
            self.refreshed = true;
            return report;
        };
        // What other threads did meanwhile is no cost of the samples.
        let own = ended.thread_cpu.saturating_sub(began.thread_cpu);
        let priorities = self.tracker.consumers.priorities.as_mut();
        let samples = priorities.map(|p| std::mem::take(&mut p.samples));
        let proper = own.saturating_sub(work);
        pace.polled(
            began.now,
            ended.process_cpu,
            proper,
            samples.unwrap_or_default(),
        );
        self.rates = pace.decide(began.now, false).or(self.rates);
        let report = pace.report(began.now, Some(report));
        self.refreshed |= report.refresh;
        report
    }

    /// What the observer is to do from now on; each command once.
    pub(crate) fn commands(&mut self) -> impl Iterator<Item = ObserverCommand> {
        let priorities = self.tracker.consumers.priorities.as_mut();
        let changes = priorities.map(|p| p.changes.drain(..));
        let rates = self.rates.take().map(ObserverCommand::Rates);
        rates
            .into_iter()
            .chain(changes.into_iter().flatten().map(ObserverCommand::Priority))
    }

    /// Keeps no CPU budget any more: everything that is due is done.
    pub(crate) fn drop_budget(&mut self) {
        self.pace = None;
    }

    /// Changes the mean of the polling interval, from the next poll on.
    pub(crate) fn set_interval(&mut self, interval: Duration) {
        self.schedule.set_interval(interval);
        if let Some(pace) = &mut self.pace {
            pace.set_interval(interval);
        }
    }

    /// Whether work that can wait may be done now.
    fn admits(&mut self, work: Work) -> bool {
        let now = self.now();
        self.pace.as_mut().is_none_or(|pace| pace.admit(work, now))
    }
}

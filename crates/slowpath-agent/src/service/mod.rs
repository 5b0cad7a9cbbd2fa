// SPDX-License-Identifier: Apache-2.0
//! The agent as a service, without a terminal.
//!
//! What enters: an [`Agent`], [`Request`]s (signals, as a rule), and what systemd says in the
//! environment. What leaves: the agent's own life, as lines for the [`Journal`] and reports to
//! systemd ([`Notifier`]); each poll, for an exporter of metrics ([`MetricsExport`]).
//!
//! What is promised: four failed polls in a row are survived, the fifth ends the service; an end
//! that was asked for closes the log; trouble with the log, with pushes of metrics or with the
//! recorder is reported once when it begins, not at every poll.
//!
//! What it never does: read arguments, choose exit statuses, talk to a network.

pub mod configuration;
mod journal;
mod notifier;
mod recorder_report;
mod values;

pub use journal::Journal;
pub use notifier::Notifier;
pub use slowpath_model::HostName;
pub use values::{Age, LogPlace, PollInterval, Ports, Size, as_text, duration, interval};

use crate::agent::{Agent, FinishReport, PollError};
use crate::poll_report::PollReport;
use recorder_report::RecorderReport;
use slowpath_model::{LossCounters, Micros, Tier};
use slowpath_observe::FeatureState;
use slowpath_text::plural;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Polls that may fail one after the other: the next one may succeed.
const TOLERATED: u32 = 4;

/// How often the service reports its state, at most.
const STATUS_EVERY: Duration = Duration::from_secs(60);

/// What a service is asked to do while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Close the log and end.
    Stop,
    /// Read the configuration again.
    Reload,
    /// Keep the recordings of all connections that are held.
    Keep,
}

/// Exports the agent's sums to other programs.
pub trait MetricsExport {
    /// Takes note of a poll that succeeded and took this long.
    fn polled(&mut self, agent: &Agent, report: &PollReport, took: Duration);

    /// Takes note of a poll that failed.
    fn poll_failed(&mut self);

    /// What went wrong with the last push; `None` if nothing did.
    fn push_error(&self) -> Option<String>;

    /// Publishes the last state and ends.
    fn finish(self, agent: &Agent);
}

/// A running agent with its journal, its service manager and its exporter.
pub struct Service<E> {
    agent: Agent,
    exporter: E,
    /// Where the log is kept; `None`: there is none.
    log: Option<PathBuf>,
    journal: Journal,
    notifier: Notifier,
    /// The losses that were reported last.
    losses: LossCounters,
    log_error: Option<String>,
    /// Findings of damage in the log that were reported.
    log_damage: usize,
    push_error: Option<String>,
    recorder: RecorderReport,
    next_status: Instant,
    /// CPU time of the agent at `cpu_since`.
    cpu: Micros,
    cpu_since: Instant,
}

impl<E: MetricsExport> Service<E> {
    /// A service around an agent that has started, and keeps its log in `log`.
    pub fn new(agent: Agent, exporter: E, log: Option<PathBuf>, journal: Journal) -> Self {
        Service {
            agent,
            exporter,
            log,
            journal,
            notifier: Notifier::of_this_process(),
            losses: LossCounters::default(),
            log_error: None,
            log_damage: 0,
            push_error: None,
            recorder: RecorderReport::default(),
            next_status: Instant::now(),
            cpu: Micros::ZERO,
            cpu_since: Instant::now(),
        }
    }

    /// Reports what starts, and what this machine lacks.
    pub fn introduce(&self) {
        let capabilities = self.agent.capabilities();
        let features = &capabilities.features;
        let active = features.iter().filter(|f| f.state == FeatureState::Active);
        self.journal.say(&format!(
            "version {} starts as process {}: {} tier, {} of {} features in use, {}",
            env!("CARGO_PKG_VERSION"),
            std::process::id(),
            tier(capabilities.tier),
            active.count(),
            features.len(),
            match &self.log {
                Some(directory) => format!("log in {}", directory.display()),
                None => "no log".to_owned(),
            },
        ));
        for feature in features {
            if let FeatureState::Missing { reason } = &feature.state {
                let text = format!("without {}: {} ({reason})", feature.name, feature.measures);
                if feature.serves.is_empty() {
                    // It costs no verdict: a choice, not something to mend.
                    self.journal.say(&text);
                } else {
                    self.journal.warn(&text);
                }
            }
        }
    }

    /// Polls until [`Request::Stop`] comes, or the sender of requests has gone. `reload` does
    /// the work of [`Request::Reload`].
    ///
    /// # Errors
    /// When five polls in a row fail: the last one's error.
    pub fn run(
        &mut self,
        requests: &Receiver<Request>,
        mut reload: impl FnMut(&mut Agent, &mut E, Journal),
    ) -> Result<(), PollError> {
        let mut ready = false;
        let mut failures = 0;
        loop {
            let mut wait = self.agent.until_next_poll();
            if let Some(every) = self.notifier.alive_every() {
                wait = wait.min(every);
            }
            match requests.recv_timeout(wait) {
                Ok(Request::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(Request::Reload) => {
                    let now = Duration::from_nanos(slowpath_observe::monotonic().0);
                    self.notifier.reloading(now);
                    reload(&mut self.agent, &mut self.exporter, self.journal);
                    self.notifier.ready();
                }
                Ok(Request::Keep) => self.agent.keep_all("asked"),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.notifier.alive(Instant::now());
            if !self.agent.until_next_poll().is_zero() {
                continue;
            }
            let began = Instant::now();
            match self.agent.poll() {
                Ok(report) => {
                    let took = began.elapsed();
                    self.exporter.polled(&self.agent, &report, took);
                    if failures > 0 {
                        self.journal.say("polls succeed again");
                    }
                    failures = 0;
                    if !std::mem::replace(&mut ready, true) {
                        self.notifier.ready();
                    }
                    if report.refresh {
                        self.polled(&report);
                    }
                }
                Err(error) => {
                    self.exporter.poll_failed();
                    failures += 1;
                    let text = format!("poll failed, the {failures}. in a row: {error}");
                    self.journal.warn(&text);
                    if failures > TOLERATED {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Reports the state now and then, and trouble at once.
    fn polled(&mut self, report: &PollReport) {
        let log_error = self.agent.log_error();
        if log_error != self.log_error {
            match &log_error {
                Some(reason) => self.journal.warn(&format!("the log has trouble: {reason}")),
                None => self.journal.say("the log is well again"),
            }
            self.log_error = log_error;
        }
        let damage = self.agent.log_status().map(|status| status.damage);
        let damage = damage.unwrap_or_default();
        for finding in damage.iter().skip(self.log_damage) {
            let text = format!("of the log, could not read: {finding}");
            self.journal.warn(&text);
        }
        self.log_damage = damage.len();
        let push_error = self.exporter.push_error();
        if push_error.is_some() != self.push_error.is_some() {
            match &push_error {
                Some(reason) => self.journal.warn(reason),
                None => self.journal.say("metrics are pushed again"),
            }
            self.push_error = push_error;
        }
        self.recorder.kept(&self.agent.kept(), self.journal);
        let now = Instant::now();
        if now < self.next_status {
            return;
        }
        self.next_status = now + STATUS_EVERY;
        let cpu = self.agent.cpu();
        let share = cpu.saturating_sub(self.cpu).as_secs_f64()
            / (now - self.cpu_since).as_secs_f64().max(1e-9);
        self.cpu = cpu;
        self.cpu_since = now;
        let recorder = self.recorder.status(&self.agent, self.journal);
        self.notifier.status(&format!(
            "{}, {:.2} % of one core{}",
            plural(report.sockets, "connection"),
            share * 100.0,
            recorder.unwrap_or_default()
        ));
        let losses = self.agent.losses();
        if losses != self.losses {
            self.losses = losses;
            self.journal.warn(&lost(&losses));
        }
    }

    /// Stops the agent, closes the log and reports the sums.
    pub fn finish(mut self) -> FinishReport {
        self.notifier.stopping();
        self.exporter.finish(&self.agent);
        // The recorder's last troubles.
        self.recorder.status(&self.agent, self.journal);
        let finished = self.agent.finish();
        self.recorder.kept(&finished.kept, self.journal);
        recorder_report::ended(finished.recorder.as_ref(), self.journal);
        if finished.losses != self.losses {
            self.journal.warn(&lost(&finished.losses));
        }
        self.journal.say(&format!(
            "ends after {}, {} of CPU time{}",
            plural(finished.polls, "poll"),
            finished.cpu,
            match (&self.log, &finished.log_error) {
                (None, _) => String::new(),
                (Some(_), None) => "; the log is closed".to_owned(),
                (Some(_), Some(error)) => format!("; the log is incomplete: {error}"),
            }
        ));
        finished
    }
}

fn tier(tier: Tier) -> &'static str {
    match tier {
        Tier::Bpf => "bpf",
        Tier::InetDiag => "inet_diag",
        Tier::Imported => "imported",
    }
}

fn lost(losses: &LossCounters) -> String {
    let LossCounters {
        storage_failed,
        snapshots_dropped,
        closes_dropped,
        calls_dropped,
        records_dropped,
    } = losses;
    format!(
        "lost since the start: {storage_failed} sockets without storage, {snapshots_dropped} snapshots, \
         {closes_dropped} closes, {calls_dropped} calls, {records_dropped} records of the log"
    )
}

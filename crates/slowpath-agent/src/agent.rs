// SPDX-License-Identifier: Apache-2.0
//! The polling loop, one poll at a time: whoever owns the agent calls [`Agent::poll`] when
//! [`Agent::until_next_poll`] has passed.

use crate::agent_core::AgentCore;
use crate::budget::BudgetState;
use crate::budget::priority::Priorities;
use crate::config::Config;
use crate::connection_table::LiveConnection;
use crate::host_totals::HostTotals;
use crate::listeners::{Listeners, LiveListener};
use crate::observer::{self, Observer};
use crate::owner_scans::{OwnerScanTimes, OwnerScans};
use crate::owners::Owners;
use crate::pace::{Pace, Work};
use crate::real_peers;
use crate::reconcile::Reconciler;
use crate::recorder::{KeptRecording, Recorder, RecorderState};
use crate::summaries::{SummaryRotation, TURN};
use rustix::time::ClockId;
use slowpath_model::{Capabilities, Coverage, LossCounters, Micros, MonoNanos, Tier, WallMicros};
use slowpath_observe::{Call, ProgramCost, boot_id, bpf, monotonic};
use slowpath_store::{CpuShare, HostIdentity, LogWriter, WriterStatus};
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often connections that no poll meets are looked for, coverage recorded and, without
/// a CPU budget, summaries of living connections saved; under one they are saved in rotation.
const ROUNDS: Micros = TURN;

/// Sockets looked at in one piece of a search under a CPU budget: two milliseconds.
const SEARCHED: usize = 2_500;

/// Calls of suspicious connections kept in memory.
const MAX_CALLS: usize = 65_536;

/// Why the agent did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No tier could be opened.
    #[error("opening the kernel observer: {0}")]
    Observer(#[from] observer::OpenError),
    /// The log could not be opened.
    #[error(transparent)]
    Log(#[from] slowpath_store::OpenError),
}

/// Why a poll failed; the next one may succeed.
pub type PollError = observer::PollError;

/// What one poll saw and cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollReport {
    /// When the poll began.
    pub at: MonoNanos,
    /// Connections that live.
    pub sockets: u64,
    /// Snapshots emitted because something had changed.
    pub emitted: u64,
    /// Connections that closed since the previous poll.
    pub closed: u64,
    /// Connections alive that the poll did not meet.
    pub missed: u64,
    /// Connections met twice and counted once.
    pub repeats: u64,
    /// Problem intervals found.
    pub problems: u64,
    /// CPU time of this poll in all threads of the process, user and system.
    pub cpu: Micros,
    /// Views should look now. Under a budget polls come faster than views need: the counts
    /// above then add up until this is set, and so does [`Agent::recently_closed`].
    pub refresh: bool,
}

/// What the agent leaves when it stops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinishReport {
    /// Polls made.
    pub polls: u64,
    /// CPU time of all polls, user and system.
    pub cpu: Micros,
    /// What was lost.
    pub losses: LossCounters,
    /// What went wrong with the log, if anything.
    pub log_error: Option<String>,
    /// Recordings that were kept since [`Agent::kept`] was asked last.
    pub kept: Vec<KeptRecording>,
    /// How the recorder was in the end, if there was one.
    pub recorder: Option<RecorderState>,
}

/// The agent of one host.
pub struct Agent {
    observer: Observer,
    capabilities: Capabilities,
    pub(crate) core: AgentCore,
    interval: Duration,
    random: fastrand::Rng,
    next_poll: MonoNanos,
    next_round: MonoNanos,
    owner_scans: OwnerScanTimes,
    round: Coverage,
    listeners: Listeners,
    /// The latest one recorded.
    coverage: Option<Coverage>,
    suspects: Vec<u64>,
    calls: VecDeque<Call>,
    calls_dropped: u64,
    reconciler: Reconciler,
    polls: u64,
    cpu: Micros,
    round_began: MonoNanos,
    rotation: SummaryRotation,
    pub(crate) pace: Option<Pace>,
    /// The views have been told to look.
    refreshed: bool,
    pub(crate) recorder: Option<Recorder>,
}

impl Agent {
    /// Opens the eyes and the log. The first poll is due at once.
    ///
    /// # Errors
    /// [`StartError`] names what could not be opened; nothing is left behind.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let options = bpf::Options {
            area: config.area,
            late_margin: config.thresholds.late_margin(),
            ..bpf::Options::default()
        };
        let log = match &config.log {
            None => None,
            Some(directory) => {
                let host = HostIdentity {
                    host: host_name(),
                    boot_id: boot_id(),
                };
                let options = slowpath_store::Options {
                    retention: config.retention,
                    conversion: config.budget.map(|b| CpuShare::of_core(b.conversion())),
                    ..Default::default()
                };
                Some(LogWriter::open(directory, host, options)?)
            }
        };
        let (mut observer, mut capabilities) = Observer::open(config.tier, &options)?;
        let owners = Owners::new(config.owners, capabilities.tier == Tier::Bpf);
        let now = monotonic();
        let mut listeners = Listeners::default();
        listeners.start(now, capabilities.tier);
        let mut core = AgentCore::new(
            config.thresholds,
            config.history,
            config.verdicts,
            log,
            owners,
            now,
        );
        capabilities.set(core.peers.open());
        let pace = config.budget.map(|budget| {
            core.priorities = Some(Priorities::default());
            let tier = capabilities.tier;
            let pace = Pace::new(budget, config.interval, tier, now, process_cpu());
            pace.apply(&mut observer);
            pace
        });
        Ok(Agent {
            observer,
            capabilities,
            core,
            interval: config.interval,
            random: config
                .seed
                .map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed),
            next_poll: now,
            next_round: now + ROUNDS,
            owner_scans: OwnerScanTimes::new(now),
            round: Coverage::default(),
            listeners,
            coverage: None,
            suspects: Vec::new(),
            calls: VecDeque::new(),
            calls_dropped: 0,
            reconciler: Reconciler::default(),
            polls: 0,
            cpu: Micros::ZERO,
            round_began: now,
            rotation: SummaryRotation::new(now),
            pace,
            refreshed: true,
            recorder: None,
        })
    }

    /// One poll: looks at every connection, judges those that changed, logs what it found.
    ///
    /// # Errors
    /// If the kernel could not be read; what was read until then is kept, and the agent
    /// goes on with the next poll.
    pub fn poll(&mut self) -> Result<PollReport, PollError> {
        let cpu_before = process_cpu();
        let own_before = thread_cpu();
        let wall = wall_clock();
        let now = monotonic();
        self.schedule(now);
        if let Some(pace) = &mut self.pace
            && !pace.may_poll(now, cpu_before, &mut self.observer)
        {
            let report = pace.report(now, None);
            self.refreshed |= report.refresh;
            return Ok(report);
        }
        let dropped = self.observer.losses().closes_dropped;
        let sweep = self.reconciler.wants_sweep(dropped) && self.may(Work::Sweep, now);
        if sweep {
            self.observer.emit_all(true);
        }
        self.core
            .begin(now, wall, std::mem::take(&mut self.refreshed));
        let seen = self.observer.poll(&mut self.core);
        if sweep {
            self.observer.emit_all(false);
            if seen.as_ref().is_ok_and(|s| s.left_over == 0) {
                self.reconciler.swept(dropped, self.core.sweep());
            }
        }
        let problems = self.core.end(&mut self.suspects);
        if let Some(recorder) = &self.recorder {
            recorder.keep(self.core.keep_requests.take());
        }
        let mut work = self.ask_peers(now);
        let seen = seen?;
        if self.observer.turnover().is_some() {
            let known = self.core.living();
            self.reconciler
                .polled(seen.walked, seen.visited, seen.closed, known);
        }
        self.observer.suspect(&self.suspects);
        for call in self.observer.take_calls() {
            if self.calls.len() >= MAX_CALLS {
                self.calls.pop_front();
                self.calls_dropped += 1;
            }
            self.calls.push_back(call);
        }
        if seen.walked && self.pace.is_some() {
            let cost = thread_cpu().saturating_sub(own_before).saturating_sub(work);
            if sweep {
                self.did(Work::Sweep, now, cost);
            }
            work += cost;
        }
        if self.owner_scans.due(now, self.core.owners_wanted()) && self.may(Work::Owners, now) {
            let cost = self.look(now);
            self.did(Work::Owners, now, cost);
            work += cost;
        }
        if self.may(Work::Listeners, now) {
            let before = thread_cpu();
            let owners = &mut self.core.owners;
            let round = self
                .listeners
                .round(&mut self.observer, owners, (now, wall))?;
            for interval in round {
                self.core.log_listener(&interval);
            }
            let cost = thread_cpu().saturating_sub(before);
            // Between two rounds it costs nothing.
            if cost > Micros(50) {
                self.did(Work::Listeners, now, cost);
                work += cost;
            }
        }
        if self.pace.is_some() && self.may(Work::Summaries, now) {
            let before = thread_cpu();
            if self.core.save_due(&mut self.rotation) > 0 {
                let cost = thread_cpu().saturating_sub(before);
                self.did(Work::Summaries, now, cost);
                work += cost;
            }
        }
        self.round.polls += 1;
        self.round.repeats += seen.repeats;
        self.round.emitted += seen.emitted;
        self.round.sockets = seen.visited;
        self.round.missed = self.round.missed.max(seen.missed + seen.left_over);
        if self.observer.turnover().is_none() {
            self.round.closed += seen.closed;
        }
        let round = now >= self.next_round;
        if round && !self.reconciler.has_looked() && self.may(Work::Search, now) {
            let before = thread_cpu();
            let piece = self.pace.as_ref().map(|_| SEARCHED);
            if let Some(found) = self.observer.audit(piece) {
                self.reconciler.looked(found);
            }
            let cost = thread_cpu().saturating_sub(before);
            self.did(Work::Search, now, cost);
            work += cost;
        }
        if round && self.reconciler.has_looked() && self.may(Work::Round, now) {
            let before = thread_cpu();
            self.next_round = now + ROUNDS;
            // The module may have come meanwhile.
            self.capabilities.set(self.core.peers.open());
            if self.pace.is_none() {
                self.core.save_summaries();
            }
            self.core.settle_host_totals();
            self.record_coverage(now);
            let cost = thread_cpu().saturating_sub(before);
            self.did(Work::Round, now, cost);
            work += cost;
        }
        self.core.log_interactions();
        self.core.tick();
        self.polls += 1;
        let cpu_after = process_cpu();
        let cpu = cpu_after.saturating_sub(cpu_before);
        self.cpu += cpu;
        let report = PollReport {
            at: seen.at,
            sockets: seen.visited,
            emitted: seen.emitted,
            closed: seen.closed,
            missed: seen.missed,
            repeats: seen.repeats,
            problems,
            cpu,
            refresh: true,
        };
        let Some(pace) = &mut self.pace else {
            self.refreshed = true;
            return Ok(report);
        };
        if let Some(priorities) = &mut self.core.priorities {
            // What other threads did meanwhile is no cost of the looks.
            let own = thread_cpu().saturating_sub(own_before);
            let proper = own.saturating_sub(work);
            pace.polled(now, cpu_after, proper, priorities, &mut self.observer);
        }
        let report = pace.report(now, Some(report));
        self.refreshed |= report.refresh;
        Ok(report)
    }

    /// Asks for the real peers of new connections, under a CPU budget of few and if there is
    /// room; gives what that cost.
    fn ask_peers(&mut self, now: MonoNanos) -> Micros {
        if self.pace.is_none() {
            self.core.ask_peers(real_peers::MAX_ASKED);
            return Micros::ZERO;
        }
        if !self.core.peers.wanted() || !self.may(Work::RealPeers, now) {
            return Micros::ZERO;
        }
        let before = thread_cpu();
        self.core.ask_peers(real_peers::FEW_ASKED);
        let cost = thread_cpu().saturating_sub(before);
        self.did(Work::RealPeers, now, cost);
        cost
    }

    /// Whether work that can wait may be done now.
    fn may(&mut self, work: Work, now: MonoNanos) -> bool {
        self.pace.as_mut().is_none_or(|pace| pace.may(work, now))
    }

    fn did(&mut self, work: Work, now: MonoNanos, cost: Micros) {
        if let Some(pace) = &mut self.pace {
            pace.did(work, now, cost);
        }
    }

    /// How the CPU budget is met, if there is one.
    pub fn budget(&self) -> Option<BudgetState> {
        Some(self.pace.as_ref()?.state(monotonic()))
    }

    /// The next poll is an exponentially distributed time away, within a hundredth and ten
    /// times the mean.
    fn schedule(&mut self, now: MonoNanos) {
        let mean = self.pace.as_ref().map_or(self.interval, Pace::mean);
        let mean = mean.as_secs_f64();
        let drawn = -mean * (1.0 - self.random.f64()).ln();
        let wait = Duration::from_secs_f64(drawn.clamp(mean / 100.0, mean * 10.0));
        self.next_poll = now + wait.into();
    }

    /// Changes the mean of the polling interval, from the next poll on.
    pub fn set_interval(&mut self, interval: Duration) {
        self.interval = interval;
        if let Some(pace) = &mut self.pace {
            pace.set_interval(interval);
        }
    }

    /// Time until the next poll is due; zero if it is.
    pub fn until_next_poll(&self) -> Duration {
        Duration::from_micros(self.next_poll.since(monotonic()).0)
    }

    /// Looks at who holds which socket, and leaves time until the next look; gives the cost.
    /// A look that fails is a feature that is missing until the next one.
    fn look(&mut self, now: MonoNanos) -> Micros {
        let before = thread_cpu();
        let looked = self.core.look(&mut self.observer);
        let cost = thread_cpu().saturating_sub(before);
        let capabilities = &mut self.capabilities;
        self.owner_scans.looked(now, cost, looked, capabilities);
        cost
    }

    fn record_coverage(&mut self, now: MonoNanos) {
        let mut coverage = std::mem::take(&mut self.round);
        coverage.end = wall_clock();
        coverage.duration = now.since(self.round_began);
        self.round_began = now;
        if let Some((opened, closed)) = self.observer.turnover() {
            coverage.opened = opened;
            coverage.closed = closed;
        }
        coverage.missed = coverage.missed.max(self.reconciler.end_round());
        (coverage.owners_unknown, coverage.unknown_owners) = self.core.unknown_owners();
        coverage.losses = self.losses();
        coverage.cpu = self.cpu;
        coverage.unmeasured = self.capabilities.unmeasured_set();
        self.core.log_coverage(&coverage);
        self.coverage = Some(coverage);
    }

    /// The connections that live.
    pub fn connections(&self) -> impl Iterator<Item = &LiveConnection> {
        self.core.connections()
    }

    /// The connections that closed at the last poll, at most 65,536.
    pub fn recently_closed(&self) -> impl Iterator<Item = &LiveConnection> {
        self.core.recently_closed()
    }

    /// The listening sockets that were looked at: those that live, and those that closed
    /// before the latest poll. In the BPF tier one that shows nothing is as it was when it
    /// last did, or at the latest full round a minute ago at most.
    pub fn listeners(&self) -> impl Iterator<Item = &LiveListener> {
        self.listeners.iter()
    }

    /// What can be seen here.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// What was lost so far.
    pub fn losses(&self) -> LossCounters {
        let mut losses = self.observer.losses();
        losses.calls_dropped += self.calls_dropped;
        losses.closes_dropped += self.reconciler.uncounted;
        losses.storage_failed += self.listeners.lost();
        losses.records_dropped = self.core.records_dropped();
        losses
    }

    /// Socket calls of the connections that had a problem in the interval before, oldest
    /// first, at most 65,536.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter()
    }

    /// Has the kernel measure what each BPF program costs, while the agent lives.
    ///
    /// # Errors
    /// What the kernel says, for example without CAP_SYS_ADMIN.
    pub fn measure_programs(&mut self) -> io::Result<()> {
        self.observer.enable_statistics()
    }

    /// Runs and time of each BPF program, as far as they were measured.
    pub fn programs(&self) -> Vec<ProgramCost> {
        self.observer.programs()
    }

    /// The looks at who holds which socket, and what they cost; that is part of
    /// [`Agent::cpu`].
    pub fn owner_scans(&self) -> OwnerScans {
        self.owner_scans.scans
    }

    /// CPU time of all polls so far, user and system.
    pub fn cpu(&self) -> Micros {
        self.cpu
    }

    /// Keeps sums over all connections from now on, for an exporter, with at most so many
    /// names of applications; a later call changes that number, for new names only.
    pub fn keep_host_totals(&mut self, applications: usize) {
        self.core.keep_host_totals(applications);
    }

    /// The sums, if they are kept.
    pub fn host_totals(&self) -> Option<&HostTotals> {
        self.core.host_totals()
    }

    /// The latest record of coverage; one is made every minute.
    pub fn coverage(&self) -> Option<&Coverage> {
        self.coverage.as_ref()
    }

    /// Connections opened and closed since the start by the kernel's account; `None` where
    /// the tier keeps none.
    pub fn turnover(&self) -> Option<(u64, u64)> {
        self.observer.turnover()
    }

    /// How the log is written; `None` without one.
    pub fn log_status(&self) -> Option<WriterStatus> {
        self.core.log_status()
    }

    /// What went wrong with the log last, if anything.
    pub fn log_error(&self) -> Option<String> {
        self.core.log_error()
    }

    /// Polls once more, for what closed since the last time, saves a summary of every living
    /// connection and closes the log.
    pub fn finish(mut self) -> FinishReport {
        self.pace = None;
        // If it fails, what was read until then is logged.
        let _ = self.poll();
        self.core.save_summaries();
        self.record_coverage(monotonic());
        let losses = self.losses();
        let recorder = self.recorder.take().map(Recorder::finish);
        let (kept, recorder) =
            recorder.map_or((Vec::new(), None), |(kept, state)| (kept, Some(state)));
        FinishReport {
            kept,
            recorder,
            polls: self.polls,
            cpu: self.cpu,
            losses,
            log_error: self.core.close(),
        }
    }
}

/// CPU time of this process, user and system.
/// CPU time of all threads of this process.
fn process_cpu() -> Micros {
    cpu(ClockId::ProcessCPUTime)
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu() -> Micros {
    cpu(ClockId::ThreadCPUTime)
}

fn cpu(clock: ClockId) -> Micros {
    let time = rustix::time::clock_gettime(clock);
    Micros(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000)
}

fn wall_clock() -> WallMicros {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    WallMicros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// The name of this host, as the log and exporters give it.
pub fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

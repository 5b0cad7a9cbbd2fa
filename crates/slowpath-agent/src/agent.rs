// SPDX-License-Identifier: Apache-2.0
//! The loop around the core ([`AgentCore`]): reads the clocks, the kernel and `/proc`, and
//! writes the log. Whoever owns the agent calls [`Agent::poll`] when
//! [`Agent::until_next_poll`] has passed.

use crate::agent_core::{AgentCore, CoreOptions, ObserverCommand, RoundReading, Step};
use crate::budget::BudgetState;
use crate::budget::priority::Change;
use crate::budget::program_cost::Sample;
use crate::clock::{ClockReading, clock_status, process_cpu, thread_cpu, wall_clock};
use crate::config::Config;
use crate::host_totals::{HostTotals, OwnerLabels};
use crate::listeners::LiveListener;
use crate::live_connection::LiveConnection;
use crate::machine::{Machine, process};
use crate::memory::{self, Released};
use crate::observer::{self, ListenerScanner, Observer};
use crate::owner_scans::OwnerScans;
use crate::owners::Owners;
use crate::pace::Pace;
use crate::paths::Paths;
use crate::poll_report::PollReport;
use crate::recorder::{KeptRecording, RecordError, RecordOptions, Recorder, RecorderState};
use crate::tracker::{ConnectionTracker, TrackerOptions};
use slowpath_model::{Capabilities, Coverage, Feature, LossCounters, Micros, ProblemSet, Tier};
use slowpath_observe::bpf::Programs;
use slowpath_observe::{Call, FeatureState, ProgramCost, boot_id, bpf, monotonic, with_limit};
use slowpath_store::{CpuShare, HostIdentity, LogWriter, WriterStatus};
use slowpath_text::plural;
use std::io;
use std::time::Duration;

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
    core: AgentCore,
    observer: Observer,
    listener_scanner: ListenerScanner,
    machine: Machine,
    recorder: Option<Recorder>,
    /// What runs in the kernel for the recorder.
    recorder_programs: Programs,
    /// Calls of connections with problems are kept one by one.
    keeps_calls: bool,
    released: Released,
    /// What traces paths, if that is wanted and can be had.
    paths: Option<Paths>,
}

impl Agent {
    /// Opens the observer and the log. The first poll is due at once.
    ///
    /// # Errors
    /// [`StartError`] names what could not be opened; nothing is left behind.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let options = bpf::Options {
            area: config.area,
            late_margin: config.thresholds.late_margin(),
            namespaces: config.namespaces,
            ..bpf::Options::default()
        };
        memory::limit_kept();
        let log = open_log(&config)?;
        let logs = log.is_some();
        let (observer, capabilities) = Observer::open(config.tier, &options)?;
        let tier = capabilities.tier;
        let now = monotonic();
        let readable = tier != Tier::Bpf || process::proc_is_initial();
        let tracker_options = TrackerOptions {
            thresholds: config.thresholds,
            history: config.history,
            keep_verdicts: config.verdicts,
        };
        let owners = Owners::new(config.owners, readable);
        let tracker = ConnectionTracker::new(tracker_options, owners, now);
        let pace = |budget| Pace::new(budget, config.interval, tier, now, process_cpu());
        let core_options = CoreOptions {
            interval: config.interval,
            seed: config.seed,
            pace: config.budget.map(pace),
            capabilities,
            logs,
        };
        let mut core = AgentCore::new(tracker, core_options, now);
        let counters = (tier == Tier::Bpf).then(|| ListenerScanner::counters_of(config.namespaces));
        core.listeners.start(now, counters.into_iter().flatten());
        let mut agent = Agent {
            core,
            observer,
            listener_scanner: ListenerScanner::default(),
            machine: Machine::new(log),
            recorder: None,
            recorder_programs: Programs::default(),
            keeps_calls: config.calls,
            released: Released::default(),
            paths: None,
        };
        if let Some(per_minute) = config.trace_paths {
            agent.trace_paths(per_minute);
        }
        agent.open_conntrack();
        agent.note_namespaces();
        agent.obey();
        Ok(agent)
    }

    /// One poll: samples the connections that are due, judges those that changed, logs what
    /// it found.
    ///
    /// # Errors
    /// If the kernel could not be read; what was read until then is kept, and the agent
    /// goes on with the next poll.
    pub fn poll(&mut self) -> Result<PollReport, PollError> {
        let began = ClockReading::take();
        let dropped = self.observer.losses().closes_dropped;
        if let Err(left_out) = self.core.begin_poll(began, dropped) {
            self.obey();
            return Ok(left_out);
        }
        self.machine.begin_poll(began.now);
        let mut failure = None;
        while let Some(step) = self.core.next_step() {
            let before = thread_cpu();
            if let Err(error) = self.carry_out(step) {
                self.core.fail_poll();
                failure.get_or_insert(error);
            }
            let cost = thread_cpu().saturating_sub(before);
            self.core.done(step, cost);
        }
        if let Some(error) = failure {
            return Err(error);
        }
        self.core.tracker.log_interactions(&mut self.machine);
        self.machine.tick_log(began.wall);
        let report = self.core.end_poll(ClockReading::take());
        self.obey();
        Ok(report)
    }

    fn carry_out(&mut self, step: Step) -> Result<(), PollError> {
        let (core, machine) = (&mut self.core, &mut self.machine);
        match step {
            Step::Observe { all } => return self.observe(all),
            Step::RealPeers { most } => core.tracker.ask_real_peers(most, machine),
            Step::Owners => {
                let result = self.scan_owners();
                let result = result.map_err(|error| with_limit(&error.to_string()));
                self.core.owners_scanned(result, &mut self.machine);
            }
            Step::Listeners { all } => {
                if let Some(scan) = self.listener_scanner.scan(&mut self.observer, all)? {
                    core.listeners_scanned(scan, machine);
                }
            }
            Step::Summaries => core.save_due(machine),
            Step::Search { sockets } => core.searched(self.observer.search(sockets)),
            Step::Round => {
                // The module may have come meanwhile.
                self.open_conntrack();
                self.note_namespaces();
                let reading = self.round_reading();
                self.core.end_round(reading, &mut self.machine);
                self.release_memory();
            }
            Step::ProgramCost(sample) => self.sample_program_cost(sample),
        }
        Ok(())
    }

    /// Hands the snapshots of one poll to the core.
    fn observe(&mut self, all: bool) -> Result<(), PollError> {
        if all {
            self.observer.emit_all(true);
        }
        let mut intake = self.core.intake(&mut self.machine);
        let observed = self.observer.poll(&mut intake);
        if all {
            self.observer.emit_all(false);
        }
        let observed = observed.inspect_err(|_| self.core.observation_failed());
        if let Ok(observed) = observed {
            let counts = self.observer.turnover().is_some();
            self.core.observed(observed, all, counts, &mut self.machine);
        }
        if let Some(recorder) = &self.recorder {
            recorder.keep(self.core.tracker.consumers.keep_requests.take());
        }
        self.poll_paths();
        observed?;
        if self.keeps_calls {
            self.observer.suspect(self.core.tracker.suspects());
            self.core.calls.extend(self.observer.take_calls());
        }
        Ok(())
    }

    /// Begins to trace paths, or notes why it cannot.
    fn trace_paths(&mut self, per_minute: u32) {
        let opened = match self.core.capabilities.tier {
            Tier::Bpf => Paths::open(per_minute, monotonic())
                .map_err(|error| format!("opening raw sockets: {error}; it takes CAP_NET_RAW")),
            _ => Err("it takes the BPF tier".to_owned()),
        };
        let state = match opened {
            Ok(paths) => {
                self.paths = Some(paths);
                self.core.tracker.consumers.lossy = Some(Vec::new());
                FeatureState::Active
            }
            Err(reason) => FeatureState::Missing { reason },
        };
        self.core.capabilities.set(Feature {
            name: "paths",
            measures: "routers on the paths of connections that lose segments",
            state,
            serves: ProblemSet::EMPTY,
        });
    }

    /// Traces the paths of connections that lost segments, and logs those that are known.
    fn poll_paths(&mut self) {
        let tracker = &mut self.core.tracker;
        if let (Some(paths), Some(lossy)) = (&mut self.paths, &mut tracker.consumers.lossy) {
            let found = paths.poll(lossy, monotonic());
            lossy.clear();
            for path in found {
                tracker.log_path(&path, &mut self.machine);
            }
        }
    }

    /// Paths that were traced so far, and connections that a limit left out; `None` if none are to
    /// be traced, or cannot be.
    pub fn traced_paths(&self) -> Option<(u64, u64)> {
        let paths = self.paths.as_ref()?;
        Some((paths.found, paths.left_out()))
    }

    /// Scans who holds which connection, and names the owners.
    fn scan_owners(&mut self) -> Result<(), PollError> {
        let began = monotonic();
        let scan = self.observer.scan_holders()?;
        let tracker = &mut self.core.tracker;
        let unheld = tracker.assign_owners(&scan, began, &mut self.machine);
        if !unheld.is_empty() {
            let reasons = self.observer.why_unheld()?;
            tracker.explain_unheld(&unheld, &reasons, &mut self.machine);
        }
        // What was found holds; the others are unknown until a scan succeeds.
        match scan.exhausted {
            Some(reason) => Err(PollError::Exhausted(reason)),
            None => Ok(()),
        }
    }

    fn sample_program_cost(&mut self, sample: Sample) {
        let begin = sample == Sample::Begin;
        let measures = self.observer.sample_statistics(begin) || !begin;
        let nanos = measures.then(|| {
            let programs = self.observer.programs();
            let outside = programs.iter().filter(|p| !p.within_polls());
            outside.map(|p| p.nanos).sum::<u64>() + self.recorder_programs.nanos()
        });
        let now = self.core.now();
        if let Some(pace) = &mut self.core.pace {
            pace.program_cost.read(now, nanos);
        }
    }

    /// Gives what connections and conversions have freed back to the system.
    fn release_memory(&mut self) {
        let tracker = &mut self.core.tracker;
        let status = self.machine.log_status();
        let segments = status.map_or(0, |status| status.segments_converted);
        let slots = tracker.capacity().into();
        if self.released.is_due(slots, tracker.living(), segments) {
            tracker.release_memory();
            memory::give_back();
        }
    }

    fn open_conntrack(&mut self) {
        let feature = self.machine.open_conntrack();
        if feature.state == FeatureState::Active {
            self.core.tracker.real_peers.enable();
        }
        self.core.capabilities.set(feature);
    }

    /// Which network namespaces are not observed.
    fn note_namespaces(&mut self) {
        if let Some(feature) = self.observer.namespaces() {
            self.core.capabilities.set(feature);
        }
    }

    /// Has the observer do what the core wants.
    fn obey(&mut self) {
        for command in self.core.commands() {
            match command {
                ObserverCommand::Rates(rates) => self.observer.thin(&rates),
                ObserverCommand::Priority(change) => {
                    let suspect = change.suspect && self.keeps_calls;
                    self.observer.set_priority(&Change { suspect, ..change });
                }
            }
        }
    }

    fn round_reading(&self) -> RoundReading {
        RoundReading {
            wall: wall_clock(),
            losses: self.outside_losses(),
            turnover: self.observer.turnover(),
            clock: clock_status(),
        }
    }

    /// What the observer and the log have lost.
    fn outside_losses(&self) -> LossCounters {
        LossCounters {
            records_dropped: self.machine.records_dropped(),
            ..self.observer.losses()
        }
    }

    /// How the CPU budget is met, if there is one.
    pub fn budget(&self) -> Option<BudgetState> {
        Some(self.core.pace.as_ref()?.state(monotonic()))
    }

    /// Changes the mean of the polling interval, from the next poll on.
    pub fn set_interval(&mut self, interval: Duration) {
        self.core.set_interval(interval);
    }

    /// Time until the next poll is due; zero if it is.
    pub fn until_next_poll(&self) -> Duration {
        self.core.schedule.until_next(monotonic())
    }

    /// The connections that live.
    pub fn connections(&self) -> impl Iterator<Item = &LiveConnection> {
        self.core.tracker.connections()
    }

    /// The connections that closed at the last poll, at most 65,536; none without
    /// [`Config::verdicts`].
    pub fn recently_closed(&self) -> impl Iterator<Item = &LiveConnection> {
        self.core.tracker.recently_closed()
    }

    /// The listening sockets that were observed: those that live, and those that closed
    /// before the latest poll. In the BPF tier one that shows nothing is as it was when it
    /// last did, or at the latest full round a minute ago at most.
    pub fn listeners(&self) -> impl Iterator<Item = &LiveListener> {
        self.core.listeners.iter()
    }

    /// What can be measured here.
    pub fn capabilities(&self) -> &Capabilities {
        &self.core.capabilities
    }

    /// What was lost so far.
    pub fn losses(&self) -> LossCounters {
        self.core.losses(self.outside_losses())
    }

    /// Socket calls of the connections that had a problem in the interval before, oldest
    /// first, the latest 65,536; none unless [`Config::calls`] asks for them. Those that make room
    /// for later ones are no loss: a reader had a poll's time for them.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.core.calls.iter()
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

    /// The scans for who holds which socket, and what they cost; that is part of
    /// [`Agent::cpu`].
    pub fn owner_scans(&self) -> OwnerScans {
        self.core.owner_scans.scans
    }

    /// CPU time of all polls so far, user and system.
    pub fn cpu(&self) -> Micros {
        self.core.cpu
    }

    /// Keeps sums over all connections from now on, for an exporter, with at most `applications`
    /// applications by these labels; a later call changes that number only, for new ones.
    pub fn keep_host_totals(&mut self, applications: usize, labels: OwnerLabels) {
        let tracker = &mut self.core.tracker;
        tracker.keep_host_totals(applications, labels);
    }

    /// The sums, if they are kept.
    pub fn host_totals(&self) -> Option<&HostTotals> {
        self.core.tracker.host_totals()
    }

    /// The latest record of coverage; one is made every minute.
    pub fn coverage(&self) -> Option<&Coverage> {
        self.core.coverage.latest()
    }

    /// Connections opened and closed since the start as the kernel counts them; `None` where
    /// the tier does not.
    pub fn turnover(&self) -> Option<(u64, u64)> {
        self.observer.turnover()
    }

    /// How the log is written; `None` without one.
    pub fn log_status(&self) -> Option<WriterStatus> {
        self.machine.log_status()
    }

    /// What went wrong with the log last, if anything.
    pub fn log_error(&self) -> Option<String> {
        let status = self.machine.log_status()?;
        status.last_error.as_ref().map(ToString::to_string)
    }

    /// Records connections from now on, in a thread of its own; under a CPU budget it may
    /// take a half of the upper end, which polls then have less.
    ///
    /// # Errors
    /// If the kernel does not allow it, or the folder cannot be used; the agent goes on
    /// without.
    pub fn record(&mut self, options: RecordOptions) -> Result<(), RecordError> {
        let share = self.core.pace.as_ref().map(|pace| pace.high() / 2.0);
        let (recorder, keep_requests, programs) = Recorder::start(options, share)?;
        self.recorder_programs = programs;
        self.recorder = Some(recorder);
        self.core.tracker.consumers.keep_requests = keep_requests;
        Ok(())
    }

    /// Keeps all connections that the recorder holds now.
    pub fn keep_all(&self, reason: &str) {
        if let Some(recorder) = &self.recorder {
            recorder.keep_all(reason);
        }
    }

    /// How the recorder is, if there is one.
    pub fn recorder(&self) -> Option<RecorderState> {
        Some(self.recorder.as_ref()?.state())
    }

    /// The recordings that were kept, or could not be, since this was asked last; at most
    /// 1,024.
    pub fn kept(&self) -> Vec<KeptRecording> {
        let recorder = self.recorder.as_ref();
        recorder.map(Recorder::kept).unwrap_or_default()
    }

    /// Polls once more, for what closed since the last time, saves a summary of every living
    /// connection and closes the log.
    pub fn finish(mut self) -> FinishReport {
        self.core.drop_budget();
        // If it fails, what was read until then is logged.
        let _ = self.poll();
        let reading = self.round_reading();
        let Agent { core, machine, .. } = &mut self;
        core.tracker.save_last(machine);
        core.record_coverage(monotonic(), reading, machine);
        let mut losses = self.losses();
        let recorder = self.recorder.take().map(Recorder::finish);
        let (kept, recorder) =
            recorder.map_or((Vec::new(), None), |(kept, state)| (kept, Some(state)));
        (self.core.tracker).finish_interactions(&mut self.machine);
        // What the disk still refuses is lost now.
        let log = self.machine.close_log().unwrap_or_default();
        losses.records_dropped = losses.records_dropped.max(log.records_dropped);
        FinishReport {
            kept,
            recorder,
            polls: self.core.polls,
            cpu: self.core.cpu,
            losses,
            log_error: log.last_error.map(|error| match log.records_dropped {
                0 => error,
                lost => format!("{error}; {} lost", plural(lost, "record")),
            }),
        }
    }
}

fn open_log(config: &Config) -> Result<Option<LogWriter>, slowpath_store::OpenError> {
    let Some(directory) = &config.log else {
        return Ok(None);
    };
    let host = HostIdentity {
        host: config.host.clone().unwrap_or_else(host_name),
        boot_id: boot_id(),
    };
    let options = slowpath_store::Options {
        retention: config.retention,
        ship: config.ship,
        conversion: config.budget.map(|b| CpuShare::of_core(b.conversion())),
        ..Default::default()
    };
    LogWriter::open(directory, host, options).map(Some)
}

/// The name of this host, as the log and exporters give it unless the configuration has another.
pub fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

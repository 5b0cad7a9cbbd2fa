// SPDX-License-Identifier: Apache-2.0
//! A machine in virtual time, for tests: its clocks, connections, processes and log are
//! values, and a [`Session`] carries out the core's steps as [`Agent`](crate::Agent) does.

use crate::agent_core::{AgentCore, CoreOptions, ObserverCommand, RoundReading, Step};
use crate::budget::Budget;
use crate::clock::ClockReading;
use crate::host::{Host, ProcessFacts, Record};
use crate::listeners::ListenerScan;
use crate::owners::assign::{HolderScan, Reasons};
use crate::owners::{OwnerOptions, Owners};
use crate::pace::Pace;
use crate::poll_report::PollReport;
use crate::tracker::{ConnectionTracker, TrackerOptions};
use rustc_hash::FxHashMap;
use serde::Deserialize;
use slowpath_diagnose::Thresholds;
use slowpath_model::{
    Capabilities, ConnectionId, ConnectionSummary, Coverage, FourTuple, Holder,
    InteractionInterval, ListenerInterval, LossCounters, Micros, MonoNanos, PathHop,
    ProblemInterval, Snapshot, Tier, TrafficInterval, WallMicros,
};
use slowpath_observe::PollReport as Observed;
use slowpath_observe::Sink;
use slowpath_observe::conntrack::Answer;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

/// `seconds` after an arbitrary beginning.
pub(crate) fn at(seconds: u64) -> MonoNanos {
    at_ms(1_000 * seconds)
}

pub(crate) fn at_ms(ms: u64) -> MonoNanos {
    MonoNanos(1_000_000_000_000 + ms * 1_000_000)
}

/// The wall clock at that moment.
pub(crate) fn wall(now: MonoNanos) -> WallMicros {
    WallMicros(1_700_000_000_000_000 + (now.0 / 1_000) as i64)
}

/// A connection that has done nothing: what kernels may lack is lacking, the rest is zero.
pub(crate) fn quiet() -> Snapshot {
    static QUIET: LazyLock<Snapshot> = LazyLock::new(deserialise_quiet);
    QUIET.clone()
}

fn deserialise_quiet() -> Snapshot {
    let mut value = serde_json::json!({
        "at": 0, "origin": "opened", "closed": false, "tier": "bpf",
        "id": {"boot_id": 7, "netns": 1, "cookie": 0, "start": 0},
        "tuple": {"local": "10.0.0.1:1", "remote": "10.0.0.2:2"},
        "stats": {"state": "established", "ca_state": "open"},
    });
    for _ in 0..100 {
        let error = match Snapshot::deserialize(&value) {
            Ok(snapshot) => return snapshot,
            Err(error) => error.to_string(),
        };
        value["stats"][error.split('`').nth(1).unwrap_or(&error)] = 0.into();
    }
    panic!("{value}");
}

/// [`quiet`], opened at the beginning, with that cookie.
pub(crate) fn connection(cookie: u64) -> Snapshot {
    let quiet = quiet();
    Snapshot {
        id: ConnectionId {
            cookie,
            start: at(0),
            ..quiet.id
        },
        at: at(0),
        ..quiet
    }
}

/// What a log was given.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Logged {
    Problem(ProblemInterval),
    Summary(Box<ConnectionSummary>),
    Coverage(Coverage),
    Listener(ListenerInterval),
    Interaction(InteractionInterval),
    Traffic(TrafficInterval),
    Hops(Vec<PathHop>),
}

/// The machine as the core's host.
#[derive(Default)]
pub(crate) struct Script {
    /// The log; `None` keeps none.
    pub(crate) log: Option<Vec<Logged>>,
    /// Records that the log has room for; further ones are dropped.
    pub(crate) log_limit: Option<usize>,
    pub(crate) records_dropped: u64,
    /// Segments of the log that have ended.
    pub(crate) segment: u32,
    /// What `/proc` says, by pid.
    pub(crate) processes: FxHashMap<u32, ProcessFacts>,
    /// Pids that were read, in order.
    pub(crate) reads: Vec<u32>,
    /// Conntrack's answers, by the connection's addresses; others are [`Answer::Same`].
    pub(crate) peers: Vec<(FourTuple, Answer)>,
    /// How often conntrack was asked.
    pub(crate) asked: u64,
}

impl Script {
    /// With a log.
    pub(crate) fn logging() -> Self {
        Script {
            log: Some(Vec::new()),
            ..Script::default()
        }
    }

    pub(crate) fn summaries<'a>(&'a self) -> Vec<&'a ConnectionSummary> {
        let summary = |logged: &'a Logged| match logged {
            Logged::Summary(summary) => Some(&**summary),
            _ => None,
        };
        self.log.iter().flatten().filter_map(summary).collect()
    }

    pub(crate) fn traffic(&self) -> Vec<TrafficInterval> {
        let traffic = |logged: &Logged| match logged {
            Logged::Traffic(traffic) => Some(*traffic),
            _ => None,
        };
        self.log.iter().flatten().filter_map(traffic).collect()
    }

    pub(crate) fn problems<'a>(&'a self) -> Vec<&'a ProblemInterval> {
        let problem = |logged: &'a Logged| match logged {
            Logged::Problem(interval) => Some(interval),
            _ => None,
        };
        self.log.iter().flatten().filter_map(problem).collect()
    }

    pub(crate) fn coverage<'a>(&'a self) -> Vec<&'a Coverage> {
        let coverage = |logged: &'a Logged| match logged {
            Logged::Coverage(coverage) => Some(coverage),
            _ => None,
        };
        self.log.iter().flatten().filter_map(coverage).collect()
    }
}

impl Host for Script {
    fn logs(&self) -> bool {
        self.log.is_some()
    }

    fn log_segment(&self) -> u32 {
        self.log.as_ref().map_or(0, |_| self.segment + 1)
    }

    fn record(&mut self, record: Record<'_>) -> bool {
        let Some(log) = &mut self.log else {
            return false;
        };
        if self.log_limit.is_some_and(|limit| log.len() >= limit) {
            self.records_dropped += 1;
            return false;
        }
        if let Record::FirstProblem(summary, _) | Record::Traffic(summary, _) = record {
            log.push(Logged::Summary(Box::new(summary.clone())));
        }
        log.push(match record {
            Record::FirstProblem(_, interval) => Logged::Problem(interval.clone()),
            Record::Problem(interval) => Logged::Problem(interval.clone()),
            Record::Summary(summary) => Logged::Summary(Box::new(summary.clone())),
            Record::Traffic(_, traffic) => Logged::Traffic(*traffic),
            Record::Hops(_, hops) => Logged::Hops(hops.to_vec()),
            Record::Coverage(coverage) => Logged::Coverage(coverage.clone()),
            Record::Listener(interval) => Logged::Listener(interval.clone()),
            Record::Interaction(interval) => Logged::Interaction(interval.clone()),
        });
        true
    }

    fn process(&mut self, pid: u32) -> Option<ProcessFacts> {
        self.reads.push(pid);
        self.processes.get(&pid).cloned()
    }

    fn cgroup_paths(&mut self) -> FxHashMap<u64, String> {
        FxHashMap::default()
    }

    fn real_peer(&mut self, _: u32, tuple: &FourTuple) -> Answer {
        self.asked += 1;
        let known = self.peers.iter().find(|(of, _)| of == tuple);
        known.map_or(Answer::Same, |(_, answer)| *answer)
    }
}

/// How a [`Session`]'s agent is to be.
#[derive(Clone, Copy, Default)]
pub(crate) struct SessionOptions {
    pub(crate) budget: Option<Budget>,
    pub(crate) keep_verdicts: bool,
    pub(crate) logs: bool,
}

/// An agent on a scripted machine.
pub(crate) struct Session {
    pub(crate) core: AgentCore,
    pub(crate) machine: Script,
    pub(crate) now: MonoNanos,
    /// CPU time of this process so far; one thread is all of it.
    pub(crate) cpu: Micros,
    /// What each step costs.
    pub(crate) cost: fn(&Step, usize) -> Micros,
    /// The connections that live, as the kernel has them.
    pub(crate) living: BTreeMap<u64, Snapshot>,
    /// Closes that the kernel knows to have lost.
    pub(crate) closes_dropped: u64,
    /// The next observation fails after its snapshots.
    pub(crate) fails: bool,
    /// Who holds the sockets; the error of a scan that fails.
    pub(crate) holders: Result<Vec<(u64, Holder)>, String>,
    /// Why sockets have no holder.
    pub(crate) reasons: Reasons,
    /// What scans of the listeners find, one after the other.
    pub(crate) listeners: Vec<ListenerScan>,
    /// What searches find, one after the other; without any, all is searched and nothing
    /// found.
    pub(crate) searches: Vec<Option<u64>>,
    /// The steps of the latest poll.
    pub(crate) steps: Vec<Step>,
    /// What the observer was ordered by the latest poll.
    pub(crate) commands: Vec<ObserverCommand>,
}

impl Session {
    pub(crate) fn new(options: SessionOptions) -> Self {
        let interval = Duration::from_millis(500);
        let tracker_options = TrackerOptions {
            thresholds: Thresholds::default(),
            history: 0,
            keep_verdicts: options.keep_verdicts,
        };
        let owners = Owners::new(OwnerOptions::default(), true);
        let tracker = ConnectionTracker::new(tracker_options, owners, at(0));
        let pace = |budget| Pace::new(budget, interval, Tier::Bpf, at(0), Micros::ZERO);
        let core_options = CoreOptions {
            interval,
            seed: Some(1),
            pace: options.budget.map(pace),
            capabilities: Capabilities {
                tier: Tier::Bpf,
                features: Vec::new(),
                fallback: None,
            },
            logs: options.logs,
        };
        let machine = match options.logs {
            true => Script::logging(),
            false => Script::default(),
        };
        Session {
            core: AgentCore::new(tracker, core_options, at(0)),
            machine,
            now: at(0),
            cpu: Micros::ZERO,
            cost: |_, _| Micros::ZERO,
            living: BTreeMap::new(),
            closes_dropped: 0,
            fails: false,
            holders: Ok(Vec::new()),
            reasons: Reasons::default(),
            listeners: Vec::new(),
            searches: Vec::new(),
            steps: Vec::new(),
            commands: Vec::new(),
        }
    }

    /// With a log and without a budget.
    pub(crate) fn logging() -> Self {
        Session::new(SessionOptions {
            logs: true,
            ..SessionOptions::default()
        })
    }

    fn clock(&self) -> ClockReading {
        ClockReading {
            now: self.now,
            wall: wall(self.now),
            process_cpu: self.cpu,
            thread_cpu: self.cpu,
        }
    }

    /// One poll at `now`, when these connections show themselves: new, changed or, with
    /// their last snapshot, closed. `None` if it failed.
    pub(crate) fn poll(
        &mut self,
        now: MonoNanos,
        changed: impl IntoIterator<Item = Snapshot>,
    ) -> Option<PollReport> {
        self.now = now;
        self.steps.clear();
        self.commands.clear();
        if let Err(left_out) = self.core.begin_poll(self.clock(), self.closes_dropped) {
            self.commands = self.core.commands().collect();
            return Some(left_out);
        }
        let mut changed: Vec<Snapshot> = changed.into_iter().collect();
        let mut failed = false;
        while let Some(step) = self.core.next_step() {
            self.steps.push(step);
            let met = changed.len();
            if !self.carry_out(step, &mut changed) {
                self.core.fail_poll();
                failed = true;
            }
            let cost = (self.cost)(&step, met);
            self.cpu += cost;
            self.core.done(step, cost);
        }
        if failed {
            return None;
        }
        self.core.tracker.log_interactions(&mut self.machine);
        let report = self.core.end_poll(self.clock());
        self.commands = self.core.commands().collect();
        Some(report)
    }

    /// Whether it succeeded.
    fn carry_out(&mut self, step: Step, changed: &mut Vec<Snapshot>) -> bool {
        let (core, machine) = (&mut self.core, &mut self.machine);
        match step {
            Step::Observe { all } => return self.observe(all, std::mem::take(changed)),
            Step::RealPeers { most } => core.tracker.ask_real_peers(most, machine),
            Step::Owners => {
                let result = self.scan_owners();
                self.core.owners_scanned(result, &mut self.machine);
            }
            Step::Listeners { .. } => {
                if !self.listeners.is_empty() {
                    core.listeners_scanned(self.listeners.remove(0), machine);
                }
            }
            Step::Summaries => core.save_due(machine),
            Step::Search { .. } => match self.searches.is_empty() {
                true => core.searched(Some(0)),
                false => core.searched(self.searches.remove(0)),
            },
            Step::Round => {
                let reading = RoundReading {
                    wall: wall(self.now),
                    losses: LossCounters {
                        records_dropped: machine.records_dropped,
                        ..LossCounters::default()
                    },
                    turnover: None,
                    clock: None,
                };
                core.end_round(reading, machine);
            }
            Step::ProgramCost(_) => {
                if let Some(pace) = &mut core.pace {
                    pace.program_cost.read(self.now, Some(0));
                }
            }
        }
        true
    }

    fn observe(&mut self, all: bool, changed: Vec<Snapshot>) -> bool {
        let (mut emitted, mut closed) = (0, 0);
        let mut intake = self.core.intake(&mut self.machine);
        for snapshot in changed {
            intake.see(&snapshot);
            if snapshot.closed {
                closed += 1;
                self.living.remove(&snapshot.id.cookie);
            } else {
                emitted += 1;
                self.living.insert(snapshot.id.cookie, snapshot);
            }
        }
        if all {
            for snapshot in self.living.values() {
                intake.see(snapshot);
            }
        }
        if std::mem::take(&mut self.fails) {
            self.core.observation_failed();
            return false;
        }
        let living = self.living.len() as u64;
        let observed = Observed {
            at: self.now,
            visited: living,
            live: living,
            emitted,
            closed,
            walked: all,
            ..Observed::default()
        };
        self.core.observed(observed, all, true, &mut self.machine);
        true
    }

    fn scan_owners(&mut self) -> Result<(), String> {
        let mut scan = HolderScan::default();
        scan.supported = true;
        for (cookie, holder) in self.holders.clone()? {
            scan.add(cookie, false, holder);
        }
        let tracker = &mut self.core.tracker;
        let unheld = tracker.assign_owners(&scan, self.now, &mut self.machine);
        tracker.explain_unheld(&unheld, &self.reasons, &mut self.machine);
        Ok(())
    }
}

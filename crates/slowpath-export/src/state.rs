// SPDX-License-Identifier: Apache-2.0
//! The agent's sums and gauges at one moment, and the board on which exporters find the latest.

use crate::counters::{HttpCounters, PushCounters};
use slowpath_agent::{
    Agent, BudgetState, Feature, FeatureState, Histogram, HostTotals, PollReport, RecorderState,
    WriterStatus,
};
use slowpath_model::{Coverage, LossCounters, Micros, ProblemSet, Tier, WallMicros};
use slowpath_ship::shipper::ShipStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Upper bounds of the buckets of [`Polls::duration`].
pub const POLL_BOUNDS: [Micros; 12] = Micros::each([
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 2_500_000,
]);

/// The polls since the start.
#[derive(Clone, Debug)]
pub struct Polls {
    /// Those that succeeded.
    pub done: u64,
    /// Those that failed.
    pub failed: u64,
    /// Snapshots handed over because something had changed.
    pub emitted: u64,
    /// Connections met twice and counted once.
    pub repeats: u64,
    /// CPU time.
    pub cpu: Micros,
    /// Wall time of each.
    pub duration: Histogram,
    /// Connections that live, by the last one.
    pub sockets: u64,
}

impl Default for Polls {
    fn default() -> Self {
        Polls {
            done: 0,
            failed: 0,
            emitted: 0,
            repeats: 0,
            cpu: Micros::ZERO,
            duration: Histogram::new(&POLL_BOUNDS),
            sockets: 0,
        }
    }
}

impl Polls {
    /// One more, that took so long.
    pub fn add(&mut self, report: &PollReport, took: Duration) {
        self.done += 1;
        self.emitted += report.emitted;
        self.repeats += report.repeats;
        self.cpu += report.cpu;
        self.duration.observe(took.into());
        self.sockets = report.sockets;
    }
}

/// Connections opened and closed since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turnover {
    /// Opened; `None` where the tier cannot distinguish those from older ones.
    pub opened: Option<u64>,
    /// Closed, as far as it was noticed.
    pub closed: u64,
}

/// How the log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogState {
    /// What the writer says.
    pub status: WriterStatus,
}

/// What this process takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessUse {
    /// CPU time, user and system.
    pub cpu: Micros,
    /// Bytes of memory in use; `None` if the system does not report it.
    pub resident: Option<u64>,
    /// Bytes of address space.
    pub virtual_memory: Option<u64>,
    /// Files open.
    pub open_files: Option<u64>,
}

impl ProcessUse {
    /// As the system says now.
    pub fn read() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        // proc_pid_statm(5): size, resident, both in pages.
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let page = rustix::param::page_size() as u64;
        let mut pages = statm
            .split_ascii_whitespace()
            .map(|n| n.parse::<u64>().ok().map(|n| n * page));
        ProcessUse {
            cpu: Micros(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000),
            virtual_memory: pages.next().flatten(),
            resident: pages.next().flatten(),
            open_files: std::fs::read_dir("/proc/self/fd")
                .ok()
                .map(|files| files.count().saturating_sub(1) as u64),
        }
    }
}

/// Everything that is exported.
#[derive(Clone, Debug)]
pub struct State {
    /// Version of the program.
    pub version: &'static str,
    /// When the agent started.
    pub started: WallMicros,
    /// When this was so.
    pub at: WallMicros,
    /// Which tier is in use.
    pub tier: Tier,
    /// Every feature, in use or not.
    pub features: Vec<(&'static str, bool)>,
    /// Problems that cannot be measured here.
    pub unmeasured: ProblemSet,
    /// Sums over all connections.
    pub host_totals: HostTotals,
    /// Connections opened and closed.
    pub turnover: Turnover,
    /// The polls.
    pub polls: Polls,
    /// The latest record of coverage; `None` in the first minute.
    pub coverage: Option<Coverage>,
    /// What was lost.
    pub losses: LossCounters,
    /// How the log is; `None` without one.
    pub log: Option<LogState>,
    /// How the CPU budget is met; `None` without one.
    pub budget: Option<BudgetState>,
    /// How the recorder is; `None` without one.
    pub recorder: Option<RecorderState>,
    /// How shipping the log fares; `None` without a server.
    pub ship: Option<ShipStatus>,
    /// What this process takes.
    pub process: ProcessUse,
}

impl State {
    /// Of an agent that keeps totals; `None` of another.
    pub fn of(
        agent: &Agent,
        polls: &Polls,
        version: &'static str,
        started: WallMicros,
        at: WallMicros,
    ) -> Option<State> {
        let host_totals = agent.host_totals()?.snapshot();
        let capabilities = agent.capabilities();
        let active = |f: &Feature| (f.name, f.state == FeatureState::Active);
        Some(State {
            version,
            started,
            at,
            tier: capabilities.tier,
            features: capabilities.features.iter().map(active).collect(),
            unmeasured: capabilities.unmeasured_set(),
            turnover: match agent.turnover() {
                Some((opened, closed)) => Turnover {
                    opened: Some(opened),
                    closed,
                },
                None => Turnover {
                    opened: None,
                    closed: host_totals.closed,
                },
            },
            host_totals,
            polls: polls.clone(),
            coverage: agent.coverage().cloned(),
            losses: agent.losses(),
            log: agent.log_status().map(|status| LogState { status }),
            budget: agent.budget(),
            recorder: agent.recorder(),
            ship: None,
            process: ProcessUse::read(),
        })
    }
}

/// Where the poll's thread leaves the latest state and the exporters find it.
#[derive(Debug, Default)]
pub struct Board {
    latest: Mutex<Option<(Arc<State>, Instant)>>,
    /// What the server counts.
    pub http: HttpCounters,
    /// What the pusher counts.
    pub push: PushCounters,
}

impl Board {
    /// Leaves a state.
    pub fn publish(&self, state: State) {
        let state = Some((Arc::new(state), Instant::now()));
        // An old one is freed after the lock, not under it.
        let _old = std::mem::replace(&mut *self.lock(), state);
    }

    /// The latest state and when it was left here; `None` before the first.
    pub fn latest(&self) -> Option<(Arc<State>, Instant)> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Arc<State>, Instant)>> {
        // Whole values are swapped: a panic elsewhere leaves a good one.
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

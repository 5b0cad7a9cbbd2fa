// SPDX-License-Identifier: Apache-2.0
//! The agent without observer and clocks: snapshots and times come as arguments. A day passes
//! in seconds; for tests of what is made of the agent's sums.

use crate::host::{Host, ProcessFacts, Record};
use crate::host_totals::{HostTotals, OwnerLabels};
use crate::live_connection::LiveConnection;
use crate::owners::{OwnerOptions, Owners};
use crate::tracker::{ConnectionTracker, PollTime, TrackerOptions};
use rustc_hash::FxHashMap;
use slowpath_diagnose::Thresholds;
use slowpath_model::{FourTuple, MonoNanos, Owner, Snapshot, WallMicros};
use slowpath_observe::conntrack::Answer;

/// A machine without a log, processes and conntrack.
pub(crate) struct NoHost;

impl Host for NoHost {
    fn logs(&self) -> bool {
        false
    }

    fn log_segment(&self) -> u32 {
        0
    }

    fn record(&mut self, _: Record<'_>) -> bool {
        false
    }

    fn process(&mut self, _: u32) -> Option<ProcessFacts> {
        None
    }

    fn cgroup_paths(&mut self) -> FxHashMap<u64, String> {
        FxHashMap::default()
    }

    fn real_peer(&mut self, _: u32, _: &FourTuple) -> Answer {
        Answer::Same
    }
}

/// An agent that keeps sums and no log, as [`Agent`](crate::Agent) is with
/// `verdicts: false`.
pub struct ScriptedAgent {
    tracker: ConnectionTracker,
}

impl ScriptedAgent {
    /// Has series for up to `applications` applications, by their names only.
    pub fn new(applications: usize, now: MonoNanos) -> Self {
        Self::with_labels(applications, OwnerLabels::default(), now)
    }

    /// Has series for up to `applications` applications, by these labels.
    pub fn with_labels(applications: usize, labels: OwnerLabels, now: MonoNanos) -> Self {
        let options = TrackerOptions {
            thresholds: Thresholds::default(),
            history: 0,
            keep_verdicts: false,
        };
        let owners = Owners::new(OwnerOptions::default(), false);
        let mut tracker = ConnectionTracker::new(options, owners, now);
        tracker.keep_host_totals(applications, labels);
        ScriptedAgent { tracker }
    }

    /// One poll at `now`, which is `wall` on the wall clock, that hands over `snapshots`;
    /// gives the number of problem intervals.
    pub fn poll<'a>(
        &mut self,
        now: MonoNanos,
        wall: WallMicros,
        snapshots: impl IntoIterator<Item = &'a Snapshot>,
    ) -> u64 {
        self.tracker.begin_poll(PollTime { now, wall }, true);
        for snapshot in snapshots {
            self.tracker.observe(snapshot, &mut NoHost);
        }
        self.tracker.end_poll()
    }

    /// A scan for owners that finds these, by cookie.
    pub fn owners(&mut self, owners: impl IntoIterator<Item = (u64, Owner)>) {
        self.tracker.set_owners(owners.into_iter().collect());
    }

    /// What the agent does every minute.
    pub fn round(&mut self) {
        self.tracker.save_summaries(&mut NoHost);
        self.tracker.settle_host_totals();
    }

    /// The sums.
    pub fn host_totals(&self) -> Option<&HostTotals> {
        self.tracker.host_totals()
    }

    /// The connections that live.
    pub fn connections(&self) -> impl Iterator<Item = &LiveConnection> {
        self.tracker.connections()
    }
}

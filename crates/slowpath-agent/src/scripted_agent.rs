// SPDX-License-Identifier: Apache-2.0
//! The agent without eyes and clocks: snapshots and times come as arguments. A day passes
//! in seconds; for tests of what is made of the agent's sums.

use crate::agent_core::AgentCore;
use crate::connection_table::LiveConnection;
use crate::host_totals::HostTotals;
use crate::owners::{OwnerOptions, Owners};
use slowpath_diagnose::Thresholds;
use slowpath_model::{MonoNanos, Owner, Snapshot, WallMicros};
use slowpath_observe::Sink;

/// An agent that keeps accounts and no log, as [`Agent`](crate::Agent) is with
/// `verdicts: false`.
pub struct ScriptedAgent {
    core: AgentCore,
    suspects: Vec<u64>,
}

impl ScriptedAgent {
    /// With at most so many names of applications.
    pub fn new(applications: usize, now: MonoNanos) -> Self {
        let owners = Owners::new(OwnerOptions::default(), true);
        let mut core = AgentCore::new(Thresholds::default(), 0, false, None, owners, now);
        core.keep_host_totals(applications);
        ScriptedAgent {
            core,
            suspects: Vec::new(),
        }
    }

    /// One poll at `now`, which is `wall` on the wall clock, that hands over `snapshots`;
    /// gives the number of problem intervals.
    pub fn poll<'a>(
        &mut self,
        now: MonoNanos,
        wall: WallMicros,
        snapshots: impl IntoIterator<Item = &'a Snapshot>,
    ) -> u64 {
        self.core.begin(now, wall, true);
        for snapshot in snapshots {
            self.core.see(snapshot);
        }
        self.core.end(&mut self.suspects)
    }

    /// A look for owners that finds these, by cookie.
    pub fn owners(&mut self, owners: impl IntoIterator<Item = (u64, Owner)>) {
        self.core.name_owners(owners.into_iter().collect());
    }

    /// What the agent does every minute.
    pub fn round(&mut self) {
        self.core.save_summaries();
        self.core.settle_host_totals();
    }

    /// The sums.
    pub fn host_totals(&self) -> Option<&HostTotals> {
        self.core.host_totals()
    }

    /// The connections that live.
    pub fn connections(&self) -> impl Iterator<Item = &LiveConnection> {
        self.core.connections()
    }
}

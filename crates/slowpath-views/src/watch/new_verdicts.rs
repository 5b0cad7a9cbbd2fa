// SPDX-License-Identifier: Apache-2.0
//! Which verdicts are new: a source shows the latest one until the next.

use crate::source::{LiveConnection, Source};
use slowpath_model::{ConnectionId, IntervalVerdict, MonoNanos, Problem};
use std::collections::{HashMap, HashSet};

/// Polls between two looks for connections that left without a word.
const SWEEP_EVERY: u32 = 64;

/// What was shown last of each connection.
#[derive(Debug, Default)]
pub struct NewVerdicts {
    shown: HashMap<ConnectionId, (MonoNanos, Problem)>,
    polls: u32,
}

impl NewVerdicts {
    /// Whether the verdict was not shown yet, and if so, whether it differs from the one
    /// before. Before its first verdict, a connection counts as fine.
    pub fn show(&mut self, live: LiveConnection<'_>, verdict: &IntervalVerdict) -> Option<bool> {
        let now = (verdict.to, verdict.dominating);
        match self.shown.insert(live.snapshot.id, now) {
            Some((to, _)) if to >= verdict.to => None,
            Some((_, before)) => Some(before != verdict.dominating),
            None => Some(verdict.dominating != Problem::SenderAppLimited),
        }
    }

    /// Forgets connections that are no more; after every poll.
    pub fn sweep(&mut self, source: &dyn Source) {
        for closed in source.recently_closed() {
            self.shown.remove(&closed.snapshot.id);
        }
        self.polls += 1;
        if !self.polls.is_multiple_of(SWEEP_EVERY) {
            return;
        }
        let living: HashSet<ConnectionId> = source.connections().map(|c| c.snapshot.id).collect();
        self.shown.retain(|id, _| living.contains(id));
    }
}

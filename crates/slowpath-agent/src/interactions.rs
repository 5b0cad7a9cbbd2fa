// SPDX-License-Identifier: Apache-2.0
//! Interactions for the log: found by an agent without a view, too.
//!
//! Only connections that may be part of one are followed: those with a finding, and of the others
//! the flows of a process that owns one of these, its connections to a peer to which it had a
//! timeout with too little in flight, and the other ends on this host. A host without problems pays one
//! comparison a sample. Once a second what is remembered is searched; what is found
//! in rounds that follow each other is one record.

use rustc_hash::FxHashMap;
use slowpath_diagnose::{
    Interaction, InteractionKind, Interactions, Observation, WINDOW, may_flow,
};
use slowpath_model::{
    ConnectionId, FourTuple, InteractionInterval, IntervalVerdict, Micros, MonoNanos, Owner,
    Snapshot, WallMicros,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// What is remembered is searched this often at most.
const ROUNDS: Micros = Micros(1_000_000);

/// What goes on is written this often, so that a crash loses no more.
const LONGEST: Micros = Micros(30_000_000);

/// Processes and addresses in trouble that are remembered, and interactions under way; further
/// ones are left out.
const MOST: usize = 20_000;

/// Who suffers and the cause: the connections between them may change from round to round, and the same
/// pair may be found over several.
type Key = (InteractionKind, ConnectionId, ConnectionId);

/// One that was found in the latest round.
struct Open {
    from: MonoNanos,
    rounds: u64,
    latest: Interaction,
    /// Who suffers, and the cause.
    ends: [(ConnectionId, FourTuple, Owner); 2],
}

#[derive(Default)]
pub(crate) struct InteractionTracker {
    recent: Interactions,
    /// Who owns something in trouble, and until when that counts.
    processes: FxHashMap<u32, MonoNanos>,
    /// To which peers they had timeouts with too little in flight.
    thin_streams: FxHashMap<(u32, SocketAddr), MonoNanos>,
    /// The other ends of what is in trouble.
    ends: FxHashMap<FourTuple, MonoNanos>,
    /// Since when each connection is followed, and its owner.
    owners: FxHashMap<ConnectionId, (MonoNanos, Owner)>,
    open: BTreeMap<Key, Open>,
    next: MonoNanos,
    previous: MonoNanos,
}

impl InteractionTracker {
    /// Whether a connection without a finding between these two may be part of an interaction.
    #[inline]
    pub(crate) fn wants(&self, before: &Snapshot, after: &Snapshot, owner: &Owner) -> bool {
        if self.processes.is_empty() && self.ends.is_empty() {
            return false;
        }
        let tuple = after.tuple;
        let wants_of = |pid: u32| {
            (may_flow(&before.stats, &after.stats) && self.processes.contains_key(&pid))
                || (!self.thin_streams.is_empty()
                    && self.thin_streams.contains_key(&(pid, tuple.remote)))
        };
        owner.pid().is_some_and(wants_of) || self.ends.contains_key(&tuple)
    }

    /// A verdict on a connection that has a finding, or is wanted.
    pub(crate) fn observe(
        &mut self,
        snapshot: &Snapshot,
        owner: &Owner,
        verdict: &IntervalVerdict,
    ) {
        let until = verdict.to + WINDOW;
        let pid = owner.pid();
        // A flow that is followed for its process's sake does not keep the process followed.
        let itself = !verdict.findings.is_empty() || self.ends.contains_key(&snapshot.tuple);
        if itself && self.processes.len() < MOST {
            self.processes.extend(pid.map(|pid| (pid, until)));
        }
        if verdict.deltas.thin_timeouts > Some(0) && self.thin_streams.len() < MOST {
            let peer = snapshot.tuple.remote;
            self.thin_streams
                .extend(pid.map(|pid| ((pid, peer), until)));
        }
        if !verdict.findings.is_empty() && self.ends.len() < MOST {
            self.ends.insert(snapshot.tuple.reversed(), until);
        }
        self.recent.observe(&Observation {
            tuple: snapshot.tuple,
            pid,
            origin: snapshot.origin,
            stats: &snapshot.stats,
            verdict,
        });
        if let Some((_, known)) = self.owners.get_mut(&snapshot.id) {
            if *known != *owner {
                known.clone_from(owner);
            }
        } else if self.owners.len() < MOST {
            self.owners
                .insert(snapshot.id, (verdict.from, owner.clone()));
        }
    }

    /// One round if it is due; gives what ended, or has gone on for long. `wall` is now.
    pub(crate) fn round(&mut self, now: MonoNanos, wall: WallMicros) -> Vec<InteractionInterval> {
        if now < self.next {
            return Vec::new();
        }
        if self.recent.is_empty() && self.open.is_empty() {
            self.previous = now;
            return Vec::new();
        }
        self.next = now + ROUNDS;
        let last = std::mem::replace(&mut self.previous, now);
        for id in self.recent.forget(now) {
            self.owners.remove(&id);
        }
        self.processes.retain(|_, until| *until >= now);
        self.thin_streams.retain(|_, until| *until >= now);
        self.ends.retain(|_, until| *until >= now);
        let mut before = std::mem::take(&mut self.open);
        let mut over = Vec::new();
        for latest in self.recent.find() {
            let Some(ends) = self.ends_of(&latest) else {
                continue;
            };
            let key = (latest.kind, ends[0].0, ends[1].0);
            if self.open.contains_key(&key) {
                continue;
            }
            let known = before.remove(&key);
            let mut open = Open {
                from: known
                    .as_ref()
                    .map_or_else(|| self.since(&latest, last), |k| k.from),
                rounds: known.map_or(0, |k| k.rounds) + 1,
                latest,
                ends,
            };
            if now.since(open.from) >= LONGEST {
                over.push(record(&open, now, now, wall));
                (open.from, open.rounds) = (now, 0);
            }
            if self.open.len() < MOST {
                self.open.insert(key, open);
            }
        }
        let ended = before.values().filter(|open| open.rounds > 0);
        over.extend(ended.map(|open| record(open, last, now, wall)));
        over
    }

    /// What was found in the latest round: the agent ends.
    pub(crate) fn finish(&mut self, now: MonoNanos, wall: WallMicros) -> Vec<InteractionInterval> {
        let open = std::mem::take(&mut self.open);
        let open = open.values().filter(|open| open.rounds > 0);
        open.map(|open| record(open, self.previous, now, wall))
            .collect()
    }

    /// When it began: after the round before, and no earlier than its connection is followed.
    fn since(&self, found: &Interaction, last: MonoNanos) -> MonoNanos {
        let suffers = found.connections.first();
        let followed = suffers.and_then(|id| self.owners.get(id));
        followed.map_or(last, |(since, _)| last.max(*since))
    }

    /// Who suffers, and the cause.
    fn ends_of(&self, found: &Interaction) -> Option<[(ConnectionId, FourTuple, Owner); 2]> {
        let end = |id: &ConnectionId| {
            let owner = self.owners.get(id).map(|(_, owner)| owner.clone());
            Some((*id, self.recent.tuple(*id)?, owner.unwrap_or_default()))
        };
        let suffers = found.connections.first()?;
        Some([end(suffers)?, end(cause(found)?)?])
    }
}

/// Of most kinds the connection that suffers; of a proxy the last one named.
fn cause(found: &Interaction) -> Option<&ConnectionId> {
    match found.kind {
        InteractionKind::PipelinedProxy => found.connections.last(),
        _ => found.connections.first(),
    }
}

/// `to` is when it was found last.
fn record(open: &Open, to: MonoNanos, now: MonoNanos, wall: WallMicros) -> InteractionInterval {
    let found = &open.latest;
    let [(connection, tuple, owner), (cause, cause_tuple, _)] = open.ends.clone();
    InteractionInterval {
        kind: found.kind,
        connection,
        tuple,
        owner,
        cause,
        cause_tuple,
        connections: u32::try_from(found.connections.len()).unwrap_or(u32::MAX),
        end: wall - now.since(to),
        duration: to.since(open.from),
        rounds: open.rounds,
        evidence: found.evidence.clone(),
    }
}

#[cfg(test)]
mod tests;

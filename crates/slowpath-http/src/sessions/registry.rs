// SPDX-License-Identifier: Apache-2.0
//! The connections there are, by their state.

use super::SessionLimits;
use crate::Events;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The connections of a [`super::SessionServer`].
pub struct Sessions<P> {
    inner: Arc<Mutex<Inner<P>>>,
}

impl<P> Clone for Sessions<P> {
    fn clone(&self) -> Self {
        Sessions {
            inner: self.inner.clone(),
        }
    }
}

impl<P> std::fmt::Debug for Sessions<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

struct Inner<P> {
    next: u64,
    entries: BTreeMap<u64, Entry<P>>,
    silent: BTreeSet<u64>,
    handshakes: BTreeMap<u64, Instant>,
    anonymous: BTreeSet<u64>,
    of_peer: HashMap<String, BTreeSet<u64>>,
    peers: usize,
}

struct Entry<P> {
    stage: Stage<P>,
    task: AbortHandle,
}

enum Stage<P> {
    Silent,
    /// Its first byte is there, and it waits for its place.
    Waiting,
    Handshake,
    Anonymous,
    Peer(P, String),
}

impl<P> Default for Sessions<P> {
    fn default() -> Self {
        Sessions {
            inner: Arc::new(Mutex::new(Inner {
                next: 0,
                entries: BTreeMap::new(),
                silent: BTreeSet::new(),
                handshakes: BTreeMap::new(),
                anonymous: BTreeSet::new(),
                of_peer: HashMap::new(),
                peers: 0,
            })),
        }
    }
}

impl<P> Sessions<P> {
    /// Closes the connections of those peers at once, without an answer to what they asked.
    /// Returns how many.
    pub fn close_where(&self, mut is_one: impl FnMut(&P) -> bool) -> usize {
        let mut inner = self.lock();
        let closed: Vec<u64> = inner
            .entries
            .iter()
            .filter(|(_, entry)| matches!(&entry.stage, Stage::Peer(peer, _) if is_one(peer)))
            .map(|(number, _)| *number)
            .collect();
        for number in &closed {
            inner.close(*number);
        }
        closed.len()
    }

    /// Sessions of peers there are.
    pub fn peers(&self) -> usize {
        self.lock().peers
    }

    /// All connections there are: silent, in a handshake, with and without an identity.
    pub fn connections(&self) -> usize {
        self.lock().entries.len()
    }

    /// Starts a connection with `start`; the one that is silent longest makes room.
    pub(crate) fn admit(
        &self,
        limits: &SessionLimits,
        events: &dyn Events,
        start: impl FnOnce(Membership<P>) -> AbortHandle,
    ) {
        // A task that ends at once waits for this lock before it removes its entry.
        let mut inner = self.lock();
        while inner.silent.len() >= limits.silent.max(1)
            && let Some(oldest) = inner.silent.first().copied()
        {
            inner.close(oldest);
            events.dropped();
        }
        let number = inner.next;
        inner.next += 1;
        let task = start(Membership {
            sessions: self.clone(),
            number,
        });
        inner.silent.insert(number);
        let stage = Stage::Silent;
        inner.entries.insert(number, Entry { stage, task });
    }

    /// Sends the handshakes away that take longer than that.
    pub(crate) fn end_handshakes(&self, older: Duration, events: &dyn Events) {
        let mut inner = self.lock();
        let now = Instant::now();
        while let Some((number, since)) = inner.handshakes.first_key_value()
            && now.duration_since(*since) > older
        {
            let number = *number;
            inner.close(number);
            events.dropped();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<P>> {
        // Nothing between two changes that belong to each other can panic.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P> Inner<P> {
    fn close(&mut self, number: u64) {
        if let Some(entry) = self.remove(number) {
            entry.task.abort();
        }
    }

    fn remove(&mut self, number: u64) -> Option<Entry<P>> {
        let entry = self.entries.remove(&number)?;
        self.leave(number, &entry.stage);
        Some(entry)
    }

    fn leave(&mut self, number: u64, stage: &Stage<P>) {
        match stage {
            Stage::Silent => {
                self.silent.remove(&number);
            }
            Stage::Waiting => {}
            Stage::Handshake => {
                self.handshakes.remove(&number);
            }
            Stage::Anonymous => {
                self.anonymous.remove(&number);
            }
            Stage::Peer(_, name) => {
                self.peers -= 1;
                if let Some(numbers) = self.of_peer.get_mut(name) {
                    numbers.remove(&number);
                    if numbers.is_empty() {
                        self.of_peer.remove(name);
                    }
                }
            }
        }
    }

    /// Whether the connection is still there and has this state now.
    fn enter(&mut self, number: u64, stage: Stage<P>) -> bool {
        let Some(entry) = self.entries.get_mut(&number) else {
            return false;
        };
        let before = std::mem::replace(&mut entry.stage, stage);
        self.leave(number, &before);
        true
    }
}

/// A connection's entry, until it is dropped.
pub(crate) struct Membership<P> {
    sessions: Sessions<P>,
    number: u64,
}

impl<P> Membership<P> {
    /// All connections.
    pub(crate) fn sessions(&self) -> &Sessions<P> {
        &self.sessions
    }

    /// Its first byte is there.
    pub(crate) fn wait(&self) {
        self.sessions.lock().enter(self.number, Stage::Waiting);
    }

    /// Its handshake begins.
    pub(crate) fn shake(&self) {
        let mut inner = self.sessions.lock();
        if inner.enter(self.number, Stage::Handshake) {
            inner.handshakes.insert(self.number, Instant::now());
        }
    }

    /// It has no identity. The oldest such session makes room.
    pub(crate) fn stay_anonymous(&self, limits: &SessionLimits, events: &dyn Events) {
        let mut inner = self.sessions.lock();
        while inner.anonymous.len() >= limits.anonymous.max(1)
            && let Some(oldest) = inner.anonymous.first().copied()
        {
            inner.close(oldest);
            events.dropped();
        }
        if inner.enter(self.number, Stage::Anonymous) {
            inner.anonymous.insert(self.number);
        }
    }

    /// It is this peer's. The oldest session of the same makes room.
    pub(crate) fn become_peer(&self, peer: P, name: &str, limits: &SessionLimits) {
        let mut inner = self.sessions.lock();
        while let Some(numbers) = inner.of_peer.get(name)
            && numbers.len() >= limits.of_one_peer.max(1)
            && let Some(oldest) = numbers.first().copied()
        {
            inner.close(oldest);
        }
        if inner.enter(self.number, Stage::Peer(peer, name.to_owned())) {
            inner.peers += 1;
            let numbers = inner.of_peer.entry(name.to_owned()).or_default();
            numbers.insert(self.number);
        }
    }
}

impl<P> Drop for Membership<P> {
    fn drop(&mut self) {
        self.sessions.lock().remove(self.number);
    }
}

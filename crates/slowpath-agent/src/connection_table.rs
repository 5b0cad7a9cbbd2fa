// SPDX-License-Identifier: Apache-2.0
//! The connections that live, and what is known of each.

mod slot_cache;
mod slots;

use crate::host_totals::HostTotals;
use rustc_hash::FxHashMap;
use slot_cache::SlotCache;
use slots::Slots;
use slowpath_diagnose::Totals;
use slowpath_model::{
    ConnectionId, ConnectionSummary, HistoryPoint, IntervalVerdict, Owner, ProblemSet, Snapshot,
    TcpState, WallMicros,
};
use std::collections::VecDeque;
use std::mem::offset_of;
use std::net::SocketAddr;
use std::ops::Range;
use std::ptr;

/// A connection as it is now.
///
/// The fields lie in this order: what every poll touches comes before what few do.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct LiveConnection {
    /// Its statistics when something last changed.
    pub snapshot: Snapshot,
    /// The verdict on the latest interval in which something changed; `None` before the
    /// second look at a connection older than the agent and, in an agent that only logs,
    /// without a problem.
    pub latest: Option<Box<IntervalVerdict>>,
    /// The poll that saw it last.
    pub(crate) poll: u64,
    /// Changed since its last summary in the log.
    pub(crate) unsaved: bool,
    /// The last segment of the log that has a summary of it, and so its addresses; 0 for none.
    pub(crate) summarised_in: u32,
    /// Its problems have been charged to its owner; later ones are when they happen.
    pub(crate) charged: bool,
    /// Its priority under a CPU budget: more problems, more looks.
    pub(crate) priority: u8,
    /// Whether a look at descriptors has found the owner, or why there is none.
    pub(crate) looked: bool,
    /// The recorder has been asked for it.
    pub(crate) chosen: bool,
    /// And because of these problems.
    pub(crate) asked: ProblemSet,
    /// Whether conntrack has been asked for the real peer.
    pub(crate) peer_asked: bool,
    /// Time and events of each problem since it was first seen.
    pub totals: Totals,
    /// Its owner, or why it is unknown.
    pub owner: Owner,
    /// The peer behind address translation on this host, where it is another one.
    pub real_peer: Option<SocketAddr>,
    /// When it was first seen.
    pub first_observed: WallMicros,
    /// Its recent past, oldest first; empty unless asked for.
    pub history: VecDeque<HistoryPoint>,
}

impl LiveConnection {
    /// Takes over a later snapshot; what does not change in a connection's life is kept.
    pub(crate) fn update(&mut self, later: &Snapshot) {
        let s = &mut self.snapshot;
        s.at = later.at;
        s.closed = later.closed;
        if later.stats.state != TcpState::Established {
            // Only whoever closes or shuts it down changes what is known of its opener.
            s.owner = later.owner;
        }
        s.stats = later.stats;
        s.sends = later.sends;
        s.receives = later.receives;
        if s.waits != later.waits {
            s.waits.clone_from(&later.waits);
        }
    }

    /// Takes over the addresses, if it was met while `connect` had not chosen its port yet (`tcp_v4_connect` says where it goes first).
    pub(crate) fn name_port(&mut self, later: &Snapshot) {
        if self.snapshot.tuple.local.port() == 0 {
            self.snapshot.tuple = later.tuple;
        }
    }

    /// Charges its problems to its owner, if that has not been done.
    pub(crate) fn settle(&mut self, host_totals: &mut HostTotals) {
        host_totals.settle(&self.totals, &self.owner, &mut self.charged);
    }

    /// The connection's row for the log, last seen at `last_observed`.
    pub fn summary(&self, last_observed: WallMicros) -> ConnectionSummary {
        let s = &self.snapshot;
        ConnectionSummary {
            connection: s.id,
            tuple: s.tuple,
            origin: s.origin,
            owner: self.owner.clone(),
            real_peer: self.real_peer,
            tier: s.tier,
            first_observed: self.first_observed,
            last_observed,
            closed: s.closed,
            observed: self.totals.observed,
            polls: self.totals.polls,
            problem_time: self.totals.problem_time,
            problem_events: self.totals.problem_events,
            unmeasured: self.totals.unmeasured,
            stats: s.stats,
            bytes_written: s.sends.map(|c| c.bytes),
            writes: s.sends.map(|c| c.count),
            bytes_read: s.receives.map(|c| c.bytes),
            reads: s.receives.map(|c| c.count),
        }
    }
}

/// The part of a connection that a quiet interval touches: from the snapshot's id, behind what
/// never changes, to the times of the problems, of which the first.
const HOT: Range<usize> = offset_of!(Snapshot, id)
    ..offset_of!(LiveConnection, totals) + offset_of!(Totals, problem_time) + 8;

/// What tells connections apart while they live: the cookie is unique since boot, on old
/// kernels only within its network namespace. A host would have to open 2^32 sockets for
/// two keys to be equal.
type Key = u64;

fn key(netns: u32, cookie: u64) -> Key {
    u64::from(netns).rotate_right(32) ^ cookie
}

/// The live connections.
///
/// At 100,000 of them the wait for memory costs more than the work. So the eyes announce
/// each connection a few before they hand it over: it is looked up then, and the processor
/// fetches it while others are judged.
#[derive(Default)]
pub(crate) struct ConnectionTable {
    slots: Slots,
    free: Vec<u32>,
    index: FxHashMap<Key, u32>,
    slot_cache: SlotCache,
    expected: VecDeque<(Key, u32)>,
}

/// Has the processor fetch what lies there.
#[inline]
fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch changes nothing and cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Has the processor fetch what a quiet interval touches of a connection that is needed soon:
/// a fetch of what is not needed costs as much as one of what is.
#[inline]
fn prefetch_hot(connection: &Option<LiveConnection>) {
    // The connection begins where the option does, as its niche is inside; were that to
    // change, the wrong bytes would be fetched and nothing else happen.
    let start = ptr::from_ref(connection).cast::<u8>();
    for line in HOT.step_by(64) {
        prefetch(start.wrapping_add(line));
    }
    prefetch(start.wrapping_add(HOT.end - 1));
}

impl ConnectionTable {
    /// That connection will be expected soon.
    pub(crate) fn announce(&mut self, netns: u32, cookie: u64) {
        self.slot_cache.prefetch(key(netns, cookie));
    }

    /// That connection will be asked for soon.
    pub(crate) fn expect(&mut self, netns: u32, cookie: u64) {
        let key = key(netns, cookie);
        if let Some(slot) = self.slot_cache.guess(key)
            && let Some(connection) = self.slots.get(slot)
        {
            prefetch_hot(connection);
            self.expected.push_back((key, slot));
        }
    }

    /// No connection is expected any more.
    pub(crate) fn rewind(&mut self) {
        self.expected.clear();
    }

    /// The slot of that connection, if it is known.
    pub(crate) fn find(&mut self, id: &ConnectionId) -> Option<u32> {
        let key = key(id.netns, id.cookie);
        if self.expected.front().is_some_and(|(k, _)| *k == key)
            && let Some((_, slot)) = self.expected.pop_front()
            && let Some(Some(connection)) = self.slots.get(slot)
            && connection.snapshot.id == *id
        {
            return Some(slot);
        }
        self.index.get(&key).copied()
    }

    /// Puts a connection in and gives its slot.
    pub(crate) fn insert(&mut self, connection: LiveConnection) -> u32 {
        let id = &connection.snapshot.id;
        let key = key(id.netns, id.cookie);
        let slot = match self.free.pop() {
            Some(slot) => {
                if let Some(place) = self.slots.get_mut(slot) {
                    *place = Some(connection);
                }
                slot
            }
            None => self.slots.push(Some(connection)),
        };
        self.index.insert(key, slot);
        if self.slot_cache.is_small_for(self.index.len()) {
            self.slot_cache.grow(self.index.len());
            for (key, slot) in &self.index {
                self.slot_cache.put(*key, *slot);
            }
        } else {
            self.slot_cache.put(key, slot);
        }
        slot
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// The connection in that slot.
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut LiveConnection> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// Takes a connection out.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<LiveConnection> {
        let connection = self.slots.get_mut(slot)?.take()?;
        let id = &connection.snapshot.id;
        self.index.remove(&key(id.netns, id.cookie));
        self.free.push(slot);
        Some(connection)
    }

    /// All of them, in the order of their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &LiveConnection> {
        self.slots.iter().flatten()
    }

    /// All of them, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut LiveConnection> {
        self.slots.iter_mut().flatten()
    }

    /// How many slots there are, in use or not; never fewer than before.
    pub(crate) fn places(&self) -> u32 {
        self.slots.len()
    }

    /// The slots in use.
    pub(crate) fn slots(&self) -> Vec<u32> {
        (0..self.slots.len())
            .filter(|s| self.slots.get(*s).is_some_and(Option::is_some))
            .collect()
    }
}

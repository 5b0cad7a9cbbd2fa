// SPDX-License-Identifier: Apache-2.0
//! The table of the connections that live.

mod slot_cache;
mod slots;

use crate::live_connection::LiveConnection;
use rustc_hash::FxHashMap;
use slot_cache::SlotCache;
use slots::Slots;
use slowpath_diagnose::Totals;
use slowpath_model::{ConnectionId, Snapshot};
use slowpath_observe::prefetch_part;
use std::collections::VecDeque;
use std::mem::offset_of;
use std::ops::Range;

/// The part of a connection that a quiet interval touches: from the snapshot's id, behind what
/// never changes, to the times of the problems, of which the first.
const HOT: Range<usize> = offset_of!(Snapshot, id)
    ..offset_of!(LiveConnection, totals) + offset_of!(Totals, problem_time) + 8;

/// What identifies a connection while it lives: the cookie is unique since boot, on old
/// kernels only within its network namespace. A host would have to open 2^32 sockets for
/// two keys to be equal.
type Key = u64;

fn key(netns: u32, cookie: u64) -> Key {
    u64::from(netns).rotate_right(32) ^ cookie
}

/// The live connections.
///
/// At 100,000 of them the wait for memory costs more than the work. So the observer announces
/// each connection a few before it hands it over: it is looked up then, and the processor
/// fetches it while others are judged.
#[derive(Default)]
pub(crate) struct ConnectionTable {
    slots: Slots,
    free: Vec<u32>,
    index: FxHashMap<Key, u32>,
    slot_cache: SlotCache,
    expected: VecDeque<(Key, u32)>,
}

/// Has the processor fetch what a quiet interval touches of a connection that is needed soon:
/// a fetch of what is not needed costs as much as one of what is.
#[inline]
fn prefetch_hot(connection: &Option<LiveConnection>) {
    // The connection begins where the option does, as its niche is inside; were that to
    // change, the wrong bytes would be fetched and nothing else happen.
    prefetch_part(connection, HOT);
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

    /// Moves connections from the last slots to free ones, until none is free, and frees the
    /// room that is left over. Slots that were asked for before no longer hold.
    pub(crate) fn compact(&mut self) {
        self.rewind();
        let living = self.index.len() as u32;
        let mut free = std::mem::take(&mut self.free);
        free.retain(|slot| *slot < living);
        // As many slots are free below `living` as connections are above.
        let occupied = |slot: &u32| self.slots.get(*slot).is_some_and(Option::is_some);
        let above: Vec<u32> = (living..self.slots.len()).filter(occupied).collect();
        for (from, to) in above.into_iter().zip(free) {
            let connection = self.slots.get_mut(from).and_then(Option::take);
            if let (Some(connection), Some(place)) = (connection, self.slots.get_mut(to)) {
                let id = &connection.snapshot.id;
                self.index.insert(key(id.netns, id.cookie), to);
                *place = Some(connection);
            }
        }
        self.slots.truncate(living);
        self.index.shrink_to(2 * self.index.len());
        self.slot_cache.grow(self.index.len());
        for (key, slot) in &self.index {
            self.slot_cache.put(*key, *slot);
        }
    }

    /// All of them, in the order of their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &LiveConnection> {
        self.slots.iter().flatten()
    }

    /// All of them, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut LiveConnection> {
        self.slots.iter_mut().flatten()
    }

    /// How many slots there are, in use or not.
    pub(crate) fn capacity(&self) -> u32 {
        self.slots.len()
    }

    /// The slots in use.
    pub(crate) fn slots(&self) -> Vec<u32> {
        (0..self.slots.len())
            .filter(|s| self.slots.get(*s).is_some_and(Option::is_some))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::connection;
    use slots::CHUNK;
    use slowpath_model::{Owner, WallMicros};
    use std::collections::BTreeSet;

    const MANY: u64 = 3 * CHUNK as u64;

    fn live(cookie: u64) -> LiveConnection {
        LiveConnection::new(connection(cookie), Owner::default(), WallMicros(0), 1)
    }

    fn full() -> (ConnectionTable, Vec<u32>) {
        let mut table = ConnectionTable::default();
        let slots = (1..=MANY).map(|n| table.insert(live(n))).collect();
        (table, slots)
    }

    /// A table of [`MANY`] connections of which all are gone but these.
    fn left_over(kept: &[u64]) -> ConnectionTable {
        let (mut table, slots) = full();
        for (cookie, slot) in (1..=MANY).zip(slots) {
            if !kept.contains(&cookie) {
                let gone = table.remove(slot).map(|c| c.snapshot.id.cookie);
                assert_eq!(gone, Some(cookie));
            }
        }
        table
    }

    fn cookies(table: &ConnectionTable) -> BTreeSet<u64> {
        table.iter().map(|c| c.snapshot.id.cookie).collect()
    }

    /// Each is found where it is.
    fn check(table: &mut ConnectionTable, cookies: &[u64]) {
        assert_eq!(self::cookies(table), cookies.iter().copied().collect());
        assert_eq!(table.len(), cookies.len());
        for cookie in cookies {
            let slot = table.find(&connection(*cookie).id).unwrap();
            let found = table.get_mut(slot).map(|c| c.snapshot.id.cookie);
            assert_eq!(found, Some(*cookie));
        }
    }

    #[test]
    fn what_is_left_of_a_storm_takes_one_chunk() {
        // One in each chunk.
        let kept = [7, CHUNK as u64 + 9, MANY];
        let mut table = left_over(&kept);
        assert_eq!(table.capacity() as u64, MANY);
        table.compact();
        assert_eq!((table.capacity(), table.slots.chunks()), (3, 1));
        check(&mut table, &kept);
        let mut known = kept.to_vec();
        for cookie in MANY + 1..=2 * MANY {
            table.insert(live(cookie));
            known.push(cookie);
        }
        check(&mut table, &known);
        assert_eq!(table.capacity() as u64, MANY + 3);
    }

    #[test]
    fn expected_connections_are_found_after_they_moved() {
        let kept = [MANY - 1, MANY];
        let mut table = left_over(&kept);
        for cookie in kept {
            let id = connection(cookie).id;
            table.expect(id.netns, id.cookie);
        }
        table.compact();
        check(&mut table, &kept);
        for cookie in kept {
            let id = connection(cookie).id;
            table.expect(id.netns, id.cookie);
        }
        check(&mut table, &kept);
    }

    #[test]
    fn an_empty_table_keeps_nothing_and_a_full_one_all() {
        let mut table = left_over(&[]);
        table.compact();
        assert_eq!((table.capacity(), table.slots.chunks()), (0, 0));
        check(&mut table, &[]);
        table.insert(live(1));
        table.compact();
        check(&mut table, &[1]);
        let all: Vec<u64> = (1..=MANY).collect();
        let (mut table, _) = full();
        table.compact();
        check(&mut table, &all);
    }
}

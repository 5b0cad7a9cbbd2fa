// SPDX-License-Identifier: Apache-2.0
//! Segments on their way from the worker that read them to the one that follows their connections.

use super::SHARDS;
use super::backlog::{Packed, Rest};
use super::key::{Key, KeyHasher};
use crate::read::PIECE;
use crate::segment::Segment;
use crate::tcp::Moment;

/// Bytes of a capture that a frame takes at least, about: a record header, and what no link pads.
const SHORTEST_RECORD: usize = 64;

/// Items whose connections' memory is fetched while others are worked on.
pub(super) const GROUP: usize = 32;

/// A segment, or what ICMP reported about one, and where it belongs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) packed: Packed,
    pub(super) key: Key,
    /// Of the key's hash.
    pub(super) tag: u32,
    pub(super) shard: u8,
}

impl Item {
    const EMPTY: Item = Item {
        packed: Packed::EMPTY,
        key: Key::EMPTY,
        tag: 0,
        shard: 0,
    };
}

/// The segments of one piece of a capture that one worker follows, in order.
#[derive(Debug, Default)]
pub(super) struct Sheaf {
    items: Vec<Item>,
    filled: usize,
    /// Of the items that have one.
    rests: Vec<Rest>,
}

impl Sheaf {
    /// Filled in place: a copy of it would wait for what was just written.
    #[inline]
    fn next(&mut self, address: &Address) -> &mut Item {
        if self.filled == self.items.len() {
            self.grow();
        }
        let item = &mut self.items[self.filled];
        self.filled += 1;
        item.key = address.key;
        item.tag = address.tag;
        item.shard = address.shard;
        item
    }

    #[cold]
    fn grow(&mut self) {
        let room = (2 * self.items.len()).max(256);
        self.items.resize(room, Item::EMPTY);
    }

    /// Adds a segment.
    #[inline]
    pub(super) fn add(&mut self, address: &Address, from_low: bool, segment: &Segment<'_>) {
        if let Some(rest) = self.next(address).packed.fill(from_low, segment) {
            self.rests.push(rest);
        }
    }

    /// Adds what ICMP reported.
    #[cold]
    pub(super) fn report(&mut self, address: &Address, at: Moment, refused: bool) {
        self.next(address).packed.report(at, refused);
    }

    /// How many items there are.
    pub(super) fn len(&self) -> usize {
        self.filled
    }

    /// How many groups there are.
    pub(super) fn groups(&self) -> usize {
        self.filled.div_ceil(GROUP)
    }

    /// The items of a group; none of those that are not there.
    #[inline]
    pub(super) fn group(&self, number: Option<usize>) -> &[Item] {
        let items = &self.items[..self.filled];
        let start = number.map_or(items.len(), |n| n * GROUP);
        let rest = items.get(start..).unwrap_or(&[]);
        &rest[..rest.len().min(GROUP)]
    }

    pub(super) fn rests(&self) -> &[Rest] {
        &self.rests
    }

    /// Its memory again, if it is not much more than that of others.
    pub(super) fn emptied(mut self, workers: usize) -> Self {
        let most = 8 * PIECE / SHORTEST_RECORD / workers + 512;
        if self.items.len() > most {
            return Sheaf::default();
        }
        self.filled = 0;
        self.rests.clear();
        self
    }
}

/// Where a segment belongs.
pub(super) struct Address {
    pub(super) key: Key,
    pub(super) tag: u32,
    pub(super) shard: u8,
}

impl Address {
    /// `hasher`: of the tables.
    #[inline(always)]
    pub(super) fn of(key: Key, hasher: KeyHasher) -> Self {
        Address {
            key,
            tag: hasher.hash(&key) as u32,
            shard: ((KeyHasher::FIXED.hash(&key) >> 32) as usize % SHARDS) as u8,
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A worker's open connections.
//!
//! They are in one store; only the lists that decide which of them ends when, and for
//! which other one, are kept a shard each. So what happens to a connection depends on
//! the segments of its shard only, and not on which worker has the shard.
//!
//! Where a connection begins and ends is decided segment by segment; its follower gets the
//! segments later, many at once ([`Backlog`]).

use super::backlog::{Backlog, Chain, OPTIONS, Rest};
use super::key::{Key, KeyHasher};
use super::life::Life;
use super::sheaf::Item;
use super::table::Table;
use super::{Began, Ended, Finished, Follow, SHARDS};
use crate::segment::{Endpoint, Segment, Timestamp};
use crate::tcp::Moment;
use std::collections::VecDeque;

/// Slots are allocated by so many and never move.
const CHUNK: usize = 2048;

/// What every segment touches, most of it in the first cache line.
#[repr(C, align(64))]
struct Slot {
    key: Key,
    chain: Chain,
    generation: u32,
    tag: u32,
    /// It had a segment since eviction looked at it.
    used: bool,
    /// It is in the list of closed connections.
    closing: bool,
    shard: u8,
    life: Life,
    last_frame: u64,
    last_time: i64,
}

/// What is touched when segments are followed.
struct Followed<F> {
    /// The lower and the higher end.
    ends: [Endpoint; 2],
    first_frame: u64,
    follow: F,
}

struct Chunk<F> {
    slots: Box<[Option<Slot>]>,
    /// As many as were ever used.
    followed: Vec<Option<Followed<F>>>,
}

impl<F> Chunk<F> {
    fn new() -> Self {
        let followed = Vec::with_capacity(CHUNK);
        super::huge::advise(&followed);
        Chunk {
            slots: (0..CHUNK).map(|_| None).collect(),
            followed,
        }
    }
}

/// What became of the connections so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) begun: u64,
    pub(super) evicted: u64,
    pub(super) hurried: u64,
}

/// There is none.
pub(super) const NO_SLOT: u32 = u32::MAX;

/// What is the same for all segments.
pub(super) struct Rules<'a, B> {
    pub(super) begin: &'a B,
    pub(super) hasher: KeyHasher,
    /// Open connections of a shard at most.
    pub(super) bound: usize,
    /// Nanoseconds.
    pub(super) linger: i64,
}

/// A slot's number and generation: of a connection that may be gone.
type Reference = (u32, u32);

#[derive(Default)]
struct Shard {
    /// No closed connection ends its linger before that.
    next_due: i64,
    open: usize,
    /// Closed connections, and when to let go of them.
    closing: VecDeque<(i64, Reference)>,
    /// All, in the order in which eviction looks at them.
    order: VecDeque<Reference>,
}

/// Open connections, and those that are over but were not handed over.
pub(super) struct Connections<F: Follow> {
    table: Table,
    chunks: Vec<Chunk<F>>,
    backlog: Backlog,
    /// The slot that is followed first when the pool is full.
    hand: u32,
    /// Slots that are followed next.
    soon: [u32; 2],
    free: Vec<u32>,
    generation: u32,
    shards: [Shard; SHARDS],
    pub(super) tally: Tally,
    pub(super) out: Vec<Finished<F::Report>>,
}

impl<F: Follow> Connections<F> {
    /// The connections of one of `workers` workers.
    pub(super) fn new(workers: usize) -> Self {
        Connections {
            table: Table::new(),
            chunks: Vec::new(),
            backlog: Backlog::new(workers),
            hand: 0,
            soon: [NO_SLOT; 2],
            free: Vec::new(),
            generation: 0,
            shards: std::array::from_fn(|_| Shard {
                next_due: i64::MAX,
                ..Shard::default()
            }),
            tally: Tally::default(),
            out: Vec::new(),
        }
    }

    #[inline]
    fn slot(&self, number: u32) -> Option<&Slot> {
        let chunk = self.chunks.get(number as usize / CHUNK)?;
        chunk.slots[number as usize % CHUNK].as_ref()
    }

    #[inline]
    fn slot_mut(&mut self, number: u32) -> Option<&mut Slot> {
        let chunk = self.chunks.get_mut(number as usize / CHUNK)?;
        chunk.slots[number as usize % CHUNK].as_mut()
    }

    /// First step: fetches the place in the table.
    #[inline]
    pub(super) fn prefetch_table(&self, tag: u32) {
        super::prefetch(self.table.home(tag));
    }

    /// Second step: guesses the slot, and fetches it.
    #[inline]
    pub(super) fn prefetch_slot(&self, tag: u32) -> u32 {
        let guess = self.table.guess(tag).unwrap_or(NO_SLOT);
        if let Some(chunk) = self.chunks.get(guess as usize / CHUNK) {
            let slot = &raw const chunk.slots[guess as usize % CHUNK];
            for line in (0..size_of::<Option<Slot>>()).step_by(64) {
                super::prefetch(slot.cast::<u8>().wrapping_add(line));
            }
        }
        guess
    }

    /// Third step: where its next segment will wait.
    #[inline]
    pub(super) fn prefetch_backlog(&self, guess: u32) {
        if let Some(slot) = self.slot(guess) {
            self.backlog.prefetch(&slot.chain);
        }
    }

    /// A connection is followed when two others have become due: its memory is fetched meanwhile,
    /// first the follower and then what it points to.
    fn follow_soon(&mut self, number: u32) {
        let [due, next] = self.soon;
        self.soon = [next, number];
        self.fetch(number, next);
        self.follow(due);
    }

    /// Fetches a follower, and what another one that was fetched before points to.
    fn fetch(&self, follower: u32, fetched: u32) {
        if let Some(followed) = self.followed(follower) {
            let start = std::ptr::from_ref(followed).cast();
            super::prefetch_all(start, size_of::<Followed<F>>());
        }
        if let Some(followed) = self.followed(fetched) {
            followed.follow.prefetch();
        }
        if let Some(slot) = self.slot(fetched) {
            self.backlog.prefetch_first(&slot.chain);
        }
    }

    fn followed(&self, number: u32) -> Option<&Followed<F>> {
        let chunk = self.chunks.get(number as usize / CHUNK)?;
        chunk.followed.get(number as usize % CHUNK)?.as_ref()
    }

    /// The follower gets what waits for it.
    fn follow(&mut self, number: u32) {
        let (index, within) = (number as usize / CHUNK, number as usize % CHUNK);
        let Some(chunk) = self.chunks.get_mut(index) else {
            return;
        };
        let (Some(slot), Some(Some(followed))) =
            (&mut chunk.slots[within], chunk.followed.get_mut(within))
        else {
            return;
        };
        let chain = std::mem::replace(&mut slot.chain, Chain::EMPTY);
        let follow = &mut followed.follow;
        self.backlog
            .drain(chain, followed.ends, |segment| follow.segment(segment));
    }

    /// The pool is full: some connections are followed earlier than others, in turns.
    #[cold]
    fn ease(&mut self) {
        let slots = (self.chunks.len() * CHUNK) as u32;
        for _ in 0..slots {
            if self.backlog.is_eased() {
                return;
            }
            self.hand = if self.hand + 1 < slots {
                self.hand + 1
            } else {
                0
            };
            if self.slot(self.hand).is_some_and(|s| !s.chain.is_empty()) {
                self.follow(self.hand);
            }
        }
    }

    /// A segment; `guess`: probably its slot.
    #[inline]
    pub(super) fn segment<B: Fn(&Segment<'_>, Began) -> F>(
        &mut self,
        item: &Item,
        rest: &Rest,
        guess: u32,
        rules: &Rules<'_, B>,
    ) {
        let now = item.packed.time();
        let step = item.packed.step();
        if now >= self.shards[usize::from(item.shard)].next_due {
            self.let_go(item.shard, now, rules.linger);
        }
        if !self.backlog.has_room() {
            self.ease();
        }
        let is = |number| self.slot(number).is_some_and(|slot| slot.key == item.key);
        let found = if is(guess) {
            Some(guess)
        } else {
            self.table.find(item.tag, is)
        };
        let chunk = found.and_then(|number| self.chunks.get_mut(number as usize / CHUNK));
        if let (Some(number), Some(chunk)) = (found, chunk)
            && let Some(slot) = chunk.slots[number as usize % CHUNK].as_mut()
        {
            let silence = now.saturating_sub(slot.last_time);
            let late = slot.closing && silence > rules.linger && slot.life.closed();
            if !late && !slot.life.begins_another(step, silence) {
                slot.life.segment(step);
                slot.last_frame = item.packed.frame();
                slot.last_time = now;
                slot.used = true;
                let closes = slot.life.closed() && !slot.closing;
                self.backlog.push(&mut slot.chain, &item.packed, rest);
                if slot.chain.becomes_long(self.backlog.most) {
                    self.follow_soon(number);
                }
                if closes {
                    self.close(number, now.saturating_add(rules.linger));
                }
                return;
            }
            let ended = if late { Ended::Closed } else { Ended::Reused };
            self.finish(number, ended, now);
        }
        let began = found.map_or(Began::Fresh, |_| Began::OnReusedPorts);
        self.begin(item, rest, began, rules);
    }

    #[cold]
    fn begin<B: Fn(&Segment<'_>, Began) -> F>(
        &mut self,
        item: &Item,
        rest: &Rest,
        began: Began,
        rules: &Rules<'_, B>,
    ) {
        let packed = &item.packed;
        if self.shards[usize::from(item.shard)].open >= rules.bound {
            self.make_room(item.shard, packed.time());
        }
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let ends = item.key.ends();
        let mut options = [0; OPTIONS];
        let first = packed.segment(rest, ends, &mut options);
        let mut slot = Slot {
            key: item.key,
            generation,
            tag: item.tag,
            used: true,
            closing: false,
            shard: item.shard,
            chain: Chain::EMPTY,
            life: Life::default(),
            last_frame: packed.frame(),
            last_time: packed.time(),
        };
        slot.life.segment(packed.step());
        self.backlog.push(&mut slot.chain, packed, rest);
        let closed = slot.life.closed();
        let follow = (rules.begin)(&first, began);
        let followed = Followed {
            ends,
            first_frame: packed.frame(),
            follow,
        };
        let number = self.place(slot, followed);
        self.table.insert(item.tag, number);
        let shard = &mut self.shards[usize::from(item.shard)];
        shard.open += 1;
        shard.order.push_back((number, generation));
        self.tally.begun += 1;
        if closed {
            self.close(number, packed.time().saturating_add(rules.linger));
        }
    }

    fn place(&mut self, slot: Slot, followed: Followed<F>) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            let first = self.chunks.len() * CHUNK;
            self.chunks.push(Chunk::new());
            // The lowest is taken first.
            self.free
                .extend((first + 1..first + CHUNK).rev().map(|n| n as u32));
            first as u32
        });
        let chunk = &mut self.chunks[number as usize / CHUNK];
        chunk.slots[number as usize % CHUNK] = Some(slot);
        // The lowest free number is taken: this is one of them, or the next.
        let within = number as usize % CHUNK;
        while chunk.followed.len() < within {
            chunk.followed.push(None);
        }
        match chunk.followed.get_mut(within) {
            Some(place) => *place = Some(followed),
            None => chunk.followed.push(Some(followed)),
        }
        number
    }

    fn close(&mut self, number: u32, due: i64) {
        if let Some(slot) = self.slot_mut(number) {
            slot.closing = true;
            let (generation, shard) = (slot.generation, slot.shard);
            let shard = &mut self.shards[usize::from(shard)];
            shard.closing.push_back((due, (number, generation)));
            shard.next_due = shard.next_due.min(due);
        }
    }

    fn there(&mut self, (number, generation): Reference) -> Option<&mut Slot> {
        self.slot_mut(number)
            .filter(|slot| slot.generation == generation)
    }

    /// Closed connections whose linger has passed go; those that had another segment since
    /// stay for as long again.
    #[cold]
    fn let_go(&mut self, shard: u8, now: i64, linger: i64) {
        let list = usize::from(shard);
        while let Some(&(due, reference)) = self.shards[list].closing.front() {
            if due > now {
                break;
            }
            self.shards[list].closing.pop_front();
            let Some(slot) = self.there(reference) else {
                continue;
            };
            if !slot.life.closed() {
                // Opened after all.
                slot.closing = false;
                continue;
            }
            let due = slot.last_time.saturating_add(linger);
            if due > now {
                self.shards[list].closing.push_back((due, reference));
            } else {
                self.finish(reference.0, Ended::Closed, now);
            }
        }
        let next = self.shards[list].closing.front();
        self.shards[list].next_due = next.map_or(i64::MAX, |(due, _)| *due);
    }

    /// Ends one connection: the one that is closed for longest; if none is closed, one that had no
    /// segment for long (the second chance algorithm).
    #[cold]
    fn make_room(&mut self, shard: u8, now: i64) {
        let list = usize::from(shard);
        while let Some((_, reference)) = self.shards[list].closing.pop_front() {
            let Some(slot) = self.there(reference) else {
                continue;
            };
            if slot.life.closed() {
                self.tally.hurried += 1;
                self.finish(reference.0, Ended::Closed, now);
                return;
            }
            slot.closing = false;
        }
        while let Some(reference) = self.shards[list].order.pop_front() {
            let Some(slot) = self.there(reference) else {
                continue;
            };
            if std::mem::take(&mut slot.used) {
                self.shards[list].order.push_back(reference);
            } else {
                self.tally.evicted += 1;
                self.finish(reference.0, Ended::Evicted, now);
                return;
            }
        }
    }

    /// ICMP reported the destination of one of its segments as unreachable.
    #[cold]
    pub(super) fn unreachable(&mut self, item: &Item, (at, refused): (Moment, bool)) {
        let is = |number| self.slot(number).is_some_and(|slot| slot.key == item.key);
        let Some(number) = self.table.find(item.tag, is) else {
            return;
        };
        self.follow(number);
        let chunk = self.chunks.get_mut(number as usize / CHUNK);
        let followed = chunk.and_then(|chunk| chunk.followed.get_mut(number as usize % CHUNK));
        if let Some(Some(followed)) = followed {
            followed.follow.unreachable(at, refused);
        }
    }

    /// Ends a connection of which nothing came up to `now`.
    fn finish(&mut self, number: u32, ended: Ended, now: i64) {
        self.follow(number);
        let Some(chunk) = self.chunks.get_mut(number as usize / CHUNK) else {
            return;
        };
        let within = number as usize % CHUNK;
        let (Some(slot), Some(mut followed)) = (
            chunk.slots[within].take(),
            chunk.followed.get_mut(within).and_then(Option::take),
        ) else {
            return;
        };
        self.table.remove(slot.tag, number);
        self.free.push(number);
        followed.follow.silent_until(Timestamp(now));
        self.out.push(Finished {
            first_frame: followed.first_frame,
            last_frame: slot.last_frame,
            ended,
            report: followed.follow.finish(),
        });
        self.shards[usize::from(slot.shard)].open -= 1;
        self.tidy(slot.shard);
    }

    /// What is gone is taken out of the lists when they are mostly that.
    fn tidy(&mut self, shard: u8) {
        let shard = usize::from(shard);
        let most = 2 * self.shards[shard].open + CHUNK;
        if self.shards[shard].order.len() > most {
            let mut order = std::mem::take(&mut self.shards[shard].order);
            order.retain(|reference| self.there(*reference).is_some());
            self.shards[shard].order = order;
        }
        if self.shards[shard].closing.len() > most {
            let mut closing = std::mem::take(&mut self.shards[shard].closing);
            closing.retain(|(_, reference)| self.there(*reference).is_some());
            self.shards[shard].closing = closing;
        }
    }

    /// The end of the capture: ends some of what is left. `false`: nothing was left.
    pub(super) fn finish_some(&mut self, now: i64) -> bool {
        let Some(last) = self.chunks.len().checked_sub(1) else {
            return false;
        };
        for number in last * CHUNK..self.chunks.len() * CHUNK {
            let number = number as u32;
            self.fetch(number + 2, number + 1);
            if let Some(slot) = self.slot(number) {
                let closed = slot.life.closed();
                let ended = if closed {
                    Ended::Closed
                } else {
                    Ended::Capture
                };
                self.finish(number, ended, now);
            }
        }
        self.chunks.pop();
        true
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A worker's open connections.
//!
//! They are in one store; only the lists that decide which of them ends when, and for
//! which other one, are kept a shard each. So what happens to a connection depends on
//! the segments of its shard only, and not on which worker has the shard.
//!
//! Where a connection begins and ends is decided segment by segment; its follower gets the
//! segments later, many at once ([`Backlog`]). The first segment waits beside the slot, and the
//! follower is made when more is to be followed: a connection of one segment, as a scan or a
//! flood of SYNs has by the million, costs its slot, that segment and its entries in the lists.

mod bounds;

use super::backlog::{Backlog, Chain, NO_REST, OPTIONS, Packed, Rest};
use super::followers::{Followed, Followers, NO_FOLLOWER};
use super::key::{Key, KeyHasher};
use super::life::Life;
use super::sheaf::Item;
use super::table::Table;
use super::{Began, Ended, Finished, Follow, SHARDS};
use crate::segment::{Segment, Timestamp};
use crate::tcp::Moment;
use bounds::Shard;

/// Slots are allocated in chunks of this number and never move.
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
    /// Nothing of it came after its first segment.
    single: bool,
    shard: u8,
    life: Life,
    last_frame: u64,
    last_time: i64,
    /// The number of its follower, [`NO_FOLLOWER`] until there is one.
    follower: u32,
    began: Began,
}

/// Two cache lines, whatever is added.
const _: () = assert!(size_of::<Option<Slot>>() == 128);

/// A connection's first segment, until its follower is made from it.
#[derive(Clone, Copy)]
struct First {
    packed: Packed,
    rest: Rest,
}

struct Chunk {
    slots: Box<[Option<Slot>]>,
    firsts: Box<[First]>,
}

impl Chunk {
    fn new() -> Self {
        let none = First {
            packed: Packed::EMPTY,
            rest: NO_REST,
        };
        Chunk {
            slots: (0..CHUNK).map(|_| None).collect(),
            firsts: vec![none; CHUNK].into_boxed_slice(),
        }
    }
}

impl Slot {
    /// Its follower, to which the first segment was given.
    fn followed<F: Follow>(
        &self,
        first: &First,
        begin: impl Fn(&Segment<'_>, Began) -> F,
    ) -> Followed<F> {
        let ends = self.key.ends();
        let mut options = [0; OPTIONS];
        let segment = first.packed.segment(&first.rest, ends, &mut options);
        let mut follow = begin(&segment, self.began);
        follow.segment(&segment);
        Followed {
            ends,
            first_frame: segment.frame,
            follow,
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
    /// And of these, such as more than one segment was captured of.
    pub(super) followed: usize,
    /// Nanoseconds.
    pub(super) linger: i64,
}

/// A slot's number and generation: of a connection that may be gone.
type Reference = (u32, u32);

/// Open connections, and those that are over but were not handed over.
pub(super) struct Connections<F: Follow> {
    table: Table,
    chunks: Vec<Chunk>,
    followers: Followers<F>,
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
            followers: Followers::new(),
            backlog: Backlog::new(workers),
            hand: 0,
            soon: [NO_SLOT; 2],
            free: Vec::new(),
            generation: 0,
            shards: std::array::from_fn(|_| Shard::new()),
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
    fn follow_soon<B: Fn(&Segment<'_>, Began) -> F>(&mut self, number: u32, rules: &Rules<'_, B>) {
        let [due, next] = self.soon;
        self.soon = [next, number];
        self.fetch(number, next);
        self.follow(due, rules);
    }

    /// Fetches a follower, and what another one that was fetched before points to.
    fn fetch(&self, follower: u32, fetched: u32) {
        let follower = self
            .slot(follower)
            .and_then(|s| self.followers.get(s.follower));
        if let Some(followed) = follower {
            let start = std::ptr::from_ref(followed).cast();
            super::prefetch_all(start, size_of::<Followed<F>>());
        }
        if let Some(slot) = self.slot(fetched) {
            if let Some(followed) = self.followers.get(slot.follower) {
                followed.follow.prefetch();
            }
            self.backlog.prefetch_first(&slot.chain);
        }
    }

    /// The follower gets what waits for it.
    fn follow<B: Fn(&Segment<'_>, Began) -> F>(&mut self, number: u32, rules: &Rules<'_, B>) {
        if self.slot(number).is_some_and(|s| !s.chain.is_empty()) {
            self.follower(number, rules);
        }
    }

    /// The follower, made if there was none, after it got what waits for it.
    fn follower<B: Fn(&Segment<'_>, Began) -> F>(
        &mut self,
        number: u32,
        rules: &Rules<'_, B>,
    ) -> Option<&mut F> {
        let (index, within) = (number as usize / CHUNK, number as usize % CHUNK);
        let chunk = self.chunks.get_mut(index)?;
        let slot = chunk.slots[within].as_mut()?;
        if slot.follower == NO_FOLLOWER {
            let made = slot.followed(&chunk.firsts[within], rules.begin);
            slot.follower = self.followers.add(made);
        }
        let followed = self.followers.get_mut(slot.follower)?;
        let chain = std::mem::replace(&mut slot.chain, Chain::EMPTY);
        let follow = &mut followed.follow;
        self.backlog
            .drain(chain, followed.ends, |segment| follow.segment(segment));
        Some(follow)
    }

    /// The pool is full: some connections are followed earlier than others, in turns.
    #[cold]
    fn ease<B: Fn(&Segment<'_>, Began) -> F>(&mut self, rules: &Rules<'_, B>) {
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
            self.follow(self.hand, rules);
        }
    }

    /// A segment; `guess`: probably its slot.
    #[inline(always)]
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
            self.let_go(item.shard, now, rules);
        }
        if !self.backlog.has_room() {
            self.ease(rules);
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
                if slot.single {
                    return self.second(item, rest, number, rules);
                }
                slot.life.segment(step);
                slot.last_frame = item.packed.frame();
                slot.last_time = now;
                slot.used = true;
                let closes = slot.life.closed() && !slot.closing;
                self.backlog.push(&mut slot.chain, &item.packed, rest);
                if slot.chain.becomes_long(self.backlog.most) {
                    self.follow_soon(number, rules);
                }
                if closes {
                    self.close(number, now.saturating_add(rules.linger));
                }
                return;
            }
            let ended = if late { Ended::Closed } else { Ended::Reused };
            self.finish(number, ended, now, rules);
        }
        let began = found.map_or(Began::Fresh, |_| Began::OnReusedPorts);
        self.begin(item, rest, began, rules);
    }

    /// The second segment of a connection; `number`: its slot.
    #[cold]
    #[inline(never)]
    fn second<B: Fn(&Segment<'_>, Began) -> F>(
        &mut self,
        item: &Item,
        rest: &Rest,
        number: u32,
        rules: &Rules<'_, B>,
    ) {
        self.not_single(number, item.packed.time(), rules);
        self.segment(item, rest, number, rules);
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
            self.make_room(item.shard, packed.time(), rules);
        }
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let mut slot = Slot {
            key: item.key,
            generation,
            tag: item.tag,
            used: true,
            closing: false,
            single: true,
            shard: item.shard,
            chain: Chain::EMPTY,
            life: Life::default(),
            last_frame: packed.frame(),
            last_time: packed.time(),
            follower: NO_FOLLOWER,
            began,
        };
        slot.life.segment(packed.step());
        let closed = slot.life.closed();
        let first = First {
            packed: *packed,
            rest: *rest,
        };
        let number = self.place(slot, first);
        self.table.insert(item.tag, number);
        self.shards[usize::from(item.shard)].begins((number, generation));
        self.tally.begun += 1;
        if closed {
            self.close(number, packed.time().saturating_add(rules.linger));
        }
    }

    fn place(&mut self, slot: Slot, first: First) -> u32 {
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
        chunk.firsts[number as usize % CHUNK] = first;
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

    /// ICMP reported the destination of one of its segments as unreachable.
    #[cold]
    pub(super) fn unreachable<B: Fn(&Segment<'_>, Began) -> F>(
        &mut self,
        item: &Item,
        (at, refused): (Moment, bool),
        rules: &Rules<'_, B>,
    ) {
        let is = |number| self.slot(number).is_some_and(|slot| slot.key == item.key);
        let Some(number) = self.table.find(item.tag, is) else {
            return;
        };
        if self.slot(number).is_some_and(|slot| slot.single) {
            self.not_single(number, item.packed.time(), rules);
        }
        if let Some(follow) = self.follower(number, rules) {
            follow.unreachable(at, refused);
        }
    }

    /// Ends a connection of which nothing came up to `now`.
    fn finish<B: Fn(&Segment<'_>, Began) -> F>(
        &mut self,
        number: u32,
        ended: Ended,
        now: i64,
        rules: &Rules<'_, B>,
    ) {
        let Some(chunk) = self.chunks.get_mut(number as usize / CHUNK) else {
            return;
        };
        let within = number as usize % CHUNK;
        let Some(slot) = chunk.slots[within].take() else {
            return;
        };
        let followed = self.followers.take(slot.follower);
        let Followed {
            ends,
            first_frame,
            mut follow,
        } = followed.unwrap_or_else(|| slot.followed(&chunk.firsts[within], rules.begin));
        self.backlog
            .drain(slot.chain, ends, |segment| follow.segment(segment));
        self.table.remove(slot.tag, number);
        self.free.push(number);
        follow.silent_until(Timestamp(now));
        self.out.push(Finished {
            first_frame,
            last_frame: slot.last_frame,
            ended,
            report: follow.finish(),
        });
        self.shards[usize::from(slot.shard)].ends(slot.single);
        self.tidy(slot.shard);
    }

    /// The end of the capture: ends some of what is left. `false`: nothing was left.
    pub(super) fn finish_some<B: Fn(&Segment<'_>, Began) -> F>(
        &mut self,
        now: i64,
        rules: &Rules<'_, B>,
    ) -> bool {
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
                self.finish(number, ended, now, rules);
            }
        }
        self.chunks.pop();
        self.followers.release();
        true
    }
}

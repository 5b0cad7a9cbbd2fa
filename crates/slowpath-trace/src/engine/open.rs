// SPDX-License-Identifier: Apache-2.0
//! A worker's open connections.
//!
//! They are kept together; only the lists that decide which of them ends when, and for
//! which other one, are kept a shard each. So what happens to a connection depends on
//! the segments of its shard alone, and not on which worker has the shard.

use super::key::{Key, KeyHasher};
use super::life::Life;
use super::table::Table;
use super::{Began, Ended, Finished, Follow, SHARDS};
use crate::segment::Segment;
use std::collections::VecDeque;

/// Slots are allocated by so many and never move.
const CHUNK: usize = 64;

#[repr(C)]
struct Slot<F> {
    key: Key,
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
    follow: F,
    first_frame: u64,
}

/// What became of the connections so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) begun: u64,
    pub(super) evicted: u64,
    pub(super) hurried: u64,
}

/// What is told of a segment beside itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label {
    pub(super) key: Key,
    /// The lower of the two ends sent it.
    pub(super) from_low: bool,
    pub(super) shard: u8,
    /// Of the key's hash.
    pub(super) tag: u32,
    /// Probably its slot.
    pub(super) guess: u32,
}

/// There is none.
const NO_SLOT: u32 = u32::MAX;

impl Label {
    /// To be filled.
    pub(super) const EMPTY: Label = Label {
        key: Key::EMPTY,
        from_low: false,
        shard: 0,
        tag: 0,
        guess: NO_SLOT,
    };
}

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
    chunks: Vec<Box<[Option<Slot<F>>]>>,
    free: Vec<u32>,
    generation: u32,
    shards: [Shard; SHARDS],
    pub(super) tally: Tally,
    pub(super) out: Vec<Finished<F::Report>>,
}

impl<F: Follow> Connections<F> {
    pub(super) fn new() -> Self {
        Connections {
            table: Table::new(),
            chunks: Vec::new(),
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
    fn slot(&self, number: u32) -> Option<&Slot<F>> {
        let chunk = self.chunks.get(number as usize / CHUNK)?;
        chunk[number as usize % CHUNK].as_ref()
    }

    #[inline]
    fn slot_mut(&mut self, number: u32) -> Option<&mut Slot<F>> {
        let chunk = self.chunks.get_mut(number as usize / CHUNK)?;
        chunk[number as usize % CHUNK].as_mut()
    }

    /// First step: fetches the place in the table.
    #[inline]
    pub(super) fn prefetch_table(&self, tag: u32) {
        super::prefetch(self.table.home(tag));
    }

    /// Second step: guesses the slot, and fetches it.
    #[inline]
    pub(super) fn prefetch_slot(&self, tag: u32) -> u32 {
        /// Of the slot: more is not worth it.
        const BYTES: usize = 4096;
        let guess = self.table.guess(tag).unwrap_or(NO_SLOT);
        if let Some(chunk) = self.chunks.get(guess as usize / CHUNK) {
            let slot = &raw const chunk[guess as usize % CHUNK];
            let size = size_of::<Option<Slot<F>>>().min(BYTES);
            for line in (0..size).step_by(64) {
                super::prefetch(slot.cast::<u8>().wrapping_add(line));
            }
        }
        guess
    }

    /// Third step: what the follower itself points to.
    #[inline]
    pub(super) fn prefetch_follow(&self, guess: u32) {
        if let Some(slot) = self.slot(guess) {
            slot.follow.prefetch();
        }
    }

    /// A segment.
    #[inline]
    pub(super) fn segment<B: Fn(&Segment<'_>, Began) -> F>(
        &mut self,
        label: &Label,
        segment: &Segment<'_>,
        rules: &Rules<'_, B>,
    ) {
        let now = segment.time.0;
        if now >= self.shards[usize::from(label.shard)].next_due {
            self.let_go(label.shard, now, rules.linger);
        }
        let is = |number| self.slot(number).is_some_and(|slot| slot.key == label.key);
        let found = if is(label.guess) {
            Some(label.guess)
        } else {
            self.table.find(label.tag, is)
        };
        if let Some(number) = found
            && let Some(slot) = self.slot_mut(number)
        {
            let silence = now.saturating_sub(slot.last_time);
            let late = slot.closing && silence > rules.linger;
            if !late && !slot.life.begins_another(label.from_low, segment, silence) {
                slot.life.segment(label.from_low, segment);
                slot.last_frame = segment.frame;
                slot.last_time = now;
                slot.used = true;
                slot.follow.segment(segment);
                if slot.life.closed() && !slot.closing {
                    self.close(number, now.saturating_add(rules.linger));
                }
                return;
            }
            self.finish(number, if late { Ended::Closed } else { Ended::Reused });
        }
        let began = found.map_or(Began::Fresh, |_| Began::OnReusedPorts);
        self.begin(label, segment, began, rules);
    }

    #[cold]
    fn begin<B: Fn(&Segment<'_>, Began) -> F>(
        &mut self,
        label: &Label,
        segment: &Segment<'_>,
        began: Began,
        rules: &Rules<'_, B>,
    ) {
        if self.shards[usize::from(label.shard)].open >= rules.bound {
            self.make_room(label.shard);
        }
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let mut slot = Slot {
            key: label.key,
            generation,
            tag: label.tag,
            used: true,
            closing: false,
            shard: label.shard,
            life: Life::default(),
            last_frame: segment.frame,
            last_time: segment.time.0,
            follow: (rules.begin)(segment, began),
            first_frame: segment.frame,
        };
        slot.life.segment(label.from_low, segment);
        slot.follow.segment(segment);
        let closed = slot.life.closed();
        let number = self.place(slot);
        self.table.insert(label.tag, number);
        let shard = &mut self.shards[usize::from(label.shard)];
        shard.open += 1;
        shard.order.push_back((number, generation));
        self.tally.begun += 1;
        if closed {
            self.close(number, segment.time.0.saturating_add(rules.linger));
        }
    }

    fn place(&mut self, slot: Slot<F>) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            let first = self.chunks.len() * CHUNK;
            self.chunks.push((0..CHUNK).map(|_| None).collect());
            // The lowest is taken first.
            self.free
                .extend((first + 1..first + CHUNK).rev().map(|n| n as u32));
            first as u32
        });
        self.chunks[number as usize / CHUNK][number as usize % CHUNK] = Some(slot);
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

    fn there(&mut self, (number, generation): Reference) -> Option<&mut Slot<F>> {
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
            let due = slot.last_time.saturating_add(linger);
            if due > now {
                self.shards[list].closing.push_back((due, reference));
            } else {
                self.finish(reference.0, Ended::Closed);
            }
        }
        let next = self.shards[list].closing.front();
        self.shards[list].next_due = next.map_or(i64::MAX, |(due, _)| *due);
    }

    /// Ends one connection: the one that is closed for longest; if none is closed, one that had no
    /// segment for long (the second chance algorithm).
    #[cold]
    fn make_room(&mut self, shard: u8) {
        let list = usize::from(shard);
        while let Some((_, reference)) = self.shards[list].closing.pop_front() {
            if self.there(reference).is_some() {
                self.tally.hurried += 1;
                self.finish(reference.0, Ended::Closed);
                return;
            }
        }
        while let Some(reference) = self.shards[list].order.pop_front() {
            let Some(slot) = self.there(reference) else {
                continue;
            };
            if std::mem::take(&mut slot.used) {
                self.shards[list].order.push_back(reference);
            } else {
                self.tally.evicted += 1;
                self.finish(reference.0, Ended::Evicted);
                return;
            }
        }
    }

    fn finish(&mut self, number: u32, ended: Ended) {
        let chunk = self.chunks.get_mut(number as usize / CHUNK);
        let Some(slot) = chunk.and_then(|chunk| chunk[number as usize % CHUNK].take()) else {
            return;
        };
        self.table.remove(slot.tag, number);
        self.free.push(number);
        self.out.push(Finished {
            first_frame: slot.first_frame,
            last_frame: slot.last_frame,
            ended,
            report: slot.follow.finish(),
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
    pub(super) fn finish_some(&mut self) -> bool {
        let Some(last) = self.chunks.len().checked_sub(1) else {
            return false;
        };
        for number in last * CHUNK..self.chunks.len() * CHUNK {
            let number = number as u32;
            if let Some(slot) = self.slot(number) {
                let closed = slot.life.closed();
                let ended = if closed {
                    Ended::Closed
                } else {
                    Ended::Capture
                };
                self.finish(number, ended);
            }
        }
        self.chunks.pop();
        true
    }
}

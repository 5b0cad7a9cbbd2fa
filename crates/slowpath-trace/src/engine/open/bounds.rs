// SPDX-License-Identifier: Apache-2.0
//! Which connections end without having ended themselves: closed ones after their linger, and
//! others for want of room.
//!
//! A shard has two bounds, and lists of its own for each: of all its connections, and of those with
//! more than one segment, which have a follower or may need one at any time. Both count what was
//! captured, and not which followers exist just now: that depends on the number of workers.

use super::{CHUNK, Connections, Reference, Rules, Slot};
use crate::engine::{Began, Ended, Follow};
use crate::segment::Segment;
use std::collections::VecDeque;

/// A shard's connections, as far as it matters which of them ends first.
pub(super) struct Shard {
    /// No closed connection ends its linger before that.
    pub(super) next_due: i64,
    pub(super) open: usize,
    /// Those of the open ones that are single.
    singles: usize,
    /// Closed connections, and when to let go of them.
    pub(super) closing: VecDeque<(i64, Reference)>,
    /// All single ones, the oldest first.
    single: VecDeque<Reference>,
    /// All others, in the order in which eviction looks at them.
    order: VecDeque<Reference>,
}

impl Shard {
    pub(super) fn new() -> Self {
        Shard {
            next_due: i64::MAX,
            open: 0,
            singles: 0,
            closing: VecDeque::new(),
            single: VecDeque::new(),
            order: VecDeque::new(),
        }
    }

    /// A connection begins.
    pub(super) fn begins(&mut self, reference: Reference) {
        self.open += 1;
        self.singles += 1;
        self.single.push_back(reference);
    }

    /// A connection ends.
    pub(super) fn ends(&mut self, single: bool) {
        self.open -= 1;
        self.singles -= usize::from(single);
    }

    /// Connections with more than one segment.
    fn followed(&self) -> usize {
        self.open - self.singles
    }
}

impl<F: Follow> Connections<F> {
    fn there(&mut self, (number, generation): Reference) -> Option<&mut Slot> {
        self.slot_mut(number)
            .filter(|slot| slot.generation == generation)
    }

    /// Closed connections whose linger has passed go; those that had another segment since
    /// stay for as long again.
    #[cold]
    pub(super) fn let_go<B: Fn(&Segment<'_>, Began) -> F>(
        &mut self,
        shard: u8,
        now: i64,
        rules: &Rules<'_, B>,
    ) {
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
            let due = slot.last_time.saturating_add(rules.linger);
            if due > now {
                self.shards[list].closing.push_back((due, reference));
            } else {
                self.finish(reference.0, Ended::Closed, now, rules);
            }
        }
        let next = self.shards[list].closing.front();
        self.shards[list].next_due = next.map_or(i64::MAX, |(due, _)| *due);
    }

    /// More than the first segment came of a connection: it has to be followed from now on, and
    /// another one makes room for it if there is no more.
    pub(super) fn not_single<B: Fn(&Segment<'_>, Began) -> F>(
        &mut self,
        number: u32,
        now: i64,
        rules: &Rules<'_, B>,
    ) {
        let Some(slot) = self.slot_mut(number) else {
            return;
        };
        slot.single = false;
        let (reference, shard) = ((number, slot.generation), slot.shard);
        let list = usize::from(shard);
        self.shards[list].singles -= 1;
        if self.shards[list].followed() > rules.followed {
            let spared = self.hurry(list, reference, now, rules);
            if self.shards[list].followed() > rules.followed {
                self.evict_followed(list, now, rules);
            }
            self.shards[list].closing.extend(spared);
        }
        self.shards[list].order.push_back(reference);
    }

    /// Ends closed connections, the one that is closed for longest first, until one of them was no
    /// single one. Gives the entry of the one that is spared, if it was met.
    fn hurry<B: Fn(&Segment<'_>, Began) -> F>(
        &mut self,
        list: usize,
        spared: Reference,
        now: i64,
        rules: &Rules<'_, B>,
    ) -> Option<(i64, Reference)> {
        let mut met = None;
        while let Some((due, reference)) = self.shards[list].closing.pop_front() {
            let Some(slot) = self.there(reference) else {
                continue;
            };
            if !slot.life.closed() {
                slot.closing = false;
            } else if reference == spared {
                met = Some((due, reference));
            } else {
                let single = slot.single;
                self.tally.hurried += 1;
                self.finish(reference.0, Ended::Closed, now, rules);
                if !single {
                    break;
                }
            }
        }
        met
    }

    /// Ends one connection: the one that is closed for longest; if none is closed, the oldest single
    /// one; else one that had no segment for long.
    #[cold]
    pub(super) fn make_room<B: Fn(&Segment<'_>, Began) -> F>(
        &mut self,
        shard: u8,
        now: i64,
        rules: &Rules<'_, B>,
    ) {
        let list = usize::from(shard);
        while let Some((_, reference)) = self.shards[list].closing.pop_front() {
            let Some(slot) = self.there(reference) else {
                continue;
            };
            if slot.life.closed() {
                self.tally.hurried += 1;
                self.finish(reference.0, Ended::Closed, now, rules);
                return;
            }
            slot.closing = false;
        }
        while let Some(reference) = self.shards[list].single.pop_front() {
            if self.there(reference).is_some_and(|slot| slot.single) {
                self.tally.evicted += 1;
                self.finish(reference.0, Ended::Evicted, now, rules);
                return;
            }
        }
        self.evict_followed(list, now, rules);
    }

    /// Ends a connection with more than one segment that had none for long (the second chance
    /// algorithm).
    fn evict_followed<B: Fn(&Segment<'_>, Began) -> F>(
        &mut self,
        list: usize,
        now: i64,
        rules: &Rules<'_, B>,
    ) {
        while let Some(reference) = self.shards[list].order.pop_front() {
            let Some(slot) = self.there(reference) else {
                continue;
            };
            if std::mem::take(&mut slot.used) {
                self.shards[list].order.push_back(reference);
            } else {
                self.tally.evicted += 1;
                self.finish(reference.0, Ended::Evicted, now, rules);
                return;
            }
        }
    }

    /// What is gone is taken out of the lists when they are mostly that.
    pub(super) fn tidy(&mut self, shard: u8) {
        let shard = usize::from(shard);
        let most = |entries: usize| 2 * entries + CHUNK;
        let (open, singles) = (self.shards[shard].open, self.shards[shard].singles);
        if self.shards[shard].single.len() > most(singles) {
            let mut single = std::mem::take(&mut self.shards[shard].single);
            single.retain(|reference| self.there(*reference).is_some_and(|slot| slot.single));
            self.shards[shard].single = single;
        }
        if self.shards[shard].order.len() > most(open - singles) {
            let mut order = std::mem::take(&mut self.shards[shard].order);
            order.retain(|reference| self.there(*reference).is_some());
            self.shards[shard].order = order;
        }
        if self.shards[shard].closing.len() > most(open) {
            let mut closing = std::mem::take(&mut self.shards[shard].closing);
            closing.retain(|(_, reference)| self.there(*reference).is_some());
            self.shards[shard].closing = closing;
        }
    }
}

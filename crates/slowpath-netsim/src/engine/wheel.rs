// SPDX-License-Identifier: Apache-2.0
//! The event queue: for each of a fixed number of sources the one moment it is due.

use slowpath_switch::Time;

/// Slots of a level, as a shift. The near level then covers 4096 ticks; its heads fill half
/// of a first-level cache.
const BITS: u32 = 12;
const SLOTS: usize = 1 << BITS;
const WORDS: usize = SLOTS / 64;
const LEVELS: usize = 5;
/// No source.
const NONE: u32 = u32::MAX;

/// When, and which source, as one number that sorts by time first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due(u128);

impl Due {
    #[inline]
    fn new(time: u64, source: u32) -> Self {
        Due(u128::from(time) << u64::BITS | u128::from(source))
    }

    #[inline]
    fn time(self) -> u64 {
        (self.0 >> u64::BITS) as u64
    }

    #[inline]
    fn source(self) -> u32 {
        self.0 as u32
    }
}

/// What a source waits for: its time, and the source behind it in its slot.
#[derive(Clone, Copy)]
struct Waiting {
    time: u64,
    next: u32,
}

struct Level {
    /// The first source of each slot.
    heads: [u32; SLOTS],
    /// One bit a slot: whether it holds anything.
    full: [u64; WORDS],
}

impl Level {
    /// The first slot from `from` on that holds something.
    #[inline]
    fn first(&self, from: usize) -> Option<usize> {
        if from >= SLOTS {
            return None;
        }
        let mut word = from / 64;
        let mut bits = self.full[word] & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.full.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// Empties a slot: its first source.
    #[inline]
    fn take(&mut self, slot: usize) -> u32 {
        self.full[slot / 64] &= !(1 << (slot % 64));
        core::mem::replace(&mut self.heads[slot], NONE)
    }
}

/// A hierarchical timing wheel over the numbered sources. What is due within one tick is
/// sorted when its tick comes, so that sources come by time, and at equal times by number.
/// A source is due once, so that the lists of the slots go through one array of all sources:
/// no allocation for an event.
pub(super) struct Wheel {
    levels: Box<[Level; LEVELS]>,
    /// By number.
    sources: Vec<Waiting>,
    /// Picoseconds of a tick, as a shift.
    shift: u32,
    /// The tick that `batch` holds.
    tick: u64,
    /// Due in this tick, by descending time and number: the next is the last.
    batch: Vec<Due>,
}

impl Wheel {
    /// A tick is `2^shift` ps; sources have numbers below `sources`.
    pub fn new(shift: u32, sources: usize) -> Self {
        const EMPTY: Level = Level {
            heads: [NONE; SLOTS],
            full: [0; WORDS],
        };
        Wheel {
            levels: Box::new([EMPTY; LEVELS]),
            sources: vec![
                Waiting {
                    time: 0,
                    next: NONE
                };
                sources
            ],
            shift,
            tick: 0,
            batch: Vec::with_capacity(sources.min(64)),
        }
    }

    /// Makes a source due. It must not be due already, and `time` not lie before what was
    /// taken last.
    #[inline]
    pub fn schedule(&mut self, source: u32, time: Time) {
        let tick = time.0 >> self.shift;
        if tick <= self.tick {
            self.join_batch(Due::new(time.0, source));
            return;
        }
        self.place(source, time.0, tick);
    }

    #[inline(never)]
    fn join_batch(&mut self, due: Due) {
        let at = self.batch.partition_point(|other| *other > due);
        self.batch.insert(at, due);
    }

    #[inline]
    fn place(&mut self, source: u32, time: u64, tick: u64) {
        let differing = 63 - (tick ^ self.tick).leading_zeros();
        let level = ((differing / BITS) as usize).min(LEVELS - 1);
        let slot = (tick >> (level as u32 * BITS)) as usize % SLOTS;
        let level = &mut self.levels[level];
        let next = core::mem::replace(&mut level.heads[slot], source);
        level.full[slot / 64] |= 1 << (slot % 64);
        self.sources[source as usize] = Waiting { time, next };
    }

    /// Goes to the next tick that holds something, if nothing of this one is left; true if
    /// it did.
    #[inline]
    pub fn turn(&mut self) -> bool {
        self.batch.is_empty() && self.refill()
    }

    /// When the next source is due, without taking it. [`Wheel::turn`] came before.
    #[inline]
    pub fn peek(&self) -> Option<(Time, u32)> {
        let due = self.batch.last()?;
        Some((Time(due.time()), due.source()))
    }

    /// The sources that are due in this tick.
    pub fn tick(&self) -> impl Iterator<Item = u32> {
        self.batch.iter().rev().map(|due| due.source())
    }

    /// Takes what [`Wheel::peek`] showed.
    #[inline]
    pub fn pop(&mut self) {
        self.batch.pop();
    }

    /// Goes to the next tick that holds something.
    #[inline]
    fn refill(&mut self) -> bool {
        let at = self.tick as usize % SLOTS;
        if let Some(slot) = self.levels[0].first(at + 1) {
            self.open(slot);
            return true;
        }
        self.cascade()
    }

    /// Makes the batch of a slot of the near level.
    #[inline]
    fn open(&mut self, slot: usize) {
        self.tick = self.tick & !(SLOTS as u64 - 1) | slot as u64;
        let mut source = self.levels[0].take(slot);
        while let Some(waiting) = self.sources.get(source as usize) {
            self.batch.push(Due::new(waiting.time, source));
            source = waiting.next;
        }
        self.sort();
    }

    #[inline]
    fn sort(&mut self) {
        if let [first, second] = &mut *self.batch {
            if first < second {
                core::mem::swap(first, second);
            }
        } else if self.batch.len() > 2 {
            self.batch.sort_unstable_by(|a, b| b.cmp(a));
        }
    }

    /// Brings the next slot of a farther level nearer, until one reaches the nearest.
    #[cold]
    fn cascade(&mut self) -> bool {
        for far in 1..LEVELS {
            let shift = far as u32 * BITS;
            let at = (self.tick >> shift) as usize % SLOTS;
            let Some(slot) = self.levels[far].first(at + 1) else {
                continue;
            };
            let above = self.tick >> shift >> BITS << BITS;
            self.tick = (above | slot as u64) << shift;
            let mut source = self.levels[far].take(slot);
            while let Some(&Waiting { time, next }) = self.sources.get(source as usize) {
                let tick = time >> self.shift;
                if tick == self.tick {
                    self.batch.push(Due::new(time, source));
                } else {
                    self.place(source, time, tick);
                }
                source = next;
            }
            if self.batch.is_empty() {
                return self.refill();
            }
            self.sort();
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Against a sorted set: the same sources in the same order, whatever the gaps.
        #[test]
        fn order_is_that_of_a_sorted_set(
            steps in prop::collection::vec((0u32..64, 0u32..50, any::<u32>()), 1..400),
            shift in 0u32..14,
        ) {
            let mut wheel = Wheel::new(shift, 64);
            let mut model: BTreeSet<(u64, u32)> = BTreeSet::new();
            let mut now = 0u64;
            for (source, magnitude, noise) in steps {
                if model.iter().any(|due| due.1 == source) {
                    let expected = model.pop_first();
                    wheel.turn();
                    let got = wheel.peek().map(|(time, source)| (time.0, source));
                    prop_assert_eq!(got, expected);
                    wheel.pop();
                    now = got.map_or(now, |due| due.0);
                }
                if !model.iter().any(|due| due.1 == source) {
                    let gap = (u64::from(noise) << 20) >> (52 - magnitude);
                    model.insert((now + gap, source));
                    wheel.schedule(source, Time(now + gap));
                }
            }
            while let Some(expected) = model.pop_first() {
                wheel.turn();
                let got = wheel.peek().map(|(time, source)| (time.0, source));
                prop_assert_eq!(got, Some(expected));
                wheel.pop();
            }
            prop_assert!(!wheel.turn() && wheel.peek().is_none());
        }
    }
}

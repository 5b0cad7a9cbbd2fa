// SPDX-License-Identifier: Apache-2.0
//! The event queue: for each of a fixed number of sources the one moment it is due.

use slowpath_switch::Time;

/// Slots of a level, as a shift. The near level then covers 4096 ticks; its heads fill half
/// of a first-level cache.
const BITS: u32 = 12;
const SLOTS: usize = 1 << BITS;
const WORDS: usize = SLOTS / 64;
const LEVELS: usize = 5;

/// When, and which source.
type Due = (u64, u32);

struct Level {
    slots: Vec<Vec<Due>>,
    /// One bit a slot: whether it holds anything.
    full: [u64; WORDS],
}

impl Level {
    fn new() -> Self {
        Level {
            slots: vec![Vec::new(); SLOTS],
            full: [0; WORDS],
        }
    }

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
}

/// A hierarchical timing wheel over the numbered sources. What is due within one tick is
/// sorted when its tick comes, so that sources come by time, and at equal times by number.
/// No allocation for an event: the list of a slot grows to the most it ever held and
/// stays.
pub(super) struct Wheel {
    levels: Vec<Level>,
    /// Picoseconds of a tick, as a shift.
    shift: u32,
    /// The tick that `batch` holds.
    tick: u64,
    /// Due in this tick, by descending time and number: the next is the last.
    batch: Vec<Due>,
}

impl Wheel {
    /// A tick is `2^shift` ps.
    pub fn new(shift: u32) -> Self {
        Wheel {
            levels: (0..LEVELS).map(|_| Level::new()).collect(),
            shift,
            tick: 0,
            batch: Vec::with_capacity(64),
        }
    }

    /// Makes a source due. It must not be due already, and `time` not lie before what was
    /// taken last.
    #[inline]
    pub fn schedule(&mut self, source: u32, time: Time) {
        let tick = time.0 >> self.shift;
        if tick <= self.tick {
            let key = (time.0, source);
            let at = self.batch.partition_point(|due| *due > key);
            self.batch.insert(at, key);
            return;
        }
        self.place((time.0, source), tick);
    }

    #[inline]
    fn place(&mut self, due: Due, tick: u64) {
        let differing = 63 - (tick ^ self.tick).leading_zeros();
        let level = ((differing / BITS) as usize).min(LEVELS - 1);
        let slot = (tick >> (level as u32 * BITS)) as usize % SLOTS;
        let level = &mut self.levels[level];
        level.slots[slot].push(due);
        level.full[slot / 64] |= 1 << (slot % 64);
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
        self.batch
            .last()
            .map(|&(time, source)| (Time(time), source))
    }

    /// The sources that are due in this tick.
    pub fn tick(&self) -> impl Iterator<Item = &Due> {
        self.batch.iter().rev()
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
        let level = &mut self.levels[0];
        level.full[slot / 64] &= !(1 << (slot % 64));
        // The list that was worked off becomes the slot's.
        core::mem::swap(&mut self.batch, &mut level.slots[slot]);
        if self.batch.len() > 1 {
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
            let level = &mut self.levels[far];
            level.full[slot / 64] &= !(1 << (slot % 64));
            for due in core::mem::take(&mut level.slots[slot]) {
                let tick = due.0 >> self.shift;
                if tick == self.tick {
                    self.batch.push(due);
                } else {
                    self.place(due, tick);
                }
            }
            if self.batch.is_empty() {
                return self.refill();
            }
            self.batch.sort_unstable_by(|a, b| b.cmp(a));
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
            let mut wheel = Wheel::new(shift);
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

// SPDX-License-Identifier: Apache-2.0
//! Packets in flight on links: first in, first out for each.
//!
//! The first of a link is kept with the link, as most links have no other: what arrives
//! then costs one cache line. The others are a list in slots that all links share.

use super::packet::Hop;
use slowpath_switch::Time;

/// No slot.
const NONE: u32 = u32::MAX;

/// A packet on a line.
#[derive(Clone, Copy)]
pub(super) struct Flying {
    pub arrival: Time,
    pub hop: Hop,
}

#[derive(Clone, Copy)]
struct Slot {
    flying: Flying,
    next: u32,
}

/// The packets behind the first of their link, of all links.
pub(super) struct Overflow {
    slots: Vec<Slot>,
    /// The first of the free slots, the one freed last: a list, as those of the links are.
    free: u32,
}

impl Overflow {
    pub const fn new() -> Self {
        Overflow {
            slots: Vec::new(),
            free: NONE,
        }
    }

    #[inline]
    fn insert(&mut self, flying: Flying) -> u32 {
        let at = self.free;
        if let Some(slot) = self.slots.get_mut(at as usize) {
            self.free = slot.next;
            slot.flying = flying;
            slot.next = NONE;
            return at;
        }
        // As many packets as that do not fit into memory.
        let at = self.slots.len() as u32;
        self.slots.push(Slot { flying, next: NONE });
        at
    }
}

/// The packets of one link.
pub(super) struct InFlight {
    /// Its arrival is [`EMPTY`] if there is none.
    first: Flying,
    head: u32,
    tail: u32,
}

/// No packet arrives then.
const EMPTY: Time = Time::MAX;

impl InFlight {
    pub fn new() -> Self {
        InFlight {
            first: Flying {
                arrival: EMPTY,
                hop: Hop::new(0, 0, 0, 0, 0),
            },
            head: NONE,
            tail: NONE,
        }
    }

    #[inline]
    pub fn front(&self) -> Option<&Flying> {
        Some(&self.first).filter(|first| first.arrival != EMPTY)
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.arrival == EMPTY
    }

    #[inline]
    pub fn push_back(&mut self, overflow: &mut Overflow, flying: Flying) {
        if self.is_empty() {
            self.first = flying;
            return;
        }
        let at = overflow.insert(flying);
        match self.head {
            NONE => self.head = at,
            _ => overflow.slots[self.tail as usize].next = at,
        }
        self.tail = at;
    }

    #[inline]
    pub fn pop_front(&mut self, overflow: &mut Overflow) -> Option<Flying> {
        let first = self.first;
        if let Some(slot) = overflow.slots.get_mut(self.head as usize) {
            self.first = slot.flying;
            let freed = core::mem::replace(&mut self.head, slot.next);
            slot.next = core::mem::replace(&mut overflow.free, freed);
        } else {
            self.first.arrival = EMPTY;
        }
        (first.arrival != EMPTY).then_some(first)
    }

    pub fn iter<'a>(&'a self, overflow: &'a Overflow) -> impl Iterator<Item = &'a Flying> {
        let mut at = self.head;
        let rest = core::iter::from_fn(move || {
            let slot = overflow.slots.get(at as usize)?;
            at = slot.next;
            Some(&slot.flying)
        });
        self.front().into_iter().chain(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Against queues of the standard library.
        #[test]
        fn each_link_is_first_in_first_out(steps in prop::collection::vec((0usize..3, 0u8..5), 1..300)) {
            let mut overflow = Overflow::new();
            let mut links = [InFlight::new(), InFlight::new(), InFlight::new()];
            let mut model = [const { VecDeque::new() }; 3];
            let (mut number, mut most_ever) = (0, 0);
            for (link, step) in steps {
                if step < 3 {
                    number += 1;
                    let hop = Hop::new(number, 0, 0, 0, 0);
                    links[link].push_back(&mut overflow, Flying { arrival: Time::ZERO, hop });
                    model[link].push_back(number);
                } else {
                    let popped = links[link].pop_front(&mut overflow).map(|flying| flying.hop.body());
                    prop_assert_eq!(popped, model[link].pop_front());
                }
                most_ever = most_ever.max(model.iter().map(VecDeque::len).sum());
                for (link, model) in links.iter().zip(&model) {
                    let all: Vec<u32> = link.iter(&overflow).map(|flying| flying.hop.body()).collect();
                    prop_assert!(all.iter().eq(model));
                    prop_assert_eq!(link.front().map(|flying| flying.hop.body()), model.front().copied());
                    prop_assert_eq!(link.is_empty(), model.is_empty());
                }
            }
            prop_assert!(overflow.slots.len() <= most_ever);
        }
    }
}

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
#[derive(Default)]
pub(super) struct Overflow {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Overflow {
    fn insert(&mut self, flying: Flying) -> u32 {
        let slot = Slot { flying, next: NONE };
        if let Some(at) = self.free.pop() {
            self.slots[at as usize] = slot;
            return at;
        }
        // As many packets as that do not fit into memory.
        let at = self.slots.len() as u32;
        self.slots.push(slot);
        at
    }
}

/// The packets of one link.
pub(super) struct InFlight {
    first: Option<Flying>,
    head: u32,
    tail: u32,
}

impl InFlight {
    pub fn new() -> Self {
        InFlight {
            first: None,
            head: NONE,
            tail: NONE,
        }
    }

    #[inline]
    pub fn front(&self) -> Option<&Flying> {
        self.first.as_ref()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    #[inline]
    pub fn push_back(&mut self, overflow: &mut Overflow, flying: Flying) {
        if self.first.is_none() {
            self.first = Some(flying);
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
        let first = self.first.take();
        if self.head != NONE {
            let Slot { flying, next } = overflow.slots[self.head as usize];
            overflow.free.push(self.head);
            self.first = Some(flying);
            self.head = next;
        }
        first
    }

    pub fn iter<'a>(&'a self, overflow: &'a Overflow) -> impl Iterator<Item = &'a Flying> {
        let mut at = self.head;
        let rest = core::iter::from_fn(move || {
            let slot = overflow.slots.get(at as usize)?;
            at = slot.next;
            Some(&slot.flying)
        });
        self.first.iter().chain(rest)
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
            let mut overflow = Overflow::default();
            let mut links = [InFlight::new(), InFlight::new(), InFlight::new()];
            let mut model = [const { VecDeque::new() }; 3];
            let mut number = 0;
            for (link, step) in steps {
                if step < 3 {
                    number += 1;
                    let hop = Hop::new(number, 0, 0, 0, 0);
                    links[link].push_back(&mut overflow, Flying { arrival: Time::ZERO, hop });
                    model[link].push_back(number);
                } else {
                    let popped = links[link].pop_front(&mut overflow).map(|flying| flying.hop.body);
                    prop_assert_eq!(popped, model[link].pop_front());
                }
                for (link, model) in links.iter().zip(&model) {
                    let all: Vec<u32> = link.iter(&overflow).map(|flying| flying.hop.body).collect();
                    prop_assert!(all.iter().eq(model));
                    prop_assert_eq!(link.front().map(|flying| flying.hop.body), model.front().copied());
                    prop_assert_eq!(link.is_empty(), model.is_empty());
                }
            }
            let most: usize = model.iter().map(VecDeque::len).sum();
            prop_assert!(overflow.slots.len() <= number as usize && overflow.slots.len() - overflow.free.len() <= most);
        }
    }
}

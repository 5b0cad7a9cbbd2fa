// SPDX-License-Identifier: Apache-2.0
//! Packets in flight on links: first in, first out for each.
//!
//! The first of a link is kept with the link, as most links have no other: what arrives
//! then costs one cache line. The others are a list in places that all links share.

use super::packet::Hop;
use slowpath_switch::Time;

/// No place.
const NONE: u32 = u32::MAX;

/// A packet on a line.
#[derive(Clone, Copy)]
pub(super) struct Flying {
    pub arrival: Time,
    pub hop: Hop,
}

#[derive(Clone, Copy)]
struct Place {
    flying: Flying,
    next: u32,
}

/// Where those behind the first of their link are.
#[derive(Default)]
pub(super) struct Behind {
    places: Vec<Place>,
    free: Vec<u32>,
}

impl Behind {
    fn insert(&mut self, flying: Flying) -> u32 {
        let place = Place { flying, next: NONE };
        if let Some(at) = self.free.pop() {
            self.places[at as usize] = place;
            return at;
        }
        // As many packets as that do not fit into memory.
        let at = self.places.len() as u32;
        self.places.push(place);
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
    pub fn push_back(&mut self, behind: &mut Behind, flying: Flying) {
        if self.first.is_none() {
            self.first = Some(flying);
            return;
        }
        let at = behind.insert(flying);
        match self.head {
            NONE => self.head = at,
            _ => behind.places[self.tail as usize].next = at,
        }
        self.tail = at;
    }

    #[inline]
    pub fn pop_front(&mut self, behind: &mut Behind) -> Option<Flying> {
        let first = self.first.take();
        if self.head != NONE {
            let Place { flying, next } = behind.places[self.head as usize];
            behind.free.push(self.head);
            self.first = Some(flying);
            self.head = next;
        }
        first
    }

    pub fn iter<'a>(&'a self, behind: &'a Behind) -> impl Iterator<Item = &'a Flying> {
        let mut at = self.head;
        let rest = core::iter::from_fn(move || {
            let place = behind.places.get(at as usize)?;
            at = place.next;
            Some(&place.flying)
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
            let mut behind = Behind::default();
            let mut links = [InFlight::new(), InFlight::new(), InFlight::new()];
            let mut model = [const { VecDeque::new() }; 3];
            let mut number = 0;
            for (link, step) in steps {
                if step < 3 {
                    number += 1;
                    let hop = Hop::new(number, 0, 0, 0, 0);
                    links[link].push_back(&mut behind, Flying { arrival: Time::ZERO, hop });
                    model[link].push_back(number);
                } else {
                    let popped = links[link].pop_front(&mut behind).map(|flying| flying.hop.body);
                    prop_assert_eq!(popped, model[link].pop_front());
                }
                for (link, model) in links.iter().zip(&model) {
                    let all: Vec<u32> = link.iter(&behind).map(|flying| flying.hop.body).collect();
                    prop_assert!(all.iter().eq(model));
                    prop_assert_eq!(link.front().map(|flying| flying.hop.body), model.front().copied());
                    prop_assert_eq!(link.is_empty(), model.is_empty());
                }
            }
            let most: usize = model.iter().map(VecDeque::len).sum();
            prop_assert!(behind.places.len() <= number as usize && behind.places.len() - behind.free.len() <= most);
        }
    }
}

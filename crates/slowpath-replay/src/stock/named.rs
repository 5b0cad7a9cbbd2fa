// SPDX-License-Identifier: Apache-2.0
//! Packets over IPv6, which has no identification: known by what they look like.
//!
//! Two that look the same have the same TCP header and length, and do the same to whoever gets them (a window probe, say, or an ACK sent twice in one
//! millisecond); of these each that comes is taken for the oldest that has not come yet.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};

/// As many as IPv4 tells apart.
const MOST: usize = 1 << 16;
/// Further ones that look the same are not looked through.
const MOST_ALIKE: usize = 1024;

#[derive(Clone)]
struct One {
    like: u32,
    number: u32,
    /// The place of the one before that looks the same.
    before: Option<u64>,
    came: Cell<bool>,
}

/// An end's newest packets.
#[derive(Clone, Default)]
pub(super) struct Named {
    /// The place of the first of them.
    first: u64,
    all: VecDeque<One>,
    /// Places of the newest, by what they look like.
    newest: HashMap<u32, u64>,
}

impl Named {
    /// That many packets were sent before it.
    pub(super) fn sent(&mut self, like: u32, number: u32) {
        if self.all.len() == MOST
            && let Some(gone) = self.all.pop_front()
        {
            if self.newest.get(&gone.like) == Some(&self.first) {
                self.newest.remove(&gone.like);
            }
            self.first += 1;
        }
        let place = self.first + self.all.len() as u64;
        self.all.push_back(One {
            like,
            number,
            before: self.newest.insert(like, place),
            came: Cell::new(false),
        });
    }

    fn at(&self, place: u64) -> Option<&One> {
        self.all.get(place.checked_sub(self.first)? as usize)
    }

    /// The number of one that came and looks like this.
    pub(super) fn came(&self, like: u32) -> Option<u32> {
        let newest = self.at(*self.newest.get(&like)?)?;
        let alike = std::iter::successors(Some(newest), |one| self.at(one.before?));
        let waiting = alike.take(MOST_ALIKE).filter(|one| !one.came.get());
        // All have come: the network doubled one.
        let one = waiting.last().unwrap_or(newest);
        one.came.set(true);
        Some(one.number)
    }

    /// Bytes that it takes; a hash table has a control byte for each place.
    pub(super) fn bytes(&self) -> usize {
        let place = size_of::<(u32, u64)>() + 1;
        self.all.capacity() * size_of::<One>() + self.newest.capacity() * place
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Named};

    #[test]
    fn those_that_look_the_same_come_in_their_order() {
        let mut named = Named::default();
        for (like, number) in [(7, 1), (8, 2), (7, 3), (7, 4)] {
            named.sent(like, number);
        }
        assert_eq!(
            [7, 7, 8].map(|like| named.came(like)),
            [Some(1), Some(3), Some(2)]
        );
        assert_eq!(named.came(9), None);
        // The last, and once more: doubled on the way.
        assert_eq!([7, 7].map(|like| named.came(like)), [Some(4), Some(4)]);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut named = Named::default();
        for number in 0..=MOST as u32 {
            named.sent(number.max(1), number);
        }
        // Of the first two, which look the same, the first has gone.
        assert_eq!([1, 2].map(|like| named.came(like)), [Some(1), Some(2)]);
        named.sent(5, 0);
        assert_eq!([1, 5].map(|like| named.came(like)), [None, Some(5)]);
        assert_eq!(named.all.len(), MOST);
        assert_eq!(named.newest.len(), MOST - 1);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Packets over IPv6, which has no identification: recognised by their likeness, a number made of TCP header and length.
//!
//! Two packets are alike if they have the same TCP header and length: window probes, say, ACKs sent within one millisecond, or without timestamps what is sent again. To the
//! receiver they are the same, but not to the sender, whose memory a packet under way shares. So of several alike packets the one that arrives is taken to be
//! the one whose time under way is nearest to that of unambiguous packets.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};

/// As many as IPv4 distinguishes.
const MOST: usize = 1 << 16;
/// Further ones that look the same are not looked through.
const MOST_ALIKE: usize = 1024;

#[derive(Clone)]
struct One {
    like: u32,
    number: u32,
    at: u64,
    /// The place of the one before that looks the same.
    before: Option<u64>,
    came: Cell<bool>,
}

/// An end's newest packets.
#[derive(Clone, Default)]
pub(super) struct Likenesses {
    /// The place of the first of them.
    first: u64,
    all: VecDeque<One>,
    /// Places of the newest, by what they look like.
    newest: HashMap<u32, u64>,
    /// How long the last one was under way that nothing else looks like, in nanoseconds.
    usual: Cell<u64>,
}

impl Likenesses {
    /// That many packets were sent before it.
    pub(super) fn sent(&mut self, like: u32, number: u32, at: u64) {
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
            at,
            before: self.newest.insert(like, place),
            came: Cell::new(false),
        });
    }

    fn at(&self, place: u64) -> Option<&One> {
        self.all.get(place.checked_sub(self.first)? as usize)
    }

    /// The number of one that came then and looks like this.
    pub(super) fn came(&self, like: u32, at: u64) -> Option<u32> {
        let newest = self.at(*self.newest.get(&like)?)?;
        let took = |one: &One| at.saturating_sub(one.at);
        if newest.before.is_none() {
            self.usual.set(took(newest));
        }
        let alike = std::iter::successors(Some(newest), |one| self.at(one.before?));
        let waiting = alike.take(MOST_ALIKE).filter(|one| !one.came.get());
        let likely = |one: &&One| (took(one).abs_diff(self.usual.get()), one.number);
        // All have come: the network doubled one.
        let one = waiting.min_by_key(likely).unwrap_or(newest);
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
    use super::{Likenesses, MOST};

    #[test]
    fn those_that_look_the_same_come_in_their_order() {
        let mut named = Likenesses::default();
        for (like, number) in [(7, 1), (8, 2), (7, 3), (7, 4)] {
            named.sent(like, number, u64::from(number));
        }
        let came = |like, at| named.came(like, at);
        assert_eq!(came(8, 12), Some(2));
        assert_eq!([came(7, 11), came(7, 13)], [Some(1), Some(3)]);
        assert_eq!(came(9, 13), None);
        // The last, and once more: doubled on the way.
        assert_eq!([came(7, 14), came(7, 15)], [Some(4), Some(4)]);
    }

    /// The first of two was lost, whether packets behind it came or not.
    #[test]
    fn what_was_sent_again_is_not_what_was_lost() {
        for last in [false, true] {
            let mut named = Likenesses::default();
            named.sent(1, 0, 1_000);
            named.sent(7, 1, 2_000);
            assert_eq!(named.came(1, 11_000), Some(0));
            if !last {
                named.sent(2, 2, 3_000);
                assert_eq!(named.came(2, 13_500), Some(2));
            }
            named.sent(7, 3, 30_000);
            assert_eq!(named.came(7, 40_200), Some(3));
            // It was late after all.
            assert_eq!(named.came(7, 41_000), Some(1));
        }
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut named = Likenesses::default();
        for number in 0..=MOST as u32 {
            named.sent(number.max(1), number, 0);
        }
        // Of the first two, which look the same, the first has gone.
        assert_eq!([1, 2].map(|like| named.came(like, 0)), [Some(1), Some(2)]);
        named.sent(5, 0, 0);
        assert_eq!([1, 5].map(|like| named.came(like, 0)), [None, Some(0)]);
        assert_eq!(named.all.len(), MOST);
        assert_eq!(named.newest.len(), MOST - 1);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A guess at the slot of a connection, from memory that is likely in the cache.
//!
//! Cookies are given in sequence, so connections that are handed over one after the other have
//! neighbouring lower bits, while a hash spreads them over all of its table: with 10,000 connections a
//! look-up there waits for memory nearly each time. A guess may be wrong; who asks compares.

use super::Key;
use slowpath_observe::prefetch;
use std::ptr;

/// Places at first, and at least.
const FEW: usize = 1 << 12;

/// Places for each connection, at least: most connections share none with another even where their
/// cookies are far from each other.
const EACH: usize = 4;

/// Guessed slots by the lower bits of the key, each with bits above those.
#[derive(Default)]
pub(super) struct SlotCache {
    places: Vec<(u32, u32)>,
}

fn tag(key: Key) -> u32 {
    // Never 0, which is the tag of a place that was never used.
    (key >> FEW.trailing_zeros()) as u32 | 1 << 31
}

impl SlotCache {
    /// Whether there is too little room for `connections`.
    pub fn is_small_for(&self, connections: usize) -> bool {
        self.places.len() < (EACH * connections).max(FEW)
    }

    /// Begins anew with room for twice as many connections.
    pub fn grow(&mut self, connections: usize) {
        let places = (2 * EACH * connections).max(FEW).next_power_of_two();
        self.places = vec![(0, 0); places];
    }

    /// Their number is a power of two, or 0.
    fn place(&self, key: Key) -> Option<usize> {
        Some(key as usize & self.places.len().checked_sub(1)?)
    }

    /// The connection with that key is in that slot.
    pub fn put(&mut self, key: Key, slot: u32) {
        if let Some(place) = self.place(key) {
            self.places[place] = (tag(key), slot);
        }
    }

    /// Has the processor fetch the place of a connection whose slot is asked for soon.
    #[inline]
    pub fn prefetch(&self, key: Key) {
        if let Some(place) = self.place(key) {
            prefetch(ptr::from_ref(&self.places[place]).cast());
        }
    }

    /// The slot in which the connection may be.
    pub fn guess(&self, key: Key) -> Option<u32> {
        let (found, slot) = self.places[self.place(key)?];
        (found == tag(key)).then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_last_is_guessed_and_nothing_else() {
        let mut slot_cache = SlotCache::default();
        assert_eq!(slot_cache.guess(7), None);
        slot_cache.put(7, 1);
        assert_eq!(slot_cache.guess(7), None, "there is no room yet");
        assert!(slot_cache.is_small_for(1));
        slot_cache.grow(1);
        assert!(!slot_cache.is_small_for(1));
        slot_cache.put(7, 1);
        slot_cache.put(8, 2);
        assert_eq!(
            (slot_cache.guess(7), slot_cache.guess(8)),
            (Some(1), Some(2))
        );
        assert_eq!(slot_cache.guess(0), None);
        let other = 7 + (slot_cache.places.len() as u64);
        assert_eq!(slot_cache.guess(other), None);
        slot_cache.put(other, 3);
        assert_eq!(
            (slot_cache.guess(other), slot_cache.guess(7)),
            (Some(3), None)
        );
    }

    /// As on a host where connections live long: cookies far from each other. How many keep their place
    /// when n balls fall into 4 n to 8 n places one after the other: those that no later one
    /// hits, n (1 - exp(-x)) / x with x the balls a place.
    #[test]
    fn most_guesses_hold_whatever_the_cookies() {
        let n = 20_000;
        let mut slot_cache = SlotCache::default();
        slot_cache.grow(n / 2);
        assert!(!slot_cache.is_small_for(n));
        let mut random = fastrand::Rng::with_seed(1);
        let keys: Vec<Key> = (0..n).map(|_| random.u64(..)).collect();
        for (slot, key) in keys.iter().enumerate() {
            slot_cache.put(*key, slot as u32);
        }
        let held = (0..n).filter(|i| slot_cache.guess(keys[*i]) == Some(*i as u32));
        let x = n as f64 / slot_cache.places.len() as f64;
        let expected = n as f64 * (1.0 - (-x).exp()) / x;
        let found = held.count() as f64;
        assert!(
            (found - expected).abs() < 0.02 * expected,
            "{found} beside {expected}"
        );
        assert!(expected > 0.88 * n as f64);
    }
}

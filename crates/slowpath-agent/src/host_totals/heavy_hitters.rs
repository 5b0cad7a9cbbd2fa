// SPDX-License-Identifier: Apache-2.0
//! The heaviest of a stream of weighted keys, in bounded memory: Space-Saving.
//!
//! Metwally, Agrawal, El Abbadi, "Efficient computation of frequent and top-k elements in data
//! streams", ICDT 2005, with weights instead of ones:
//!
//! 1. A key that is counted gains its weight.
//! 2. Another one is counted from now on, if there is room for it.
//! 3. Else it takes the place of the lightest key and inherits its count as its possible error.
//!
//! A count is never too low, and too high by its error at most; of all weights so far, no key with
//! more than their sum over the number of places is missing.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hash};

#[derive(Clone, Copy, Debug)]
struct Counter {
    count: u64,
    error: u64,
}

/// The heaviest keys.
#[derive(Clone, Debug)]
pub(super) struct HeavyHitters<K> {
    places: usize,
    counters: HashMap<K, Counter, BuildHasherDefault<rustc_hash::FxHasher>>,
    /// The same by count.
    order: BTreeSet<(u64, K)>,
}

impl<K: Clone + Ord + Hash> HeavyHitters<K> {
    pub(super) fn new(places: usize) -> Self {
        HeavyHitters {
            places,
            counters: HashMap::default(),
            order: BTreeSet::new(),
        }
    }

    /// Adds weight to a key; gives what it has at least.
    pub(super) fn add(&mut self, key: &K, weight: u64) -> u64 {
        let before = match self.counters.get(key) {
            Some(counter) => {
                self.order.remove(&(counter.count, key.clone()));
                *counter
            }
            None if self.counters.len() < self.places => Counter { count: 0, error: 0 },
            None => {
                let lightest = self.order.pop_first();
                let count = lightest.map_or(0, |(count, lightest)| {
                    self.counters.remove(&lightest);
                    count
                });
                Counter {
                    count,
                    error: count,
                }
            }
        };
        let counter = Counter {
            count: before.count.saturating_add(weight),
            ..before
        };
        self.order.insert((counter.count, key.clone()));
        self.counters.insert(key.clone(), counter);
        counter.count - counter.error
    }

    /// Counts a key no more.
    pub(super) fn remove(&mut self, key: &K) {
        if let Some(counter) = self.counters.remove(key) {
            self.order.remove(&(counter.count, key.clone()));
        }
    }

    /// The key that has most for certain, of those that `fits` takes, and how much.
    pub(super) fn heaviest(&self, fits: impl Fn(&K) -> bool) -> Option<(&K, u64)> {
        let certain = self.counters.iter().map(|(k, c)| (k, c.count - c.error));
        certain
            .filter(|(key, _)| fits(key))
            .max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(a.0)))
    }

    /// Halves all weights: what is long ago counts less.
    pub(super) fn halve(&mut self) {
        self.order.clear();
        for (key, counter) in &mut self.counters {
            // Rounded so that a count stays at least its error.
            counter.error /= 2;
            counter.count = (counter.count / 2).max(counter.error);
            self.order.insert((counter.count, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten heavy keys among a hundred thousand that come once, in 64 places.
    #[test]
    fn heavy_keys_are_kept_and_never_undercounted() {
        let mut hitters = HeavyHitters::new(64);
        let mut truth = [0; 10];
        let mut random = 1_u64;
        for i in 0..200_000_u64 {
            // The constants of Knuth's MMIX.
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            if i % 2 == 0 {
                let key = (random >> 33) % 10;
                truth[key as usize] += 3;
                hitters.add(&key, 3);
            } else {
                hitters.add(&(1_000 + i), 1);
            }
        }
        assert_eq!((hitters.counters.len(), hitters.order.len()), (64, 64));
        // The sum of all weights over the places.
        let most = (truth.iter().sum::<u64>() + 100_000) / 64;
        for (key, truth) in truth.iter().enumerate() {
            let counter = hitters.counters[&(key as u64)];
            assert!(counter.count >= *truth && counter.error <= most, "{key}");
            assert!(counter.count - counter.error <= *truth, "{key}");
        }
        let (heaviest, certain) = hitters.heaviest(|key| *key != 3).unwrap();
        assert!(*heaviest < 10 && *heaviest != 3 && certain > 0);
    }

    #[test]
    fn weights_fade_and_keys_go() {
        let mut hitters = HeavyHitters::new(2);
        assert_eq!(hitters.add(&'a', 100), 100);
        assert_eq!(hitters.add(&'b', 7), 7);
        // It takes the place of b, and may have had what b had.
        assert_eq!(hitters.add(&'c', 2), 2);
        assert_eq!(hitters.heaviest(|_| true), Some((&'a', 100)));
        hitters.halve();
        assert_eq!(hitters.heaviest(|_| true), Some((&'a', 50)));
        hitters.remove(&'a');
        assert_eq!(hitters.heaviest(|_| true), Some((&'c', 1)));
        hitters.remove(&'a');
        hitters.remove(&'c');
        assert_eq!(hitters.heaviest(|_| true), None);
        assert!(hitters.order.is_empty());
    }
}

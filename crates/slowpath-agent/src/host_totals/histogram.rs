// SPDX-License-Identifier: Apache-2.0
//! Durations by size.

use slowpath_model::Micros;

/// Durations by size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    bounds: &'static [Micros],
    /// One more than bounds: the last holds what is longer than all.
    counts: Box<[u64]>,
    sum: Micros,
}

impl Histogram {
    /// An empty one with these upper bounds, in ascending order.
    pub fn new(bounds: &'static [Micros]) -> Self {
        Histogram {
            bounds,
            counts: vec![0; bounds.len() + 1].into(),
            sum: Micros::ZERO,
        }
    }

    /// Counts one.
    pub fn observe(&mut self, value: Micros) {
        self.observe_all(std::iter::once((value, 1)), value);
    }

    /// Counts durations, each as often as it says, that add up to `sum`.
    pub fn observe_all(&mut self, values: impl Iterator<Item = (Micros, u64)>, sum: Micros) {
        for (value, times) in values {
            let bucket = self.bounds.partition_point(|bound| *bound < value);
            self.counts[bucket] += times;
        }
        self.sum += sum;
    }

    /// The upper bounds, each included in its bucket.
    pub fn bounds(&self) -> &'static [Micros] {
        self.bounds
    }

    /// How many lie in each bucket; the last one has no bound.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// What they add up to.
    pub fn sum(&self) -> Micros {
        self.sum
    }
}

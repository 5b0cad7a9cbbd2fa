// SPDX-License-Identifier: Apache-2.0
//! A bag of durations: how many, how long. Integers inside; a mean only when asked.

use std::time::Duration;

/// Durations in nanoseconds, added one at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    count: u64,
    shortest: u64,
    longest: u64,
    sum: u64,
    squares: u128,
}

impl Samples {
    /// Adds a duration; a negative one (the clock went back) counts as zero.
    #[inline]
    pub(super) fn add(&mut self, nanos: i64) {
        let nanos = nanos.max(0) as u64;
        if self.count == 0 || nanos < self.shortest {
            self.shortest = nanos;
        }
        self.longest = self.longest.max(nanos);
        self.count += 1;
        self.sum = self.sum.saturating_add(nanos);
        self.squares = self
            .squares
            .saturating_add(u128::from(nanos) * u128::from(nanos));
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The shortest; `None` when there is none.
    #[must_use]
    pub fn shortest(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_nanos(self.shortest))
    }

    /// The longest; `None` when there is none.
    #[must_use]
    pub fn longest(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_nanos(self.longest))
    }

    /// All combined.
    #[must_use]
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }

    /// Their mean; `None` when there is none.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        self.sum.checked_div(self.count).map(Duration::from_nanos)
    }

    /// The sample standard deviation; `None` for fewer than two.
    #[must_use]
    pub fn deviation(&self) -> Option<Duration> {
        if self.count < 2 {
            return None;
        }
        let (n, sum) = (self.count as f64, self.sum as f64);
        let variance = (self.squares as f64 - sum * sum / n) / (n - 1.0);
        Some(Duration::from_nanos(variance.max(0.0).sqrt() as u64))
    }
}

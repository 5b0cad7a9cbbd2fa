// SPDX-License-Identifier: Apache-2.0
//! How late packets were delivered.

use serde::Serialize;
use std::time::Duration;

/// Microseconds that are counted one by one.
const FINE: usize = 20_000;

/// A count for each microsecond up to 20 ms, and of what was later.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: Vec<u64>,
    beyond: u64,
    most: u64,
    all: u64,
    bound: u64,
    over: u64,
}

/// How late packets were handed to their hosts: after the moment that the model says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lateness {
    /// Packets.
    pub packets: u64,
    /// Half of them were no later, in microseconds.
    pub median_us: u64,
    /// 99 % were no later.
    pub p99_us: u64,
    /// The latest.
    pub most_us: u64,
    /// Later than this counts as too late.
    pub bound_us: u64,
    /// So many were.
    pub over_bound: u64,
}

impl Lateness {
    /// Whether the run can be trusted: no more than one packet of a hundred was later than
    /// the bound.
    pub fn holds(&self) -> bool {
        self.over_bound.saturating_mul(100) <= self.packets
    }
}

impl Histogram {
    pub fn new(bound: Duration) -> Self {
        Histogram {
            counts: vec![0; FINE],
            beyond: 0,
            most: 0,
            all: 0,
            bound: u64::try_from(bound.as_micros()).unwrap_or(u64::MAX),
            over: 0,
        }
    }

    /// A packet was so many nanoseconds late.
    pub fn add(&mut self, nanos: u64) {
        let micros = nanos / 1000;
        match self.counts.get_mut(micros as usize) {
            Some(count) => *count += 1,
            None => self.beyond += 1,
        }
        self.most = self.most.max(micros);
        self.over += u64::from(micros > self.bound);
        self.all += 1;
    }

    /// The nearest rank; of what was not counted finely, the latest.
    fn percentile(&self, percent: u64) -> u64 {
        let rank = (self.all * percent).div_ceil(100).max(1);
        let mut sum = 0;
        let found = (0..).zip(&self.counts).find(|(_, count)| {
            sum += **count;
            sum >= rank
        });
        found.map_or(self.most, |(micros, _)| micros)
    }

    pub fn lateness(&self) -> Lateness {
        let percentile = |percent| match self.all {
            0 => 0,
            _ => self.percentile(percent),
        };
        Lateness {
            packets: self.all,
            median_us: percentile(50),
            p99_us: percentile(99),
            most_us: self.most,
            bound_us: self.bound,
            over_bound: self.over,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut histogram = Histogram::new(Duration::from_micros(150));
        for micros in 1..=200 {
            histogram.add(micros * 1000 + 999);
        }
        let lateness = histogram.lateness();
        assert_eq!((lateness.median_us, lateness.p99_us), (100, 198));
        assert_eq!((lateness.most_us, lateness.over_bound), (200, 50));
        assert!(!lateness.holds());
    }

    #[test]
    fn one_of_a_hundred_may_be_late() {
        let mut histogram = Histogram::new(Duration::from_millis(2));
        for _ in 0..99 {
            histogram.add(5_000);
        }
        histogram.add(1_000_000_000);
        let lateness = histogram.lateness();
        assert!(lateness.holds());
        assert_eq!((lateness.p99_us, lateness.most_us), (5, 1_000_000));
        histogram.add(1_000_000_000);
        assert!(!histogram.lateness().holds());
        assert!(Histogram::new(Duration::ZERO).lateness().holds());
    }
}

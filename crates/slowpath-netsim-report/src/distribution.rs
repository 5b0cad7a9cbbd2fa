// SPDX-License-Identifier: Apache-2.0
//! Times as percentiles and as curves.
//!
//! A percentile is the nearest rank: the least time that the percentage of all are not above. It
//! is one of the times, never a mean of two.

use serde::Serialize;
use slowpath_switch::Random;
use std::collections::BTreeSet;

/// Picoseconds as microseconds.
pub fn micros(ps: u64) -> f64 {
    ps as f64 / 1e6
}

/// What times are like.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// How many.
    pub count: u64,
    /// Their mean, microseconds.
    pub mean_us: f64,
    /// The median.
    pub p50_us: f64,
    /// The 95th percentile.
    pub p95_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The largest.
    pub max_us: f64,
}

/// Between which values a percentile of other seeds would probably lie.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The lower, microseconds.
    pub low_us: f64,
    /// The upper.
    pub high_us: f64,
}

/// Times fewer than this have no spread.
const LEAST: usize = 200;
/// More have none, as it would take long to draw from them.
const MOST: usize = 4_000_000;
/// Stretches of a run that are drawn from: flows near each other in time met the same queues.
const BLOCKS: usize = 20;
/// Times that are looked at in all.
const LOOKS: usize = 20_000_000;

/// The spread of the 99th percentile (95 %), from one run: its stretches of time are drawn again and again (a block bootstrap; Künsch
/// 1989). `times` are in the order in which they began, picoseconds.
pub fn p99_spread(times: &[u64]) -> Option<Spread> {
    if !(LEAST..=MOST).contains(&times.len()) {
        return None;
    }
    let blocks: Vec<&[u64]> = times.chunks(times.len().div_ceil(BLOCKS)).collect();
    let draws = (LOOKS / times.len()).clamp(40, 400);
    let mut random = Random::stream(1, times.len() as u64);
    let mut found = Vec::with_capacity(draws);
    let mut drawn = Vec::with_capacity(times.len());
    for _ in 0..draws {
        drawn.clear();
        for _ in 0..blocks.len() {
            let block = random.below(blocks.len() as u32);
            drawn.extend_from_slice(blocks[block as usize]);
        }
        let rank = (drawn.len() * 99).div_ceil(100).max(1) - 1;
        let (_, percentile, _) = drawn.select_nth_unstable(rank);
        found.push(*percentile);
    }
    found.sort_unstable();
    // 2.5 % on either side.
    let outside = draws / 40;
    Some(Spread {
        low_us: micros(found[outside]),
        high_us: micros(found[draws - 1 - outside]),
    })
}

/// Completion times in picoseconds, in order.
#[derive(Clone, Debug, Default)]
pub struct Times(Vec<u64>);

impl FromIterator<u64> for Times {
    fn from_iter<I: IntoIterator<Item = u64>>(times: I) -> Self {
        let mut times: Vec<u64> = times.into_iter().collect();
        times.sort_unstable();
        Times(times)
    }
}

impl Times {
    /// The nearest rank of `hundredths`; `None` of nothing.
    pub fn at(&self, hundredths: u64) -> Option<u64> {
        let rank = (self.0.len() as u64 * hundredths).div_ceil(100).max(1);
        self.0.get(rank as usize - 1).copied()
    }

    /// Their percentiles; `None` of nothing.
    pub fn percentiles(&self) -> Option<Percentiles> {
        let count = self.0.len() as u64;
        let sum: u128 = self.0.iter().map(|t| u128::from(*t)).sum();
        Some(Percentiles {
            count,
            mean_us: sum as f64 / (count.max(1)) as f64 / 1e6,
            p50_us: micros(self.at(50)?),
            p95_us: micros(self.at(95)?),
            p99_us: micros(self.at(99)?),
            max_us: micros(self.at(100)?),
        })
    }

    /// The distribution as points: time in microseconds, and how many of all are not above
    /// it, 0 to 1. Some hundred points, closer to each other towards the slowest.
    pub fn curve(&self) -> Vec<(f64, f64)> {
        const EVEN: usize = 200;
        let all = self.0.len();
        let mut ranks: BTreeSet<usize> = (1..=EVEN).map(|i| (all * i).div_ceil(EVEN)).collect();
        // The slowest nine tenths of what is left, again and again.
        let mut left = all;
        while left > 0 {
            ranks.insert(all - left + 1);
            left = if left > 10 { left * 9 / 10 } else { left - 1 };
        }
        ranks.insert(all);
        ranks
            .into_iter()
            .filter_map(|rank| {
                let time = self.0.get(rank.checked_sub(1)?)?;
                Some((micros(*time), rank as f64 / all as f64))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        // The textbook's example: 15, 20, 35, 40, 50.
        let times: Times = [40, 15, 50, 35, 20].into_iter().collect();
        for (hundredths, time) in [(5, 15), (30, 20), (40, 20), (50, 35), (100, 50)] {
            assert_eq!(times.at(hundredths), Some(time), "{hundredths}");
        }
        assert_eq!(Times::default().at(50), None);
        assert_eq!(Times::default().percentiles(), None);
        assert!(Times::default().curve().is_empty());
        assert_eq!(times.percentiles().map(|p| p.mean_us), Some(32e-6));
    }

    /// Independent exponential times: the 99th percentile of 10,000 lies within 5 % of ln(100) means for nineteen runs in twenty (the
    /// standard error of that order statistic is sqrt(99 / n) means, 2.2 %).
    #[test]
    fn a_spread_covers_what_other_seeds_give() {
        let run = |seed: u64| -> Vec<u64> {
            let mut random = Random::stream(seed, 0);
            let draw = |_| {
                let share = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
                (-(1.0 - share).ln() * 1e9) as u64
            };
            (0..10_000).map(draw).collect()
        };
        let truth = 100f64.ln() * 1e3;
        let mut covers = 0;
        for seed in 0..40 {
            let spread = p99_spread(&run(seed)).unwrap();
            covers += u32::from(spread.low_us <= truth && truth <= spread.high_us);
            let width = (spread.high_us - spread.low_us) / truth;
            assert!((0.04..0.14).contains(&width), "{width}");
        }
        assert!(covers >= 34, "{covers} of 40");
        assert_eq!(p99_spread(&[1; 199]), None);
    }

    #[test]
    fn a_curve_rises_from_the_first_to_the_last() {
        for count in [1, 2, 7, 1_000, 54_321] {
            let times: Times = (1..=count).map(|t| t * 1_000_000).collect();
            let curve = times.curve();
            assert_eq!(curve[0], (1.0, 1.0 / count as f64));
            assert_eq!(curve.last(), Some(&(count as f64, 1.0)));
            assert!(curve.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1));
            assert!(curve.len() < 400, "{}", curve.len());
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What the neck's link carries, and how much of it others use: from trains at two rates (Melander, Björkman, Gunningberg: "A
//! new end-to-end probing and analysis method for estimating bandwidth bottlenecks", Globecom 2000).
//!
//! Trains that come at a rate R to a first-in, first-out link of capacity C that others load with X, and that is full then,
//! leave at O = C · R / (R + X). So R / O = R / C + X / C is a line: its slope gives C, where it begins X. C − X
//! is what is left. A link that is not shared has X = 0.

use super::gaps::{TrainGaps, TrainsFinding};
use super::statistics::median;

/// Both rates must differ by this share of the lower one.
const LEAST_DIFFERENCE: f64 = 0.15;

/// A link's rates, bits of IP a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// What it carries in all.
    pub capacity_bps: f64,
    /// What others leave of it.
    pub available_bps: f64,
}

/// The rates at which trains come to the link of a finding, and leave it: the medians of the trains.
fn rates(trains: &[TrainGaps], finding: &TrainsFinding) -> Option<(f64, f64)> {
    let rate = |first: u8, last: u8| {
        let of_train = |gaps: &TrainGaps| {
            let slowness = gaps
                .range(first..=last)
                .map(|(_, gap)| gap.nanos / gap.octets);
            median(&slowness.collect::<Vec<f64>>())
        };
        let all: Vec<f64> = trains.iter().filter_map(of_train).collect();
        median(&all).map(|slowness| 8e9 / slowness)
    };
    let before = finding.links.least - 1;
    Some((
        rate(before, before)?,
        rate(finding.links.most, finding.last_hop)?,
    ))
}

/// The capacity of the link of a finding, by trains sent at once and trains sent at a lower rate; `None`: both came to
/// it at nearly the same rate, or do not lie on such a line.
#[must_use]
pub fn find(fast: &[TrainGaps], slow: &[TrainGaps], finding: &TrainsFinding) -> Option<Capacity> {
    let (fast_in, fast_out) = rates(fast, finding)?;
    let (slow_in, slow_out) = rates(slow, finding)?;
    if fast_in < slow_in * (1.0 + LEAST_DIFFERENCE) {
        return None;
    }
    let slope = (fast_in / fast_out - slow_in / slow_out) / (fast_in - slow_in);
    let others_share = (slow_in / slow_out - slow_in * slope).max(0.0);
    let capacity_bps = 1.0 / slope;
    // A link carries at least what trains left it at, and no more than they came at can be known of it.
    let is_possible = slope > 0.0 && capacity_bps >= fast_out * 0.9;
    is_possible.then_some(Capacity {
        capacity_bps,
        available_bps: capacity_bps * (1.0 - others_share).clamp(0.0, 1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::super::gaps::Gap;
    use super::super::links::Links;
    use super::*;
    use proptest::prelude::*;

    const OCTETS: f64 = 100_000.0;

    fn finding() -> TrainsFinding {
        TrainsFinding {
            links: Links { least: 3, most: 3 },
            confidence: 1.0,
            trains: 4,
            rate_bps: 1.0,
            rate_spread: (1.0, 1.0),
            last_hop: 5,
        }
    }

    /// Trains that come to hops 1 and 2 at one rate, and to hops 3 to 5 at another.
    fn trains(rate_in: f64, rate_out: f64) -> Vec<TrainGaps> {
        let gap = |hop: u8| {
            let rate = if hop < 3 { rate_in } else { rate_out };
            let nanos = OCTETS * 8e9 / rate;
            let octets = OCTETS;
            (hop, Gap { nanos, octets })
        };
        vec![(0..=5).map(gap).collect(); 4]
    }

    #[test]
    fn a_shared_link_has_a_capacity_and_what_others_leave() {
        // 100 Mbit/s, of which others use 70: trains of 100 leave at 100 · 100 / 170 = 58.8, those of 60 at 100 · 60 / 130
        // = 46.2 Mbit/s.
        let found = find(
            &trains(100e6, 100e8 / 170.0),
            &trains(60e6, 60e8 / 130.0),
            &finding(),
        );
        let found = found.expect("a line");
        assert!((found.capacity_bps / 100e6 - 1.0).abs() < 1e-9);
        assert!((found.available_bps / 30e6 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_narrow_link_has_all_of_its_rate_left() {
        let found = find(&trains(100e6, 40e6), &trains(40e6, 40e6), &finding()).expect("a line");
        assert!((found.capacity_bps / 40e6 - 1.0).abs() < 1e-9);
        assert!((found.available_bps / 40e6 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn rates_that_are_nearly_the_same_say_nothing() {
        assert_eq!(
            find(&trains(100e6, 50e6), &trains(90e6, 48e6), &finding()),
            None
        );
        // Faster trains that leave the faster the more there is of them lie on no such line.
        assert_eq!(
            find(&trains(100e6, 100e6), &trains(50e6, 20e6), &finding()),
            None
        );
        assert_eq!(find(&[], &[], &finding()), None);
    }

    proptest! {
        #[test]
        fn any_shared_link_is_found(capacity in 10e6f64..1e9, share in 0.0f64..0.95) {
            let others = capacity * share;
            let out = |rate: f64| capacity * rate / (rate + others);
            let fast = capacity;
            let slow = out(fast).max(capacity - others).min(fast / 1.2);
            prop_assume!(slow > capacity - others);
            let found = find(&trains(fast, out(fast)), &trains(slow, out(slow)), &finding()).expect("a line");
            prop_assert!((found.capacity_bps / capacity - 1.0).abs() < 1e-6);
            prop_assert!((found.available_bps - (capacity - others)).abs() < 1e-6 * capacity);
        }
    }
}

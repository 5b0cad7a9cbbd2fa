// SPDX-License-Identifier: Apache-2.0
//! Queues over time: from samples to what they were like.
//!
//! A queue keeps its length from one sample to the next, and is empty before the first.

use slowpath_netsim::engine::SwitchId;
use slowpath_netsim::results::QueueSample;
use slowpath_switch::{PortId, Time};
use std::collections::BTreeMap;

/// One queue's lengths in packets, in the order of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// Its switch.
    pub switch: SwitchId,
    /// Its port.
    pub port: PortId,
    steps: Vec<(u64, u32)>,
    /// What it was like counts from here on: the warm-up is over.
    from: u64,
    end: u64,
}

/// What a queue was like in one stretch of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// The least.
    pub least: u32,
    /// The mean over time.
    pub mean: f64,
    /// The most.
    pub most: u32,
}

/// The samples by queue; what queues were like counts from `from` on, to `end`.
pub fn series(samples: &[QueueSample], from: Time, end: Time) -> Vec<Series> {
    let mut by_port: BTreeMap<(SwitchId, PortId), Vec<(u64, u32)>> = BTreeMap::new();
    for sample in samples {
        let steps = by_port.entry((sample.switch, sample.port)).or_default();
        steps.push((sample.at.0.min(end.0), sample.packets));
    }
    by_port
        .into_iter()
        .map(|((switch, port), steps)| Series {
            switch,
            port,
            steps,
            from: from.0.min(end.0),
            end: end.0,
        })
        .collect()
}

impl Series {
    /// Every length and from when to when it lasted.
    fn lasted(&self) -> impl Iterator<Item = (u64, u64, u32)> + '_ {
        let starts = std::iter::once((0, 0)).chain(self.steps.iter().copied());
        let ends = self.steps.iter().map(|step| step.0).chain([self.end]);
        starts
            .zip(ends)
            .map(|((from, packets), to)| (from, to.max(from), packets))
    }

    /// The same without the warm-up.
    fn counted(&self) -> impl Iterator<Item = (u64, u64, u32)> + '_ {
        let start = self.from;
        let all = self.lasted();
        let counted = all.filter(move |(from, to, _)| *from >= start || *to > start);
        counted.map(move |(from, to, packets)| (from.max(start), to, packets))
    }

    /// The most packets that waited.
    pub fn most(&self) -> u32 {
        let lengths = self.counted().map(|(_, _, packets)| packets);
        lengths.max().unwrap_or(0)
    }

    /// The mean over time, in packets.
    pub fn mean(&self) -> f64 {
        let area: u128 = self
            .counted()
            .map(|(from, to, packets)| u128::from(to - from) * u128::from(packets))
            .sum();
        area as f64 / (self.end - self.from).max(1) as f64
    }

    /// The lengths that the queue did not exceed for `hundredths` of the time.
    pub fn percentiles<const N: usize>(&self, hundredths: [u64; N]) -> [u32; N] {
        let mut time: BTreeMap<u32, u64> = BTreeMap::new();
        for (from, to, packets) in self.counted() {
            *time.entry(packets).or_default() += to - from;
        }
        let all: u128 = time.values().map(|t| u128::from(*t)).sum();
        hundredths.map(|share| {
            let mut sum = 0;
            for (packets, lasted) in &time {
                sum += u128::from(*lasted);
                if sum * 100 >= all * u128::from(share) {
                    return *packets;
                }
            }
            0
        })
    }

    /// How long each of `count` stretches is, in picoseconds.
    pub fn stretch_length(&self, count: usize) -> u64 {
        self.end.div_ceil(count.max(1) as u64).max(1)
    }

    /// `count` stretches of equal length.
    pub fn stretches(&self, count: usize) -> Vec<Stretch> {
        let count = count.max(1);
        let width = self.stretch_length(count);
        let mut areas = vec![0u128; count];
        let mut bounds = vec![(u32::MAX, 0u32); count];
        for (from, to, packets) in self.lasted() {
            let stretch = |at: u64| ((at / width) as usize).min(count - 1);
            for at in stretch(from)..=stretch(to) {
                let begin = at as u64 * width;
                let inside = to.min(begin + width).saturating_sub(from.max(begin));
                areas[at] += u128::from(inside) * u128::from(packets);
                // A length that ends where the stretch begins is not in it.
                if inside > 0 || from >= begin {
                    bounds[at].0 = bounds[at].0.min(packets);
                    bounds[at].1 = bounds[at].1.max(packets);
                }
            }
        }
        (0..count)
            .map(|at| {
                let length = width.min(self.end.saturating_sub(at as u64 * width));
                Stretch {
                    least: bounds[at].0.min(bounds[at].1),
                    mean: areas[at] as f64 / length.max(1) as f64,
                    most: bounds[at].1,
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(steps: &[(u64, u32)], end: u64) -> Series {
        after(0, steps, end)
    }

    fn after(from: u64, steps: &[(u64, u32)], end: u64) -> Series {
        let sample = |&(at, packets): &(u64, u32)| QueueSample {
            at: Time(at),
            switch: SwitchId(3),
            port: PortId(1),
            packets,
            bytes: 0,
        };
        let samples: Vec<_> = steps.iter().map(sample).collect();
        series(&samples, Time(from), Time(end)).remove(0)
    }

    #[test]
    fn lengths_count_by_the_time_they_last() {
        // 0 for 10, 4 for 30, 1 for 60.
        let queue = of(&[(10, 4), (40, 1)], 100);
        assert_eq!(queue.mean(), 1.8);
        assert_eq!(queue.most(), 4);
        assert_eq!(
            queue.percentiles([5, 10, 50, 70, 71, 100]),
            [0, 0, 1, 1, 4, 4]
        );
    }

    #[test]
    fn the_warm_up_is_no_part_of_what_a_queue_was_like() {
        // From 20 on: 4 for 20, 1 for 60. The 9 were over before.
        let queue = after(20, &[(5, 9), (10, 4), (40, 1)], 100);
        assert_eq!(queue.mean(), 140.0 / 80.0);
        assert_eq!(queue.most(), 4);
        assert_eq!(queue.percentiles([50, 75, 76]), [1, 1, 4]);
        // What ends where the warm-up ends is over; what begins there counts.
        assert_eq!(after(10, &[(5, 9), (10, 4), (40, 1)], 100).most(), 4);
        // Charts show all of it.
        assert_eq!(queue.stretches(10)[0].most, 9);
    }

    #[test]
    fn stretches_add_up_to_the_whole() {
        let queue = of(&[(10, 4), (40, 1), (90, 7), (90, 0)], 100);
        let stretches = queue.stretches(10);
        let least: Vec<u32> = stretches.iter().map(|s| s.least).collect();
        let most: Vec<u32> = stretches.iter().map(|s| s.most).collect();
        assert_eq!(least, [0, 4, 4, 4, 1, 1, 1, 1, 1, 0]);
        assert_eq!(most, [0, 4, 4, 4, 1, 1, 1, 1, 1, 7]);
        for count in [1, 3, 7, 100, 1000] {
            let stretches = queue.stretches(count);
            let width = 100u64.div_ceil(count as u64) as f64;
            let area: f64 = (stretches.iter().enumerate())
                .map(|(at, s)| s.mean * (100.0 - at as f64 * width).clamp(0.0, width))
                .sum();
            assert!(
                (area / 100.0 - queue.mean()).abs() < 1e-9,
                "{count}: {area}"
            );
        }
    }
}

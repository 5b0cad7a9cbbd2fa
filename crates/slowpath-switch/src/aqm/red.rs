// SPDX-License-Identifier: Apache-2.0
//! Random early detection.

use super::{AqmError, ONE, Passing, Verdict};
use crate::config::Threshold;
use crate::random::Random;
use crate::time::{Rate, Time};

/// Binary digits of the average behind the point.
const FRACTION: u32 = 16;
/// Picoseconds a second, times bits a byte.
const PICOSECONDS_TIMES_BITS: u128 = 8_000_000_000_000;

/// Random early detection (Floyd and Jacobson 1993). Where the average length is between the
/// thresholds, packets are dropped or marked with a probability that grows up to `probability`, and
/// at distances that are uniformly distributed (section 7 there); above the upper one, all are
/// dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Red {
    /// Below it nothing happens. In the unit of `max`.
    pub min: Threshold,
    /// From it on everything is dropped, or with `gentle` from twice as much.
    pub max: Threshold,
    /// Just below the upper threshold, in 2^-32: 1 to 2^32.
    pub probability: u64,
    /// The average moves by 2^-`weight` of the difference at each packet: 1 to 16.
    pub weight: u32,
    /// Bytes of a typical packet: what an idle line could have sent decides how far the average
    /// falls.
    pub mean_packet: u32,
    /// From the upper threshold to twice as much the probability grows to 1 (Floyd, Recommendation
    /// on using the gentle variant of RED, 2000).
    pub gentle: bool,
    /// Marks ECN-capable packets below the point from which everything is dropped.
    pub ecn: bool,
}

impl Red {
    /// Thresholds in one unit; the probability of 1/10, the weight of 1/512 (0.002 in the paper)
    /// and the gentle variant.
    pub fn new(min: Threshold, max: Threshold) -> Self {
        Red {
            min,
            max,
            probability: ONE / 10,
            weight: 9,
            mean_packet: 1_000,
            gentle: true,
            ecn: true,
        }
    }

    /// Thresholds, as averages are written.
    fn thresholds(&self) -> Result<(u64, u64), AqmError> {
        let (min, max) = match (self.min, self.max) {
            (Threshold::Packets(min), Threshold::Packets(max)) => (min.into(), max.into()),
            (Threshold::Bytes(min), Threshold::Bytes(max)) => (min, max),
            _ => return Err(AqmError::Thresholds),
        };
        let most = u64::MAX >> (FRACTION + 2);
        if min < max && max < most {
            Ok((min << FRACTION, max << FRACTION))
        } else {
            Err(AqmError::Thresholds)
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    config: Red,
    min: u64,
    max: u64,
    average: u64,
    /// Packets since the last that was dropped or marked; `None` below the lower threshold.
    count: Option<u64>,
    /// Since when the queue is empty; `None`: it is not.
    idle_since: Option<Time>,
}

impl State {
    pub fn new(config: Red) -> Result<Self, AqmError> {
        let (min, max) = config.thresholds()?;
        if !(1..=ONE).contains(&config.probability) {
            return Err(AqmError::Probability);
        }
        if !(1..=16).contains(&config.weight) {
            return Err(AqmError::Weight);
        }
        Ok(State {
            config,
            min,
            max,
            average: 0,
            count: None,
            idle_since: Some(Time::ZERO),
        })
    }

    pub fn arrives(&mut self, packet: Passing, random: &mut Random) -> Verdict {
        self.follow(packet);
        let all = if self.config.gentle {
            2 * self.max
        } else {
            self.max
        };
        if self.average >= all {
            self.count = Some(0);
            return Verdict::Drop;
        }
        if self.average < self.min {
            self.count = None;
            return Verdict::Pass;
        }
        let count = self.count.map_or(0, |count| count + 1);
        self.count = Some(count);
        let probability = self.probability();
        // p / (1 - count * p), and certain where that is no probability.
        let rest = u128::from(count) * u128::from(probability);
        let certain = rest >= u128::from(ONE - probability);
        let drawn = u128::from(random.next_u64() >> 32) * (u128::from(ONE).saturating_sub(rest));
        if certain || drawn < u128::from(probability) * u128::from(ONE) {
            self.count = Some(0);
            Verdict::signal(packet.capable && self.config.ecn)
        } else {
            Verdict::Pass
        }
    }

    pub fn leaves(&mut self, packet: Passing) {
        if packet.queue.packets == 0 {
            self.idle_since = Some(packet.now);
        }
    }

    /// The average takes in the queue that a packet finds.
    fn follow(&mut self, packet: Passing) {
        let since = self.idle_since.filter(|_| packet.queue.packets == 0);
        // It may not join the queue.
        self.idle_since = since.map(|_| packet.now);
        if let Some(since) = since {
            let packets = self.missed(packet.now.since(since).0, packet.rate);
            let kept = power(ONE - (ONE >> self.config.weight), packets);
            // Below the average: `kept` is below 1.
            self.average = ((u128::from(self.average) * u128::from(kept)) >> 32) as u64;
        }
        let length = match self.config.max {
            Threshold::Packets(_) => u64::from(packet.queue.packets),
            Threshold::Bytes(_) => packet.queue.bytes,
        };
        let length = length.min(u64::MAX >> (FRACTION + 1)) << FRACTION;
        let weight = self.config.weight;
        self.average = self.average - (self.average >> weight) + (length >> weight);
    }

    /// How many typical packets the line could have sent meanwhile.
    fn missed(&self, picoseconds: u64, rate: Rate) -> u64 {
        let bits = u128::from(picoseconds) * u128::from(rate.bits_per_second());
        let packet = u128::from(self.config.mean_packet.max(1)) * PICOSECONDS_TIMES_BITS;
        u64::try_from(bits / packet).unwrap_or(u64::MAX)
    }

    /// p_b of the paper; above the upper threshold that of the gentle variant.
    fn probability(&self) -> u64 {
        let most = self.config.probability;
        let (base, rise, done, way) = match self.average.checked_sub(self.max) {
            None => (0, most, self.average - self.min, self.max - self.min),
            Some(above) => (most, ONE - most, above, self.max),
        };
        // At most ONE: `done` is at most `way`.
        base + (u128::from(rise) * u128::from(done) / u128::from(way.max(1))) as u64
    }
}

/// `base` to the power of `exponent`, both bases and results in 2^-32.
fn power(mut base: u64, mut exponent: u64) -> u64 {
    let mut result = ONE;
    while exponent > 0 && result > 0 {
        if exponent & 1 == 1 {
            result = ((u128::from(result) * u128::from(base)) >> 32) as u64;
        }
        base = ((u128::from(base) * u128::from(base)) >> 32) as u64;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Depth;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn packet(now: u64, packets: u32) -> Passing {
        Passing {
            now: Time::from_nanos(now),
            queue: Depth {
                bytes: u64::from(packets) * 1_000,
                packets,
            },
            leaving: false,
            bytes: 1_000,
            capable: false,
            rate: Rate::from_bits_per_second(8_000_000).unwrap(),
        }
    }

    fn red() -> Red {
        Red::new(Threshold::Packets(5), Threshold::Packets(15))
    }

    proptest! {
        /// The average of the paper in floating point. 1,000 bytes take a millisecond.
        #[test]
        fn the_average_is_that_of_the_paper(steps in prop::collection::vec((0u64..5_000, 0u32..40), 1..300)) {
            let mut state = State::new(red()).unwrap();
            let (mut average, mut now, mut idle) = (0f64, 0u64, Some(0u64));
            for (microseconds, length) in steps {
                now += microseconds * 1_000;
                if length == 0 && let Some(since) = idle {
                    let packets = ((now - since) / 1_000_000) as i32;
                    average *= (1.0f64 - 1.0 / 512.0).powi(packets);
                }
                idle = (length == 0 && idle.is_some()).then_some(now);
                average += (f64::from(length) - average) / 512.0;
                state.arrives(packet(now, length), &mut Random::new(1));
                let ours = state.average as f64 / f64::from(1 << FRACTION);
                prop_assert!((ours - average).abs() < 0.02, "{ours} {average}");
                if length < 2 {
                    // The last one leaves.
                    state.leaves(packet(now, 0));
                    idle = Some(now);
                }
            }
        }
    }

    /// Between the thresholds drops are at distances uniform in 1 to 1/p - 1: section 7 of the paper has
    /// them up to 1/p, but its algorithm counts the first packet after a drop as 1.
    #[test]
    fn distances_of_drops_are_uniform() {
        let mut state = State::new(Red {
            probability: ONE / 10,
            ..red()
        })
        .unwrap();
        let mut random = Random::new(7);
        // Half way: p is 1/20.
        state.average = 10 << FRACTION;
        let (mut distances, mut since) = (Vec::new(), 0u32);
        for number in 0..200_000u64 {
            since += 1;
            if state.arrives(packet(number, 10), &mut random) == Verdict::Drop {
                distances.push(since);
                since = 0;
            }
        }
        let mean = f64::from(distances.iter().sum::<u32>()) / distances.len() as f64;
        assert!((mean - 10.0).abs() < 0.2, "{mean}");
        assert!(distances.iter().all(|distance| *distance < 20));
        let short = distances.iter().filter(|distance| **distance <= 5).count();
        let share = short as f64 / distances.len() as f64;
        assert!((share - 5.0 / 19.0).abs() < 0.02, "{share}");
    }

    #[test]
    fn thresholds_decide() {
        let verdict = |red: Red, average: u64, capable| {
            let mut state = State::new(red).unwrap();
            state.average = average << FRACTION;
            let packet = Passing {
                capable,
                ..packet(0, average as u32)
            };
            state.arrives(packet, &mut Random::new(3))
        };
        let abrupt = Red {
            gentle: false,
            ..red()
        };
        assert_eq!(verdict(red(), 4, false), Verdict::Pass);
        assert_eq!(verdict(abrupt, 15, false), Verdict::Drop);
        // RFC 3168 section 7: above the upper threshold also what could be marked.
        assert_eq!(verdict(abrupt, 15, true), Verdict::Drop);
        assert_eq!(verdict(red(), 30, true), Verdict::Drop);
        let certain = Red {
            probability: ONE,
            ..red()
        };
        assert_eq!(verdict(certain, 20, true), Verdict::Mark);
        assert_eq!(verdict(certain, 20, false), Verdict::Drop);
        let wrong = Red::new(Threshold::Packets(5), Threshold::Bytes(15));
        assert_eq!(State::new(wrong).err(), Some(AqmError::Thresholds));
    }
}

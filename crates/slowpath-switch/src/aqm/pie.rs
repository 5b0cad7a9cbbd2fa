// SPDX-License-Identifier: Apache-2.0
//! Proportional integral controller enhanced.

use super::{AqmError, Passing, Verdict};
use crate::queue::Depth;
use crate::random::Random;
use crate::time::{Rate, Span, Time};

/// No time is longer.
const MOST: Span = Span::from_millis(1_000_000);
/// A probability of 1: small ones change by parts of 2^-32.
const ONE: i128 = 1 << 48;
/// Picoseconds a second.
const SECOND: i128 = 1_000_000_000_000;
/// A queue of two such packets is never too long (RFC 8033 section 4.1).
const MEAN_PACKET: u64 = 1_500;
/// Of the probability, from which on nothing is marked any more (section 5.1).
const MARK_UP_TO: i128 = ONE / 10;
/// By which the change of the probability is divided while it is below a bound (section 4.2).
const SCALES: [(i128, u128); 6] = [
    (ONE / 1_000_000, 2048),
    (ONE / 100_000, 512),
    (ONE / 10_000, 128),
    (ONE / 1_000, 32),
    (ONE / 100, 8),
    (ONE / 10, 2),
];

/// Proportional integral controller enhanced (RFC 8033): drops with a probability that follows the
/// waiting time's distance from the target (1/8 Hz) and its change (5/4 Hz). The waiting time is
/// what the queue holds over the rate of the line, which a switch knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pie {
    /// The waiting time that is wanted.
    pub target: Span,
    /// From one change of the probability to the next.
    pub update: Span,
    /// For how long a queue that was short may grow before anything is dropped.
    pub burst: Span,
    /// Marks ECN-capable packets instead, while the probability is below 1/10.
    pub ecn: bool,
}

impl Default for Pie {
    /// 15 ms, 15 ms and 150 ms (RFC 8033 sections 4.2 and 4.4).
    fn default() -> Self {
        Pie {
            target: Span::from_millis(15),
            update: Span::from_millis(15),
            burst: Span::from_millis(150),
            ecn: true,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    config: Pie,
    probability: i128,
    /// The waiting time at the last change, in picoseconds.
    before: i128,
    burst: Span,
    next_update: Time,
}

/// How long what a queue holds takes, in picoseconds.
fn waiting(queue: Depth, rate: Rate) -> i128 {
    let bits = i128::from(queue.bytes) * 8;
    quotient(bits * SECOND, u128::from(rate.bits_per_second().max(1)))
}

/// `value / by` towards zero. A division of signed 128-bit numbers needs a function that a library
/// without unwinding cannot link.
fn quotient(value: i128, by: u128) -> i128 {
    // Below 2^127, as the value is.
    let magnitude = (value.unsigned_abs() / by) as i128;
    if value < 0 { -magnitude } else { magnitude }
}

impl State {
    pub fn new(config: Pie) -> Result<Self, AqmError> {
        let good = |time: Span| time > Span::ZERO && time <= MOST;
        if !good(config.target) || !good(config.update) || config.burst > MOST {
            return Err(AqmError::Time);
        }
        Ok(State {
            config,
            probability: 0,
            before: 0,
            burst: config.burst,
            next_update: Time::ZERO + config.update,
        })
    }

    pub fn arrives(&mut self, packet: Passing, random: &mut Random) -> Verdict {
        self.advance(packet);
        if self.burst > Span::ZERO {
            return Verdict::Pass;
        }
        let calm = self.before < self.target() / 2 && self.probability < ONE / 5;
        if calm || packet.queue.bytes <= 2 * MEAN_PACKET {
            return Verdict::Pass;
        }
        if i128::from(random.next_u64() >> 16) >= self.probability {
            return Verdict::Pass;
        }
        let mark = packet.capable && self.config.ecn;
        Verdict::signal(mark && self.probability < MARK_UP_TO)
    }

    /// Makes up for the changes that were due. Nothing came or went since the last call.
    pub fn advance(&mut self, packet: Passing) {
        let queue = match packet.queue {
            // It has not left yet.
            queue if packet.leaving => Depth {
                bytes: queue.bytes + u64::from(packet.bytes),
                packets: queue.packets + 1,
            },
            queue => queue,
        };
        let now = waiting(queue, packet.rate);
        while self.next_update <= packet.now {
            if self.is_at_rest(now) {
                let missed = packet.now.since(self.next_update).0 / self.config.update.0;
                self.next_update += Span(self.config.update.0 * (missed + 1));
                break;
            }
            self.update(now);
            self.next_update += self.config.update;
        }
    }

    /// Whether changes change nothing.
    fn is_at_rest(&self, waiting: i128) -> bool {
        waiting == 0 && self.before == 0 && self.probability == 0 && self.burst == self.config.burst
    }

    fn target(&self) -> i128 {
        i128::from(self.config.target.0)
    }

    /// `calculate_drop_prob` of RFC 8033's appendix A.
    fn update(&mut self, waiting: i128) {
        let target = self.target();
        let (distance, change) = (waiting - target, waiting - self.before);
        let eighths = distance * ONE + change * ONE * 10;
        let scale = SCALES.iter().find(|(below, _)| self.probability < *below);
        let scale = scale.map_or(1, |(_, by)| *by);
        let mut step = quotient(eighths, 8 * SECOND.unsigned_abs() * scale);
        if self.probability >= ONE / 10 {
            // Section 5.5.
            step = step.min(ONE / 50);
        }
        self.probability += step;
        if waiting == 0 && self.before == 0 {
            self.probability = quotient(self.probability * 49, 50);
        }
        self.probability = self.probability.clamp(0, ONE);
        let calm = waiting < target / 2 && self.before < target / 2;
        self.before = waiting;
        self.burst = Span(self.burst.0.saturating_sub(self.config.update.0));
        if calm && self.probability == 0 {
            self.burst = self.config.burst;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(now: Time, bytes: u64) -> Passing {
        Passing {
            now,
            queue: Depth {
                bytes,
                packets: (bytes / 1_000) as u32,
            },
            leaving: false,
            bytes: 1_000,
            capable: false,
            rate: Rate::from_bits_per_second(8_000_000).unwrap(),
        }
    }

    /// `calculate_drop_prob` of RFC 8033's appendix A, in seconds and floating point.
    struct Reference {
        probability: f64,
        before: f64,
        burst: f64,
    }

    impl Reference {
        fn update(&mut self, delay: f64) {
            let mut p = 0.125 * (delay - 0.015) + 1.25 * (delay - self.before);
            p /= match self.probability {
                it if it < 0.000_001 => 2048.0,
                it if it < 0.000_01 => 512.0,
                it if it < 0.000_1 => 128.0,
                it if it < 0.001 => 32.0,
                it if it < 0.01 => 8.0,
                it if it < 0.1 => 2.0,
                _ => 1.0,
            };
            if self.probability >= 0.1 && p > 0.02 {
                p = 0.02;
            }
            self.probability += p;
            if delay == 0.0 && self.before == 0.0 {
                self.probability *= 0.98;
            }
            self.probability = self.probability.clamp(0.0, 1.0);
            let calm = delay < 0.0075 && self.before < 0.0075;
            self.before = delay;
            self.burst = (self.burst - 0.015).max(0.0);
            if calm && self.probability == 0.0 {
                self.burst = 0.15;
            }
        }
    }

    proptest! {
        /// Each queue lasts for one update; 1,000 bytes wait for a millisecond.
        #[test]
        fn the_probability_is_that_of_the_rfc(queues in prop::collection::vec(0u64..80_000, 1..200)) {
            let mut state = State::new(Pie::default()).unwrap();
            let mut reference = Reference { probability: 0.0, before: 0.0, burst: 0.15 };
            for (number, bytes) in queues.into_iter().enumerate() {
                let now = Time::ZERO + Span::from_millis(15 * (number as u64 + 1));
                state.advance(packet(now, bytes));
                reference.update(bytes as f64 / 1e6);
                let ours = state.probability as f64 / ONE as f64;
                prop_assert!((ours - reference.probability).abs() < 1e-9, "{ours} {}", reference.probability);
                prop_assert!((state.burst.0 as f64 / 1e12 - reference.burst).abs() < 1e-9);
            }
        }

        /// A rest of any length changes nothing but the probability, which fades.
        #[test]
        fn updates_that_were_missed_are_made_up_for(gap in 1u64..100_000) {
            let mut late = State::new(Pie::default()).unwrap();
            let mut steady = late.clone();
            for state in [&mut late, &mut steady] {
                for number in 1..40 {
                    state.advance(packet(Time::ZERO + Span::from_millis(15 * number), 60_000));
                }
            }
            let end = Time::ZERO + Span::from_millis(15 * 40 + gap);
            late.advance(packet(end, 0));
            for ms in 15 * 40..=15 * 40 + gap {
                steady.advance(packet(Time::ZERO + Span::from_millis(ms), 0));
            }
            prop_assert_eq!(late.probability, steady.probability);
            prop_assert_eq!(late.burst, steady.burst);
            prop_assert_eq!(late.next_update, steady.next_update);
        }
    }

    #[test]
    fn a_burst_passes_and_a_standing_queue_does_not() {
        let mut state = State::new(Pie::default()).unwrap();
        let mut random = Random::new(5);
        let mut dropped = [0; 2];
        for ms in 0..3_000u64 {
            let packet = packet(Time::ZERO + Span::from_millis(ms), 60_000);
            let verdict = state.arrives(packet, &mut random);
            dropped[usize::from(ms >= 150)] += u32::from(verdict == Verdict::Drop);
        }
        assert_eq!(dropped[0], 0);
        assert!(dropped[1] > 100, "{dropped:?}");
        // Two packets are no queue.
        assert_eq!(
            state.arrives(
                packet(Time::ZERO + Span::from_millis(3_001), 3_000),
                &mut random
            ),
            Verdict::Pass
        );
    }
}

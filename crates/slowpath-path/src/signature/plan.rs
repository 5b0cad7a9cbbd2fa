// SPDX-License-Identifier: Apache-2.0
//! Which packets are sent when.
//!
//! Two sessions run side by side, one of small packets and one of full ones, and go through the same
//! cycle again and again, so that a path that changes over minutes changes for every cell alike. A cycle of
//! [`CYCLE`] has four parts:
//!
//! 1. both sizes one by one: at low rate, with gaps that vary, so that no period of the path stays hidden;
//! 2. full packets in *trains*, one directly after the other;
//! 3. small packets in trains;
//! 4. full packets *paced*, at four rates up to the largest.

use crate::schedule::{Slot, Slots};
use crate::time::Span;
use serde::Serialize;
use std::time::Duration;

/// A cycle.
pub const CYCLE: Duration = Duration::from_millis(9_000);

/// Packets of a train: first [`BODY`] directly after each other, then one at each of `TAIL_NS`.
pub const TRAIN: u32 = BODY + TAIL_NS.len() as u32;

/// Packets of a train that directly follow each other.
pub const BODY: u32 = 42;

/// Before each packet at the end of a train: however slow the bottleneck, one of them comes when its queue is full or
/// was a moment before.
const TAIL_NS: [i64; 8] = [
    200_000, 400_000, 800_000, 1_600_000, 3_200_000, 6_400_000, 12_800_000, 25_600_000,
];

/// What the sessions take besides their cycles: agreeing, starting, waiting for the last packets.
pub const AROUND: Duration = Duration::from_secs(4);

/// The part of single packets.
const SINGLE_NS: i64 = 3_900_000_000;

/// Of a cycle.
const SMALL_SINGLE: u32 = 1_950;

/// Of a cycle: 1.5 Mbit/s of 1,500 octets.
const FULL_SINGLE: u32 = 487;

/// Before each train.
const TRAIN_GAP_NS: i64 = 150_000_000;

/// Trains of full packets of a cycle.
const FULL_TRAINS: u32 = 8;

/// Trains of small packets of a cycle.
const SMALL_TRAINS: u32 = 4;

/// Before each stretch of paced packets: what the one before left in queues has gone, and a policer has its
/// tokens back.
const PACED_GAP_NS: i64 = 300_000_000;

/// The longest stretch of paced packets.
const PACED_NS: f64 = 350_000_000.0;

/// Paced packets of a cycle at the most: with the others they fit the 4,096 slots that a server takes.
const MOST_PACED: f64 = 2_900.0;

/// Rates of paced packets, as parts of the largest.
const RATES: [f64; 4] = [0.1, 0.24, 0.5, 1.0];

/// How large a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// Headers only.
    Small,
    /// As long as is asked for, the largest that the path carries.
    Full,
}

/// How packets follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// Far from each other.
    Single,
    /// Directly after each other.
    Train,
    /// At a rate.
    Paced,
}

/// A part of a session's cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// How its packets follow each other.
    pub traffic: Traffic,
    /// Their rate while the part lasts, bit/s of IP; of trains 0: as fast as the host can.
    pub rate_bps: u64,
    /// How many.
    pub packets: u32,
}

/// One session's share of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionPlan {
    /// Of which size.
    pub size: Size,
    /// Octets of a packet from the IP header on.
    pub bytes: u32,
    /// Its schedule: one cycle.
    pub slots: Slots,
    /// The parts of a cycle in their order.
    pub parts: Vec<Part>,
    /// Packets in all.
    pub packets: u32,
}

impl SessionPlan {
    /// Packets of a cycle.
    #[must_use]
    pub fn of_cycle(&self) -> u32 {
        self.parts.iter().map(|part| part.packets).sum()
    }

    /// Where a packet belongs: its cycle, its part, its place in that.
    #[must_use]
    pub fn place(&self, sequence: u32) -> Option<(u32, usize, u32)> {
        let (cycle, mut index) = (sequence / self.of_cycle(), sequence % self.of_cycle());
        for (number, part) in self.parts.iter().enumerate() {
            if index < part.packets {
                return Some((cycle, number, index));
            }
            index -= part.packets;
        }
        None
    }
}

/// The experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Small packets.
    pub small: SessionPlan,
    /// Full ones.
    pub full: SessionPlan,
    /// How often each goes through its cycle.
    pub cycles: u32,
}

/// Why there is no such experiment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Less than a cycle.
    #[error("{given:?} is too short: a cycle and what is around it take {least:?}")]
    TooShort {
        /// What was given.
        given: Duration,
        /// The least.
        least: Duration,
    },
    /// The rates would not differ from single packets.
    #[error("{given} bit/s is too slow: the rates to compare begin at {least}")]
    TooSlow {
        /// What was given.
        given: u64,
        /// The least.
        least: u64,
    },
    /// Full packets are no larger than small ones.
    #[error("packets of {full} octets are too small beside those of {small}: write 576 or more")]
    TooSmall {
        /// What was given.
        full: u32,
        /// Small ones.
        small: u32,
    },
}

/// A source of gaps: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
struct Gaps(u64);

impl Gaps {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Gaps of a half to one and a half of their mean, that come to `whole`.
    fn of(&mut self, packets: u32, whole: i64) -> Vec<i64> {
        let weights: Vec<f64> = (0..packets)
            .map(|_| 0.5 + (self.next() >> 11) as f64 / (1u64 << 53) as f64)
            .collect();
        let sum: f64 = weights.iter().sum();
        let scale = whole as f64 / sum;
        weights
            .iter()
            .map(|weight| (weight * scale) as i64)
            .collect()
    }
}

/// Slots and parts as they are collected.
#[derive(Default)]
struct Cycle {
    gaps: Vec<i64>,
    parts: Vec<Part>,
    /// Time that nothing was sent in: it belongs before the next packet.
    pause: i64,
}

impl Cycle {
    fn part(&mut self, traffic: Traffic, rate_bps: u64, gaps: Vec<i64>) {
        self.parts.push(Part {
            traffic,
            rate_bps,
            packets: gaps.len() as u32,
        });
        let at = self.gaps.len();
        self.gaps.extend(gaps);
        self.gaps[at] += std::mem::take(&mut self.pause);
    }

    fn trains(&mut self, trains: u32) {
        let mut gaps = Vec::new();
        for _ in 0..trains {
            gaps.push(TRAIN_GAP_NS);
            gaps.extend(std::iter::repeat_n(0, BODY as usize - 1));
            gaps.extend(TAIL_NS);
        }
        self.part(Traffic::Train, 0, gaps);
    }

    /// One more packet ends the cycle, so that both sessions' are equally long and stay side by side.
    fn finish(mut self, size: Size, bytes: u32, cycles: u32) -> SessionPlan {
        let whole: i64 = self.gaps.iter().sum();
        let rest = i64::try_from(CYCLE.as_nanos()).unwrap_or(i64::MAX) - whole;
        self.pause = 0;
        self.part(Traffic::Single, self.parts[0].rate_bps, vec![rest]);
        let packets = self.gaps.len() as u32 * cycles;
        let slot = |gap: &i64| {
            Slot::Fixed(Span::from_duration(Duration::from_nanos(
                gap.unsigned_abs(),
            )))
        };
        let slots = Slots::new(self.gaps.iter().map(slot).collect());
        SessionPlan {
            size,
            bytes,
            slots: slots.expect("a cycle has packets"),
            parts: self.parts,
            packets,
        }
    }
}

impl Plan {
    /// The shortest experiment.
    pub const SHORTEST: Duration = CYCLE.saturating_add(AROUND);

    /// The least that the largest rate can be, bit/s.
    pub const SLOWEST: u64 = 20_000_000;

    /// Plans an experiment of `whole`, with packets of `small` and `full` octets from the IP header on, at up to
    /// `max_rate` bit/s. `seed` draws the gaps of single packets.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn new(
        whole: Duration,
        (small, full): (u32, u32),
        max_rate: u64,
        seed: u64,
    ) -> Result<Self, PlanError> {
        if whole < Self::SHORTEST {
            return Err(PlanError::TooShort {
                given: whole,
                least: Self::SHORTEST,
            });
        }
        if max_rate < Self::SLOWEST {
            return Err(PlanError::TooSlow {
                given: max_rate,
                least: Self::SLOWEST,
            });
        }
        if full < 576 || full < 3 * small {
            return Err(PlanError::TooSmall { full, small });
        }
        let cycles = ((whole - AROUND).as_nanos() / CYCLE.as_nanos()) as u32;
        let mut gaps = Gaps(seed);
        let mut of_small = Cycle::default();
        let rate = |packets: u32, bytes: u32| {
            8_000_000_000 * u64::from(packets) * u64::from(bytes) / SINGLE_NS as u64
        };
        of_small.part(
            Traffic::Single,
            rate(SMALL_SINGLE, small),
            gaps.of(SMALL_SINGLE, SINGLE_NS),
        );
        // While full packets go in trains.
        let train = TRAIN_GAP_NS + TAIL_NS.iter().sum::<i64>();
        of_small.pause = train * i64::from(FULL_TRAINS);
        of_small.trains(SMALL_TRAINS);
        let mut of_full = Cycle::default();
        of_full.part(
            Traffic::Single,
            rate(FULL_SINGLE, full),
            gaps.of(FULL_SINGLE, SINGLE_NS),
        );
        of_full.trains(FULL_TRAINS);
        of_full.pause = train * i64::from(SMALL_TRAINS);
        let bits = f64::from(full) * 8.0;
        let sum: f64 = RATES.iter().sum::<f64>() * max_rate as f64;
        let stretch = PACED_NS.min(MOST_PACED * bits / sum * 1e9);
        for part in RATES {
            let rate = part * max_rate as f64;
            let packets = (stretch / 1e9 * rate / bits).max(8.0) as usize;
            of_full.pause += PACED_GAP_NS;
            let gap = (bits / rate * 1e9) as i64;
            of_full.part(Traffic::Paced, rate as u64, vec![gap; packets]);
        }
        Ok(Plan {
            small: of_small.finish(Size::Small, small, cycles),
            full: of_full.finish(Size::Full, full, cycles),
            cycles,
        })
    }

    /// Both sessions.
    #[must_use]
    pub fn sessions(&self) -> [&SessionPlan; 2] {
        [&self.small, &self.full]
    }

    /// Octets that each direction carries, IP headers included.
    #[must_use]
    pub fn octets(&self) -> u64 {
        let of = |session: &SessionPlan| u64::from(session.packets) * u64::from(session.bytes);
        of(&self.small) + of(&self.full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(seconds: u64, rate: u64) -> Plan {
        Plan::new(Duration::from_secs(seconds), (42, 1_500), rate, 1).expect("a plan")
    }

    #[test]
    fn both_sessions_have_cycles_of_the_same_length_that_a_server_takes() {
        for rate in [20_000_000, 50_000_000, 100_000_000] {
            for session in plan(60, rate).sessions() {
                let nanos: u64 = session
                    .slots
                    .as_slice()
                    .iter()
                    .map(|s| s.mean().as_nanos())
                    .sum();
                assert!(nanos.abs_diff(9_000_000_000) < 10_000, "{nanos}");
                assert!(session.slots.as_slice().len() <= 4_096);
                assert_eq!(session.of_cycle() as usize, session.slots.as_slice().len());
                assert_eq!(session.packets, session.of_cycle() * 6);
            }
        }
    }

    #[test]
    fn a_packets_place_is_its_part_of_its_cycle() {
        let full = plan(60, 50_000_000).full;
        assert_eq!(full.place(0), Some((0, 0, 0)));
        assert_eq!(full.place(FULL_SINGLE - 1), Some((0, 0, FULL_SINGLE - 1)));
        // The first of the third train of the second cycle.
        let third = full.of_cycle() + FULL_SINGLE + 2 * TRAIN;
        assert_eq!(full.place(third), Some((1, 1, 2 * TRAIN)));
    }

    #[test]
    fn paced_packets_have_the_rate_of_their_part() {
        let full = plan(60, 50_000_000).full;
        let mut at = 0;
        for part in &full.parts {
            let slots = &full.slots.as_slice()[at..at + part.packets as usize];
            at += part.packets as usize;
            if part.traffic == Traffic::Paced {
                // After the pause before them.
                let nanos: u64 = slots[1..].iter().map(|slot| slot.mean().as_nanos()).sum();
                let rate = 12_000.0 * (slots.len() - 1) as f64 / (nanos as f64 / 1e9);
                assert!((rate / part.rate_bps as f64 - 1.0).abs() < 0.001, "{rate}");
            }
        }
        // 5, 12, 25 and 50 Mbit/s for 0.35 s: 145, 350, 729 and 1,458 packets of 12,000 bits.
        let packets: Vec<u32> = full.parts[2..6].iter().map(|part| part.packets).collect();
        assert_eq!(packets, [145, 350, 729, 1_458]);
    }

    #[test]
    fn what_cannot_be_planned_is_refused() {
        let new = |seconds, sizes, rate| Plan::new(Duration::from_secs(seconds), sizes, rate, 1);
        assert!(matches!(
            new(12, (42, 1_500), 50_000_000),
            Err(PlanError::TooShort { .. })
        ));
        assert!(matches!(
            new(60, (42, 1_500), 1_000_000),
            Err(PlanError::TooSlow { .. })
        ));
        assert!(matches!(
            new(60, (42, 100), 50_000_000),
            Err(PlanError::TooSmall { .. })
        ));
    }
}

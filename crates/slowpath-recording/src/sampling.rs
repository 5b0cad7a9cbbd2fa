// SPDX-License-Identifier: Apache-2.0
//! Sampling by rate: DETER section 3.3, Algorithm 1.
//!
//! A sample is a packet whose time is kept, with the time from packet to packet that holds
//! until the next sample. For packet `p` after sample `s`:
//!
//! 1. Every step (time a packet) within `[(p.time - s.time - th) / n, (p.time - s.time + th) / n]`,
//!    where `n = p.index - s.index`, puts `p` no further than `th` from where it was.
//! 2. If that overlaps what all packets since `s` allow, what both allow is kept, and `p` is
//!    not sampled.
//! 3. Otherwise `s` gets a step that its packets allow, and `p` is the next sample.
//!
//! The paper keeps ranges of rates (packets a time). Steps are their reciprocals: they need no
//! infinity where packets leave at once, and compare without division, as a BPF program
//! has to. Of the steps that are allowed the one in the middle is recorded, a choice that the
//! paper leaves open: its denominator is the number of packets, which the next sample gives
//! anyway. Rounded down to a nanosecond it stays within the threshold,
//! since the bounds are whole nanoseconds.

use std::num::NonZeroU64;

/// DETER's default: 5 us, in nanoseconds.
pub const DEFAULT_THRESHOLD: u32 = 5_000;

/// The longest time after a sample, in nanoseconds (18 minutes), and the number of packets,
/// after which another is taken: products stay below 2^61, and so within 64 bits.
pub const MAX_SPAN: u64 = 1 << 40;
/// See [`MAX_SPAN`].
pub const MAX_PACKETS: u64 = 1 << 20;

/// Time from packet to packet: a fraction, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// Nanoseconds.
    pub numerator: u64,
    /// Packets.
    pub denominator: NonZeroU64,
}

impl Step {
    /// No time from packet to packet.
    pub const ZERO: Step = Step {
        numerator: 0,
        denominator: NonZeroU64::MIN,
    };

    /// What `packets` packets take, rounded down to nanoseconds.
    pub fn times(self, packets: u64) -> u64 {
        let product = u128::from(self.numerator) * u128::from(packets);
        let nanos = product / u128::from(self.denominator.get());
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

/// A packet whose time is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sample {
    /// Which packet, counted from 0.
    pub index: u64,
    /// When it was sent, in nanoseconds of any clock.
    pub time: u64,
    /// Time from packet to packet until the next sample.
    pub step: Step,
}

impl Sample {
    /// When packet `index` was sent, within the threshold of the sampler: `index` is not less
    /// than that of this sample and less than that of the next.
    pub fn infer(&self, index: u64) -> u64 {
        self.time
            .saturating_add(self.step.times(index.saturating_sub(self.index)))
    }
}

/// A fraction of nanoseconds by packets.
#[derive(Clone, Copy, Debug)]
struct Bound {
    nanos: u64,
    packets: u64,
}

impl Bound {
    fn exceeds(self, other: Bound) -> bool {
        self.nanos * other.packets > other.nanos * self.packets
    }
}

#[derive(Clone, Copy, Debug)]
struct Open {
    index: u64,
    time: u64,
    /// Steps that all packets since allow; `None` before the first.
    allowed: Option<(Bound, Bound)>,
}

impl Open {
    fn new(index: u64, time: u64) -> Self {
        Open {
            index,
            time,
            allowed: None,
        }
    }
}

/// Takes the time of every packet of a connection in the order in which they are sent, and
/// keeps few.
#[derive(Clone, Debug)]
pub struct Sampler {
    threshold: u64,
    next: u64,
    open: Option<Open>,
}

impl Sampler {
    /// A sampler that infers times within `threshold` nanoseconds.
    pub fn new(threshold: u32) -> Self {
        Sampler {
            threshold: threshold.into(),
            next: 0,
            open: None,
        }
    }

    /// The next packet was sent at `time`, in nanoseconds. Gives the sample before it, if
    /// this one is a sample too.
    ///
    /// A time before the last sample's is allowed: clocks of several processors differ.
    pub fn push(&mut self, time: u64) -> Option<Sample> {
        let index = self.next;
        self.next += 1;
        let Some(open) = &mut self.open else {
            self.open = Some(Open::new(index, time));
            return None;
        };
        if let Some(allowed) = open.narrowed(index, time, self.threshold) {
            open.allowed = Some(allowed);
            return None;
        }
        let done = open.close(index - 1);
        *open = Open::new(index, time);
        Some(done)
    }

    /// The sample that the last packets belong to; the next packet will be a sample.
    pub fn finish(&mut self) -> Option<Sample> {
        self.open.take().map(|open| open.close(self.next - 1))
    }
}

impl Open {
    /// What is allowed when packet `index` was sent at `time`; `None` if nothing is.
    fn narrowed(&self, index: u64, time: u64, threshold: u64) -> Option<(Bound, Bound)> {
        let packets = index - self.index;
        // At the latest, counted from the sample; negative: no step goes back in time.
        let latest = time.checked_add(threshold)?.checked_sub(self.time)?;
        if packets >= MAX_PACKETS || latest >= MAX_SPAN {
            return None;
        }
        let earliest = time.saturating_sub(threshold).saturating_sub(self.time);
        let mut low = Bound {
            nanos: earliest,
            packets,
        };
        let mut high = Bound {
            nanos: latest,
            packets,
        };
        if let Some((lowest, highest)) = self.allowed {
            if lowest.exceeds(low) {
                low = lowest;
            }
            if high.exceeds(highest) {
                high = highest;
            }
            if low.exceeds(high) {
                return None;
            }
        }
        Some((low, high))
    }

    /// The sample, whose last packet is `last`.
    fn close(&self, last: u64) -> Sample {
        let step = match (self.allowed, NonZeroU64::new(last - self.index)) {
            (Some((low, high)), Some(packets)) => Self::step(low, high, packets),
            _ => Step::ZERO,
        };
        Sample {
            index: self.index,
            time: self.time,
            step,
        }
    }

    /// The step in the middle of the bounds; where no fraction with that denominator lies within
    /// them, the simplest one that does.
    fn step(low: Bound, high: Bound, packets: NonZeroU64) -> Step {
        let least = (low.nanos * packets.get()).div_ceil(low.packets);
        let most = high.nanos * packets.get() / high.packets;
        if least > most {
            return simplest(low, high);
        }
        Step {
            numerator: least.midpoint(most),
            denominator: packets,
        }
    }
}

/// The fraction with the least denominator in `low..=high`, by their continued fractions:
/// as long as no whole number lies between, both have the same whole part, and the reciprocals
/// of what is left have the simplest fraction's reciprocal between them.
fn simplest(low: Bound, high: Bound) -> Step {
    let (mut low, mut high) = (low, high);
    // The two last convergents, as numerators and denominators.
    let (mut before, mut last) = ((0u64, 1u64), (1u64, 0u64));
    let whole = loop {
        let whole = low.nanos.div_ceil(low.packets);
        // At or above `low`; `high` may be infinite (no packets) after an inversion.
        if high.packets == 0 || whole.saturating_mul(high.packets) <= high.nanos {
            break whole;
        }
        let part = low.nanos / low.packets;
        let next = (
            part.saturating_mul(last.0).saturating_add(before.0),
            part.saturating_mul(last.1).saturating_add(before.1),
        );
        (before, last) = (last, next);
        // x -> 1 / (x - part) turns the order round.
        (low, high) = (
            Bound {
                nanos: high.packets,
                packets: high.nanos - part * high.packets,
            },
            Bound {
                nanos: low.packets,
                packets: low.nanos - part * low.packets,
            },
        );
    };
    let numerator = whole.saturating_mul(last.0).saturating_add(before.0);
    let denominator = whole.saturating_mul(last.1).saturating_add(before.1);
    Step {
        numerator,
        denominator: NonZeroU64::new(denominator).unwrap_or(NonZeroU64::MIN),
    }
}

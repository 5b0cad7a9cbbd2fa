// SPDX-License-Identifier: Apache-2.0
//! When packets are sent: fixed and exponential slots (RFC 4656 sections 3.6 and 5).
//!
//! Both ends compute the same schedule from the session's identifier, to the bit: the receiver
//! knows when a packet that never came was to be sent.

use crate::keys::Block;
use crate::time::Span;
use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use std::fmt;
use std::str::FromStr;

/// ln 2 / 1! + … + (ln 2)^k / k! in 32 bit fractions (RFC 4656 section 5.1, Q).
const Q: [u64; 11] = [
    0xB172_17F8,
    0xEEF1_93F7,
    0xFD27_1862,
    0xFF9D_6DD0,
    0xFFF4_CFD0,
    0xFFFE_E819,
    0xFFFF_E7FF,
    0xFFFF_FE2B,
    0xFFFF_FFE0,
    0xFFFF_FFFE,
    0xFFFF_FFFF,
];

const LN2: u64 = Q[0];

/// Uniform 32 bit numbers by AES-128 in counter mode (RFC 4656 section 5.2). The counter rises with every
/// number and a block gives four, so the blocks that are encrypted are 0, 4, 8 …
#[derive(Clone)]
struct Uniform {
    key: Aes128,
    counter: u128,
    block: Block,
}

impl Uniform {
    fn next(&mut self) -> u32 {
        let word = (self.counter % 4) as usize;
        if word == 0 {
            let mut block = aes::Block::from(self.counter.to_be_bytes());
            self.key.encrypt_block(&mut block);
            self.block = block.into();
        }
        self.counter = self.counter.wrapping_add(1);
        let bytes = [0, 1, 2, 3].map(|i| self.block[word * 4 + i]);
        u32::from_be_bytes(bytes)
    }
}

/// Exponential deviates of mean 1 in 32.32 fixed point: Knuth's algorithm 3.4.1 S as RFC 4656 section 5
/// has it.
#[derive(Clone)]
pub struct Exponential {
    uniform: Uniform,
}

impl fmt::Debug for Exponential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exponential")
            .field("counter", &self.uniform.counter)
            .finish_non_exhaustive()
    }
}

impl Exponential {
    /// The stream that a seed, the session's identifier, gives.
    #[must_use]
    pub fn new(seed: Block) -> Self {
        Exponential {
            uniform: Uniform {
                key: Aes128::new(&seed.into()),
                counter: 0,
                block: [0; 16],
            },
        }
    }

    /// The next deviate.
    pub fn deviate(&mut self) -> Span {
        // S1. Count the leading ones of U and shift them out, with the zero that ends them.
        let u = self.uniform.next();
        let ones = u.leading_ones();
        let shifted = if ones >= 31 { 0 } else { u << (ones + 1) };
        let (ones, u) = (u64::from(ones), u64::from(shifted));
        // No zero at all: 32 ln 2.
        if ones == 32 {
            return Span(32 * LN2);
        }
        // S2. Immediate acceptance.
        if u < LN2 {
            return Span(ones * LN2 + u);
        }
        // S3. The least k ≥ 2 with U < Q[k], and the least of k further numbers.
        let k = (2..=Q.len()).find(|&k| u < Q[k - 1]).unwrap_or(Q.len());
        let least = (0..k).map(|_| self.uniform.next()).min().unwrap_or(0);
        // S4.
        Span(multiply((ones << 32) + u64::from(least), LN2))
    }
}

/// The product of two 32.32 numbers.
fn multiply(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 32) as u64
}

/// How long after the packet before a packet is sent (RFC 4656 section 3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// Exponentially distributed with this mean.
    Exponential(Span),
    /// Always this.
    Fixed(Span),
}

impl Slot {
    /// Its 16 octets.
    #[must_use]
    pub fn to_wire(self) -> Block {
        let (kind, Span(parameter)) = match self {
            Slot::Exponential(mean) => (0, mean),
            Slot::Fixed(span) => (1, span),
        };
        let mut block = [0; 16];
        block[0] = kind;
        block[8..].copy_from_slice(&parameter.to_be_bytes());
        block
    }

    /// From its 16 octets; `None` for a kind that RFC 4656 does not have.
    #[must_use]
    pub fn from_wire(block: &Block) -> Option<Self> {
        let parameter = Span(u64::from_be_bytes(block[8..].try_into().ok()?));
        match block[0] {
            0 => Some(Slot::Exponential(parameter)),
            1 => Some(Slot::Fixed(parameter)),
            _ => None,
        }
    }

    /// The mean.
    #[must_use]
    pub fn mean(self) -> Span {
        match self {
            Slot::Exponential(span) | Slot::Fixed(span) => span,
        }
    }
}

/// The slots of a session, at least one; packets go through them in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots(Vec<Slot>);

/// Why a text is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no interval: write seconds with `e` (exponential) or `f` (fixed), such as 0.1e or 1.0e,0f,0f"
)]
pub struct SlotsError(String);

impl Slots {
    /// From slots; `None` without one.
    #[must_use]
    pub fn new(slots: Vec<Slot>) -> Option<Self> {
        (!slots.is_empty()).then_some(Slots(slots))
    }

    /// Each.
    #[must_use]
    pub fn as_slice(&self) -> &[Slot] {
        &self.0
    }

    /// The mean time from packet to packet.
    #[must_use]
    pub fn mean(&self) -> Span {
        let sum: u128 = self.0.iter().map(|slot| u128::from(slot.mean().0)).sum();
        Span(u64::try_from(sum / self.0.len() as u128).unwrap_or(u64::MAX))
    }

    /// The mean time that `packets` packets take.
    #[must_use]
    pub fn mean_of(&self, packets: u32) -> Span {
        let (count, rest) = (self.0.len() as u128, packets as usize % self.0.len());
        let sum = |slots: &[Slot]| -> u128 { slots.iter().map(|s| u128::from(s.mean().0)).sum() };
        let all = u128::from(packets) / count * sum(&self.0) + sum(&self.0[..rest]);
        Span(u64::try_from(all).unwrap_or(u64::MAX))
    }
}

impl FromStr for Slots {
    type Err = SlotsError;

    /// As owping's `-i`: `0.1e`, `1.0e,0f,0f`; without a letter a value is exponential.
    fn from_str(text: &str) -> Result<Self, SlotsError> {
        let slot = |word: &str| {
            let (number, fixed) = match word.strip_suffix(['f', 'F']) {
                Some(number) => (number, true),
                None => (word.strip_suffix(['e', 'E']).unwrap_or(word), false),
            };
            let plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
            let span = number
                .parse()
                .ok()
                .filter(|_| plain)
                .and_then(Span::from_seconds)?;
            Some(if fixed {
                Slot::Fixed(span)
            } else {
                Slot::Exponential(span)
            })
        };
        let slots: Option<Vec<Slot>> = text.split(',').map(slot).collect();
        slots
            .and_then(Slots::new)
            .ok_or_else(|| SlotsError(text.to_owned()))
    }
}

/// The times of a session's packets after its start, in order. Endless: the session counts.
#[derive(Clone, Debug)]
pub struct Schedule {
    slots: Slots,
    next: usize,
    deviates: Exponential,
    at: Span,
}

impl Schedule {
    /// The schedule of the session with this identifier.
    #[must_use]
    pub fn new(slots: Slots, session: Block) -> Self {
        Schedule {
            slots,
            next: 0,
            deviates: Exponential::new(session),
            at: Span(0),
        }
    }
}

impl Iterator for Schedule {
    type Item = Span;

    /// The first packet goes one interval after the start. Past 2³² s the times stay there.
    fn next(&mut self) -> Option<Span> {
        let slot = self.slots.0[self.next];
        self.next = (self.next + 1) % self.slots.0.len();
        let interval = match slot {
            Slot::Fixed(span) => span.0,
            Slot::Exponential(mean) => multiply(mean.0, self.deviates.deviate().0),
        };
        self.at = Span(self.at.0.saturating_add(interval));
        Some(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Seeds and the sums of their first million deviates, from RFC 4656 appendix A.
    #[test]
    fn the_sums_of_a_million_deviates_are_those_of_rfc_4656() {
        let vectors = [
            (
                0x2872_9793_03ab_47ee_ac02_8dab_3829_dab2,
                0x000f_4479_bd31_7381,
            ),
            (
                0x0102_0304_0506_0708_090a_0b0c_0d0e_0f00,
                0x000f_4336_8646_6a62,
            ),
            (
                0xdead_beef_dead_beef_dead_beef_dead_beef,
                0x000f_416c_8884_d2d3,
            ),
            (
                0xfeed_0fee_d1fe_ed2f_eed3_feed_4fee_d5ab,
                0x000f_3f0b_4b41_6ec8,
            ),
        ];
        for (seed, sum) in vectors {
            let mut stream = Exponential::new(u128::to_be_bytes(seed));
            let all: u64 = (0..1_000_000).map(|_| stream.deviate().0).sum();
            assert_eq!(all, sum, "{seed:032x}");
        }
    }

    #[test]
    fn trains_go_back_to_back_and_intervals_between_them_are_exponential() {
        let slots: Slots = "1.0e,0f,0f".parse().expect("a schedule");
        let times: Vec<u64> = Schedule::new(slots, [7; 16]).take(9).map(|s| s.0).collect();
        let mut deviates = Exponential::new([7; 16]);
        let first = deviates.deviate().0;
        let second = first + deviates.deviate().0;
        assert_eq!(times[..6], [first, first, first, second, second, second]);
    }

    #[test]
    fn owpings_schedules_are_read_and_others_refused() {
        let parsed: Slots = "0.1e,2f,3".parse().expect("a schedule");
        let seconds = |s: f64| Span::from_seconds(s).expect("a span");
        assert_eq!(
            parsed.as_slice(),
            [
                Slot::Exponential(seconds(0.1)),
                Slot::Fixed(seconds(2.0)),
                Slot::Exponential(seconds(3.0))
            ]
        );
        for wrong in [
            "",
            "e",
            "1x",
            "-1f",
            "1f,",
            "infe",
            "nan",
            "5000000000f",
            "1e5",
        ] {
            assert!(wrong.parse::<Slots>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn slots_survive_the_wire(kind in 0u8..4, parameter: u64) {
            let mut block = [0; 16];
            block[0] = kind;
            block[8..].copy_from_slice(&parameter.to_be_bytes());
            match Slot::from_wire(&block) {
                Some(slot) => prop_assert_eq!(slot.to_wire(), block),
                None => prop_assert!(kind > 1),
            }
        }

        #[test]
        fn times_never_go_back(seed: [u8; 16], mean: u64, fixed: u64) {
            let slots = Slots::new(vec![Slot::Exponential(Span(mean)), Slot::Fixed(Span(fixed))]);
            let times: Vec<_> = Schedule::new(slots.expect("two"), seed).take(50).collect();
            prop_assert!(times.is_sorted());
        }
    }
}

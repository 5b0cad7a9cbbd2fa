// SPDX-License-Identifier: Apache-2.0
//! One direction of a link: how long a packet takes onto it and along it.

use crate::time::{Rate, Span, Time};

/// Picoseconds a second, times bits a byte.
const PICOSECONDS_TIMES_BITS: u64 = 8_000_000_000_000;

/// One direction of a link: a transmitter of a rate, and the propagation delay behind it.
///
/// A byte takes `8e12 / rate` ps. What a packet's time leaves below a picosecond is carried
/// to the next one if that starts when this one ends: the n-th of n packets back to back
/// ends `floor(bits * 1e12 / rate)` after the first began, where bits are those of all n.
#[derive(Clone, Debug)]
// In this order what every packet needs comes first, see `Port`.
#[repr(C)]
pub struct Line {
    free_at: Time,
    /// Whole picoseconds a byte.
    whole: u64,
    /// What a byte takes beyond that, in 1/`parts` of a picosecond.
    rest: u64,
    propagation: Span,
    parts: u64,
    /// Where in the picosecond after `free_at` the transmitter really becomes free, in
    /// 1/`parts`.
    carry: u64,
    rate: Rate,
}

/// A packet that goes onto the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure<P> {
    /// The packet.
    pub packet: P,
    /// When its first bit leaves.
    pub start: Time,
    /// When its last bit has left.
    pub finish: Time,
    /// When its last bit is at the other end.
    pub arrival: Time,
    /// When to call [`Switch::transmit`](crate::Switch::transmit) again; `None`: nothing waits behind it.
    pub next: Option<Time>,
}

impl Line {
    /// A free one.
    pub fn new(rate: Rate, propagation: Span) -> Self {
        let bits = rate.bits_per_second();
        let divisor = gcd(PICOSECONDS_TIMES_BITS, bits);
        let parts = bits / divisor;
        let numerator = PICOSECONDS_TIMES_BITS / divisor;
        Line {
            whole: numerator / parts,
            rest: numerator % parts,
            parts,
            carry: 0,
            free_at: Time::ZERO,
            propagation,
            rate,
        }
    }

    /// Its rate.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Another rate and propagation, where given, from the next packet on.
    pub fn change(&mut self, rate: Option<Rate>, propagation: Option<Span>) {
        let rate = rate.unwrap_or(self.rate);
        let propagation = propagation.unwrap_or(self.propagation);
        *self = Line {
            free_at: self.free_at,
            ..Line::new(rate, propagation)
        };
    }

    /// How long a bit travels.
    pub fn propagation(&self) -> Span {
        self.propagation
    }

    /// When the last bit handed to it has left.
    #[inline]
    pub fn free_at(&self) -> Time {
        self.free_at
    }

    /// Starts a packet at `start`, or when the line becomes free if that is later, and says
    /// when its last bit has left. It arrives [`Line::propagation`] later.
    #[inline]
    pub fn send(&mut self, start: Time, bytes: u32) -> Time {
        let bytes = u64::from(bytes);
        let mut time = bytes.saturating_mul(self.whole);
        let start = start.max(self.free_at);
        if self.rest != 0 {
            let carry = if start == self.free_at { self.carry } else { 0 };
            let (picoseconds, left) = match bytes.checked_mul(self.rest) {
                Some(rest) if rest <= u64::MAX - carry => {
                    let rest = rest + carry;
                    (rest / self.parts, rest % self.parts)
                }
                _ => {
                    let rest = u128::from(bytes) * u128::from(self.rest) + u128::from(carry);
                    let parts = u128::from(self.parts);
                    // Below `bytes` and below `parts`.
                    ((rest / parts) as u64, (rest % parts) as u64)
                }
            };
            time = time.saturating_add(picoseconds);
            self.carry = left;
        }
        self.free_at = start + Span(time);
        self.free_at
    }
}

/// The greatest common divisor of two numbers that are not zero.
const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

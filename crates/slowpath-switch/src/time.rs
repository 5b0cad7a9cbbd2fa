// SPDX-License-Identifier: Apache-2.0
//! Moments, durations and rates, all integers.
//!
//! The unit is the picosecond. A byte takes 80 ps at 100 Gbit/s and 20 ps at 400 Gbit/s: at
//! every rate whose byte time is whole (all the usual ones up to 8 Tbit/s) a time is exact
//! and two orders of adding give the same sum; at 100 Gbit/s a nanosecond would round every
//! third packet. 64 bits hold 213 days.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A moment: picoseconds since the caller's beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Time(pub u64);

/// A duration in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Span(pub u64);

impl Time {
    /// The beginning.
    pub const ZERO: Time = Time(0);
    /// Later than anything that happens.
    pub const MAX: Time = Time(u64::MAX);

    /// A moment given in nanoseconds.
    pub const fn from_nanos(ns: u64) -> Self {
        Time(ns.saturating_mul(1_000))
    }

    /// In whole nanoseconds, rounded down.
    pub const fn as_nanos(self) -> u64 {
        self.0 / 1_000
    }

    /// The time since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// A duration given in nanoseconds.
    pub const fn from_nanos(ns: u64) -> Self {
        Span(ns.saturating_mul(1_000))
    }

    /// A duration given in microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Span(us.saturating_mul(1_000_000))
    }

    /// A duration given in milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Span(ms.saturating_mul(1_000_000_000))
    }

    /// A duration given in seconds.
    pub const fn from_secs(s: u64) -> Self {
        Span(s.saturating_mul(1_000_000_000_000))
    }

    /// In whole nanoseconds, rounded down.
    pub const fn as_nanos(self) -> u64 {
        self.0 / 1_000
    }
}

impl Add<Span> for Time {
    type Output = Time;
    #[inline]
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    #[inline]
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub for Time {
    type Output = Span;
    #[inline]
    fn sub(self, earlier: Time) -> Span {
        self.since(earlier)
    }
}

impl Add for Span {
    type Output = Span;
    #[inline]
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Span {
    /// The largest unit that leaves a whole number before the point: `80ps`, `1.2us`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..1_000 => return write!(f, "{}ps", self.0),
            1_000..1_000_000 => (1_000, "ns"),
            1_000_000..1_000_000_000 => (1_000_000, "us"),
            1_000_000_000..1_000_000_000_000 => (1_000_000_000, "ms"),
            _ => (1_000_000_000_000, "s"),
        };
        write!(f, "{}.{}{name}", self.0 / unit, self.0 % unit * 10 / unit)
    }
}

/// What a link carries, in bits a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Rate(u64);

impl Rate {
    /// The least: 1 kbit/s, at which 1,500 bytes take 12 s.
    pub const MIN: Rate = Rate(1_000);
    /// The most: 100 Tbit/s.
    pub const MAX: Rate = Rate(100_000_000_000_000);

    /// A rate in bits a second; `None` outside [`Rate::MIN`]..=[`Rate::MAX`].
    pub const fn from_bits_per_second(bits: u64) -> Option<Self> {
        if bits >= Self::MIN.0 && bits <= Self::MAX.0 {
            Some(Rate(bits))
        } else {
            None
        }
    }

    /// A rate in megabits a second, 10^6 bits; limited to [`Rate::MAX`].
    pub const fn mbit(mbit: core::num::NonZeroU32) -> Self {
        let bits = mbit.get() as u64 * 1_000_000;
        if bits > Self::MAX.0 {
            Self::MAX
        } else {
            Rate(bits)
        }
    }

    /// In bits a second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }
}

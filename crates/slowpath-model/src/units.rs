// SPDX-License-Identifier: Apache-2.0
//! Units of time. Intervals use the monotonic clock; only records carry wall time.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A duration in microseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Micros(pub u64);

impl Micros {
    /// No time at all.
    pub const ZERO: Micros = Micros(0);

    /// Durations of `us` microseconds each.
    pub const fn each<const N: usize>(us: [u64; N]) -> [Micros; N] {
        let mut all = [Micros::ZERO; N];
        let mut i = 0;
        while i < N {
            all[i] = Micros(us[i]);
            i += 1;
        }
        all
    }

    /// A duration of whole milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Micros(ms * 1_000)
    }

    /// The duration in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The duration in milliseconds.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// `self - earlier`, or zero if `earlier` is larger.
    pub const fn saturating_sub(self, earlier: Self) -> Self {
        Micros(self.0.saturating_sub(earlier.0))
    }

    /// `self - earlier`, or `None` if that is negative: a counter that went backwards
    /// yields no difference.
    pub const fn checked_sub(self, earlier: Self) -> Option<Self> {
        match self.0.checked_sub(earlier.0) {
            Some(d) => Some(Micros(d)),
            None => None,
        }
    }
}

impl Add for Micros {
    type Output = Micros;
    fn add(self, other: Micros) -> Micros {
        Micros(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Micros {
    fn add_assign(&mut self, other: Micros) {
        *self = *self + other;
    }
}

impl From<std::time::Duration> for Micros {
    fn from(d: std::time::Duration) -> Self {
        Micros(d.as_micros() as u64)
    }
}

impl fmt::Display for Micros {
    /// Three significant digits and a unit: `850us`, `12.3ms`, `4.20s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.0 as f64;
        let (value, unit) = if us < 1e3 {
            return write!(f, "{}us", self.0);
        } else if us < 1e6 {
            (us / 1e3, "ms")
        } else {
            (us / 1e6, "s")
        };
        let digits = if value >= 100.0 {
            0
        } else if value >= 10.0 {
            1
        } else {
            2
        };
        write!(f, "{value:.digits$}{unit}")
    }
}

/// A moment on the kernel's monotonic clock, in nanoseconds since boot without suspend
/// (`CLOCK_MONOTONIC`, `bpf_ktime_get_ns`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MonoNanos(pub u64);

impl MonoNanos {
    /// Time since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: MonoNanos) -> Micros {
        Micros(self.0.saturating_sub(earlier.0) / 1_000)
    }
}

impl Add<Micros> for MonoNanos {
    type Output = MonoNanos;
    fn add(self, d: Micros) -> MonoNanos {
        MonoNanos(self.0.saturating_add(d.0.saturating_mul(1_000)))
    }
}

/// A moment of wall-clock time, in microseconds since 1970-01-01T00:00:00Z.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct WallMicros(pub i64);

impl Sub<Micros> for WallMicros {
    type Output = WallMicros;
    fn sub(self, d: Micros) -> WallMicros {
        WallMicros(self.0.saturating_sub_unsigned(d.0))
    }
}

impl Add<Micros> for WallMicros {
    type Output = WallMicros;
    fn add(self, d: Micros) -> WallMicros {
        WallMicros(self.0.saturating_add_unsigned(d.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_print_with_three_digits() {
        for (us, text) in [
            (0, "0us"),
            (850, "850us"),
            (12_300, "12.3ms"),
            (200_000, "200ms"),
            (4_200_000, "4.20s"),
        ] {
            assert_eq!(Micros(us).to_string(), text);
        }
    }

    #[test]
    fn going_backwards_is_no_difference() {
        assert_eq!(Micros(1).checked_sub(Micros(2)), None);
        assert_eq!(MonoNanos(5).since(MonoNanos(9)), Micros::ZERO);
    }
}

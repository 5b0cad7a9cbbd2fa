// SPDX-License-Identifier: Apache-2.0
//! Times and their errors as the measurement protocols carry them.

use serde::Serialize;
use std::time::Duration;

/// Seconds from 1 January 1900 (NTP's epoch) to 1 January 1970.
const UNIX_EPOCH: u64 = 2_208_988_800;

/// A moment: seconds since 1900 in 32.32 fixed point (RFC 4656 section 4.1.2, RFC 5905 section 6).
/// Zero stands for *no time*: a packet that did not arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// *No time*.
    pub const NONE: Timestamp = Timestamp(0);

    /// From nanoseconds since 1970. Rounds to the nearest 2⁻³² s; wraps in 2036 as NTP's era does.
    #[must_use]
    pub fn from_unix_nanos(nanos: i64) -> Self {
        let seconds = nanos.div_euclid(1_000_000_000);
        let rest = nanos.rem_euclid(1_000_000_000) as u64;
        let fraction = ((rest << 32) + 500_000_000) / 1_000_000_000;
        Timestamp(((seconds as u64).wrapping_add(UNIX_EPOCH) << 32).wrapping_add(fraction))
    }

    /// Nanoseconds since 1970, in the NTP era that began in 1900.
    #[must_use]
    pub fn unix_nanos(self) -> i64 {
        let seconds = (self.0 >> 32) as i64 - UNIX_EPOCH as i64;
        let rest = ((self.0 & 0xffff_ffff) * 1_000_000_000 + (1 << 31)) >> 32;
        seconds * 1_000_000_000 + rest as i64
    }

    /// Nanoseconds from `earlier` to this; negative where it is the later one. Exact across the end of NTP's
    /// era in 2036.
    #[must_use]
    pub fn nanos_since(self, earlier: Timestamp) -> i64 {
        let difference = i128::from(self.0.wrapping_sub(earlier.0) as i64);
        ((difference * 1_000_000_000 + (1 << 31)) >> 32) as i64
    }

    /// This moment moved by a span.
    #[must_use]
    pub fn after(self, span: Span) -> Timestamp {
        Timestamp(self.0.wrapping_add(span.0))
    }

    /// This moment moved by nanoseconds, forward or back.
    #[must_use]
    pub fn moved(self, nanos: i64) -> Timestamp {
        let ticks = (i128::from(nanos) << 32) / 1_000_000_000;
        Timestamp(self.0.wrapping_add(ticks as u64))
    }

    /// Whether there is a time at all.
    #[must_use]
    pub fn is_some(self) -> bool {
        self.0 != 0
    }
}

/// A length of time: seconds in 32.32 fixed point, as schedules and timeouts are given (RFC 4656 section 3.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

impl Span {
    /// From seconds; not a number, negative and more than 2³² − 1 s are no span.
    #[must_use]
    pub fn from_seconds(seconds: f64) -> Option<Self> {
        let fits = (0.0..4_294_967_296.0).contains(&seconds);
        fits.then_some(Span((seconds * 4_294_967_296.0) as u64))
    }

    /// From a duration; what exceeds 2³² s becomes the longest span.
    #[must_use]
    pub fn from_duration(duration: Duration) -> Self {
        let Ok(seconds) = u32::try_from(duration.as_secs()) else {
            return Span(u64::MAX);
        };
        let fraction = (u64::from(duration.subsec_nanos()) << 32) / 1_000_000_000;
        Span((u64::from(seconds) << 32) + fraction)
    }

    /// Whole nanoseconds, rounded to the nearest.
    #[must_use]
    pub fn as_nanos(self) -> u64 {
        ((u128::from(self.0) * 1_000_000_000 + (1 << 31)) >> 32) as u64
    }

    /// As a duration.
    #[must_use]
    pub fn as_duration(self) -> Duration {
        Duration::from_nanos(self.as_nanos())
    }
}

/// How wrong a time may be, as the protocols carry it (RFC 4656 section 4.1.2): S, Z, scale and multiplier.
/// The error is multiplier · 2⁻³² · 2^scale s.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorEstimate(u16);

impl std::fmt::Debug for ErrorEstimate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let synchronised = self.synchronised();
        write!(
            f,
            "ErrorEstimate({:?}, synchronised: {synchronised})",
            self.error()
        )
    }
}

impl ErrorEstimate {
    /// What is known of no clock: 2²⁴ s and more, unsynchronised.
    pub const UNKNOWN: ErrorEstimate = ErrorEstimate(0x3fff);

    /// The smallest estimate that is not below `error`. A multiplier of 0 is not valid, so the least is 2⁻³² s.
    #[must_use]
    pub fn new(error: Duration, synchronised: bool) -> Self {
        let mut multiplier = u128::from(Span::from_duration(error).0) + 1;
        let mut scale = 0u16;
        while multiplier > 255 {
            multiplier = multiplier.div_ceil(2);
            scale += 1;
        }
        let s = if synchronised { 0x8000 } else { 0 };
        ErrorEstimate(s | (scale << 8) | multiplier as u16)
    }

    /// As it is on the wire; a multiplier of 0 is no estimate, and RFC 4656 has such packets discarded.
    #[must_use]
    pub fn from_wire(bytes: [u8; 2]) -> Option<Self> {
        let value = u16::from_be_bytes(bytes);
        (value & 0xff != 0).then_some(ErrorEstimate(value))
    }

    /// As it goes on the wire.
    #[must_use]
    pub fn to_wire(self) -> [u8; 2] {
        self.0.to_be_bytes()
    }

    /// The estimated error; at most 2³² s, however large the scale.
    #[must_use]
    pub fn error(self) -> Duration {
        let scale = u32::from((self.0 >> 8) & 0x3f);
        let ticks = u128::from(self.0 & 0xff) << scale;
        Span(u64::try_from(ticks).unwrap_or(u64::MAX)).as_duration()
    }

    /// S: the sender has a clock that follows UTC by an outside source.
    #[must_use]
    pub fn synchronised(self) -> bool {
        self.0 & 0x8000 != 0
    }

    /// Z: times are those of PTPv2 and not of NTP (RFC 8186; in OWAMP it is zero).
    #[must_use]
    pub fn precision_time(self) -> bool {
        self.0 & 0x4000 != 0
    }
}

/// A PTPv2 truncated timestamp, 32 bit seconds since 1970 and 32 bit nanoseconds (RFC 8186 section 2.1), as
/// an NTP one. TAI's leap seconds are not taken off: the sender says nothing of its time scale.
#[must_use]
pub fn from_precision_time(value: u64) -> Timestamp {
    let seconds = (value >> 32) as i64;
    let nanos = (value & 0xffff_ffff) as i64;
    Timestamp::from_unix_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// A duration in nanoseconds that may be negative, as JSON has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Nanos(pub i64);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_epochs_differ_by_70_years() {
        assert_eq!(Timestamp::from_unix_nanos(0).0, 0x83aa_7e80 << 32);
        assert_eq!(Timestamp(0x83aa_7e80_8000_0000).unix_nanos(), 500_000_000);
    }

    #[test]
    fn an_estimate_is_never_below_the_error_and_never_zero() {
        assert_eq!(
            ErrorEstimate::new(Duration::ZERO, true).to_wire(),
            [0x80, 1]
        );
        assert_eq!(ErrorEstimate::from_wire([0x80, 0]), None);
        assert!(ErrorEstimate::UNKNOWN.error() > Duration::from_secs(1 << 30));
    }

    proptest! {
        #[test]
        fn nanoseconds_survive_the_way_there_and_back(nanos in 0i64..2_000_000_000_000_000_000) {
            prop_assert_eq!(Timestamp::from_unix_nanos(nanos).unix_nanos(), nanos);
        }

        #[test]
        fn estimates_hold_the_error_with_at_most_a_fiftieth_more(nanos in 100u64..1_000_000_000_000) {
            let error = Duration::from_nanos(nanos);
            let estimate = ErrorEstimate::new(error, false);
            prop_assert!(estimate.error() >= error);
            prop_assert!(estimate.error() <= error.mul_f64(1.02) + Duration::from_nanos(2));
            prop_assert_eq!(ErrorEstimate::from_wire(estimate.to_wire()), Some(estimate));
        }

        #[test]
        fn differences_are_those_of_the_moments(a in 0i64..1 << 60, d in -(1i64 << 40)..1 << 40) {
            let earlier = Timestamp::from_unix_nanos(a);
            prop_assert!((earlier.moved(d).nanos_since(earlier) - d).abs() <= 1);
        }
    }
}

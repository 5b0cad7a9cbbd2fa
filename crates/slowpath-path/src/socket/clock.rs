// SPDX-License-Identifier: Apache-2.0
//! The wall clock, what the kernel says of it, and a hook that shifts it in tests.

use crate::time::{ErrorEstimate, Timestamp};
use std::time::Duration;

/// What adjtimex(2) says of this host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockState {
    /// A daemon keeps it at UTC (STA_UNSYNC is not set).
    pub synchronised: bool,
    /// Its maximal error.
    pub error: Duration,
}

impl ClockState {
    /// As packets carry it.
    #[must_use]
    pub fn estimate(self) -> ErrorEstimate {
        ErrorEstimate::new(self.error, self.synchronised)
    }
}

/// Asks the kernel for the clock's state. A kernel that refuses is a clock that is not synchronised.
#[must_use]
pub fn clock_state() -> ClockState {
    // SAFETY: timex is plain numbers, for which zeros are valid; modes = 0 only reads.
    let (state, timex) = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&mut timex), timex)
    };
    let read = state >= 0;
    ClockState {
        synchronised: read && state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0,
        error: match u64::try_from(timex.maxerror) {
            Ok(micros) if read => Duration::from_micros(micros),
            _ => Duration::from_secs(16),
        },
    }
}

/// How an end's clock is wrong: for tests only, since CLOCK_REALTIME cannot be shifted for a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClockError {
    /// Ahead by this, ns.
    pub offset: i64,
    /// Faster by this, parts per million, from the first reading on.
    pub skew_ppm: f64,
    /// A step: when, after the first reading, ns, and by how much, ns.
    pub step: Option<(i64, i64)>,
}

/// This host's clock as the protocols need it.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock {
    error: Option<ClockError>,
    /// The true time of the first reading, ns since 1970.
    start: i64,
}

impl WallClock {
    /// A clock that is wrong, for tests.
    #[must_use]
    pub fn wrong(error: ClockError) -> Self {
        WallClock {
            error: Some(error),
            start: realtime(),
        }
    }

    /// What this clock shows when the kernel's shows `nanos` since 1970.
    #[must_use]
    pub fn showing(&self, nanos: i64) -> i64 {
        let Some(error) = self.error else {
            return nanos;
        };
        let passed = nanos - self.start;
        let step = error.step.filter(|(at, _)| passed >= *at);
        nanos
            + error.offset
            + (error.skew_ppm * 1e-6 * passed as f64) as i64
            + step.map_or(0, |(_, size)| size)
    }

    /// Now, ns since 1970.
    #[must_use]
    pub fn now(&self) -> i64 {
        self.showing(realtime())
    }

    /// Now, as packets carry it.
    #[must_use]
    pub fn timestamp(&self) -> Timestamp {
        Timestamp::from_unix_nanos(self.now())
    }

    /// A kernel's stamp as this clock would have had it.
    #[must_use]
    pub fn stamp(&self, kernel: i64) -> Timestamp {
        Timestamp::from_unix_nanos(self.showing(kernel))
    }
}

/// CLOCK_REALTIME, ns.
fn realtime() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

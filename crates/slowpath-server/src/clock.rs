// SPDX-License-Identifier: Apache-2.0
//! The wall clock, as an argument.

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use slowpath_model::WallMicros;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Microseconds of a day.
pub const DAY_US: i64 = 86_400_000_000;

/// What the server takes for the time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> WallMicros + Send + Sync>);

impl Clock {
    /// The clock that `now` reads.
    pub fn new(now: impl Fn() -> WallMicros + Send + Sync + 'static) -> Self {
        Clock(Arc::new(now))
    }

    /// The system's.
    pub fn system() -> Self {
        Clock::new(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            // A clock before 1970 has never been set.
            WallMicros(since.map_or(0, |since| since.as_micros() as i64))
        })
    }

    /// The time.
    pub fn now(&self) -> WallMicros {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let since = Duration::from_micros(self.now().0.max(0) as u64);
        Some(UnixTime::since_unix_epoch(since))
    }
}

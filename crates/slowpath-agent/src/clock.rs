// SPDX-License-Identifier: Apache-2.0
//! The clocks that the core is given the readings of.

use rustix::time::ClockId;
use slowpath_model::{Micros, MonoNanos, WallMicros};
use std::time::{SystemTime, UNIX_EPOCH};

/// All clocks at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClockReading {
    pub(crate) now: MonoNanos,
    pub(crate) wall: WallMicros,
    /// CPU time of all threads of this process, user and system.
    pub(crate) process_cpu: Micros,
    /// CPU time of the calling thread.
    pub(crate) thread_cpu: Micros,
}

impl ClockReading {
    pub(crate) fn take() -> Self {
        ClockReading {
            process_cpu: process_cpu(),
            thread_cpu: thread_cpu(),
            wall: wall_clock(),
            now: slowpath_observe::monotonic(),
        }
    }
}

/// CPU time of all threads of this process, user and system.
pub(crate) fn process_cpu() -> Micros {
    cpu(ClockId::ProcessCPUTime)
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu() -> Micros {
    cpu(ClockId::ThreadCPUTime)
}

fn cpu(clock: ClockId) -> Micros {
    let time = rustix::time::clock_gettime(clock);
    Micros(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000)
}

/// Microseconds since 1970; 0 if the clock is set before that.
pub(crate) fn wall_clock() -> WallMicros {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    WallMicros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

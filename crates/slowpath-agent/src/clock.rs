// SPDX-License-Identifier: Apache-2.0
//! The clocks that the core is given the readings of.

use rustix::time::ClockId;
use slowpath_model::{ClockState, ClockStatus, Micros, MonoNanos, WallMicros};
use std::mem::MaybeUninit;
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

/// How good the wall clock is (adjtimex(2), which reads without a privilege); `None` where the
/// call is not allowed, as below a seccomp filter without it.
pub(crate) fn clock_status() -> Option<ClockStatus> {
    // SAFETY: timex is plain data, for which zero is a value; `modes` 0 changes nothing.
    let mut timex: libc::timex = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: the call fills the struct that it is given.
    let state = unsafe { libc::adjtimex(&mut timex) };
    Some(ClockStatus {
        state: ClockState::from_kernel(state)?,
        synchronised: timex.status & libc::STA_UNSYNC == 0,
        max_error: Micros(u64::try_from(timex.maxerror).unwrap_or(0)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `second_overflow` sets `STA_UNSYNC` where the error reaches 16 s (`NTP_PHASE_LIMIT`), and
    /// adjtimex returns `TIME_ERROR` while it is set.
    #[test]
    fn the_clock_s_state_fits_whether_it_is_synchronised() {
        let Some(status) = clock_status() else {
            println!(
                "SKIPPED the_clock_s_state_fits_whether_it_is_synchronised: adjtimex is not allowed"
            );
            return;
        };
        if status.synchronised {
            assert!(status.max_error < Micros(16_000_000), "{status:?}");
        } else {
            assert_eq!(status.state, ClockState::Error);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Sleeping until a moment.

use std::sync::atomic::{AtomicBool, Ordering};

/// At most so long a thread sleeps without looking whether it is to end, ns.
const NAP: i64 = 50_000_000;

/// CLOCK_MONOTONIC, ns: what schedules run by, so that steps of the wall clock neither hurry nor hold them.
#[must_use]
pub fn monotonic() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Has the kernel wake this thread as exactly as it can: without the slack of 50 µs by which it bundles
/// timers (PR_SET_TIMERSLACK), and, where that is allowed, ahead of threads of the usual class.
pub fn precise_timers() {
    // SAFETY: both calls take plain numbers and a pointer to a live struct.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1u64);
        let parameters = libc::sched_param { sched_priority: 1 };
        // Refused without CAP_SYS_NICE: the thread is then as others are.
        libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &parameters);
    }
}

/// Sleeps until a time of [`monotonic`]; false: `stop` was set before.
#[must_use]
pub fn sleep_until(moment: i64, stop: &AtomicBool) -> bool {
    loop {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        let now = monotonic();
        if now >= moment {
            return true;
        }
        let until = moment.min(now + NAP);
        let time = libc::timespec {
            tv_sec: until / 1_000_000_000,
            tv_nsec: until % 1_000_000_000,
        };
        // SAFETY: `time` lives through the call; an interrupted sleep is taken up by the loop.
        unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &time,
                std::ptr::null_mut(),
            );
        }
    }
}

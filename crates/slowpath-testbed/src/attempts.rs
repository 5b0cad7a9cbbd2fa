// SPDX-License-Identifier: Apache-2.0
//! Tests that depend on the kernel's own timers, on machines that stall.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError};

/// How often a test is tried unless `SLOWPATH_ATTEMPTS` says otherwise.
const ATTEMPTS: u32 = 3;

/// One such test of a process at a time: two processors carry one network's traffic undisturbed.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs `body` while no other test of this process does, and runs it again from the start if it panics, three times at most (or as
/// often as the variable `SLOWPATH_ATTEMPTS` says; 1: never again).
///
/// Retransmission timers, probes and delayed ACKs run in real time. Where a shared machine
/// holds a processor back for tens of milliseconds, TCP does something else than what the
/// test injected (a probe before the acknowledgement, a timer that comes early), and does it
/// rightly. Such a run shows nothing. A defect of ours fails every time, or is found where
/// attempts are counted: each failed one prints a line that starts with `RETRIED`, which
/// `tools/run_tests.py` repeats at its end, and `make soak` tries only once.
///
/// # Panics
/// As `body` did at the last attempt.
pub fn attempts(test: &str, body: impl Fn()) {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let most = std::env::var("SLOWPATH_ATTEMPTS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(ATTEMPTS);
    up_to(most, body, |attempt, why| {
        println!("RETRIED {test}: attempt {attempt} failed: {why}");
    });
}

fn up_to(most: u32, body: impl Fn(), retried: impl Fn(u32, &str)) {
    for attempt in 1.. {
        match catch_unwind(AssertUnwindSafe(&body)) {
            Ok(()) => return,
            Err(panic) if attempt >= most => resume_unwind(panic),
            Err(panic) => {
                let why = panic
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or_else(|| panic.downcast_ref::<&str>().copied())
                    .unwrap_or("no message");
                let why: String = why.lines().next().unwrap_or("").chars().take(300).collect();
                retried(attempt, &why);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::up_to;
    use std::cell::Cell;

    #[test]
    fn a_run_that_was_disturbed_is_run_again() {
        let runs = Cell::new(0);
        let failed = Cell::new(0);
        let body = || {
            runs.set(runs.get() + 1);
            assert!(runs.get() == 2, "an attempt that this test wants to fail");
        };
        up_to(2, body, |attempt, why| {
            assert!(why.contains("wants to fail"), "{why}");
            failed.set(attempt);
        });
        assert_eq!((runs.get(), failed.get()), (2, 1));
    }

    #[test]
    #[should_panic(expected = "always")]
    fn a_defect_fails_every_time() {
        up_to(2, || panic!("always"), |_, _| {});
    }
}

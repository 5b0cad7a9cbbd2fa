// SPDX-License-Identifier: Apache-2.0
//! ZeroWindow: data waits because the receiver announced no room at all. The time is part
//! of ReceiverWindowLimited's.
//!
//! 1. Where segments and calls are observed: unsent data waited while the announced window was
//!    zero, or smaller than what the next segment needs with nothing in flight, so that
//!    only the persist timer or a window update could go on (`tcp_check_probe_timer`).
//!    Each such wait is an event.
//! 2. Where they are not: no rwnd-limited time is absence; otherwise the state at the end
//!    of the interval is sampled.
//! 3. Where the announced window is unknown (before Linux 5.4), it is unmeasured.

use crate::{Measure, delta};
use slowpath_model::{Micros, Snapshot};

pub(crate) fn zero_window(before: &Snapshot, after: &Snapshot) -> Measure {
    if let Some(a) = after.waits.queues() {
        let Some(b) = before.waits.queues() else {
            return Measure::Unmeasured;
        };
        return Measure::of_events(
            a.zero_windows.checked_sub(b.zero_windows),
            a.zero_window.checked_sub(b.zero_window),
        );
    }
    let (b, s) = (&before.stats, &after.stats);
    if delta::time(b.rwnd_limited, s.rwnd_limited) == Some(Micros::ZERO) || s.unsent == 0 {
        return Measure::Absent;
    }
    match s.send_window {
        None => Measure::Unmeasured,
        Some(0) => Measure::Coarse { events: None },
        Some(window) if s.in_flight == 0 && window < s.unsent.min(s.send_mss) => {
            Measure::Coarse { events: None }
        }
        Some(_) => Measure::Absent,
    }
}

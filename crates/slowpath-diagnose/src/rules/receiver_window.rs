// SPDX-License-Identifier: Apache-2.0
//! ReceiverWindowLimited: the window that the receiver announced is full, or zero.
//!
//! 1. Where the kernel has the chronograph (TCP_CHRONO_RWND_LIMITED, which a zero window
//!    with data waiting runs too: `tcp_write_xmit`), its difference is the answer.
//! 2. Where it has none, at the end of the interval: data waits to be sent, the congestion
//!    window has room, and the announced window has none for another segment
//!    (`tcp_snd_wnd_test`).
//! 3. Where the announced window is unknown too (before Linux 5.4), it is unmeasured.
//! 4. What an MPTCP connection holds back never reaches its subflows, and their chronographs stand still: the
//!    state of its own window at the end of the interval is sampled.

use crate::{Measure, delta};
use slowpath_model::Snapshot;

pub(crate) fn receiver_window(before: &Snapshot, after: &Snapshot) -> Measure {
    if after.waits.multipath().window_full {
        return Measure::Coarse { events: None };
    }
    let (before, after) = (&before.stats, &after.stats);
    if after.rwnd_limited.is_some() {
        return Measure::of_time(delta::time(before.rwnd_limited, after.rwnd_limited));
    }
    let has_room = after.in_flight < after.cwnd;
    if after.unsent == 0 || !has_room {
        return Measure::Absent;
    }
    let Some(window) = after.send_window else {
        return Measure::Unmeasured;
    };
    let in_flight = after.send_queue.saturating_sub(after.unsent);
    let next = after.unsent.min(after.send_mss.max(1));
    if u64::from(in_flight) + u64::from(next) > u64::from(window) {
        Measure::Coarse { events: None }
    } else {
        Measure::Absent
    }
}

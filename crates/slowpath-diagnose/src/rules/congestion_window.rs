// SPDX-License-Identifier: Apache-2.0
//! CongestionWindowLimited: data waits, and neither the receiver nor a repair is why.
//!
//! 1. Where segments and calls are observed, the time is what unsent data waited while the
//!    announced window had room for it, nothing was being repaired (`TCP_CA_Recovery`,
//!    `TCP_CA_Loss`) and Nagle did not hold it: of the tests in `tcp_write_xmit` only the
//!    congestion window (`tcp_cwnd_test`, `tcp_tso_should_defer`), pacing
//!    (`tcp_pacing_check`) and the device's queue (`tcp_small_queue_check`) are left. It
//!    is within the kernel's busy time less that of the window and of the buffer (RFC
//!    4898 SndLimTimeCwnd), which bounds the share.
//! 2. Where they are not, the state at the end of the interval is sampled: data waits,
//!    the announced window has room, no repair goes on, and the congestion window is full.
//! 3. Where the announced window is unknown (before Linux 5.4), it is unmeasured.

use crate::{Measure, delta};
use slowpath_model::{CaState, Micros, Snapshot, TcpStats};

pub(crate) fn congestion_window(before: &Snapshot, after: &Snapshot) -> Measure {
    if let Some(a) = after.waits.queues() {
        let b = before.waits.queues().map(|q| q.congestion_window);
        return Measure::of_time(delta::time(b, Some(a.congestion_window)));
    }
    let s = &after.stats;
    let repairs = matches!(s.ca_state, CaState::Recovery | CaState::Loss);
    if s.unsent == 0 || repairs || s.in_flight < s.cwnd {
        return Measure::Absent;
    }
    let Some(window) = s.send_window else {
        return Measure::Unmeasured;
    };
    let in_flight = s.send_queue.saturating_sub(s.unsent);
    let next = s.unsent.min(s.send_mss.max(1));
    if u64::from(in_flight) + u64::from(next) > u64::from(window) {
        Measure::Absent
    } else {
        Measure::Coarse { events: None }
    }
}

/// The most it can have lasted: the time with data outstanding that neither the receiver's
/// window nor the buffer took; `None` before Linux 4.10.
pub(crate) fn bound(before: &TcpStats, after: &TcpStats) -> Option<Micros> {
    let busy = delta::time(before.busy, after.busy)?;
    let window = delta::time(before.rwnd_limited, after.rwnd_limited)?;
    let buffer = delta::time(before.sndbuf_limited, after.sndbuf_limited)?;
    Some(busy.saturating_sub(window).saturating_sub(buffer))
}

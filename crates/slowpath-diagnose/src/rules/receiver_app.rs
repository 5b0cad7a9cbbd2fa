// SPDX-License-Identifier: Apache-2.0
//! ReceiverAppSlow: at the receiving end, the application does not read what has arrived.
//!
//! 1. Where segments and calls are observed: the time during which more than three times as
//!    much was unread as the peer was still allowed to send, so that three quarters of the
//!    room that there is were taken by what the application had left.
//! 2. Where they are not, the state at the end of the interval is sampled, if the announced
//!    window is known (Linux 6.2). An empty receive queue is absence.
//! 3. What a subflow of MPTCP receives it passes on at once: the state of the connection at the end of the
//!    interval is sampled (Linux 6.10).

use crate::{Measure, delta};
use slowpath_model::Snapshot;

/// Unread bytes for each byte that the peer may still send (`much_unread` in the probes).
const UNREAD: u32 = 3;

pub(crate) fn receiver_app(before: &Snapshot, after: &Snapshot) -> Measure {
    if after.waits.multipath().unread {
        return Measure::Coarse { events: None };
    }
    if let Some(a) = after.waits.queues() {
        let b = before.waits.queues().map(|q| q.unread);
        return Measure::of_time(delta::time(b, Some(a.unread)));
    }
    let unread = after.stats.receive_queue;
    match after.stats.receive_window {
        _ if unread == 0 => Measure::Absent,
        None => Measure::Unmeasured,
        Some(left) if unread / UNREAD > left => Measure::Coarse { events: None },
        Some(_) => Measure::Absent,
    }
}

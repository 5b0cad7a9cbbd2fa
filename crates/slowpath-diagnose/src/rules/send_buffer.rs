// SPDX-License-Identifier: Apache-2.0
//! SendBufferLimited: the send buffer is full while the network could carry more.
//!
//! SNAP's rule, CurAppWQueue ≈ MaxAppWQueue, holds for every healthy bulk sender on Linux.
//! The kernel's own chronograph (TCP_CHRONO_SNDBUF_LIMITED) runs only while the congestion
//! window has room, nothing waits to be sent and a writer waits for space
//! (`tcp_cwnd_validate`), so:
//!
//! 1. where the kernel has the chronograph, its difference is the answer; it does not run
//!    where a few segments in flight pass for a full congestion window
//!    (`tcp_is_cwnd_limited`: in slow start half of one), so what the probes see of the same
//!    wait while it stands still is added;
//! 2. where it has none, the same three conditions are sampled at the end of the interval;
//! 3. where these cannot be sampled either, the problem is unmeasured.

use crate::{Measure, delta};
use slowpath_model::{Micros, Snapshot};

pub(crate) fn send_buffer(earlier: &Snapshot, later: &Snapshot) -> Measure {
    let (before, after) = (&earlier.stats, &later.stats);
    if after.sndbuf_limited.is_some() {
        let kernel = delta::time(before.sndbuf_limited, after.sndbuf_limited);
        let waited = |s: &Snapshot| s.waits.queues().map(|q| q.send_buffer);
        let waited = delta::time(waited(earlier), waited(later)).unwrap_or(Micros::ZERO);
        return Measure::of_time(kernel.map(|kernel| kernel + waited));
    }
    let network_waits = after.in_flight > 0 && after.in_flight < after.cwnd && after.unsent == 0;
    if !network_waits {
        return Measure::Absent;
    }
    // A writer that found the buffer full sleeps until a third of it is free
    // (`sk_stream_is_writeable`: free space at least half of what is used).
    let Some(limit) = after.send_buffer else {
        return Measure::Unmeasured;
    };
    let full = |used: u32| u64::from(used) * 3 > u64::from(limit) * 2;
    match after.send_memory {
        Some(memory) if full(memory) => Measure::Coarse { events: None },
        Some(_) => Measure::Absent,
        // Payload is a lower bound of the memory it is charged for.
        None if full(after.send_queue) => Measure::Coarse { events: None },
        None => Measure::Unmeasured,
    }
}

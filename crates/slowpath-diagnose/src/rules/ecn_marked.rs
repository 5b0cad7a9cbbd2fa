// SPDX-License-Identifier: Apache-2.0
//! EcnMarked: queues on the path marked segments instead of dropping them (RFC 3168).
//!
//! 1. Events are segments delivered and reported marked (`tcpi_delivered_ce`, Linux 4.18).
//!    Where the kernel does not report it, it is unmeasured; none is absence.
//! 2. The time is that spent in `TCP_CA_CWR` in episodes with marks, where that is observed:
//!    from the reduction of the window until it is done. `TCP_CA_CWR` after local
//!    congestion (`tcp_enter_cwr`) has no mark and does not count.
//! 3. Where it is not observed, the finding is coarse.

use crate::{Measure, delta};
use slowpath_model::Snapshot;

#[inline]
pub(crate) fn ecn_marked(before: &Snapshot, after: &Snapshot) -> Measure {
    let events = delta::count(before.stats.delivered_ce, after.stats.delivered_ce);
    let marked = |s: &Snapshot| s.waits.episodes().map(|e| e.marked);
    match (events, marked(after)) {
        (Some(0), None) => Measure::Absent,
        (events, None) => Measure::of_events(events, None),
        (events, time) => match delta::time(marked(before), time) {
            None => Measure::Unmeasured,
            time => Measure::of_events(events, time),
        },
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Reordering: segments overtook each other on the path, which looks like loss until the
//! late one arrives.
//!
//! 1. Events are reordering that the kernel counted (`tcpi_reord_seen`, Linux 4.19: a
//!    segment arrived behind ones sent after it, `tcp_check_sack_reordering`) and, where
//!    episodes are observed, recoveries that were undone without such a count: timestamps or
//!    duplicate SACKs showed that nothing had been lost (RFC 3522, RFC 2883;
//!    `tcp_try_undo_recovery`).
//! 2. The time is that of the episodes in `TCP_CA_Disorder` and `TCP_CA_Recovery` in which
//!    that happened. So a fast retransmission that reordering caused has at most the share
//!    of this, and one that a loss caused adds nothing to it.
//! 3. Where episodes are not observed, the finding is coarse.

use crate::{Measure, delta};
use slowpath_model::Snapshot;

#[inline]
pub(crate) fn reordering(before: &Snapshot, after: &Snapshot) -> Measure {
    let counted = delta::count(
        before.stats.reordering_events,
        after.stats.reordering_events,
    );
    match (counted, after.waits.episodes()) {
        (Some(0), None) => Measure::Absent,
        (counted, None) => Measure::of_events(counted, None),
        (counted, Some(a)) => {
            let Some(b) = before.waits.episodes() else {
                return Measure::Unmeasured;
            };
            let undone = a.spurious_recoveries.checked_sub(b.spurious_recoveries);
            let (Some(time), Some(undone)) = (a.reordering.checked_sub(b.reordering), undone)
            else {
                return Measure::Unmeasured;
            };
            Measure::of_events(counted.map(|n| n.saturating_add(undone)), Some(time))
        }
    }
}

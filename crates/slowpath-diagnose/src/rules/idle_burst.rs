// SPDX-License-Identifier: Apache-2.0
//! IdleBurst: a window kept over an idle time was sent at once, and part of it was lost.
//!
//! 1. An idle time: nothing was sent for more than a retransmission timeout
//!    (`tcp_slow_start_after_idle_check`; RFC 5681 section 4.1, RFC 7661).
//! 2. A large window: more than the ten segments that a connection begins with (RFC 6928)
//!    were allowed, and more than ten are in flight when the loss is found.
//! 3. The loss is in the first window sent after the idle time. Entering `TCP_CA_Recovery`
//!    or `TCP_CA_Loss` for it is the event; the time is that of the repair, and of the wait
//!    for the timer.
//!
//! The same time is FastRetransmit's or Timeout's: this says why. Where episodes are not
//! observed, an interval without retransmissions is absence, any other unmeasured.

use crate::Measure;
use slowpath_model::Snapshot;

pub(crate) fn idle_burst(before: &Snapshot, after: &Snapshot) -> Measure {
    match (before.waits.episodes(), after.waits.episodes()) {
        (Some(b), Some(a)) => Measure::of_events(
            a.burst_losses.checked_sub(b.burst_losses),
            a.burst.checked_sub(b.burst),
        ),
        (None, None) if after.stats.retransmitted == before.stats.retransmitted => Measure::Absent,
        _ => Measure::Unmeasured,
    }
}

// SPDX-License-Identifier: Apache-2.0
//! FastRetransmit: segments were lost and repaired without a timer.
//!
//! 1. Where entries to `TCP_CA_Recovery` are observed, they are the events and the time spent
//!    there is the time. A tail loss probe retransmits without entering recovery: nothing.
//! 2. Where they are not (inet_diag): recovery at the end of the interval is sampled.
//! 3. Otherwise each retransmission must be a timer's (an expiry retransmits at least one
//!    segment, `tcp_retransmit_timer`) for the problem to be absent;
//! 4. any other may be a fast retransmission or a tail loss probe: unmeasured.

use crate::{Measure, delta};
use slowpath_model::{CaState, TcpStats};

pub(crate) fn fast_retransmit(before: &TcpStats, after: &TcpStats) -> Measure {
    if let Some(a) = after.recovery {
        let Some(b) = before.recovery else {
            return Measure::Unmeasured;
        };
        return Measure::of_events(
            a.fast_recoveries.checked_sub(b.fast_recoveries),
            a.recovery_time.checked_sub(b.recovery_time),
        );
    }
    if after.ca_state == CaState::Recovery {
        return Measure::Coarse { events: None };
    }
    let expirations = delta::count(
        before.rto_stats.map(|r| r.timeouts),
        after.rto_stats.map(|r| r.timeouts),
    );
    match after.retransmitted.checked_sub(before.retransmitted) {
        Some(retransmitted) if retransmitted <= expirations.unwrap_or(0) => Measure::Absent,
        _ => Measure::Unmeasured,
    }
}

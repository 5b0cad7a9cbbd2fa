// SPDX-License-Identifier: Apache-2.0
//! Timeout: segments were lost and a retransmission timer expired.
//!
//! An episode of timeouts is waiting for the first expiry, then everything up to its
//! repair. `tcpi_total_rto_time` starts at the first expiry; the wait before it is observed by
//! BPF only ([`RecoveryStats::rto_wait`](slowpath_model::RecoveryStats::rto_wait)).
//!
//! 1. Linux 6.7 and later: events are expirations; the time is total_rto_time and the
//!    wait. An episode that began in the interval and whose wait is unknown is coarse: what
//!    is known of its duration is the lesser part.
//! 2. Before: entries to `TCP_CA_Loss` stand for expirations (repeated expirations of one
//!    episode count once), the time there and the wait for the time.
//! 3. Expirations for the connection's own SYN are SynRetransmit's: they are taken off,
//!    and where there are no others, it is absent. So is the time that goes on after them,
//!    as long as the connection never had any other.
//!    Of a connection that is not open, all are of its SYN, also where they are not counted separately: slowpath
//!    came later, or the SYN never left this host.
//! 4. With neither, loss at the end of the interval is sampled; an interval without
//!    retransmissions had no timeout; any other is unmeasured.

use crate::Measure;
use slowpath_model::{CaState, TcpState, TcpStats};

/// Expirations for the connection's own SYN.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OfSyn {
    /// In the interval.
    pub(crate) here: u64,
    /// Since the connection began.
    pub(crate) ever: u64,
}

#[inline]
pub(crate) fn timeout(before: &TcpStats, after: &TcpStats, of_syn: OfSyn) -> Measure {
    // The kernel counts one byte for the SYN when it is acknowledged (tcp_snd_una_update).
    if before.state == TcpState::SynSent && after.bytes_acked == 0 {
        return Measure::Absent;
    }
    let measure = all(before, after);
    let no_others = after.rto_stats.is_some_and(|r| r.timeouts <= of_syn.ever);
    match measure.events() {
        Some(events) if of_syn.ever > 0 && (no_others || events < of_syn.here) => Measure::Absent,
        Some(events) if of_syn.here > 0 => match events - of_syn.here {
            0 => Measure::Absent,
            others => Measure::of_events(Some(others), measure.time()),
        },
        _ => measure,
    }
}

fn all(before: &TcpStats, after: &TcpStats) -> Measure {
    let recovery = before.recovery.zip(after.recovery);
    let wait = recovery.and_then(|(b, a)| a.rto_wait.checked_sub(b.rto_wait));
    if let Some(a) = after.rto_stats {
        let Some(b) = before.rto_stats else {
            return Measure::Unmeasured;
        };
        let time = match (a.recoveries.checked_sub(b.recoveries), wait) {
            (Some(0), None) => a.time.checked_sub(b.time),
            (_, None) => None,
            (_, Some(wait)) => a.time.checked_sub(b.time).map(|t| t + wait),
        };
        return Measure::of_events(a.timeouts.checked_sub(b.timeouts), time);
    }
    if after.recovery.is_some() {
        let Some((b, a)) = recovery else {
            return Measure::Unmeasured;
        };
        let time = a.loss_time.checked_sub(b.loss_time).zip(wait);
        return Measure::of_events(
            a.loss_entries.checked_sub(b.loss_entries),
            time.map(|(t, w)| t + w),
        );
    }
    if after.ca_state == CaState::Loss {
        Measure::Coarse { events: None }
    } else if after.retransmitted == before.retransmitted {
        Measure::Absent
    } else {
        Measure::Unmeasured
    }
}

// SPDX-License-Identifier: Apache-2.0
//! SynRetransmit: a SYN, or the SYN-ACK that answers one, had to be sent again.
//!
//! 1. Where the opening is observed: events are the retransmissions until the connection was
//!    established (`tcpi_total_retrans` then), the time is that from the first SYN to its
//!    answer, or until now: 1 s for one, 3 s for two (RFC 6298 section 2).
//! 2. At the accepting end the connection begins when it is established: the SYN-ACKs are
//!    counted, their wait lies before.
//! 3. Where the opening is not observed: a SYN that is being sent again is sampled; a
//!    connection that was established before has none.

use crate::Measure;
use slowpath_model::{Snapshot, TcpState};

pub(crate) fn syn_retransmit(before: &Snapshot, after: &Snapshot) -> Measure {
    match (before.waits.opening(), after.waits.opening()) {
        (Some(b), Some(a)) => Measure::of_events(
            a.syn_retransmits.checked_sub(b.syn_retransmits),
            a.syn_wait.checked_sub(b.syn_wait),
        ),
        (None, None) => {
            let s = &after.stats;
            let opening = matches!(s.state, TcpState::SynSent | TcpState::SynReceived);
            let sent_again = u64::from(s.unanswered_timeouts);
            if opening && sent_again > 0 {
                Measure::Coarse { events: None }
            } else {
                Measure::Absent
            }
        }
        _ => Measure::Unmeasured,
    }
}

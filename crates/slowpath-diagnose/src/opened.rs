// SPDX-License-Identifier: Apache-2.0
//! The beginning of a connection that opened after the last poll.

use slowpath_model::{
    CaState, CallStats, Micros, RecoveryStats, RtoStats, RttSums, Snapshot, SocketFacts, TcpStats,
};

/// The snapshot that `first`'s connection would have given at its birth: counters zero,
/// queues empty, taken at `first.id.start`. What `first` cannot measure stays missing.
///
/// A connection older than the agent (`id.start` 0, [`Origin::Unknown`]) has no first
/// interval, since its counters hold what happened before: for it this is taken at
/// `first.at`, so that the interval up to `first` is empty and has no findings.
///
/// [`Origin::Unknown`]: slowpath_model::Origin::Unknown
pub fn opened(first: &Snapshot) -> Snapshot {
    let s = &first.stats;
    let zero = |time: Option<Micros>| time.map(|_| Micros::ZERO);
    let none = |count: Option<u64>| count.map(|_| 0);
    let born = first.id.start.0 != 0 && first.origin != slowpath_model::Origin::Unknown;
    Snapshot {
        id: first.id,
        tuple: first.tuple,
        at: if born { first.id.start } else { first.at },
        origin: first.origin,
        closed: false,
        tier: first.tier,
        owner: first.owner,
        stats: TcpStats {
            ca_state: CaState::Open,
            bytes_sent: none(s.bytes_sent),
            bytes_acked: 0,
            bytes_received: 0,
            bytes_retransmitted: none(s.bytes_retransmitted),
            segments_out: 0,
            segments_in: 0,
            data_segments_out: 0,
            data_segments_in: 0,
            retransmitted: 0,
            delivered: none(s.delivered),
            delivered_ce: none(s.delivered_ce),
            dsack_duplicates: none(s.dsack_duplicates),
            reordering_events: none(s.reordering_events),
            out_of_order_in: none(s.out_of_order_in),
            in_flight: 0,
            lost: 0,
            retransmitted_in_flight: 0,
            sacked: 0,
            unanswered_timeouts: 0,
            probes: 0,
            backoff: 0,
            srtt: None,
            min_rtt: None,
            busy: zero(s.busy),
            rwnd_limited: zero(s.rwnd_limited),
            sndbuf_limited: zero(s.sndbuf_limited),
            unsent: 0,
            send_queue: 0,
            receive_queue: 0,
            send_memory: s.send_memory.map(|_| 0),
            rtt_sums: s.rtt_sums.map(|_| RttSums::default()),
            recovery: s.recovery.map(|_| RecoveryStats::default()),
            rto_stats: s.rto_stats.map(|_| RtoStats::default()),
            ..*s
        },
        sends: first.sends.map(|_| CallStats::default()),
        receives: first.receives.map(|_| CallStats::default()),
        waits: first.waits.at_birth(),
        facts: SocketFacts {
            ending: None,
            ..first.facts
        },
        turns: first.turns.at_birth(),
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Losses whose repair was slow for a reason of its own.
//!
//! TimeoutThenDelayedAck (SNAP section 6.1, Figure 6): after a timeout the congestion window
//! is one segment; the receiver delays the ACK of a single segment, and nothing can be sent
//! before.
//! 1. There were timeouts, and delayed ACKs of a segment that was sent again in `TCP_CA_Loss`
//!    and was the only one in flight then (counted at the ACK, where the probes see it).
//!
//! TooFewForFastRetransmit (SNAP sections 5.2 and 6.1): fewer segments in flight than raise
//! three duplicate ACKs (RFC 5681 section 3.2), so that a loss waits for the timer.
//! 1. When a timer expired, at most three segments were in flight, the lost one among them, and
//!    the application had handed over nothing more (counted at the entry to `TCP_CA_Loss`).
//! 2. The mean write is shorter than four segments: the lost one and three that follow.
//! 3. Writes as small to the same peer on other connections of the same process are the
//!    same data spread out.

use super::{Interaction, InteractionEvidence, InteractionKind, Peers, Recent};
use crate::{Actor, Advice};

/// A lost segment and the three after it, whose duplicate ACKs report it.
const ENOUGH_SEGMENTS: u64 = 4;

pub(super) fn timeout_then_delayed_ack(recent: &Recent) -> Option<Interaction> {
    let timeouts = recent.sum(|p| p.timeouts);
    let delayed_acks = recent.sum(|p| p.acks_after_timeout.unwrap_or(0));
    let retransmitted = recent.sum(|p| p.retransmitted.unwrap_or(0));
    (timeouts > 0 && delayed_acks > 0).then(|| Interaction {
        kind: InteractionKind::TimeoutThenDelayedAck,
        connections: vec![recent.id],
        evidence: InteractionEvidence::TimeoutThenDelayedAck {
            timeouts,
            delayed_acks,
            retransmitted_segments: retransmitted,
        },
        advice: Advice {
            who: Actor::ReceiverSide,
            what: "After each timeout one segment was sent, and the receiver delayed its ACK, so \
                   that the repair took the timeout and the delay. Have the receiver acknowledge \
                   at once (TCP_QUICKACK, or `ip route change ... quickack 1`); then look for \
                   the cause of the losses."
                .to_owned(),
            source: "SNAP section 6.1, Figure 6; RFC 1122 section 4.2.3.2",
        },
    })
}

/// Bytes of a mean write that is too short, if it is.
pub(super) fn small_writes(recent: &Recent) -> Option<u64> {
    let write = recent.average_write()?;
    let mss = u64::from(recent.send_mss);
    (mss > 0 && write > 0 && write < ENOUGH_SEGMENTS * mss).then_some(write)
}

/// Condition 1 of TooFewForFastRetransmit: how often it was met.
pub(super) fn thin_timeouts(recent: &Recent) -> u64 {
    recent.sum(|p| p.thin_timeouts.unwrap_or(0))
}

pub(super) fn too_few(recent: &Recent, peers: &Peers) -> Option<Interaction> {
    let timeouts = thin_timeouts(recent);
    if timeouts == 0 {
        return None;
    }
    let write = small_writes(recent)?;
    let mut connections = vec![recent.id];
    let key = |pid| (pid, recent.id.netns, recent.tuple.remote);
    if let Some(group) = recent.pid.and_then(|pid| peers.small.get(&key(pid))) {
        connections.extend(group.iter().filter(|id| **id != recent.id));
    }
    let spread = u32::try_from(connections.len()).unwrap_or(u32::MAX);
    let few = format!(
        "Writes of {write} bytes on average put fewer than {ENOUGH_SEGMENTS} segments in flight, \
         too few for three duplicate ACKs, so that losses wait for the retransmission timer. "
    );
    let what = if spread > 1 {
        format!(
            "{few}The process spreads such writes over {spread} connections to {}: send them over \
             one, or fewer.",
            recent.tuple.remote
        )
    } else {
        format!("{few}Send several messages at once over one connection, or find the losses.")
    };
    Some(Interaction {
        kind: InteractionKind::TooFewForFastRetransmit,
        connections,
        evidence: InteractionEvidence::TooFewForFastRetransmit {
            timeouts,
            average_write_bytes: write,
            send_mss_bytes: recent.send_mss,
            spread_over_connections: spread,
        },
        advice: Advice {
            who: Actor::SenderDeveloper,
            what,
            source: "SNAP sections 5.2 and 6.1; RFC 5681 section 3.2",
        },
    })
}

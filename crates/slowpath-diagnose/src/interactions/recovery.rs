// SPDX-License-Identifier: Apache-2.0
//! Losses whose repair was slow for a reason of its own.
//!
//! TimeoutThenDelayedAck (SNAP section 6.1, Figure 6): after a timeout the congestion window
//! is one segment; the receiver delays the ACK of a single segment, and nothing can be sent
//! before.
//! 1. An interval has a timeout, and it or the next one has delayed ACKs.
//! 2. There are no more delayed ACKs than timeouts and one: others have another cause.
//! 3. At most two segments were sent again for each expiry, one of them perhaps a tail loss
//!    probe: after the timeout there was one segment to send.
//!
//! TooFewForFastRetransmit (SNAP sections 5.2 and 6.1): fewer segments in flight than raise
//! three duplicate ACKs (RFC 5681 section 3.2), so that a loss waits for the timer.
//! 1. There were timeouts, and no fast recovery.
//! 2. The mean write is shorter than four segments: the lost one and three that follow.
//! 3. Not more was sent again than four segments for each expiry: what was lost is no
//!    window's worth.
//! 4. Writes as small to the same peer on other connections of the same process are the
//!    same data spread out.

use super::{Interaction, InteractionEvidence, InteractionKind, Peers, Recent};
use crate::{Actor, Advice};

/// A lost segment and the three after it, whose duplicate ACKs tell.
const ENOUGH_SEGMENTS: u64 = 4;

pub(super) fn timeout_then_delayed_ack(recent: &Recent) -> Option<Interaction> {
    let pieces = &recent.pieces;
    let mut timeouts = 0;
    let mut delayed_acks = 0;
    let mut retransmitted = 0;
    for (i, piece) in pieces.iter().enumerate() {
        if piece.timeouts == 0 {
            continue;
        }
        let next = pieces.get(i + 1).filter(|n| n.timeouts == 0);
        let late = piece.delayed_acks + next.map_or(0, |n| n.delayed_acks);
        let again = piece.retransmitted? + next.map_or(Some(0), |n| n.retransmitted)?;
        if late == 0 || late > piece.timeouts + 1 || again > 2 * piece.timeouts {
            continue;
        }
        timeouts += piece.timeouts;
        delayed_acks += late;
        retransmitted += again;
    }
    (timeouts > 0).then(|| Interaction {
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

pub(super) fn too_few(recent: &Recent, peers: &Peers) -> Option<Interaction> {
    let timeouts = recent.sum(|p| p.timeouts);
    if timeouts == 0
        || recent.sum_known(|p| p.fast_recoveries)? > 0
        || recent.sum_known(|p| p.retransmitted)? > ENOUGH_SEGMENTS * timeouts
    {
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
         too few for three duplicate ACKs, so that every loss waits for the retransmission timer. "
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

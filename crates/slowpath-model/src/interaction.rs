// SPDX-License-Identifier: Apache-2.0
//! Interactions: problems that explain each other, of one connection over adjacent intervals or
//! of several connections of one host; which there are, their numbers, and one as the log
//! keeps it.

use crate::{ConnectionId, FourTuple, Micros, Owner, Problem, WallMicros};
use serde::Serialize;
use std::fmt;

/// Which interaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum InteractionKind {
    /// The one segment sent again after a timeout waited for a delayed ACK.
    TimeoutThenDelayedAck,
    /// Too few segments were in flight for three duplicate ACKs: a loss took a timeout.
    TooFewForFastRetransmit,
    /// The send buffer holds less than one bandwidth-delay product, or one message.
    SendBufferBelowBdp,
    /// A process that passes data on is slow on one connection because of another.
    PipelinedProxy,
}

impl InteractionKind {
    /// All of them.
    pub const ALL: [InteractionKind; 4] = [
        InteractionKind::TimeoutThenDelayedAck,
        InteractionKind::TooFewForFastRetransmit,
        InteractionKind::SendBufferBelowBdp,
        InteractionKind::PipelinedProxy,
    ];

    /// The name used in output: the variant's name.
    pub const fn name(self) -> &'static str {
        match self {
            InteractionKind::TimeoutThenDelayedAck => "TimeoutThenDelayedAck",
            InteractionKind::TooFewForFastRetransmit => "TooFewForFastRetransmit",
            InteractionKind::SendBufferBelowBdp => "SendBufferBelowBdp",
            InteractionKind::PipelinedProxy => "PipelinedProxy",
        }
    }
}

impl fmt::Display for InteractionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Which way a proxy's trouble goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyFlow {
    /// What comes in waits, because what goes out is limited.
    BackedUp,
    /// What goes out waits, because what comes in is limited at its sender.
    Starved,
}

/// The numbers of an interaction, over the window.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum InteractionEvidence {
    /// Of [`InteractionKind::TimeoutThenDelayedAck`].
    TimeoutThenDelayedAck {
        /// Expirations of the retransmission timer.
        timeouts: u64,
        /// Delayed ACKs of what they sent again.
        delayed_acks: u64,
        /// Segments sent again.
        retransmitted_segments: u64,
    },
    /// Of [`InteractionKind::TooFewForFastRetransmit`].
    TooFewForFastRetransmit {
        /// Losses found by the retransmission timer with so few in flight.
        timeouts: u64,
        /// Mean bytes of a write.
        average_write_bytes: u64,
        /// Sending MSS.
        send_mss_bytes: u32,
        /// Connections of the same process to the same peer with writes as small, this one
        /// included.
        spread_over_connections: u32,
    },
    /// Of [`InteractionKind::SendBufferBelowBdp`].
    SendBufferBelowBdp {
        /// Payload that fits: the most observed in it, at least half of its memory.
        capacity_bytes: u64,
        /// Its limit, in bytes of memory.
        send_buffer_bytes: u32,
        /// Bandwidth that the path is known to have: the fastest delivery rate to that
        /// peer. The buffer limits what can be measured: it is a lower bound.
        bandwidth_low: u64,
        /// Bandwidth that the congestion window would allow: an upper bound.
        bandwidth_high: u64,
        /// Minimum RTT.
        min_rtt_us: u64,
        /// Bandwidth-delay product of the lower bound.
        product_low_bytes: u64,
        /// Likewise of the upper: one congestion window.
        product_high_bytes: u64,
        /// Mean bytes of a write, where calls are observed.
        average_write_bytes: Option<u64>,
    },
    /// Of [`InteractionKind::PipelinedProxy`].
    PipelinedProxy {
        /// The process that passes data on.
        pid: u32,
        /// Which way.
        flow: ProxyFlow,
        /// What limits the connection that is the cause.
        problem: Problem,
        /// Share of the window, 0 to 1.
        share: f64,
        /// The connection that is the cause.
        cause: FourTuple,
        /// Bytes that came in.
        bytes_in: u64,
        /// Bytes that went out.
        bytes_out: u64,
        /// Processes on this host between cause and effect.
        processes: u32,
    },
}

impl InteractionEvidence {
    /// Expirations of the retransmission timer, where they are part of it.
    pub fn timeouts(&self) -> u64 {
        match self {
            InteractionEvidence::TimeoutThenDelayedAck { timeouts, .. }
            | InteractionEvidence::TooFewForFastRetransmit { timeouts, .. } => *timeouts,
            _ => 0,
        }
    }

    /// What SO_SNDBUF should be, where the buffer is too small: twice the product or, where that is more,
    /// one write.
    pub fn send_buffer_wanted(&self) -> Option<u64> {
        match self {
            InteractionEvidence::SendBufferBelowBdp {
                product_high_bytes,
                average_write_bytes,
                ..
            } => {
                let most = (*product_high_bytes).max(average_write_bytes.unwrap_or(0));
                Some(most.saturating_mul(2))
            }
            _ => None,
        }
    }
}

/// An interaction over a stretch of time, as the log keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct InteractionInterval {
    /// Which.
    pub kind: InteractionKind,
    /// The connection that suffers.
    pub connection: ConnectionId,
    /// Its addresses.
    pub tuple: FourTuple,
    /// Its owner.
    pub owner: Owner,
    /// The connection that is the cause: the same, or another of this host.
    pub cause: ConnectionId,
    /// Its addresses.
    pub cause_tuple: FourTuple,
    /// Connections that it is about, these two included.
    pub connections: u32,
    /// When it was found last.
    pub end: WallMicros,
    /// How long it was found before that.
    pub duration: Micros,
    /// Rounds that found it.
    pub rounds: u64,
    /// The numbers of the last one.
    pub evidence: InteractionEvidence,
}

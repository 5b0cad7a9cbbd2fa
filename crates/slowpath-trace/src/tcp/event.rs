// SPDX-License-Identifier: Apache-2.0
//! What one segment meant, for those who draw or annotate. Nothing of it is computed for
//! a sink that does not want it.

use super::report::Side;
use super::wireshark;
use crate::segment::{Flags, Timestamp};
use std::time::Duration;

/// Receives what every segment meant, in the capture's order.
pub trait Events {
    /// Whether anything is to be handed over: the default sink says no, at compile time.
    const WANTED: bool = true;

    /// A segment was observed.
    fn event(&mut self, event: &Event<'_>);

    /// A segment observed earlier turned out to be a needless retransmission.
    fn spurious(&mut self, _proof: &Spurious) {}
}

/// Wants nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ignore;

impl Events for Ignore {
    const WANTED: bool = false;

    fn event(&mut self, _event: &Event<'_>) {}
}

impl<F: FnMut(&Event<'_>)> Events for F {
    fn event(&mut self, event: &Event<'_>) {
        self(event);
    }
}

/// One segment and what it meant. Sequence numbers are relative: 0 is the SYN, 1 the first
/// byte; without a SYN in the capture 1 is the first number observed. They do not wrap and may
/// be negative.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The frame.
    pub frame: u64,
    /// Its time.
    pub time: Timestamp,
    /// Who sent it.
    pub side: Side,
    /// What it was.
    pub kind: Kind,
    /// What else it was.
    pub marks: Marks,
    /// What tshark says of it.
    pub wireshark: wireshark::Flags,
    /// The header's flags.
    pub flags: Flags,
    /// Sequence number.
    pub sequence: i64,
    /// Sequence number after it, SYN and FIN counted.
    pub end: i64,
    /// Payload.
    pub length: u32,
    /// Acknowledgement number, of the other side's data.
    pub acknowledgement: Option<i64>,
    /// The window advertised, scaled where the scale is known; `None` without ACK and SYN.
    pub window: Option<u64>,
    /// Acknowledgement number and window: how far the other side may send.
    pub window_edge: Option<i64>,
    /// Bytes of the sender's data in flight after it.
    pub flight: u64,
    /// RTT of the other side's data that this segment's ACK gives.
    pub rtt: Option<Duration>,
    /// It is the n-th duplicate ACK.
    pub duplicate: u32,
    /// SACK blocks, of the other side's data.
    pub sack: &'a [(i64, i64)],
    /// Frames of its sender that are missing before it, by IP identifications that count one by one.
    pub missing: u16,
    /// TSval and TSecr (RFC 7323).
    pub timestamps: Option<(u32, u32)>,
    /// Of data sent again: when it was last sent, or if it was not captured then, when data after
    /// it came.
    pub sent_before: Option<Timestamp>,
}

/// A retransmission that was not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spurious {
    /// The retransmission's frame.
    pub frame: u64,
    /// Who sent it.
    pub side: Side,
    /// The frame that proves it.
    pub proof: u64,
    /// How.
    pub by: Proof,
}

/// What proves a retransmission needless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A duplicate SACK block (RFC 2883).
    Dsack,
    /// The ACK echoes an earlier timestamp than the retransmission's (RFC 3522).
    Eifel,
}

/// What a segment was: the first that fits, top down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// RST.
    Reset,
    /// The same frame captured again.
    HardwareDuplicate,
    /// A probe of a closed window.
    ZeroWindowProbe,
    /// A keep-alive.
    KeepAlive,
    /// Sent again.
    Retransmission(Cause),
    /// Late, not sent again.
    OutOfOrder,
    /// SYN without ACK.
    Syn,
    /// SYN with ACK.
    SynAck,
    /// New data; FIN and PSH are in the flags.
    Data,
    /// FIN without data.
    Fin,
    /// An ACK of a zero-window probe.
    ZeroWindowProbeAck,
    /// An ACK of a keep-alive.
    KeepAliveAck,
    /// A duplicate ACK.
    DuplicateAck,
    /// An ACK that only changes the window.
    WindowUpdate,
    /// Any other segment without data.
    Ack,
}

/// Why data was sent again, by what is observed here. The rules are in `retransmission.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Duplicate ACKs or SACK asked for it.
    Fast,
    /// A timer ran out.
    Timeout,
    /// After a timeout, before everything outstanding then was acknowledged.
    AfterTimeout,
    /// A tail loss probe.
    TailLossProbe,
    /// A SYN or SYN-ACK unanswered.
    Handshake,
    /// A FIN unanswered.
    Fin,
    /// Nothing observed here explains it.
    Unexplained,
}

/// What else a segment was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Marks(u32);

impl Marks {
    /// Advertises a window of zero.
    pub const ZERO_WINDOW: u32 = 1;
    /// Its data ends at the other side's window edge.
    pub const WINDOW_FULL: u32 = 1 << 1;
    /// Starts after a gap: an earlier segment was lost, is late or was not captured.
    pub const GAP: u32 = 1 << 2;
    /// Acknowledges data that was never captured.
    pub const ACKED_UNCAPTURED: u32 = 1 << 3;
    /// Judged between reordering and retransmission by the clock only.
    pub const AMBIGUOUS: u32 = 1 << 4;
    /// Data that was acknowledged here before it came.
    pub const ALREADY_ACKED: u32 = 1 << 5;
    /// A retransmission of data that never came here before.
    pub const LOST_BEFORE_HERE: u32 = 1 << 6;
    /// An ACK that waited for the delayed-ACK timer.
    pub const DELAYED_ACK: u32 = 1 << 7;
    /// An ACK of more than two full-sized segments.
    pub const STRETCH_ACK: u32 = 1 << 8;
    /// Held by Nagle's rule until the ACK.
    pub const NAGLE: u32 = 1 << 9;
    /// First after an idle time.
    pub const AFTER_IDLE: u32 = 1 << 10;
    /// Window or segment below the MSS because of the window.
    pub const SILLY: u32 = 1 << 11;
    /// Its first SACK block reports a duplicate.
    pub const DSACK: u32 = 1 << 12;
    /// The right window edge moved left.
    pub const SHRUNK: u32 = 1 << 13;
    /// Congestion experienced.
    pub const CE: u32 = 1 << 14;
    /// ECN echo.
    pub const ECE: u32 = 1 << 15;
    /// Congestion window reduced.
    pub const CWR: u32 = 1 << 16;
    /// Its checksum was wrong.
    pub const BAD_CHECKSUM: u32 = 1 << 17;
    /// First data of a request or response.
    pub const TURN: u32 = 1 << 18;

    /// Whether any of `marks` is set.
    #[must_use]
    pub const fn any(self, marks: u32) -> bool {
        self.0 & marks != 0
    }

    pub(super) fn set(&mut self, marks: u32) {
        self.0 |= marks;
    }
}

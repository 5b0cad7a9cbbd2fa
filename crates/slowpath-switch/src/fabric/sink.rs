// SPDX-License-Identifier: Apache-2.0
//! What happens to packets, and the trait that receives it.

use super::plan::{End, Mtu, Node};
use crate::observer::DropReason;
use crate::packet::{Header, PortId};
use crate::queue::Depth;
use crate::time::Time;
use alloc::vec::Vec;

/// A packet at its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The host, or the switch that was the destination.
    pub node: Node,
    /// The packet as it arrives: its time to live, its mark.
    pub packet: Header,
    /// Switches that forwarded it.
    pub hops: u16,
    /// Whether a switch here marked it.
    pub marked: bool,
    /// The DSCP that a line gave it, if one did.
    pub dscp: Option<u8>,
    /// Whether it was damaged on the way: to whoever carries the bytes.
    pub corrupted: bool,
    /// Whether it is a copy.
    pub copy: bool,
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DropCause {
    /// No room in a queue: a switch's, or a host's own.
    BufferFull = 0,
    /// Its time to live ran out at a switch.
    TtlExpired = 1,
    /// A switch has no route for it.
    NoRoute = 2,
    /// The line lost it, as the plan says.
    Lost = 3,
    /// The link was down.
    LinkDown = 4,
    /// More packets inside than the plan allows.
    TooMany = 5,
    /// Longer than the line's MTU.
    TooLong = 6,
    /// The line's policer had no tokens for it.
    Policed = 7,
}

impl DropCause {
    /// Every cause, in the order of their numbers.
    pub const ALL: [DropCause; 8] = [
        DropCause::BufferFull,
        DropCause::TtlExpired,
        DropCause::NoRoute,
        DropCause::Lost,
        DropCause::LinkDown,
        DropCause::TooMany,
        DropCause::TooLong,
        DropCause::Policed,
    ];
}

impl From<DropReason> for DropCause {
    fn from(reason: DropReason) -> Self {
        match reason {
            DropReason::BufferFull => DropCause::BufferFull,
            DropReason::TtlExpired => DropCause::TtlExpired,
            DropReason::NoRoute => DropCause::NoRoute,
            // A fabric's switches manage no queues.
            DropReason::Early => DropCause::BufferFull,
        }
    }
}

/// A packet that goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Where; for a packet lost on a line, the node at its beginning.
    pub node: Node,
    /// The line's port; at a switch that could not take it, the port by which it came in.
    pub port: Option<PortId>,
    /// The packet as it was then.
    pub packet: Header,
    /// The DSCP that a line gave it, if one did.
    pub dscp: Option<u8>,
    /// Switches that forwarded it.
    pub hops: u16,
    /// Why.
    pub cause: DropCause,
    /// Whether it is a copy.
    pub copy: bool,
}

/// A packet that is longer than the MTU of the line that its route takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oversized {
    /// The line's beginning.
    pub end: End,
    /// The packet as it came.
    pub packet: Header,
    /// The DSCP that a line gave it, if one did.
    pub dscp: Option<u8>,
    /// The MTU.
    pub mtu: Mtu,
}

/// Receives what happens, in the order of time. The methods after the first two do nothing unless written.
pub trait Sink {
    /// A packet arrived.
    fn delivered(&mut self, at: Time, delivered: Delivered);

    /// A packet was dropped.
    fn dropped(&mut self, at: Time, dropped: Dropped);

    /// A packet is too long for the line that it should take next. The fragments that go on in its
    /// place, by the same port: then it is no more, and its handle comes back no more. None:
    /// it is dropped.
    fn too_long(&mut self, at: Time, oversized: Oversized) -> Vec<Header> {
        let _ = (at, oversized);
        Vec::new()
    }

    /// A line made a copy: the handle will be delivered or dropped once more.
    #[inline]
    fn copied(&mut self, at: Time, packet: &Header) {
        let _ = (at, packet);
    }

    /// The packet joined the queue of a port, which with it holds `depth`.
    #[inline]
    fn enqueued(&mut self, at: Time, end: End, packet: &Header, depth: Depth) {
        let _ = (at, end, packet, depth);
    }

    /// The packet left the queue for the line, which without it holds `depth`.
    #[inline]
    fn dequeued(&mut self, at: Time, end: End, packet: &Header, depth: Depth) {
        let _ = (at, end, packet, depth);
    }

    /// The packet was marked, as its queue held `queue`.
    #[inline]
    fn marked(&mut self, at: Time, end: End, packet: &Header, queue: Depth) {
        let _ = (at, end, packet, queue);
    }

    /// The packet should have left by `end` and goes to the port `to` instead.
    #[inline]
    fn detoured(&mut self, at: Time, end: End, to: PortId, packet: &Header) {
        let _ = (at, end, to, packet);
    }
}

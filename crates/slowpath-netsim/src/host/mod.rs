// SPDX-License-Identifier: Apache-2.0
//! A host's network interface.
//!
//! Connections do not push packets into a queue: the interface, when it is free, takes the
//! next segment from the connections that may send, one from each in turn, as Linux's fair
//! queueing with small per-socket queues does. So a window that is larger than the network
//! takes does not pile up in the host, and a sender that its own interface limits is not
//! limited by its window. ACKs and datagrams go first, in their order.

use slowpath_switch::{Line, Rate, Span};
use std::collections::VecDeque;

/// Of [`Interface::hold`].
pub(crate) const SCHEDULED: u8 = 1;
/// Of [`Interface::hold`].
pub(crate) const PAUSED: u8 = 2;

/// The interface.
pub(crate) struct Interface<P> {
    /// The link to the switch.
    pub line: Line,
    /// Packets that are ready.
    pub packets: VecDeque<P>,
    /// Connections that may have a segment.
    pub ready: VecDeque<u32>,
    /// Whether it will be asked again when the line is free ([`SCHEDULED`]), and whether there is a
    /// class that it may not send ([`PAUSED`]).
    pub hold: u8,
    /// Packets that it has sent.
    pub sent_packets: u64,
    /// Bytes that it has sent.
    pub sent_bytes: u64,
}

impl<P> Interface<P> {
    pub fn new(rate: Rate, propagation: Span) -> Self {
        Interface {
            line: Line::new(rate, propagation),
            packets: VecDeque::new(),
            ready: VecDeque::new(),
            hold: 0,
            sent_packets: 0,
            sent_bytes: 0,
        }
    }

    /// Whether there may be something to send.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.packets.is_empty() && self.ready.is_empty()
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Timers of connections: few beside the packets, so a binary heap does.

use slowpath_switch::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Whose timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The sender's: retransmission, probe, reordering.
    Send,
    /// The receiver's: delayed ACK.
    Acknowledge,
    /// The application's: the next write.
    Write,
}

/// By time, then connection, then kind. An entry whose generation is not its connection's,
/// or whose time is not what the connection notes, is out of date.
#[derive(Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Time, u32, Timer, u32)>>,
}

impl Timers {
    pub fn push(&mut self, at: Time, connection: u32, timer: Timer, generation: u32) {
        self.heap.push(Reverse((at, connection, timer, generation)));
    }

    #[inline]
    pub fn next(&self) -> Time {
        self.heap.peek().map_or(Time::MAX, |entry| entry.0.0)
    }

    pub fn pop(&mut self) -> Option<(Time, u32, Timer, u32)> {
        self.heap.pop().map(|entry| entry.0)
    }
}

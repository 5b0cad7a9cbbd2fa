// SPDX-License-Identifier: Apache-2.0
//! Timers of connections: few beside the packets, so a binary heap does.

use slowpath_switch::{Span, Time};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Whose timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The sender's: retransmission, probe, reordering.
    Send,
    /// The receiver's: delayed ACK.
    Acknowledge,
    /// The sender's: what pacing holds back.
    Pace,
    /// The application's: the next write.
    Write,
}

/// Where a timer lies in Linux's timer wheel: of those that expire at one tick, those that were set
/// for long come first, then those that were set last (`collect_expired_timers`,
/// `enqueue_timer`).
#[derive(Clone, Copy, Debug)]
pub(super) struct WheelPlace {
    /// Set for `LONG_TICKS` or longer: such a timer lies in a bucket of several ticks.
    long: bool,
    /// A running number: larger for a timer that was placed later.
    order: u64,
    at: Time,
}

/// `LVL_SIZE`, less one.
const LONG_TICKS: u64 = 63;

impl WheelPlace {
    /// Nowhere.
    pub const NONE: Self = WheelPlace {
        long: false,
        order: 0,
        at: Time::ZERO,
    };

    /// The timer is set to expire then. It stays where it is if that is the same bucket
    /// (`__mod_timer`), unless it was `moved` elsewhere and back.
    pub fn set(&mut self, now: Time, at: Time, tick: Span, moved: bool, order: &mut u64) {
        if self.at == at && !moved {
            return;
        }
        *order += 1;
        *self = WheelPlace {
            long: at.since(now).0 >= LONG_TICKS * tick.0,
            order: *order,
            at,
        };
    }

    /// When it expires among those of the same tick, the larger the earlier; then it lies nowhere,
    /// if it was not set to a later time.
    pub fn take(&mut self, now: Time) -> (bool, u64) {
        if self.at == now {
            self.at = Time::ZERO;
        }
        (self.long, self.order)
    }
}

/// By time, then connection, then kind. An entry whose generation is not its connection's,
/// or whose time is not what the connection notes, is out of date.
#[derive(Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<TimerEntry>>,
    /// Counts the timers that were put into a bucket of a timer wheel.
    pub placed: u64,
}

/// When, which connection's, whose of it, and which that had its place.
pub(super) type TimerEntry = (Time, u32, Timer, u32);

impl Timers {
    pub fn push(&mut self, at: Time, connection: u32, timer: Timer, generation: u32) {
        self.heap.push(Reverse((at, connection, timer, generation)));
    }

    #[inline]
    pub fn next(&self) -> Time {
        self.heap.peek().map_or(Time::MAX, |entry| entry.0.0)
    }

    pub fn pop(&mut self) -> Option<TimerEntry> {
        self.heap.pop().map(|entry| entry.0)
    }
}

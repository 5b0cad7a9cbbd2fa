// SPDX-License-Identifier: Apache-2.0
//! The state of a port, and of the memory that ports share.

use crate::config::{PortConfig, PortKind, Shared, Threshold};
use crate::counters::Counters;
use crate::line::{Departure, Line};
use crate::queue::Depth;
use crate::time::Time;

/// No call is due.
pub(crate) const IDLE: Time = Time::MAX;

/// In this order the first 64 bytes are what every packet needs and the next 64 what most
/// do: a switch's time goes into waiting for the cache.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Port {
    /// When `transmit` is due; [`IDLE`] if nothing waits.
    pub due: Time,
    /// All classes.
    pub depth: Depth,
    pub max_packets: u32,
    /// Where marking begins; the largest numbers where it never does.
    pub mark_packets: u32,
    pub line: Line,
    pub max_bytes: u64,
    pub mark_bytes: u64,
    pub enqueued: u64,
    pub enqueued_bytes: u64,
    pub faces_switch: bool,
    pub marked: u64,
    pub dropped: u64,
    pub dropped_bytes: u64,
    pub detoured: u64,
}

impl Port {
    pub fn new(config: &PortConfig) -> Self {
        let (mark_packets, mark_bytes) = match config.marking {
            None => (u32::MAX, u64::MAX),
            Some(Threshold::Packets(packets)) => (packets, u64::MAX),
            Some(Threshold::Bytes(bytes)) => (u32::MAX, bytes),
        };
        Port {
            line: Line::new(config.rate, config.propagation),
            due: IDLE,
            depth: Depth::default(),
            max_packets: config.limit.packets.unwrap_or(u32::MAX),
            max_bytes: config.limit.bytes.unwrap_or(u64::MAX),
            mark_packets,
            mark_bytes,
            faces_switch: config.kind == PortKind::Switch,
            enqueued: 0,
            enqueued_bytes: 0,
            marked: 0,
            dropped: 0,
            dropped_bytes: 0,
            detoured: 0,
        }
    }

    /// A packet goes onto the line at `start`; what waits has been counted already.
    #[inline]
    pub fn start<P>(&mut self, start: Time, packet: P, bytes: u32) -> Departure<P> {
        let finish = self.line.send(start, bytes);
        let next = (self.depth.packets > 0).then_some(finish);
        self.due = next.unwrap_or(IDLE);
        Departure {
            packet,
            start,
            finish,
            arrival: finish + self.line.propagation(),
            next,
        }
    }

    /// What came and does not wait has left: departures need no counting of their own.
    pub fn counters(&self) -> Counters {
        Counters {
            enqueued: self.enqueued,
            enqueued_bytes: self.enqueued_bytes,
            dequeued: self.enqueued - u64::from(self.depth.packets),
            dequeued_bytes: self.enqueued_bytes - self.depth.bytes,
            marked: self.marked,
            dropped: self.dropped,
            dropped_bytes: self.dropped_bytes,
            detoured: self.detoured,
        }
    }
}

/// The shared memory, its bounds resolved.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    max_packets: u32,
    max_bytes: u64,
    numerator: u64,
    denominator: u64,
    pub used: Depth,
}

impl Memory {
    pub fn new(shared: Shared) -> Self {
        Memory {
            max_packets: shared.total.packets.unwrap_or(u32::MAX),
            max_bytes: shared.total.bytes.unwrap_or(u64::MAX),
            numerator: u64::from(shared.alpha.numerator.get()),
            denominator: u64::from(shared.alpha.denominator.get()),
            used: Depth::default(),
        }
    }

    /// Whether the queue may take a packet of that length.
    #[inline]
    pub fn admits(&self, queue: Depth, bytes: u32) -> bool {
        let free_packets = self.max_packets - self.used.packets;
        let free_bytes = self.max_bytes - self.used.bytes;
        // No queue is below a threshold of 0: one more packet fits where one is.
        free_bytes >= u64::from(bytes)
            && (self.max_packets == u32::MAX
                || self.is_below(u64::from(queue.packets), u64::from(free_packets)))
            && (self.max_bytes == u64::MAX || self.is_below(queue.bytes, free_bytes))
    }

    /// `length < alpha * free`, exactly.
    #[inline]
    fn is_below(&self, length: u64, free: u64) -> bool {
        u128::from(length) * u128::from(self.denominator)
            < u128::from(free) * u128::from(self.numerator)
    }
}

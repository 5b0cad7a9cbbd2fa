// SPDX-License-Identifier: Apache-2.0
//! What switches tell, written down.

use super::network::SwitchId;
use super::packet::Hop;
use crate::results::{LABELS, LabelRecord, QueueSample, StretchRecord};
use slowpath_switch::{Depth, DropReason, Observer, PortId, Time};

/// The most stretches of time that events are counted in.
const MAX_STRETCHES: u64 = 1024;

/// How long a stretch is, so that there are not more: a power of two of picoseconds.
pub(super) fn stretch_shift(until: Time) -> u32 {
    let most = until.0 / MAX_STRETCHES;
    u64::BITS - most.leading_zeros()
}

/// What becomes results.
#[derive(Default)]
pub(super) struct Records {
    pub labels: [LabelRecord; LABELS],
    pub stretches: Vec<StretchRecord>,
    /// A stretch is two to this power of picoseconds.
    pub stretch_shift: u32,
    pub queues: Vec<QueueSample>,
    pub max_queues: usize,
    pub queues_lost: u64,
    /// By the number of the port's link: whether its queue is written down on change, and
    /// the most that waited.
    pub watched: Vec<bool>,
    pub most: Vec<u32>,
}

impl Records {
    /// The stretch of that moment.
    pub fn stretch(&mut self, at: Time) -> &mut StretchRecord {
        // At most `MAX_STRETCHES` by the choice of the shift: no event is after the end.
        let number = (at.0 >> self.stretch_shift) as usize;
        if number >= self.stretches.len() {
            self.stretches.resize(number + 1, StretchRecord::default());
        }
        &mut self.stretches[number]
    }

    pub fn sample(&mut self, sample: QueueSample) {
        if self.queues.len() < self.max_queues {
            self.queues.push(sample);
        } else {
            self.queues_lost += 1;
        }
    }
}

/// The observer of one switch. `WATCH` is whether any queue is written down on change:
/// without, an enqueue and a dequeue leave no code behind.
pub(super) struct Recorder<'a, const WATCH: bool> {
    pub records: &'a mut Records,
    pub switch: u32,
    /// The number of its first port's link.
    pub first_link: u32,
}

impl<const WATCH: bool> Recorder<'_, WATCH> {
    #[inline]
    fn note(&mut self, at: Time, port: PortId, depth: Depth) {
        if !WATCH {
            return;
        }
        let link = (self.first_link + u32::from(port.0)) as usize;
        if self.records.watched[link] {
            self.records.most[link] = self.records.most[link].max(depth.packets);
            self.records.sample(QueueSample {
                at,
                switch: SwitchId(self.switch),
                port,
                packets: depth.packets,
                bytes: depth.bytes,
            });
        }
    }
}

impl<const WATCH: bool> Observer<Hop> for Recorder<'_, WATCH> {
    #[inline]
    fn enqueued(&mut self, at: Time, port: PortId, _: &Hop, depth: Depth) {
        self.note(at, port, depth);
    }

    #[inline]
    fn dequeued(&mut self, at: Time, port: PortId, _: &Hop, depth: Depth) {
        self.note(at, port, depth);
    }

    #[inline]
    fn marked(&mut self, at: Time, _: PortId, packet: &Hop, _: Depth) {
        self.records.stretch(at).marked[usize::from(packet.label())] += 1;
        self.records.labels[usize::from(packet.label())].marked += 1;
    }

    #[inline]
    fn dropped(&mut self, at: Time, _: Option<PortId>, packet: &Hop, reason: DropReason) {
        self.records.stretch(at).dropped[usize::from(packet.label())] += 1;
        self.records.labels[usize::from(packet.label())].dropped[reason as usize] += 1;
    }

    #[inline]
    fn detoured(&mut self, at: Time, _: PortId, _: PortId, packet: &Hop) {
        self.records.stretch(at).detours[usize::from(packet.label())] += 1;
        self.records.labels[usize::from(packet.label())].detours += 1;
    }
}

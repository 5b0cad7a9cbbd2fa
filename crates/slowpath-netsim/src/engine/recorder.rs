// SPDX-License-Identifier: Apache-2.0
//! What switches report, written down.

use super::capture::Capturing;
use super::network::SwitchId;
use super::packet::Hop;
use crate::results::{
    DropPlace, Joined, LABELS, LabelRecord, LineSample, PacketLog, QueueSample, SentPacket,
    StretchRecord, WindowSample,
};
use slowpath_switch::{Depth, DropReason, Observer, PortId, Time};

/// The most stretches of time that events are counted in.
const MAX_STRETCHES: u64 = 1024;

/// How long a stretch is, so that there are not more: a power of two of picoseconds.
pub(super) fn stretch_shift(until: Time) -> u32 {
    let most = until.0 / MAX_STRETCHES;
    u64::BITS - most.leading_zeros()
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Sender,
    Receiver,
}

/// Packets by the place of their bodies, which others take after them.
pub(super) struct PacketRecords {
    pub log: PacketLog,
    /// By the number of the queue: how many have left.
    left: Vec<u32>,
    numbers: Vec<u32>,
    /// The same: what each was sent after.
    causes: Vec<Option<u32>>,
    /// By the place of the connection: the packet whose arrival was handled last by the
    /// sender, and by the receiver.
    handled: Vec<[Option<u32>; 2]>,
    /// The number of the first link that begins at a switch.
    first_link: u32,
}

impl PacketRecords {
    pub fn new(links: usize, first_link: u32) -> Self {
        let queues = links - first_link as usize;
        PacketRecords {
            log: PacketLog {
                queues: vec![Vec::new(); queues],
                ..PacketLog::default()
            },
            left: vec![0; queues],
            numbers: Vec::new(),
            causes: Vec::new(),
            handled: Vec::new(),
            first_link,
        }
    }

    /// TCP at an end of the connection in that place made a packet.
    pub fn made(&mut self, connection: u32, end: End, body: u32) {
        let place = body as usize;
        if place >= self.causes.len() {
            self.causes.resize(place + 1, None);
        }
        let handled = self.handled.get(connection as usize);
        self.causes[place] = handled.and_then(|ends| ends[end as usize]);
    }

    pub fn sent(&mut self, body: u32, packet: SentPacket) {
        let place = body as usize;
        if place >= self.numbers.len() {
            self.numbers.resize(place + 1, 0);
        }
        self.numbers[place] = self.log.sent.len() as u32;
        let after = self.causes.get(place).copied().flatten();
        self.log.sent.push(SentPacket { after, ..packet });
    }

    /// An end of a connection handles the packet with that body; without one, a timer or the
    /// application.
    pub fn handles(&mut self, connection: u32, end: End, body: Option<u32>) {
        let place = connection as usize;
        if place >= self.handled.len() {
            self.handled.resize(place + 1, [None; 2]);
        }
        self.handled[place][end as usize] = body.map(|body| self.numbers[body as usize]);
    }

    /// A link copied a packet.
    pub fn copied(&mut self, body: u32, copy: u32) {
        let place = copy as usize;
        if place >= self.numbers.len() {
            self.numbers.resize(place + 1, 0);
        }
        self.numbers[place] = self.numbers[body as usize];
    }

    fn joined(&mut self, link: u32, body: u32) {
        let queue = (link - self.first_link) as usize;
        self.log.queues[queue].push(Joined {
            packet: self.numbers[body as usize],
            left: self.left[queue],
        });
    }
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
    /// Congestion windows over time.
    pub windows: Vec<WindowSample>,
    /// What links carried over time.
    pub lines: Vec<LineSample>,
    /// By the number of the port's link: whether its queue is written down on change, and
    /// the most that waited.
    pub watched: Vec<bool>,
    pub most: Vec<u32>,
    pub packets: Option<PacketRecords>,
    pub capturing: Option<Capturing>,
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

/// The observer of one switch. `WATCH` is whether any queue is written down on change, or links do
/// more than to carry: without, neither leaves code behind.
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
    fn enqueued(&mut self, at: Time, port: PortId, packet: &Hop, depth: Depth) {
        self.note(at, port, depth);
        if WATCH && let Some(packets) = &mut self.records.packets {
            packets.joined(self.first_link + u32::from(port.0), packet.body());
        }
    }

    #[inline]
    fn dequeued(&mut self, at: Time, port: PortId, _: &Hop, depth: Depth) {
        self.note(at, port, depth);
        if WATCH && let Some(packets) = &mut self.records.packets {
            let link = self.first_link + u32::from(port.0);
            packets.left[(link - packets.first_link) as usize] += 1;
        }
    }

    #[inline]
    fn marked(&mut self, at: Time, _: PortId, packet: &Hop, _: Depth) {
        self.records.stretch(at).marked[usize::from(packet.label())] += 1;
        self.records.labels[usize::from(packet.label())].marked += 1;
    }

    #[inline]
    fn dropped(&mut self, at: Time, port: Option<PortId>, packet: &Hop, reason: DropReason) {
        if WATCH && let Some(packets) = &mut self.records.packets {
            let number = packets.numbers[packet.body() as usize];
            packets.log.dropped.push(DropPlace {
                packet: number,
                at,
                switch: SwitchId(self.switch),
                port,
            });
        }
        self.records.stretch(at).dropped[usize::from(packet.label())] += 1;
        self.records.labels[usize::from(packet.label())].dropped[reason as usize] += 1;
    }

    #[inline]
    fn detoured(&mut self, at: Time, _: PortId, _: PortId, packet: &Hop) {
        self.records.stretch(at).detours[usize::from(packet.label())] += 1;
        self.records.labels[usize::from(packet.label())].detours += 1;
    }
}

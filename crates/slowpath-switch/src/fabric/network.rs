// SPDX-License-Identifier: Apache-2.0
//! The fabric.

use super::condition::{ConditionCounters, Conditioner};
use super::impair::Impaired;
use super::plan::{Change, End, Node};
use super::sink::{Delivered, DropCause, Dropped, Sink};
use crate::counters::Counters;
use crate::line::Departure;
use crate::observer::{DropReason, Observer};
use crate::packet::{Destination, Header, Packet, PortId};
use crate::queue::Depth;
use crate::switch::{Outcome, Passed, Switch};
use crate::time::Time;
use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carried {
    pub(super) header: Header,
    pub(super) hops: u16,
    pub(super) dscp: Option<u8>,
    pub(super) marked: bool,
    pub(super) corrupted: bool,
    pub(super) copy: bool,
}

impl Packet for Carried {
    #[inline]
    fn bytes(&self) -> u32 {
        self.header.bytes
    }
    #[inline]
    fn destination(&self) -> Destination {
        Destination(self.header.destination)
    }
    #[inline]
    fn flow(&self) -> u64 {
        self.header.flow
    }
    #[inline]
    fn class(&self) -> u8 {
        self.header.class
    }
    #[inline]
    fn is_ecn_capable(&self) -> bool {
        self.header.is_ecn_capable()
    }
    #[inline]
    fn mark(&mut self) {
        self.header.mark();
        self.marked = true;
    }
    #[inline]
    fn ttl(&self) -> u8 {
        self.header.ttl
    }
    #[inline]
    fn set_ttl(&mut self, ttl: u8) {
        self.header.ttl = ttl;
    }
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) from: u32,
    pub(super) port: PortId,
    pub(super) to: u32,
    pub(super) to_port: PortId,
    pub(super) up: bool,
    /// How often it went down: what was on it then does not arrive.
    pub(super) cuts: u32,
    pub(super) impaired: Option<Box<Impaired>>,
    pub(super) conditioner: Option<Box<Conditioner>>,
    pub(super) counters: LineCounters,
}

/// A packet on a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    packet: Carried,
    line: u32,
    cuts: u32,
}

/// What is planned. Compared in this order: departures before arrivals, see [`ARRIVAL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Event {
    at: Time,
    order: u64,
    /// A line, or a place of a flight.
    what: u32,
}

/// In [`Event::order`]; without it the event is a departure.
const ARRIVAL: u64 = 1 << 63;
/// Below it the place of an arrival's line among all beginnings of lines (2^21 at most: hosts
/// and ports), then the order in which events were planned: a wheel of 2^42 of them.
const PLANNED_BITS: u32 = 42;

/// Where packets are. `sent + copies + fragments = delivered + dropped + inside + fragmented`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counts {
    /// By hosts and switches.
    pub sent: u64,
    /// Made by lines.
    pub copies: u64,
    /// Reported to the sink.
    pub delivered: u64,
    /// Reported to the sink.
    pub dropped: u64,
    /// Found in queues and on lines.
    pub inside: u64,
    /// Packets that became fragments: they are no more.
    pub fragmented: u64,
    /// What they became.
    pub fragments: u64,
}

/// What a line has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LineCounters {
    /// Packets whose transmission started.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of these lost, as the plan says.
    pub lost: u64,
    /// Of these lost as the link was down, also those that were on it when it went down.
    pub cut: u64,
    /// Of these damaged.
    pub corrupted: u64,
    /// Of these copied.
    pub copied: u64,
    /// Of these late.
    pub late: u64,
}

/// See the [module's documentation](super).
#[derive(Clone, Debug)]
pub struct Fabric {
    pub(super) now: Time,
    /// Hosts, then switches: the index is the destination's number.
    pub(super) nodes: Vec<Switch<Carried>>,
    pub(super) hosts: u32,
    /// Of each node the first of its lines in `line_of`.
    pub(super) first: Vec<u32>,
    /// By node and port.
    pub(super) line_of: Vec<u32>,
    pub(super) lines: Vec<Line>,
    pub(super) flights: Vec<Flight>,
    pub(super) free: Vec<u32>,
    pub(super) events: BinaryHeap<Reverse<Event>>,
    pub(super) planned: u64,
    /// In the order of time, the next one last.
    pub(super) changes: Vec<Change>,
    pub(super) counts: Counts,
    pub(super) most_packets: u64,
    pub(super) seed: u64,
    /// Whether any line has had an MTU.
    pub(super) has_mtus: bool,
}

impl Fabric {
    /// A host sends a packet; what was due before, or at that moment, happens first. A packet
    /// of a host that is not there, or beyond the most that may be inside, is dropped.
    pub fn send<S: Sink>(&mut self, now: Time, host: u32, packet: Header, sink: &mut S) {
        let Some(carried) = self.enter(now, Node::Host(host), packet, sink) else {
            return;
        };
        self.queue(host, PortId(0), carried, sink);
    }

    /// A switch sends a packet of its own, as a router that answers does. Its time to live
    /// begins to count at the next switch.
    pub fn send_from<S: Sink>(&mut self, now: Time, switch: u32, packet: Header, sink: &mut S) {
        let Some(carried) = self.enter(now, Node::Switch(switch), packet, sink) else {
            return;
        };
        let node = self.hosts + switch;
        let route = self.nodes[node as usize].next_port(carried.destination(), packet.flow);
        match route {
            Some(port) => self.send_by(node, port, carried, sink),
            None => self.drop_packet(node, None, carried, DropCause::NoRoute, sink),
        }
    }

    fn send_by<S: Sink>(&mut self, node: u32, port: PortId, carried: Carried, sink: &mut S) {
        let long = match self.has_mtus {
            true => self.too_long_for(node, &carried),
            false => None,
        };
        let Some(long) = long else {
            return self.queue(node, port, carried, sink);
        };
        for fragment in self.fragments(node, carried, long, sink) {
            self.queue(node, port, fragment, sink);
        }
    }

    fn enter<S: Sink>(
        &mut self,
        now: Time,
        node: Node,
        mut packet: Header,
        sink: &mut S,
    ) -> Option<Carried> {
        self.advance(now, sink);
        let inside = self.inside();
        self.counts.sent += 1;
        packet.bytes = packet.bytes.max(1);
        let carried = Carried {
            header: packet,
            hops: 0,
            dscp: None,
            marked: false,
            corrupted: false,
            copy: false,
        };
        let cause = match self.index(node) {
            None => DropCause::NoRoute,
            Some(_) if inside >= self.most_packets => DropCause::TooMany,
            Some(_) => return Some(carried),
        };
        self.report_drop(node, None, carried, cause, sink);
        None
    }

    /// Sent or made, and neither delivered nor dropped nor made into fragments.
    pub(super) fn inside(&self) -> u64 {
        let counts = &self.counts;
        let came = counts.sent + counts.copies + counts.fragments;
        came - counts.delivered - counts.dropped - counts.fragmented
    }

    /// When something happens next; `None`: nothing will unless a packet is sent.
    pub fn next_event(&self) -> Option<Time> {
        let event = self.events.peek().map(|event| event.0.at);
        let change = self.changes.last().map(|change| change.at);
        match (event, change) {
            (Some(event), Some(change)) => Some(event.min(change)),
            (event, change) => event.or(change),
        }
    }

    /// All that is due by `now` happens, each at its own moment.
    pub fn advance<S: Sink>(&mut self, now: Time, sink: &mut S) {
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            self.now = at;
            if let Some(change) = self.changes.pop_if(|change| change.at == at) {
                let applied = self.apply(&change.action);
                debug_assert!(applied.is_ok(), "checked with the plan");
                continue;
            }
            let Some(Reverse(event)) = self.events.pop() else {
                return;
            };
            if event.order & ARRIVAL == 0 {
                self.transmit(event.what, sink);
            } else {
                self.arrive(event.what, sink);
            }
        }
        self.now = self.now.max(now);
    }

    fn schedule(&mut self, at: Time, rank: u64, what: u32) {
        self.planned += 1;
        let order = rank | self.planned & ((1 << PLANNED_BITS) - 1);
        self.events.push(Reverse(Event { at, order, what }));
    }

    /// The port that a line begins at starts what is due.
    fn transmit<S: Sink>(&mut self, line: u32, sink: &mut S) {
        let Line { from, port, .. } = self.lines[line as usize];
        let node = self.node(from);
        let mut observer = SinkObserver { sink, node };
        let Some(departure) = self.nodes[from as usize].transmit(self.now, port, &mut observer)
        else {
            return;
        };
        if let Some(next) = departure.next {
            self.schedule(next, 0, line);
        }
        self.fly(line, departure, sink);
    }

    /// A packet of the node's own joins a queue there.
    fn queue<S: Sink>(&mut self, node: u32, port: PortId, carried: Carried, sink: &mut S) {
        let mut observer = SinkObserver {
            node: self.node(node),
            sink,
        };
        match self.nodes[node as usize].send(self.now, port, carried, &mut observer) {
            Outcome::Queued(queued) => self.start(node, queued.port, queued.start, sink),
            Outcome::Dropped { packet, reason } => {
                self.drop_packet(node, Some(port), packet, reason.into(), sink);
            }
        }
    }

    fn start<S: Sink>(&mut self, node: u32, port: PortId, start: Option<Time>, sink: &mut S) {
        let line = self.line_of[(self.first[node as usize] + u32::from(port.0)) as usize];
        match start {
            Some(at) if at <= self.now => self.transmit(line, sink),
            Some(at) => self.schedule(at, 0, line),
            None => {}
        }
    }

    /// A packet goes onto a line.
    fn fly<S: Sink>(&mut self, line: u32, departure: Departure<Carried>, sink: &mut S) {
        let state = &mut self.lines[line as usize];
        let mut packet = departure.packet;
        state.counters.packets += 1;
        state.counters.bytes += u64::from(packet.header.bytes);
        let (from, port) = (state.from, state.port);
        let mut arrival = departure.arrival;
        let mut copied = None;
        let mut policed = false;
        if let Some(conditioner) = &mut state.conditioner
            && state.up
        {
            policed = !conditioner.conforms(departure.start, packet.header.bytes);
            if !policed {
                packet.dscp = conditioner.mark(&mut packet.header).or(packet.dscp);
                packet.marked &= packet.header.ecn != 0;
            }
        }
        if let Some(impaired) = &mut state.impaired {
            // Counted and decided also while the link is down: the pattern does not depend
            // on when that was.
            let fate = impaired.decide(packet.header.bytes);
            if fate.lost && state.up && !policed {
                state.counters.lost += 1;
                return self.drop_packet(from, Some(port), packet, DropCause::Lost, sink);
            }
            if state.up && !policed {
                state.counters.corrupted += u64::from(fate.corrupted);
                state.counters.copied += u64::from(fate.copied);
                state.counters.late += u64::from(fate.late);
                packet.corrupted |= fate.corrupted;
                arrival = impaired.arrival(departure.arrival, fate.late);
                copied = fate
                    .copied
                    .then(|| impaired.arrival(departure.arrival, fate.late));
            }
        }
        if !state.up {
            state.counters.cut += 1;
            return self.drop_packet(from, Some(port), packet, DropCause::LinkDown, sink);
        }
        if policed {
            return self.drop_packet(from, Some(port), packet, DropCause::Policed, sink);
        }
        self.launch(line, arrival, packet);
        if let Some(arrival) = copied {
            let full = self.inside() >= self.most_packets;
            self.counts.copies += 1;
            packet.copy = true;
            sink.copied(self.now, &packet.header);
            if full {
                return self.drop_packet(from, Some(port), packet, DropCause::TooMany, sink);
            }
            self.launch(line, arrival, packet);
        }
    }

    fn launch(&mut self, line: u32, arrival: Time, packet: Carried) {
        let cuts = self.lines[line as usize].cuts;
        let flight = Flight { packet, line, cuts };
        let place = match self.free.pop() {
            Some(place) => {
                self.flights[place as usize] = flight;
                place
            }
            None => {
                // No more than `most_packets`, a `u32`.
                self.flights.push(flight);
                (self.flights.len() - 1) as u32
            }
        };
        // At one moment by where they come from: a host, or a switch's port.
        let Line { from, port, .. } = self.lines[line as usize];
        let beginning = self.first[from as usize] + u32::from(port.0);
        self.schedule(
            arrival,
            ARRIVAL | u64::from(beginning) << PLANNED_BITS,
            place,
        );
    }

    /// A packet is at its line's end.
    fn arrive<S: Sink>(&mut self, place: u32, sink: &mut S) {
        let Flight { packet, line, cuts } = self.flights[place as usize];
        self.free.push(place);
        let state = &mut self.lines[line as usize];
        if state.cuts != cuts {
            state.counters.cut += 1;
            let (from, port) = (state.from, state.port);
            return self.drop_packet(from, Some(port), packet, DropCause::LinkDown, sink);
        }
        let (to, by) = (state.to, state.to_port);
        if to < self.hosts || packet.header.destination == to {
            self.counts.delivered += 1;
            let delivered = Delivered {
                node: self.node(to),
                packet: packet.header,
                hops: packet.hops,
                dscp: packet.dscp,
                marked: packet.marked,
                corrupted: packet.corrupted,
                copy: packet.copy,
            };
            return sink.delivered(self.now, delivered);
        }
        self.forward(to, by, packet, sink);
    }

    fn forward<S: Sink>(&mut self, node: u32, by: PortId, packet: Carried, sink: &mut S) {
        let expires = packet.header.ttl <= 1 && self.nodes[node as usize].decrements_ttl();
        let long = match self.has_mtus && !expires {
            true => self.too_long_for(node, &packet),
            false => None,
        };
        let Some(long) = long else {
            return self.pass(node, by, packet, sink);
        };
        for fragment in self.fragments(node, packet, long, sink) {
            self.pass(node, by, fragment, sink);
        }
    }

    fn pass<S: Sink>(&mut self, node: u32, by: PortId, mut packet: Carried, sink: &mut S) {
        packet.hops = packet.hops.saturating_add(1);
        let mut observer = SinkObserver {
            node: self.node(node),
            sink,
        };
        match self.nodes[node as usize].pass(self.now, by, packet, &mut observer) {
            Passed::Left { departure, queued } => {
                let at = self.first[node as usize] + u32::from(queued.port.0);
                self.fly(self.line_of[at as usize], departure, sink);
            }
            Passed::Queued(queued) => self.start(node, queued.port, queued.start, sink),
            Passed::Dropped { mut packet, reason } => {
                // It was not forwarded.
                packet.hops = packet.hops.saturating_sub(1);
                self.drop_packet(node, Some(by), packet, reason.into(), sink);
            }
        }
    }

    #[cold]
    pub(super) fn drop_packet<S: Sink>(
        &mut self,
        node: u32,
        port: Option<PortId>,
        packet: Carried,
        cause: DropCause,
        sink: &mut S,
    ) {
        let node = self.node(node);
        self.report_drop(node, port, packet, cause, sink);
    }

    fn report_drop<S: Sink>(
        &mut self,
        node: Node,
        port: Option<PortId>,
        packet: Carried,
        cause: DropCause,
        sink: &mut S,
    ) {
        self.counts.dropped += 1;
        let dropped = Dropped {
            node,
            port,
            packet: packet.header,
            dscp: packet.dscp,
            hops: packet.hops,
            cause,
            copy: packet.copy,
        };
        sink.dropped(self.now, dropped);
    }

    /// The time of the last call or event.
    pub fn now(&self) -> Time {
        self.now
    }

    /// How many hosts.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// How many switches.
    pub fn switches(&self) -> u32 {
        self.nodes.len() as u32 - self.hosts
    }

    /// How many lines: two a link.
    pub fn lines(&self) -> u32 {
        self.lines.len() as u32
    }

    /// Where packets are; those inside are counted where they are.
    pub fn counts(&self) -> Counts {
        let waiting = self
            .nodes
            .iter()
            .map(|node| u64::from(node.total_depth().packets));
        let flying = self.flights.len() - self.free.len();
        Counts {
            inside: waiting.sum::<u64>() + flying as u64,
            ..self.counts
        }
    }

    /// What waits at a port, all classes; nothing at a port that is not there.
    pub fn depth(&self, end: End) -> Depth {
        let node = self.index(end.node);
        node.map_or(Depth::default(), |node| {
            self.nodes[node as usize].depth(end.port)
        })
    }

    /// What a port has done; nothing if it is not there.
    pub fn counters(&self, end: End) -> Counters {
        let node = self.index(end.node);
        node.map_or(Counters::default(), |node| {
            self.nodes[node as usize].counters(end.port)
        })
    }

    /// What a line has done; nothing if it is not there.
    pub fn line_counters(&self, line: u32) -> LineCounters {
        let line = self.lines.get(line as usize);
        line.map_or(LineCounters::default(), |line| line.counters)
    }

    /// What a line has done by its conditions; nothing if it is not there or has none.
    pub fn condition_counters(&self, line: u32) -> ConditionCounters {
        let line = self.lines.get(line as usize);
        let conditioner = line.and_then(|line| line.conditioner.as_ref());
        conditioner.map_or(ConditionCounters::default(), |state| state.counters)
    }
}

/// Hands a switch's events to a sink.
struct SinkObserver<'a, S> {
    sink: &'a mut S,
    node: Node,
}

impl<S> SinkObserver<'_, S> {
    fn end(&self, port: PortId) -> End {
        End {
            node: self.node,
            port,
        }
    }
}

impl<S: Sink> Observer<Carried> for SinkObserver<'_, S> {
    #[inline]
    fn enqueued(&mut self, at: Time, port: PortId, packet: &Carried, depth: Depth) {
        self.sink
            .enqueued(at, self.end(port), &packet.header, depth);
    }

    #[inline]
    fn dequeued(&mut self, at: Time, port: PortId, packet: &Carried, depth: Depth) {
        self.sink
            .dequeued(at, self.end(port), &packet.header, depth);
    }

    #[inline]
    fn marked(&mut self, at: Time, port: PortId, packet: &Carried, queue: Depth) {
        self.sink.marked(at, self.end(port), &packet.header, queue);
    }

    #[inline]
    fn dropped(&mut self, _: Time, _: Option<PortId>, _: &Carried, _: DropReason) {}

    #[inline]
    fn detoured(&mut self, at: Time, from: PortId, to: PortId, packet: &Carried) {
        self.sink.detoured(at, self.end(from), to, &packet.header);
    }
}

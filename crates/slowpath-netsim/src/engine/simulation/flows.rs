// SPDX-License-Identifier: Apache-2.0
//! Flows, and what the ends of connections make of packets.

use super::{Simulation, config_of};
use crate::engine::network::SwitchId;
use crate::engine::packet::{Body, Content, Hop};
use crate::engine::recorder::End;
use crate::engine::settings::{Application, DATAGRAM_HEADER, FlowSpec, SimulationError, Transport};
use crate::engine::timers::{Timer, TimerEntry};
use crate::tcp::{Ack, OVERHEAD};
use crate::topology::Node;
use slowpath_switch::{PortId, Time};
use std::cmp::Reverse;

impl Simulation {
    /// A packet came to a host.
    #[inline]
    pub(super) fn deliver(&mut self, host: u32, hop: Hop) {
        self.counts.delivered += 1;
        self.count_path(&hop, 1);
        let (body, blocks) = self.bodies.remove(hop.body());
        self.note_detour(&hop, &body);
        let at = body.connection;
        if body.is_damaged() {
            // Its checksum is wrong.
            return self.left_network(at);
        }
        if self.records.capturing.is_some() {
            self.capture_arrived(&hop, &body, blocks);
        }
        let end = match body.is_segment() {
            true => End::Receiver,
            false => End::Sender,
        };
        self.note_handler(at, end, Some(hop.body()));
        let connection = &mut self.connections.places[at as usize];
        match body.content(blocks) {
            Content::Datagram(len) => {
                connection.arrived += u64::from(len);
                self.finish_flows(at);
            }
            Content::Segment(segment) => {
                let config = config_of(&self.settings.tcp, connection);
                let before = connection.receiver.next();
                let received =
                    connection
                        .receiver
                        .on_data(config, self.now, &segment, hop.is_marked());
                if connection.receiver.next() != before {
                    self.finish_flows(at);
                }
                if let Some(ack) = received.before {
                    self.acknowledge(host, at, &ack);
                }
                match received.ack {
                    Some(ack) => self.acknowledge(host, at, &ack),
                    None => self.arm_ack(at),
                }
                self.kick(host);
            }
            Content::Ack(ack) => {
                let config = config_of(&self.settings.tcp, connection);
                connection.sender.on_ack(config, self.now, &ack);
                self.after_sender(host, at);
            }
        }
        self.left_network(at);
    }

    /// Whatever the sender wants now: to send, to be woken.
    #[inline]
    pub(super) fn after_sender(&mut self, host: u32, at: u32) {
        self.arm_send(at);
        let connection = &mut self.connections.places[at as usize];
        let config = config_of(&self.settings.tcp, connection);
        if connection.sender.fills_device() {
            self.write_out(host, at);
            self.kick(host);
        } else if !connection.ready && connection.sender.wants_to_send(config) {
            connection.ready = true;
            self.interfaces[host as usize].ready.push_back(at);
            self.kick(host);
        }
    }

    /// As much as may leave goes to the device's queue at once (`tcp_write_xmit`), if not too
    /// much of it is there already.
    pub(super) fn write_out(&mut self, host: u32, at: u32) {
        loop {
            let connection = &mut self.connections.places[at as usize];
            connection.sender.note_waiting(connection.queued.bytes);
            let hop = self.segment_of(at);
            let connection = &mut self.connections.places[at as usize];
            let Some(hop) = hop else {
                connection.queued.throttled |= connection.sender.is_throttled();
                return;
            };
            let config = config_of(&self.settings.tcp, connection);
            connection.queued.bytes +=
                u64::from(hop.length().saturating_sub(config.header)) + OVERHEAD;
            self.interfaces[host as usize].packets.push_back(hop);
        }
    }

    /// The host's link took a packet.
    pub(super) fn taken(&mut self, host: u32, hop: &Hop) {
        let body = self.bodies.at(hop.body());
        let at = body.connection;
        let connection = &mut self.connections.places[at as usize];
        if connection.source.0 != host {
            return;
        }
        let config = config_of(&self.settings.tcp, connection);
        let bytes = u64::from(hop.length().saturating_sub(config.header)) + OVERHEAD;
        connection.queued.bytes = connection.queued.bytes.saturating_sub(bytes);
        if core::mem::take(&mut connection.queued.throttled) {
            self.write_out(host, at);
        }
    }

    /// Sees that the sender is woken when it wants.
    #[inline]
    pub(super) fn arm_send(&mut self, at: u32) {
        let connection = &mut self.connections.places[at as usize];
        let Some(deadline) = connection.sender.deadline() else {
            return;
        };
        if deadline < connection.timers.send {
            connection.timers.send = deadline;
            self.timers
                .push(deadline, at, Timer::Send, connection.generation);
        }
        if self.features.kernels {
            self.place_send(at, deadline);
        }
    }

    /// Sees that what pacing holds back is sent when it may be.
    pub(super) fn arm_pace(&mut self, at: u32) {
        let connection = &mut self.connections.places[at as usize];
        let Some(until) = connection.sender.paced_until() else {
            return;
        };
        if until != connection.timers.pace {
            connection.timers.pace = until;
            self.timers
                .push(until, at, Timer::Pace, connection.generation);
        }
    }

    /// Notes where Linux's timer wheel has a sender's timer.
    fn place_send(&mut self, at: u32, deadline: Time) {
        let connection = &mut self.connections.places[at as usize];
        let config = config_of(&self.settings.tcp, connection);
        let moved = connection.sender.take_timer_moved();
        if let Some(tick) = config.kernel_tick {
            let place = &mut connection.timers.send_place;
            place.set(self.now, deadline, tick, moved, &mut self.timers.placed);
        }
    }

    pub(super) fn arm_ack(&mut self, at: u32) {
        let connection = &mut self.connections.places[at as usize];
        let Some(deadline) = connection.receiver.deadline() else {
            return;
        };
        if deadline < connection.timers.acknowledge {
            connection.timers.acknowledge = deadline;
            self.timers
                .push(deadline, at, Timer::Acknowledge, connection.generation);
        }
        let config = config_of(&self.settings.tcp, connection);
        if let Some(tick) = config.kernel_tick {
            let place = &mut connection.timers.acknowledge_place;
            place.set(self.now, deadline, tick, false, &mut self.timers.placed);
        }
    }

    #[inline]
    pub(super) fn acknowledge(&mut self, host: u32, at: u32, ack: &Ack) {
        let body = self.bodies.insert_ack(at, ack);
        if let Some(packets) = &mut self.records.packets {
            packets.made(at, End::Receiver, body);
        }
        let connection = &mut self.connections.places[at as usize];
        connection.in_network += 1;
        let config = config_of(&self.settings.tcp, connection);
        let bytes = connection.receiver.wire_bytes(config, ack);
        let capable = connection.receiver.is_ecn_capable(config);
        let hop = Hop::new(
            body,
            connection.key.wrapping_add(1),
            connection.source.0,
            bytes,
            self.settings.ttl,
        )
        .capable(capable)
        .classed(connection.class, connection.label);
        self.interfaces[host as usize].packets.push_back(hop);
    }

    /// Notes flows whose last byte is there.
    #[inline]
    pub(super) fn finish_flows(&mut self, at: u32) {
        let now = self.now;
        while let Some(message) = self.connections.places[at as usize].take_finished(now) {
            if let Some(query) = message.query {
                self.queries.finish(query, now);
            }
            self.flows.push(message.record);
        }
    }

    /// The earliest timer; of Linux hosts all of that tick.
    pub(super) fn expire(&mut self) {
        let Some(first) = self.timers.pop() else {
            return;
        };
        if !self.features.kernels {
            return self.expire_one(first);
        }
        let mut due = vec![(self.take_place(&first), first)];
        while self.timers.next() == first.0
            && let Some(next) = self.timers.pop()
        {
            due.push((self.take_place(&next), next));
        }
        due.sort_by_key(|entry| Reverse(entry.0));
        for (_, entry) in due {
            self.expire_one(entry);
        }
    }

    /// When a timer expires among those of the same tick: the larger the earlier.
    fn take_place(&mut self, entry: &TimerEntry) -> (bool, u64) {
        let timers = &mut self.connections.places[entry.1 as usize].timers;
        match entry.2 {
            Timer::Send => timers.send_place.take(entry.0),
            Timer::Acknowledge => timers.acknowledge_place.take(entry.0),
            Timer::Pace | Timer::Write => (false, 0),
        }
    }

    fn expire_one(&mut self, entry: TimerEntry) {
        let (at, number, timer, generation) = entry;
        let connection = &mut self.connections.places[number as usize];
        if connection.generation != generation || !connection.open {
            return;
        }
        let source = connection.source.0;
        let config = config_of(&self.settings.tcp, connection);
        match timer {
            Timer::Send if connection.timers.send == at => {
                connection.timers.send = Time::MAX;
                if connection.sender.deadline().is_some_and(|due| due <= at) {
                    connection.sender.on_deadline(config, at);
                    self.note_handler(number, End::Sender, None);
                } else if connection.sender.fills_device() {
                    // Linux's timer was moved: nothing happens now.
                    self.arm_send(number);
                    return;
                }
                self.after_sender(source, number);
            }
            Timer::Acknowledge if connection.timers.acknowledge == at => {
                connection.timers.acknowledge = Time::MAX;
                let host = connection.destination.0;
                match connection.receiver.on_deadline(config, at) {
                    Some(ack) => {
                        self.note_handler(number, End::Receiver, None);
                        self.acknowledge(host, number, &ack);
                        self.kick(host);
                    }
                    None => self.arm_ack(number),
                }
            }
            Timer::Pace if connection.timers.pace == at => {
                connection.timers.pace = Time::MAX;
                connection.sender.on_paced();
                self.after_sender(source, number);
            }
            Timer::Write => {
                self.write(number);
                self.after_sender(source, number);
            }
            _ => {}
        }
    }

    /// A flow begins.
    pub(super) fn begin(&mut self, spec: &FlowSpec) -> Result<(), SimulationError> {
        spec.check(self.interfaces.len(), &self.settings)?;
        let shared = spec
            .connection
            .map(|number| (spec.source, spec.destination, number));
        let known = shared.and_then(|shared| self.lasting.get(&shared).copied());
        let at = match known {
            Some(at) => at,
            None => {
                // The lower 32 bits: a hash key.
                let key = self.random.next_u64() as u32;
                let kind = match spec.transport {
                    Transport::Tcp(kind) => usize::from(kind),
                    Transport::Datagrams(_) => 0,
                };
                let Some(config) = self.settings.tcp.get(kind) else {
                    return Err(SimulationError::Flow(
                        spec.id,
                        "there is no TCP configuration",
                    ));
                };
                self.connections.open(spec, config, key)
            }
        };
        if let Some(shared) = shared {
            self.lasting.insert(shared, at);
        }
        if let Some(query) = spec.query {
            self.queries.begin(query);
        }
        let path = if self.settings.paths {
            self.path(at)
        } else {
            Vec::new()
        };
        let connection = &mut self.connections.places[at as usize];
        connection.begin(spec, path);
        match spec.transport {
            Transport::Tcp(_) => {
                connection.unwritten += spec.bytes;
                self.write(at);
                self.after_sender(spec.source.0, at);
            }
            Transport::Datagrams(bytes) => self.send_datagrams(at, spec, bytes),
        }
        Ok(())
    }

    /// What an end of a connection does next is because of that packet, or of none.
    #[inline]
    fn note_handler(&mut self, at: u32, end: End, packet: Option<u32>) {
        if let Some(packets) = &mut self.records.packets {
            packets.handles(at, end, packet);
        }
    }

    /// The application writes what it writes at a time.
    pub(super) fn write(&mut self, at: u32) {
        self.note_handler(at, End::Sender, None);
        let connection = &mut self.connections.places[at as usize];
        let config = config_of(&self.settings.tcp, connection);
        let bytes = match connection.application {
            Application::AtOnce => connection.unwritten,
            Application::Periodic { chunk, .. } => connection.unwritten.min(u64::from(chunk)),
        };
        connection.unwritten -= bytes;
        connection.sender.write(config, self.now, bytes);
        if let Application::Periodic { every, .. } = connection.application
            && connection.unwritten > 0
        {
            self.timers
                .push(self.now + every, at, Timer::Write, connection.generation);
        }
    }

    pub(super) fn send_datagrams(&mut self, at: u32, spec: &FlowSpec, bytes: u16) {
        let payload = bytes - DATAGRAM_HEADER;
        let mut left = spec.bytes;
        while left > 0 {
            let len = left.min(u64::from(payload));
            left -= len;
            // Not above `payload`.
            let body = self.bodies.insert(Body::datagram(at, len as u32));
            let connection = &mut self.connections.places[at as usize];
            connection.in_network += 1;
            let hop = Hop::new(
                body,
                connection.key,
                connection.destination.0,
                DATAGRAM_HEADER + len as u16,
                self.settings.ttl,
            )
            .classed(spec.class, spec.label);
            self.interfaces[spec.source.0 as usize]
                .packets
                .push_back(hop);
        }
        self.kick(spec.source.0);
    }

    /// The ports that the connection's data leaves switches by.
    pub(super) fn path(&self, at: u32) -> Vec<(SwitchId, PortId)> {
        let connection = &self.connections.places[at as usize];
        let to = slowpath_switch::Destination(connection.destination.0);
        let mut path = Vec::new();
        let topology = &self.network.topology;
        let mut next = topology.hosts()[connection.source.0 as usize].port.peer;
        // As long as the network at most: routes are shortest paths.
        while let Node::Switch(node) = next
            && path.len() <= self.nodes.len()
        {
            let switch = &self.nodes[node as usize].switch;
            let Some(port) = switch.next_port(to, u64::from(connection.key)) else {
                break;
            };
            path.push((SwitchId(node), port));
            next = topology.switches()[node as usize].ports[usize::from(port.0)].peer;
        }
        path
    }
}

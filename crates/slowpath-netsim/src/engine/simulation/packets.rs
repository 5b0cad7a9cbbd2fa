// SPDX-License-Identifier: Apache-2.0
//! Packets from link to link.

use super::{CatchUp, HOST, Link, NANOSECOND, Simulation, config_of};
use crate::engine::HostId;
use crate::engine::flying::Flying;
use crate::engine::packet::{Body, Hop};
use crate::engine::recorder::{End, Recorder};
use crate::host::{PAUSED, SCHEDULED};
use crate::results::SentPacket;
use slowpath_switch::{DropReason, Outcome, Packet, Passed, PortId, Queued, Time};

impl Simulation {
    /// The first packet of a link arrives at its end.
    #[inline]
    pub(super) fn arrive<const WATCH: bool>(&mut self, link: u32) {
        let state = &mut self.links[link as usize];
        // A link is due only while something flies.
        let Some(Flying { hop, .. }) = state.flying.pop_front(&mut self.overflow) else {
            return;
        };
        let next = state.flying.front().map(|flying| flying.arrival);
        let Link {
            from,
            from_port,
            to,
            to_port,
            due,
            ..
        } = *state;
        self.counts.hops += 1;
        if due <= self.now {
            self.catch_up::<WATCH>(from, from_port, link);
        }
        if let Some(next) = next {
            self.wheel.schedule(link, next);
        } else if due <= self.now
            && let Some(first) = self.links[link as usize].flying.front()
        {
            self.wheel.schedule(link, first.arrival);
        }
        if WATCH && self.features.lines.is_some() && !self.emerges(link, hop) {
            return;
        }
        if to & HOST == 0 {
            self.forward::<WATCH>(to, to_port, hop);
        } else {
            self.deliver(to & !HOST, hop);
        }
    }

    /// A packet comes to the end of a link.
    pub(super) fn reach<const WATCH: bool>(&mut self, link: u32, hop: Hop) {
        let Link { to, to_port, .. } = self.links[link as usize];
        if to & HOST == 0 {
            self.forward::<WATCH>(to, to_port, hop);
        } else {
            self.deliver(to & !HOST, hop);
        }
    }

    /// Whether something waits at a port that could have started by now.
    #[inline]
    fn is_due(&self, node: u32, port: PortId) -> bool {
        let due = self.nodes[node as usize].switch.due(port);
        due.is_some_and(|due| due <= self.now)
    }

    /// Lets a port start what is due; the link is not scheduled here.
    #[inline]
    pub(super) fn catch_up<const WATCH: bool>(&mut self, node: u32, port: PortId, link: u32) {
        let whole = self.features.kernels && self.links[link as usize].to & HOST != 0;
        let state = &mut self.nodes[node as usize];
        let mut recorder = Recorder::<WATCH> {
            records: &mut self.records,
            switch: node,
            first_link: state.first_link,
        };
        while let Some(departure) = state.switch.transmit(self.now, port, &mut recorder) {
            let mut arrival = departure.arrival;
            if WATCH
                && let Some(lines) = &mut self.features.lines
                && let Some(line) = lines.get(link)
            {
                arrival = line.start(arrival, departure.packet.length());
            }
            let flying = Flying {
                arrival: if whole {
                    Time(arrival.0.next_multiple_of(NANOSECOND))
                } else {
                    arrival
                },
                hop: departure.packet,
            };
            let link = &mut self.links[link as usize];
            link.flying.push_back(&mut self.overflow, flying);
            link.due = departure.next.unwrap_or(Time::MAX);
            if departure.next.is_none_or(|next| next > self.now) {
                break;
            }
        }
        if WATCH && self.features.extras {
            self.after_extras(node, port, link);
        }
    }

    /// What the management of a port's queue dropped is gone; flow control looks at what has left.
    #[cold]
    #[inline(never)]
    fn after_extras(&mut self, node: u32, port: PortId, link: u32) {
        let state = &mut self.nodes[node as usize];
        let decrements = state.decrements;
        self.links[link as usize].due = state.switch.due(port).unwrap_or(Time::MAX);
        while let Some(packet) = self.nodes[node as usize].switch.take_dropped() {
            self.drop_packet(packet, DropReason::Early, decrements);
        }
        self.send_frames(node);
        self.plan_start(link);
    }

    /// The same for a port whose link is not the one that just had an arrival.
    #[inline]
    pub(super) fn start_due<const WATCH: bool>(&mut self, node: u32, port: PortId) {
        let link = self.nodes[node as usize].first_link + u32::from(port.0);
        let was_empty = self.links[link as usize].flying.is_empty();
        self.catch_up::<WATCH>(node, port, link);
        if was_empty && let Some(first) = self.links[link as usize].flying.front() {
            self.wheel.schedule(link, first.arrival);
        }
    }

    pub(super) fn start_all_due<const WATCH: bool>(&mut self, node: u32) {
        for port in 0..self.nodes[node as usize].switch.ports() {
            self.start_due::<WATCH>(node, PortId(port as u16));
        }
    }

    /// A packet came to a switch.
    #[inline]
    pub(super) fn forward<const WATCH: bool>(&mut self, node: u32, by: PortId, hop: Hop) {
        let next_port = match WATCH && self.features.extras {
            true => self.choose_port(node, &hop),
            false => {
                let switch = &self.nodes[node as usize].switch;
                switch.next_port(hop.destination(), hop.flow())
            }
        };
        match self.nodes[node as usize].catch_up {
            CatchUp::All => self.start_all_due::<WATCH>(node),
            wish => {
                if let Some(port) = next_port {
                    if self.is_due(node, port) {
                        self.start_due::<WATCH>(node, port);
                    }
                    if wish == CatchUp::AllWhenFull
                        && !self.nodes[node as usize].switch.has_room(port, &hop)
                    {
                        self.start_all_due::<WATCH>(node);
                    }
                }
            }
        }
        if WATCH && self.features.extras {
            return self.arrive_extras::<WATCH>(node, by, hop);
        }
        let state = &mut self.nodes[node as usize];
        let mut recorder = Recorder::<WATCH> {
            records: &mut self.records,
            switch: node,
            first_link: state.first_link,
        };
        match state
            .switch
            .pass_to(self.now, by, next_port, hop, &mut recorder)
        {
            Passed::Left { departure, queued } => {
                let link = state.first_link + u32::from(queued.port.0);
                if queued.detoured {
                    self.bodies.detour(hop.body());
                }
                self.fly(link, departure.arrival, departure.packet);
            }
            Passed::Queued(queued) => self.note_queued::<WATCH>(node, hop, queued),
            Passed::Dropped { packet, reason } => {
                let decrements = state.decrements;
                self.drop_packet(packet, reason, decrements);
            }
        }
    }

    /// A packet waits in a queue, if only until now.
    #[inline]
    fn note_queued<const WATCH: bool>(&mut self, node: u32, hop: Hop, queued: Queued) {
        if queued.detoured {
            self.bodies.detour(hop.body());
        }
        if let Some(start) = queued.start {
            let link = self.nodes[node as usize].first_link + u32::from(queued.port.0);
            self.links[link as usize].due = start;
            if start <= self.now {
                self.start_due::<WATCH>(node, queued.port);
            }
        }
    }

    /// The port that a packet will leave by, if its flow's hash does not say.
    #[cold]
    #[inline(never)]
    fn choose_port(&mut self, node: u32, hop: &Hop) -> Option<PortId> {
        let switch = &mut self.nodes[node as usize].switch;
        switch.choose_port(self.now, hop.destination(), hop.flow())
    }

    /// A packet came to a switch of a network whose switches do what most do without.
    #[cold]
    #[inline(never)]
    fn arrive_extras<const WATCH: bool>(&mut self, node: u32, by: PortId, hop: Hop) {
        let state = &mut self.nodes[node as usize];
        let mut recorder = Recorder::<WATCH> {
            records: &mut self.records,
            switch: node,
            first_link: state.first_link,
        };
        match state.switch.arrive(self.now, by, hop, &mut recorder) {
            Outcome::Queued(queued) => {
                let link = state.first_link + u32::from(queued.port.0);
                self.note_queued::<WATCH>(node, hop, queued);
                self.plan_start(link);
            }
            Outcome::Dropped { packet, reason } => {
                let decrements = state.decrements;
                self.drop_packet(packet, reason, decrements);
            }
        }
        // What has left at once does not count.
        self.send_frames(node);
    }

    /// When the far end of a link notices what arrives then.
    #[cold]
    #[inline(never)]
    pub(super) fn noticed(&self, link: u32, arrival: Time) -> Time {
        if self.links[link as usize].to & HOST != 0 {
            self.at_host(arrival)
        } else {
            arrival
        }
    }

    /// A packet leaves for the far end of a link.
    #[inline(always)]
    pub(super) fn fly(&mut self, link: u32, arrival: Time, hop: Hop) {
        let arrival = match self.features.any() {
            true => self.start_on(link, arrival, &hop),
            false => arrival,
        };
        let flying = &mut self.links[link as usize].flying;
        if flying.is_empty() {
            self.wheel.schedule(link, arrival);
        }
        flying.push_back(&mut self.overflow, Flying { arrival, hop });
    }

    #[cold]
    pub(super) fn drop_packet(&mut self, hop: Hop, _: DropReason, decrements: bool) {
        self.counts.dropped += 1;
        self.count_path(&hop, u64::from(!decrements));
        let (body, _) = self.bodies.remove(hop.body());
        self.note_detour(&hop, &body);
        self.left_network(body.connection);
    }

    /// Links passed, by the time to live: as many as switches, and one more at a host.
    #[inline]
    pub(super) fn count_path(&mut self, hop: &Hop, extra: u64) {
        self.counts.path_lengths += u64::from(self.settings.ttl - hop.ttl()) + extra;
    }

    pub(super) fn note_detour(&mut self, hop: &Hop, body: &Body) {
        if body.is_detoured() {
            self.records.labels[usize::from(hop.label())].detoured_packets += 1;
        }
    }

    /// A packet of the connection is gone; perhaps it was the last.
    #[inline]
    pub(super) fn left_network(&mut self, at: u32) {
        let connection = &mut self.connections.places[at as usize];
        connection.in_network -= 1;
        if connection.in_network == 0 && connection.is_over() && !connection.ready {
            self.connections.close(at);
        }
    }

    /// Sends if the line is free, and sees that it goes on when it is.
    #[inline]
    pub(super) fn kick(&mut self, host: u32) {
        let interface = &mut self.interfaces[host as usize];
        if interface.hold != 0 || interface.is_idle() {
            if interface.hold == PAUSED {
                self.kick_paused(host);
            }
            return;
        }
        self.send_next(host, Self::next_packet);
    }

    /// Sends what `next` gives if the line is free, and comes back when it is free again.
    #[inline(always)]
    pub(super) fn send_next(
        &mut self,
        host: u32,
        next: impl FnOnce(&mut Self, u32) -> Option<Hop>,
    ) {
        if self.interfaces[host as usize].line.free_at() <= self.now {
            let Some(hop) = next(self, host) else {
                return;
            };
            self.put_on_line(host, hop);
        }
        let interface = &mut self.interfaces[host as usize];
        if !interface.is_idle() {
            interface.hold |= SCHEDULED;
            let at = interface.line.free_at();
            self.wheel.schedule(self.links.len() as u32 + host, at);
        }
    }

    /// A host's line is free and takes a packet.
    #[inline(always)]
    pub(super) fn put_on_line(&mut self, host: u32, hop: Hop) {
        let interface = &mut self.interfaces[host as usize];
        let finish = interface.line.send(self.now, hop.bytes());
        let arrival = finish + interface.line.propagation();
        self.counts.sent += 1;
        self.records.labels[usize::from(hop.label())].sent += 1;
        interface.sent_packets += 1;
        interface.sent_bytes += u64::from(hop.bytes());
        if let Some(packets) = &mut self.records.packets {
            let packet = SentPacket {
                at: self.now,
                source: HostId(host),
                destination: HostId(hop.to()),
                key: hop.key(),
                bytes: hop.length(),
                after: None,
            };
            packets.sent(hop.body(), packet);
        }
        if self.records.capturing.is_some() {
            self.capture_sent(&hop);
        }
        self.fly(host, arrival, hop);
    }

    /// What a free interface sends next: a waiting packet, or a segment of the next
    /// connection in turn.
    #[inline]
    pub(super) fn next_packet(&mut self, host: u32) -> Option<Hop> {
        let mut interface = &mut self.interfaces[host as usize];
        if let Some(hop) = interface.packets.pop_front() {
            if self.features.kernels {
                self.taken(host, &hop);
            }
            return Some(hop);
        }
        while let Some(at) = interface.ready.pop_front() {
            if let Some(hop) = self.segment_in_turn(host, at) {
                return Some(hop);
            }
            interface = &mut self.interfaces[host as usize];
        }
        None
    }

    /// The segment of a connection whose turn it is, if one may leave. Its next turn is the last.
    #[inline(always)]
    pub(super) fn segment_in_turn(&mut self, host: u32, at: u32) -> Option<Hop> {
        let hop = self.segment_of(at);
        let connection = &mut self.connections.places[at as usize];
        let config = config_of(&self.settings.tcp, connection);
        connection.ready = connection.sender.wants_to_send(config);
        if connection.ready {
            self.interfaces[host as usize].ready.push_back(at);
        }
        if hop.is_some() {
            return hop;
        }
        let connection = &self.connections.places[at as usize];
        if !connection.ready && connection.is_over() {
            self.connections.close(at);
        }
        None
    }

    /// A connection's next segment, if one may leave.
    #[inline]
    pub(super) fn segment_of(&mut self, at: u32) -> Option<Hop> {
        let connection = &mut self.connections.places[at as usize];
        let config = config_of(&self.settings.tcp, connection);
        let segment = connection.sender.poll_transmit(config, self.now);
        self.arm_send(at);
        if self.features.paced {
            self.arm_pace(at);
        }
        let segment = segment?;
        let connection = &mut self.connections.places[at as usize];
        let config = config_of(&self.settings.tcp, connection);
        connection.in_network += 1;
        let body = self.bodies.insert(Body::segment(at, &segment));
        if let Some(packets) = &mut self.records.packets {
            packets.made(at, End::Sender, body);
        }
        let bytes = connection.sender.wire_bytes(config, &segment);
        let capable = connection.sender.is_ecn_capable(config, &segment);
        let hop = Hop::new(
            body,
            connection.key,
            connection.destination.0,
            bytes,
            self.settings.ttl,
        )
        .capable(capable)
        .classed(connection.class, connection.label);
        Some(hop)
    }
}

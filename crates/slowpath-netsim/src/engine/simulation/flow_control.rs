// SPDX-License-Identifier: Apache-2.0
//! Pauses: from a switch whose buffer runs full, to what sends into it.

use super::{HOST, Link, Simulation};
use crate::engine::flow_control::{Deadlock, Event, PauseRecord};
use crate::engine::network::SwitchId;
use crate::engine::packet::Hop;
use crate::host::PAUSED;
use slowpath_switch::{MAX_CLASSES, Packet, PauseCounts, PortId, Time};
use std::collections::BTreeMap;

/// A class of a switch's port.
type Queue = (u32, u16, u8);

impl Simulation {
    /// The frames that a switch sends now go onto their lines.
    pub(super) fn send_frames(&mut self, node: u32) {
        let Some(control) = &mut self.features.flow_control else {
            return;
        };
        let state = &mut self.nodes[node as usize];
        while let Some(frame) = state.switch.take_frame(self.now) {
            let link = state.first_link + u32::from(frame.port.0);
            control.send(frame.arrival, link, frame.class, frame.pause);
        }
    }

    /// Notes when a port's next start is due.
    pub(super) fn plan_start(&mut self, link: u32) {
        let due = self.links[link as usize].due;
        if let Some(control) = &mut self.features.flow_control {
            control.starts_at(link, due);
        }
    }

    /// When the next frame or start is due.
    pub(super) fn due_of_flow_control(&self) -> Time {
        let control = self.features.flow_control.as_ref();
        control.map_or(Time::MAX, |control| control.next())
    }

    /// Carries out the next of them.
    pub(super) fn next_of_flow_control<const WATCH: bool>(&mut self) {
        let control = self.features.flow_control.as_mut();
        match control.and_then(|control| control.pop()) {
            None => {}
            Some(Event::Start(link)) => {
                let Link {
                    from, from_port, ..
                } = self.links[link as usize];
                self.start_due::<WATCH>(from, from_port);
            }
            Some(Event::Frame { link, class, pause }) => {
                let Link { to, to_port, .. } = self.links[link as usize];
                if to & HOST == 0 {
                    self.frame_at_switch::<WATCH>(to, to_port, class, pause);
                } else {
                    let from = self.links[link as usize].from;
                    self.frame_at_host(to & !HOST, from, class, pause);
                }
            }
        }
    }

    fn frame_at_switch<const WATCH: bool>(
        &mut self,
        node: u32,
        port: PortId,
        class: u8,
        pause: bool,
    ) {
        self.start_due::<WATCH>(node, port);
        let state = &mut self.nodes[node as usize];
        let due = state.switch.receive_frame(self.now, port, class, pause);
        let link = state.first_link + u32::from(port.0);
        self.links[link as usize].due = due.unwrap_or(Time::MAX);
        self.plan_start(link);
    }

    fn frame_at_host(&mut self, host: u32, from: u32, class: u8, pause: bool) {
        // The last class of a switch is also that of all beyond.
        let last = self.network.switches[from as usize].classes - 1;
        let classes = match class < last {
            true => 1 << class,
            false => u8::MAX << last,
        };
        let Some(control) = &mut self.features.flow_control else {
            return;
        };
        let interface = &mut self.interfaces[host as usize];
        match control.receive(self.now, host, classes, pause) {
            true => interface.hold |= PAUSED,
            false => interface.hold &= !PAUSED,
        }
        if !pause {
            self.kick(host);
        }
    }

    /// [`Simulation::kick`] at a host that may not send some class.
    #[cold]
    #[inline(never)]
    pub(super) fn kick_paused(&mut self, host: u32) {
        if !self.interfaces[host as usize].is_idle() {
            self.send_next(host, Self::next_unpaused);
        }
    }

    /// What a free interface sends next of the classes that it may send.
    fn next_unpaused(&mut self, host: u32) -> Option<Hop> {
        loop {
            let control = self.features.flow_control.as_ref()?;
            let interface = &mut self.interfaces[host as usize];
            let mut packets = interface.packets.iter();
            let waiting = packets.position(|hop| !control.is_paused(host, hop.class()));
            if let Some(hop) = waiting.and_then(|at| interface.packets.remove(at)) {
                if self.features.kernels {
                    self.taken(host, &hop);
                }
                return Some(hop);
            }
            let places = &self.connections.places;
            let mut ready = interface.ready.iter();
            let ready = ready.position(|at| !control.is_paused(host, places[*at as usize].class));
            let at = interface.ready.remove(ready?)?;
            if let Some(hop) = self.segment_in_turn(host, at) {
                return Some(hop);
            }
        }
    }

    /// What flow control did; `None` without any.
    pub(super) fn pauses(&self) -> Option<PauseRecord> {
        let control = self.features.flow_control.as_ref()?;
        let hosts = 0..self.interfaces.len() as u32;
        let ports = self.nodes.iter().flat_map(|node| {
            let ports = (0..node.switch.ports() as u16).map(PortId);
            ports.map(|port| node.switch.pause_counts(port, self.now).unwrap_or_default())
        });
        let ports: Vec<PauseCounts> = ports.collect();
        Some(PauseRecord {
            hosts: hosts.map(|host| control.counts(host, self.now)).collect(),
            ports,
            deadlock: self.deadlock(),
        })
    }

    /// Ports that wait for each other for good: the largest set of queues that may not send, each
    /// because of a pause that the packets which wait in the set keep up. None of them ever sends: its
    /// pause ends when less waits that came in there, and that is in queues that do not send.
    fn deadlock(&self) -> Option<Deadlock> {
        let mut held: BTreeMap<Queue, Time> = BTreeMap::new();
        for (number, node) in (0..).zip(&self.nodes) {
            for port in 0..node.switch.ports() as u16 {
                for class in 0..MAX_CLASSES {
                    if let Some(since) = node.switch.is_held(PortId(port), class) {
                        held.insert((number, port, class), since);
                    }
                }
            }
        }
        loop {
            let waits = self.waits(held.keys());
            let before = held.len();
            held.retain(|queue, _| self.waits_for(*queue, &waits).is_some());
            if held.len() == before {
                return self.circle(&held, &waits);
            }
        }
    }

    /// How much waits in those queues, by where it came in; and the first queue that it is in.
    fn waits<'a>(&self, queues: impl Iterator<Item = &'a Queue>) -> BTreeMap<Queue, (u64, Queue)> {
        let mut waits = BTreeMap::new();
        for queue in queues {
            let (number, port, class) = *queue;
            let switch = &self.nodes[number as usize].switch;
            for (by, class, bytes) in switch.origins(PortId(port), class) {
                let input = waits.entry((number, by.0, class)).or_insert((0, *queue));
                input.0 += u64::from(bytes);
            }
        }
        waits
    }

    /// The queue that one waits for that may not send, if what waits is enough to keep up its pause.
    fn waits_for(&self, queue: Queue, waits: &BTreeMap<Queue, (u64, Queue)>) -> Option<Queue> {
        let (number, port, class) = queue;
        let link = self.nodes[number as usize].first_link + u32::from(port);
        let Link { to, to_port, .. } = self.links[link as usize];
        let (bytes, ahead) = waits.get(&(to, to_port.0, class)).copied()?;
        let switch = &self.nodes[to as usize].switch;
        (switch.stays_stopped(to_port, class, bytes)).then_some(ahead)
    }

    /// A circle in a set of queues of which each waits for another.
    fn circle(
        &self,
        held: &BTreeMap<Queue, Time>,
        waits: &BTreeMap<Queue, (u64, Queue)>,
    ) -> Option<Deadlock> {
        let mut way = vec![*held.keys().next()?];
        let from = loop {
            let ahead = self.waits_for(*way.last()?, waits)?;
            if let Some(at) = way.iter().position(|queue| *queue == ahead) {
                break at;
            }
            way.push(ahead);
        };
        let circle = way[from..].iter();
        let circle = circle.map(|(node, port, _)| (SwitchId(*node), PortId(*port)));
        Some(Deadlock {
            since: held.values().copied().max()?,
            circle: circle.collect(),
            ports: held.len(),
        })
    }
}

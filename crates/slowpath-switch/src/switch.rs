// SPDX-License-Identifier: Apache-2.0
//! The switch.

mod extras;
mod flowlets;
mod managed;
mod pfc;
mod state;

use crate::config::{ConfigError, Detour, SwitchConfig};
use crate::flows::Flows;
use crate::line::Departure;
use crate::observer::{DropReason, Observer};
use crate::packet::{Destination, Packet, PortId};
use crate::port::{IDLE, Memory, Port};
use crate::queue::{Depth, Fifo, Slots};
use crate::random::{Random, mix};
use crate::routes::Routes;
use crate::time::{Rate, Span, Time};
use alloc::boxed::Box;
use alloc::vec::Vec;
use extras::Extras;

/// The largest number of a destination, and one: 64 MiB of route table.
const MAX_DESTINATIONS: u32 = 1 << 24;

/// What became of a packet that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<P> {
    /// It waits in a queue.
    Queued(Queued),
    /// It is the caller's again.
    Dropped {
        /// The packet.
        packet: P,
        /// Why.
        reason: DropReason,
    },
}

/// What became of a packet that came in, and left at once if it could.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed<P> {
    /// It is on the line.
    Left {
        /// As [`Switch::transmit`] gives it; there is no next.
        departure: Departure<P>,
        /// The port and what happened on the way to it; there is nothing to start.
        queued: Queued,
    },
    /// It waits in a queue.
    Queued(Queued),
    /// It is the caller's again.
    Dropped {
        /// The packet.
        packet: P,
        /// Why.
        reason: DropReason,
    },
}

/// A packet that joined a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// Where.
    pub port: PortId,
    /// Whether it was marked on the way in.
    pub marked: bool,
    /// Whether this is not the port it should have left by.
    pub detoured: bool,
    /// When to call [`Switch::transmit`] for the port; `None` if a call is due already.
    pub start: Option<Time>,
}

/// A packet that fits.
struct Admitted<P> {
    packet: P,
    port: PortId,
    class: u8,
    marked: bool,
    detoured: bool,
}

/// A switch: routes, queues, a shared memory, and the lines behind its ports. See the
/// [crate's documentation](crate) for what it models and who schedules.
#[derive(Clone, Debug)]
pub struct Switch<P> {
    ports: Vec<Port>,
    /// Of port p the classes from p * classes on.
    queues: Vec<Fifo>,
    slots: Slots<P>,
    memory: Option<Memory>,
    classes: u8,
    detour: Option<Detour>,
    decrement_ttl: bool,
    flows: Option<Flows>,
    routes: Routes,
    /// Most switches have none.
    extras: Option<Box<Extras<P>>>,
    random: Random,
    salt: u64,
    /// Packets dropped before a port was chosen.
    unrouted: [u64; DropReason::ALL.len()],
}

impl<P: Packet> Switch<P> {
    /// An empty one without routes.
    ///
    /// # Errors
    /// The configuration is impossible.
    pub fn new(config: &SwitchConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let mut random = Random::stream(config.seed, u64::from(config.number));
        Ok(Switch {
            ports: config.ports.iter().map(Port::new).collect(),
            queues: alloc::vec![Fifo::EMPTY; config.ports.len() * usize::from(config.classes)],
            slots: Slots::new(),
            memory: config.shared.map(Memory::new),
            classes: config.classes,
            detour: config.detour,
            decrement_ttl: config.decrement_ttl,
            routes: Routes::default(),
            extras: None,
            salt: random.next_u64(),
            flows: config.count_flows.then(|| Flows::new(random.next_u64())),
            random: Random::new(random.next_u64()),
            unrouted: [0; DropReason::ALL.len()],
        })
    }

    /// Replaces the ports that lead to a destination, all equally good; an empty slice
    /// takes the route away.
    ///
    /// # Errors
    /// A port that the switch does not have or that stands twice, or a destination beyond
    /// 2^24: nothing was changed.
    pub fn set_route(
        &mut self,
        destination: Destination,
        ports: &[PortId],
    ) -> Result<(), ConfigError> {
        if destination.0 >= MAX_DESTINATIONS {
            return Err(ConfigError::Destination);
        }
        for (at, port) in ports.iter().enumerate() {
            if port.index() >= self.ports.len() {
                return Err(ConfigError::NoSuchPort(*port));
            }
            if ports[..at].contains(port) {
                return Err(ConfigError::PortTwice(*port));
            }
        }
        self.routes.set(destination, ports);
        Ok(())
    }

    /// The ports that lead to a destination.
    pub fn route(&self, destination: Destination) -> Vec<PortId> {
        self.routes.ports(destination)
    }

    /// Whether a packet's time to live falls by one here.
    #[inline]
    pub(crate) fn decrements_ttl(&self) -> bool {
        self.decrement_ttl
    }

    /// The port that a flow's packets take to a destination if there is room, by the flow's hash.
    /// Flowlets ([`Switch::set_flowlets`]) take that of [`Switch::choose_port`].
    #[inline]
    pub fn next_port(&self, destination: Destination, flow: u64) -> Option<PortId> {
        self.routes.port(destination, || mix(flow ^ self.salt))
    }

    /// A packet's last bit came in by a port.
    #[inline]
    pub fn arrive(
        &mut self,
        now: Time,
        by: PortId,
        packet: P,
        observer: &mut impl Observer<P>,
    ) -> Outcome<P> {
        if self.extras.is_some() {
            return self.arrive_extras(now, by, packet, observer);
        }
        let port = self.next_port(packet.destination(), packet.flow());
        match self.enter(now, by, port, packet, observer) {
            Ok(admitted) => Outcome::Queued(self.enqueue(now, admitted, observer)),
            Err((packet, reason)) => Outcome::Dropped { packet, reason },
        }
    }

    /// [`Switch::arrive`], and [`Switch::transmit`] with it if the packet can leave at once:
    /// the same results and the same events, for less.
    #[inline]
    pub fn pass(
        &mut self,
        now: Time,
        by: PortId,
        packet: P,
        observer: &mut impl Observer<P>,
    ) -> Passed<P> {
        if self.extras.is_some() {
            return self.pass_extras(now, by, packet, observer);
        }
        let port = self.next_port(packet.destination(), packet.flow());
        self.pass_to(now, by, port, packet, observer)
    }

    /// [`Switch::pass`] for a packet whose [`Switch::next_port`] is `port`; one that the switch
    /// does not have is no route. Only of a switch without managed queues ([`Switch::set_aqm`]),
    /// flowlets ([`Switch::set_flowlets`]) and flow control ([`Switch::set_pfc`]): none would be asked.
    #[inline]
    pub fn pass_to(
        &mut self,
        now: Time,
        by: PortId,
        port: Option<PortId>,
        packet: P,
        observer: &mut impl Observer<P>,
    ) -> Passed<P> {
        debug_assert!(self.extras.is_none(), "they are not asked");
        match self.enter(now, by, port, packet, observer) {
            Ok(admitted) => self.leave_or_enqueue(now, admitted, observer),
            Err((packet, reason)) => Passed::Dropped { packet, reason },
        }
    }

    /// A packet made here leaves by that port: a host's own. Neither route nor TTL count.
    /// The port is one that the switch has; a packet for another is dropped as without
    /// route.
    #[inline]
    pub fn send(
        &mut self,
        now: Time,
        port: PortId,
        packet: P,
        observer: &mut impl Observer<P>,
    ) -> Outcome<P> {
        if port.index() >= self.ports.len() {
            let (packet, reason) = self.refuse(now, packet, DropReason::NoRoute, observer);
            return Outcome::Dropped { packet, reason };
        }
        let admitted = self.admit(now, None, port, packet, observer);
        match admitted.and_then(|admitted| match self.extras {
            None => Ok(self.enqueue(now, admitted, observer)),
            Some(_) => self.join_extras(now, None, admitted, observer),
        }) {
            Ok(queued) => Outcome::Queued(queued),
            Err((packet, reason)) => Outcome::Dropped { packet, reason },
        }
    }

    /// Starts the transmission that is due at a port. `None` if none is due by `now`: then
    /// nothing has changed. A late call changes nothing either: the packet starts when it
    /// was due.
    #[inline]
    pub fn transmit(
        &mut self,
        now: Time,
        port: PortId,
        observer: &mut impl Observer<P>,
    ) -> Option<Departure<P>> {
        let state = self.ports.get_mut(port.index())?;
        let start = state.due;
        if start > now || start == IDLE {
            return None;
        }
        if self.extras.is_some() {
            return self.transmit_extras(start, port, observer);
        }
        let first = port.index() * usize::from(self.classes);
        let queues = &mut self.queues[first..first + usize::from(self.classes)];
        let queue = queues.iter_mut().find(|queue| !queue.is_empty())?;
        let packet = self.slots.pop(queue, P::bytes)?;
        let bytes = packet.bytes();
        state.depth.remove(bytes);
        if let Some(memory) = &mut self.memory {
            memory.used.remove(bytes);
        }
        if let Some(flows) = &mut self.flows {
            flows.remove(port, packet.flow(), bytes);
        }
        observer.dequeued(start, port, &packet, state.depth);
        Some(state.start(start, packet, bytes))
    }

    /// One hop less to live, and room for it at its port.
    #[inline]
    fn enter(
        &mut self,
        now: Time,
        by: PortId,
        port: Option<PortId>,
        mut packet: P,
        observer: &mut impl Observer<P>,
    ) -> Result<Admitted<P>, (P, DropReason)> {
        if self.decrement_ttl {
            let ttl = packet.ttl().saturating_sub(1);
            packet.set_ttl(ttl);
            if ttl == 0 {
                return Err(self.refuse(now, packet, DropReason::TtlExpired, observer));
            }
        }
        match port.filter(|port| port.index() < self.ports.len()) {
            Some(port) => self.admit(now, Some(by), port, packet, observer),
            None => Err(self.refuse(now, packet, DropReason::NoRoute, observer)),
        }
    }

    /// Finds room for a packet that should leave by `port`, there or by a detour.
    #[inline]
    fn admit(
        &mut self,
        now: Time,
        by: Option<PortId>,
        port: PortId,
        packet: P,
        observer: &mut impl Observer<P>,
    ) -> Result<Admitted<P>, (P, DropReason)> {
        let class = packet.class().min(self.classes - 1);
        if !self.fits(port, class, packet.bytes()) {
            return self.detour_or_drop(now, by, port, packet, observer);
        }
        Ok(Admitted {
            packet,
            port,
            class,
            marked: false,
            detoured: false,
        })
    }

    #[cold]
    fn detour_or_drop(
        &mut self,
        now: Time,
        by: Option<PortId>,
        port: PortId,
        mut packet: P,
        observer: &mut impl Observer<P>,
    ) -> Result<Admitted<P>, (P, DropReason)> {
        let class = packet.class().min(self.classes - 1);
        let bytes = packet.bytes();
        let chosen = match self.detour {
            None => None,
            Some(detour) => {
                let avoided = by.filter(|_| !detour.arrival_port);
                let chosen = self.choose_detour(avoided, class, bytes);
                chosen.map(|to| (to, detour.mark && packet.is_ecn_capable()))
            }
        };
        let queue = self.queues[self.at(port, class)].depth;
        let state = &mut self.ports[port.index()];
        let Some((to, mark)) = chosen else {
            state.dropped += 1;
            state.dropped_bytes += u64::from(bytes);
            let reason = DropReason::BufferFull;
            observer.dropped(now, Some(port), &packet, reason);
            return Err((packet, reason));
        };
        if mark {
            packet.mark();
            state.marked += 1;
            observer.marked(now, port, &packet, queue);
        }
        state.detoured += 1;
        observer.detoured(now, port, to, &packet);
        Ok(Admitted {
            packet,
            port: to,
            class,
            marked: mark,
            detoured: true,
        })
    }

    /// Whether a port has room for a packet now; a port that is not there has none.
    #[inline]
    pub fn has_room(&self, port: PortId, packet: &P) -> bool {
        let class = packet.class().min(self.classes - 1);
        port.index() < self.ports.len() && self.fits(port, class, packet.bytes())
    }

    /// Whether a packet of that class and length may join the queue. The port exists.
    #[inline(always)]
    fn fits(&self, port: PortId, class: u8, bytes: u32) -> bool {
        let state = &self.ports[port.index()];
        state.depth.packets < state.max_packets
            && state.max_bytes - state.depth.bytes >= u64::from(bytes)
            && self
                .memory
                .as_ref()
                .is_none_or(|memory| memory.admits(self.queues[self.at(port, class)].depth, bytes))
    }

    /// One of the ports that may take a packet for which its own has no room; `None` if
    /// there is none.
    fn choose_detour(&mut self, avoided: Option<PortId>, class: u8, bytes: u32) -> Option<PortId> {
        let takes = |switch: &Self, port: &PortId| {
            switch.ports[port.index()].faces_switch
                && Some(*port) != avoided
                && switch.fits(*port, class, bytes)
        };
        // Fits: at most 65,535 ports.
        let all = (0..self.ports.len() as u16).map(PortId);
        let count = all.clone().filter(|port| takes(self, port)).count() as u32;
        let chosen = self.random.below(count) as usize;
        all.filter(|port| takes(self, port)).nth(chosen)
    }

    /// Marks the packet if the queue that it joins is long enough.
    #[inline]
    fn mark_on_entry(
        &mut self,
        now: Time,
        admitted: &mut Admitted<P>,
        observer: &mut impl Observer<P>,
    ) {
        let state = &mut self.ports[admitted.port.index()];
        if state.depth.packets < state.mark_packets && state.depth.bytes < state.mark_bytes {
            // No class is longer than all of them.
            return;
        }
        let at = admitted.port.index() * usize::from(self.classes) + usize::from(admitted.class);
        let queue = self.queues[at].depth;
        let over = queue.packets >= state.mark_packets || queue.bytes >= state.mark_bytes;
        if over && !admitted.marked && admitted.packet.is_ecn_capable() {
            admitted.packet.mark();
            admitted.marked = true;
            state.marked += 1;
            observer.marked(now, admitted.port, &admitted.packet, queue);
        }
    }

    /// The queue takes an admitted packet.
    #[inline]
    fn enqueue(
        &mut self,
        now: Time,
        mut admitted: Admitted<P>,
        observer: &mut impl Observer<P>,
    ) -> Queued {
        self.mark_on_entry(now, &mut admitted, observer);
        let Admitted {
            packet,
            port,
            class,
            marked,
            detoured,
        } = admitted;
        let at = self.at(port, class);
        let state = &mut self.ports[port.index()];
        let bytes = packet.bytes();
        state.depth.add(bytes);
        state.enqueued += 1;
        state.enqueued_bytes += u64::from(bytes);
        if let Some(memory) = &mut self.memory {
            memory.used.add(bytes);
        }
        if let Some(flows) = &mut self.flows {
            flows.add(port, packet.flow(), bytes);
        }
        observer.enqueued(now, port, &packet, state.depth);
        self.slots.push(&mut self.queues[at], packet, bytes);
        let start = (state.due == IDLE).then(|| now.max(state.line.free_at()));
        if let Some(start) = start {
            state.due = start;
        }
        Queued {
            port,
            marked,
            detoured,
            start,
        }
    }

    /// Past the queue if the line is free and no packet waits for it.
    #[inline]
    fn leave_or_enqueue(
        &mut self,
        now: Time,
        mut admitted: Admitted<P>,
        observer: &mut impl Observer<P>,
    ) -> Passed<P> {
        let state = &self.ports[admitted.port.index()];
        if state.due != IDLE || state.line.free_at() > now {
            return Passed::Queued(self.enqueue(now, admitted, observer));
        }
        self.mark_on_entry(now, &mut admitted, observer);
        let Admitted { packet, port, .. } = admitted;
        let state = &mut self.ports[port.index()];
        let bytes = packet.bytes();
        state.enqueued += 1;
        state.enqueued_bytes += u64::from(bytes);
        let only_this = Depth {
            packets: 1,
            bytes: u64::from(bytes),
        };
        observer.enqueued(now, port, &packet, only_this);
        observer.dequeued(now, port, &packet, Depth::default());
        Passed::Left {
            departure: state.start(now, packet, bytes),
            queued: Queued {
                port,
                marked: admitted.marked,
                detoured: admitted.detoured,
                start: None,
            },
        }
    }

    #[cold]
    fn refuse(
        &mut self,
        now: Time,
        packet: P,
        reason: DropReason,
        observer: &mut impl Observer<P>,
    ) -> (P, DropReason) {
        self.unrouted[reason as usize] += 1;
        observer.dropped(now, None, &packet, reason);
        (packet, reason)
    }

    /// The class's place among the queues.
    #[inline]
    fn at(&self, port: PortId, class: u8) -> usize {
        port.index() * usize::from(self.classes) + usize::from(class)
    }

    /// Another rate or propagation for the line of a port, from the next packet on; nothing at
    /// a port that is not there.
    pub fn set_line(&mut self, port: PortId, rate: Option<Rate>, propagation: Option<Span>) {
        if let Some(state) = self.ports.get_mut(port.index()) {
            state.line.change(rate, propagation);
        }
    }
}

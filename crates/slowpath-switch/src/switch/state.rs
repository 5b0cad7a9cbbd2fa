// SPDX-License-Identifier: Apache-2.0
//! What can be read of a switch: what waits where, and what its ports have done.

use super::Switch;
use crate::counters::Counters;
use crate::observer::DropReason;
use crate::packet::{Packet, PortId};
use crate::port::{IDLE, Port};
use crate::queue::Depth;
use crate::time::Time;

impl<P: Packet> Switch<P> {
    /// How many ports it has.
    pub fn ports(&self) -> usize {
        self.ports.len()
    }

    /// When [`Switch::transmit`] is due at a port; `None` if nothing waits there.
    pub fn due(&self, port: PortId) -> Option<Time> {
        let due = self.ports.get(port.index())?.due;
        (due != IDLE).then_some(due)
    }

    /// What waits at a port, all classes; nothing at a port that is not there.
    #[inline]
    pub fn depth(&self, port: PortId) -> Depth {
        self.ports
            .get(port.index())
            .map_or(Depth::default(), |p| p.depth)
    }

    /// What waits in one class of a port.
    pub fn class_depth(&self, port: PortId, class: u8) -> Depth {
        if class >= self.classes {
            return Depth::default();
        }
        self.queues
            .get(self.at(port, class))
            .map_or(Depth::default(), |q| q.depth)
    }

    /// What waits in the whole switch.
    pub fn total_depth(&self) -> Depth {
        let mut total = Depth::default();
        for port in &self.ports {
            total.packets += port.depth.packets;
            total.bytes += port.depth.bytes;
        }
        total
    }

    /// What waits of a flow at a port; `None` if flows are not counted.
    pub fn flow_depth(&self, port: PortId, flow: u64) -> Option<Depth> {
        self.flows.as_ref().map(|flows| flows.depth(port, flow))
    }

    /// The flows that wait at a port; none if flows are not counted.
    pub fn flows(&self, port: PortId) -> impl Iterator<Item = (u64, Depth)> {
        self.flows.iter().flat_map(move |flows| flows.of_port(port))
    }

    /// The packets that wait in one class of a port, in order.
    pub fn queued(&self, port: PortId, class: u8) -> impl Iterator<Item = &P> {
        let queue = (class < self.classes).then(|| self.queues.get(self.at(port, class)));
        queue
            .flatten()
            .into_iter()
            .flat_map(|queue| self.slots.iter(queue))
    }

    /// What a port has done; nothing for a port that is not there.
    pub fn counters(&self, port: PortId) -> Counters {
        self.ports
            .get(port.index())
            .map_or(Counters::default(), Port::counters)
    }

    /// Packets dropped for that reason, in the whole switch.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        let at_ports: u64 = self.ports.iter().map(|port| port.dropped).sum();
        let extras = self.extras.as_ref();
        let early = extras.map_or(0, |extras| extras.managed.early);
        match reason {
            DropReason::BufferFull => at_ports - early,
            DropReason::Early => early,
            DropReason::TtlExpired | DropReason::NoRoute => self.unrouted[reason as usize],
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Packets that are too long for the line that they should take.

use super::network::{Carried, Fabric};
use super::plan::{End, Mtu};
use super::sink::{DropCause, Oversized, Sink};
use crate::packet::{Packet, PortId};
use alloc::vec::Vec;

impl Fabric {
    /// The port that a packet's route names, and the MTU of the line there, if it is longer.
    pub(super) fn too_long_for(&self, node: u32, packet: &Carried) -> Option<(PortId, Mtu)> {
        let switch = &self.nodes[node as usize];
        let port = switch.next_port(packet.destination(), packet.flow())?;
        let line = self.line_of[(self.first[node as usize] + u32::from(port.0)) as usize];
        let conditioner = self.lines[line as usize].conditioner.as_ref()?;
        let mtu = conditioner.mtu.filter(|mtu| packet.bytes() > mtu.bytes)?;
        Some((port, mtu))
    }

    /// What is made of a packet that is too long: fragments to go on with, or none if it was
    /// dropped.
    #[cold]
    pub(super) fn fragments<S: Sink>(
        &mut self,
        node: u32,
        packet: Carried,
        (port, mtu): (PortId, Mtu),
        sink: &mut S,
    ) -> Vec<Carried> {
        let oversized = Oversized {
            end: End {
                node: self.node(node),
                port,
            },
            packet: packet.header,
            dscp: packet.dscp,
            mtu,
        };
        let headers = sink.too_long(self.now, oversized);
        let line = self.line_of[(self.first[node as usize] + u32::from(port.0)) as usize];
        let conditioner = &mut self.lines[line as usize].conditioner;
        let Some(last) = headers.len().checked_sub(1) else {
            if let Some(conditioner) = conditioner {
                conditioner.counters.too_long += 1;
            }
            self.drop_packet(node, Some(port), packet, DropCause::TooLong, sink);
            return Vec::new();
        };
        if let Some(conditioner) = conditioner {
            conditioner.counters.fragmented += 1;
            conditioner.counters.fragments += headers.len() as u64;
        }
        self.counts.fragmented += 1;
        self.counts.fragments += headers.len() as u64;
        let fragment = |(number, header)| Carried {
            header,
            // The damage is in the last byte.
            corrupted: packet.corrupted && number == last,
            ..packet
        };
        let mut kept: Vec<Carried> = headers.into_iter().enumerate().map(fragment).collect();
        while self.inside() > self.most_packets
            && let Some(fragment) = kept.pop()
        {
            self.drop_packet(node, Some(port), fragment, DropCause::TooMany, sink);
        }
        kept
    }
}

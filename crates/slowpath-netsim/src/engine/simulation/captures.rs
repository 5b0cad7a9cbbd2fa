// SPDX-License-Identifier: Apache-2.0
//! Packets that hosts send and receive, shown to a sink.

use super::{Simulation, config_of};
use crate::engine::capture::{Capturing, Owner, PacketSink};
use crate::engine::connection::Connections;
use crate::engine::packet::{Body, Hop};
use crate::tcp::{SackBlocks, TcpConfig};

impl Simulation {
    /// Shows every packet to `sink` when its host sends it, and when it arrives.
    pub fn capture(&mut self, sink: Box<dyn PacketSink>) {
        self.records.capturing = Some(Capturing::new(sink));
    }

    #[cold]
    #[inline(never)]
    pub(super) fn capture_sent(&mut self, hop: &Hop) {
        let body = self.bodies.whole(hop.body());
        let owner = owner_of(&self.settings.tcp, &self.connections, body.0);
        if let Some(capturing) = &mut self.records.capturing {
            capturing.sent(self.now, hop, body, &owner);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn capture_arrived(&mut self, hop: &Hop, body: &Body, blocks: SackBlocks) {
        let owner = owner_of(&self.settings.tcp, &self.connections, body);
        if let Some(capturing) = &mut self.records.capturing {
            capturing.arrived(self.now, hop, (body, blocks), &owner);
        }
    }
}

/// Whose a packet is.
fn owner_of<'a>(configs: &'a [TcpConfig], connections: &Connections, body: &Body) -> Owner<'a> {
    let place = body.connection;
    let connection = &connections.places[place as usize];
    Owner {
        config: config_of(configs, connection),
        source: connection.source,
        destination: connection.destination,
        place,
        generation: connection.generation,
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Switches that divide flows into flowlets.

use super::Switch;
use crate::flowlets::{FlowletCounts, FlowletError, Flowlets, Table};
use crate::packet::{Destination, Packet, PortId};
use crate::random::Random;
use crate::routes::Way;
use crate::time::Time;

/// Which random numbers of a switch are those of its flowlets.
const STREAM: u64 = 1;

impl<P: Packet> Switch<P> {
    /// Lets each flowlet choose among the ports that lead to its destination, instead of each flow by
    /// its hash.
    ///
    /// # Errors
    /// The configuration is impossible: nothing was changed.
    pub fn set_flowlets(&mut self, flowlets: Flowlets) -> Result<(), FlowletError> {
        let table = Table::new(flowlets, Random::stream(self.salt, STREAM))?;
        self.extras().flowlets = Some(table);
        Ok(())
    }

    /// The port of a packet that comes now: that of its flowlet, or without flowlets
    /// [`Switch::next_port`]. Until [`Switch::arrive`] takes the packet at the same moment it stays
    /// the same.
    pub fn choose_port(
        &mut self,
        now: Time,
        destination: Destination,
        flow: u64,
    ) -> Option<PortId> {
        let table = self.extras.as_mut().and_then(|it| it.flowlets.as_mut());
        let Some(table) = table else {
            return self.next_port(destination, flow);
        };
        match self.routes.way(destination)? {
            Way::One(port) => Some(port),
            Way::Any(set) => table.choose(now, flow, set, self.routes.members(set)),
        }
    }

    /// Flowlets so far; `None` where each flow keeps its port.
    pub fn flowlets(&self) -> Option<FlowletCounts> {
        let table = self.extras.as_ref()?.flowlets.as_ref();
        table.map(|table| table.counts)
    }
}

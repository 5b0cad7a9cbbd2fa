// SPDX-License-Identifier: Apache-2.0
//! A topology with switches of some kind in it.

use crate::topology::{Node, Topology};
use slowpath_switch::{
    Aqm, AqmError, ConfigError, FlowletError, Flowlets, Limit, Packet, Pfc, PfcError, PortId,
    Switch, SwitchConfig, Threshold,
};
use std::fmt;

/// A host, by its number in the topology.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// A switch, by its number in the topology.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwitchId(pub u32);

/// Hosts, links and switches.
#[derive(Clone, Debug)]
pub struct Network {
    /// Who is linked with whom.
    pub topology: Topology,
    /// The switches, in the topology's order.
    pub switches: Vec<SwitchConfig>,
    /// Ports whose queues are managed.
    pub managed: Vec<(SwitchId, PortId, Aqm)>,
    /// How switches divide flows into flowlets; `None`: a flow keeps its way.
    pub flowlets: Option<Flowlets>,
    /// Ports that stop what comes in by them.
    pub pfc: Vec<(SwitchId, PortId, Pfc)>,
}

impl Network {
    /// Switches that are all alike: routers with that buffer and marking at each port whose
    /// link has none of its own.
    pub fn new(topology: Topology, buffer: Limit, marking: Option<Threshold>, seed: u64) -> Self {
        // Below 2^32: hosts and switches are numbered so.
        let numbers = 0..topology.switches().len() as u32;
        let switches = numbers
            .map(|number| {
                let ports = topology.port_configs(number, buffer, marking);
                SwitchConfig::new(ports, seed, number)
            })
            .collect();
        Network {
            topology,
            switches,
            managed: Vec::new(),
            flowlets: None,
            pfc: Vec::new(),
        }
    }

    /// Whether switches do what most do without.
    pub(super) fn has_extras(&self) -> bool {
        !self.managed.is_empty() || self.flowlets.is_some() || !self.pfc.is_empty()
    }

    /// The switches with every shortest path as a route: equal-cost multipath.
    ///
    /// # Errors
    /// A switch is impossible, or not of the topology.
    pub fn build<P: Packet>(&self) -> Result<Vec<Switch<P>>, NetworkError> {
        if self.switches.len() != self.topology.switches().len() {
            return Err(NetworkError::Switches);
        }
        let mut switches = Vec::with_capacity(self.switches.len());
        for (number, config) in self.switches.iter().enumerate() {
            let id = SwitchId(number as u32);
            let error = |error| NetworkError::Switch(id, error);
            if config.ports.len() != self.topology.switches()[number].ports.len() {
                return Err(NetworkError::Ports(id));
            }
            switches.push(Switch::new(config).map_err(error)?);
        }
        for (number, host) in self.topology.hosts().iter().enumerate() {
            if matches!(host.port.peer, Node::Host(_)) {
                return Err(NetworkError::NoSwitch(HostId(number as u32)));
            }
        }
        for (id, port, aqm) in &self.managed {
            let switch = switches.get_mut(id.0 as usize);
            let switch = switch.ok_or(NetworkError::Switches)?;
            let error = |error| NetworkError::Aqm(*id, error);
            switch.set_aqm(*port, *aqm).map_err(error)?;
        }
        if let Some(flowlets) = self.flowlets {
            for switch in &mut switches {
                switch
                    .set_flowlets(flowlets)
                    .map_err(NetworkError::Flowlets)?;
            }
        }
        for (id, port, pfc) in &self.pfc {
            let switch = switches.get_mut(id.0 as usize);
            let switch = switch.ok_or(NetworkError::Switches)?;
            let error = |error| NetworkError::Pfc(*id, error);
            switch.set_pfc(*port, *pfc).map_err(error)?;
        }
        let mut result = Ok(());
        self.topology.for_each_route(|switch, host, ports| {
            if let Err(error) = switches[switch as usize].set_route(host, ports) {
                result = Err(NetworkError::Switch(SwitchId(switch), error));
            }
        });
        result.map(|()| switches)
    }
}

/// What is wrong with a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkError {
    /// Not as many switches as the topology has.
    Switches,
    /// Not as many ports as the topology gives the switch.
    Ports(SwitchId),
    /// A switch is impossible.
    Switch(SwitchId, ConfigError),
    /// The management of a switch's queues is impossible.
    Aqm(SwitchId, AqmError),
    /// The flowlets are impossible.
    Flowlets(FlowletError),
    /// The flow control of a switch is impossible.
    Pfc(SwitchId, PfcError),
    /// A host that hangs on another host.
    NoSwitch(HostId),
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switches => write!(f, "not as many switches as in the topology"),
            Self::Ports(switch) => {
                write!(
                    f,
                    "switch {}: not as many ports as in the topology",
                    switch.0
                )
            }
            Self::Switch(switch, error) => write!(f, "switch {}: {error}", switch.0),
            Self::Aqm(switch, error) => write!(f, "switch {}: {error}", switch.0),
            Self::Pfc(switch, error) => write!(f, "switch {}: {error}", switch.0),
            Self::Flowlets(error) => write!(f, "{error}"),
            Self::NoSwitch(host) => write!(f, "host {} is not linked with a switch", host.0),
        }
    }
}

impl std::error::Error for NetworkError {}

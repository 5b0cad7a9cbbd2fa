// SPDX-License-Identifier: Apache-2.0
//! What the engine takes.

use super::Scenario;
use crate::engine::Transport;
use crate::engine::{FlowSpec, HostId, Network, Query, Settings, SwitchId};
use crate::workload::FlowStream;
use slowpath_switch::{Aqm, Pfc, PortId, SwitchConfig};

/// What a flow that lasts as long as the run has to send: more than any link carries in the
/// longest run, and small enough to add to.
const ENDLESS: u64 = 1 << 48;

impl Scenario {
    /// A switch's configuration.
    pub fn switch_config(&self, switch: u32) -> SwitchConfig {
        let options = &self.switch;
        let mut ports = self
            .topology
            .port_configs(switch, options.buffer, options.marking);
        for (_, port, _) in self.managed(switch) {
            ports[usize::from(port.0)].marking = None;
        }
        SwitchConfig {
            classes: options.classes,
            shared: options.shared,
            detour: options.detour,
            decrement_ttl: options.decrement_ttl,
            count_flows: options.count_flows,
            ..SwitchConfig::new(ports, self.seed, switch)
        }
    }

    /// The ports of a switch whose queues are managed. A link's own `aqm` or `marking` holds instead of
    /// what all switches have.
    fn managed(&self, switch: u32) -> impl Iterator<Item = (SwitchId, PortId, Aqm)> {
        let ports = &self.topology.switches()[switch as usize].ports;
        (0..).zip(ports).filter_map(move |(number, port)| {
            let own = port.options.queue;
            let aqm = match own.marking {
                None => own.aqm.or(self.switch.aqm),
                Some(_) => own.aqm,
            };
            Some((SwitchId(switch), PortId(number), aqm?))
        })
    }

    /// The ports of all switches that stop what comes in by them.
    fn pfc(&self) -> Vec<(SwitchId, PortId, Pfc)> {
        let Some(options) = self.switch.pfc else {
            return Vec::new();
        };
        let most = self.largest_packet();
        let switches = (0..).map(SwitchId).zip(self.topology.switches());
        let ports = switches.flat_map(|(switch, node)| {
            let ports = (0..).map(PortId).zip(&node.ports);
            ports.map(move |(port, end)| (switch, port, end.options))
        });
        ports
            .map(|(switch, port, link)| (switch, port, options.at(link.rate, link.delay, most)))
            .collect()
    }

    /// Bytes on the wire.
    fn largest_packet(&self) -> u32 {
        let segments = self
            .tcp
            .iter()
            .map(|tcp| u32::from(tcp.mss) + u32::from(tcp.header));
        let datagrams = self.workloads.iter().map(|it| match it.transport {
            Transport::Datagrams(bytes) => u32::from(bytes),
            Transport::Tcp(_) => 0,
        });
        segments.chain(datagrams).max().unwrap_or(0)
    }

    /// Hosts, links and switches.
    pub fn network(&self) -> Network {
        let switches = 0..self.topology.switches().len() as u32;
        Network {
            flowlets: self.switch.flowlets,
            pfc: self.pfc(),
            managed: switches.clone().flat_map(|it| self.managed(it)).collect(),
            switches: switches.map(|switch| self.switch_config(switch)).collect(),
            topology: self.topology.clone(),
        }
    }

    /// What the run is asked to do.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings::new(self.tcp[0].clone(), self.until);
        settings.tcp.clone_from(&self.tcp);
        settings.ttl = self.ttl;
        settings.seed = self.seed;
        settings.queues = self.queues.clone();
        settings.paths = self.paths;
        settings.changes.clone_from(&self.changes);
        if let Some(series) = &self.series {
            settings.windows_every = Some(series.every);
            settings.windows_of = Some(series.workloads.clone());
            settings.lines.clone_from(&series.lines);
        }
        settings
    }

    /// All flows in the order of time; a flow's label is the number of its workload.
    pub fn flows(&self) -> impl Iterator<Item = FlowSpec> + '_ {
        let stream = FlowStream::new(&self.workloads, self.seed);
        (0..).zip(stream).map(|(id, flow)| {
            let workload = &self.workloads[usize::from(flow.workload)];
            FlowSpec {
                id,
                source: HostId(flow.from),
                destination: HostId(flow.to),
                bytes: flow.bytes.unwrap_or(ENDLESS),
                start: flow.start,
                transport: workload.transport,
                application: workload.application,
                class: workload.class,
                // As many workloads as labels at most.
                label: flow.workload as u8,
                query: flow.query.map(|query| Query {
                    id: (u64::from(flow.workload) << 32) | u64::from(query.number),
                    flows: query.degree,
                    asked: query.asked,
                }),
                connection: workload
                    .keep_connections
                    .then_some(u32::from(flow.workload)),
            }
        })
    }
}

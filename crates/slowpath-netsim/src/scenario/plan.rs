// SPDX-License-Identifier: Apache-2.0
//! What a fabric is made from: for the emulator and for Linux in virtual time.

use super::Scenario;
use crate::topology::{LinkOptions, Node};
use slowpath_switch::fabric::{self, Action, Condition, End, Plan, Route};
use slowpath_switch::{Destination, Limit, PortConfig, PortId, PortKind, Time};

/// What waits at a host's own interface unless the file says otherwise: `txqueuelen` of an
/// Ethernet device in Linux (`DEFAULT_TX_QUEUE_LEN`, include/net/pkt_sched.h).
const HOST_QUEUE: Limit = Limit::packets(1000);

fn fabric_node(node: Node) -> fabric::Node {
    match node {
        Node::Host(host) => fabric::Node::Host(host),
        Node::Switch(switch) => fabric::Node::Switch(switch),
    }
}

impl Scenario {
    /// The MTU of a host's interface, if the file says it: that of its line from the beginning.
    pub fn host_mtu(&self, host: u32) -> Option<u32> {
        let begins = |line: u32| {
            let link = &self.topology.links()[line as usize / 2];
            link.ends[line as usize % 2].0 == Node::Host(host)
        };
        // The last that says it.
        let mut given = self.changes.iter().rev();
        given
            .find_map(|change| match change.action {
                Action::Condition(line, Condition::Mtu(mtu)) if begins(line) => Some(mtu),
                _ => None,
            })
            .flatten()
            .map(|mtu| mtu.bytes)
    }

    /// Hosts, switches, links in the topology's order and numbers, with all shortest paths as
    /// routes, those to the switches themselves included; then what the file says of lines
    /// and routes: from the beginning, or later.
    pub fn plan(&self) -> Plan {
        let topology = &self.topology;
        let host_port = |options: LinkOptions| PortConfig {
            kind: PortKind::Switch,
            rate: options.rate,
            propagation: options.delay,
            limit: self.host.queue.unwrap_or(HOST_QUEUE),
            marking: None,
        };
        let links = topology.links().iter().map(|link| {
            link.ends.map(|(node, port)| End {
                node: fabric_node(node),
                port: PortId(port),
            })
        });
        let hosts = topology.hosts().iter();
        let switches = 0..topology.switches().len() as u32;
        let mut plan = Plan {
            hosts: hosts.map(|host| host_port(host.port.options)).collect(),
            switches: switches.map(|switch| self.switch_config(switch)).collect(),
            links: links.collect(),
            ..Plan::new(self.seed)
        };
        let mut route = |switch, destination, ports: &[PortId]| {
            plan.routes.push(Route {
                switch,
                destination,
                ports: ports.to_vec(),
            });
        };
        topology.for_each_route(&mut route);
        let first = topology.hosts().len() as u32;
        topology.for_each_route_to_switches(|at, to, ports| {
            route(at, Destination(first + to), ports);
        });
        for change in &self.changes {
            match (&change.action, change.at) {
                (Action::Route(given), Time::ZERO) => plan.routes.push(given.clone()),
                (Action::Impair(line, impairment), Time::ZERO) => {
                    plan.impairments.push((*line, (**impairment).clone()));
                }
                _ => plan.changes.push(change.clone()),
            }
        }
        plan
    }
}

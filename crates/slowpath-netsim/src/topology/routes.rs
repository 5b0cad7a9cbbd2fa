// SPDX-License-Identifier: Apache-2.0
//! All shortest ways, by breadth-first search over the switches.

use super::{Node, Port, SwitchNode, Topology, TopologyError};
use slowpath_switch::{Destination, PortId};
use std::collections::VecDeque;

/// Not reached.
const FAR: u32 = u32::MAX;

impl Topology {
    /// From every switch the number of links to `edge`; [`FAR`] where there is no way.
    pub(super) fn distances(&self, edge: u32, distances: &mut Vec<u32>) {
        distances.clear();
        distances.resize(self.switches.len(), FAR);
        distances[edge as usize] = 0;
        let mut queue = VecDeque::from([edge]);
        while let Some(at) = queue.pop_front() {
            for port in &self.switches[at as usize].ports {
                if let Node::Switch(next) = port.peer
                    && distances[next as usize] == FAR
                {
                    distances[next as usize] = distances[at as usize] + 1;
                    queue.push_back(next);
                }
            }
        }
    }

    /// Calls `route` with every switch, every host that it reaches, and the ports by which
    /// the way is shortest, in their order: links are counted, not rates. Two links between
    /// the same two switches are two ways.
    pub fn for_each_route(&self, mut route: impl FnMut(u32, Destination, &[PortId])) {
        let mut behind: Vec<Vec<u32>> = vec![Vec::new(); self.switches.len()];
        for host in 0..self.hosts.len() as u32 {
            behind[self.edge(host) as usize].push(host);
        }
        let mut distances = Vec::new();
        let mut ways = Vec::new();
        for (edge, hosts) in behind
            .iter()
            .enumerate()
            .filter(|(_, hosts)| !hosts.is_empty())
        {
            self.distances(edge as u32, &mut distances);
            for (at, switch) in self.switches.iter().enumerate() {
                if at == edge {
                    for host in hosts {
                        let port = PortId(self.hosts[*host as usize].port.peer_port);
                        route(at as u32, Destination(*host), &[port]);
                    }
                    continue;
                }
                let own = distances[at];
                if own == FAR {
                    continue;
                }
                self.ways(switch, &distances, own, &mut ways);
                for host in hosts {
                    route(at as u32, Destination(*host), &ways);
                }
            }
        }
    }

    /// The same from every switch to every other switch.
    pub fn for_each_route_to_switches(&self, mut route: impl FnMut(u32, u32, &[PortId])) {
        let mut distances = Vec::new();
        let mut ways = Vec::new();
        for to in 0..self.switches.len() as u32 {
            self.distances(to, &mut distances);
            for (at, switch) in (0..).zip(&self.switches) {
                let own = distances[at as usize];
                if at != to && own != FAR {
                    self.ways(switch, &distances, own, &mut ways);
                    route(at, to, &ways);
                }
            }
        }
    }

    /// The ports of a switch that is `own` away by which it is less.
    fn ways(&self, switch: &SwitchNode, distances: &[u32], own: u32, ways: &mut Vec<PortId>) {
        ways.clear();
        let nearer = |(number, port): (usize, &Port)| {
            let Node::Switch(next) = port.peer else {
                return None;
            };
            // A switch's ports fit, see `Builder::link`.
            (distances[next as usize] < own).then_some(PortId(number as u16))
        };
        ways.extend(switch.ports.iter().enumerate().filter_map(nearer));
    }

    /// How many links the shortest way from a host to each other has; 0 to itself.
    pub fn hop_counts(&self, from: u32) -> Vec<u32> {
        let mut distances = Vec::new();
        self.distances(self.edge(from), &mut distances);
        let hops = |to: u32| match to == from {
            true => 0,
            false => distances[self.edge(to) as usize] + 2,
        };
        (0..self.hosts.len() as u32).map(hops).collect()
    }

    /// # Errors
    /// A host that the first one does not reach. Links work both ways, so all reach each
    /// other if one reaches all.
    pub(super) fn check_reach(&self) -> Result<(), TopologyError> {
        let mut hosts = vec![false; self.hosts.len()];
        let mut switches = vec![false; self.switches.len()];
        let mut queue = VecDeque::from([Node::Host(0)]);
        hosts[0] = true;
        while let Some(at) = queue.pop_front() {
            for port in self.ports(at) {
                let reached = match port.peer {
                    Node::Host(host) => &mut hosts[host as usize],
                    Node::Switch(switch) => &mut switches[switch as usize],
                };
                // A host has one link: no way leads through it.
                if !std::mem::replace(reached, true) {
                    queue.push_back(port.peer);
                }
            }
        }
        match hosts.iter().position(|reached| !reached) {
            None => Ok(()),
            Some(host) => Err(TopologyError::Unreachable {
                from: self.hosts[0].name.clone(),
                to: self.hosts[host].name.clone(),
            }),
        }
    }
}

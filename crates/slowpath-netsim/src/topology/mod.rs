// SPDX-License-Identifier: Apache-2.0
//! Who is linked with whom, and the ways between them.
//!
//! What enters: names, links with rate and delay ([`Builder`]), or a shape
//! ([`fat_tree`], [`leaf_spine`], [`dumbbell`]).
//!
//! What leaves: a [`Topology`], in which hosts and switches are numbered from 0 and every
//! port knows its other end; and all shortest ways to every host
//! ([`Topology::for_each_route`]).
//!
//! What is promised: every host has one link, to a switch, reaches every other, and is not on the way
//! between others. Links may form loops; a link to itself, a name twice or a host that
//! no path reaches is an error. The same description gives the same numbers.

mod builder;
mod ideal;
mod routes;
mod shapes;

pub(crate) use builder::listed;
pub use builder::{Builder, TopologyError};
pub use ideal::IdealTimes;
pub use shapes::{Links, dumbbell, fat_tree, leaf_spine};

use slowpath_switch::{Aqm, Limit, PortConfig, PortKind, Rate, Span, Threshold};
use std::collections::HashMap;

/// A host or a switch, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// Index of [`Topology::hosts`]; also its [`Destination`](slowpath_switch::Destination).
    Host(u32),
    /// Index of [`Topology::switches`].
    Switch(u32),
}

/// A link's own queues, where they differ from what all switches have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueOverride {
    /// The buffer of the ports at its ends.
    pub buffer: Option<Limit>,
    /// Where marking begins there.
    pub marking: Option<Threshold>,
    /// How they are managed.
    pub aqm: Option<Aqm>,
}

/// What a link is like, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkOptions {
    /// Bits a second.
    pub rate: Rate,
    /// How long a bit takes from end to end.
    pub delay: Span,
    /// Its queues.
    pub queue: QueueOverride,
}

/// A link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its ends, each with the number of its port there.
    pub ends: [(Node, u16); 2],
    /// What it is like.
    pub options: LinkOptions,
}

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// What is at the other end.
    pub peer: Node,
    /// The number of the port there.
    pub peer_port: u16,
    /// Index of [`Topology::links`].
    pub link: u32,
    /// What the link is like.
    pub options: LinkOptions,
}

/// A host: one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name, unlike any other node's.
    pub name: String,
    /// Its pod, in a fat-tree.
    pub pod: Option<u32>,
    /// Its link.
    pub port: Port,
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchNode {
    /// Its name, unlike any other node's.
    pub name: String,
    /// Its links; a [`PortId`](slowpath_switch::PortId) is an index here.
    pub ports: Vec<Port>,
}

/// Hosts, switches and links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    hosts: Vec<Host>,
    switches: Vec<SwitchNode>,
    links: Vec<Link>,
}

impl Topology {
    /// The hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The switches.
    pub fn switches(&self) -> &[SwitchNode] {
        &self.switches
    }

    /// The links.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Hosts by their names.
    pub fn hosts_by_name(&self) -> HashMap<&str, u32> {
        (0..)
            .zip(&self.hosts)
            .map(|(number, host)| (host.name.as_str(), number))
            .collect()
    }

    /// A node's name.
    pub fn name(&self, node: Node) -> &str {
        match node {
            Node::Host(host) => &self.hosts[host as usize].name,
            Node::Switch(switch) => &self.switches[switch as usize].name,
        }
    }

    /// A node's ports.
    pub fn ports(&self, node: Node) -> &[Port] {
        match node {
            Node::Host(host) => std::slice::from_ref(&self.hosts[host as usize].port),
            Node::Switch(switch) => &self.switches[switch as usize].ports,
        }
    }

    /// The switch that a host is linked with.
    pub fn edge(&self, host: u32) -> u32 {
        match self.hosts[host as usize].port.peer {
            Node::Switch(switch) => switch,
            Node::Host(_) => unreachable!("the builder links hosts with switches only"),
        }
    }

    /// A switch's ports as the switch model wants them: with that buffer and marking where
    /// the link has none of its own.
    pub fn port_configs(
        &self,
        switch: u32,
        buffer: Limit,
        marking: Option<Threshold>,
    ) -> Vec<PortConfig> {
        let ports = &self.switches[switch as usize].ports;
        let config = |port: &Port| PortConfig {
            kind: match port.peer {
                Node::Host(_) => PortKind::Host,
                Node::Switch(_) => PortKind::Switch,
            },
            rate: port.options.rate,
            propagation: port.options.delay,
            limit: port.options.queue.buffer.unwrap_or(buffer),
            marking: port.options.queue.marking.or(marking),
        };
        ports.iter().map(config).collect()
    }
}

#[cfg(test)]
mod tests;

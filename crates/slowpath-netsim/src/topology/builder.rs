// SPDX-License-Identifier: Apache-2.0
//! From names and links to numbers and ports.

use super::{Host, Link, LinkOptions, Node, Port, SwitchNode, Topology};
use slowpath_model::{clean, steers};
use std::collections::HashMap;

/// The most hosts: the route tables of a fat-tree of k = 48 (27,648 hosts, 2,880 switches)
/// take 320 MB.
const MAX_HOSTS: usize = 1 << 16;
/// The most entries of all route tables in all.
const MAX_ROUTES: usize = 1 << 27;
/// The most ports of a switch.
const MAX_PORTS: usize = 1 << 12;

/// What is impossible about a topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// Two nodes of one name.
    #[error("'{0}' is the name of two nodes")]
    NameTwice(String),
    /// A name is empty.
    #[error("a name is empty")]
    EmptyName,
    /// A name that a terminal or page would not show as it is.
    #[error("'{}' is no name: it has characters that cannot be shown", clean(.0))]
    Unprintable(String),
    /// A link names a node that is not there.
    #[error("there is no host and no switch '{name}'; there are {known}")]
    NoSuchNode {
        /// The name.
        name: String,
        /// Nodes that are there, the first few.
        known: String,
    },
    /// Both ends of a link are one node.
    #[error("'{0}' is linked with itself")]
    SelfLink(String),
    /// A host with more than one link.
    #[error("the host '{0}' has a second link: hosts have one")]
    SecondLink(String),
    /// Two hosts without a switch between them.
    #[error("the hosts '{0}' and '{1}' are linked with each other: hosts hang on switches")]
    TwoHosts(String, String),
    /// A host without a link.
    #[error("the host '{0}' has no link")]
    NoLink(String),
    /// A host that another cannot reach.
    #[error("there is no way from host '{from}' to host '{to}'")]
    Unreachable {
        /// From here.
        from: String,
        /// To there.
        to: String,
    },
    /// Fewer than two hosts.
    #[error("a network has at least two hosts")]
    TooFewHosts,
    /// More hosts, switches or ports than can be.
    #[error(
        "too large: at most {MAX_HOSTS} hosts, {MAX_ROUTES} routes, {MAX_PORTS} ports a switch"
    )]
    TooLarge,
    /// A fat-tree's k is not even.
    #[error("a fat-tree's k is an even number from 2 to 48, not {0}")]
    FatTree(u32),
}

/// Collects nodes and links.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    hosts: Vec<(String, Option<u32>)>,
    switches: Vec<String>,
    by_name: HashMap<String, Node>,
    ports: HashMap<Node, Vec<Port>>,
    links: Vec<Link>,
}

impl Builder {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a host, of a pod if the shape has any.
    ///
    /// # Errors
    /// The name is empty or taken, or there are too many.
    pub fn host(
        &mut self,
        name: impl Into<String>,
        pod: Option<u32>,
    ) -> Result<Node, TopologyError> {
        let name = name.into();
        if self.hosts.len() == MAX_HOSTS {
            return Err(TopologyError::TooLarge);
        }
        let node = Node::Host(self.hosts.len() as u32);
        self.name(&name, node)?;
        self.hosts.push((name, pod));
        Ok(node)
    }

    /// Adds a switch.
    ///
    /// # Errors
    /// The name is empty or taken, or there are too many.
    pub fn switch(&mut self, name: impl Into<String>) -> Result<Node, TopologyError> {
        let name = name.into();
        if self.switches.len() == MAX_HOSTS {
            return Err(TopologyError::TooLarge);
        }
        let node = Node::Switch(self.switches.len() as u32);
        self.name(&name, node)?;
        self.switches.push(name);
        Ok(node)
    }

    fn name(&mut self, name: &str, node: Node) -> Result<(), TopologyError> {
        if name.is_empty() {
            return Err(TopologyError::EmptyName);
        }
        if name.contains(steers) {
            return Err(TopologyError::Unprintable(name.to_owned()));
        }
        if self.by_name.contains_key(name) {
            return Err(TopologyError::NameTwice(name.to_owned()));
        }
        self.by_name.insert(name.to_owned(), node);
        Ok(())
    }

    /// The node of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn find(&self, name: &str) -> Result<Node, TopologyError> {
        let found = self.by_name.get(name).copied();
        found.ok_or_else(|| {
            let hosts = self.hosts.iter().map(|(host, ..)| host.as_str());
            let nodes = hosts.chain(self.switches.iter().map(String::as_str));
            TopologyError::NoSuchNode {
                name: name.to_owned(),
                known: listed(nodes),
            }
        })
    }

    fn name_of(&self, node: Node) -> String {
        match node {
            Node::Host(host) => self.hosts[host as usize].0.clone(),
            Node::Switch(switch) => self.switches[switch as usize].clone(),
        }
    }

    /// Links two nodes that this builder made.
    ///
    /// # Errors
    /// They are one, both are hosts, one is a host that has a link already, or a switch has
    /// too many.
    pub fn link(&mut self, a: Node, b: Node, options: LinkOptions) -> Result<(), TopologyError> {
        if a == b {
            return Err(TopologyError::SelfLink(self.name_of(a)));
        }
        if matches!((a, b), (Node::Host(_), Node::Host(_))) {
            return Err(TopologyError::TwoHosts(self.name_of(a), self.name_of(b)));
        }
        let mut numbers = [0; 2];
        for (number, node) in numbers.iter_mut().zip([a, b]) {
            let taken = self.ports.get(&node).map_or(0, Vec::len);
            if taken > 0 && matches!(node, Node::Host(_)) {
                return Err(TopologyError::SecondLink(self.name_of(node)));
            }
            if taken == MAX_PORTS {
                return Err(TopologyError::TooLarge);
            }
            *number = taken as u16;
        }
        let link = self.links.len() as u32;
        let [port_a, port_b] = numbers;
        for (node, peer, peer_port) in [(a, b, port_b), (b, a, port_a)] {
            self.ports.entry(node).or_default().push(Port {
                peer,
                peer_port,
                link,
                options,
            });
        }
        self.links.push(Link {
            ends: [(a, port_a), (b, port_b)],
            options,
        });
        Ok(())
    }

    /// The finished topology.
    ///
    /// # Errors
    /// A host without a link or out of another's reach, fewer than two hosts, or too much
    /// of everything.
    pub fn build(mut self) -> Result<Topology, TopologyError> {
        if self.hosts.len() < 2 {
            return Err(TopologyError::TooFewHosts);
        }
        if self.hosts.len() * self.switches.len() > MAX_ROUTES {
            return Err(TopologyError::TooLarge);
        }
        let mut hosts = Vec::with_capacity(self.hosts.len());
        for (number, (name, pod)) in self.hosts.into_iter().enumerate() {
            let ports = self.ports.remove(&Node::Host(number as u32));
            let Some(port) = ports.and_then(|ports| ports.first().copied()) else {
                return Err(TopologyError::NoLink(name));
            };
            hosts.push(Host { name, pod, port });
        }
        let switches = self
            .switches
            .into_iter()
            .enumerate()
            .map(|(number, name)| SwitchNode {
                name,
                ports: self
                    .ports
                    .remove(&Node::Switch(number as u32))
                    .unwrap_or_default(),
            });
        let topology = Topology {
            switches: switches.collect(),
            hosts,
            links: self.links,
        };
        topology.check_reach()?;
        Ok(topology)
    }
}

/// Names that are listed at most.
const LISTED: usize = 8;

/// The first few names, and how many there are besides.
pub(crate) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names = names;
    let first: Vec<&str> = names.by_ref().take(LISTED).collect();
    let text = first.join(", ");
    match names.count() {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

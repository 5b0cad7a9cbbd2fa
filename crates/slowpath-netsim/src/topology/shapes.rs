// SPDX-License-Identifier: Apache-2.0
//! The usual shapes.

use super::{Builder, LinkOptions, Topology, TopologyError};

/// A shape's links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    /// Between a host and its switch.
    pub host: LinkOptions,
    /// Between switches.
    pub fabric: LinkOptions,
}

/// A fat-tree of switches with k ports (Al-Fares, Loukissas, Vahdat: A Scalable, Commodity
/// Data Center Network Architecture, SIGCOMM 2008, section 2.2): k pods of k/2 edge and k/2
/// aggregation switches, (k/2)^2 core switches, k/2 hosts under each edge switch. The i-th
/// aggregation switch of every pod is linked with the core switches i k/2 to (i+1) k/2 - 1.
///
/// Hosts are `host-POD-EDGE-NUMBER`, counted in that order; switches `edge-POD-NUMBER`,
/// `aggregation-POD-NUMBER`, `core-NUMBER`. An edge switch's first k/2 ports lead to hosts.
///
/// # Errors
/// k is odd, 0 or above 48.
pub fn fat_tree(k: u32, links: Links) -> Result<Topology, TopologyError> {
    if k == 0 || !k.is_multiple_of(2) || k > 48 {
        return Err(TopologyError::FatTree(k));
    }
    let half = k / 2;
    let mut builder = Builder::new();
    let mut core = Vec::new();
    for number in 0..half * half {
        core.push(builder.switch(format!("core-{number}"))?);
    }
    for pod in 0..k {
        let mut edges = Vec::new();
        for number in 0..half {
            let edge = builder.switch(format!("edge-{pod}-{number}"))?;
            for host in 0..half {
                let host = builder.host(format!("host-{pod}-{number}-{host}"), Some(pod))?;
                builder.link(host, edge, links.host)?;
            }
            edges.push(edge);
        }
        for number in 0..half {
            let aggregation = builder.switch(format!("aggregation-{pod}-{number}"))?;
            for edge in &edges {
                builder.link(*edge, aggregation, links.fabric)?;
            }
            for up in 0..half {
                builder.link(
                    aggregation,
                    core[(number * half + up) as usize],
                    links.fabric,
                )?;
            }
        }
    }
    builder.build()
}

/// Leaf switches with hosts, each linked with every spine switch. Hosts are
/// `host-LEAF-NUMBER`, switches `leaf-NUMBER` and `spine-NUMBER`.
///
/// # Errors
/// Fewer than two hosts, no spine for several leaves, or too many.
pub fn leaf_spine(
    leaves: u32,
    spines: u32,
    hosts_per_leaf: u32,
    links: Links,
) -> Result<Topology, TopologyError> {
    let mut builder = Builder::new();
    let mut spine_nodes = Vec::new();
    for number in 0..spines {
        spine_nodes.push(builder.switch(format!("spine-{number}"))?);
    }
    for number in 0..leaves {
        let leaf = builder.switch(format!("leaf-{number}"))?;
        for host in 0..hosts_per_leaf {
            let host = builder.host(format!("host-{number}-{host}"), None)?;
            builder.link(host, leaf, links.host)?;
        }
        for spine in &spine_nodes {
            builder.link(leaf, *spine, links.fabric)?;
        }
    }
    builder.build()
}

/// Hosts on both sides of one link between two switches, `left` and `right`: the
/// bottleneck is [`Links::fabric`]. Hosts are `left-NUMBER` and `right-NUMBER`.
///
/// # Errors
/// Fewer than two hosts, or too many.
pub fn dumbbell(left: u32, right: u32, links: Links) -> Result<Topology, TopologyError> {
    let mut builder = Builder::new();
    let sides = [("left", left), ("right", right)];
    let mut ends = Vec::new();
    for (side, count) in sides {
        let switch = builder.switch(side)?;
        for number in 0..count {
            let host = builder.host(format!("{side}-{number}"), None)?;
            builder.link(host, switch, links.host)?;
        }
        ends.push(switch);
    }
    builder.link(ends[0], ends[1], links.fabric)?;
    builder.build()
}

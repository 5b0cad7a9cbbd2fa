// SPDX-License-Identifier: Apache-2.0
//! Shapes by their published counts, routes by a second algorithm.

use super::{
    Builder, LinkOptions, Links, Node, QueueOverride, Topology, TopologyError, dumbbell, fat_tree,
    leaf_spine,
};
use proptest::prelude::*;
use slowpath_switch::{Limit, PortKind, Rate, Span, Threshold};
use std::collections::BTreeMap;

fn link(gbit: u64) -> LinkOptions {
    LinkOptions {
        rate: Rate::from_bits_per_second(gbit * 1_000_000_000).expect("in range"),
        delay: Span::from_micros(1),
        queue: QueueOverride::default(),
    }
}

fn links() -> Links {
    Links {
        host: link(1),
        fabric: link(10),
    }
}

/// All routes, by switch and host.
fn routes(topology: &Topology) -> BTreeMap<(u32, u32), Vec<u16>> {
    let mut all = BTreeMap::new();
    topology.for_each_route(|switch, host, ports| {
        let ports = ports.iter().map(|port| port.0).collect();
        assert_eq!(all.insert((switch, host.0), ports), None);
    });
    all
}

/// The same from all-pairs distances (Floyd and Warshall), on nodes of both kinds.
fn routes_by_floyd_warshall(topology: &Topology) -> BTreeMap<(u32, u32), Vec<u16>> {
    let hosts = topology.hosts().len();
    let count = hosts + topology.switches().len();
    let index = |node: Node| match node {
        Node::Host(host) => host as usize,
        Node::Switch(switch) => hosts + switch as usize,
    };
    let mut far = vec![vec![1_000_000u32; count]; count];
    for (at, row) in far.iter_mut().enumerate() {
        row[at] = 0;
    }
    for link in topology.links() {
        let [a, b] = link.ends.map(|(node, _)| index(node));
        far[a][b] = 1;
        far[b][a] = 1;
    }
    for over in 0..count {
        for from in 0..count {
            for to in 0..count {
                far[from][to] = far[from][to].min(far[from][over] + far[over][to]);
            }
        }
    }
    let mut all = BTreeMap::new();
    for (switch, node) in topology.switches().iter().enumerate() {
        for (host, far) in far.iter().enumerate().take(hosts) {
            let own = far[hosts + switch];
            let ports: Vec<u16> = (0u16..)
                .zip(&node.ports)
                .filter(|(_, port)| far[index(port.peer)] + 1 == own)
                .map(|(number, _)| number)
                .collect();
            if !ports.is_empty() {
                all.insert((switch as u32, host as u32), ports);
            }
        }
    }
    all
}

/// Al-Fares et al., section 2.2: k^3/4 hosts, 5 k^2/4 switches, (k/2)^2 ways between pods.
#[test]
fn a_fat_tree_has_its_published_counts() {
    for k in [2, 4, 8, 16] {
        let topology = fat_tree(k, links()).expect("possible");
        assert_eq!(topology.hosts().len() as u32, k * k * k / 4);
        assert_eq!(topology.switches().len() as u32, 5 * k * k / 4);
        assert_eq!(topology.links().len() as u32, 3 * k * k * k / 4);
        assert!(
            topology
                .switches()
                .iter()
                .all(|switch| switch.ports.len() as u32 == k)
        );
        let hops = topology.hop_counts(0);
        let of = |links: u32| hops.iter().filter(|hops| **hops == links).count() as u32;
        // Under the same edge, in the same pod, in another pod.
        assert_eq!((of(0), of(2)), (1, k / 2 - 1));
        assert_eq!(
            (of(4), of(6)),
            (k / 2 * (k / 2 - 1), k * k * k / 4 - k * k / 4)
        );
        let pods: Vec<u32> = topology
            .hosts()
            .iter()
            .filter_map(|host| host.pod)
            .collect();
        assert!(
            (0..k).all(|pod| { pods.iter().filter(|of| **of == pod).count() as u32 == k * k / 4 })
        );
    }
    for k in [0, 1, 3, 50] {
        assert_eq!(fat_tree(k, links()).err(), Some(TopologyError::FatTree(k)));
    }
}

#[test]
fn a_fat_tree_goes_up_by_all_ways_and_down_by_one() {
    let topology = fat_tree(4, links()).expect("possible");
    let all = routes(&topology);
    assert_eq!(all, routes_by_floyd_warshall(&topology));
    assert_eq!(all.len(), 20 * 16);
    for ((switch, host), ports) in &all {
        let name = &topology.switches()[*switch as usize].name;
        let pod = topology.hosts()[*host as usize]
            .pod
            .expect("a fat-tree has pods");
        let down = name.starts_with("core")
            || name.starts_with(&format!("aggregation-{pod}-"))
            || topology.edge(*host) == *switch;
        let ways = if down { 1 } else { 2 };
        assert_eq!(ports.len(), ways, "{name} to host {host}");
    }
}

#[test]
fn the_other_shapes() {
    let topology = leaf_spine(3, 2, 2, links()).expect("possible");
    assert_eq!((topology.hosts().len(), topology.switches().len()), (6, 5));
    assert_eq!(topology.hop_counts(0), [0, 2, 4, 4, 4, 4]);
    assert_eq!(routes(&topology), routes_by_floyd_warshall(&topology));
    let topology = dumbbell(8, 8, links()).expect("possible");
    assert_eq!((topology.hosts().len(), topology.links().len()), (16, 17));
    assert_eq!(topology.hop_counts(0)[7..9], [2, 3]);
    assert_eq!(routes(&topology), routes_by_floyd_warshall(&topology));
    // Leaves without a spine are islands.
    let error = leaf_spine(2, 0, 1, links());
    assert!(
        matches!(error, Err(TopologyError::Unreachable { .. })),
        "{error:?}"
    );
    assert_eq!(
        dumbbell(1, 0, links()).err(),
        Some(TopologyError::TooFewHosts)
    );
}

#[test]
fn ports_know_their_other_ends() {
    let topology = fat_tree(4, links()).expect("possible");
    let hosts = (0..16).map(Node::Host);
    for node in hosts.chain((0..20).map(Node::Switch)) {
        for (number, port) in topology.ports(node).iter().enumerate() {
            let back = topology.ports(port.peer)[usize::from(port.peer_port)];
            assert_eq!((back.peer, usize::from(back.peer_port)), (node, number));
            assert_eq!(back.link, port.link);
            let ends = topology.links()[port.link as usize].ends;
            assert!(ends.contains(&(node, number as u16)));
        }
    }
    let configs = topology.port_configs(4, Limit::packets(7), Some(Threshold::Packets(3)));
    assert_eq!(topology.switches()[4].name, "edge-0-0");
    let kinds: Vec<PortKind> = configs.iter().map(|config| config.kind).collect();
    assert_eq!(
        kinds,
        [
            PortKind::Host,
            PortKind::Host,
            PortKind::Switch,
            PortKind::Switch
        ]
    );
    assert_eq!(configs[0].rate, links().host.rate);
    assert_eq!(configs[3].rate, links().fabric.rate);
    assert_eq!(configs[3].limit, Limit::packets(7));
}

#[test]
fn impossible_networks_are_refused() {
    let mut builder = Builder::new();
    let a = builder.host("a", None).expect("a new name");
    let b = builder.host("b", None).expect("a new name");
    let s = builder.switch("s").expect("a new name");
    assert_eq!(
        builder.switch("a").err(),
        Some(TopologyError::NameTwice("a".to_owned()))
    );
    assert_eq!(builder.host("", None).err(), Some(TopologyError::EmptyName));
    assert_eq!(
        builder.find("t").err(),
        Some(TopologyError::NoSuchNode {
            name: "t".to_owned(),
            known: "a, b, s".to_owned(),
        })
    );
    assert_eq!(
        builder.link(a, a, link(1)).err(),
        Some(TopologyError::SelfLink("a".to_owned()))
    );
    assert_eq!(
        builder.link(a, b, link(1)).err(),
        Some(TopologyError::TwoHosts("a".to_owned(), "b".to_owned()))
    );
    builder.link(a, s, link(1)).expect("possible");
    assert_eq!(
        builder.link(a, s, link(1)).err(),
        Some(TopologyError::SecondLink("a".to_owned()))
    );
    assert_eq!(
        builder.clone().build().err(),
        Some(TopologyError::NoLink("b".to_owned()))
    );
    let mut island = builder.clone();
    let t = island.switch("t").expect("a new name");
    island.link(b, t, link(1)).expect("possible");
    let unreachable = TopologyError::Unreachable {
        from: "a".to_owned(),
        to: "b".to_owned(),
    };
    assert_eq!(island.build().err(), Some(unreachable));
    builder.link(b, s, link(1)).expect("possible");
    assert!(builder.build().is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    /// Any mesh, loops and parallel links included.
    #[test]
    fn routes_are_all_the_shortest(
        switches in 1u32..9,
        edges in proptest::collection::vec((0u32..9, 0u32..9), 0..30),
        hosts in proptest::collection::vec(0u32..9, 2..7),
    ) {
        let mut builder = Builder::new();
        let nodes: Vec<Node> = (0..switches)
            .map(|number| builder.switch(format!("s{number}")).expect("a new name"))
            .collect();
        // A chain, so that everybody is reached.
        for pair in nodes.windows(2) {
            builder.link(pair[0], pair[1], link(1)).expect("possible");
        }
        let at = |number: u32| nodes[(number % switches) as usize];
        for (a, b) in edges {
            if at(a) != at(b) {
                builder.link(at(a), at(b), link(1)).expect("possible");
            }
        }
        for (number, edge) in hosts.into_iter().enumerate() {
            let host = builder.host(format!("h{number}"), None).expect("a new name");
            builder.link(host, at(edge), link(1)).expect("possible");
        }
        let topology = builder.build().expect("possible");
        prop_assert_eq!(routes(&topology), routes_by_floyd_warshall(&topology));
    }
}

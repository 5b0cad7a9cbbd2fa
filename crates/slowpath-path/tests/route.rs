// SPDX-License-Identifier: Apache-2.0
//! Traces through emulated networks: what the scenario has is what is found.

mod emulated;
mod network;

use emulated::up;
use network::{addresses, four_ways, network, router, routers, row, traced};
use slowpath_path::route::result::{Ecn, HopKind, Mark};
use slowpath_path::route::{Engine, TraceOptions};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

#[test]
fn a_row_of_routers_is_found_in_order_with_nothing_else() {
    let Some(lab) = up(
        "a_row_of_routers_is_found_in_order_with_nothing_else",
        &row(""),
    ) else {
        return;
    };
    for v6 in [false, true] {
        let route = traced(&lab, &TraceOptions::default(), v6);
        assert!(route.complete);
        assert_eq!(route.hops.len(), 6, "{route:#?}");
        for (hop, name) in route.hops.iter().zip(["r1", "r2", "r3", "r4", "r5"]) {
            assert_eq!(addresses(hop), routers(&lab, &[name], v6));
            assert_eq!(hop.kind, HopKind::Router);
            let rtt = hop.addresses[0].rtt_ns.expect("times");
            // A millisecond a link, there and back.
            assert!(rtt.min >= 2_000_000 * u64::from(hop.ttl), "{hop:?}");
        }
        assert_eq!(route.hops[5].kind, HopKind::Destination);
        assert_eq!((route.ways, route.per_packet), (1, false));
        assert!(route.missed_probability.is_some_and(|p| p <= 0.05));
        assert_eq!(route.loss.map(|l| (l.sent, l.lost)), Some((100, 0)));
        let mtu = route.mtu.expect("a search");
        assert_eq!((mtu.bytes, mtu.icmp, mtu.black_hole), (1_500, true, None));
        assert_eq!(route.changes, []);
        let ecn = route.ecn.expect("root reads quoted headers");
        assert_eq!((ecn.sent, ecn.changes.len()), (Mark::Ecn(Ecn::Ect0), 0));
        assert!(ecn.quoted >= 5);
        assert_eq!(route.dscp.expect("as ECN").sent, Mark::Dscp(46));
    }
}

#[test]
fn all_of_four_equal_ways_are_found_and_which_flow_takes_which() {
    let name = "all_of_four_equal_ways_are_found_and_which_flow_takes_which";
    let Some(lab) = up(name, &four_ways()) else {
        return;
    };
    let options = TraceOptions {
        mtu: false,
        marks: false,
        loss_probes: 0,
        confidence: 0.999,
        ..TraceOptions::default()
    };
    for v6 in [false, true] {
        let route = traced(&lab, &options, v6);
        let middle = routers(&lab, &["m1", "m2", "m3", "m4"], v6);
        assert_eq!(addresses(&route.hops[1]), middle);
        assert_eq!((route.ways, route.per_packet), (4, false));
        assert_eq!(addresses(&route.hops[2]), routers(&lab, &["r2"], v6));
        let first = &route.hops[0].addresses[0];
        assert_eq!(first.next.iter().copied().collect::<BTreeSet<_>>(), middle);
        for address in &route.hops[1].addresses {
            assert_eq!(address.next, [router(&lab, "r2", v6)]);
        }
        let taken: BTreeSet<IpAddr> = route
            .flows
            .iter()
            .filter_map(|flow| flow.addresses.get(1).copied().flatten())
            .collect();
        assert_eq!(taken, middle);
        assert!(
            route.missed_probability.is_some_and(|p| p <= 0.05),
            "{:?}",
            route.missed_probability
        );
    }
}

#[test]
fn loss_on_a_link_begins_at_the_hop_behind_it() {
    let more = "[[line]]\non = \"r3 -> r4\"\nloss = \"20 %\"\n";
    let Some(lab) = up("loss_on_a_link_begins_at_the_hop_behind_it", &row(more)) else {
        return;
    };
    let options = TraceOptions {
        mtu: false,
        marks: false,
        loss_probes: 200,
        ..TraceOptions::default()
    };
    let route = traced(&lab, &options, false);
    let loss = route.loss.expect("echo replies");
    // 40 of 200 are expected, and less than 15 or more than 70 in less than 1 of 100,000 traces.
    assert!((15..=70).contains(&loss.lost), "{loss:?}");
    assert_eq!(loss.from_hop, Some(4), "{route:#?}");
}

#[test]
fn a_way_that_changes_is_named_with_both_routers() {
    let routers = ["r1", "north", "south", "r2"];
    let links = [
        ("a", "r1"),
        ("r1", "north"),
        ("north", "r2"),
        ("r1", "south"),
        ("south", "r2"),
        ("r2", "b"),
    ];
    let more = "[[route]]\non = \"r1\"\nto = [\"b\"]\nvia = [\"north\"]\n\
                [[route]]\nat = \"5 s\"\non = \"r1\"\nto = [\"b\"]\nvia = [\"south\"]\n";
    let name = "a_way_that_changes_is_named_with_both_routers";
    let Some(lab) = up(name, &network(&routers, &links, more)) else {
        return;
    };
    let options = TraceOptions {
        mtu: false,
        marks: false,
        loss_probes: 0,
        repeat_for: Some(Duration::from_secs(9)),
        ..TraceOptions::default()
    };
    let route = traced(&lab, &options, false);
    let (north, south) = (router(&lab, "north", false), router(&lab, "south", false));
    let found: Vec<(u8, IpAddr, IpAddr)> = route
        .changes
        .iter()
        .map(|it| (it.hop, it.from, it.to))
        .collect();
    assert_eq!(found, [(2, north, south)], "{route:#?}");
    assert!(!route.per_packet);
}

#[test]
fn a_way_back_that_differs_changes_nothing_on_the_way_there() {
    let routers = ["west", "east", "north"];
    let links = [
        ("a", "west"),
        ("west", "east"),
        ("east", "b"),
        ("west", "north"),
        ("north", "east"),
    ];
    let more = "[[route]]\non = \"east\"\nto = [\"a\"]\nvia = [\"north\"]\n";
    let name = "a_way_back_that_differs_changes_nothing_on_the_way_there";
    let Some(lab) = up(name, &network(&routers, &links, more)) else {
        return;
    };
    let options = TraceOptions {
        mtu: false,
        marks: false,
        loss_probes: 20,
        ..TraceOptions::default()
    };
    let route = traced(&lab, &options, false);
    let found: Vec<BTreeSet<IpAddr>> = route.hops.iter().map(addresses).collect();
    let b = lab.host("b").expect("a host").ipv4();
    let expected = [
        network::routers(&lab, &["west"], false),
        network::routers(&lab, &["east"], false),
        BTreeSet::from([b.into()]),
    ];
    assert_eq!(found, expected);
    // East's answers go by north, three links of a millisecond; the two there.
    let rtt = route.hops[1].addresses[0].rtt_ns.expect("times");
    assert!(rtt.min >= 5_000_000, "{rtt:?}");
}

#[test]
fn a_destination_that_answers_no_udp_is_found_by_echo() {
    let name = "a_destination_that_answers_no_udp_is_found_by_echo";
    let Some(lab) = up(name, &row("")) else {
        return;
    };
    let b = lab.host("b").expect("a host");
    // Who listens on traceroute's port and says nothing.
    let _listening = b
        .run(|| std::net::UdpSocket::bind((b.ipv4(), 33_434)))
        .expect("enters")
        .expect("binds");
    let options = TraceOptions {
        loss_probes: 20,
        confidence: 0.5,
        rounds: 1,
        ..TraceOptions::default()
    };
    let route = traced(&lab, &options, false);
    assert!(route.complete);
    assert_eq!(route.hops.len(), 6, "{route:#?}");
    assert_eq!(route.hops[5].kind, HopKind::Destination);
    assert_eq!(route.mtu.map(|mtu| mtu.bytes), Some(1_500));
}

#[test]
fn the_other_protocols_find_the_same_hops() {
    let Some(lab) = up("the_other_protocols_find_the_same_hops", &row("")) else {
        return;
    };
    let engines = [
        Engine::Icmp,
        Engine::Tcp,
        Engine::UdpDublin,
        Engine::UdpClassic,
    ];
    for (engine, families) in
        engines
            .into_iter()
            .zip([&[false, true][..], &[false, true], &[false], &[false]])
    {
        for &v6 in families {
            let options = TraceOptions {
                engine,
                loss_probes: 0,
                confidence: 0.5,
                ..TraceOptions::default()
            };
            let route = traced(&lab, &options, v6);
            let found: Vec<BTreeSet<IpAddr>> = route.hops.iter().map(addresses).collect();
            let names = ["r1", "r2", "r3", "r4", "r5"];
            let expected: Vec<_> = names.map(|name| routers(&lab, &[name], v6)).into();
            assert_eq!(found[..5.min(found.len())], expected, "{engine:?} {v6}");
            assert!(route.complete, "{engine:?} {v6}");
        }
    }
}

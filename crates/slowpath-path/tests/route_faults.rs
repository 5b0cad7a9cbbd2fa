// SPDX-License-Identifier: Apache-2.0
//! Traces through emulated networks with a fault: it is found at its hop, and what looks like one is not.

mod emulated;
mod network;

use emulated::up;
use network::{router, row, traced};
use slowpath_path::route::result::{BlackHole, Ecn, HopKind, Mark, MarkChange, RouteNote};
use slowpath_path::route::{Engine, TraceOptions, text, trace};
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;

/// Only what such a test is about.
fn plain() -> TraceOptions {
    TraceOptions {
        mtu: false,
        marks: false,
        loss_probes: 0,
        confidence: 0.5,
        rounds: 0,
        ..TraceOptions::default()
    }
}

#[test]
fn a_smaller_mtu_is_found_and_the_router_that_reports_it() {
    let more = "[[line]]\non = \"r3 <-> r4\"\nmtu = 1400\n";
    let Some(lab) = up(
        "a_smaller_mtu_is_found_and_the_router_that_reports_it",
        &row(more),
    ) else {
        return;
    };
    for v6 in [false, true] {
        let options = TraceOptions {
            mtu: true,
            ..plain()
        };
        let route = traced(&lab, &options, v6);
        let mtu = route.mtu.expect("a search");
        assert_eq!((mtu.bytes, mtu.icmp, mtu.black_hole), (1_400, true, None));
        assert_eq!(mtu.reported_by, Some(router(&lab, "r3", v6)));
    }
}

#[test]
fn a_black_hole_is_found_at_the_hop_behind_its_link() {
    let more = "[[line]]\non = \"r3 -> r4\"\nmtu = 1400\nmtu-icmp = false\n";
    let Some(lab) = up(
        "a_black_hole_is_found_at_the_hop_behind_its_link",
        &row(more),
    ) else {
        return;
    };
    let options = TraceOptions {
        mtu: true,
        ..plain()
    };
    let route = traced(&lab, &options, false);
    let mtu = route.mtu.expect("a search");
    assert_eq!((mtu.bytes, mtu.icmp, mtu.reported_by), (1_400, false, None));
    let hole = mtu.black_hole.expect("a black hole");
    assert_eq!(hole.hop, Some(4));
    // The smallest size that was tried and vanished.
    assert!((1_401..=1_500).contains(&hole.bytes), "{hole:?}");
    assert!(text::route(&route).contains("vanish before hop 4"));
}

#[test]
fn a_black_hole_on_the_last_link_is_before_the_destination() {
    let more = "[[line]]\non = \"r5 -> b\"\nmtu = 1300\nmtu-icmp = false\n";
    let name = "a_black_hole_on_the_last_link_is_before_the_destination";
    let Some(lab) = up(name, &row(more)) else {
        return;
    };
    let options = TraceOptions {
        mtu: true,
        ..plain()
    };
    let mtu = traced(&lab, &options, false).mtu.expect("a search");
    assert_eq!(mtu.bytes, 1_300);
    assert_eq!(mtu.black_hole.and_then(|hole| hole.hop), Some(6));
}

#[test]
fn a_black_hole_on_the_way_back_is_none_on_the_way_there() {
    let more = "[[line]]\non = \"r4 -> r3\"\nmtu = 1200\nmtu-icmp = false\n";
    let name = "a_black_hole_on_the_way_back_is_none_on_the_way_there";
    let Some(lab) = up(name, &row(more)) else {
        return;
    };
    let options = TraceOptions {
        mtu: true,
        ..plain()
    };
    let mtu = traced(&lab, &options, false).mtu.expect("a search");
    let found = (mtu.bytes, mtu.black_hole);
    assert_eq!(found, (1_500, None::<BlackHole>), "{mtu:?}");
}

#[test]
fn cleared_ecn_and_a_new_dscp_are_found_at_their_hops() {
    // CS1 is 8 (RFC 2474 section 4.2.2.2).
    let more = "[[line]]\non = \"r1 -> r2\"\necn = \"clear\"\n[[line]]\non = \"r3 -> r4\"\ndscp = \"CS1\"\n";
    let Some(lab) = up(
        "cleared_ecn_and_a_new_dscp_are_found_at_their_hops",
        &row(more),
    ) else {
        return;
    };
    for v6 in [false, true] {
        let options = TraceOptions {
            marks: true,
            ..plain()
        };
        let route = traced(&lab, &options, v6);
        let change = |hop, name, from, to| MarkChange {
            hop,
            address: router(&lab, name, v6),
            from,
            to,
        };
        let (ecn, dscp) = (route.ecn.expect("quoted"), route.dscp.expect("quoted"));
        let cleared = change(2, "r2", Mark::Ecn(Ecn::Ect0), Mark::Ecn(Ecn::NotEct));
        assert_eq!(ecn.changes, [cleared], "{v6}");
        let remarked = change(4, "r4", Mark::Dscp(46), Mark::Dscp(8));
        assert_eq!(dscp.changes, [remarked], "{v6}");
    }
}

#[test]
fn silent_and_limited_routers_lose_nothing() {
    let more = "[[router]]\non = \"r2\"\nsilent = true\n\
                [[router]]\non = \"r4\"\nicmp-rate = \"1 /s\"\nicmp-burst = 3\n";
    let Some(lab) = up("silent_and_limited_routers_lose_nothing", &row(more)) else {
        return;
    };
    let options = TraceOptions {
        loss_probes: 100,
        rounds: 4,
        ..plain()
    };
    let route = traced(&lab, &options, false);
    let kinds: Vec<HopKind> = route.hops.iter().map(|hop| hop.kind).collect();
    use HopKind::{Destination, IcmpLimited, Router, Silent};
    let expected = [Router, Silent, Router, IcmpLimited, Router, Destination];
    assert_eq!(kinds, expected, "{}", text::route(&route));
    let loss = route.loss.expect("echo replies");
    assert_eq!((loss.sent, loss.lost, loss.from_hop), (100, 0, None));
    assert!(route.complete);
}

#[test]
fn a_limited_router_before_a_lossy_link_gets_none_of_the_loss() {
    let more = "[[router]]\non = \"r2\"\nicmp-rate = \"1 /s\"\nicmp-burst = 3\n\
                [[line]]\non = \"r4 -> r5\"\nloss = \"20 %\"\n";
    let name = "a_limited_router_before_a_lossy_link_gets_none_of_the_loss";
    let Some(lab) = up(name, &row(more)) else {
        return;
    };
    let options = TraceOptions {
        loss_probes: 200,
        rounds: 4,
        ..plain()
    };
    let route = traced(&lab, &options, false);
    let kind = route.hops[1].kind;
    assert_eq!(kind, HopKind::IcmpLimited, "{}", text::route(&route));
    assert_eq!(route.loss.expect("echo replies").from_hop, Some(5));
}

#[test]
fn routers_that_answer_late_are_answers_all_the_same() {
    let more = "[[router]]\non = \"r3\"\nicmp-delay = \"200 ms\"\n";
    let Some(lab) = up(
        "routers_that_answer_late_are_answers_all_the_same",
        &row(more),
    ) else {
        return;
    };
    let route = traced(&lab, &plain(), false);
    let hop = &route.hops[2];
    assert_eq!((hop.kind, hop.answered), (HopKind::Router, hop.sent));
    let rtt = hop.addresses[0].rtt_ns.expect("times");
    // Three links of a millisecond there and back, and the delay.
    assert!(rtt.min >= 206_000_000, "{rtt:?}");
}

#[test]
fn a_router_without_a_way_is_named() {
    let Some(lab) = up("a_router_without_a_way_is_named", &row("")) else {
        return;
    };
    // No host has this address: the first router says so, of packets that do not end there.
    let target: IpAddr = "10.0.0.77".parse().expect("an address");
    let options = TraceOptions {
        loss_probes: 5,
        ..plain()
    };
    let run = || {
        trace(
            &options,
            ("c", target),
            &AtomicBool::new(false),
            &mut |_| {},
        )
    };
    let a = lab.host("a").expect("a host");
    let route = a.run(run).expect("enters").expect("traces");
    assert!(!route.complete);
    let refused = RouteNote::Refused {
        hop: 2,
        address: router(&lab, "r1", false),
    };
    assert_eq!(route.notes, [refused, RouteNote::NoEcho]);
    assert_eq!((route.hops.len(), route.loss), (2, None));
}

/// A user without capabilities, on this thread and those that it starts.
fn become_a_plain_user() {
    // SAFETY: the system call takes three numbers and changes this thread only.
    let result = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_user_without_privileges_finds_all_but_quoted_ipv4_headers() {
    let more = "[[line]]\non = \"r2 -> r3\"\nmtu = 1400\necn = \"clear\"\n";
    let name = "a_user_without_privileges_finds_all_but_quoted_ipv4_headers";
    let Some(lab) = up(name, &row(more)) else {
        return;
    };
    let (a, b) = (
        lab.host("a").expect("a host"),
        lab.host("b").expect("a host"),
    );
    let options = TraceOptions {
        mtu: true,
        marks: true,
        loss_probes: 20,
        ..plain()
    };
    let run = |engine: Engine, target: IpAddr| {
        let options = TraceOptions {
            engine,
            ..options.clone()
        };
        a.run(|| {
            become_a_plain_user();
            trace(
                &options,
                ("b", target),
                &AtomicBool::new(false),
                &mut |_| {},
            )
        })
        .expect("enters")
    };
    for target in [IpAddr::V4(b.ipv4()), IpAddr::V6(b.ipv6())] {
        let route = run(Engine::Udp, target).expect("traces");
        assert!(route.complete);
        assert_eq!(route.hops.len(), 6);
        assert_eq!(route.mtu.expect("a search").bytes, 1_400);
        assert_eq!(route.loss.map(|loss| loss.lost), Some(0));
        match route.ecn {
            // Linux gives the traffic class of what an IPv6 error quotes to any user.
            Some(ecn) => {
                assert!(target.is_ipv6());
                let hops: Vec<u8> = ecn.changes.iter().map(|change| change.hop).collect();
                assert_eq!(hops, [3]);
            }
            None => {
                assert!(target.is_ipv4());
                assert_eq!(route.notes, [RouteNote::QuotesNeedRaw]);
            }
        }
    }
    let refused = run(Engine::Tcp, b.ipv4().into()).expect_err("needs CAP_NET_RAW");
    assert!(
        refused.to_string().contains("setcap cap_net_raw+ep"),
        "{refused}"
    );
}

// SPDX-License-Identifier: Apache-2.0
//! Fabrics: times to the picosecond, chosen and random losses as defined, changes, routes.

mod network;

use network::{Fate, Log, end, gbit, line_of_switches, packet};
use slowpath_switch::fabric::{
    Action, Burst, Change, DropCause, Fabric, Impairment, Jitter, Late, Node, Pick, Plan,
    PlanError, Route, Share,
};
use slowpath_switch::{ConfigError, Destination, Header, Limit, PortId, Span, Threshold, Time};

/// The 64-bit numbers of a line's stream, written from the documentation: SplitMix64 whose
/// start is mix(mix(seed + g) xor stream g).
fn numbers(seed: u64, line: u64, purpose: u64) -> impl Iterator<Item = u64> {
    const G: u64 = 0x9e37_79b9_7f4a_7c15;
    fn mix(mut z: u64) -> u64 {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    let stream = (1 << 63) + 256 * line + purpose;
    let mut state = mix(mix(seed.wrapping_add(G)) ^ u64::wrapping_mul(stream, G));
    std::iter::repeat_with(move || {
        state = state.wrapping_add(G);
        mix(state)
    })
}

fn falls_into(number: u64, parts: u128) -> bool {
    u128::from(number) * 1_000_000_000 < parts << 64
}

fn with_loss(plan: &mut Plan, line: u32, loss: Pick) {
    let impairment = Impairment {
        loss,
        ..Impairment::default()
    };
    plan.impairments.push((line, impairment));
}

/// Sends `count` packets of 1,250 bytes from host 0 to host 1, one each 100 us.
fn stream(plan: &Plan, count: u64) -> (Fabric, Log) {
    let mut fabric = Fabric::new(plan).expect("possible");
    let mut log = Log::default();
    for number in 1..=count {
        let now = Time::from_nanos(100_000 * number);
        fabric.send(now, 0, packet(number, 1), &mut log);
    }
    log.run_out(&mut fabric);
    (fabric, log)
}

fn lost(log: &Log) -> Vec<u64> {
    let lost = log.all.iter().filter_map(|(_, handle, what)| match what {
        Fate::Dropped(_, DropCause::Lost) => Some(*handle),
        _ => None,
    });
    lost.collect()
}

#[test]
fn a_pipe_of_three_switches_is_exact() {
    // Four links of 5 us, 1,250 bytes at 1 Gbit/s: 4 x (10 + 5) us.
    let (_, log) = stream(&line_of_switches(3), 1);
    assert_eq!(
        log.all,
        [(
            Time::from_nanos(100_000 + 60_000),
            1,
            Fate::Delivered(Node::Host(1), 3, 61)
        )]
    );
    // A burst leaves the host back to back, and nothing else delays it.
    let mut fabric = Fabric::new(&line_of_switches(3)).expect("possible");
    let mut log = Log::default();
    for number in 0..10 {
        fabric.send(Time::ZERO, 0, packet(number, 1), &mut log);
    }
    log.run_out(&mut fabric);
    let times: Vec<u64> = log.all.iter().map(|(at, ..)| at.as_nanos()).collect();
    let expected: Vec<u64> = (0..10).map(|n| 60_000 + 10_000 * n).collect();
    assert_eq!(times, expected);
}

#[test]
fn chosen_packets_and_no_others_are_lost() {
    let mut plan = line_of_switches(2);
    with_loss(
        &mut plan,
        2,
        Pick {
            numbers: vec![(1, 1), (7, 9), (40, 40)],
            every: Some((20, 15)),
            ..Pick::default()
        },
    );
    let (fabric, log) = stream(&plan, 60);
    assert_eq!(lost(&log), [1, 7, 8, 9, 20, 35, 40, 50]);
    assert_eq!(fabric.line_counters(2).lost, 8);
    assert_eq!(fabric.counts().delivered, 52);
    // A lost packet's place is where the line begins: link 1, the first switch.
    let place = Fate::Dropped(Node::Switch(0), DropCause::Lost);
    assert_eq!(
        log.all.iter().filter(|(_, _, what)| *what == place).count(),
        8
    );
}

#[test]
fn short_packets_do_not_count_if_the_pick_says_so() {
    let mut plan = line_of_switches(1);
    with_loss(
        &mut plan,
        0,
        Pick {
            numbers: vec![(2, 2)],
            at_least: 1000,
            ..Pick::default()
        },
    );
    let mut fabric = Fabric::new(&plan).expect("possible");
    let mut log = Log::default();
    for (handle, bytes) in [(1, 60), (2, 1250), (3, 999), (4, 1000), (5, 1250)] {
        let packet = Header {
            bytes,
            ..packet(handle, 1)
        };
        fabric.send(Time::ZERO, 0, packet, &mut log);
    }
    log.run_out(&mut fabric);
    assert_eq!(lost(&log), [4]);
}

#[test]
fn random_losses_are_those_of_the_definition() {
    let mut plan = line_of_switches(1);
    plan.seed = 77;
    with_loss(
        &mut plan,
        2,
        Pick {
            share: Share(1_000_000),
            ..Pick::default()
        },
    );
    // Line 2: link 1, from the switch to host 1 or back; here the ends are switch, host.
    let (_, log) = stream(&plan, 50_000);
    let expected: Vec<u64> = (1..=50_000)
        .zip(numbers(77, 2, 0))
        .filter(|(_, x)| falls_into(*x, 1_000_000))
        .map(|(number, _)| number)
        .collect();
    assert_eq!(lost(&log), expected);
    // 0.1 %: 50, give or take four standard deviations.
    assert!((22..=78).contains(&expected.len()), "{}", expected.len());
}

#[test]
fn bursts_are_those_of_the_definition() {
    let mut plan = line_of_switches(1);
    plan.seed = 5;
    let burst = Burst {
        begin: Share(20_000_000),
        end: Share(250_000_000),
        good: Share::NONE,
        bad: Share(700_000_000),
    };
    with_loss(
        &mut plan,
        0,
        Pick {
            burst: Some(burst),
            ..Pick::default()
        },
    );
    let (_, log) = stream(&plan, 20_000);
    let mut x = numbers(5, 0, 1);
    let mut bad = false;
    let mut expected = Vec::new();
    for number in 1..=20_000 {
        let change = if bad { 250_000_000 } else { 20_000_000 };
        if falls_into(x.next().expect("endless"), change) {
            bad = !bad;
        }
        let picked = falls_into(x.next().expect("endless"), 700_000_000) && bad;
        expected.extend(picked.then_some(number));
    }
    assert_eq!(lost(&log), expected);
    // The chain is bad for 0.02 / 0.27 of the time, of which 0.7 is lost: 1,037.
    assert!((800..1300).contains(&expected.len()), "{}", expected.len());
}

#[test]
fn jitter_keeps_or_breaks_the_order_as_the_plan_says() {
    let most = Span::from_micros(300);
    for overtaking in [false, true] {
        let mut plan = line_of_switches(1);
        plan.seed = 9;
        let impairment = Impairment {
            delay: Span::from_micros(50),
            jitter: Jitter { most, overtaking },
            ..Impairment::default()
        };
        plan.impairments.push((2, impairment));
        let (_, log) = stream(&plan, 1000);
        let mut last = Time::ZERO;
        let mut expected: Vec<(Time, u64)> = Vec::new();
        for (number, x) in (1..=1000).zip(numbers(9, 2, 5)) {
            // Two links of 15 us, 50 us of delay and the jitter.
            let plain = Time::from_nanos(100_000 * number + 30_000 + 50_000);
            let added = (u128::from(x) * u128::from(most.0 + 1)) >> 64;
            let mut at = plain + Span(u64::try_from(added).expect("small"));
            if !overtaking {
                at = at.max(last);
                last = at;
            }
            expected.push((at, number));
        }
        expected.sort();
        let observed: Vec<(Time, u64)> = log
            .all
            .iter()
            .map(|(at, handle, _)| (*at, *handle))
            .collect();
        assert_eq!(observed, expected);
        let in_order = observed.is_sorted_by_key(|(_, handle)| *handle);
        assert_eq!(in_order, !overtaking);
    }
}

#[test]
fn late_packets_are_overtaken_and_copies_arrive_twice() {
    let mut plan = line_of_switches(1);
    let chosen = |numbers| Pick {
        numbers,
        ..Pick::default()
    };
    let impairment = Impairment {
        late: Late {
            pick: chosen(vec![(3, 3)]),
            by: Span::from_micros(250),
        },
        copies: chosen(vec![(5, 5)]),
        corruption: chosen(vec![(6, 6)]),
        ..Impairment::default()
    };
    plan.impairments.push((0, impairment));
    let (fabric, log) = stream(&plan, 6);
    let order: Vec<u64> = log.delivered().collect();
    assert_eq!(order, [1, 2, 4, 5, 5, 3, 6]);
    assert_eq!((log.copies, log.corrupted), (1, 1));
    let counts = fabric.counts();
    assert_eq!((counts.sent, counts.copies, counts.delivered), (6, 1, 7));
}

#[test]
fn a_time_to_live_ends_at_the_switch_that_says_so() {
    let plan = line_of_switches(3);
    let mut fabric = Fabric::new(&plan).expect("possible");
    let mut log = Log::default();
    for ttl in 1..=4 {
        let packet = Header {
            ttl,
            ..packet(u64::from(ttl), 1)
        };
        fabric.send(Time::ZERO, 0, packet, &mut log);
    }
    log.run_out(&mut fabric);
    let mut ends: Vec<(u64, Fate)> = log
        .all
        .iter()
        .map(|(_, handle, what)| (*handle, *what))
        .collect();
    ends.sort_by_key(|(handle, _)| *handle);
    let expired = |switch| Fate::Dropped(Node::Switch(switch), DropCause::TtlExpired);
    assert_eq!(
        ends,
        [
            (1, expired(0)),
            (2, expired(1)),
            (3, expired(2)),
            (4, Fate::Delivered(Node::Host(1), 3, 1)),
        ]
    );
    // A switch is a destination too, and answers by itself: hosts are 0 and 1.
    let mut log = Log::default();
    let now = fabric.now();
    let to_switch = Header {
        ttl: 2,
        ..packet(9, 2 + 1)
    };
    fabric.send(now, 0, to_switch, &mut log);
    log.run_out(&mut fabric);
    assert_eq!(log.all[0].2, Fate::Delivered(Node::Switch(1), 1, 1));
    let now = fabric.now();
    fabric.send_from(now, 1, packet(10, 0), &mut log);
    log.run_out(&mut fabric);
    assert_eq!(log.all[1].2, Fate::Delivered(Node::Host(0), 1, 63));
}

#[test]
fn links_and_routes_change_at_their_time() {
    let mut plan = line_of_switches(2);
    let at = |us: u64, action| Change {
        at: Time::from_nanos(us * 1_000),
        action,
    };
    let route = |ports: &[u16]| {
        Action::Route(Route {
            switch: 1,
            destination: Destination(1),
            ports: ports.iter().map(|port| PortId(*port)).collect(),
        })
    };
    plan.changes = vec![
        // A packet leaves each 100 us and takes 15 us to the first switch, 30 to the second.
        at(350, Action::Up(1, false)),
        at(550, Action::Up(1, true)),
        at(750, Action::Rate(4, gbit(2))),
        at(750, Action::Propagation(4, Span::from_micros(2))),
        at(850, route(&[])),
        at(950, route(&[1])),
        // In the middle of packet 11, which is on link 1 from 1,115 to 1,130 us.
        at(1120, Action::Up(1, false)),
        at(1125, Action::Up(1, true)),
    ];
    let (fabric, log) = stream(&plan, 12);
    let of = |number: u64| {
        let found = log.all.iter().find(|(_, handle, _)| *handle == number);
        let (at, _, what) = found.expect("each ends somewhere");
        (at.as_nanos() / 1000 - 100 * number, *what)
    };
    let arrives = Fate::Delivered(Node::Host(1), 2, 62);
    let cut = Fate::Dropped(Node::Switch(0), DropCause::LinkDown);
    let no_route = Fate::Dropped(Node::Switch(1), DropCause::NoRoute);
    assert_eq!(
        [of(3), of(4), of(5), of(6)],
        [(45, arrives), (15, cut), (15, cut), (45, arrives)]
    );
    // 30 us, then 5 us at 2 Gbit/s and 2 us.
    assert_eq!(of(7), (45, arrives));
    assert_eq!(
        [of(8), of(9), of(10)],
        [(37, arrives), (30, no_route), (37, arrives)]
    );
    assert_eq!([of(11), of(12)], [(30, cut), (37, arrives)]);
    assert_eq!(fabric.line_counters(2).cut, 3);
}

#[test]
fn queues_overflow_mark_and_wait_as_in_the_switch() {
    let mut plan = line_of_switches(1);
    // The switch's port to host 1: room for 4, marks from 2, a tenth of the rate.
    let port = &mut plan.switches[0].ports[1];
    port.limit = Limit::packets(4);
    port.marking = Some(Threshold::Packets(2));
    port.rate = gbit(1)
        .bits_per_second()
        .checked_div(10)
        .and_then(slowpath_switch::Rate::from_bits_per_second)
        .expect("in bounds");
    let mut fabric = Fabric::new(&plan).expect("possible");
    let mut log = Log::default();
    for number in 1..=8 {
        let packet = Header {
            ecn: 2,
            ..packet(number, 1)
        };
        fabric.send(Time::ZERO, 0, packet, &mut log);
    }
    log.run_out(&mut fabric);
    // One on the line, four wait, three find no room; those that found two or more are marked.
    assert_eq!(log.delivered().collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(log.marked, [4, 5]);
    let full = Fate::Dropped(Node::Switch(0), DropCause::BufferFull);
    assert_eq!(
        log.all.iter().filter(|(_, _, what)| *what == full).count(),
        3
    );
    // 100 us each on the slow line.
    let last = log.all.last().expect("five arrived").0;
    assert_eq!(last, Time::from_nanos(15_000 + 5 * 100_000 + 5_000));
}

#[test]
fn no_more_packets_are_inside_than_the_plan_allows() {
    let mut plan = line_of_switches(1);
    plan.most_packets = 3;
    let mut fabric = Fabric::new(&plan).expect("possible");
    let mut log = Log::default();
    for number in 1..=5 {
        fabric.send(Time::ZERO, 0, packet(number, 1), &mut log);
    }
    log.run_out(&mut fabric);
    let refused = Fate::Dropped(Node::Host(0), DropCause::TooMany);
    assert_eq!(
        log.all
            .iter()
            .filter(|(_, _, what)| *what == refused)
            .count(),
        2
    );
    assert_eq!(fabric.counts().delivered, 3);
}

#[test]
fn impossible_plans_are_named() {
    let refuse = |change: fn(&mut Plan)| {
        let mut plan = line_of_switches(2);
        change(&mut plan);
        Fabric::new(&plan).expect_err("impossible")
    };
    let zero = |plan: &mut Plan| plan.switches[1].ports[0].limit = Limit::packets(0);
    assert_eq!(
        refuse(zero),
        PlanError::Switch(1, ConfigError::ZeroBuffer(PortId(0)))
    );
    assert_eq!(
        refuse(|p| p.hosts[1].limit = Limit::packets(0)),
        PlanError::Host(1)
    );
    assert_eq!(
        refuse(|p| p.links[1][0] = end(Node::Switch(0), 7)),
        PlanError::Link(1)
    );
    assert_eq!(
        refuse(|p| p.links[1][0] = end(Node::Switch(9), 0)),
        PlanError::Link(1)
    );
    assert_eq!(refuse(|p| p.links[2] = p.links[1]), PlanError::Link(2));
    assert_eq!(
        refuse(|p| p.links.truncate(2)),
        PlanError::NoLink(Node::Host(1))
    );
    assert_eq!(
        refuse(|p| p.routes[0].ports = vec![PortId(9)]),
        PlanError::Route(0)
    );
    // The wrong host's port.
    let astray = |plan: &mut Plan| {
        plan.routes[0].destination = Destination(1);
        plan.routes[0].ports = vec![PortId(0)];
        plan.routes[0].switch = 0;
    };
    assert_eq!(refuse(astray), PlanError::Route(0));
    let nowhere = |plan: &mut Plan| with_loss(plan, 6, Pick::default());
    assert_eq!(refuse(nowhere), PlanError::NoSuchLine(6));
    for numbers in [
        vec![(0, 1)],
        vec![(3, 2)],
        vec![(1, 5), (5, 6)],
        vec![(4, 5), (1, 2)],
    ] {
        let mut plan = line_of_switches(1);
        with_loss(
            &mut plan,
            1,
            Pick {
                numbers,
                ..Pick::default()
            },
        );
        assert_eq!(
            Fabric::new(&plan).expect_err("out of order"),
            PlanError::Pick(1)
        );
    }
}

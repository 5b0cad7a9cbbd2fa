// SPDX-License-Identifier: Apache-2.0
//! Random networks, packets and changes: conservation, one end for each packet, determinism
//! however time passes; plans as bytes, and any bytes as a plan.

mod network;

use network::{Fate, Log, end, gbit, line_of_switches, packet};
use proptest::prelude::*;
use slowpath_switch::fabric::{
    Action, BitErrors, Burst, Change, Condition, DropCause, Fabric, Impairment, Jitter, Late, Mtu,
    Node, Pick, Plan, Police, Remark, Route, Share,
};
use slowpath_switch::{
    Alpha, Destination, Detour, Header, Limit, PortConfig, PortId, PortKind, Random, Rate, Shared,
    Span, SwitchConfig, Threshold, Time,
};
use std::collections::BTreeMap;

fn pick(random: &mut Random) -> Pick {
    Pick {
        share: Share(random.below(200_000_000)),
        burst: (random.below(2) == 0).then(|| Burst {
            begin: Share(random.below(100_000_000)),
            end: Share(random.below(500_000_000)),
            good: Share(random.below(3_000_000)),
            bad: Share(random.below(1_000_000_001)),
        }),
        numbers: vec![(2, 4), (9, 9), (30, 50)],
        every: Some((1 + u64::from(random.below(9)), 7)),
        at_least: random.below(200),
    }
}

fn impairment(random: &mut Random) -> Impairment {
    Impairment {
        delay: Span::from_micros(u64::from(random.below(50))),
        jitter: Jitter {
            most: Span::from_micros(u64::from(random.below(50))),
            overtaking: random.below(2) == 0,
        },
        loss: pick(random),
        bit_errors: BitErrors(u64::from(random.below(3)) * 10_000_000_000),
        corruption: pick(random),
        copies: pick(random),
        late: Late {
            pick: pick(random),
            by: Span::from_micros(u64::from(random.below(500))),
        },
    }
}

fn condition(random: &mut Random) -> Condition {
    let some = random.below(3) > 0;
    match random.below(4) {
        0 => Condition::Mtu(some.then(|| Mtu {
            bytes: 100 + random.below(1400),
            reported: true,
        })),
        1 => Condition::Police(some.then(|| Police {
            rate: Rate::MIN,
            burst: u64::from(random.below(9_000)),
        })),
        2 => Condition::ClearEcn(some),
        _ => Condition::Dscp(some.then(|| Remark {
            dscp: random.below(64) as u8,
            class: random.below(8) as u8,
        })),
    }
}

/// Four hosts on three switches in a ring, with shared memory, detours, marks, impairments
/// and changes.
fn ring(random: &mut Random) -> Plan {
    let port = |kind, packets| PortConfig {
        kind,
        rate: gbit(1),
        propagation: Span::from_micros(3),
        limit: Limit::packets(packets),
        marking: Some(Threshold::Packets(2)),
    };
    let mut plan = Plan::new(random.next_u64());
    plan.most_packets = 20 + random.below(200);
    plan.hosts = vec![port(PortKind::Switch, 30); 4];
    // Switch s: ports 0 and 1 to the switches before and after, then hosts.
    let hosts_of = [vec![0, 3], vec![1], vec![2]];
    for (number, hosts) in (0..).zip(&hosts_of) {
        let mut ports = vec![port(PortKind::Switch, 4); 2];
        ports.resize(2 + hosts.len(), port(PortKind::Host, 3));
        let mut config = SwitchConfig::new(ports, plan.seed, number);
        config.detour = (random.below(2) == 0).then(Detour::default);
        config.shared = (random.below(2) == 0).then(|| Shared {
            total: Limit::packets(8),
            alpha: Alpha::ONE,
        });
        plan.switches.push(config);
        for (place, host) in (2..).zip(hosts) {
            plan.links
                .push([end(Node::Host(*host), 0), end(Node::Switch(number), place)]);
        }
    }
    for number in 0..3 {
        plan.links.push([
            end(Node::Switch(number), 1),
            end(Node::Switch((number + 1) % 3), 0),
        ]);
        for (at, hosts) in hosts_of.iter().enumerate() {
            for (place, host) in (2..).zip(hosts) {
                let ports = match at == number as usize {
                    true => vec![PortId(place)],
                    false => vec![PortId(0), PortId(1)],
                };
                plan.routes.push(Route {
                    switch: number,
                    destination: Destination(*host),
                    ports,
                });
            }
        }
    }
    for line in 0..14 {
        if random.below(3) == 0 {
            plan.impairments.push((line, impairment(random)));
        }
        let action = match random.below(7) {
            0 => Action::Rate(line, gbit(1 + u64::from(random.below(9)))),
            1 => Action::Propagation(line, Span::from_micros(u64::from(random.below(90)))),
            2 => Action::Impair(line, Box::new(impairment(random))),
            3 => Action::Up(line / 2, random.below(2) == 0),
            4 | 5 => Action::Condition(line, condition(random)),
            _ => Action::Route(Route {
                switch: random.below(3),
                destination: Destination(random.below(4)),
                ports: vec![PortId(random.below(2) as u16)],
            }),
        };
        let at = Time::from_nanos(u64::from(random.below(800_000)));
        plan.changes.push(Change { at, action });
    }
    plan
}

/// Sends 400 packets; `step` decides how often time passes in between.
fn drive(plan: &Plan, seed: u64, step: u64) -> (Log, Fabric) {
    let mut random = Random::new(seed);
    let mut fabric = Fabric::new(plan).expect("possible");
    let mut log = Log::halving(seed.is_multiple_of(2));
    let mut now = 0;
    for handle in 0..400 {
        let next = now + u64::from(random.below(3_000_000));
        while step > 0 && now + step < next {
            now += step;
            fabric.advance(Time(now), &mut log);
        }
        now = next;
        let packet = Header {
            bytes: 60 + random.below(1441),
            flow: random.next_u64(),
            ttl: 1 + random.below(20) as u8,
            ecn: random.below(2) as u8 * 2,
            ..packet(handle, random.below(5))
        };
        fabric.send(Time(now), random.below(4), packet, &mut log);
        let counts = fabric.counts();
        assert_eq!(
            counts.sent + counts.copies + counts.fragments,
            counts.delivered + counts.dropped + counts.inside + counts.fragmented
        );
        assert!(counts.inside <= u64::from(plan.most_packets));
    }
    log.run_out(&mut fabric);
    (log, fabric)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    #[test]
    fn every_packet_ends_once_and_the_same_way_however_time_passes(seed in any::<u64>()) {
        let plan = ring(&mut Random::new(seed));
        let (log, fabric) = drive(&plan, seed, 0);
        let counts = fabric.counts();
        assert_eq!(counts.inside, 0);
        assert_eq!(counts.sent, 400);
        assert_eq!(log.queued, 0);
        let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
        for (_, handle, _) in &log.all {
            *ends.entry(*handle).or_default() += 1;
        }
        assert_eq!(ends.len(), 400);
        assert_eq!((counts.fragmented, counts.fragments), (log.halved, 2 * log.halved));
        assert_eq!(log.all.len() as u64, 400 + log.copies + log.halved);
        let delivered = log.all.iter().filter(|(_, _, what)| matches!(what, Fate::Delivered(..)));
        assert_eq!(delivered.count() as u64, counts.delivered);
        // Same again; and with time passing in steps of 1.7 us.
        prop_assert_eq!(&drive(&plan, seed, 0).0, &log);
        prop_assert_eq!(&drive(&plan, seed, 1_700_000).0, &log);
        // A plan that went through bytes is the same plan.
        let again = Plan::decode(&plan.encode()).expect("just encoded");
        prop_assert_eq!(again, plan);
    }

    #[test]
    fn any_bytes_are_a_plan_or_an_error(
        seed in any::<u64>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = ring(&mut Random::new(seed)).encode();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if seed % 3 == 0 {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(plan) = Plan::decode(&bytes) && let Ok(mut fabric) = Fabric::new(&plan) {
            let mut log = Log::default();
            for handle in 0..20 {
                fabric.send(Time(handle * 1_000_000), handle as u32 % 5, packet(handle, handle as u32 % 4), &mut log);
            }
            // A bounded look: rates and delays may be anything now.
            for _ in 0..10_000 {
                let Some(next) = fabric.next_event() else { break };
                fabric.advance(next, &mut log);
            }
        }
    }

    #[test]
    fn noise_is_no_plan(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Plan::decode(&bytes).is_err());
    }
}

#[test]
fn the_runs_above_see_everything_happen() {
    let mut random = Random::new(8);
    let (mut detours, mut marked, mut copies, mut corrupted) = (0, 0, 0, 0);
    let (mut halved, mut too_long, mut policed) = (0, 0, 0);
    for _ in 0..40 {
        let plan = ring(&mut random);
        let (log, _) = drive(&plan, random.next_u64(), 0);
        detours += log.detours;
        marked += log.marked.len();
        copies += log.copies;
        corrupted += log.corrupted;
        halved += log.halved;
        let drops = |cause| {
            let ends = log.all.iter();
            ends.filter(|(.., fate)| matches!(fate, Fate::Dropped(_, of) if *of == cause))
                .count()
        };
        too_long += drops(DropCause::TooLong);
        policed += drops(DropCause::Policed);
    }
    println!("{halved} halved, {too_long} too long, {policed} policed");
    assert!(halved > 20 && too_long > 20 && policed > 20);
    println!("{detours} detours, {marked} marked, {copies} copies, {corrupted} corrupted");
    assert!(detours > 20 && marked > 20 && copies > 20 && corrupted > 20);
}

#[test]
fn a_plan_of_another_version_says_so() {
    let mut bytes = line_of_switches(1).encode();
    bytes[4] = 9;
    let error = Plan::decode(&bytes).expect_err("of version 9");
    assert_eq!(error, slowpath_switch::fabric::DecodeError::Version(9));
    bytes[4] = 2;
    bytes.push(0);
    let error = Plan::decode(&bytes).expect_err("too long");
    assert_eq!(error, slowpath_switch::fabric::DecodeError::Long);
}

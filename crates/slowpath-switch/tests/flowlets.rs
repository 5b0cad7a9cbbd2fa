// SPDX-License-Identifier: Apache-2.0
//! Flowlets: who begins one, and by which port it leaves.

use proptest::prelude::*;
use slowpath_switch::{
    Destination, FlowletCounts, FlowletError, Flowlets, Header, Limit, Outcome, Passed, PortConfig,
    PortId, PortKind, Rate, Span, Switch, SwitchConfig, Time,
};

const GAP: Span = Span::from_micros(100);
const HERE: Destination = Destination(0);

fn switch(ports: u16, seed: u64) -> Switch<Header> {
    let port = PortConfig {
        kind: PortKind::Switch,
        rate: Rate::from_bits_per_second(10_000_000_000).unwrap(),
        propagation: Span::ZERO,
        limit: Limit::NONE,
        marking: None,
    };
    let ports = vec![port; usize::from(ports)];
    Switch::new(&SwitchConfig::new(ports, seed, 0)).unwrap()
}

/// All ports but the first lead to [`HERE`].
fn flowlets(ways: u16, seed: u64, entries: u32) -> Switch<Header> {
    let mut switch = switch(ways + 1, seed);
    let ports: Vec<PortId> = (1..=ways).map(PortId).collect();
    switch.set_route(HERE, &ports).unwrap();
    switch.set_flowlets(Flowlets { gap: GAP, entries }).unwrap();
    switch
}

fn at(ps: u64) -> Time {
    Time(ps)
}

fn counts(switch: &Switch<Header>) -> (u64, u64) {
    let FlowletCounts {
        flowlets,
        path_changes,
    } = switch.flowlets().unwrap();
    (flowlets, path_changes)
}

proptest! {
    /// Whatever others do in between, and however small the table.
    #[test]
    fn a_flow_without_gaps_never_changes_its_way(
        steps in prop::collection::vec((0u64..4, 0..=GAP.0 / 4), 1..500),
        entries in 1u32..200,
        seed: u64,
    ) {
        let mut switch = flowlets(5, seed, entries);
        let mut now = 0;
        let mut last = [(0, None); 4];
        for (flow, gap) in steps {
            now += gap;
            // All flows that were silent for long enough may change.
            let port = switch.choose_port(at(now), HERE, flow);
            let (before, way) = last[flow as usize];
            if way.is_some() && now - before <= GAP.0 {
                prop_assert_eq!(port, way);
            }
            last[flow as usize] = (now, port);
        }
    }

    /// The rule, in a table without collisions: one flow.
    #[test]
    fn a_flowlet_begins_after_more_than_the_gap(
        gaps in prop::collection::vec(prop_oneof![
            Just(GAP.0 - 1), Just(GAP.0), Just(GAP.0 + 1), 0..3 * GAP.0,
        ], 1..200),
        seed: u64,
    ) {
        let mut switch = flowlets(3, seed, 1 << 10);
        let (mut now, mut changes) = (0, 0);
        let mut port = switch.choose_port(at(now), HERE, 7);
        for gap in &gaps {
            now += gap;
            let next = switch.choose_port(at(now), HERE, 7);
            changes += u64::from(next != port);
            if *gap <= GAP.0 {
                prop_assert_eq!(next, port);
            }
            port = next;
            // At the same moment it is the same, and no flowlet more.
            prop_assert_eq!(switch.choose_port(at(now), HERE, 7), port);
        }
        let began = gaps.iter().filter(|gap| **gap > GAP.0).count() as u64;
        prop_assert_eq!(counts(&switch), (1 + began, changes));
    }

    /// Also where flows to different places meet in an entry, and where routes change.
    #[test]
    fn every_port_leads_to_the_destination(
        steps in prop::collection::vec(
            (0u32..3, 0u64..20, 0..2 * GAP.0, prop::option::of(1u8..63)), 1..300,
        ),
        entries in 1u32..8,
    ) {
        let mut switch = flowlets(5, 1, entries);
        let mut now = 0;
        for (to, flow, gap, ports) in steps {
            now += gap;
            if let Some(mask) = ports {
                let ports: Vec<PortId> = (0..6).filter(|bit| mask >> bit & 1 == 1).map(PortId).collect();
                switch.set_route(Destination(to), &ports).unwrap();
            }
            let ports = switch.route(Destination(to));
            match switch.choose_port(at(now), Destination(to), flow) {
                Some(port) => prop_assert!(ports.contains(&port)),
                None => prop_assert!(ports.is_empty()),
            }
        }
    }
}

/// Each of n draws takes each of k ports with a probability of 1 / k: that many times n / k, give or
/// take the root of n / k (1 - 1 / k); and a change with one of 1 - 1 / k. Five of those deviations
/// are passed once in 1.7 million times.
#[test]
fn every_way_is_as_likely_as_another() {
    const DRAWS: u64 = 40_000;
    for ways in [2u16, 3, 4, 7] {
        let mut switch = flowlets(ways, 11, 1 << 16);
        let mut taken = vec![0u64; usize::from(ways) + 1];
        for number in 0..DRAWS {
            let now = at(number * (GAP.0 + 1));
            let port = switch.choose_port(now, HERE, 3).unwrap();
            taken[usize::from(port.0)] += 1;
        }
        let share = 1.0 / f64::from(ways);
        let near = |count: u64, draws: u64, share: f64| {
            let deviation = (draws as f64 * share * (1.0 - share)).sqrt();
            let off = (count as f64 - draws as f64 * share).abs();
            assert!(off <= 5.0 * deviation, "{ways} ways: {count} of {draws}");
        };
        assert_eq!(taken[0], 0);
        for count in &taken[1..] {
            near(*count, DRAWS, share);
        }
        let (flowlets, changes) = counts(&switch);
        assert_eq!(flowlets, DRAWS);
        near(changes, DRAWS - 1, 1.0 - share);
    }
}

/// So are the first ways of many flows.
#[test]
fn flows_begin_on_every_way_as_likely_as_on_another() {
    const FLOWS: u64 = 8_000;
    // So large a table that few meet: they would take the same way.
    let mut switch = flowlets(4, 5, Flowlets::MAX_ENTRIES);
    let mut taken = [0u64; 5];
    for flow in 0..FLOWS {
        let port = switch.choose_port(at(0), HERE, flow).unwrap();
        taken[usize::from(port.0)] += 1;
    }
    // Two flows meet with a probability of 1 / 2^20: 8,000^2 / 2 / 2^20 = 31 pairs, on average.
    let (flowlets, changes) = counts(&switch);
    assert!((FLOWS - 60..=FLOWS).contains(&flowlets), "{flowlets}");
    assert_eq!(changes, 0);
    // 2,000 of each, deviation 39; and 60 flows more on one for meeting others.
    for count in &taken[1..] {
        assert!(count.abs_diff(2_000) < 5 * 39 + 60, "{taken:?}");
    }
}

/// LetFlow's table has no keys: flows whose hashes are equal are one.
#[test]
fn flows_that_meet_in_an_entry_are_one_flow() {
    let mut switch = flowlets(4, 1, 1);
    let half = GAP.0 / 2 + 1;
    let first = switch.choose_port(at(0), HERE, 1);
    // Each has gaps that are too long; both have none.
    for number in 1..100 {
        let port = switch.choose_port(at(number * half), HERE, 1 + number % 2);
        assert_eq!(port, first);
    }
    assert_eq!(counts(&switch), (1, 0));
    // To elsewhere by other ports: each ends the other's flowlet, and none changes its way.
    switch
        .set_route(Destination(1), &[PortId(0), PortId(1)])
        .unwrap();
    for number in 0..10 {
        let now = at(99 * half + number);
        switch.choose_port(now, Destination(number as u32 % 2), 1);
    }
    assert_eq!(counts(&switch), (10, 0));
}

#[test]
fn a_way_that_is_the_only_one_has_no_flowlets() {
    let mut switch = flowlets(1, 1, 10);
    assert_eq!(switch.choose_port(at(5), HERE, 9), Some(PortId(1)));
    assert_eq!(switch.choose_port(at(5), Destination(7), 9), None);
    assert_eq!(counts(&switch), (0, 0));
}

/// Packets go where `choose_port` says, whether they are taken by `arrive` or by `pass`, and without
/// flowlets where their hash says.
#[test]
fn packets_take_the_way_of_their_flowlet() {
    let packet = Header {
        bytes: 1_000,
        ttl: 9,
        ..Header::default()
    };
    let mut plain = switch(5, 3);
    let ports: Vec<PortId> = (1..5).map(PortId).collect();
    plain.set_route(HERE, &ports).unwrap();
    assert_eq!(plain.flowlets(), None);
    let mut with = flowlets(4, 3, 100);
    for number in 0..200 {
        let now = at(number * (GAP.0 / 2 + number % 3 * GAP.0));
        let flow = number % 5;
        let packet = Header { flow, ..packet };
        for switch in [&mut plain, &mut with] {
            let expected = switch.choose_port(now, HERE, flow);
            let queued = match number % 2 {
                0 => match switch.arrive(now, PortId(0), packet, &mut ()) {
                    Outcome::Queued(queued) => queued,
                    Outcome::Dropped { .. } => unreachable!("there is room"),
                },
                _ => match switch.pass(now, PortId(0), packet, &mut ()) {
                    Passed::Queued(queued) | Passed::Left { queued, .. } => queued,
                    Passed::Dropped { .. } => unreachable!("there is room"),
                },
            };
            assert_eq!(Some(queued.port), expected);
            while switch.transmit(now, queued.port, &mut ()).is_some() {}
        }
        assert_eq!(
            plain.next_port(HERE, flow),
            plain.choose_port(now, HERE, flow)
        );
    }
    let dequeued = |switch: &Switch<Header>| -> u64 {
        (0..5)
            .map(|port| switch.counters(PortId(port)).enqueued)
            .sum()
    };
    assert_eq!((dequeued(&plain), dequeued(&with)), (200, 200));
}

#[test]
fn a_table_has_a_size_within_bounds() {
    for entries in [0, Flowlets::MAX_ENTRIES + 1] {
        let flowlets = Flowlets { gap: GAP, entries };
        assert_eq!(switch(2, 1).set_flowlets(flowlets), Err(FlowletError));
    }
}

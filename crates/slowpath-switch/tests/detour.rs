// SPDX-License-Identifier: Apache-2.0
//! DIBS: where packets go whose queue is full.

use slowpath_switch::{
    Alpha, Depth, Destination, Detour, DropReason, Header, Limit, Outcome, PortConfig, PortId,
    PortKind, Queued, Rate, Shared, Span, Switch, SwitchConfig, Threshold, Time,
};

const LIMIT: u32 = 5;

fn port(kind: PortKind) -> PortConfig {
    PortConfig {
        kind,
        rate: Rate::from_bits_per_second(1_000_000_000).expect("in range"),
        propagation: Span::ZERO,
        limit: Limit::packets(LIMIT),
        marking: None,
    }
}

/// Hosts at ports 0 and 1, switches at the others; destination 0 is the host at port 0.
fn config(switches: usize, detour: Option<Detour>) -> SwitchConfig {
    let mut ports = vec![port(PortKind::Host); 2];
    ports.extend(vec![port(PortKind::Switch); switches]);
    let mut config = SwitchConfig::new(ports, 11, 0);
    config.detour = detour;
    config
}

fn build(config: &SwitchConfig) -> Switch<Header> {
    let mut switch = Switch::new(config).expect("possible");
    switch
        .set_route(Destination(0), &[PortId(0)])
        .expect("possible");
    switch
}

fn packet(ttl: u8) -> Header {
    Header {
        bytes: 1500,
        ttl,
        ecn: 2,
        ..Header::default()
    }
}

fn arrive(switch: &mut Switch<Header>, by: u16, packet: Header) -> Outcome<Header> {
    switch.arrive(Time::ZERO, PortId(by), packet, &mut ())
}

fn queued(outcome: Outcome<Header>) -> Queued {
    match outcome {
        Outcome::Queued(queued) => queued,
        Outcome::Dropped { reason, .. } => panic!("dropped: {reason:?}"),
    }
}

fn reason(outcome: Outcome<Header>) -> DropReason {
    match outcome {
        Outcome::Queued(queued) => panic!("{queued:?}"),
        Outcome::Dropped { reason, .. } => reason,
    }
}

fn fill(switch: &mut Switch<Header>, port: u16) {
    while switch.depth(PortId(port)).packets < LIMIT {
        let outcome = switch.send(Time::ZERO, PortId(port), packet(64), &mut ());
        assert_eq!(queued(outcome).port, PortId(port));
    }
}

#[test]
fn only_a_full_queue_detours() {
    let mut switch = build(&config(4, Some(Detour::default())));
    for n in 0..LIMIT + 4 * LIMIT {
        let queued = queued(arrive(&mut switch, 1, packet(64)));
        assert_eq!(queued.detoured, n >= LIMIT);
        assert_eq!(queued.port == PortId(0), n < LIMIT);
    }
    // Every switch-facing port is full now, and the other host's is empty.
    assert_eq!(
        reason(arrive(&mut switch, 1, packet(64))),
        DropReason::BufferFull
    );
    assert_eq!(switch.depth(PortId(1)), Depth::default());
    assert_eq!(switch.counters(PortId(0)).detoured, u64::from(4 * LIMIT));
    assert_eq!(switch.counters(PortId(0)).dropped, 1);
}

#[test]
fn without_the_option_it_is_dropped() {
    let mut switch = build(&config(4, None));
    fill(&mut switch, 0);
    assert_eq!(
        reason(arrive(&mut switch, 2, packet(64))),
        DropReason::BufferFull
    );
}

#[test]
fn back_where_it_came_from_only_if_allowed() {
    for arrival_port in [true, false] {
        let mut switch = build(&config(
            1,
            Some(Detour {
                arrival_port,
                mark: false,
            }),
        ));
        fill(&mut switch, 0);
        let outcome = arrive(&mut switch, 2, packet(64));
        if arrival_port {
            assert_eq!(queued(outcome).port, PortId(2));
        } else {
            assert_eq!(reason(outcome), DropReason::BufferFull);
        }
    }
}

/// 8 ports that may be chosen, each with probability 1/8. Pearson's statistic over 8
/// classes stays below 24.32 with probability 99.9 % (7 degrees of freedom).
#[test]
fn every_port_with_room_is_as_likely_as_another() {
    const TRIALS: u32 = 8_000;
    let mut switch = build(&config(
        10,
        Some(Detour {
            arrival_port: false,
            mark: false,
        }),
    ));
    fill(&mut switch, 0);
    // Port 4 has no room, port 5 is where the packets come from.
    fill(&mut switch, 4);
    let mut counts = [0u32; 12];
    let mut now = Time::ZERO;
    for _ in 0..TRIALS {
        let outcome = switch.arrive(now, PortId(5), packet(64), &mut ());
        let to = queued(outcome).port;
        counts[usize::from(to.0)] += 1;
        // It leaves at once, so that there is room again.
        now = switch.due(to).expect("it waits there");
        assert!(switch.transmit(now, to, &mut ()).is_some());
    }
    let chosen = [2, 3, 6, 7, 8, 9, 10, 11];
    let expected = f64::from(TRIALS) / chosen.len() as f64;
    let pearson: f64 = chosen
        .iter()
        .map(|port| (f64::from(counts[*port]) - expected).powi(2) / expected)
        .sum();
    assert!(pearson < 24.32, "{counts:?}: {pearson}");
    assert_eq!(chosen.iter().map(|port| counts[*port]).sum::<u32>(), TRIALS);
}

#[test]
fn the_seed_decides() {
    let choices = |seed, number| {
        let mut config = config(8, Some(Detour::default()));
        config.seed = seed;
        config.number = number;
        let mut switch = build(&config);
        fill(&mut switch, 0);
        (0..20)
            .map(|_| queued(arrive(&mut switch, 2, packet(64))).port)
            .collect::<Vec<_>>()
    };
    assert_eq!(choices(1, 1), choices(1, 1));
    assert_ne!(choices(1, 1), choices(2, 1));
    assert_ne!(choices(1, 1), choices(1, 2));
}

#[test]
fn a_detour_marks_if_that_is_wanted() {
    for mark in [true, false] {
        let mut switch = build(&config(
            1,
            Some(Detour {
                arrival_port: true,
                mark,
            }),
        ));
        fill(&mut switch, 0);
        let capable = queued(arrive(&mut switch, 1, packet(64)));
        assert_eq!((capable.detoured, capable.marked), (true, mark));
        let not_capable = Header {
            ecn: 0,
            ..packet(64)
        };
        assert!(!queued(arrive(&mut switch, 1, not_capable)).marked);
        let waiting: Vec<u8> = switch
            .queued(PortId(2), 0)
            .map(|packet| packet.ecn)
            .collect();
        assert_eq!(waiting, [if mark { 3 } else { 2 }, 0]);
        assert_eq!(switch.counters(PortId(0)).marked, u64::from(mark));
    }
}

#[test]
fn one_packet_is_marked_once() {
    let mut config = config(1, Some(Detour::default()));
    config.ports[2].marking = Some(Threshold::Packets(0));
    let mut switch = build(&config);
    fill(&mut switch, 0);
    assert!(queued(arrive(&mut switch, 1, packet(64))).marked);
    let marks = |port| switch.counters(PortId(port)).marked;
    assert_eq!((marks(0), marks(2)), (1, 0));
}

/// With dynamic thresholds, room is what the threshold leaves.
#[test]
fn shared_memory_detours_at_its_threshold() {
    let mut config = config(1, Some(Detour::default()));
    for port in &mut config.ports {
        port.limit = Limit::NONE;
    }
    config.shared = Some(Shared {
        total: Limit::packets(30),
        alpha: Alpha::ONE,
    });
    let mut switch = build(&config);
    // One queue of alpha 1 grows while q < 30 - q: to 15.
    for n in 0..30 {
        let to = queued(arrive(&mut switch, 1, packet(64)));
        if n < 15 {
            assert!(!to.detoured, "{n}");
        } else if to.detoured {
            // The second queue then grows while q < 30 - 15 - q: to 8.
            assert!(switch.depth(PortId(2)).packets <= 8);
        }
        if switch.depth(PortId(2)).packets == 8 {
            break;
        }
    }
    assert_eq!(switch.depth(PortId(0)).packets, 15);
    assert_eq!(switch.depth(PortId(2)).packets, 8);
    assert_eq!(
        reason(arrive(&mut switch, 1, packet(64))),
        DropReason::BufferFull
    );
}

/// Two switches with full host ports play a packet back and forth: each takes one from its
/// time to live, and one that comes with 1 is dropped for that reason and no other.
#[test]
fn a_detoured_packet_lives_as_many_hops_as_it_may() {
    let mut pair = [0, 1].map(|number| {
        let mut config = config(1, Some(Detour::default()));
        config.number = number;
        build(&config)
    });
    for switch in &mut pair {
        fill(switch, 0);
    }
    for ttl in [1, 2, 3, 24, 255] {
        let mut at = packet(ttl);
        let mut now = Time::ZERO;
        let mut hops = 0;
        let reason = loop {
            let switch = &mut pair[hops % 2];
            match switch.arrive(now, PortId(2), at, &mut ()) {
                Outcome::Dropped { packet, reason } => {
                    assert_eq!(packet.ttl, 0);
                    break reason;
                }
                Outcome::Queued(queued) => {
                    now = queued.start.expect("the port is idle");
                    let left = switch
                        .transmit(now, queued.port, &mut ())
                        .expect("it is due");
                    (now, at) = (left.arrival, left.packet);
                    hops += 1;
                    assert_eq!(usize::from(at.ttl), usize::from(ttl) - hops);
                }
            }
        };
        assert_eq!(reason, DropReason::TtlExpired);
        assert_eq!(hops, usize::from(ttl) - 1);
    }
}

#[test]
fn a_bridge_does_not_change_the_time_to_live() {
    let mut config = config(1, None);
    config.decrement_ttl = false;
    let mut switch = build(&config);
    queued(arrive(&mut switch, 1, packet(0)));
    assert_eq!(
        switch.queued(PortId(0), 0).next().map(|packet| packet.ttl),
        Some(0)
    );
}

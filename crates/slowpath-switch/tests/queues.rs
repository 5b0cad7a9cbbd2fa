// SPDX-License-Identifier: Apache-2.0
//! Priorities, marks, shared memory and the choice among equal routes.

use slowpath_switch::{
    Alpha, ConfigError, Destination, DropReason, Header, Limit, Outcome, Packet, PortConfig,
    PortId, PortKind, Random, Rate, Shared, Span, Switch, SwitchConfig, Threshold, Time,
};

fn port() -> PortConfig {
    PortConfig {
        kind: PortKind::Switch,
        rate: Rate::from_bits_per_second(10_000_000_000).expect("in range"),
        propagation: Span::ZERO,
        limit: Limit::packets(100),
        marking: None,
    }
}

fn config(ports: usize) -> SwitchConfig {
    SwitchConfig::new(vec![port(); ports], 5, 0)
}

fn packet(handle: u64) -> Header {
    Header {
        handle,
        bytes: 1000,
        ttl: 64,
        ecn: 2,
        ..Header::default()
    }
}

fn drain(switch: &mut Switch<Header>, port: PortId) -> Vec<Header> {
    let mut left = Vec::new();
    while let Some(due) = switch.due(port) {
        left.extend(
            switch
                .transmit(due, port, &mut ())
                .map(|departure| departure.packet),
        );
    }
    left
}

#[test]
fn the_most_urgent_class_goes_first_and_each_in_order() {
    let mut config = config(1);
    config.classes = 3;
    let mut switch = Switch::new(&config).expect("possible");
    // Class 7 is beyond the last and counts as it.
    for (handle, class) in [(0, 2), (1, 7), (2, 1), (3, 0), (4, 2), (5, 1), (6, 0)] {
        let packet = Header {
            class,
            ..packet(handle)
        };
        switch.send(Time::ZERO, PortId(0), packet, &mut ());
    }
    let order: Vec<u64> = drain(&mut switch, PortId(0))
        .iter()
        .map(|p| p.handle)
        .collect();
    assert_eq!(order, [3, 6, 2, 5, 0, 1, 4]);
}

/// Strict, but not preemptive: what is on the line stays there.
#[test]
fn an_urgent_packet_waits_for_the_line() {
    let mut config = config(1);
    config.classes = 2;
    let mut switch = Switch::new(&config).expect("possible");
    let low = Header {
        class: 1,
        ..packet(0)
    };
    switch.send(Time::ZERO, PortId(0), low, &mut ());
    let first = switch
        .transmit(Time::ZERO, PortId(0), &mut ())
        .expect("it is due");
    let outcome = switch.send(Time(1), PortId(0), packet(1), &mut ());
    let Outcome::Queued(queued) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(queued.start, Some(first.finish));
    assert_eq!(
        switch.transmit(Time(first.finish.0 - 1), PortId(0), &mut ()),
        None
    );
    let second = switch
        .transmit(first.finish, PortId(0), &mut ())
        .expect("it is due");
    assert_eq!((second.packet.handle, second.start), (1, first.finish));
}

/// A caller that comes late changes nothing: packets start when they were due.
#[test]
fn a_late_call_starts_when_it_was_due() {
    let mut switch = Switch::new(&config(1)).expect("possible");
    for handle in 0..3 {
        switch.send(Time::ZERO, PortId(0), packet(handle), &mut ());
    }
    // 1,000 bytes at 10 Gbit/s: 800 ns.
    let late = Time::from_nanos(1_000_000);
    for n in 0..3 {
        let left = switch
            .transmit(late, PortId(0), &mut ())
            .expect("it is due");
        assert_eq!(left.start, Time::from_nanos(n * 800));
    }
}

#[test]
fn marks_begin_at_the_threshold() {
    for threshold in [Threshold::Packets(20), Threshold::Bytes(19_001)] {
        let mut config = config(1);
        config.ports[0].marking = Some(threshold);
        let mut switch = Switch::new(&config).expect("possible");
        for handle in 0..40 {
            // Every third one is not capable and is never marked.
            let ecn = if handle % 3 == 0 { 0 } else { 1 };
            let packet = Header {
                ecn,
                ..packet(handle)
            };
            switch.send(Time::ZERO, PortId(0), packet, &mut ());
        }
        // The n-th finds n waiting: 20 packets, or with 20,000 bytes the first 19,001.
        for packet in drain(&mut switch, PortId(0)) {
            let n = packet.handle;
            let expected = if n % 3 == 0 {
                0
            } else if n >= 20 {
                3
            } else {
                1
            };
            assert_eq!(packet.ecn, expected, "packet {n}, {threshold:?}");
        }
    }
}

/// The queue of the packet's class decides, not its neighbours.
#[test]
fn a_class_is_marked_for_its_own_queue() {
    let mut config = config(1);
    config.classes = 2;
    config.ports[0].marking = Some(Threshold::Packets(2));
    let mut switch = Switch::new(&config).expect("possible");
    for handle in 0..5 {
        switch.send(
            Time::ZERO,
            PortId(0),
            Header {
                class: 1,
                ..packet(handle)
            },
            &mut (),
        );
    }
    switch.send(Time::ZERO, PortId(0), packet(9), &mut ());
    let marked: Vec<u64> = drain(&mut switch, PortId(0))
        .iter()
        .filter(|packet| packet.ecn == 3)
        .map(|packet| packet.handle)
        .collect();
    assert_eq!(marked, [2, 3, 4]);
}

/// n queues that want all they can get settle, each at alpha B / (1 + n alpha), Choudhury
/// and Hahne's equation for the steady state; a length is at most one packet above it, as
/// the last may come while the queue is just shorter.
#[test]
fn greedy_queues_share_as_the_threshold_says() {
    const TOTAL: u64 = 1_000;
    for (numerator, denominator) in [(1, 8), (1, 2), (1, 1), (2, 1), (8, 1)] {
        for greedy in [1u16, 2, 5] {
            let mut config = config(6);
            for port in &mut config.ports {
                port.limit = Limit::NONE;
            }
            config.shared = Some(Shared {
                total: Limit::packets(TOTAL as u32),
                alpha: Alpha::new(numerator, denominator).expect("not 0"),
            });
            let mut switch = Switch::new(&config).expect("possible");
            for round in 0..TOTAL {
                for port in 0..greedy {
                    switch.send(Time::ZERO, PortId(port), packet(round), &mut ());
                }
            }
            let alpha = f64::from(numerator) / f64::from(denominator);
            let steady = alpha * TOTAL as f64 / (1.0 + f64::from(greedy) * alpha);
            for port in 0..greedy {
                let length = f64::from(switch.depth(PortId(port)).packets);
                assert!(
                    length >= (steady - 1.0).floor() && length <= steady + 1.0,
                    "alpha {alpha}, {greedy} queues: {length}, not {steady}"
                );
            }
        }
    }
}

/// In bytes, a packet must fit whole: ten of 1,000 bytes into 10,000 and also into 10,999.
#[test]
fn shared_bytes_leave_room_for_a_whole_packet() {
    for total in [10_000, 10_999] {
        let mut config = config(1);
        config.ports[0].limit = Limit::NONE;
        let alpha = Alpha::new(u32::MAX, 1).expect("not 0");
        config.shared = Some(Shared {
            total: Limit::bytes(total),
            alpha,
        });
        let mut switch = Switch::new(&config).expect("possible");
        for handle in 0..20 {
            switch.send(Time::ZERO, PortId(0), packet(handle), &mut ());
        }
        assert_eq!(switch.depth(PortId(0)).bytes, 10_000);
        assert_eq!(switch.dropped(DropReason::BufferFull), 10);
    }
}

/// Of 3 2^30 numbers every third one is a multiple of 3. A draw of 32 bits scaled down
/// would give those twice as often as the others.
#[test]
fn every_number_below_a_bound_is_as_likely() {
    const DRAWS: u32 = 40_000;
    let mut random = Random::new(8);
    let mut draw = || random.below(3 << 30);
    let multiples = (0..DRAWS).filter(|_| draw().is_multiple_of(3)).count() as f64;
    let expected = f64::from(DRAWS) / 3.0;
    // 99.9 % within 3.29 standard deviations.
    assert!(
        (multiples - expected).abs() < 3.29 * (expected * 2.0 / 3.0).sqrt(),
        "{multiples}"
    );
    assert_eq!(random.below(0), 0);
    assert_eq!(random.below(1), 0);
}

#[test]
fn a_flow_keeps_its_port_and_flows_spread() {
    const FLOWS: u64 = 8_000;
    let set: Vec<PortId> = (0..8).map(PortId).collect();
    let mut switch = Switch::<Header>::new(&config(8)).expect("possible");
    switch.set_route(Destination(3), &set).expect("possible");
    let mut counts = [0u32; 8];
    for flow in 0..FLOWS {
        let port = switch.next_port(Destination(3), flow).expect("a route");
        assert_eq!(switch.next_port(Destination(3), flow), Some(port));
        counts[usize::from(port.0)] += 1;
    }
    // 8 classes: below 24.32 with probability 99.9 %.
    let expected = FLOWS as f64 / 8.0;
    let pearson: f64 = counts
        .iter()
        .map(|c| (f64::from(*c) - expected).powi(2) / expected)
        .sum();
    assert!(pearson < 24.32, "{counts:?}: {pearson}");
}

/// What one switch sends to one port, the next one spreads over all of its own: they do not
/// choose alike.
#[test]
fn switches_in_a_row_choose_independently() {
    let set: Vec<PortId> = (0..4).map(PortId).collect();
    let [first, second] = [0, 1].map(|number| {
        let mut config = config(4);
        config.number = number;
        let mut switch = Switch::<Header>::new(&config).expect("possible");
        switch.set_route(Destination(0), &set).expect("possible");
        switch
    });
    let mut counts = [0u32; 4];
    for flow in 0..16_000 {
        if first.next_port(Destination(0), flow) == Some(PortId(0)) {
            let port = second.next_port(Destination(0), flow).expect("a route");
            counts[usize::from(port.0)] += 1;
        }
    }
    let expected = f64::from(counts.iter().sum::<u32>()) / 4.0;
    // 4 classes: below 16.27 with probability 99.9 % (3 degrees of freedom).
    let pearson: f64 = counts
        .iter()
        .map(|c| (f64::from(*c) - expected).powi(2) / expected)
        .sum();
    assert!(pearson < 16.27, "{counts:?}: {pearson}");
}

#[test]
fn a_route_can_change_and_go() {
    let mut switch = Switch::<Header>::new(&config(3)).expect("possible");
    let to = Destination(70);
    let reason = |switch: &mut Switch<Header>| {
        let packet = Header {
            destination: 70,
            ..packet(0)
        };
        match switch.arrive(Time::ZERO, PortId(0), packet, &mut ()) {
            Outcome::Queued(queued) => Ok(queued.port),
            Outcome::Dropped { reason, .. } => Err(reason),
        }
    };
    assert_eq!(reason(&mut switch), Err(DropReason::NoRoute));
    switch.set_route(to, &[PortId(2)]).expect("possible");
    assert_eq!(reason(&mut switch), Ok(PortId(2)));
    assert_eq!(switch.route(to), [PortId(2)]);
    switch
        .set_route(to, &[PortId(0), PortId(1)])
        .expect("possible");
    assert_eq!(switch.route(to), [PortId(0), PortId(1)]);
    assert!(reason(&mut switch).is_ok_and(|port| port != PortId(2)));
    let error = switch.set_route(to, &[PortId(0), PortId(3)]);
    assert_eq!(error, Err(ConfigError::NoSuchPort(PortId(3))));
    let error = switch.set_route(to, &[PortId(1), PortId(1)]);
    assert_eq!(error, Err(ConfigError::PortTwice(PortId(1))));
    let error = switch.set_route(Destination(u32::MAX), &[PortId(1)]);
    assert_eq!(error, Err(ConfigError::Destination));
    switch.set_route(to, &[]).expect("possible");
    assert_eq!(reason(&mut switch), Err(DropReason::NoRoute));
    assert_eq!(switch.dropped(DropReason::NoRoute), 2);
}

#[test]
fn impossible_switches_are_refused() {
    let error = |change: fn(&mut SwitchConfig)| {
        let mut config = config(2);
        change(&mut config);
        Switch::<Header>::new(&config).err()
    };
    assert_eq!(error(|c| c.ports.clear()), Some(ConfigError::Ports));
    assert_eq!(error(|c| c.classes = 0), Some(ConfigError::Classes));
    assert_eq!(error(|c| c.classes = 9), Some(ConfigError::Classes));
    let zero = Some(ConfigError::ZeroBuffer(PortId(1)));
    assert_eq!(error(|c| c.ports[1].limit = Limit::packets(0)), zero);
    assert_eq!(error(|c| c.ports[1].limit = Limit::bytes(0)), zero);
    let shared = |total| {
        Some(Shared {
            total,
            alpha: Alpha::ONE,
        })
    };
    assert_eq!(
        error(|c| c.shared = Some(Shared {
            total: Limit::NONE,
            alpha: Alpha::ONE
        })),
        Some(ConfigError::SharedUnbounded)
    );
    let mut config = config(2);
    config.shared = shared(Limit::bytes(0));
    assert_eq!(config.check(), Err(ConfigError::ZeroShared));
    assert_eq!(Alpha::new(0, 1), None);
    assert_eq!(Alpha::new(1, 0), None);
}

/// A packet need not be a number: here it is the frame itself, IPv4 in Ethernet, as an
/// emulator has it.
struct Frame(Vec<u8>);

impl Packet for Frame {
    fn bytes(&self) -> u32 {
        // Preamble, delimiter, checksum and gap (IEEE 802.3) take time, too.
        self.0.len() as u32 + 24
    }
    fn destination(&self) -> Destination {
        Destination(u32::from(self.0[33]))
    }
    fn flow(&self) -> u64 {
        (u64::from(self.0[29]) << 8) | u64::from(self.0[33])
    }
    fn is_ecn_capable(&self) -> bool {
        self.0[15] & 3 != 0
    }
    fn mark(&mut self) {
        self.0[15] |= 3;
    }
    fn ttl(&self) -> u8 {
        self.0[22]
    }
    fn set_ttl(&mut self, ttl: u8) {
        self.0[22] = ttl;
    }
}

#[test]
fn frames_go_through_as_they_are() {
    let mut config = config(2);
    config.ports[1].marking = Some(Threshold::Packets(0));
    let mut switch = Switch::<Frame>::new(&config).expect("possible");
    switch
        .set_route(Destination(9), &[PortId(1)])
        .expect("possible");
    let mut frame = vec![0; 1514];
    (frame[15], frame[22], frame[33]) = (2, 64, 9);
    let mut expected = frame.clone();
    (expected[15], expected[22]) = (3, 63);
    let outcome = switch.arrive(Time::ZERO, PortId(0), Frame(frame), &mut ());
    assert!(matches!(outcome, Outcome::Queued(_)));
    let left = switch
        .transmit(Time::ZERO, PortId(1), &mut ())
        .expect("it is due");
    assert_eq!(left.packet.0, expected);
    // 1,538 bytes at 10 Gbit/s.
    assert_eq!(left.finish, Time(1_538 * 800));
}

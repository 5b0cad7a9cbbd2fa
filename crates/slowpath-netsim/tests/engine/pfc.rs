// SPDX-License-Identifier: Apache-2.0
//! Priority flow control in whole networks: times by hand, no loss, head-of-line blocking, deadlocks.

use crate::scene::{GBIT, link, newreno, rate, run};
use slowpath_netsim::engine::{FlowSpec, HostId, Network, Settings, SwitchId, Transport};
use slowpath_netsim::results::Results;
use slowpath_netsim::tcp::TcpConfig;
use slowpath_netsim::topology::{Builder, LinkOptions, Links, Topology, fat_tree};
use slowpath_switch::aqm::{Aqm, CoDel};
use slowpath_switch::fabric::{Action, Change, Impairment, Pick, Route};
use slowpath_switch::{Destination, Flowlets, Limit, PauseCounts, Pfc, PortId, Random, Span, Time};

/// 1 us at 10 Gbit/s, 10 us at 1 Gbit/s.
const BYTES: u16 = 1_250;

/// Switches without buffers by output, all of whose ports stop what comes in by them.
fn network(topology: Topology, pfc: impl Fn(LinkOptions) -> Pfc) -> Network {
    let mut network = Network::new(topology, Limit::NONE, None, 1);
    for (number, switch) in (0..).zip(network.topology.switches()) {
        for (port, end) in (0..).zip(&switch.ports) {
            let pfc = pfc(end.options);
            network.pfc.push((SwitchId(number), PortId(port), pfc));
        }
    }
    network
}

fn topology(hosts: &[&str], switches: &[&str], links: &[(&str, &str, LinkOptions)]) -> Topology {
    let mut builder = Builder::new();
    for host in hosts {
        builder.host(*host, None).unwrap();
    }
    for switch in switches {
        builder.switch(*switch).unwrap();
    }
    for (a, b, options) in links {
        let [a, b] = [a, b].map(|name| builder.find(name).unwrap());
        builder.link(a, b, *options).unwrap();
    }
    builder.build().unwrap()
}

/// Packets of [`BYTES`], all at once.
fn datagrams(id: u64, from: u32, to: u32, packets: u64) -> FlowSpec {
    FlowSpec {
        transport: Transport::Datagrams(BYTES),
        ..FlowSpec::tcp(
            id,
            HostId(from),
            HostId(to),
            packets * u64::from(BYTES - 28),
            Time::ZERO,
        )
    }
}

fn settings(until: Span) -> Settings {
    Settings::new(newreno(), Time::ZERO + until)
}

/// From a host over two switches to another, whose link is ten times slower.
fn line() -> Topology {
    topology(
        &["a", "b"],
        &["left", "right"],
        &[
            ("a", "left", link(10 * GBIT, 1)),
            ("left", "right", link(10 * GBIT, 1)),
            ("right", "b", link(GBIT, 1)),
        ],
    )
}

fn of_line(headroom: u64, packets: u64) -> Results {
    let pfc = Pfc {
        xoff: 5_000,
        xon: 2_500,
        headroom,
    };
    let network = network(line(), |_| pfc);
    run(
        &network,
        settings(Span::from_secs(1)),
        [datagrams(0, 0, 1, packets)],
    )
}

fn received(counts: PauseCounts) -> (u64, u64, Span) {
    (counts.sent, counts.received, counts.paused)
}

/// Packet k leaves the host from k - 1 us to k us, the left switch from k + 1, and is at the right one
/// at k + 3. That one starts one each 10 us, from 4 us on. Five wait there with the sixth, at 9 us: 6,250
/// bytes. Its frame (64 bytes, 51.2 ns; and 1 us) is at the left switch at 10.0512 us, as packet 9 is on
/// the line. Packets 2 to 9 wait: two of them are left when packet 7 starts, at 64 us. The left switch
/// goes on at 65.0512 us, 55 us after it stopped.
///
/// It has had packets 10 to 14 at 15 us, stops the host at 16.0512 us with packet 17 on the line, the
/// last; after 65.0512 us it starts one each us, and has two left with packet 15 at 70.0512 us: the host
/// may go on at 71.1024 us.
///
/// At the right one are packets 8 to 12 at 69.0512 us, it stops the left one at 70.1024 us, as packet 15
/// is on the line, and has 14 and 15 left at 124 us. The left one goes on at 125.0512 us with packets 16
/// and 17: four then wait, and that is not too many.
#[test]
fn a_line_of_two_switches_stops_and_goes_on_as_by_hand() {
    let results = of_line(5_000, 17);
    assert_eq!(results.conservation.delivered, 17);
    let pauses = results.pauses.unwrap();
    let ns = |tenths: u64| Span(tenths * 100);
    // Of the left switch: towards the host, and towards the right one.
    assert_eq!(received(pauses.ports[0]), (1, 0, Span::ZERO));
    assert_eq!(received(pauses.ports[1]), (0, 2, ns(550_000 + 549_488)));
    // Of the right one: towards the left one, and towards the other host.
    assert_eq!(received(pauses.ports[2]), (2, 0, Span::ZERO));
    assert_eq!(received(pauses.ports[3]), (0, 0, Span::ZERO));
    assert_eq!(received(pauses.hosts[0]), (0, 1, ns(711_024 - 160_512)));
    assert_eq!(received(pauses.hosts[1]), (0, 0, Span::ZERO));
    assert_eq!(pauses.deadlock, None);
    // The slow link never waits: 17 packets of 10 us from 4 us on, and 1 us of propagation.
    let completion = results.flows[0].completion();
    assert_eq!(completion, Some(Span::from_micros(4 + 170 + 1)));
}

/// Eight packets wait at most, by hand: 10,000 bytes are xoff and a headroom of 5,000. With a byte less
/// one finds no room in each switch, is dropped and counted: what comes last before the pause.
#[test]
fn a_headroom_that_is_a_byte_too_small_loses_a_packet() {
    let enough = of_line(5_000, 17);
    assert_eq!(enough.conservation.dropped, 0);
    // By the rule: 2,500 bytes on the line both ways, 64 of the frame, two packets.
    assert!(Pfc::enough(rate(10 * GBIT), Span::from_micros(1), BYTES.into()) == 5_064);
    let less = of_line(4_999, 9);
    assert_eq!(
        (less.conservation.delivered, less.conservation.dropped),
        (8, 1)
    );
    let pauses = less.pauses.unwrap();
    let overruns: Vec<u64> = pauses.ports.iter().map(|port| port.overruns).collect();
    // At the right switch, from the left one; counted at the port that it would have left by, too.
    assert_eq!(overruns, [0, 0, 1, 0]);
    let dropped: Vec<u64> = less
        .ports
        .iter()
        .map(|port| port.counters.dropped)
        .collect();
    assert_eq!(dropped, [0, 0, 0, 1]);
    let none = of_line(0, 100).conservation;
    assert!(none.dropped > 10, "{none}");
}

/// The links of a drawn fat-tree of 16 hosts, and thresholds with exactly enough headroom.
fn drawn(random: &mut Random) -> Network {
    let mut options = || LinkOptions {
        // Rates that no time divides, among them.
        rate: rate(1_000_000_007 * (1 + u64::from(random.below(20)))),
        delay: Span(u64::from(random.below(20_000_000))),
        ..link(GBIT, 1)
    };
    let links = Links {
        host: options(),
        fabric: options(),
    };
    let xoff = u64::from(random.below(40_000));
    let xon = random.next_u64() % (xoff + 1);
    network(fat_tree(4, links).unwrap(), |link| Pfc {
        xoff,
        xon,
        headroom: Pfc::enough(link.rate, link.delay, 1_500),
    })
}

/// Up and down a tree no buffers wait in a circle: whatever the links and the thresholds, with enough
/// headroom nothing is lost and everything arrives. Drawn: incasts of datagrams and TCP flows of all sizes.
#[test]
fn drawn_incasts_lose_nothing() {
    let mut pauses = 0;
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let network = drawn(&mut random);
        let flows: Vec<FlowSpec> = (0..30)
            .map(|id| {
                let to = random.below(3);
                let from = (to + 1 + random.below(15)) % 16;
                let bytes = 1 + u64::from(random.below(100_000));
                let transport = match random.below(2) {
                    0 => Transport::Tcp(0),
                    _ => Transport::Datagrams(100 + random.below(1_401) as u16),
                };
                FlowSpec {
                    transport,
                    ..FlowSpec::tcp(id, HostId(from), HostId(to), bytes, Time::ZERO)
                }
            })
            .collect();
        let tcp = TcpConfig {
            // Queues are long: no timeout may take that for a loss.
            rto_initial: Span::from_secs(10),
            rto_min: Span::from_secs(10),
            ..newreno()
        };
        let settings = Settings::new(tcp, Time::ZERO + Span::from_secs(5));
        let results = run(&network, settings, flows);
        assert_eq!(results.conservation.dropped, 0, "seed {seed}");
        assert_eq!(results.conservation.in_network, 0, "seed {seed}");
        let all = results.flows.iter().all(|flow| flow.finish.is_some());
        assert!(all, "seed {seed}");
        let record = results.pauses.unwrap();
        assert_eq!(record.deadlock, None, "seed {seed}");
        let sent: u64 = record.ports.iter().map(|port| port.sent).sum();
        let taken = record.ports.iter().chain(&record.hosts);
        // Every pause that was sent arrived.
        assert_eq!(
            taken.map(|port| port.received).sum::<u64>(),
            sent,
            "seed {seed}"
        );
        pauses += sent;
        let overruns: u64 = record.ports.iter().map(|port| port.overruns).sum();
        assert_eq!(overruns, 0, "seed {seed}");
    }
    assert!(pauses > 1_000, "{pauses}");
}

/// The same without any headroom: what finds no room is counted, where it came in and where it would
/// have left.
#[test]
fn losses_for_want_of_headroom_are_counted() {
    for seed in 0..10 {
        let mut random = Random::new(seed);
        let mut network = drawn(&mut random);
        for (.., pfc) in &mut network.pfc {
            pfc.headroom = 0;
        }
        let flows = (1..16).map(|from| datagrams(u64::from(from), from, 0, 200));
        let results = run(&network, settings(Span::from_secs(5)), flows);
        let dropped = results.conservation.dropped;
        assert!(dropped > 0);
        let ports = &results.pauses.unwrap().ports;
        assert_eq!(ports.iter().map(|port| port.overruns).sum::<u64>(), dropped);
        let by_port: u64 = results.ports.iter().map(|port| port.counters.dropped).sum();
        assert_eq!(by_port, dropped);
        assert_eq!(results.labels[0].dropped.iter().sum::<u64>(), dropped);
    }
}

/// Bits a second of what a flow brought in `seconds`.
fn goodput(results: &Results, flow: usize, seconds: f64) -> f64 {
    results.flows[flow].arrived as f64 * 8.0 / seconds * f64::from(BYTES) / f64::from(BYTES - 28)
}

/// From two hosts over one link between two switches to two others, one of which has a link that is ten
/// times slower.
fn victim() -> Network {
    let fast = link(10 * GBIT, 1);
    let topology = topology(
        &["a", "v", "slow", "free"],
        &["left", "right"],
        &[
            ("a", "left", fast),
            ("v", "left", fast),
            ("left", "right", fast),
            ("right", "slow", link(GBIT, 1)),
            ("right", "free", fast),
        ],
    );
    network(topology, |link| {
        Pfc::for_link(link.rate, link.delay, BYTES.into())
    })
}

/// Head-of-line blocking: one host sends a packet to the slow host, then some to the free one, and so on.
/// All share each input and each queue up to the right switch, first in, first out. It may hold 6,314
/// and 5,064 bytes of them, 9 packets, and the slow host takes one each 10 us: so those to the free host
/// come as fast as there are of them for each slow one, at most 9 packets (90 us) ahead. Only where they
/// would be more than the links carry, those limit: 13 packets of 1 us for each slow one.
#[test]
fn a_victim_is_slowed_to_the_rate_of_what_it_shares_an_input_with() {
    const SLOW: u64 = 400;
    for (victims, each_us) in [(1, 10), (3, 10), (8, 10), (12, 13)] {
        let to = |host| datagrams(0, 0, host, 1);
        let flows: Vec<FlowSpec> = (0..SLOW)
            .flat_map(|_| std::iter::once(to(2)).chain((0..victims).map(|_| to(3))))
            .zip(0..)
            .map(|(flow, id)| FlowSpec { id, ..flow })
            .collect();
        let results = run(&victim(), settings(Span::from_secs(1)), flows);
        assert_eq!(results.conservation.delivered, SLOW * (victims + 1));
        let last = |host| {
            let to = results
                .flows
                .iter()
                .filter(|flow| flow.destination == HostId(host));
            to.filter_map(|flow| flow.finish).max().unwrap() - Time::ZERO
        };
        // The slow one never waits: from 4 us on, 10 us for each, and 1 us of propagation.
        if each_us == 10 {
            assert_eq!(last(2), Span::from_micros(4 + SLOW * 10 + 1));
        }
        let (least, most) = (SLOW * each_us - 90, SLOW * each_us + 10);
        let last = last(3).0 / 1_000_000;
        assert!((least..=most).contains(&last), "{victims}: {last} us");
    }
}

/// In a class of its own a flow has what the other leaves of the link: 10 - 1 Gbit/s.
#[test]
fn another_class_is_not_blocked() {
    let mut network = victim();
    for switch in &mut network.switches {
        switch.classes = 2;
    }
    let flows = [
        datagrams(0, 0, 2, 40_000),
        FlowSpec {
            class: 1,
            ..datagrams(1, 1, 3, 40_000)
        },
    ];
    let results = run(&network, settings(Span::from_millis(20)), flows);
    assert_eq!(results.conservation.dropped, 0);
    let [slow, other] = [0, 1].map(|flow| goodput(&results, flow, 0.02) / 1e9);
    assert!((0.97..=1.0).contains(&slow), "{slow}");
    assert!((8.8..=9.05).contains(&other), "{other}");
}

/// A host whose first class is stopped sends of the second.
#[test]
fn a_host_sends_of_the_classes_that_it_may_send() {
    let fast = link(10 * GBIT, 1);
    let topology = topology(
        &["a", "slow", "free"],
        &["middle"],
        &[
            ("a", "middle", fast),
            ("middle", "slow", link(GBIT, 1)),
            ("middle", "free", fast),
        ],
    );
    // Behind the other flow in its class it waits for 30 ms; in another one it has 9 Gbit/s.
    for (class, rates) in [(0, 0.0..=0.0), (1, 8.8..=9.05)] {
        let mut network = network(topology.clone(), |link| {
            Pfc::for_link(link.rate, link.delay, BYTES.into())
        });
        for switch in &mut network.switches {
            switch.classes = 2;
        }
        let flows = [
            datagrams(0, 0, 1, 3_000),
            FlowSpec {
                class,
                ..datagrams(1, 0, 2, 20_000)
            },
        ];
        let results = run(&network, settings(Span::from_millis(10)), flows);
        assert_eq!(results.conservation.dropped, 0);
        let free = goodput(&results, 1, 0.01) / 1e9;
        assert!(rates.contains(&free), "{free}");
    }
}

/// With thresholds that nothing reaches, everything is as without.
#[test]
fn flow_control_that_stops_nothing_changes_nothing() {
    let links = Links {
        host: link(GBIT, 2),
        fabric: link(GBIT, 3),
    };
    let topology = fat_tree(4, links).unwrap();
    let with = network(topology.clone(), |_| Pfc {
        xoff: 1 << 40,
        xon: 0,
        headroom: 0,
    });
    let without = Network::new(topology, Limit::NONE, None, 1);
    let mut random = Random::new(3);
    let mut flows: Vec<FlowSpec> = (0..300)
        .map(|id| {
            let from = random.below(16);
            let to = (from + 1 + random.below(15)) % 16;
            let start = Time::ZERO + Span::from_micros(u64::from(random.below(3_000)));
            FlowSpec::tcp(
                id,
                HostId(from),
                HostId(to),
                1 + u64::from(random.below(90_000)),
                start,
            )
        })
        .collect();
    flows.sort_by_key(|flow| flow.start);
    let all = |network: &Network| {
        let settings = Settings::new(TcpConfig::linux(), Time::ZERO + Span::from_secs(9));
        let results = run(network, settings, flows.iter().copied());
        let ports: Vec<_> = results.ports.iter().map(|port| port.counters).collect();
        (results.flows, ports, results.conservation, results.end)
    };
    assert_eq!(all(&with), all(&without));
}

#[test]
fn one_seed_one_result_with_flow_control() {
    let once = |tick_shift| {
        let network = drawn(&mut Random::new(5));
        let settings = Settings {
            tick_shift,
            ..settings(Span::from_secs(2))
        };
        let flows = (1..16)
            .map(|from| FlowSpec::tcp(from.into(), HostId(from), HostId(0), 90_000, Time::ZERO));
        format!("{:?}", run(&network, settings, flows))
    };
    let first = once(12);
    assert!(first == once(12) && first == once(4));
}

/// With all that a switch and a link can do besides, every packet is accounted for (`run` asserts it), and
/// twice the same.
#[test]
fn drawn_networks_with_everything_account_for_every_packet() {
    for seed in 0..15 {
        let once = || {
            let mut random = Random::new(seed);
            let mut network = drawn(&mut random);
            network.flowlets = Some(Flowlets {
                gap: Span::from_micros(u64::from(random.below(50))),
                entries: 1 + random.below(100),
            });
            for number in 0..20 {
                let aqm = Aqm::CoDel(CoDel {
                    target: Span::from_micros(50),
                    interval: Span::from_micros(200),
                    ecn: false,
                });
                network.managed.push((SwitchId(number), PortId(1), aqm));
            }
            for switch in &mut network.switches {
                switch.classes = 2;
            }
            let mut settings = settings(Span::from_millis(40));
            settings.changes = (0..30).map(|_| drawn_change(&mut random)).collect();
            settings.changes.sort_by_key(|change| change.at);
            let flows = (1..16).map(|from| FlowSpec {
                class: (from % 2) as u8,
                ..FlowSpec::tcp(
                    from.into(),
                    HostId(from),
                    HostId(from % 3),
                    90_000,
                    Time::ZERO,
                )
            });
            let flows = flows.filter(|flow| flow.source != flow.destination);
            format!("{:?}", run(&network, settings, flows))
        };
        assert!(once() == once(), "seed {seed}");
    }
}

/// Of a fat-tree of 48 links.
fn drawn_change(random: &mut Random) -> Change {
    let line = random.below(96);
    let action = match random.below(4) {
        0 => Action::Up(line / 2, random.below(2) == 0),
        1 => Action::Rate(line, rate(u64::from(1 + random.below(9)) * GBIT)),
        2 => Action::Propagation(line, Span::from_micros(random.below(30).into())),
        _ => Action::Impair(
            line,
            Box::new(Impairment {
                delay: Span::from_micros(random.below(20).into()),
                loss: Pick {
                    every: Some((2 + u64::from(random.below(90)), 3)),
                    ..Pick::default()
                },
                ..Impairment::default()
            }),
        ),
    };
    Change {
        at: Time::ZERO + Span::from_micros(random.below(2_000).into()),
        action,
    }
}

/// Three switches in a ring, each with a host; `around`: each host's packets to the host behind it go
/// the long way round.
fn ring(around: bool, packets: u64, until: Span) -> Results {
    let fast = link(10 * GBIT, 1);
    let topology = topology(
        &["h0", "h1", "h2"],
        &["s0", "s1", "s2"],
        &[
            ("s0", "s1", fast),
            ("s1", "s2", fast),
            ("s2", "s0", fast),
            ("h0", "s0", fast),
            ("h1", "s1", fast),
            ("h2", "s2", fast),
        ],
    );
    let network = network(topology, |link| {
        Pfc::for_link(link.rate, link.delay, BYTES.into())
    });
    let mut settings = settings(until);
    if around {
        // Ports to the next switch: s0 has its first link there, the others have their second.
        settings.changes = [(0, 0), (1, 1), (2, 1)]
            .into_iter()
            .map(|(switch, port)| Change {
                at: Time::ZERO,
                action: Action::Route(Route {
                    switch,
                    destination: Destination((switch + 2) % 3),
                    ports: vec![PortId(port)],
                }),
            })
            .collect();
    }
    let flows = (0..3).map(|host| datagrams(host.into(), host, (host + 2) % 3, packets));
    run(&network, settings, flows)
}

/// Each switch's input from the one before it is full of packets for the next one, which has stopped it
/// for the same reason: none ever sends. Named, and the run ends.
#[test]
fn a_deadlock_is_named() {
    let results = ring(true, 2_000, Span::from_millis(10));
    let deadlock = results.pauses.unwrap().deadlock.expect("a deadlock");
    let mut circle = deadlock.circle.clone();
    // Wherever it begins, each waits for the next.
    let first = circle
        .iter()
        .position(|port| port.0 == SwitchId(0))
        .unwrap();
    circle.rotate_left(first);
    let ring = [(0, 0), (1, 1), (2, 1)].map(|(switch, port)| (SwitchId(switch), PortId(port)));
    assert_eq!(circle, ring);
    assert_eq!(deadlock.ports, 3);
    assert!(results.conservation.in_network > 0);
    // Nothing more arrives in a hundred times the time.
    let longer = ring_delivered(Span::from_secs(1));
    assert_eq!(results.conservation.delivered, longer);
    // Nothing had been delivered later than a few microseconds after it began.
    let until_then = ring_delivered((deadlock.since - Time::ZERO) + Span::from_micros(20));
    assert_eq!(until_then, longer);
}

fn ring_delivered(until: Span) -> u64 {
    ring(true, 2_000, until).conservation.delivered
}

/// The same ring by the shortest ways, and a pause that only lasts as long as its congestion, even where the run
/// ends in the middle of it.
#[test]
fn a_pause_is_no_deadlock() {
    let results = ring(false, 2_000, Span::from_millis(10));
    assert_eq!(results.conservation.in_network, 0);
    assert_eq!(results.pauses.unwrap().deadlock, None);
    for us in 1..60 {
        let network = network(line(), |_| Pfc {
            xoff: 5_000,
            xon: 2_500,
            headroom: 9_000,
        });
        let settings = settings(Span::from_micros(3 * us));
        let results = run(&network, settings, [datagrams(0, 0, 1, 100)]);
        assert_eq!(results.pauses.unwrap().deadlock, None, "{us}");
    }
}

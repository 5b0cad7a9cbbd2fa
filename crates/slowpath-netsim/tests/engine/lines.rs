// SPDX-License-Identifier: Apache-2.0
//! Lossy, late and broken links against the fabric that the laboratory and the emulator run.

use proptest::prelude::*;
use slowpath_netsim::engine::{FlowSpec, HostId, Settings, Simulation, Transport};
use slowpath_netsim::results::Results;
use slowpath_netsim::scenario::Scenario;
use slowpath_netsim::topology::Node;
use slowpath_switch::fabric::{
    Action, BitErrors, Burst, Change, Delivered, Dropped, Fabric, Impairment, Jitter, Late, Pick,
    Route, Share, Sink,
};
use slowpath_switch::{Destination, Header, PortId, Random, Rate, Span, Time};
use std::collections::BTreeMap;

const HEADER: u16 = 28;

const SCENE: &str = r#"
duration = "1 s"
seed = 5
[topology]
kind = "leaf-spine"
leaves = 2
spines = 2
hosts-per-leaf = 2
[topology.links]
rate = "100 Mbit/s"
delay = "30 us"
[switch]
buffer = "20 packets"
[[workload]]
kind = "bulk"
from = ["host-0-0"]
to = ["host-1-0"]
"#;

/// A packet: when, in microseconds, from, to, bytes.
type Sent = (u64, u32, u32, u16);

/// When each packet arrived first and whole.
#[derive(Default)]
struct Arrivals(BTreeMap<u64, Time>);

impl Sink for Arrivals {
    fn delivered(&mut self, at: Time, delivered: Delivered) {
        if !delivered.corrupted {
            self.0.entry(delivered.packet.handle).or_insert(at);
        }
    }
    fn dropped(&mut self, _: Time, _: Dropped) {}
}

fn pick() -> impl Strategy<Value = Pick> {
    prop_oneof![
        3 => Just(Pick::default()),
        1 => (0u32..600_000_000).prop_map(|share| Pick { share: Share(share), ..Pick::default() }),
        1 => (1u64..9, 1u64..9).prop_map(|(first, step)| Pick { every: Some((first, step)), ..Pick::default() }),
        1 => (1u64..9, 0u64..9, 0u32..1500).prop_map(|(first, more, at_least)| Pick { numbers: vec![(first, first + more)], at_least, ..Pick::default() }),
        1 => (0u32..400_000_000, 0u32..800_000_000).prop_map(|(begin, end)| {
            let burst = Burst { begin: Share(begin), end: Share(end), bad: Share(700_000_000), good: Share(10_000_000) };
            Pick { burst: Some(burst), ..Pick::default() }
        }),
    ]
}

fn impairment() -> impl Strategy<Value = Impairment> {
    let late = (pick(), 1u64..3_000).prop_map(|(pick, by)| Late {
        pick,
        by: Span::from_micros(by),
    });
    let jitter = (0u64..2_000, any::<bool>()).prop_map(|(most, overtaking)| Jitter {
        most: Span::from_micros(most),
        overtaking,
    });
    (0u64..500, jitter, pick(), pick(), pick(), late).prop_map(
        |(delay, jitter, loss, corruption, copies, late)| Impairment {
            bit_errors: BitErrors::NONE,
            delay: Span::from_micros(delay),
            jitter,
            loss,
            corruption,
            copies,
            late,
        },
    )
}

/// Of eight links, lines 0 to 15; of switches 0 and 1, leaves, whose ports 2 and 3 lead to spines.
fn change() -> impl Strategy<Value = Change> {
    let action = prop_oneof![
        (0u32..16, 1u64..400).prop_map(|(line, rate)| {
            let rate = Rate::from_bits_per_second(rate * 1_000_000).unwrap();
            Action::Rate(line, rate)
        }),
        (0u32..16, 0u64..3_000)
            .prop_map(|(line, delay)| Action::Propagation(line, Span::from_micros(delay))),
        (0u32..16, impairment())
            .prop_map(|(line, impairment)| Action::Impair(line, Box::new(impairment))),
        (0u32..8, any::<bool>()).prop_map(|(link, up)| Action::Up(link, up)),
    ];
    (0u64..20_000, action).prop_map(|(at, action)| Change {
        at: Time::ZERO + Span::from_micros(at),
        action,
    })
}

fn scenario() -> Scenario {
    Scenario::parse(SCENE, &|_: &str| unreachable!()).unwrap()
}

/// The packets as datagrams, each a flow.
fn simulated(sent: &[Sent], changes: &[Change]) -> Results {
    let scenario = scenario();
    let mut settings: Settings = scenario.settings();
    settings.changes = changes.to_vec();
    let flows = (0..).zip(sent).map(|(id, (at, from, to, bytes))| FlowSpec {
        transport: Transport::Datagrams(*bytes),
        ..FlowSpec::tcp(
            id,
            HostId(*from),
            HostId(*to),
            u64::from(bytes - HEADER),
            Time::ZERO + Span::from_micros(*at),
        )
    });
    let simulation = Simulation::new(&scenario.network(), settings).unwrap();
    simulation.run(flows, |_| ()).unwrap()
}

/// The same by the fabric.
fn carried(sent: &[Sent], changes: &[Change]) -> BTreeMap<u64, Time> {
    let scenario = scenario();
    let mut plan = scenario.plan();
    plan.changes = changes.to_vec();
    plan.changes.sort_by_key(|change| change.at);
    let mut fabric = Fabric::new(&plan).unwrap();
    // As the engine draws them.
    let mut keys = Random::stream(scenario.seed, u64::from(u32::MAX));
    let mut sink = Arrivals::default();
    for (handle, (at, from, to, bytes)) in (0..).zip(sent) {
        let packet = Header {
            handle,
            flow: u64::from(keys.next_u64() as u32),
            bytes: u32::from(*bytes),
            destination: *to,
            ttl: 255,
            ..Header::default()
        };
        let at = Time::ZERO + Span::from_micros(*at);
        fabric.advance(at, &mut sink);
        fabric.send(at, *from, packet, &mut sink);
    }
    fabric.advance(scenario.until, &mut sink);
    sink.0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever links do, each packet arrives when it does in the fabric, or not at all.
    #[test]
    fn links_do_what_the_fabric_does(
        mut sent in prop::collection::vec((0u64..20_000, 0u32..4, 0u32..4, 60u16..1500), 1..120),
        changes in prop::collection::vec(change(), 1..12),
    ) {
        sent.retain(|(_, from, to, _)| from != to);
        // At one moment the fabric takes arrivals first, and the engine flows.
        sent.sort_unstable();
        let results = simulated(&sent, &changes);
        let simulated: BTreeMap<u64, Time> = (results.flows.iter())
            .filter_map(|flow| Some((flow.id, flow.finish?)))
            .collect();
        prop_assert_eq!(simulated, carried(&sent, &changes));
    }
}

/// A route that changes moves what comes later to the other spine; one that is gone drops it.
#[test]
fn routes_change_during_the_run() {
    let sent: Vec<Sent> = (0..30).map(|number| (1_000 * number, 0, 2, 1000)).collect();
    let topology = scenario().topology;
    let leaf = topology.hosts()[0].port.peer;
    let Node::Switch(leaf) = leaf else {
        panic!("a host's neighbour is a switch");
    };
    let ports = &topology.switches()[leaf as usize].ports;
    let spines = (0u16..)
        .zip(ports)
        .filter(|(_, port)| matches!(port.peer, Node::Switch(_)));
    let [first, second] = spines.map(|(number, _)| number).collect::<Vec<_>>()[..] else {
        panic!("a leaf has two spines");
    };
    let route = |at, ports: &[u16]| Change {
        at: Time::ZERO + Span::from_millis(at),
        action: Action::Route(Route {
            switch: leaf,
            destination: Destination(2),
            ports: ports.iter().map(|port| PortId(*port)).collect(),
        }),
    };
    let changes = [route(0, &[first]), route(10, &[second]), route(20, &[])];
    let results = simulated(&sent, &changes);
    let arrived = |flow: u64| results.flows[flow as usize].finish.is_some();
    assert!((0..20).all(arrived) && !(20..30).any(arrived));
    let by_port = |port: u16| {
        let record = results
            .ports
            .iter()
            .find(|record| record.switch.0 == leaf && record.port.0 == port);
        record.unwrap().counters.dequeued
    };
    assert_eq!((by_port(first), by_port(second)), (10, 10));
}

/// What a line did is counted, and nothing is unaccounted for.
#[test]
fn what_a_line_did_is_counted() {
    let sent: Vec<Sent> = (0..20).map(|number| (1_000 * number, 0, 1, 1000)).collect();
    let every = |first| Pick {
        every: Some((first, 10)),
        ..Pick::default()
    };
    let impairment = Impairment {
        loss: every(1),
        corruption: every(2),
        copies: every(3),
        late: Late {
            pick: every(4),
            by: Span::from_millis(3),
        },
        ..Impairment::default()
    };
    let change = |at, action| Change {
        at: Time::ZERO + Span::from_millis(at),
        action,
    };
    let changes = [
        change(0, Action::Impair(0, Box::new(impairment))),
        // While the packet of 17 ms is on its way: 80 us onto the line and 30 along it.
        change(0, Action::Up(0, true)),
        change(18, Action::Up(0, false)),
    ];
    let results = simulated(&sent, &changes);
    let counts = results.impairments.iter().find(|(line, _)| *line == 0);
    let counts = counts.unwrap().1;
    assert_eq!(
        (counts.lost, counts.corrupted, counts.copied, counts.late),
        (2, 2, 2, 2)
    );
    // At 18 and 19 ms.
    assert_eq!(counts.cut, 2);
    let missing: Vec<u64> = (results.flows.iter())
        .filter(|flow| flow.finish.is_none())
        .map(|flow| flow.id)
        .collect();
    assert_eq!(missing, [0, 1, 10, 11, 18, 19]);
    assert_eq!(
        (results.conservation.copies, results.conservation.lost),
        (2, 4)
    );
}

// SPDX-License-Identifier: Apache-2.0
//! Flowlets in whole networks, after LetFlow (Vanini et al., NSDI 2017): order within flows, and
//! balance between ways of different rates.

use crate::scene::{GBIT, link, newreno, run};
use slowpath_netsim::engine::{
    Application, CapturedPacket, Content, FlowSpec, HostId, Network, PacketSink, Settings,
    Simulation, SwitchId,
};
use slowpath_netsim::results::Results;
use slowpath_netsim::tcp::{LossDetection, TcpConfig};
use slowpath_netsim::topology::{Builder, LinkOptions};
use slowpath_switch::{Flowlets, Limit, PortId, Random, Span, Time};
use std::cell::RefCell;
use std::rc::Rc;

/// Hosts on two leaves, which two spines join: `fast` and `slow` are the links of the first and the
/// second. Sender n is host n, its receiver host `senders` + n. Switch 0 is the senders' leaf, whose
/// ports to the spines come first.
fn two_ways(senders: u32, fast: LinkOptions, slow: LinkOptions, gap: Option<Span>) -> Network {
    let mut builder = Builder::new();
    let leaves = ["left", "right"].map(|name| builder.switch(name).unwrap());
    for (name, options) in [("fast", fast), ("slow", slow)] {
        let spine = builder.switch(name).unwrap();
        for leaf in leaves {
            builder.link(leaf, spine, options).unwrap();
        }
    }
    for (side, leaf) in ["left", "right"].into_iter().zip(leaves) {
        for number in 0..senders {
            let host = builder.host(format!("{side}-{number}"), None).unwrap();
            builder.link(host, leaf, link(GBIT, 2)).unwrap();
        }
    }
    let mut network = Network::new(builder.build().unwrap(), Limit::packets(150), None, 1);
    network.flowlets = gap.map(|gap| Flowlets {
        gap,
        ..Flowlets::default()
    });
    network
}

/// Counts segments that come before one that was sent before them.
#[derive(Default)]
struct Order {
    highest: u64,
    arrived: u64,
    late: u64,
}

impl PacketSink for Order {
    fn packet(&mut self, packet: &CapturedPacket<'_>) {
        if let (Content::Segment(_), Some(_)) = (packet.content, packet.arrived) {
            self.arrived += 1;
            self.late += u64::from(packet.number < self.highest);
            self.highest = self.highest.max(packet.number);
        }
    }
}

/// One flow of a thousand writes of one segment, one every 50 us: each is a flowlet if the gap is
/// shorter. The ways differ by 2 x 30 us of propagation.
fn order(gap_us: u64) -> (Order, Results) {
    let network = two_ways(
        1,
        link(GBIT, 1),
        link(GBIT, 31),
        Some(Span::from_micros(gap_us)),
    );
    let settings = Settings::new(newreno(), Time::ZERO + Span::from_secs(1));
    let mut simulation = Simulation::new(&network, settings).unwrap();
    let sink = Rc::new(RefCell::new(Order::default()));
    simulation.capture(Box::new(Rc::clone(&sink)));
    let flow = FlowSpec {
        application: Application::Periodic {
            chunk: 1_000,
            every: Span::from_micros(50),
        },
        ..FlowSpec::tcp(0, HostId(0), HostId(1), 1_000_000, Time::ZERO)
    };
    let results = simulation.run([flow], |_| ()).unwrap();
    (sink.take(), results)
}

/// What leaves a switch more than the difference of two ways after the packet before it, arrives after
/// it by either (LetFlow, section 2: no reordering).
#[test]
fn a_gap_above_the_difference_of_ways_keeps_the_order() {
    // Segments come 50 us after each other, 10 us less than the ways differ by: with a gap of 40 us
    // each draws its way, and every change to the fast one overtakes.
    let (short, results) = order(40);
    assert!(short.arrived >= 1_000);
    assert!(short.late > 100, "{}", short.late);
    let (_, counts) = results.flowlets[0];
    assert!(
        counts.flowlets >= 1_000 && counts.path_changes > 400,
        "{counts:?}"
    );
    // With one of 61 us none ends, unless the window holds segments back for longer.
    let (long, results) = order(61);
    assert_eq!(long.late, 0);
    assert_eq!(long.arrived, 1_000);
    assert_eq!(results.flows[0].retransmissions, 0);
}

/// Bursts with pauses of every length, drawn: never a segment out of order while the gap is above the
/// difference of the ways, queues of a flow that is by itself included.
#[test]
fn drawn_bursts_stay_in_order() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let slow = 1 + u64::from(random.below(60));
        // Propagation, and what a burst of the initial window of ten waits for itself at 1 Gbit/s.
        let gap = Span::from_micros(2 * (slow - 1) + 10 * 13);
        let network = two_ways(1, link(GBIT, 1), link(GBIT, slow), Some(gap));
        let settings = Settings {
            seed,
            ..Settings::new(newreno(), Time::ZERO + Span::from_secs(5))
        };
        let mut simulation = Simulation::new(&network, settings).unwrap();
        let sink = Rc::new(RefCell::new(Order::default()));
        simulation.capture(Box::new(Rc::clone(&sink)));
        let mut start = Time::ZERO;
        let flows: Vec<FlowSpec> = (0..300)
            .map(|id| {
                start += Span::from_micros(u64::from(random.below(900)));
                FlowSpec {
                    connection: Some(0),
                    ..FlowSpec::tcp(
                        id,
                        HostId(0),
                        HostId(1),
                        1_000 + u64::from(random.below(9_000)),
                        start,
                    )
                }
            })
            .collect();
        let results = simulation.run(flows, |_| ()).unwrap();
        assert_eq!(sink.borrow().late, 0, "seed {seed}");
        let (_, counts) = results.flowlets[0];
        assert!(counts.path_changes > 20, "seed {seed}: {counts:?}");
    }
}

/// Twelve senders over a way of 10 Gbit/s and one of 1 Gbit/s, 300 flows of 10 to 500 kB each.
fn asymmetric(seed: u64, gap: Option<Span>) -> Results {
    let network = two_ways(12, link(10 * GBIT, 2), link(GBIT, 2), gap);
    let tcp = TcpConfig {
        loss_detection: LossDetection::Rack,
        rto_min: Span::from_millis(5),
        ..TcpConfig::linux()
    };
    let settings = Settings {
        seed,
        ..Settings::new(tcp, Time::ZERO + Span::from_secs(20))
    };
    let mut random = Random::new(seed);
    let mut flows: Vec<FlowSpec> = (0..3_600)
        .map(|id| {
            let host = id as u32 % 12;
            let bytes = 10_000 + u64::from(random.below(490_000));
            let start = Time::ZERO + Span::from_micros(u64::from(random.below(1_200_000)));
            FlowSpec::tcp(id, HostId(host), HostId(12 + host), bytes, start)
        })
        .collect();
    flows.sort_by_key(|flow| (flow.start, flow.id));
    run(&network, settings, flows)
}

/// The mean completion time, and the slow way's share of what the left leaf sent up.
fn balance(results: &Results) -> (f64, f64) {
    let times = results
        .flows
        .iter()
        .map(|flow| flow.completion().unwrap().0 as f64);
    let mean = times.sum::<f64>() / results.flows.len() as f64;
    let sent = |port| {
        let mut ports = results.ports.iter();
        let port = ports.find(|it| (it.switch, it.port) == (SwitchId(0), PortId(port)));
        port.unwrap().counters.dequeued_bytes as f64
    };
    (mean, sent(1) / (sent(0) + sent(1)))
}

/// LetFlow's claim, in drawn runs: 12 senders offer 3,600 x 255 kB in 1.2 s, 6.1 Gbit/s. By their hashes
/// half of the flows take the way of 1 Gbit/s, three times what it carries. Flowlets there are small,
/// as it is slow, so that it gets less, and flows end sooner.
#[test]
fn flowlets_balance_an_asymmetric_fabric() {
    for seed in 1..=3 {
        let (by_flow, half) = balance(&asymmetric(seed, None));
        // 3,600 flows of unequal size, each with a probability of 1/2: the share's deviation is below
        // sqrt(sum of squares) / sum / 2 = 1 %.
        assert!((0.45..0.55).contains(&half), "seed {seed}: {half}");
        let (by_flowlet, share) = balance(&asymmetric(seed, Some(Span::from_micros(100))));
        assert!(share < 0.5 * half, "seed {seed}: {share} of {half}");
        assert!(
            by_flowlet < 0.5 * by_flow,
            "seed {seed}: {by_flowlet} {by_flow}"
        );
    }
}

/// The same seed gives the same bytes, another does not.
#[test]
fn one_seed_one_result_with_flowlets() {
    let once = |seed| format!("{:?}", asymmetric(seed, Some(Span::from_micros(50))));
    let first = once(1);
    assert!(first == once(1));
    assert!(first != once(2));
}

/// A gap that no flow has leaves each on one way, as hashes do, and other packets than those of flows
/// that begin draw nothing.
#[test]
fn without_gaps_flows_keep_their_ways() {
    let results = asymmetric(1, Some(Span::from_secs(100)));
    let (_, half) = balance(&results);
    assert!((0.45..0.55).contains(&half), "{half}");
    for (switch, counts) in &results.flowlets {
        // A connection at its sender's leaf, and its ACKs at its receiver's. Those that meet in the
        // table are one: 3,600^2 / 2 / 65,536 = 99 pairs on average.
        let flows = match switch.0 {
            0 | 1 => 3_400..=3_600,
            _ => 0..=0,
        };
        assert!(flows.contains(&counts.flowlets), "{switch:?}: {counts:?}");
        assert_eq!(counts.path_changes, 0);
    }
}

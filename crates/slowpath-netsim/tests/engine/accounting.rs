// SPDX-License-Identifier: Apache-2.0
//! Determinism, conservation under every trouble, and errors.

use crate::scene::{GBIT, link, newreno, run};
use slowpath_netsim::engine::{
    FlowSpec, HostId, Network, NetworkError, QueueSeries, Settings, Simulation, SimulationError,
    SwitchId,
};
use slowpath_netsim::results::Results;
use slowpath_netsim::tcp::{LossDetection, TcpConfig};
use slowpath_netsim::topology::{Links, fat_tree};
use slowpath_switch::{
    Alpha, ConfigError, Detour, Limit, PortId, Random, Shared, Span, Threshold, Time,
};

fn tree(buffer: u32) -> Network {
    let links = Links {
        host: link(GBIT, 2),
        fabric: link(GBIT, 2),
    };
    let topology = fat_tree(4, links).expect("a fat-tree");
    Network::new(
        topology,
        Limit::packets(buffer),
        Some(Threshold::Packets(10)),
        3,
    )
}

/// Random flows and an incast of all to host 0.
fn flows(seed: u64) -> Vec<FlowSpec> {
    let mut random = Random::new(seed);
    let mut flows: Vec<FlowSpec> = (0..200)
        .map(|id| {
            let source = random.below(16);
            let destination = (source + 1 + random.below(15)) % 16;
            let bytes = 1 + random.next_u64() % 300_000;
            let start = Time::ZERO + Span::from_micros(random.next_u64() % 10_000);
            FlowSpec::tcp(id, HostId(source), HostId(destination), bytes, start)
        })
        .collect();
    flows.extend((1..16).map(|n| FlowSpec {
        label: 1,
        ..FlowSpec::tcp(
            1_000 + u64::from(n),
            HostId(n),
            HostId(0),
            50_000,
            Time::ZERO + Span::from_millis(5),
        )
    }));
    flows.sort_by_key(|flow| (flow.start, flow.id));
    flows
}

fn settings(tcp: TcpConfig) -> Settings {
    let tcp = TcpConfig {
        rto_min: Span::from_millis(10),
        rto_initial: Span::from_millis(20),
        ..tcp
    };
    Settings {
        queues: QueueSeries::OnChange {
            ports: vec![(SwitchId(4), PortId(0))],
        },
        ..Settings::new(tcp, Time::ZERO + Span::from_secs(10))
    }
}

fn all_finish(results: &Results) {
    let unfinished: Vec<u64> = results
        .flows
        .iter()
        .filter(|f| f.finish.is_none())
        .map(|f| f.id)
        .collect();
    assert_eq!(unfinished, Vec::<u64>::new());
    assert_eq!(results.flows.len(), 215);
    assert_eq!(results.conservation.in_network, 0);
}

/// The same seed gives the same bytes, whatever the grain of the event queue; another seed
/// does not.
#[test]
fn one_seed_one_result() {
    let once = |seed, tick_shift| {
        let settings = Settings {
            seed,
            tick_shift,
            ..settings(TcpConfig::dctcp())
        };
        format!("{:?}", run(&tree(30), settings, flows(1)))
    };
    let first = once(1, 10);
    assert!(first == once(1, 10));
    assert!(first == once(1, 4));
    assert!(first == once(1, 20));
    assert!(first != once(2, 10));
}

/// Every flow finishes and every packet is accounted for: tiny buffers, all kinds of loss
/// detection.
#[test]
fn every_packet_is_accounted_for() {
    let kinds = [
        newreno(),
        TcpConfig {
            sack: false,
            ..newreno()
        },
        TcpConfig {
            limited_transmit: false,
            handshake: true,
            ..newreno()
        },
        TcpConfig {
            loss_detection: LossDetection::TimeoutOnly,
            ..newreno()
        },
        TcpConfig::linux(),
        TcpConfig::dctcp(),
    ];
    for tcp in kinds {
        let results = run(&tree(8), settings(tcp), flows(2));
        all_finish(&results);
        assert!(results.conservation.dropped > 0);
        let by_label: u64 = results.labels.iter().flat_map(|label| label.dropped).sum();
        assert_eq!(by_label, results.conservation.dropped);
        let by_port: u64 = results.ports.iter().map(|port| port.counters.dropped).sum();
        assert_eq!(by_port, results.conservation.dropped);
        let sent: u64 = results.hosts.iter().map(|host| host.packets).sum();
        assert_eq!(sent, results.conservation.sent);
    }
}

/// With detours nothing is dropped that finds room elsewhere, and longer paths are counted
/// as what they are.
#[test]
fn detours_are_accounted_for() {
    let mut network = tree(30);
    for switch in &mut network.switches {
        switch.detour = Some(Detour::default());
    }
    let tcp = TcpConfig {
        loss_detection: LossDetection::TimeoutOnly,
        ..TcpConfig::dctcp()
    };
    let results = run(&network, settings(tcp.clone()), flows(2));
    all_finish(&results);
    let detours: u64 = results.labels.iter().map(|label| label.detours).sum();
    let packets: u64 = results
        .labels
        .iter()
        .map(|label| label.detoured_packets)
        .sum();
    assert!(detours > packets && packets > 0);
    assert!(results.labels[1].detoured_packets > 0);
    let without = run(&tree(30), settings(tcp), flows(2));
    let (with, without) = (results.conservation.dropped, without.conservation.dropped);
    assert!(with < without / 4, "{with} {without}");
}

/// Shared memory with dynamic thresholds.
#[test]
fn shared_memory_is_accounted_for() {
    let mut network = tree(1_000);
    for switch in &mut network.switches {
        switch.shared = Some(Shared {
            total: Limit::packets(40),
            alpha: Alpha::ONE,
        });
    }
    let results = run(&network, settings(TcpConfig::dctcp()), flows(2));
    all_finish(&results);
    // alpha 1 and one full queue: half of the memory.
    let most = results
        .ports
        .iter()
        .filter_map(|port| port.most_packets)
        .max();
    assert!(most.is_some_and(|most| most <= 20), "{most:?}");
}

/// On change means at each change: the series of the incast's port goes up and down by one.
#[test]
fn a_series_on_change_misses_nothing() {
    let results = run(&tree(30), settings(TcpConfig::dctcp()), flows(1));
    assert!(results.queues.len() > 1_000);
    assert!(
        results
            .queues
            .windows(2)
            .all(|pair| pair[0].packets.abs_diff(pair[1].packets) == 1 && pair[0].at <= pair[1].at)
    );
    let port = results
        .ports
        .iter()
        .find(|port| (port.switch, port.port) == (SwitchId(4), PortId(0)))
        .expect("is there");
    assert_eq!(
        results.queues.len() as u64,
        port.counters.enqueued + port.counters.dequeued
    );
}

/// A time limit leaves flows unfinished and packets in the network, all counted.
#[test]
fn a_run_may_end_early() {
    let settings = Settings {
        until: Time::ZERO + Span::from_millis(3),
        ..settings(TcpConfig::dctcp())
    };
    let results = run(&tree(30), settings, flows(1));
    assert!(results.conservation.in_network > 0);
    assert!(
        results
            .flows
            .iter()
            .any(|flow| flow.finish.is_none() && flow.arrived > 0)
    );
    assert!(results.end <= Time::ZERO + Span::from_millis(3));
}

#[test]
fn progress_is_reported() {
    let mut reports = Vec::new();
    let network = tree(100);
    let settings = Settings::new(TcpConfig::dctcp(), Time::ZERO + Span::from_millis(200));
    let flows = (0..8u32).map(|n| {
        FlowSpec::tcp(
            u64::from(n),
            HostId(n),
            HostId(15 - n),
            FlowSpec::ENDLESS,
            Time::ZERO,
        )
    });
    let simulation = Simulation::new(&network, settings).expect("possible");
    simulation
        .run(flows, |progress| reports.push(*progress))
        .expect("runs");
    assert!(reports.len() > 1);
    assert!(
        reports
            .windows(2)
            .all(|pair| pair[0].now <= pair[1].now && pair[0].events < pair[1].events)
    );
}

#[test]
fn bad_input_is_an_error() {
    let refused = |flow: FlowSpec| {
        let simulation = Simulation::new(&tree(10), settings(newreno())).expect("possible");
        matches!(
            simulation.run([flow], |_| ()),
            Err(SimulationError::Flow(0, _))
        )
    };
    let flow = FlowSpec::tcp(0, HostId(0), HostId(1), 1, Time::ZERO);
    assert!(refused(FlowSpec { bytes: 0, ..flow }));
    assert!(refused(FlowSpec {
        destination: HostId(16),
        ..flow
    }));
    assert!(refused(FlowSpec {
        destination: HostId(0),
        ..flow
    }));
    assert!(refused(FlowSpec { label: 8, ..flow }));
    assert!(refused(FlowSpec {
        transport: slowpath_netsim::engine::Transport::Tcp(1),
        ..flow
    }));
    assert!(refused(FlowSpec {
        transport: slowpath_netsim::engine::Transport::Datagrams(28),
        ..flow
    }));

    let late = [
        FlowSpec {
            start: Time(5),
            ..flow
        },
        FlowSpec { id: 1, ..flow },
    ];
    let simulation = Simulation::new(&tree(10), settings(newreno())).expect("possible");
    assert!(matches!(
        simulation.run(late, |_| ()),
        Err(SimulationError::Flow(1, _))
    ));

    let error = Simulation::new(&tree(0), settings(newreno()))
        .err()
        .expect("a zero buffer");
    assert!(matches!(
        error,
        SimulationError::Network(NetworkError::Switch(
            SwitchId(0),
            ConfigError::ZeroBuffer(PortId(0))
        ))
    ));
    let wrong = Settings {
        queues: QueueSeries::OnChange {
            ports: vec![(SwitchId(99), PortId(0))],
        },
        ..settings(newreno())
    };
    assert_eq!(
        Simulation::new(&tree(10), wrong).err(),
        Some(SimulationError::Queues)
    );
    let tcp = TcpConfig {
        mss: 0,
        ..newreno()
    };
    assert!(matches!(
        Simulation::new(&tree(10), settings(tcp)).err(),
        Some(SimulationError::Tcp(0, _))
    ));
}

// SPDX-License-Identifier: Apache-2.0
//! DETER's black hole (section 5.6), and what is not one.

use slowpath_netsim::engine::{HostId, Settings, Simulation, SwitchId};
use slowpath_netsim::scenario::Scenario;
use slowpath_netsim::topology::Node;
use slowpath_queues::findings::{Finding, findings, reports};
use slowpath_queues::{Margin, Offered, replay_watched};

const STORY: &str = include_str!("../../../scenarios/replay/black-hole.toml");
const NO_MARGIN: Margin = Margin {
    bytes: 0,
    packets: 0,
};

/// The findings of a run of the simulator, and its scenario.
fn found(text: &str) -> (Scenario, Vec<Finding>) {
    let missing = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let scenario = Scenario::parse(text, &missing).unwrap();
    let network = scenario.network();
    let settings = Settings {
        packets: true,
        ..scenario.settings()
    };
    let simulation = Simulation::new(&network, settings).unwrap();
    let log = simulation.run(scenario.flows(), |_| {}).unwrap().packets;
    let log = log.unwrap();
    let mut packets: Vec<Offered> = (0..)
        .zip(&log.sent)
        .map(|(number, sent)| Offered {
            number,
            at: sent.at,
            earliest: sent.at,
            latest: sent.at,
            after: sent.after,
            source: sent.source,
            destination: sent.destination,
            key: sent.key,
            bytes: sent.bytes,
            lost: false,
        })
        .collect();
    assert!(!log.dropped.is_empty());
    for drop in &log.dropped {
        packets[drop.packet as usize].lost = true;
    }
    let outcome = replay_watched(&network, &packets, NO_MARGIN).unwrap();
    assert_eq!(outcome.dropped, log.dropped);
    let all = reports(&network, &packets, &outcome);
    // Everything that a queue held at its longest belongs to someone.
    for report in &all {
        let held: u64 = report.at_most.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(held, report.most.0);
        let lost: u64 = report.lost.iter().map(|(_, packets)| packets).sum();
        assert_eq!(lost, report.dropped);
    }
    let dropped: u64 = all.iter().map(|report| report.dropped).sum();
    assert_eq!(dropped, log.dropped.len() as u64);
    (scenario, findings(&network, &packets, &outcome))
}

#[test]
fn a_threshold_that_fell_is_named_with_the_queue_that_filled() {
    let (scenario, found) = found(STORY);
    let topology = &scenario.topology;
    let to = |queue: u32| match topology.ports(Node::Switch(SwitchId(0).0))[queue as usize].peer {
        Node::Host(host) => topology.name(Node::Host(HostId(host).0)),
        Node::Switch(_) => "a switch",
    };
    let Some(Finding::ThresholdFell {
        queue,
        filled,
        span,
        threshold,
        own,
        other,
        drops,
        lost,
    }) = found.first().cloned()
    else {
        panic!("nothing is found");
    };
    assert_eq!((to(queue), to(filled)), ("a", "b"));
    // The short flows begin at 10 ms.
    let begin = 9_000_000_000..=11_000_000_000;
    assert!(begin.contains(&span.0.0), "{span:?}");
    assert!(threshold.1 < threshold.0 && own.1 < own.0 && other.1 > other.0);
    assert!(drops >= 10, "{drops}");
    // Those of the finding, not of the whole run.
    let sum: u64 = lost.iter().map(|(_, packets)| packets).sum();
    assert_eq!(sum, drops, "{lost:?}");
}

#[test]
fn a_static_threshold_never_falls() {
    let text = STORY.replace(
        "shared-buffer = \"393 kB\"\nalpha = \"4\"",
        "buffer = \"130 kB\"",
    );
    assert_ne!(text, STORY);
    assert_eq!(found(&text).1, []);
}

#[test]
fn a_queue_that_is_only_full_is_no_finding() {
    let short = STORY.find("[[workload]]\nname = \"short\"").unwrap();
    assert_eq!(found(&STORY[..short]).1, []);
}

// SPDX-License-Identifier: Apache-2.0
//! Queues replayed: what the simulator says of a run is the truth.

use slowpath_netsim::engine::{HostId, Settings, Simulation, SwitchId};
use slowpath_netsim::results::{DropPlace, Joined, PacketLog, SentPacket};
use slowpath_netsim::scenario::Scenario;
use slowpath_queues::{
    DropErrors, Margin, Offered, Outcome, ReplayError, compare, replay, sampled, settled,
};
use slowpath_switch::{PortId, Span, Time};
use std::collections::BTreeMap;

/// Twelve hosts answer one at once, six times, beside other flows.
const INCAST: &str = r#"
seed = 3
duration = "12 ms"
drain = "8 ms"
[topology]
kind = "fat-tree"
k = 4
[topology.links]
rate = "1 Gbit/s"
delay = "1 us"
[switch]
BUFFER
[tcp]
preset = "linux"
rto-min = "4 ms"
[[workload]]
kind = "incast"
rate = "500 /s"
degree = 12
response = "60 kB"
[[workload]]
kind = "poisson"
load = 0.3
sizes = "30 kB"
"#;

fn scenario(buffer: &str) -> Scenario {
    let text = INCAST.replace("BUFFER", buffer);
    Scenario::parse(&text, &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap()
}

fn run(scenario: &Scenario) -> PacketLog {
    let settings = Settings {
        packets: true,
        ..scenario.settings()
    };
    let simulation = Simulation::new(&scenario.network(), settings).unwrap();
    let results = simulation.run(scenario.flows(), |_| {}).unwrap();
    let log = results.packets.unwrap();
    assert_eq!(log.sent.len() as u64, results.conservation.sent);
    assert_eq!(log.dropped.len() as u64, results.conservation.dropped);
    log
}

/// The packets as they were, to the picosecond.
fn exact(log: &PacketLog) -> Vec<Offered> {
    let lost: Vec<u32> = log.dropped.iter().map(|drop| drop.packet).collect();
    let packet = |(number, sent): (u32, &SentPacket)| Offered {
        number,
        at: sent.at,
        earliest: sent.at,
        latest: sent.at,
        after: sent.after,
        source: sent.source,
        destination: sent.destination,
        key: sent.key,
        bytes: sent.bytes,
        lost: lost.contains(&number),
    };
    (0..).zip(&log.sent).map(packet).collect()
}

const NO_MARGIN: Margin = Margin {
    bytes: 0,
    packets: 0,
};

#[test]
fn with_exact_times_every_queue_and_every_drop_is_as_it_was() {
    for buffer in [
        "buffer = \"40 packets\"",
        "buffer = \"60 kB\"",
        "shared-buffer = \"120 kB\"\nalpha = \"1/2\"",
        "shared-buffer = \"80 packets\"\nalpha = \"1\"",
    ] {
        let scenario = scenario(buffer);
        let log = run(&scenario);
        assert!(log.dropped.len() > 20, "{buffer}: {}", log.dropped.len());
        let outcome = replay(&scenario.network(), &exact(&log), NO_MARGIN).unwrap();
        let difference = compare(&log, &outcome);
        assert_eq!(
            difference.drops,
            DropErrors {
                run: log.dropped.len() as u64,
                ..DropErrors::default()
            },
            "{buffer}"
        );
        assert_eq!(difference.bytes.last(), Some(&0), "{buffer}");
        assert_eq!(difference.missing, 0, "{buffer}");
    }
}

#[test]
fn times_within_5_us_keep_queues_and_drops_near() {
    let scenario = scenario("shared-buffer = \"120 kB\"\nalpha = \"1/2\"");
    let log = run(&scenario);
    let kept = sampled(&scenario.network(), &log, 5_000, 5_000, 1);
    assert!(kept.samples < log.sent.len() as u64);
    let outcome = replay(&scenario.network(), &kept.packets, Margin::default()).unwrap();
    let difference = compare(&log, &outcome);
    // No packet that arrived is dropped, whatever the queues.
    assert_eq!(difference.drops.false_drop, 0);
    // DETER: 5 us are 0.4 of a packet at 1 Gbit/s; its own bounds are for 4 packets.
    assert!(difference.mean() < 0.78 * 1500.0, "{}", difference.mean());
    assert!(
        difference.quantile(0.99) < 5 * 1500,
        "{}",
        difference.quantile(0.99)
    );
    // Worse times are worse: the comparison sees something.
    let late = sampled(&scenario.network(), &log, 200_000, 0, 1);
    let outcome = replay(&scenario.network(), &late.packets, Margin::default()).unwrap();
    assert!(compare(&log, &outcome).mean() > difference.mean());
}

/// What made TCP send a packet shows when it did, and whose clock is ahead.
#[test]
fn times_that_fit_their_causes_are_nearer() {
    let scenario = scenario("shared-buffer = \"120 kB\"\nalpha = \"1/2\"");
    let (network, log) = (scenario.network(), run(&scenario));
    let separate = Span::from_micros(40);
    // Links of 1 Gbit/s: ten times the bounds of those that are ten times as fast.
    let kept = sampled(&network, &log, 50_000, separate.as_nanos(), 1).packets;
    let margin = Margin::default();
    let difference =
        |packets: &[Offered]| compare(&log, &replay(&network, packets, margin).unwrap());
    let recorded = difference(&kept);
    let settled = settled(&network, kept.clone(), separate, margin).unwrap();
    let nearer = difference(&settled);
    assert!(
        nearer.mean() < recorded.mean(),
        "{} {}",
        nearer.mean(),
        recorded.mean()
    );
    assert_eq!(nearer.drops.false_drop, 0);
    // Clocks, by the packets whose moments were kept: half of them within a packet's time.
    let error = |packets: &[Offered]| {
        let kept = packets.iter().filter(|p| p.earliest == p.latest);
        let sent = |p: &Offered| p.earliest.0 as f64 - log.sent[p.number as usize].at.0 as f64;
        let mut errors: Vec<f64> = kept.map(sent).collect();
        errors.sort_by(f64::total_cmp);
        let middle = errors[errors.len() / 2];
        let mut separate: Vec<f64> = errors.iter().map(|e| (e - middle).abs()).collect();
        separate.sort_by(f64::total_cmp);
        separate[separate.len() / 2] / 1e6
    };
    assert!(error(&kept) > 5.0, "{}", error(&kept));
    assert!(error(&settled) < 5.0, "{}", error(&settled));
}

#[test]
fn without_the_margin_lost_packets_slip_through() {
    let scenario = scenario("buffer = \"40 packets\"");
    let log = run(&scenario);
    let kept = sampled(&scenario.network(), &log, 5_000, 5_000, 1);
    let accepted = |margin| {
        let outcome = replay(&scenario.network(), &kept.packets, margin).unwrap();
        let errors = compare(&log, &outcome).drops;
        assert_eq!(outcome.arrived, errors.false_accept);
        errors.false_accept
    };
    assert!(accepted(NO_MARGIN) > 2 * accepted(Margin::default()));
}

#[test]
fn the_same_packets_give_the_same_queues() {
    let scenario = scenario("buffer = \"40 packets\"");
    let log = run(&scenario);
    let once = || {
        let kept = sampled(&scenario.network(), &log, 5_000, 5_000, 7);
        replay(&scenario.network(), &kept.packets, Margin::default()).unwrap()
    };
    assert_eq!(once(), once());
}

/// Queue content difference as it is defined, for every packet anew.
#[test]
fn the_difference_is_that_of_the_definition() {
    let scenario = scenario("buffer = \"40 packets\"");
    let log = run(&scenario);
    let kept = sampled(&scenario.network(), &log, 20_000, 20_000, 1);
    let outcome = replay(&scenario.network(), &kept.packets, Margin::default()).unwrap();
    let mut expected = Vec::new();
    for (was, is) in log.queues.iter().zip(&outcome.queues) {
        let content = |joined: &[Joined], at: usize| {
            let mut bytes = BTreeMap::new();
            for waiting in &joined[joined[at].left as usize..at] {
                let packet = log.sent[waiting.packet as usize];
                *bytes.entry((packet.source, packet.key)).or_insert(0i64) +=
                    i64::from(packet.bytes);
            }
            bytes
        };
        for (at, joined) in was.iter().enumerate() {
            let Some(again) = is.iter().position(|j| j.packet == joined.packet) else {
                continue;
            };
            let (mut was, is) = (content(was, at), content(is, again));
            for (connection, bytes) in is {
                *was.entry(connection).or_insert(0) -= bytes;
            }
            expected.push(was.values().map(|b| b.unsigned_abs()).sum::<u64>());
        }
    }
    expected.sort_unstable();
    assert!(expected.last() > Some(&1500));
    assert_eq!(compare(&log, &outcome).bytes, expected);
}

#[test]
fn each_drop_is_attributed_to_its_queue() {
    let place = |packet, port| DropPlace {
        packet,
        at: Time::ZERO,
        switch: SwitchId(0),
        port: Some(PortId(port)),
    };
    let sent = SentPacket {
        at: Time::ZERO,
        source: HostId(0),
        destination: HostId(1),
        key: 0,
        bytes: 1500,
        after: None,
    };
    let log = PacketLog {
        sent: vec![sent; 5],
        queues: Vec::new(),
        dropped: vec![place(0, 1), place(1, 1), place(2, 1)],
    };
    let outcome = Outcome {
        dropped: vec![place(0, 1), place(1, 2), place(4, 1)],
        ..Outcome::default()
    };
    let errors = compare(&log, &outcome).drops;
    let expected = DropErrors {
        run: 3,
        false_accept: 1,
        false_drop: 1,
        wrong_place: 1,
    };
    assert_eq!(errors, expected);
    // Three errors among the packets 0, 1, 2 and 4.
    assert_eq!(errors.share(), 0.75);
}

#[test]
fn what_cannot_be_replayed_is_an_error() {
    let scenario = scenario("buffer = \"40 packets\"");
    let packet = Offered {
        number: 0,
        at: Time(5),
        earliest: Time(5),
        latest: Time(5),
        after: None,
        source: HostId(0),
        destination: HostId(1),
        key: 0,
        bytes: 1500,
        lost: false,
    };
    let try_with = |packets: &[Offered]| replay(&scenario.network(), packets, NO_MARGIN);
    let elsewhere = Offered {
        destination: HostId(16),
        ..packet
    };
    assert_eq!(try_with(&[elsewhere]), Err(ReplayError::NoSuchHost(0)));
    let unnumbered = Offered {
        number: 2,
        ..packet
    };
    let error = Err(ReplayError::Numbers(2));
    assert_eq!(try_with(&[packet, unnumbered]), error);
    let after_nothing = Offered {
        after: Some(1),
        ..packet
    };
    let error = Err(ReplayError::Numbers(0));
    assert_eq!(try_with(&[after_nothing]), error);
    let settling = settled(
        &scenario.network(),
        vec![after_nothing],
        Span::ZERO,
        NO_MARGIN,
    );
    assert_eq!(settling, Err(ReplayError::Numbers(0)));
    let detour = self::scenario("buffer = \"40 packets\"\ndetour = true");
    let result = replay(&detour.network(), &[packet], NO_MARGIN);
    assert_eq!(result, Err(ReplayError::Detour(0)));
    let flowlets = self::scenario("buffer = \"40 packets\"\necmp = \"flowlet\"");
    let result = replay(&flowlets.network(), &[packet], NO_MARGIN);
    assert_eq!(result, Err(ReplayError::Flowlets));
    let paused = self::scenario("buffer = \"40 packets\"\npfc = true");
    let result = replay(&paused.network(), &[packet], NO_MARGIN);
    assert_eq!(result, Err(ReplayError::FlowControl));
}

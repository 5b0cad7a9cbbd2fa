// SPDX-License-Identifier: Apache-2.0
//! BBR against what its authors say of it (Cardwell et al., ACM Queue 14(5), 2016).

use crate::scene::{Dumbbell, jain, lengths, newreno, quantile, run};
use slowpath_netsim::engine::{FlowSpec, HostId, Network, QueueSeries, Settings};
use slowpath_netsim::results::{Results, WindowSample};
use slowpath_netsim::tcp::{Algorithm, LossDetection, TcpConfig};
use slowpath_netsim::topology::{Link, Node};
use slowpath_switch::fabric::{Action, Change, Impairment, Pick, Share};
use slowpath_switch::{Span, Time};

/// 20 Mbit/s and 60 ms are 100 packets of 1,500 bytes; the buffer holds ten times that.
const PRODUCT: u32 = 100;

fn scene(senders: u32) -> Dumbbell {
    Dumbbell {
        senders,
        access: 1_000_000_000,
        bottleneck: 20_000_000,
        delay_us: 10_000,
        buffer: 10 * PRODUCT,
        mark: None,
    }
}

fn bbr() -> TcpConfig {
    TcpConfig {
        algorithm: Algorithm::Bbr,
        ..newreno()
    }
}

/// What a flow carries of the bottleneck's rate between two moments, in seconds.
fn share(results: &Results, from: u64, to: u64) -> f64 {
    let arrived = |second: u64| {
        let at = Time::ZERO + Span::from_secs(second);
        let sample = results.windows.iter().find(|sample| sample.at >= at);
        sample.expect("a sample").arrived as f64
    };
    (arrived(to) - arrived(from)) * 8.0 / (to - from) as f64 / 20e6
}

/// The way from the left switch to the right one.
fn bottleneck(network: &Network) -> u32 {
    let links = network.topology.links();
    let between = |link: &Link| link.ends.iter().all(|end| matches!(end.0, Node::Switch(_)));
    let at = links.iter().position(between).expect("a bottleneck");
    2 * at as u32 + u32::from(links[at].ends[0].0 != Node::Switch(0))
}

fn seconds(at: Time) -> f64 {
    at.as_nanos() as f64 / 1e9
}

/// A flow without end, its window each 10 ms.
fn windows(tcp: TcpConfig, seconds: u64, loss: Option<Share>) -> Results {
    let scene = scene(1);
    let mut settings = Settings::new(tcp, Time::ZERO + Span::from_secs(seconds));
    settings.windows_every = Some(Span::from_millis(10));
    settings.queues = QueueSeries::Sampled {
        every: Span::from_millis(1),
        ports: vec![scene.port()],
    };
    let network = scene.network();
    if let Some(share) = loss {
        let line = bottleneck(&network);
        let impairment = Impairment {
            loss: Pick {
                share,
                ..Pick::default()
            },
            ..Impairment::default()
        };
        settings.changes.push(Change {
            at: Time::ZERO,
            action: Action::Impair(line, Box::new(impairment)),
        });
    }
    let flow = FlowSpec::tcp(0, HostId(0), HostId(1), FlowSpec::ENDLESS, Time::ZERO);
    run(&network, settings, [flow])
}

/// Figure 1 of the paper: the rate of the bottleneck with the round trip of an empty path. A flow that
/// fills the buffer has ten times as much under way. A quarter more is sent in one phase of eight.
#[test]
fn a_flow_fills_the_path_and_not_the_buffer() {
    let results = windows(bbr(), 20, None);
    let carried = share(&results, 2, 19);
    // 1,460 of 1,500 bytes are payload; 200 ms at 10 s are for probing the round trip.
    assert!(carried > 0.97 * 0.98 * 0.97, "{carried}");
    let queue = lengths(&results.queues, Span::from_secs(2));
    let (median, most) = (quantile(&queue, 0.5), quantile(&queue, 1.0));
    assert!(median <= PRODUCT / 8, "{median}");
    // The window is two products, and three pieces of two segments besides.
    assert!(most <= PRODUCT + 10, "{most}");
}

/// Startup doubles the rate each round trip: from 10 to 100 packets in a window takes log2(10) of them, at
/// a rate that 2/ln 2 leads; three more show that it no longer grows.
#[test]
fn startup_finds_the_rate_in_a_logarithm_of_round_trips() {
    let results = windows(bbr(), 3, None);
    let product = f64::from(PRODUCT) * 1_460.0;
    let reached = results
        .windows
        .windows(7)
        // 60 ms of samples are a round trip.
        .find(|pair| (pair[6].arrived - pair[0].arrived) as f64 > 0.95 * product)
        .map(|pair| seconds(pair[6].at))
        .expect("the rate of the path");
    // log2(10) + 1 for the first to arrive, and one for what is acknowledged.
    assert!(reached <= 0.060 * 6.0, "{reached}");
    // The window is 2.89 products by then, so that the queue grows to 1.89, and a round trip with it to
    // 2.89. Three such show that the rate no longer grows; then the queue drains at 0.65 of the path's
    // rate (1 - ln 2 / 2). In round trips: 6 + 3 * 2.89 + 1.89 / 0.65.
    let whole = lengths(&results.queues, Span::ZERO);
    let most = quantile(&whole, 1.0);
    assert!(
        (PRODUCT * 17 / 10..PRODUCT * 22 / 10).contains(&most),
        "{most}"
    );
    let later = lengths(&results.queues, Span::from_millis(60 * 18));
    let most = quantile(&later, 1.0);
    assert!(most <= PRODUCT / 3, "{most}");
}

/// Figure 8: losses at random do not slow it, and leave a flow that halves its window at each an
/// eighth: 1.2 / sqrt(0.01) packets a round trip of 100 (Mathis et al., 1997).
#[test]
fn random_losses_do_not_slow_it() {
    let percent = Share(u32::MAX / 100);
    let rack = |algorithm| TcpConfig {
        algorithm,
        loss_detection: LossDetection::Rack,
        ..newreno()
    };
    let results = windows(rack(Algorithm::Bbr), 20, Some(percent));
    let carried = share(&results, 2, 19);
    assert!(carried > 0.90 * 0.97, "{carried}");
    let results = windows(rack(Algorithm::NewReno), 20, Some(percent));
    let halved = share(&results, 2, 19);
    assert!(halved < 0.25, "{halved}");
}

/// Each ten seconds at most four packets are out for 200 ms and a round trip, so that the queue empties.
#[test]
fn the_least_round_trip_is_probed_for_each_ten_seconds() {
    let results = windows(bbr(), 35, None);
    let probing = |sample: &&WindowSample| sample.segments <= 4;
    let first: Vec<f64> = results
        .windows
        .iter()
        .filter(probing)
        .map(|sample| seconds(sample.at))
        .filter(|at| *at > 1.0)
        .collect();
    let mut stretches: Vec<(f64, f64)> = Vec::new();
    for at in first {
        match stretches.last_mut() {
            Some(last) if at - last.1 < 0.015 => last.1 = at,
            _ => stretches.push((at, at)),
        }
    }
    assert!((3..=4).contains(&stretches.len()), "{stretches:?}");
    for (begin, end) in &stretches {
        // At least 200 ms; a round trip until four are out, one to see that.
        assert!((0.19..0.36).contains(&(end - begin)), "{stretches:?}");
    }
    for pair in stretches.windows(2) {
        let between = pair[1].0 - pair[0].1;
        assert!((9.9..10.3).contains(&between), "{stretches:?}");
    }
}

/// Flows that begin a millisecond from each other share the bottleneck, and their windows bound the queue: each
/// has at most two products of its share.
#[test]
fn four_flows_share_the_bottleneck() {
    let scene = scene(4);
    let results = scene.long_flows(bbr(), 60);
    assert!(jain(&results) > 0.9, "{}", jain(&results));
    let carried: u64 = results.flows.iter().map(|flow| flow.arrived).sum();
    assert!(carried as f64 * 8.0 / 60.0 / 20e6 > 0.93, "{carried}");
    let queue = lengths(&results.queues, Span::from_secs(5));
    assert!(
        quantile(&queue, 0.99) < 2 * PRODUCT,
        "{}",
        quantile(&queue, 0.99)
    );
}

/// The draws of the phases follow from the seed.
#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || scene(4).long_flows(bbr(), 12).flows;
    assert_eq!(run(), run());
}

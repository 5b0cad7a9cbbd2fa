// SPDX-License-Identifier: Apache-2.0
//! NewReno, one flow: with a buffer of a bandwidth-delay product the link never idles.

use crate::scene::{Dumbbell, lengths, newreno, quantile};
use slowpath_netsim::tcp::TcpConfig;
use slowpath_switch::Span;

/// 20 Mbit/s and 60 ms: 100 segments of 1,500 bytes are a bandwidth-delay product.
fn scene(buffer: u32) -> Dumbbell {
    Dumbbell {
        senders: 1,
        access: 1_000_000_000,
        bottleneck: 20_000_000,
        delay_us: 10_000,
        buffer,
        mark: None,
    }
}

/// Payload carried between 20 and 120 s as a share of what the bottleneck can carry, by the
/// difference of two runs.
fn utilisation(buffer: u32) -> f64 {
    // No overshoot of slow start: the sawtooth is what is looked at.
    let tcp = TcpConfig {
        initial_ssthresh: 100,
        ..newreno()
    };
    let arrived = |seconds| scene(buffer).long_flows(tcp.clone(), seconds).flows[0].arrived as f64;
    (arrived(120) - arrived(20)) / (100.0 * 20e6 / 8.0 * 1460.0 / 1500.0)
}

/// After a loss at W = 2 BDP the window is the BDP: just enough.
#[test]
fn a_buffer_of_one_product_keeps_the_link_busy() {
    let utilisation = utilisation(100);
    assert!(utilisation > 0.995, "{utilisation}");
}

/// With a buffer of b BDP the window swings between (1 + b) and (1 + b) / 2 BDP and grows
/// by one a round trip; while it is below the BDP the rate is the window over the round
/// trip. With b = 0: 3/4 of the rate. With b = 0.1: the window grows from 0.55 to 1 in
/// 0.45 units of fixed round trips at a mean rate of 0.775, then to 1.1 in 0.1 units at
/// rate 1 with a round trip 5 % longer: (0.45 * 0.775 + 0.105) / 0.555 = 0.818.
#[test]
fn a_small_buffer_does_not() {
    let utilisation = utilisation(10);
    assert!((utilisation - 0.818).abs() < 0.03, "{utilisation}");
}

/// The queue of the first case swings between empty and full.
#[test]
fn the_queue_is_a_sawtooth() {
    let tcp = TcpConfig {
        initial_ssthresh: 100,
        ..newreno()
    };
    let results = scene(100).long_flows(tcp, 100);
    let queue = lengths(&results.queues, Span::from_secs(20));
    assert!(quantile(&queue, 0.02) <= 12, "{}", quantile(&queue, 0.02));
    assert!(quantile(&queue, 0.98) >= 92, "{}", quantile(&queue, 0.98));
    assert_eq!(results.flows[0].timeouts, 0);
}

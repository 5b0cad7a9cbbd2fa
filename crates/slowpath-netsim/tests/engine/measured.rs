// SPDX-License-Identifier: Apache-2.0
//! Against queues that others measured on hardware: 100 Mbit/s, 425 packets, two flows
//! (mininet/mininet-tests, the plots of DCTCP and TCP): DCTCP's median is 19, drop-tail's
//! 95th percentile 418.

use crate::scene::{Dumbbell, lengths, quantile};
use slowpath_netsim::tcp::TcpConfig;
use slowpath_switch::Span;

fn queue(tcp: TcpConfig, mark: Option<u32>) -> Vec<u32> {
    let scene = Dumbbell {
        senders: 2,
        access: 1_000_000_000,
        bottleneck: 100_000_000,
        delay_us: 75,
        buffer: 425,
        mark,
    };
    let results = scene.long_flows(tcp, 25);
    lengths(&results.queues, Span::from_secs(5))
}

#[test]
fn dctcp_keeps_about_twenty_packets() {
    let queue = queue(TcpConfig::dctcp(), Some(20));
    let median = quantile(&queue, 0.5);
    assert!((17..=25).contains(&median), "{median}");
}

#[test]
fn drop_tail_fills_the_buffer() {
    let queue = queue(TcpConfig::linux(), None);
    let high = quantile(&queue, 0.95);
    assert!(high >= 400, "{high}");
}

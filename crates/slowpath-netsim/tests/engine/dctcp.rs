// SPDX-License-Identifier: Apache-2.0
//! DCTCP's queue (Alizadeh et al., Data Center TCP, SIGCOMM 2010, section 3.3).

use crate::scene::{Dumbbell, lengths, quantile};
use slowpath_netsim::tcp::{DelayedAck, TcpConfig};
use slowpath_switch::Span;

/// N synchronised flows: the queue's most is K + N, and its swing A = sqrt(2 N (C RTT + K))
/// / 2. Flows here are not synchronised, which makes the swing smaller, and an ACK comes a
/// round trip after its mark: bounds, not equality.
#[test]
fn the_queue_swings_around_its_threshold() {
    for (senders, k) in [(1u32, 40u32), (2, 40), (4, 60)] {
        // 1 Gbit/s, 300 us without queue: 25 packets of 1,500 bytes.
        let scene = Dumbbell {
            senders,
            access: 10_000_000_000,
            bottleneck: 1_000_000_000,
            delay_us: 50,
            buffer: 1_000,
            mark: Some(k),
        };
        let tcp = TcpConfig {
            delayed_ack: DelayedAck::Off,
            ..TcpConfig::dctcp()
        };
        let results = scene.long_flows(tcp, 2);
        let queue = lengths(&results.queues, Span::from_millis(500));
        let (low, high) = (quantile(&queue, 0.001), quantile(&queue, 0.999));
        let swing = (2.0 * f64::from(senders) * (25.0 + f64::from(k))).sqrt() / 2.0;
        let most = k + senders;
        assert!(
            high <= most + 3,
            "{senders} flows: at most {high}, expected {most}"
        );
        assert!(high >= k, "{senders} flows: at most {high}, threshold {k}");
        assert!(
            f64::from(high - low) <= 2.0 * swing + 4.0,
            "{senders} flows: {low} to {high}, expected a swing of {swing:.1}"
        );
        // The queue does not run empty, so the link is busy all the time.
        assert!(low > 0);
        let port = &results.ports[usize::from(scene.port().1.0)];
        assert_eq!(port.counters.dropped, 0);
    }
}

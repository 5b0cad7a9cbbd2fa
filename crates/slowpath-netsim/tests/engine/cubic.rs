// SPDX-License-Identifier: Apache-2.0
//! CUBIC on a long path: the period of its sawtooth (RFC 9438 section 4.2).

use crate::scene::{Dumbbell, newreno};
use slowpath_netsim::tcp::{Algorithm, TcpConfig};

/// Between two losses the window goes from 0.7 W to W, which takes K = cbrt(0.3 W / 0.4)
/// seconds, and a little beyond: one loss in about K. W is the bandwidth-delay product
/// with the buffer. 100 Mbit/s, 120 ms: 1,000 packets; with 300 in the buffer K = 9.9 s.
#[test]
fn losses_come_once_a_period() {
    let scene = Dumbbell {
        senders: 1,
        access: 1_000_000_000,
        bottleneck: 100_000_000,
        delay_us: 20_000,
        buffer: 300,
        mark: None,
    };
    let tcp = TcpConfig {
        algorithm: Algorithm::Cubic { hystart: false },
        initial_ssthresh: 1_000,
        ..newreno()
    };
    let dropped = |seconds| {
        let results = scene.long_flows(tcp.clone(), seconds);
        results.ports[usize::from(scene.port().1.0)]
            .counters
            .dropped
    };
    // Drops between 30 and 90 s: 60 / 9.9 periods, each ends in a few.
    let drops = dropped(90) - dropped(30);
    assert!((4..=60).contains(&drops), "{drops}");
    let results = scene.long_flows(tcp.clone(), 90);
    let carried = results.flows[0].arrived as f64 * 8.0 / 90.0 / 100e6;
    assert!(carried > 0.92, "{carried}");
}

/// HyStart leaves slow start before the buffer overflows (Ha and Rhee, section 4).
#[test]
fn hystart_avoids_the_overshoot() {
    let scene = Dumbbell {
        senders: 1,
        access: 1_000_000_000,
        bottleneck: 100_000_000,
        delay_us: 20_000,
        buffer: 500,
        mark: None,
    };
    let dropped = |hystart| {
        let tcp = TcpConfig {
            algorithm: Algorithm::Cubic { hystart },
            ..newreno()
        };
        let results = scene.long_flows(tcp, 4);
        results.ports[usize::from(scene.port().1.0)]
            .counters
            .dropped
    };
    // Slow start overshoots by what it added in the last round trip; the cubic growth that
    // follows HyStart probes the limit by a few segments.
    let (with, without) = (dropped(true), dropped(false));
    assert!(without > 100 && with < without / 10, "{with} {without}");
}

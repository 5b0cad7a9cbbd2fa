// SPDX-License-Identifier: Apache-2.0
//! D/D/1 and M/D/1 through the whole engine: datagrams of 1,500 bytes from 200 senders meet
//! at one port of 1 Gbit/s, 12 us a packet.

use crate::scene::{Dumbbell, GBIT, newreno, run};
use slowpath_netsim::engine::{FlowSpec, HostId, Settings, Transport};
use slowpath_switch::{Random, Span, Time};

const SENDERS: u32 = 200;
/// Access links are so fast that they hold nothing back.
const SCENE: Dumbbell = Dumbbell {
    senders: SENDERS,
    access: 1_000 * GBIT,
    bottleneck: GBIT,
    delay_us: 1,
    buffer: 1 << 20,
    mark: None,
};
/// What a packet takes that waits for nothing, in ps: twice 12 ns on the access links, 12
/// us on the bottleneck, 3 us of propagation.
const UNLOADED: u64 = 2 * 12_000 + 12_000_000 + 3_000_000;

fn datagram(id: u64, host: u32, start: Time) -> FlowSpec {
    FlowSpec {
        transport: Transport::Datagrams(1_500),
        ..FlowSpec::tcp(id, HostId(host), HostId(SENDERS + host), 1_472, start)
    }
}

/// The mean wait, in service times.
fn mean_wait(flows: Vec<FlowSpec>) -> f64 {
    let settings = Settings::new(newreno(), Time::ZERO + Span::from_secs(100));
    let results = run(&SCENE.network(), settings, flows);
    let waits = results
        .flows
        .iter()
        .map(|flow| (flow.completion().expect("no losses").0 - UNLOADED) as f64);
    waits.sum::<f64>() / results.flows.len() as f64 / 12e6
}

/// D/D/1 below its capacity: no packet waits. At twice its capacity the n-th waits n halves.
#[test]
fn regular_arrivals() {
    let regular = |gap_ns: u64| -> Vec<FlowSpec> {
        let at = |n: u64| Time::ZERO + Span::from_nanos(n * gap_ns);
        (0..1_000)
            .map(|n| datagram(n, (n % 200) as u32, at(n)))
            .collect()
    };
    assert_eq!(mean_wait(regular(12_000)), 0.0);
    assert_eq!(mean_wait(regular(13_000)), 0.0);
    // The mean of n / 2 over 0..1000.
    assert_eq!(mean_wait(regular(6_000)), 999.0 / 4.0);
}

/// M/D/1 (Pollaczek and Khinchine): the mean wait is rho / (2 (1 - rho)) service times.
#[test]
fn random_arrivals() {
    for rho in [0.3, 0.6, 0.8] {
        let mut random = Random::new(5);
        let mut at = 0.0;
        let flows = (0..60_000).map(|n| {
            let uniform = ((random.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
            at -= uniform.ln() * 12e6 / rho;
            datagram(n, random.below(SENDERS), Time(at as u64))
        });
        let wait = mean_wait(flows.collect());
        let expected = rho / (2.0 * (1.0 - rho));
        // The standard error at 0.8 over 60,000 correlated waits is about 3 %.
        assert!(
            (wait / expected - 1.0).abs() < 0.1,
            "{rho}: {wait}, expected {expected}"
        );
    }
}

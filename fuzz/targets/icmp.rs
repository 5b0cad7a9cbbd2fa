// SPDX-License-Identifier: Apache-2.0
//! ICMP messages with what they quote, as any router may send them, and routes as a peer may report them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slowpath_path::icmp::IcmpMessage;
use slowpath_path::icmp::parse::{icmp4, icmp6, v4_payload};
use slowpath_path::route::{Route, TraceOptions, text};

fuzz_target!(
    init: slowpath_fuzz::write_seeds(seeds),
    |data: &[u8]| {
        let v4 = v4_payload(data).and_then(icmp4);
        for message in [v4, icmp4(data), icmp6(data)].into_iter().flatten() {
            if let IcmpMessage::Error(error) = message {
                let quoted = error.quoted;
                assert!(quoted.transport.len() <= data.len());
                let udp = quoted.udp();
                assert_eq!(udp.map(|udp| (udp.source_port, udp.destination_port)), udp.and(quoted.ports()));
                let _ = (quoted.tcp_sequence(), quoted.echo_request());
            }
        }
        if let Ok(route) = serde_json::from_slice::<Route>(data) {
            let _ = text::route(&route);
        }
        if let Ok(options) = serde_json::from_slice::<TraceOptions>(data) {
            let options = options.bounded();
            assert!(options.max_ttl >= 1 && options.rate >= 1 && options.dscp < 64);
            assert!((0.5..1.0).contains(&options.confidence));
        }
    }
);

/// Time exceeded of IPv4 and IPv6 about a UDP packet, without correct checksums, and JSON.
fn seeds() -> Vec<Vec<u8>> {
    let udp = [0x82, 0x35, 0x82, 0x9a, 0, 12, 0, 0, 1, 2, 3, 4];
    let mut v4 = vec![
        11, 0, 0, 0, 0, 0, 0, 0, 0x45, 0xba, 0, 32, 0, 1, 0x40, 0, 1, 17, 0, 0, 10, 0, 0, 1, 10, 0,
        0, 2,
    ];
    v4.extend(udp);
    let mut v6 = vec![3, 0, 0, 0, 0, 0, 0, 0, 0x6b, 0xa0, 0, 0, 0, 12, 17, 1];
    v6.extend([0xfd; 32]);
    v6.extend(udp);
    let options = serde_json::to_vec(&TraceOptions::default()).expect("plain data");
    vec![v4, v6, options]
}

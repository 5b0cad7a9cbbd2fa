// SPDX-License-Identifier: Apache-2.0
//! Traces in virtual time, answered by routers of the test.

use super::*;
use crate::script::{at, at_ms, connection};

fn lossy(cookie: u64) -> LossyConnection {
    let mut tuple = connection(cookie).tuple;
    tuple.local = "10.0.0.1:40000".parse().unwrap();
    tuple.remote = format!("10.9.0.2:{}", 1_000 + cookie).parse().unwrap();
    LossyConnection {
        id: connection(cookie).id,
        tuple,
        unacknowledged: 77,
    }
}

/// What the router sends about the probe.
fn answer(router: [u8; 4], probe: &[u8; PROBE]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 60, 1, 0, 0];
    packet.extend(router);
    packet.extend(&probe[12..16]);
    packet.extend([11, 0, 0, 0, 0, 0, 0, 0]);
    packet.extend(&probe[..28]);
    packet
}

#[test]
fn a_path_has_the_routers_in_order_and_gaps_where_none_answered() {
    let mut tracer = PathTracer::new(10, at(0));
    let probes = tracer.begin(&lossy(1), at(0), 65_530).unwrap();
    let ttls: Vec<u8> = probes.iter().map(|probe| probe[8]).collect();
    assert_eq!(ttls, (1..=HOPS).collect::<Vec<_>>());
    // The third answers before the first, the second never.
    tracer.answered(&answer([192, 0, 2, 3], &probes[2]));
    tracer.answered(&answer([192, 0, 2, 1], &probes[0]));
    tracer.answered(&answer([192, 0, 2, 9], &probes[0]));
    assert_eq!(tracer.ended(at_ms(1_999)), []);
    let router = |last| Some(Ipv4Addr::new(192, 0, 2, last));
    let path = TracedPath {
        connection: lossy(1).id,
        sent: at(0),
        routers: vec![router(1), None, router(3)],
    };
    assert_eq!(tracer.ended(at(2)), [path]);
    assert!(!tracer.waits());
}

#[test]
fn an_answer_to_another_connection_or_probe_counts_for_none() {
    let mut tracer = PathTracer::new(10, at(0));
    let probes = tracer.begin(&lossy(1), at(0), 100).unwrap();
    let other = PathTracer::new(1, at(0)).begin(&lossy(2), at(0), 100);
    tracer.answered(&answer([192, 0, 2, 1], &other.unwrap()[0]));
    let mut never_sent = probes[0];
    never_sent[4..6].copy_from_slice(&100u16.to_be_bytes());
    tracer.answered(&answer([192, 0, 2, 1], &never_sent));
    assert_eq!(tracer.ended(at(3)), []);
}

#[test]
fn a_connection_is_traced_once_in_five_minutes() {
    let mut tracer = PathTracer::new(60, at(0));
    assert!(tracer.begin(&lossy(1), at(0), 1).is_some());
    assert!(tracer.begin(&lossy(1), at(299), 1).is_none());
    assert!(tracer.begin(&lossy(1), at(300), 1).is_some());
    assert_eq!(tracer.left_out, 0);
}

#[test]
fn no_more_are_traced_than_the_minute_allows() {
    let mut tracer = PathTracer::new(6, at(0));
    let mut begun = Vec::new();
    for second in 0..120 {
        if tracer.begin(&lossy(second), at(second), 1).is_some() {
            begun.push(second);
        }
        tracer.ended(at(second));
    }
    // Six at once, and one in ten seconds from then on.
    assert_eq!(begun[..6], [0, 1, 2, 3, 4, 5]);
    assert!(begun[6..].windows(2).all(|pair| pair[1] - pair[0] >= 10));
    assert!((17..=18).contains(&begun.len()), "{begun:?}");
    assert_eq!(tracer.left_out, 120 - begun.len() as u64);
}

#[test]
fn loopback_and_ipv6_are_not_traced() {
    let mut tracer = PathTracer::new(10, at(0));
    let mut local = lossy(1);
    local.tuple.remote = "127.0.0.1:80".parse().unwrap();
    let mut own = lossy(2);
    own.tuple.remote = "10.0.0.1:80".parse().unwrap();
    let mut v6 = lossy(3);
    v6.tuple.local = "[fd00::1]:40000".parse().unwrap();
    v6.tuple.remote = "[fd00::2]:80".parse().unwrap();
    for connection in [local, own, v6] {
        assert_eq!(tracer.begin(&connection, at(0), 1), None);
    }
    assert!(!tracer.waits());
}

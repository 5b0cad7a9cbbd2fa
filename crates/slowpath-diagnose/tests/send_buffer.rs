// SPDX-License-Identifier: Apache-2.0
//! SendBufferLimited.

mod timeline;
use slowpath_model::{Micros, Problem::*, Share, TcpStats};
use timeline::*;

#[test]
fn the_kernels_chronograph_decides() {
    for (grew, found) in [
        (ms(0), None),
        (ms(4), None),        // 0.8 %: a jiffy is a statistic
        (ms(5), Some(ms(5))), // 1 %
        (ms(250), Some(ms(250))),
        (ms(504), Some(INTERVAL)), // the jiffy's grain
    ] {
        let v = Timeline::new()
            .then(|s| s.sndbuf_limited = Some(ms(100) + grew))
            .verdict();
        assert_eq!(
            said(&v),
            found
                .map(|time| (SendBufferLimited, Share::Measured(time), None))
                .into_iter()
                .collect::<Vec<_>>(),
            "{grew}"
        );
        assert_eq!(
            v.dominating,
            if found.is_some() {
                SendBufferLimited
            } else {
                SenderAppLimited
            }
        );
        assert!(v.unmeasured.is_empty());
    }
}

#[test]
fn a_full_buffer_is_no_finding_where_the_kernel_measures() {
    let v = Timeline::new()
        .both(|s| {
            s.send_memory = s.send_buffer;
            s.in_flight = 5;
            s.send_queue = 5000;
        })
        .verdict();
    assert_eq!(said(&v), []);
}

#[test]
fn a_chronograph_that_went_backwards_or_came_late_measures_nothing() {
    let backwards = Timeline::new().then(|s| s.sndbuf_limited = Some(ms(99)));
    assert_eq!(unmeasured(&backwards.verdict()), [SendBufferLimited]);
    let mut came = Timeline::new();
    came.before.stats.sndbuf_limited = None;
    assert_eq!(unmeasured(&came.verdict()), [SendBufferLimited]);
}

#[test]
fn without_chronograph_the_full_buffer_is_sampled() {
    /// Writer blocked by a buffer of 60 kB of memory; half the congestion window unused.
    fn blocked(s: &mut TcpStats) {
        s.in_flight = 5;
        s.cwnd = 10;
        s.unsent = 0;
        s.send_queue = 5000;
        s.send_buffer = Some(60_000);
        s.send_memory = Some(55_000);
    }
    type Change = fn(&mut TcpStats);
    let cases: [(&str, Change, Option<bool>); 8] = [
        ("blocked", |_| (), Some(true)),
        (
            "at two thirds a writer wakes",
            |s| s.send_memory = Some(40_000),
            Some(false),
        ),
        (
            "just above it sleeps",
            |s| s.send_memory = Some(40_001),
            Some(true),
        ),
        ("congestion window full", |s| s.in_flight = 10, Some(false)),
        (
            "data waits for the network",
            |s| s.unsent = 1000,
            Some(false),
        ),
        ("nothing in flight", |s| s.in_flight = 0, Some(false)),
        (
            "payload by itself fills it",
            |s| {
                s.send_memory = None;
                s.send_queue = 40_001
            },
            Some(true),
        ),
        ("memory unknown", |s| s.send_memory = None, None),
    ];
    for (name, change, limited) in cases {
        let v = Timeline::new()
            .without_chronographs()
            .then(blocked)
            .then(change)
            .verdict();
        let expected = if limited == Some(true) {
            vec![(SendBufferLimited, Share::Coarse, None)]
        } else {
            vec![]
        };
        assert_eq!(said(&v), expected, "{name}");
        assert_eq!(
            v.unmeasured.contains(SendBufferLimited),
            limited.is_none(),
            "{name}"
        );
    }
}

#[test]
fn exclusive_shares_are_scaled_to_the_interval() {
    // 300 + 300 ms in 500 ms: half each.
    let v = Timeline::new()
        .then(|s| {
            s.sndbuf_limited = Some(ms(400));
            s.rwnd_limited = Some(ms(400));
        })
        .verdict();
    assert_eq!(
        said(&v),
        [
            (SendBufferLimited, Share::Measured(Micros(250_000)), None),
            (
                ReceiverWindowLimited,
                Share::Measured(Micros(250_000)),
                None
            ),
        ]
    );
}

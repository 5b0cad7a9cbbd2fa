// SPDX-License-Identifier: Apache-2.0
//! ReceiverWindowLimited.

mod timeline;
use slowpath_model::{Multipath, Problem::*, Share, TcpStats};
use timeline::*;

#[test]
fn the_kernels_chronograph_decides() {
    let v = Timeline::new()
        .then(|s| s.rwnd_limited = Some(ms(400)))
        .verdict();
    assert_eq!(
        said(&v),
        [(ReceiverWindowLimited, Share::Measured(ms(300)), None)]
    );
    assert_eq!(v.deltas.rwnd_limited, Some(ms(300)));
}

#[test]
fn a_chronograph_that_went_backwards_measures_nothing() {
    let v = Timeline::new()
        .then(|s| s.rwnd_limited = Some(ms(1)))
        .verdict();
    assert_eq!(unmeasured(&v), [ReceiverWindowLimited]);
    assert_eq!(v.deltas.rwnd_limited, None);
    assert_eq!(v.dominating, SenderAppLimited);
}

#[test]
fn without_chronograph_the_filled_window_is_sampled() {
    /// 4000 bytes in flight, 6000 waiting, a window of 4500: no segment of 1000 fits.
    fn full(s: &mut TcpStats) {
        s.cwnd = 10;
        s.in_flight = 4;
        s.send_queue = 10_000;
        s.unsent = 6_000;
        s.send_window = Some(4_500);
    }
    type Change = fn(&mut TcpStats);
    let cases: [(&str, Change, Option<bool>); 8] = [
        ("full", |_| (), Some(true)),
        (
            "one more fits",
            |s| s.send_window = Some(5_000),
            Some(false),
        ),
        ("congestion window full", |s| s.in_flight = 10, Some(false)),
        (
            "nothing waits",
            |s| {
                s.unsent = 0;
                s.send_queue = 4_000
            },
            Some(false),
        ),
        (
            "the rest fits",
            |s| {
                s.unsent = 500;
                s.send_queue = 4_500
            },
            Some(false),
        ),
        (
            "zero window",
            |s| {
                s.send_window = Some(0);
                s.in_flight = 0;
                s.send_queue = 6_000
            },
            Some(true),
        ),
        (
            "zero window, idle",
            |s| {
                s.send_window = Some(0);
                s.in_flight = 0;
                s.send_queue = 0;
                s.unsent = 0
            },
            Some(false),
        ),
        ("window unknown", |s| s.send_window = None, None),
    ];
    for (name, change, limited) in cases {
        let v = Timeline::new()
            .without_chronographs()
            .then(full)
            .then(change)
            .verdict();
        let expected = if limited == Some(true) {
            vec![(ReceiverWindowLimited, Share::Coarse, None)]
        } else {
            vec![]
        };
        assert_eq!(said(&v), expected, "{name}");
        assert_eq!(
            v.unmeasured.contains(ReceiverWindowLimited),
            limited.is_none(),
            "{name}"
        );
    }
}

#[test]
fn a_full_window_of_an_mptcp_connection_counts_at_its_subflow() {
    // What the connection holds back is not in the subflow: the subflow's clock stands still, its queue is empty.
    let mut subflow = Timeline::new();
    let state = Multipath {
        window_full: true,
        unread: false,
    };
    subflow.after.waits = subflow.after.waits.with_multipath(state);
    assert_eq!(
        said(&subflow.verdict()),
        [(ReceiverWindowLimited, Share::Coarse, None)]
    );
}

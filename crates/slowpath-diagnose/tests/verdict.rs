// SPDX-License-Identifier: Apache-2.0
//! Dominance, order, and the edges of a connection's life.

mod timeline;
use slowpath_diagnose::{classify, opened};
use slowpath_model::{MonoNanos, Origin, Problem::*, Share, TcpState};
use timeline::*;

#[test]
fn nothing_wrong_is_the_application() {
    let v = Timeline::new().verdict();
    assert_eq!(v.dominating, SenderAppLimited);
    assert_eq!(said(&v), []);
    assert!(v.unmeasured.is_empty());
    assert_eq!(v.interval(), INTERVAL);
}

#[test]
fn the_largest_share_dominates_and_findings_follow_it() {
    let v = Timeline::new()
        .then(|s| {
            s.sndbuf_limited = Some(ms(150));
            s.rwnd_limited = Some(ms(300));
            s.retransmitted += 1;
            s.recovery.as_mut().unwrap().fast_recoveries += 1;
        })
        .verdict();
    assert_eq!(
        said(&v),
        [
            (ReceiverWindowLimited, Share::Measured(ms(200)), None),
            (SendBufferLimited, Share::Measured(ms(50)), None),
            (FastRetransmit, Share::Measured(ms(0)), Some(1)),
        ]
    );
    assert_eq!(v.dominating, ReceiverWindowLimited);
}

#[test]
fn equal_shares_keep_the_order_of_the_stages() {
    let v = Timeline::new()
        .then(|s| {
            s.rwnd_limited = Some(ms(150));
            s.recovery.as_mut().unwrap().fast_recoveries += 1;
            s.recovery.as_mut().unwrap().recovery_time = ms(60);
        })
        .verdict();
    assert_eq!(
        v.findings.iter().map(|f| f.problem).collect::<Vec<_>>(),
        [FastRetransmit, ReceiverWindowLimited]
    );
}

#[test]
fn an_interval_without_length_has_no_findings() {
    for at in [
        MonoNanos(1_000_000_000),
        MonoNanos(1_000_000_999),
        MonoNanos(5),
    ] {
        let mut t = Timeline::new().then(|s| {
            s.sndbuf_limited = Some(ms(400));
            s.rto_stats.as_mut().unwrap().timeouts += 1;
        });
        t.after.at = at;
        let v = t.verdict();
        assert_eq!(said(&v), []);
        assert_eq!(v.interval(), ms(0));
    }
}

#[test]
fn a_connection_opened_after_the_poll_counts_from_zero() {
    let mut first = healthy(ms(50));
    first.id.start = MonoNanos(1_000_000_000);
    let birth = opened(&first);
    assert_eq!(birth.at, first.id.start);
    let v = classify(&birth, &first, None, &Default::default());
    assert_eq!(v.interval(), ms(50));
    assert_eq!(v.deltas.bytes_sent, Some(100_000));
    assert_eq!(v.deltas.fast_recoveries, Some(2));
    assert_eq!(v.finding(Timeout).unwrap().events, Some(4));
    assert!(v.unmeasured.is_empty());
}

#[test]
fn what_the_first_snapshot_cannot_measure_stays_missing() {
    let mut first = healthy(ms(50));
    first.stats.rtt_sums = None;
    first.stats.sndbuf_limited = None;
    first.stats.bytes_sent = None;
    let birth = opened(&first);
    assert_eq!(birth.stats.rtt_sums, None);
    assert_eq!(birth.stats.sndbuf_limited, None);
    assert_eq!(birth.stats.bytes_sent, None);
}

#[test]
fn a_connection_older_than_the_agent_has_no_first_interval() {
    let mut no_start = healthy(ms(50));
    no_start.id.start = MonoNanos(0);
    let mut unknown = healthy(ms(50));
    unknown.origin = Origin::Unknown;
    for first in [no_start, unknown] {
        let v = classify(&opened(&first), &first, None, &Default::default());
        assert_eq!(v.interval(), ms(0));
        assert_eq!(said(&v), []);
    }
}

#[test]
fn a_connection_that_is_being_opened_is_judged_like_any() {
    let mut t = Timeline::new().both(|s| {
        s.state = TcpState::SynSent;
        s.bytes_acked = 0;
        s.srtt = None;
        s.min_rtt = None;
        s.cwnd = 1;
        s.send_mss = 536;
        s.rtt_sums = Some(Default::default());
    });
    assert_eq!(t.verdict().dominating, SenderAppLimited);
    // Its timer is that of its SYN, which may never have left or was sent before slowpath came.
    t.after.stats.rto_stats.as_mut().unwrap().timeouts += 1;
    assert!(t.verdict().finding(Timeout).is_none());
    t.after.stats.state = TcpState::Close;
    assert!(t.verdict().finding(Timeout).is_none());
}

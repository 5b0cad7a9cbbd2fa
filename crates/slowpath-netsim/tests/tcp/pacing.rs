// SPDX-License-Identifier: Apache-2.0
//! Pacing: when what may leave does leave.

use crate::script::{MSS, NONE, Script, plain, range};
use slowpath_netsim::tcp::TcpConfig;
use slowpath_switch::{Rate, Span, Time};

/// The segments that leave until `ms` milliseconds later, with the time of each in microseconds.
fn paced(script: &mut Script, ms: u64) -> Vec<(u64, u64)> {
    let until = script.now + Span::from_millis(ms);
    let mut left = Vec::new();
    loop {
        let at = script.now.as_nanos() / 1_000;
        left.extend(script.sent().into_iter().map(|segment| (segment, at)));
        match script.sender.paced_until() {
            Some(due) if due <= until => {
                script.now = due;
                script.sender.on_paced();
            }
            _ => break,
        }
    }
    script.now = until;
    left
}

/// 1 Mbit/s is 1,000 bytes in 8 ms. The first ten leave at once, as `sch_fq` has it.
#[test]
fn a_greatest_rate_spaces_segments_after_the_first_ten() {
    let config = TcpConfig {
        max_pacing_rate: Some(Rate::from_bits_per_second(1_000_000).unwrap()),
        initial_window: 20,
        initial_ssthresh: 20,
        ..plain()
    };
    let mut s = Script::new(config, 100);
    let left = paced(&mut s, 1_000);
    let expected: Vec<(u64, u64)> = (0..20)
        .map(|n: u64| (n, n.saturating_sub(9) * 8_000))
        .collect();
    assert_eq!(left, expected);
    assert!(!s.sender.wants_to_send(&s.config));
}

/// In congestion avoidance the rate is 1.2 windows a round trip (`tcp_pacing_ca_ratio`): with ten segments
/// and 120 ms one each 10 ms.
#[test]
fn a_window_leaves_within_five_sixths_of_a_round_trip() {
    let config = TcpConfig {
        pacing: true,
        ..plain()
    };
    let mut s = Script::new(config, 100);
    assert_eq!(s.sent(), range(0, 10));
    s.now = Time::ZERO + Span::from_millis(120);
    // All ten are acknowledged: the window grows by one.
    assert_eq!(s.ack(10), [10]);
    assert_eq!(s.window(), 11);
    let left = paced(&mut s, 120);
    // 120 ms / (1.2 * 11).
    let gap = 120_000.0 / 13.2;
    assert_eq!(left.len(), 10);
    for (n, (segment, at)) in (1u64..).zip(&left) {
        assert_eq!(*segment, 10 + n);
        // The first came late, after a round trip without any: half a gap is made up for.
        let due = 120_000.0 + gap * (n as f64 - 0.5);
        assert!(
            (due - 2.0..due + 2.0).contains(&(*at as f64)),
            "{segment}: {at} {due}"
        );
    }
}

/// What comes late is made up for, by half of a gap at most (`tcp_update_skb_after_send`).
#[test]
fn a_late_segment_shortens_the_next_gap() {
    let config = TcpConfig {
        max_pacing_rate: Some(Rate::from_bits_per_second(1_000_000).unwrap()),
        initial_window: 13,
        initial_ssthresh: 13,
        ..plain()
    };
    let mut s = Script::new(config, 100);
    assert_eq!(s.sent(), range(0, 10));
    let due = s.sender.paced_until().expect("the eleventh waits");
    assert_eq!(due, Time::ZERO + Span::from_millis(8));
    // The host comes to it 2 ms late, and 20 ms late to the next but one.
    s.now = due + Span::from_millis(2);
    s.sender.on_paced();
    assert_eq!(s.sent(), [10]);
    let due = s.sender.paced_until().expect("the twelfth waits");
    assert_eq!(due, s.now + Span::from_millis(6));
    s.now = due + Span::from_millis(20);
    s.sender.on_paced();
    assert_eq!(s.sent(), [11]);
    let due = s.sender.paced_until().expect("the thirteenth waits");
    assert_eq!(due, s.now + Span::from_millis(4));
}

#[test]
fn without_pacing_a_window_leaves_at_once() {
    let mut s = Script::new(plain(), 100);
    assert_eq!(s.sent(), range(0, 10));
    assert_eq!(s.sender.paced_until(), None);
    assert_eq!(s.sent(), NONE);
    assert_eq!(s.sender.una(), 0);
    assert_eq!(s.sender.next(), 10 * MSS);
}

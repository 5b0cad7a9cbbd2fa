// SPDX-License-Identifier: Apache-2.0
//! RFC 5681 and RFC 6582, without SACK.

use crate::script::{NONE, Script, plain, range};
use slowpath_netsim::tcp::{LossDetection, Phase, TcpConfig};

fn slow_start(limit: Option<u32>) -> Script {
    let config = TcpConfig {
        initial_window: 2,
        initial_ssthresh: u32::MAX,
        slow_start_limit: limit,
        ..plain()
    };
    Script::new(config, 100)
}

/// RFC 5681 section 3.1: at most one segment more for each ACK.
#[test]
fn slow_start_adds_a_segment_an_ack() {
    let mut s = slow_start(Some(1));
    assert_eq!(s.sent(), range(0, 2));
    s.wait(100);
    assert_eq!(s.ack(1), [2, 3]);
    assert_eq!(s.ack(2), [4, 5]);
    s.wait(100);
    // One ACK of two segments: two leave the network, one more may enter.
    assert_eq!(s.ack(4), [6, 7, 8]);
}

/// Linux: as many more as the ACK covers, so that delayed ACKs do not slow it.
#[test]
fn slow_start_counts_segments_on_linux() {
    let mut s = slow_start(None);
    assert_eq!(s.sent(), range(0, 2));
    s.wait(100);
    assert_eq!(s.ack(2), range(2, 6));
    s.wait(100);
    assert_eq!(s.ack(6), range(6, 14));
}

/// RFC 5681 section 3.1: one segment a round trip.
#[test]
fn avoidance_adds_a_segment_a_round_trip() {
    let mut s = Script::new(plain(), 100);
    assert_eq!(s.sent(), range(0, 10));
    s.wait(100);
    for acked in 1..10 {
        assert_eq!(s.ack(acked), [9 + acked]);
    }
    assert_eq!(s.ack(10), [19, 20]);
    assert_eq!(s.window(), 11);
}

/// Slow start that crosses the threshold goes on as congestion avoidance.
#[test]
fn slow_start_ends_at_the_threshold() {
    let config = TcpConfig {
        initial_window: 4,
        initial_ssthresh: 6,
        ..plain()
    };
    let mut s = Script::new(config, 100);
    assert_eq!(s.sent(), range(0, 4));
    s.wait(100);
    s.ack(4);
    // Two to the threshold, and two counted towards the next one in six.
    assert_eq!(s.window(), 6);
    s.ack(7);
    assert_eq!(s.window(), 6);
    s.ack(8);
    assert_eq!(s.window(), 7);
}

/// Ten out, the first lost. RFC 3042: two duplicates let out two new ones. RFC 6582 section
/// 3.2: the third resends the first; the window is ssthresh + 3 and grows by one a
/// duplicate, so the 5th after it (8 + 5 > 12) lets out the next new one.
#[test]
fn fast_retransmit_and_recovery() {
    let mut s = Script::new(plain(), 100);
    s.sent();
    s.wait(100);
    assert_eq!(s.ack(0), [10]);
    assert_eq!(s.ack(0), [11]);
    assert_eq!(s.ack(0), [0]);
    assert_eq!(s.ssthresh(), 5);
    assert_eq!(s.sender.phase(), Phase::Recovery);
    for _ in 0..4 {
        assert_eq!(s.ack(0), NONE);
    }
    for new in 12..16 {
        assert_eq!(s.ack(0), [new]);
    }
    s.wait(100);
    // A full acknowledgment: the window is ssthresh (section 3.2 step 3, option 2); 4 are
    // out.
    assert_eq!(s.ack(12), [16]);
    assert_eq!((s.window(), s.sender.phase()), (5, Phase::Open));
    assert_eq!(s.sender.counts().recoveries, 1);
}

/// The first and the sixth lost. A partial acknowledgment resends the next at once; the
/// window of 8 + 7 shrinks by the 5 acknowledged and grows by 1: with 10 out, one more.
#[test]
fn a_partial_acknowledgment_resends_the_next() {
    let mut s = Script::new(plain(), 100);
    s.sent();
    s.wait(100);
    s.ack(0);
    s.ack(0);
    assert_eq!(s.ack(0), [0]);
    for _ in 0..4 {
        assert_eq!(s.ack(0), NONE);
    }
    for new in 12..15 {
        assert_eq!(s.ack(0), [new]);
    }
    s.wait(100);
    assert_eq!(s.ack(5), [5, 15]);
    assert_eq!(s.sender.phase(), Phase::Recovery);
    s.wait(100);
    s.ack(12);
    assert_eq!((s.window(), s.sender.phase()), (5, Phase::Open));
    assert_eq!(s.sender.counts().retransmissions, 2);
}

/// RFC 6582 section 4: duplicates of what a timeout resent start no fast retransmit.
#[test]
fn duplicates_after_a_timeout_resend_nothing() {
    let mut s = Script::new(plain(), 100);
    s.sent();
    assert_eq!(s.expire().sent(), [0]);
    for _ in 0..5 {
        assert_eq!(s.ack(0), NONE);
    }
    assert_eq!(s.sender.counts().recoveries, 0);
}

/// Without limited transmit the first duplicates let nothing out.
#[test]
fn limited_transmit_can_be_off() {
    let config = TcpConfig {
        limited_transmit: false,
        ..plain()
    };
    let mut s = Script::new(config, 100);
    s.sent();
    s.wait(100);
    assert_eq!(s.ack(0), NONE);
    assert_eq!(s.ack(0), NONE);
    assert_eq!(s.ack(0), [0]);
}

/// A threshold of duplicates other than three, and none at all: DIBS needs both.
#[test]
fn the_threshold_can_be_raised_or_absent() {
    let config = TcpConfig {
        loss_detection: LossDetection::DuplicateAcks(6),
        ..plain()
    };
    let mut s = Script::new(config, 100);
    s.sent();
    s.wait(100);
    for new in 10..15 {
        assert_eq!(s.ack(0), [new]);
    }
    assert_eq!(s.ack(0), [0]);

    let config = TcpConfig {
        loss_detection: LossDetection::TimeoutOnly,
        ..plain()
    };
    let mut s = Script::new(config, 100);
    s.sent();
    s.wait(100);
    for new in 10..19 {
        assert_eq!(s.ack(0), [new]);
    }
    assert_eq!(s.sender.counts().retransmissions, 0);
    assert_eq!(s.expire().sent(), [0]);
    assert_eq!(s.sender.counts().timeouts, 1);
}

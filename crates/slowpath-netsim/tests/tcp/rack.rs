// SPDX-License-Identifier: Apache-2.0
//! RFC 8985: RACK and tail loss probes.

use crate::script::{NONE, Script, plain};
use slowpath_netsim::tcp::{LossDetection, Phase, RtoEstimator, TcpConfig};
use slowpath_switch::Span;

fn with_rack() -> TcpConfig {
    TcpConfig {
        sack: true,
        loss_detection: LossDetection::Rack,
        tail_loss_probe: true,
        rto_min: Span::from_millis(200),
        rto_estimator: RtoEstimator::Linux,
        ..plain()
    }
}

/// A connection whose round trip of 100 is known, with 10 to 19 out.
fn warmed(segments: u64) -> Script {
    let config = TcpConfig {
        initial_ssthresh: 5,
        ..with_rack()
    };
    let mut s = Script::new(config, segments);
    s.sent();
    s.wait(100);
    for acked in 1..10 {
        s.ack(acked);
    }
    s.ack(10);
    s
}

/// Section 6.2: one SACK beyond a hole starts the wait of a quarter of the least round
/// trip; then the hole is lost, with no third duplicate.
#[test]
fn a_hole_is_lost_after_the_reordering_window() {
    let mut s = warmed(20);
    s.wait(100);
    assert_eq!(s.sack(10, &[(11, 12)]), NONE);
    assert_eq!(s.sender.phase(), Phase::Disorder);
    assert_eq!(s.timer(), Some(25));
    assert_eq!(s.wait(24).sent(), NONE);
    assert_eq!(s.wait(1).sent(), [10]);
    assert_eq!(s.sender.phase(), Phase::Recovery);
}

/// What comes within the window was late, not lost.
#[test]
fn a_late_segment_is_not_resent() {
    let mut s = warmed(20);
    s.wait(100);
    s.sack(10, &[(11, 12)]);
    assert_eq!(s.wait(20).sent(), NONE);
    s.ack(12);
    assert_eq!(s.sender.phase(), Phase::Open);
    assert_eq!(s.sender.counts().retransmissions, 0);
}

/// Section 6.2 step 4: three SACKed with no reordering observed: no wait.
#[test]
fn three_sacked_make_the_window_zero() {
    let mut s = warmed(20);
    s.wait(100);
    s.sack(10, &[(11, 12)]);
    s.sack(10, &[(11, 13)]);
    assert_eq!(s.sack(10, &[(11, 14)]), [10]);
}

/// RACK finds a lost retransmission, which counting cannot: something sent after it arrived.
#[test]
fn a_lost_retransmission_is_found() {
    let mut s = warmed(100);
    s.wait(100);
    s.sack(10, &[(11, 14)]);
    let mut last = 21;
    s.wait(10);
    while s.sender.counts().retransmissions < 2 && last < 60 {
        // Everything but segment 10 arrives, a little later each.
        s.wait(10);
        s.sack(10, &[(11, last)]);
        last += 1;
    }
    assert_eq!(s.sender.counts().retransmissions, 2);
    assert_eq!(s.sender.counts().timeouts, 0);
}

/// Section 7.2: twice the round trip after the last transmission or ACK, the last segment
/// again; its SACK then shows what is missing.
#[test]
fn a_probe_finds_a_lost_tail() {
    let mut s = warmed(20);
    assert_eq!(s.timer(), Some(200));
    assert_eq!(s.expire().sent(), [19]);
    assert_eq!(s.sender.counts().probes, 1);
    s.wait(100);
    // 10 to 18 were lost; one SACK beyond, sent a round trip later than they: lost at once.
    let resent = s.sack(10, &[(19, 20)]);
    assert_eq!(resent.first(), Some(&10));
    assert_eq!(s.sender.counts().timeouts, 0);
}

/// Section 7.2: with one segment out the receiver may wait for a second: its longest delay
/// on top, but not beyond the timeout.
#[test]
fn a_probe_for_one_segment_waits_for_the_delayed_ack() {
    let mut s = Script::new(
        TcpConfig {
            initial_ssthresh: 5,
            ..with_rack()
        },
        11,
    );
    s.sent();
    s.wait(100);
    s.ack(10);
    // 2 srtt + 200 = 400 is later than the timeout of srtt + 200 = 300.
    assert_eq!(s.timer(), Some(300));
    assert_eq!(s.expire().sent(), [10]);
    assert_eq!(
        (s.sender.counts().probes, s.sender.counts().timeouts),
        (1, 0)
    );
}

/// Section 7.4.2: a probe that repaired the only loss costs half the window; one that the
/// receiver had already does not.
#[test]
fn a_probe_that_repaired_a_loss_is_a_loss() {
    let mut s = warmed(20);
    s.expire().sent();
    s.wait(100);
    let before = s.window();
    s.ack(20);
    assert_eq!(s.ssthresh(), before / 2);

    let mut s = warmed(20);
    s.expire().sent();
    s.wait(10);
    s.ack(19);
    s.dsack(20, &[(19, 20)]);
    assert!(s.window() >= before);
}

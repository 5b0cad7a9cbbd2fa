// SPDX-License-Identifier: Apache-2.0
//! RFC 6675, and RFC 6937 on top of it.

use crate::script::{NONE, Script, plain, range};
use slowpath_netsim::tcp::{Phase, TcpConfig};

fn with_sack() -> TcpConfig {
    TcpConfig {
        sack: true,
        ..plain()
    }
}

/// The first and the sixth of ten lost. Pipe (section 4) decides: 12 out with limited
/// transmit; after three SACKed, one lost and resent it is 9, and falls by one for each
/// further SACK; the sixth is lost once three beyond it arrived, when 7 SACKed and 2 lost
/// and 1 resent leave a pipe of 4 under a window of 5.
#[test]
fn two_losses_in_one_round_trip() {
    let mut s = Script::new(with_sack(), 100);
    s.sent();
    s.wait(100);
    assert_eq!(s.sack(0, &[(1, 2)]), [10]);
    assert_eq!(s.sack(0, &[(1, 3)]), [11]);
    assert_eq!(s.sack(0, &[(1, 4)]), [0]);
    assert_eq!(s.ssthresh(), 5);
    assert_eq!(s.sack(0, &[(1, 5)]), NONE);
    assert_eq!(s.sack(0, &[(6, 7), (1, 5)]), NONE);
    assert_eq!(s.sack(0, &[(6, 8), (1, 5)]), NONE);
    assert_eq!(s.sack(0, &[(6, 9), (1, 5)]), [5]);
    assert_eq!(s.sack(0, &[(6, 10), (1, 5)]), [12]);
    assert_eq!(s.sack(0, &[(6, 11), (1, 5)]), [13]);
    assert_eq!(s.sack(0, &[(6, 12), (1, 5)]), [14]);
    s.wait(100);
    // The first's copy arrives: 5 to 14 are out, 6 SACKed, one lost and resent: 4.
    assert_eq!(s.sack(5, &[(6, 12)]), [15]);
    assert_eq!(s.sender.phase(), Phase::Recovery);
    assert_eq!(s.ack(12), [16]);
    assert_eq!((s.window(), s.sender.phase()), (5, Phase::Open));
}

/// Reordering below the threshold is not loss.
#[test]
fn two_late_segments_are_not_lost() {
    let mut s = Script::new(with_sack(), 100);
    s.sent();
    s.wait(100);
    assert_eq!(s.sack(0, &[(1, 2)]), [10]);
    assert_eq!(s.sack(0, &[(1, 3)]), [11]);
    assert_eq!(s.ack(3), [12]);
    assert_eq!(s.sender.counts().retransmissions, 0);
    assert_eq!(s.sender.phase(), Phase::Open);
}

/// RFC 2883: a duplicate report says nothing of what is out.
#[test]
fn a_duplicate_report_marks_nothing() {
    let mut s = Script::new(with_sack(), 100);
    s.sent();
    s.wait(100);
    s.ack(4);
    assert_eq!(s.dsack(4, &[(0, 1)]), NONE);
    assert_eq!(s.sender.phase(), Phase::Open);
}

/// RFC 6937: 20 out, the first lost, ssthresh 10: while pipe is above ssthresh one segment
/// leaves for every two delivered, by ceil(delivered * 10 / 20) - out, and at the end the
/// window is ssthresh.
#[test]
fn proportional_rate_reduction_halves_the_rate() {
    let config = TcpConfig {
        initial_window: 20,
        initial_ssthresh: 20,
        proportional_rate_reduction: true,
        limited_transmit: false,
        ..with_sack()
    };
    let mut s = Script::new(config, 100);
    assert_eq!(s.sent(), range(0, 20));
    s.wait(100);
    assert_eq!(s.sack(0, &[(1, 2)]), NONE);
    assert_eq!(s.sack(0, &[(1, 3)]), NONE);
    // Delivered 1 here: ceil(10/20) = 1, the retransmission.
    assert_eq!(s.sack(0, &[(1, 4)]), [0]);
    assert_eq!(s.ssthresh(), 10);
    let mut sent = 1;
    for delivered in 2..=10u64 {
        let expected = (delivered * 10).div_ceil(20) - sent;
        let new = s.sack(0, &[(1, 3 + delivered)]);
        assert_eq!(new.len() as u64, expected, "delivered {delivered}");
        sent += expected;
    }
    for arrived in 14..=20u64 {
        s.sack(0, &[(1, arrived)]);
    }
    s.wait(100);
    s.ack(20);
    assert_eq!((s.window(), s.sender.phase()), (10, Phase::Open));
}

/// After a timeout what was SACKed is not sent again.
#[test]
fn a_timeout_keeps_what_arrived() {
    let config = TcpConfig {
        limited_transmit: false,
        ..with_sack()
    };
    let mut s = Script::new(config, 10);
    s.sent();
    s.wait(100);
    s.sack(0, &[(4, 5)]);
    s.sack(0, &[(4, 6)]);
    assert_eq!(s.expire().sent(), [0]);
    s.wait(100);
    assert_eq!(s.sack(1, &[(4, 6)]), [1, 2]);
    s.wait(100);
    // Slow start to ssthresh 5: two more for two acknowledged, four in all; 6 comes after 3.
    assert_eq!(s.sack(3, &[(4, 6)]), [3, 6, 7, 8]);
}

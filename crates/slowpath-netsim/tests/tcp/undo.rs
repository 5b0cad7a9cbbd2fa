// SPDX-License-Identifier: Apache-2.0
//! Reductions taken back: F-RTO (RFC 5682) and DSACK (RFC 3708), as Linux has them.

use crate::script::{NONE, Script, plain};
use slowpath_netsim::tcp::{Phase, TcpConfig};
use slowpath_switch::Span;

fn frto(sack: bool) -> TcpConfig {
    TcpConfig {
        sack,
        frto: true,
        rto_min: Span::from_millis(500),
        ..plain()
    }
}

fn dsack() -> TcpConfig {
    TcpConfig {
        frto: false,
        dsack_undo: true,
        ..frto(true)
    }
}

/// Ten are out and the timer expires: the first goes again, the window is one.
fn timed_out(config: TcpConfig, segments: u64) -> Script {
    let mut s = Script::new(config, segments);
    assert_eq!(s.sent().len(), 10);
    assert_eq!(s.expire().sent(), [0]);
    assert_eq!((s.window(), s.ssthresh()), (1, 5));
    s.wait(20);
    s
}

/// Section 3.1 step 3b with SACK: the second segment was sent once and arrived, so that
/// nothing was lost. Window and threshold are what they were; eight are out, two may follow.
#[test]
fn an_ack_of_what_was_sent_once_takes_the_timeout_back() {
    let mut s = timed_out(frto(true), 100);
    assert_eq!(s.ack(2), [10, 11]);
    assert_eq!((s.window(), s.ssthresh()), (10, 10));
    assert_eq!(s.sender.phase(), Phase::Open);
    assert_eq!(s.sender.counts().undone, 1);
    // The second copy of the first segment is a duplicate and changes nothing.
    assert_eq!(s.dsack(2, &[(0, 1)]), NONE);
    assert_eq!(s.sender.counts().undone, 1);
}

/// Without F-RTO everything goes again.
#[test]
fn without_it_the_window_starts_again() {
    let config = TcpConfig {
        frto: false,
        ..frto(true)
    };
    let mut s = timed_out(config, 100);
    assert_eq!(s.ack(2), [2, 3, 4]);
    assert_eq!(s.ssthresh(), 5);
}

/// Step 2b: an ACK of the segment that went twice says nothing. Two new ones follow; an ACK
/// of an old one after that says that the timeout was spurious, with SACK and without.
#[test]
fn after_the_first_ack_new_data_asks() {
    for sack in [true, false] {
        let mut s = timed_out(frto(sack), 100);
        assert_eq!(s.ack(1), [10, 11], "sack {sack}");
        assert_eq!(s.window(), 2);
        // Segments 2 to 11 are out, as many as the window before.
        assert_eq!(s.ack(2), NONE, "sack {sack}");
        assert_eq!((s.window(), s.ssthresh()), (10, 10));
        assert_eq!(s.ack(3), [12], "sack {sack}");
    }
}

/// Without SACK the first ACK never decides, as it may be of the second copy and of what the
/// receiver had beyond it.
#[test]
fn without_sack_it_takes_two_acks() {
    let mut s = timed_out(frto(false), 100);
    // Slow start by the four that it acknowledges: a window of five new ones.
    assert_eq!(s.ack(4), [10, 11, 12, 13, 14]);
    assert_eq!((s.window(), s.ssthresh()), (5, 5));
    s.ack(5);
    assert_eq!((s.window(), s.ssthresh()), (10, 10));
}

/// Step 3a: the new segments arrive and the old do not, so they were lost.
#[test]
fn a_duplicate_ack_says_that_the_loss_was_real() {
    let mut s = timed_out(frto(true), 100);
    assert_eq!(s.ack(1), [10, 11]);
    // One of two new ones is left in the network; the window of two has room for one.
    assert_eq!(s.sack(1, &[(10, 11)]), [1]);
    assert_eq!(s.ssthresh(), 5);
    // Later ACKs take nothing back: in slow start each gives two.
    s.wait(20);
    s.sack(2, &[(10, 12)]);
    assert_eq!((s.ssthresh(), s.sender.counts().undone), (5, 0));

    let mut s = timed_out(frto(false), 100);
    assert_eq!(s.ack(1), [10, 11]);
    assert_eq!(s.ack(1), [1]);
    s.wait(20);
    s.ack(2);
    assert_eq!((s.ssthresh(), s.sender.counts().undone), (5, 0));
}

/// Step 2b: with nothing new to send the old goes again.
#[test]
fn without_new_data_recovery_is_as_ever() {
    let mut s = timed_out(frto(true), 10);
    assert_eq!(s.ack(1), [1, 2]);
    // Segment 3 went once, but the question was given up.
    s.ack(4);
    assert_eq!((s.ssthresh(), s.sender.counts().undone), (5, 0));
}

/// Section 3.2: the same segment may time out again.
#[test]
fn a_second_timeout_of_the_same_segment_can_be_spurious() {
    let mut s = timed_out(frto(true), 100);
    assert_eq!(s.expire().sent(), [0]);
    s.wait(20);
    assert_eq!(s.ack(2), [10, 11]);
    assert_eq!((s.window(), s.ssthresh()), (10, 10));
}

/// Step 1: not after a fast recovery that is not over.
#[test]
fn a_timeout_in_a_recovery_is_not_asked() {
    let mut s = Script::new(frto(true), 100);
    s.sent();
    s.wait(20);
    s.sack(0, &[(1, 2)]);
    s.sack(0, &[(1, 3)]);
    assert_eq!(s.sack(0, &[(1, 4)])[0], 0);
    assert_eq!(s.sender.phase(), Phase::Recovery);
    assert_eq!(s.expire().sent(), [0]);
    s.wait(20);
    s.sack(5, &[]);
    assert_eq!(s.sender.phase(), Phase::Loss);
    assert_eq!(s.sender.counts().undone, 0);
}

/// Three segments overtook the first: it went again, and then both arrived. Limited transmit
/// sent 10 and 11 before; of 4 to 11 eight are out, the window is ten again.
#[test]
fn a_dsack_takes_a_recovery_back() {
    for (undo, window, sent) in [(true, 10, vec![12, 13]), (false, 5, vec![])] {
        let config = TcpConfig {
            dsack_undo: undo,
            ..dsack()
        };
        let mut s = Script::new(config, 100);
        s.sent();
        s.wait(20);
        s.sack(0, &[(1, 2)]);
        s.sack(0, &[(1, 3)]);
        assert_eq!(s.sack(0, &[(1, 4)]), [0]);
        assert_eq!((s.window(), s.ssthresh()), (5, 5));
        assert_eq!(s.ack(4), NONE);
        assert_eq!(s.dsack(4, &[(0, 1)]), sent);
        assert_eq!(s.window(), window);
    }
}

/// One of two that went again was lost.
#[test]
fn as_many_dsacks_as_retransmissions_are_needed() {
    let mut s = Script::new(dsack(), 100);
    s.sent();
    s.wait(20);
    s.sack(0, &[(2, 3)]);
    s.sack(0, &[(2, 4)]);
    assert_eq!(s.sack(0, &[(2, 5)])[0], 0);
    // The window is five; of ten and two more, five are missing or there.
    s.wait(20);
    s.sack(0, &[(2, 9)]);
    assert_eq!(s.sender.counts().retransmissions, 2);
    s.dsack(9, &[(0, 1)]);
    assert_eq!((s.ssthresh(), s.sender.counts().undone), (5, 0));
    s.dsack(9, &[(1, 2)]);
    assert_eq!((s.ssthresh(), s.sender.counts().undone), (10, 1));
}

/// The only segment that went again after a timeout had arrived before.
#[test]
fn a_dsack_takes_a_timeout_back() {
    let mut s = timed_out(dsack(), 100);
    assert_eq!(s.dsack(2, &[(0, 1)]), [10, 11]);
    assert_eq!((s.window(), s.ssthresh()), (10, 10));
}

/// What a mark took is not given back.
#[test]
fn a_reduction_for_marks_stays() {
    let config = TcpConfig {
        ecn: slowpath_netsim::tcp::Ecn::Classic,
        ..frto(true)
    };
    let mut s = Script::new(config, 100);
    s.sent();
    s.wait(20);
    s.ack_echo(1);
    assert_eq!(s.ssthresh(), 5);
    s.expire().sent();
    s.wait(20);
    s.ack(3);
    assert_eq!(s.sender.phase(), Phase::Open);
    assert_eq!(s.ssthresh(), 5);
}

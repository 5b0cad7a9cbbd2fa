// SPDX-License-Identifier: Apache-2.0
//! RFC 6298, and Linux's way with it.

use crate::script::{NONE, Script, plain};
use slowpath_netsim::tcp::{RtoEstimator, TcpConfig};
use slowpath_switch::Span;

fn with_minimum(ms: u64) -> TcpConfig {
    TcpConfig {
        rto_min: Span::from_millis(ms),
        initial_window: 2,
        initial_ssthresh: 2,
        ..plain()
    }
}

/// (2.1), (5.5): one second, doubled at each expiry, and at most the maximum.
#[test]
fn the_timer_starts_at_a_second_and_doubles() {
    let config = TcpConfig {
        rto_max: Span::from_secs(3),
        ..with_minimum(1)
    };
    let mut s = Script::new(config, 2);
    s.sent();
    assert_eq!(s.timer(), Some(1_000));
    assert_eq!(s.expire().sent(), [0]);
    assert_eq!(s.timer(), Some(2_000));
    assert_eq!(s.expire().sent(), [0]);
    assert_eq!(s.timer(), Some(3_000));
}

/// (2.2): srtt = R, rttvar = R / 2, so 3 R. (2.3): for R' = 180 after R = 100:
/// rttvar = 3/4 50 + 1/4 80 = 57.5, srtt = 7/8 100 + 1/8 180 = 110, so 340.
#[test]
fn the_timeout_follows_the_samples() {
    let mut s = Script::new(with_minimum(1), 100);
    s.sent();
    s.wait(100);
    s.ack(2);
    assert_eq!(s.timer(), Some(300));
    s.wait(180);
    s.ack(4);
    assert_eq!(s.timer(), Some(340));
}

/// (2.4): not below the minimum.
#[test]
fn the_minimum_holds() {
    let mut s = Script::new(with_minimum(1_000), 100);
    s.sent();
    s.wait(100);
    s.ack(2);
    assert_eq!(s.timer(), Some(1_000));
}

/// (5.1) to (5.3): the first segment starts the timer, an ACK of new data starts it again,
/// an ACK of everything stops it.
#[test]
fn what_starts_and_stops_the_timer() {
    let mut s = Script::new(with_minimum(1), 3);
    s.sent();
    s.wait(90);
    assert_eq!(s.timer(), Some(910));
    s.ack(1);
    assert_eq!(s.timer(), Some(270));
    s.wait(30);
    assert_eq!(s.ack(1), NONE);
    assert_eq!(s.timer(), Some(240));
    s.ack(3);
    assert_eq!(s.timer(), None);
}

/// Karn: what was sent twice measures nothing.
#[test]
fn a_retransmission_is_no_sample() {
    let mut s = Script::new(with_minimum(1), 1);
    s.sent();
    s.expire().sent();
    s.wait(50);
    s.ack(1);
    assert_eq!(s.sender.rtt().smoothed(), None);
}

/// RFC 5681 section 3.1: after a timeout the window is one, the threshold half of the
/// flight, once for a flight; then slow start.
#[test]
fn a_timeout_begins_with_one_segment() {
    let config = TcpConfig {
        rto_min: Span::from_millis(1),
        ..plain()
    };
    let mut s = Script::new(config, 100);
    s.sent();
    assert_eq!(s.expire().sent(), [0]);
    assert_eq!((s.window(), s.ssthresh()), (1, 5));
    assert_eq!(s.expire().sent(), [0]);
    assert_eq!((s.window(), s.ssthresh()), (1, 5));
    s.wait(20);
    assert_eq!(s.ack(1), [1, 2]);
    s.wait(20);
    assert_eq!(s.ack(3), [3, 4, 5, 6]);
    s.wait(20);
    // From 4 to the threshold of 5, then a segment a round trip.
    assert_eq!(s.ack(7), [7, 8, 9, 10, 11]);
    assert_eq!(s.window(), 5);
}

/// Linux: the floor is under the variance. R = 10: srtt 10, variance max(2 R, 200).
#[test]
fn linux_adds_the_minimum_to_the_round_trip() {
    let config = TcpConfig {
        rto_estimator: RtoEstimator::Linux,
        ..with_minimum(200)
    };
    let mut s = Script::new(config, 100);
    s.sent();
    s.wait(10);
    s.ack(2);
    assert_eq!(s.timer(), Some(210));
    // Smaller ones change the mean only: 7/8 10 + 1/8 2 = 9.
    s.wait(2);
    s.ack(4);
    assert_eq!(s.timer(), Some(209));
}

/// Linux: a deviation beyond the minimum counts at once. R = 200: the variance is 400; then
/// R' = 600: the error is 400, mdev = 3/4 400 + 400 = 700, srtt = 7/8 200 + 1/8 600 = 250.
#[test]
fn linux_takes_a_larger_deviation_at_once() {
    let config = TcpConfig {
        rto_estimator: RtoEstimator::Linux,
        ..with_minimum(200)
    };
    let mut s = Script::new(config, 100);
    s.sent();
    s.wait(200);
    s.ack(2);
    assert_eq!(s.timer(), Some(600));
    s.wait(600);
    s.ack(4);
    assert_eq!(s.timer(), Some(950));
}

/// SYNs: 1 s, doubled; the answer opens the connection.
#[test]
fn a_handshake_comes_first() {
    let config = TcpConfig {
        handshake: true,
        ..plain()
    };
    let mut s = Script::new(config.clone(), 3);
    let syn = s.sender.poll_transmit(&config, s.now).expect("a SYN");
    assert!(syn.syn && syn.len == 0);
    assert_eq!(s.sent(), NONE);
    assert_eq!(s.timer(), Some(1_000));
    s.expire();
    assert!(s.sender.poll_transmit(&config, s.now).expect("a SYN").syn);
    assert_eq!(s.timer(), Some(2_000));
    s.wait(30);
    let answer = slowpath_netsim::tcp::Ack {
        window: 1 << 20,
        syn: true,
        ..Default::default()
    };
    s.sender.on_ack(&config, s.now, &answer);
    assert_eq!(s.sent(), [0, 1, 2]);
}

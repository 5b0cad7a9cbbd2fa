// SPDX-License-Identifier: Apache-2.0
//! A full window and a late ACK at once.

mod segments;

use segments::{FULL, Timeline};
use slowpath_model::Problem;
use slowpath_trace::verdict::Limit;

const RTT: i64 = 20_000;

/// The window has room for one segment, whose ACK comes 40 ms late, when the application has
/// read: an ACK in time would have opened nothing.
#[test]
fn a_late_ack_of_a_full_window_is_the_windows() {
    let mut t = Timeline::handshake(RTT, 20);
    let window = u16::try_from(FULL).expect("fits");
    for line in &mut t.lines {
        line.window = window;
    }
    for m in 0..20 {
        let (at, first) = (100_000 + 60_000 * i64::from(m), 1 + m * FULL);
        t.data(at, first, FULL);
        t.ack(at + 60_000 - 5, first + FULL).window = window;
    }
    let judged = t.judge();
    let verdict = &judged.verdicts.from_client;
    assert_eq!(verdict.dominating, Problem::ReceiverWindowLimited);
    let full = verdict
        .line
        .shares()
        .of(Limit::ReceiverWindow)
        .as_secs_f64();
    // Of the 20 times 60 ms; nothing followed the last.
    assert!((full - 19.0 * 0.060).abs() < 0.002, "{full} s");
}

/// An ACK comes 60 ms late and closes the window; the next segment leaves when the window opens 320 ms
/// later. An ACK in time would have let nothing go.
#[test]
fn a_late_ack_that_closes_the_window_held_nothing() {
    let mut t = Timeline::handshake(RTT, 20);
    for m in 0..4 {
        let (at, first) = (100_000 + 50_000 * i64::from(m), 1 + m * FULL);
        t.data(at, first, FULL);
        t.ack(at + RTT, first + FULL);
    }
    t.data(400_000, 1 + 4 * FULL, FULL);
    t.ack(400_000 + RTT + 60_000, 1 + 5 * FULL).window = 0;
    t.ack(800_000, 1 + 5 * FULL);
    t.data(800_050, 1 + 5 * FULL, FULL);
    t.ack(800_050 + RTT, 1 + 6 * FULL);
    let judged = t.judge();
    let shares = judged.verdicts.from_client.line.shares();
    assert_eq!(shares.of(Limit::DelayedAck).as_nanos(), 0);
    let closed = shares.of(Limit::ZeroWindow).as_secs_f64();
    assert!((closed - 0.320).abs() < 0.002, "{closed} s");
}

/// A loopback device: an MSS of 65,495 and windows of 65,535. A sender does not wait for room for
/// more than half of the largest window (RFC 9293 section 3.8.6.2.1): a request of 512 bytes
/// leaves enough, whatever the MSS.
#[test]
fn a_window_of_one_segment_is_no_limit_to_small_ones() {
    let mut t = Timeline::handshake(60, 30);
    t.mss = Some(65_495);
    for m in 0..20 {
        let (at, first) = (1_000 + 1_000 * i64::from(m), 1 + m * 512);
        t.data(at, first, 512);
        t.ack(at + 20, first + 512);
    }
    for line in &mut t.lines {
        line.window = 65_535;
    }
    let judged = t.judge();
    let verdict = &judged.verdicts.from_client;
    assert!(verdict.finding(Problem::ReceiverWindowLimited).is_none());
    let shares = verdict.line.shares();
    assert!(shares.of(Limit::ReceiverWindow).is_zero());
}

/// The same with as much as the window takes, and an ACK 20 ms later: that is a limit.
#[test]
fn a_window_of_one_segment_is_a_limit_when_it_is_full() {
    let mut t = Timeline::handshake(20_000, 30);
    t.mss = Some(65_495);
    for m in 0..20 {
        let (at, first) = (100_000 + 20_000 * i64::from(m), 1 + m * 65_000);
        t.data(at, first, 32_500);
        t.data(at + 10, first + 32_500, 32_500);
        t.ack(at + 19_990, first + 65_000);
    }
    for line in &mut t.lines {
        line.window = 65_535;
    }
    let judged = t.judge();
    let verdict = &judged.verdicts.from_client;
    assert_eq!(verdict.dominating, Problem::ReceiverWindowLimited);
}

/// Twenty times: two segments leave half of one free, their ACK opens nothing, and an update 40 ms
/// later lets the next go, the first of `next` bytes.
fn blocked(next: u32) -> f64 {
    let mut t = Timeline::handshake(RTT, 20);
    for line in &mut t.lines {
        line.window = 2_500;
    }
    let mut first = 1;
    for m in 0..20 {
        let at = 100_000 + 60_000 * i64::from(m);
        let length = if m == 0 { FULL } else { next };
        t.data(at, first, length);
        t.data(at + 10, first + length, FULL);
        first += length + FULL;
        t.ack(at + RTT, first).window = 500;
        t.ack(at + 60_000 - 5, first).window = 2_500;
    }
    let judged = t.judge();
    let shares = judged.verdicts.from_client.line.shares();
    shares.of(Limit::ReceiverWindow).as_secs_f64()
}

/// With nothing under way only the update can let a full segment go (RFC 9293 section
/// 3.8.6.2.1): the receiver's, and not the application's.
#[test]
fn a_window_of_half_a_segment_blocks_with_nothing_under_way() {
    let full = blocked(FULL);
    // Nothing followed the last.
    assert!((full - 19.0 * 0.060).abs() < 0.002, "{full} s");
}

/// A segment of 100 bytes would have fitted: the application wrote it later.
#[test]
fn a_segment_that_would_have_fitted_was_not_blocked() {
    let full = blocked(100);
    assert!(full < 19.0 * 0.021, "{full} s");
}

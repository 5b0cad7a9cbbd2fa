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

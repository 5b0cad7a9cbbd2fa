// SPDX-License-Identifier: Apache-2.0
//! What a path delivers: its rate and its queue, from timelines with known ones.

mod segments;

use segments::{FULL, Timeline};
use slowpath_trace::tcp::Side;
use slowpath_trace::verdict::PathRate;
use std::time::Duration;

/// A round trip without a queue.
const RTT: i64 = 20_000;

/// The bottleneck sends a segment in this time: 1,000 bytes in 10 ms.
const PACE: i64 = 10_000;

/// Segment `n` is acknowledged as the bottleneck lets it through, ten are under way: nine wait.
fn bulk(segments: u32) -> Timeline {
    let mut t = Timeline::handshake(RTT, 20);
    let arrives = |n: u32| 100_000 + RTT + i64::from(n) * PACE;
    for n in 0..segments {
        let at = if n < 10 { 100_000 } else { arrives(n - 10) };
        t.data(at + i64::from(n % 10), 1 + n * FULL, FULL);
        t.ack(arrives(n), 1 + (n + 1) * FULL);
    }
    t
}

fn path(t: &Timeline) -> PathRate {
    t.judge().verdicts.from_client.path
}

fn is_about(what: &str, found: u64, expected: u64) {
    let error = found.abs_diff(expected) as f64 / expected as f64;
    assert!(error < 0.02, "{what}: {found}, not {expected}");
}

#[test]
fn the_bottleneck_and_its_queue_are_known_at_the_sender_and_on_the_way() {
    let at_sender = bulk(100);
    // The path's half of 5 ms lies between the sender and the capture.
    for (place, t) in [
        ("sender", at_sender.clone()),
        ("middle", at_sender.captured_at(5_000, 5_000)),
    ] {
        let path = path(&t);
        is_about(place, path.bytes_per_second.expect("known"), 100_000);
        let least = path.least_rtt.expect("known");
        assert!((19..=21).contains(&least.as_millis()), "{place}: {least:?}");
        // Ten segments of 10 ms: 100 ms, known to an eighth.
        let high = path.high_rtt.expect("known").as_millis();
        assert!((88..=113).contains(&high), "{place}: {high} ms");
        let queue = path.queue().expect("known");
        assert_eq!(Some(queue), path.high_rtt.map(|h| h - least), "{place}");
        is_about(
            place,
            path.queued_bytes().expect("known"),
            queue.as_millis() as u64 * 100,
        );
    }
}

/// At the receiver data are acknowledged when they come: the rate shows, the queue does not.
#[test]
fn at_the_receiver_the_queue_is_not_known() {
    let mut t = bulk(100);
    let from_sender: Vec<i64> = t.lines.iter().map(|l| l.at_us).collect();
    for (line, at) in t.lines.iter_mut().zip(from_sender) {
        // What is sent arrives when its ACK leaves; the handshake's path is 20 ms.
        line.at_us = match (line.side, line.length) {
            (Side::Client, FULL) => 100_000 + RTT + i64::from(line.sequence / FULL) * PACE - 20,
            (Side::Client, _) => at + RTT,
            (Side::Server, _) if at < 100_000 => RTT + 20,
            (Side::Server, _) => at,
        };
    }
    t.lines[0].at_us = RTT;
    t.lines[2].at_us = 2 * RTT + 20;
    let path = path(&t);
    is_about("rate", path.bytes_per_second.expect("known"), 100_000);
    assert_eq!(path.high_rtt, None);
    assert_eq!(path.queue(), None);
}

/// draft-cheng-iccrg-delivery-rate-estimation section 3.3: what the application limits says nothing of
/// the path.
#[test]
fn an_application_that_pauses_shows_no_rate() {
    let mut t = Timeline::handshake(RTT, 20);
    for m in 0..30 {
        let at = 100_000 + 200_000 * i64::from(m);
        for n in 0..9 {
            t.data(at + i64::from(n), 1 + (9 * m + n) * FULL, FULL);
            t.ack(at + RTT + i64::from(n), 1 + (9 * m + n + 1) * FULL);
        }
    }
    let path = path(&t);
    assert_eq!(path.bytes_per_second, None);
    assert_eq!(path.queued_bytes(), None);
    // The path, and the 20 µs that the client took for its ACK.
    assert_eq!(path.least_rtt, Some(Duration::from_micros(20_020)));
}

// SPDX-License-Identifier: Apache-2.0
//! Captures that begin within a connection: what cannot be known without its beginning is not claimed.

mod segments;

use segments::{FULL, Timeline};
use slowpath_model::Problem;
use slowpath_trace::tcp::Side;
use slowpath_trace::verdict::{DirectionVerdict, Limit, TraceProblem};
use std::time::Duration;

const WAY: i64 = 10_000;
const RTT: i64 = 2 * WAY;

/// From the sender, from half way and from the receiver.
fn everywhere(t: &Timeline) -> [DirectionVerdict; 3] {
    [0, WAY / 2, WAY].map(|way| t.captured_at(way, way).judge().verdicts.from_client)
}

fn delayed(verdict: &DirectionVerdict) -> Duration {
    verdict.line.shares().of(Limit::DelayedAck)
}

/// A path of 20 ms whose bottleneck takes 40 ms for a full segment. The sender has four under way, and the
/// receiver acknowledges every second: 20 ms + 2 · 40 ms after the first was sent, and 80 ms later. The capture
/// begins with the last two of a flight.
#[test]
fn acks_paced_by_a_slow_link_are_not_late() {
    let mut t = Timeline::default();
    t.data(0, 1, FULL);
    t.data(10, 1 + FULL, FULL);
    t.ack(100_000, 1);
    t.ack(180_000, 1 + 2 * FULL);
    for n in 1..8 {
        let (at, first) = (180_050 * n, 1 + 2 * FULL + (n as u32 - 1) * 4 * FULL);
        for i in 0..4 {
            t.data(at + i * 10, first + i as u32 * FULL, FULL);
        }
        t.ack(at + 100_000, first + 2 * FULL);
        t.ack(at + 180_000, first + 4 * FULL);
    }
    for verdict in everywhere(&t) {
        assert_eq!(delayed(&verdict), Duration::ZERO);
    }
}

/// One segment at a time. The last ACK is kept back for 60 ms, and the next segment leaves with it.
#[test]
fn a_late_ack_is_found_where_others_came_in_time() {
    let mut t = Timeline::default();
    for n in 0..4 {
        t.data(n * 50_000, 1 + n as u32 * FULL, FULL);
        t.ack(n * 50_000 + RTT, 1 + (n as u32 + 1) * FULL);
    }
    t.data(200_000, 1 + 4 * FULL, FULL);
    t.ack(200_000 + RTT + 60_000, 1 + 5 * FULL);
    t.data(280_050, 1 + 5 * FULL, FULL);
    t.ack(280_050 + RTT, 1 + 6 * FULL);
    // Elsewhere nothing of the server's shows how far away the sender is.
    let verdict = t.judge().verdicts.from_client;
    let found = delayed(&verdict).as_secs_f64();
    assert!((found - 0.06).abs() < 0.0015, "{found} s");
    assert!(!verdict.unmeasured.contains(Problem::DelayedAck));
}

/// Every ACK comes 60 ms after its segment, and nothing shows how long the path takes by itself.
#[test]
fn late_acks_only_cannot_be_distinguished() {
    let mut t = Timeline::default();
    for n in 0..6 {
        t.data(n * 60_050, 1 + n as u32 * 100, 100);
        t.ack(n * 60_050 + 60_000, 1 + (n as u32 + 1) * 100);
    }
    let verdict = t.judge().verdicts.from_client;
    assert_eq!(delayed(&verdict), Duration::ZERO);
    assert!(verdict.unmeasured.contains(Problem::DelayedAck));
}

/// Numbers below those of the side's first segment, a millisecond after it: overtaken or sent again.
#[test]
fn what_may_have_been_sent_again_is_not_called_overtaken() {
    let mut t = Timeline::default();
    t.data(0, 1 + 4 * FULL, FULL).ip_id = None;
    t.data(1_000, 1, FULL).ip_id = None;
    t.ack(1_000 + RTT, 1 + 5 * FULL);
    let judged = t.judge();
    let mut found = judged.verdicts.findings.iter();
    assert!(found.all(|f| f.problem != TraceProblem::Reordering));
    assert_eq!(judged.report.sent_by(Side::Client).order.ambiguous, 1);
}

/// What was sent before the capture began and is captured when it is sent again is acknowledged with the
/// rest.
#[test]
fn data_sent_again_from_before_the_capture_was_delivered() {
    let mut t = Timeline::default();
    t.data(0, 1 + FULL, FULL);
    t.data(10_000, 1, FULL);
    t.ack(30_000, 1 + 2 * FULL);
    let report = t.judge().report;
    let data = &report.sent_by(Side::Client).data;
    assert_eq!((data.acked_bytes, data.undelivered()), (2_000, 0));
}

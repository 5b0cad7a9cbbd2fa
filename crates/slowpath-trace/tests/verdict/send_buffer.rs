// SPDX-License-Identifier: Apache-2.0
//! Send buffers that are full, and what looks like them.

use super::*;
use std::collections::VecDeque;

/// The same eight segments each round trip, for two seconds: no window stays so.
#[test]
fn a_constant_flight_is_inferred_to_be_the_send_buffer() {
    let mut t = opened();
    let (mut at, mut next) = (100_000, 1);
    for _ in 0..100 {
        for i in 0..8 {
            t.data(at + i64::from(i), next + i * FULL, FULL);
        }
        next += 8 * FULL;
        t.ack(at + 10 + RTT, next);
        at += RTT + 30;
    }
    for (place, judged) in everywhere(&t) {
        let verdict = verdict(&judged);
        assert_eq!(verdict.dominating, Problem::SendBufferLimited, "{place}");
        assert!(
            verdict.inferred.contains(Problem::SendBufferLimited),
            "{place}"
        );
        assert!(time(&judged, Limit::SendBuffer) > 1_900.0, "{place}");
    }
}

/// Twenty segments at once whose ACKs come in two parts, 6 ms one after the other; the writer goes
/// on after the second. A round that begins at the first has half as much under way.
#[test]
fn a_constant_flight_in_bursts_is_the_send_buffer_too() {
    let mut t = opened();
    let (mut at, mut next) = (100_000, 1);
    for _ in 0..80 {
        for i in 0..20 {
            t.data(at + i64::from(i), next + i * FULL, FULL);
        }
        t.ack(at + 30 + RTT, next + 10 * FULL);
        next += 20 * FULL;
        t.ack(at + 6_030 + RTT, next);
        at += RTT + 6_050;
    }
    for (place, judged) in everywhere(&t) {
        let verdict = verdict(&judged);
        assert_eq!(verdict.dominating, Problem::SendBufferLimited, "{place}");
    }
}

/// Fourteen segments, one every 500 us, of which each two are acknowledged; the writer fills its
/// buffer again when a third of it is free. In every burst there is a pause of 1.2 ms, with which a round may begin:
/// that round has no part in the 15 ms until the next burst.
#[test]
fn a_round_that_begins_within_a_burst_is_judged_with_the_silence_before_it() {
    let mut t = opened();
    let mut events = Vec::new();
    let mut at = 100_000;
    for burst in 0..100 {
        let sent = |i: i64| at + 500 * i + if i < 7 { 0 } else { 700 };
        for i in 0..14u32 {
            let next = 1 + (14 * burst + i) * FULL;
            events.push((sent(i64::from(i)), true, next));
            if i % 2 == 1 {
                events.push((sent(i64::from(i)) + RTT + 10, false, next + FULL));
            }
        }
        at = sent(5) + RTT + 60;
    }
    events.sort_unstable();
    for (at, data, number) in events {
        if data {
            t.data(at, number, FULL);
        } else {
            t.ack(at, number);
        }
    }
    for (place, judged) in everywhere(&t) {
        let verdict = verdict(&judged);
        assert_eq!(verdict.dominating, Problem::SendBufferLimited, "{place}");
        assert!(time(&judged, Limit::SendBuffer) > 2_000.0, "{place}");
    }
}

/// Six writes of a full segment and a fifth each round trip, without Nagle's algorithm: half of the
/// segments are not full, but five of six bytes are in full ones.
#[test]
fn writes_that_end_with_less_than_a_segment_fill_a_buffer_too() {
    let mut t = opened();
    let (mut at, mut next) = (100_000, 1);
    for _ in 0..100 {
        for write in 0..6 {
            t.data(at + 2 * write, next, FULL);
            t.data(at + 2 * write + 1, next + FULL, 200);
            next += FULL + 200;
        }
        t.ack(at + 12 + RTT, next);
        at += RTT + 30;
    }
    for (place, judged) in everywhere(&t) {
        let verdict = verdict(&judged);
        assert_eq!(verdict.dominating, Problem::SendBufferLimited, "{place}");
    }
}

/// Eight segments arrive from elsewhere every 20.75 ms, one every 500 us, and are passed on. Each ACK
/// comes one round trip later, 250 us before the next segment: that follows no ACK.
#[test]
fn what_is_passed_on_at_a_constant_rate_fills_no_buffer() {
    let mut t = opened();
    let mut next = 1;
    for round in 0..100 {
        for i in 0..8 {
            let at = 100_000 + 20_750 * round + 500 * i;
            t.data(at, next, FULL);
            next += FULL;
            t.ack(at + RTT, next);
        }
    }
    let judged = t.judge();
    assert!(verdict(&judged).findings.is_empty());
    is_about("full", time(&judged, Limit::SendBuffer), 0.0);
}

/// A writer that is woken when a third of its buffer is free and fills it again: so often,
/// and so long after the ACK, in microseconds. The buffer holds 24 segments six times, then 32 six times. The bottleneck
/// takes 500 us a segment, and the receiver acknowledges two at once. Gives the time from the last
/// segment of each burst to the first of the next, too, in ms.
fn refilled(times: usize, late: i64) -> (Timeline, f64) {
    let mut t = opened();
    let mut sent: u32 = 0;
    let mut acked = 0;
    let mut silent = 0;
    // When the bottleneck is free.
    let mut free = 0;
    let mut acks: VecDeque<(i64, u32)> = VecDeque::new();
    let mut burst = |t: &mut Timeline, acks: &mut VecDeque<_>, at: i64, to: u32| {
        let from = sent;
        for i in from..to {
            t.data(at + i64::from(i - from), 1 + i * FULL, FULL);
        }
        for pair in from / 2..to / 2 {
            free = (at + RTT).max(free) + 1_000;
            acks.push_back((free, 2 * pair + 2));
        }
        sent = to;
        at + i64::from(to - from) - 1
    };
    let room = |fill: usize| if (fill / 6).is_multiple_of(2) { 24 } else { 32 };
    let mut last = burst(&mut t, &mut acks, 100_000, room(0));
    let (mut fills, mut up_to) = (1, room(0));
    while let Some((at, ack)) = acks.pop_front() {
        t.ack(at, 1 + ack * FULL);
        acked = acked.max(ack);
        let holds = room(fills - 1).min(room(fills));
        if fills <= times && 3 * (up_to - acked) <= 2 * holds {
            silent += at + late - last;
            up_to = acked + room(fills);
            last = burst(&mut t, &mut acks, at + late, up_to);
            fills += 1;
        }
    }
    (t, silent as f64 / 1e3)
}

#[test]
fn a_buffer_that_is_filled_again_when_a_third_is_free_limits() {
    let (t, silent) = refilled(60, 50);
    let judged = t.judge();
    assert!(
        verdict(&judged)
            .inferred
            .contains(Problem::SendBufferLimited)
    );
    is_about("full", time(&judged, Limit::SendBuffer), silent);
}

/// BBR lets nothing go once in ten seconds.
#[test]
fn two_refills_are_not_enough() {
    let (two, _) = refilled(2, 50);
    is_about("full", time(&two.judge(), Limit::SendBuffer), 0.0);
    let (three, silent) = refilled(3, 50);
    is_about("full", time(&three.judge(), Limit::SendBuffer), silent);
}

/// The same bursts, 300 us after an ACK: an application that sends at its own times.
#[test]
fn bursts_that_follow_no_ack_fill_no_buffer() {
    let (t, _) = refilled(60, 300);
    is_about("full", time(&t.judge(), Limit::SendBuffer), 0.0);
}

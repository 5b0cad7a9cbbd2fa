// SPDX-License-Identifier: Apache-2.0
//! What was lost, and how that was found out.

use super::*;

/// Eleven segments, the second lost, repaired by fast retransmission one round trip later.
fn one_loss() -> Timeline {
    let mut t = opened();
    let at = 100_000;
    for i in 0..11 {
        t.data(at + i64::from(i) * 100, 1 + i * FULL, FULL);
    }
    t.ack(at + RTT, 1 + FULL);
    for i in 2..11 {
        let sacked = (1 + 2 * FULL, 1 + (i + 1) * FULL);
        t.ack(at + RTT + i64::from(i) * 100, 1 + FULL).sack = vec![sacked];
    }
    t.data(at + RTT + 450, 1 + FULL, FULL);
    t.ack(at + 2 * RTT + 450, 1 + 11 * FULL);
    // And more of the same.
    t.data(300_000, 1 + 11 * FULL, FULL);
    t.ack(300_000 + RTT, 1 + 12 * FULL);
    t
}

#[test]
fn fast_retransmission_is_found() {
    for (place, judged) in everywhere(&one_loss()) {
        let verdict = verdict(&judged);
        assert_eq!(verdict.dominating, Problem::FastRetransmit, "{place}");
        is_about(place, time(&judged, Limit::Recovery), 20.0);
        let finding = verdict.finding(Problem::FastRetransmit).expect("found");
        assert_eq!(finding.events, Some(1), "{place}");
        assert_eq!(
            verdict.messages.with(Category::FastRetransmit),
            1,
            "{place}"
        );
        assert_eq!(
            verdict.messages.with(Category::LateFastRetransmit),
            0,
            "{place}"
        );
        assert_eq!(verdict.losses.origin, Origin::TooFewLosses, "{place}");
    }
}

/// DETER section 5.2: the third duplicate ACK does not start it, another message does, 80 ms
/// later.
#[test]
fn a_late_fast_retransmission_is_distinguished_from_one_in_time() {
    let mut t = one_loss();
    let first_loss = |l: &Line| l.at_us < 100_000 + RTT + 450 || l.ack == 1 + FULL;
    t.lines.retain(first_loss);
    let at = 180_000;
    t.data(at, 1 + 11 * FULL, FULL);
    t.ack(at + RTT, 1 + FULL).sack = vec![(1 + 2 * FULL, 1 + 12 * FULL)];
    t.data(at + RTT + 50, 1 + FULL, FULL);
    t.ack(at + 2 * RTT + 50, 1 + 12 * FULL);
    t.data(500_000, 1 + 12 * FULL, FULL);
    t.ack(500_000 + RTT, 1 + 13 * FULL);
    for (place, judged) in everywhere(&t) {
        let messages = &verdict(&judged).messages;
        assert_eq!(
            messages.with(Category::LateFastRetransmit),
            1,
            "{place}: {messages:?}"
        );
        let message = &messages.slowest[0];
        let cause = message
            .causes
            .iter()
            .find(|c| c.category == Category::LateFastRetransmit);
        // From the first duplicate ACK, 200 µs after the first ACK, to the retransmission.
        is_about(place, ms(cause.expect("found").time), 79.85);
    }
}

/// Three segments, the last two lost; the timer expires after 500 ms, twice.
#[test]
fn a_timeout_and_a_lost_tail() {
    let mut t = opened();
    let at = 100_000;
    for i in 0..3 {
        t.data(at + i64::from(i) * 10, 1 + i * FULL, FULL);
    }
    t.ack(at + RTT, 1 + FULL);
    t.data(at + 500_000, 1 + FULL, FULL);
    t.data(at + 1_500_000, 1 + FULL, FULL);
    t.ack(at + 1_500_000 + RTT, 1 + 2 * FULL);
    t.data(at + 1_500_000 + RTT + 20, 1 + 2 * FULL, FULL);
    t.ack(at + 1_500_000 + 2 * RTT + 20, 1 + 3 * FULL);
    t.data(5_000_000, 1 + 3 * FULL, 10);
    t.ack(5_000_000 + RTT, 11 + 3 * FULL);
    for (place, judged) in everywhere(&t) {
        let verdict = verdict(&judged);
        assert_eq!(verdict.dominating, Problem::Timeout, "{place}");
        assert_eq!(
            verdict.finding(Problem::Timeout).and_then(|f| f.events),
            Some(2)
        );
        // From the first ACK's effect to the ACK that fills the timer's hole.
        is_about(place, time(&judged, Limit::Timeout), 1_500.0);
        assert_eq!(verdict.messages.with(Category::Timeout), 1, "{place}");
        assert_eq!(verdict.messages.with(Category::TailDrop), 1, "{place}");
        assert_eq!(verdict.messages.with(Category::AckDrop), 0, "{place}");
    }
}

/// The data arrived and its ACK was lost: the timer's retransmission is answered by a DSACK.
#[test]
fn a_lost_ack_is_distinguished_from_lost_data() {
    let mut t = opened();
    let at = 100_000;
    t.data(at, 1, FULL);
    t.ack(at + RTT, 1 + FULL);
    t.data(at + RTT + 20, 1 + FULL, FULL);
    t.data(at + RTT + 20 + 900_000, 1 + FULL, FULL);
    let dsack = t.ack(at + 2 * RTT + 20 + 900_000, 1 + 2 * FULL);
    dsack.sack = vec![(1 + FULL, 1 + 2 * FULL)];
    let judged = t.judge();
    let messages = &verdict(&judged).messages;
    assert_eq!(messages.with(Category::AckDrop), 1, "{messages:?}");
    assert_eq!(messages.with(Category::TailDrop), 0, "{messages:?}");
    assert_eq!(verdict(&judged).losses.origin, Origin::NoLoss);
}

/// The first timer of the last segment, 200 ms and two round trips after it, on a connection
/// with SACK: a probe (RFC 8985 section 7.2). Later than that: a timer.
#[test]
fn a_tail_loss_probe_is_no_timeout() {
    for (wait, problem) in [
        (200_000 + 2 * RTT, Problem::SenderAppLimited),
        (1_000_000, Problem::Timeout),
    ] {
        let mut t = opened();
        let at = 100_000;
        t.data(at, 1, 300);
        t.data(at + wait, 1, 300);
        t.ack(at + wait + RTT, 301);
        for (place, judged) in everywhere(&t) {
            assert_eq!(verdict(&judged).dominating, problem, "{place} {wait}");
            assert_eq!(
                verdict(&judged).messages.with(Category::TailDrop),
                1,
                "{place}"
            );
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! SmallWrites: pieces far below a segment, held back or sent one by one.

mod timeline;

use slowpath_diagnose::{Actor, AdviceContext, Measure, advise};
use slowpath_model::*;
use timeline::*;

#[test]
fn what_nagle_holds_is_time() {
    let v = Timeline::new()
        .waited(|w| w.queues.nagle = ms(100))
        .wrote(10, 50)
        .verdict();
    // Ten writes of 50 bytes would have fitted into one segment: nine could be spared.
    let share = Share::Measured(ms(100) + Micros(9 * 4));
    assert_eq!(said(&v), [(Problem::SmallWrites, share, Some(9))]);
    let advice = advise(&v.findings[0], &v, &AdviceContext::default());
    assert_eq!(advice.who, Actor::SenderDeveloper);
    assert!(advice.what.contains("held back for 100"), "{}", advice.what);
    assert!(advice.what.contains("TCP_NODELAY"), "{}", advice.what);
}

/// The kernel writes into MPTCP's subflows itself: a gigabyte leaves without a call.
#[test]
fn what_no_call_wrote_is_in_no_applications_pieces() {
    let of = |bytes: u64| {
        Timeline::new()
            .waited(|w| w.queues.nagle = ms(200))
            .then(|s| s.bytes_acked += bytes)
            .verdict()
    };
    assert!(of(1 << 30).unmeasured.contains(Problem::SmallWrites));
    // What a write before left in the send buffer.
    assert!(of(100).finding(Problem::SmallWrites).is_some());
}

#[test]
fn what_delayed_acknowledgements_held_is_theirs() {
    let v = Timeline::new()
        .waited(|w| w.queues.nagle = ms(40))
        .then(|s| s.bytes_received += 100)
        .sampled(|r| {
            for (sum, n) in [
                (&mut r.lone_sum, &mut r.lone_count),
                (&mut r.late_sum, &mut r.late_count),
                (&mut r.held_sum, &mut r.held_count),
            ] {
                (*sum, *n) = (*sum + ms(41), *n + 1);
            }
        })
        .verdict();
    // The path itself has 1 ms.
    assert_eq!(
        said(&v),
        [(Problem::DelayedAck, Share::Measured(ms(40)), Some(1))]
    );
}

#[test]
fn many_tiny_writes_cost_what_they_could_have_spared() {
    // 5,000 of 100 bytes fit into 500 segments: 4,500 could be spared, at 4 us.
    let v = Timeline::new().wrote(5_000, 100).verdict();
    let share = Share::Measured(ms(18));
    assert_eq!(said(&v), [(Problem::SmallWrites, share, Some(4_500))]);
    let advice = advise(&v.findings[0], &v, &AdviceContext::default());
    assert!(
        advice.what.contains("4500 writes could have been spared"),
        "{}",
        advice.what
    );
}

#[test]
fn answered_requests_and_large_writes_are_fine() {
    let answered = Timeline::new()
        .wrote(5_000, 100)
        .then(|s| s.data_segments_in += 5_000);
    assert!(answered.verdict().findings.is_empty());
    // A quarter of a segment is 250 bytes.
    assert!(
        Timeline::new()
            .wrote(5_000, 251)
            .verdict()
            .findings
            .is_empty()
    );
    assert!(
        Timeline::new()
            .wrote(5_000, 250)
            .verdict()
            .finding(Problem::SmallWrites)
            .is_some()
    );
    // Seldom: 1,000 in half a second take 0.8 %.
    assert!(
        Timeline::new()
            .wrote(1_000, 10)
            .verdict()
            .findings
            .is_empty()
    );
}

#[test]
fn what_is_held_of_a_large_write_counts_where_it_is_answered() {
    let held = || {
        Timeline::new()
            .waited(|w| w.queues.nagle = ms(100))
            .wrote(100, 32_768)
    };
    assert!(held().verdict().findings.is_empty());
    let few = held().then(|s| s.data_segments_in += 24);
    assert!(few.verdict().findings.is_empty());
    let answered = held().then(|s| s.data_segments_in += 25).verdict();
    let share = Share::Measured(ms(100));
    assert_eq!(said(&answered), [(Problem::SmallWrites, share, Some(0))]);
}

/// A segment is 1,000 bytes.
#[test]
fn half_a_segment_is_completed_by_the_next_write_of_a_stream() {
    let held = |bytes| {
        Timeline::new()
            .waited(|w| w.queues.nagle = ms(100))
            .wrote(100, bytes)
            .verdict()
    };
    assert!(held(500).findings.is_empty());
    let share = Share::Measured(ms(100));
    assert_eq!(said(&held(499)), [(Problem::SmallWrites, share, Some(0))]);
}

#[test]
fn without_calls_it_is_unmeasured() {
    let measure = Timeline::new().unwatched().measure();
    assert_eq!(measure.of(Problem::SmallWrites), Measure::Unmeasured);
}

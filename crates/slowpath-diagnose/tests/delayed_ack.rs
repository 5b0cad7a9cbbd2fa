// SPDX-License-Identifier: Apache-2.0
//! DelayedAck. The healthy timeline's path has an RTT of 1 ms; a delayed ACK on it gives a
//! sample of 41 ms.

mod timeline;
use slowpath_diagnose::opened;
use slowpath_model::{Micros, Problem::*, RttSums, Share};
use timeline::*;

/// `n` lone samples of `rtt` more, all late if `late`, all held if `held`.
fn lone(r: &mut RttSums, n: u64, rtt: Micros, late: bool, held: bool) {
    let sum = Micros(n * rtt.0);
    r.sum += sum;
    r.count += n;
    r.lone_sum += sum;
    r.lone_count += n;
    if late {
        r.late_sum += sum;
        r.late_count += n;
    }
    if held {
        r.held_sum += sum;
        r.held_count += n;
    }
}

/// Nothing ever came back.
fn stream() -> Timeline {
    Timeline::new().both(|s| s.bytes_received = 0)
}

#[test]
fn a_stream_of_late_acks_is_found_exactly() {
    let v = stream()
        .sampled(|r| {
            lone(r, 5, ms(41), true, false);
            lone(r, 100, ms(1), false, false);
        })
        .verdict();
    assert_eq!(said(&v), [(DelayedAck, Share::Measured(ms(200)), Some(5))]);
    assert_eq!(v.deltas.delayed_acks, Some(5));
    assert_eq!(v.deltas.baseline_rtt, Some(ms(1)));
}

#[test]
fn a_long_path_is_not_late() {
    let v = Timeline::new()
        .both(|s| {
            s.min_rtt = Some(ms(200));
            s.srtt = Some(ms(200));
            s.rtt_sums.as_mut().unwrap().lifetime_min = Some(ms(200));
        })
        .sampled(|r| lone(r, 2, ms(205), false, false))
        .verdict();
    assert_eq!(said(&v), []);
    assert!(v.unmeasured.is_empty());
}

#[test]
fn a_delayed_ack_on_a_long_path_is() {
    let v = stream()
        .both(|s| {
            s.min_rtt = Some(ms(200));
            s.rtt_sums.as_mut().unwrap().lifetime_min = Some(ms(200));
        })
        .sampled(|r| lone(r, 1, ms(240), true, false))
        .verdict();
    assert_eq!(said(&v), [(DelayedAck, Share::Measured(ms(40)), Some(1))]);
}

/// Every sample was delayed: the connection's own minimum is 41 ms, and nothing is late
/// against it.
fn always_delayed(timeline: Timeline) -> Timeline {
    timeline
        .both(|s| {
            s.min_rtt = Some(ms(41));
            let r = s.rtt_sums.as_mut().unwrap();
            *r = RttSums {
                lifetime_min: Some(ms(41)),
                ..RttSums::default()
            };
            lone(r, 10, ms(41), false, false);
        })
        .sampled(|r| lone(r, 8, ms(41), false, false))
}

#[test]
fn where_every_sample_was_delayed_the_peers_baseline_decides() {
    let v = always_delayed(stream()).peer_baseline(ms(1)).verdict();
    // 8 · 41 − 8 · (1 + 10) = 240 ms, 240 / 40 = 6 delayed ACKs: SNAP's sum rule.
    assert_eq!(said(&v), [(DelayedAck, Share::Measured(ms(240)), Some(6))]);
    assert_eq!(v.deltas.baseline_rtt, Some(ms(1)));
}

#[test]
fn or_the_handshake_does() {
    let v = always_delayed(stream())
        .both(|s| s.min_rtt = Some(ms(1)))
        .verdict();
    assert_eq!(said(&v), [(DelayedAck, Share::Measured(ms(240)), Some(6))]);
}

#[test]
fn without_either_it_looks_like_a_long_path() {
    assert_eq!(said(&always_delayed(stream()).verdict()), []);
}

#[test]
fn a_single_delayed_ack_counts_as_one() {
    // A connection that opened in the interval. 41 − 11 = 30 ms of excess, less than the
    // timeout of 40 ms.
    let mut t = Timeline::new()
        .then(|s| {
            s.bytes_received = 0;
            s.rtt_sums = Some(RttSums::default());
        })
        .sampled(|r| {
            r.lifetime_min = Some(ms(41));
            lone(r, 1, ms(41), false, false);
        });
    t.after.id.start = t.before.at;
    t.before = opened(&t.after);
    let finding = *t.verdict().finding(DelayedAck).unwrap();
    assert_eq!(finding.share, Share::Measured(ms(30)));
    assert_eq!(finding.events, Some(1));
}

#[test]
fn samples_within_the_queueing_allowance_are_nothing() {
    let v = stream()
        .both(|s| s.rtt_sums.as_mut().unwrap().lifetime_min = Some(ms(45)))
        .peer_baseline(ms(1))
        .sampled(|r| lone(r, 40, ms(11), false, false))
        .verdict();
    assert_eq!(said(&v), []);
}

#[test]
fn what_is_less_than_one_delay_is_none() {
    // The first samples of a stream on a slow link, 20 ms above the handshake: a full segment
    // takes that long. A delay of 40 ms would leave 30.
    let mut t = stream()
        .then(|s| s.rtt_sums = Some(RttSums::default()))
        .sampled(|r| {
            r.lifetime_min = Some(ms(21));
            lone(r, 1, ms(40), false, false);
        });
    t.after.id.start = t.before.at;
    t.before = opened(&t.after);
    assert_eq!(t.verdict().finding(DelayedAck), None);
}

#[test]
fn an_exchange_whose_late_acks_held_nothing_back_has_no_problem() {
    // Requests acknowledged after 40 ms, answered after 100.
    let v = Timeline::new()
        .sampled(|r| lone(r, 4, ms(41), true, false))
        .then(|s| s.bytes_received += 400)
        .verdict();
    assert_eq!(said(&v), []);
    assert!(v.unmeasured.is_empty());
    assert_eq!(v.deltas.delayed_acks, Some(4), "they stay evidence");
}

#[test]
fn an_answer_after_the_next_poll_makes_its_request_no_stream() {
    let v = Timeline::new()
        .sampled(|r| lone(r, 1, ms(41), true, false))
        .verdict();
    assert_eq!(said(&v), []);
    assert!(v.unmeasured.is_empty());
}

#[test]
fn an_exchange_whose_late_acks_held_a_write_back_does() {
    // Write, write, read: the second write waits for the ACK of the first.
    let v = Timeline::new()
        .sampled(|r| {
            lone(r, 2, ms(41), true, false);
            lone(r, 6, ms(41), true, true);
        })
        .then(|s| s.bytes_received += 600)
        .verdict();
    assert_eq!(said(&v), [(DelayedAck, Share::Measured(ms(240)), Some(6))]);
}

#[test]
fn an_exchange_in_which_it_is_unknown_what_was_held_is_unmeasured() {
    let v = always_delayed(Timeline::new())
        .peer_baseline(ms(1))
        .verdict();
    assert_eq!(said(&v), []);
    assert_eq!(unmeasured(&v), [DelayedAck]);
}

#[test]
fn without_rtt_sums_it_is_unmeasured() {
    let v = Timeline::new().both(|s| s.rtt_sums = None).verdict();
    assert_eq!(unmeasured(&v), [DelayedAck]);
    assert_eq!(v.deltas.delayed_acks, None);
}

#[test]
fn sums_or_bytes_that_went_backwards_are_unmeasured() {
    let sums = Timeline::new().sampled(|r| r.late_sum = Micros::ZERO);
    assert_eq!(unmeasured(&sums.verdict()), [DelayedAck]);
    let bytes = Timeline::new()
        .sampled(|r| lone(r, 5, ms(41), true, false))
        .then(|s| s.bytes_received = 0);
    assert_eq!(unmeasured(&bytes.verdict()), [DelayedAck]);
}

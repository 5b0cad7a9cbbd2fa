// SPDX-License-Identifier: Apache-2.0
//! CongestionWindowLimited: what data waited for when nothing else held it.

mod timeline;

use slowpath_diagnose::{Actor, AdviceContext, Measure, advise};
use slowpath_model::*;
use timeline::*;

#[test]
fn data_that_waits_for_the_window_is_found_within_the_busy_time() {
    let v = Timeline::new()
        .waited(|w| w.queues.congestion_window = ms(200))
        .then(|s| s.busy = Some(ms(1400)))
        .verdict();
    let share = Share::Measured(ms(200));
    assert_eq!(said(&v), [(Problem::CongestionWindowLimited, share, None)]);
    assert_eq!(v.dominating, Problem::CongestionWindowLimited);

    // 100 ms busy, 30 of them limited by the window: no more than 70 are left.
    let v = Timeline::new()
        .waited(|w| w.queues.congestion_window = ms(200))
        .then(|s| {
            s.busy = Some(ms(1100));
            s.rwnd_limited = Some(ms(130));
        })
        .verdict();
    let found = v.finding(Problem::CongestionWindowLimited).unwrap();
    assert_eq!(found.share, Share::Measured(ms(70)));
}

#[test]
fn whatever_explains_the_window_goes_before_it() {
    let full = || {
        Timeline::new()
            .waited(|w| w.queues.congestion_window = ms(450))
            .then(|s| s.busy = Some(ms(1500)))
    };
    let lost = full().then(|s| s.recovery.as_mut().unwrap().fast_recoveries += 1);
    assert_eq!(lost.verdict().dominating, Problem::FastRetransmit);
    let marked = full().then(|s| s.delivered_ce = Some(1));
    assert_eq!(marked.verdict().dominating, Problem::EcnMarked);
    let late = full().sampled(|r| {
        (r.lone_sum, r.lone_count) = (r.lone_sum + ms(41), r.lone_count + 1);
        (r.late_sum, r.late_count) = (r.late_sum + ms(41), r.late_count + 1);
        (r.held_sum, r.held_count) = (r.held_sum + ms(41), r.held_count + 1);
    });
    assert_eq!(late.verdict().dominating, Problem::DelayedAck);
    for timeline in [lost, marked, late] {
        let v = timeline.verdict();
        assert_eq!(v.findings[0].problem, Problem::CongestionWindowLimited);
    }
}

#[test]
fn without_events_a_full_window_is_sampled() {
    let full = |change: fn(&mut TcpStats)| {
        Timeline::new().unwatched().then(|s| {
            (s.unsent, s.send_queue, s.in_flight) = (5_000, 15_000, s.cwnd);
            change(s);
        })
    };
    let measure = |t: Timeline| t.measure().of(Problem::CongestionWindowLimited);
    assert_eq!(measure(full(|_| ())), Measure::Coarse { events: None });
    assert_eq!(measure(full(|s| s.in_flight -= 1)), Measure::Absent);
    assert_eq!(measure(full(|s| s.unsent = 0)), Measure::Absent);
    assert_eq!(
        measure(full(|s| s.ca_state = CaState::Recovery)),
        Measure::Absent
    );
    assert_eq!(
        measure(full(|s| s.send_window = Some(10_500))),
        Measure::Absent
    );
    assert_eq!(measure(full(|s| s.send_window = None)), Measure::Unmeasured);
}

#[test]
fn advice_distinguishes_a_full_path_from_a_young_window() {
    let advice = |srtt| {
        let v = Timeline::new()
            .waited(|w| w.queues.congestion_window = ms(450))
            .then(|s| (s.busy, s.srtt) = (Some(ms(1500)), Some(srtt)))
            .verdict();
        advise(&v.findings[0], &v, &AdviceContext::default())
    };
    let full = advice(ms(5));
    assert_eq!(full.who, Actor::NetworkOperator);
    assert!(full.what.contains("4.00ms of it queueing"), "{}", full.what);
    let young = advice(ms(1));
    assert_eq!(young.who, Actor::HostOperator);
    // Ten segments of 1,000 bytes in 1 ms.
    assert!(young.what.contains("9.5 MiB/s"), "{}", young.what);
}

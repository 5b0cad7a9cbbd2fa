// SPDX-License-Identifier: Apache-2.0
//! SynRetransmit: openings that had to be tried again.

mod timeline;

use slowpath_diagnose::{Actor, AdviceContext, Measure, advise};
use slowpath_model::*;
use timeline::*;

#[test]
fn a_syn_sent_again_is_not_a_timeout() {
    let v = Timeline::new()
        .waited(|w| (w.opening.syn_retransmits, w.opening.syn_wait) = (1, ms(300)))
        .then(|s| {
            let r = s.rto_stats.as_mut().unwrap();
            (r.timeouts, r.time) = (r.timeouts + 1, r.time + ms(5));
        })
        .verdict();
    let share = Share::Measured(ms(300));
    assert_eq!(said(&v), [(Problem::SynRetransmit, share, Some(1))]);
    let advice = advise(&v.findings[0], &v, &AdviceContext::default());
    assert_eq!(advice.who, Actor::NetworkOperator);
    assert!(advice.what.contains("sent again once"), "{}", advice.what);
}

#[test]
fn timeouts_of_data_count_beside_it() {
    let v = Timeline::new()
        .waited(|w| w.opening.syn_retransmits = 1)
        .then(|s| s.rto_stats.as_mut().unwrap().timeouts += 3)
        .verdict();
    assert_eq!(v.finding(Problem::Timeout).unwrap().events, Some(2));
}

#[test]
fn a_syn_ack_sent_again_is_no_timeout() {
    let mut timeline = Timeline::new()
        .waited(|w| w.opening.syn_retransmits = 1)
        .then(|s| s.rto_stats.as_mut().unwrap().timeouts += 1);
    timeline.before.origin = Origin::Accepted;
    timeline.after.origin = Origin::Accepted;
    let v = timeline.verdict();
    assert_eq!(v.finding(Problem::Timeout).unwrap().events, Some(1));
    let none = Share::Measured(Micros::ZERO);
    assert_eq!(v.finding(Problem::SynRetransmit).unwrap().share, none);
}

#[test]
fn without_the_opening_only_a_syn_under_way_is_found() {
    let measure = |t: Timeline| t.unwatched().measure().of(Problem::SynRetransmit);
    assert_eq!(measure(Timeline::new()), Measure::Absent);
    let opening = |n: u32| {
        Timeline::new().then(|s| (s.state, s.unanswered_timeouts) = (TcpState::SynSent, n))
    };
    assert_eq!(measure(opening(0)), Measure::Absent);
    assert_eq!(measure(opening(1)), Measure::Coarse { events: None });
}

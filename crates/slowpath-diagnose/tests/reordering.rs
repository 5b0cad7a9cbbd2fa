// SPDX-License-Identifier: Apache-2.0
//! Reordering: late segments, distinguished from lost ones.

mod timeline;

use slowpath_diagnose::{Actor, AdviceContext, Measure, advise};
use slowpath_model::*;
use timeline::*;

#[test]
fn a_recovery_that_reordering_caused_has_no_larger_share() {
    let v = Timeline::new()
        .then(|s| {
            s.reordering_events = Some(3);
            s.retransmitted += 2;
            let r = s.recovery.as_mut().unwrap();
            (r.fast_recoveries, r.recovery_time) = (3, r.recovery_time + ms(20));
        })
        .waited(|w| w.episodes.reordering = ms(25))
        .verdict();
    assert_eq!(
        said(&v),
        [
            (Problem::Reordering, Share::Measured(ms(25)), Some(3)),
            (Problem::FastRetransmit, Share::Measured(ms(20)), Some(1)),
        ]
    );
    assert_eq!(v.dominating, Problem::Reordering);
    let advice = advise(&v.findings[0], &v, &AdviceContext::default());
    assert_eq!(advice.who, Actor::NetworkOperator);
    assert!(
        advice.what.contains("need not mean that the path loses"),
        "{}",
        advice.what
    );
}

#[test]
fn a_loss_is_none() {
    let v = Timeline::new()
        .then(|s| s.recovery.as_mut().unwrap().fast_recoveries += 1)
        .verdict();
    assert!(v.finding(Problem::Reordering).is_none());
    assert!(v.unmeasured.is_empty());
}

#[test]
fn an_undone_recovery_is_an_event_of_its_own() {
    let v = Timeline::new()
        .waited(|w| (w.episodes.spurious_recoveries, w.episodes.reordering) = (1, ms(3)))
        .then(|s| s.reordering_events = Some(1))
        .verdict();
    assert_eq!(v.finding(Problem::Reordering).unwrap().events, Some(2));
}

#[test]
fn without_episodes_it_is_coarse() {
    let measure = |t: Timeline| t.unwatched().measure().of(Problem::Reordering);
    assert_eq!(measure(Timeline::new()), Measure::Absent);
    let counted = Timeline::new().then(|s| s.reordering_events = Some(2));
    assert_eq!(measure(counted), Measure::Coarse { events: Some(2) });
    let old = Timeline::new().both(|s| s.reordering_events = None);
    assert_eq!(measure(old), Measure::Unmeasured);
}

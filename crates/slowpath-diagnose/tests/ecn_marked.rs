// SPDX-License-Identifier: Apache-2.0
//! EcnMarked: marks, and the time in which the window was reduced for them.

mod timeline;

use slowpath_diagnose::{Actor, AdviceContext, Measure, advise};
use slowpath_model::*;
use timeline::*;

#[test]
fn one_mark_is_a_finding() {
    let v = Timeline::new().then(|s| s.delivered_ce = Some(1)).verdict();
    let none = Share::Measured(Micros::ZERO);
    assert_eq!(said(&v), [(Problem::EcnMarked, none, Some(1))]);
}

#[test]
fn the_share_is_the_time_of_reductions() {
    let v = Timeline::new()
        .then(|s| (s.delivered_ce, s.bytes_sent) = (Some(50), Some(200_000)))
        .waited(|w| w.episodes.marked = ms(80))
        .verdict();
    assert_eq!(
        said(&v),
        [(Problem::EcnMarked, Share::Measured(ms(80)), Some(50))]
    );
    let advice = advise(&v.findings[0], &v, &AdviceContext::default());
    assert_eq!(advice.who, Actor::NetworkOperator);
    // 50 of 100 segments of 1,000 bytes.
    assert!(advice.what.contains("50.00 %"), "{}", advice.what);
}

#[test]
fn without_episodes_it_is_coarse_and_without_marks_absent() {
    let measure = |t: Timeline| t.unwatched().measure().of(Problem::EcnMarked);
    assert_eq!(measure(Timeline::new()), Measure::Absent);
    let marked = Timeline::new().then(|s| s.delivered_ce = Some(3));
    assert_eq!(measure(marked), Measure::Coarse { events: Some(3) });
    let old = Timeline::new().both(|s| s.delivered_ce = None);
    assert_eq!(measure(old), Measure::Unmeasured);
}

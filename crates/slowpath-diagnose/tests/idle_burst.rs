// SPDX-License-Identifier: Apache-2.0
//! IdleBurst: a loss, and why.

mod timeline;

use slowpath_diagnose::{Actor, AdviceContext, Measure, advise};
use slowpath_model::*;
use timeline::*;

#[test]
fn it_says_why_segments_were_lost_and_does_not_dominate() {
    let v = Timeline::new()
        .waited(|w| (w.episodes.burst_losses, w.episodes.burst) = (1, ms(60)))
        .then(|s| {
            let r = s.recovery.as_mut().unwrap();
            (r.fast_recoveries, r.recovery_time) =
                (r.fast_recoveries + 1, r.recovery_time + ms(60));
        })
        .verdict();
    assert_eq!(
        said(&v),
        [
            (Problem::FastRetransmit, Share::Measured(ms(60)), Some(1)),
            (Problem::IdleBurst, Share::Measured(ms(60)), Some(1)),
        ]
    );
    assert_eq!(v.dominating, Problem::FastRetransmit);
    let advice = advise(&v.findings[1], &v, &AdviceContext::default());
    assert_eq!(advice.who, Actor::HostOperator);
    assert!(
        advice.what.contains("tcp_slow_start_after_idle"),
        "{}",
        advice.what
    );
}

#[test]
fn without_episodes_only_an_interval_without_retransmissions_had_none() {
    let measure = |t: Timeline| t.unwatched().measure().of(Problem::IdleBurst);
    assert_eq!(measure(Timeline::new()), Measure::Absent);
    let lost = Timeline::new().then(|s| s.retransmitted += 1);
    assert_eq!(measure(lost), Measure::Unmeasured);
}

// SPDX-License-Identifier: Apache-2.0
//! Verdicts added up.

mod timeline;
use slowpath_diagnose::{Thresholds, Totals};
use slowpath_model::{Micros, Problem::*};
use timeline::*;

fn limited(window_ms: u64) -> Timeline {
    Timeline::new().then(|s| s.rwnd_limited = Some(ms(100 + window_ms)))
}

#[test]
fn the_application_gets_what_the_others_leave() {
    let mut t = Totals::default();
    t.add(&limited(200).verdict());
    t.add(&Timeline::new().verdict());
    t.idle(ms(1000));
    assert_eq!(t.observed, ms(2000));
    assert_eq!(t.polls, 2);
    assert_eq!(t.problem_time[ReceiverWindowLimited as usize], ms(200));
    assert_eq!(t.problem_time[SenderAppLimited as usize], ms(1800));
    assert_eq!(t.share(ReceiverWindowLimited), 0.1);
    assert_eq!(t.dominating(&Thresholds::default()), ReceiverWindowLimited);
    t.idle(ms(20_000));
    assert_eq!(t.dominating(&Thresholds::default()), SenderAppLimited);
}

#[test]
fn overlapping_problems_leave_the_application_nothing() {
    let mut t = Totals::default();
    t.add(
        &Timeline::new()
            .then(|s| {
                s.rwnd_limited = Some(ms(500));
                let r = s.recovery.as_mut().unwrap();
                r.fast_recoveries += 3;
                r.recovery_time = ms(410);
            })
            .verdict(),
    );
    assert_eq!(t.problem_time[SenderAppLimited as usize], Micros::ZERO);
    assert_eq!(t.problem_events[FastRetransmit as usize], 3);
    // 400 ms each: the earlier stage.
    assert_eq!(t.dominating(&Thresholds::default()), FastRetransmit);
}

#[test]
fn what_was_once_unmeasured_is_said() {
    let mut t = Totals::default();
    t.add(&Timeline::new().inet_diag().verdict());
    t.add(&Timeline::new().verdict());
    assert_eq!(t.unmeasured.iter().collect::<Vec<_>>(), [DelayedAck]);
}

#[test]
fn nothing_observed_is_the_application() {
    let t = Totals::default();
    assert_eq!(t.dominating(&Thresholds::default()), SenderAppLimited);
    assert_eq!(t.share(Timeout), 0.0);
}

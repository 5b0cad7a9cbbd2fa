// SPDX-License-Identifier: Apache-2.0
//! ReceiverAppSlow: what has arrived is not read.

mod timeline;

use slowpath_diagnose::{Actor, AdviceContext, Measure, advise};
use slowpath_model::*;
use timeline::*;

#[test]
fn unread_data_is_time_of_the_receiving_application() {
    let mut timeline = Timeline::new()
        .waited(|w| w.queues.unread = ms(450))
        .then(|s| s.receive_queue = 60_000);
    let calls = timeline.after.receives.as_mut().unwrap();
    (calls.count, calls.bytes) = (calls.count + 4, calls.bytes + 4_096);
    let v = timeline.verdict();
    let share = Share::Measured(ms(450));
    assert_eq!(said(&v), [(Problem::ReceiverAppSlow, share, None)]);
    assert_eq!(v.dominating.stage(), Stage::ReceiverApp);
    let advice = advise(&v.findings[0], &v, &AdviceContext::default());
    assert_eq!(advice.who, Actor::ReceiverSide);
    assert!(
        advice
            .what
            .contains("4.0 KiB in 4 calls, 1.0 KiB at a time"),
        "{}",
        advice.what
    );
}

#[test]
fn without_events_it_is_sampled() {
    let measure = |unread: u32, left: Option<u32>| {
        let t = Timeline::new().unwatched();
        let t = t.then(|s| (s.receive_queue, s.receive_window) = (unread, left));
        t.measure().of(Problem::ReceiverAppSlow)
    };
    assert_eq!(measure(0, Some(0)), Measure::Absent);
    assert_eq!(measure(0, None), Measure::Absent);
    assert_eq!(measure(60_000, None), Measure::Unmeasured);
    assert_eq!(measure(30_000, Some(10_000)), Measure::Absent);
    assert_eq!(
        measure(33_000, Some(10_000)),
        Measure::Coarse { events: None }
    );
}

#[test]
fn what_an_mptcp_connection_has_not_read_counts_at_its_subflow() {
    let mut subflow = Timeline::new();
    let state = Multipath {
        window_full: false,
        unread: true,
    };
    subflow.after.waits = subflow.after.waits.with_multipath(state);
    let measure = subflow.measure().of(Problem::ReceiverAppSlow);
    assert_eq!(measure, Measure::Coarse { events: None });
}

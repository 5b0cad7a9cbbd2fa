// SPDX-License-Identifier: Apache-2.0
//! ZeroWindow: the part of a full window in which the receiver took nothing.

mod timeline;

use slowpath_diagnose::{Actor, AdviceContext, Measure, advise};
use slowpath_model::*;
use timeline::*;

#[test]
fn a_closed_window_stands_beside_the_full_one() {
    let v = Timeline::new()
        .waited(|w| (w.queues.zero_window, w.queues.zero_windows) = (ms(300), 2))
        .then(|s| s.rwnd_limited = Some(ms(500)))
        .verdict();
    assert_eq!(
        said(&v),
        [
            (
                Problem::ReceiverWindowLimited,
                Share::Measured(ms(400)),
                None
            ),
            (Problem::ZeroWindow, Share::Measured(ms(300)), Some(2)),
        ]
    );
    assert_eq!(v.dominating, Problem::ReceiverWindowLimited);
    let advice = advise(&v.findings[1], &v, &AdviceContext::default());
    assert_eq!(advice.who, Actor::ReceiverSide);
    assert!(
        advice.what.contains("closed its window twice"),
        "{}",
        advice.what
    );
}

#[test]
fn it_stays_second_even_where_jiffies_make_it_longer() {
    let v = Timeline::new()
        .waited(|w| (w.queues.zero_window, w.queues.zero_windows) = (ms(404), 1))
        .then(|s| s.rwnd_limited = Some(ms(500)))
        .verdict();
    assert_eq!(v.dominating, Problem::ReceiverWindowLimited);
}

#[test]
fn without_events_it_is_sampled() {
    let closed = |change: fn(&mut TcpStats)| {
        Timeline::new().unwatched().then(|s| {
            (s.unsent, s.send_queue, s.send_window) = (5_000, 5_000, Some(0));
            s.rwnd_limited = Some(ms(200));
            change(s);
        })
    };
    let measure = |t: Timeline| t.measure().of(Problem::ZeroWindow);
    assert_eq!(measure(closed(|_| ())), Measure::Coarse { events: None });
    // Less than a segment, and nothing in flight.
    let coarse = Measure::Coarse { events: None };
    assert_eq!(measure(closed(|s| s.send_window = Some(999))), coarse);
    assert_eq!(
        measure(closed(|s| s.send_window = Some(1_000))),
        Measure::Absent
    );
    assert_eq!(
        measure(closed(|s| s.rwnd_limited = Some(ms(100)))),
        Measure::Absent
    );
    assert_eq!(measure(closed(|s| s.unsent = 0)), Measure::Absent);
    assert_eq!(
        measure(closed(|s| s.send_window = None)),
        Measure::Unmeasured
    );
}

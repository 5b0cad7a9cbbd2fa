// SPDX-License-Identifier: Apache-2.0
//! When the recorder is asked for a connection: once for each problem, and at the close for
//! its owner's name.

use super::*;
use crate::owners::{OwnerOptions, Owners};
use crate::script::{at, connection, wall};
use crate::scripted_agent::NoHost;
use crate::tracker::{ConnectionTracker, PollTime, TrackerOptions};
use slowpath_diagnose::Thresholds;
use slowpath_model::{Micros, Owner, RtoStats};

/// What is asked for when a connection shows itself at these seconds with these numbers of timeouts of
/// half a second each, and closes.
fn requests(wanted: KeepFilter, samples: &[(u64, u64)], close: u64) -> Vec<Vec<KeepRequest>> {
    let options = TrackerOptions {
        thresholds: Thresholds::default(),
        history: 0,
        keep_verdicts: false,
    };
    let owners = Owners::new(OwnerOptions::default(), true);
    let mut tracker = ConnectionTracker::new(options, owners, at(0));
    tracker.consumers.keep_requests = KeepRequests::new(wanted);
    let last = samples.last().map_or(0, |(_, timeouts)| *timeouts);
    let mut requests = Vec::new();
    for (second, timeouts) in samples.iter().copied().chain([(close, last)]) {
        let mut snapshot = connection(5);
        snapshot.at = at(second);
        snapshot.closed = second == close;
        snapshot.stats.rto_stats = Some(RtoStats {
            timeouts,
            recoveries: timeouts,
            time: Micros(500_000 * timeouts),
        });
        if snapshot.closed {
            tracker.set_owners([(5, Owner::named(7, "nginx"))].into_iter().collect());
        }
        let now = at(second);
        let wall = wall(now);
        tracker.begin_poll(PollTime { now, wall }, true);
        tracker.observe(&snapshot, &mut NoHost);
        tracker.end_poll();
        requests.push(tracker.consumers.keep_requests.take());
    }
    requests
}

fn reasons(requests: &[Vec<KeepRequest>]) -> Vec<Vec<&'static str>> {
    let of = |poll: &Vec<KeepRequest>| poll.iter().flat_map(|r| r.reasons.clone()).collect();
    requests.iter().map(of).collect()
}

#[test]
fn a_problem_asks_once_and_the_close_names_the_owner() {
    let problems = KeepFilter::new(|live| {
        let latest = live.latest.as_ref();
        latest.is_some_and(|verdict| !verdict.findings.is_empty())
    });
    let asked = requests(problems, &[(1, 0), (2, 1), (3, 2), (4, 2)], 5);
    let none: Vec<&str> = Vec::new();
    assert_eq!(
        reasons(&asked),
        [
            none.clone(),
            vec!["Timeout"],
            none.clone(),
            none.clone(),
            none
        ]
    );
    assert_eq!(asked[1][0].owner, None);
    assert_eq!(asked[1][0].at, at(2));
    assert_eq!(asked[4][0].owner.as_deref(), Some("nginx"));
}

#[test]
fn one_that_is_chosen_needs_no_problem_and_one_that_is_not_is_never_asked_for() {
    let chosen = requests(KeepFilter::new(|_| true), &[(1, 0), (2, 0)], 3);
    assert_eq!(reasons(&chosen)[0], ["chosen"]);
    assert!(chosen[1].is_empty());
    let other = requests(KeepFilter::new(|_| false), &[(1, 0), (2, 1)], 3);
    assert!(other.iter().all(Vec::is_empty));
    // Its owner is known when it closes.
    let named = KeepFilter::new(|live| live.owner.name().is_some_and(|name| &**name == "nginx"));
    let late = requests(named, &[(1, 0)], 2);
    assert!(late[0].is_empty());
    assert_eq!(reasons(&late)[1], ["chosen"]);
}

/// The paper of SNAP has the sending application's own pace as the class of those that have no problem.
#[test]
fn the_applications_pace_and_what_nothing_explains_are_not_suspicious() {
    use Problem::*;
    let not: Vec<Problem> = Problem::ALL
        .into_iter()
        .filter(|it| !is_suspicious(*it))
        .collect();
    assert_eq!(
        not,
        [SenderAppLimited, CongestionWindowLimited, SmallWrites]
    );
}

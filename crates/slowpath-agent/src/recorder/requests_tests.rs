// SPDX-License-Identifier: Apache-2.0
//! When the recorder is asked for a connection: once for each problem, and at the close for its owner's name.

use super::*;
use crate::agent_core::AgentCore;
use crate::agent_core::tests::{at, quiet, wall};
use crate::owners::{OwnerOptions, Owners};
use slowpath_diagnose::Thresholds;
use slowpath_model::{ConnectionId, Micros, Owner, RtoStats, Snapshot};
use slowpath_observe::Sink;

/// What is asked for when a connection shows itself at these seconds with so many timeouts of half a second each, and closes.
fn asks(wanted: KeepFilter, looks: &[(u64, u64)], close: u64) -> Vec<Vec<KeepRequest>> {
    let owners = Owners::new(OwnerOptions::default(), true);
    let mut core = AgentCore::new(Thresholds::default(), 0, false, None, owners, at(0));
    core.keep_requests = KeepRequests::new(wanted);
    let last = looks.last().map_or(0, |(_, timeouts)| *timeouts);
    let mut asks = Vec::new();
    for (second, timeouts) in looks.iter().copied().chain([(close, last)]) {
        let mut it: Snapshot = quiet();
        it.id = ConnectionId {
            cookie: 5,
            start: at(0),
            ..it.id
        };
        it.at = at(second);
        it.closed = second == close;
        it.stats.rto_stats = Some(RtoStats {
            timeouts,
            recoveries: timeouts,
            time: Micros(500_000 * timeouts),
        });
        if it.closed {
            core.name_owners([(5, Owner::named(7, "nginx"))].into_iter().collect());
        }
        core.begin(at(second), wall(at(second)), true);
        core.see(&it);
        core.end(&mut Vec::new());
        asks.push(core.keep_requests.take());
    }
    asks
}

fn reasons(asks: &[Vec<KeepRequest>]) -> Vec<Vec<&'static str>> {
    let of = |asks: &Vec<KeepRequest>| asks.iter().flat_map(|ask| ask.reasons.clone()).collect();
    asks.iter().map(of).collect()
}

#[test]
fn a_problem_asks_once_and_the_close_tells_the_owner() {
    let problems = KeepFilter::new(|live| {
        let latest = live.latest.as_ref();
        latest.is_some_and(|verdict| !verdict.findings.is_empty())
    });
    let asks = asks(problems, &[(1, 0), (2, 1), (3, 2), (4, 2)], 5);
    let none: Vec<&str> = Vec::new();
    assert_eq!(
        reasons(&asks),
        [
            none.clone(),
            vec!["Timeout"],
            none.clone(),
            none.clone(),
            none
        ]
    );
    assert_eq!(asks[1][0].owner, None);
    assert_eq!(asks[1][0].at, at(2));
    assert_eq!(asks[4][0].owner.as_deref(), Some("nginx"));
}

#[test]
fn one_that_is_chosen_needs_no_problem_and_one_that_is_not_is_never_asked_for() {
    let chosen = asks(KeepFilter::new(|_| true), &[(1, 0), (2, 0)], 3);
    assert_eq!(reasons(&chosen)[0], ["chosen"]);
    assert!(chosen[1].is_empty());
    let other = asks(KeepFilter::new(|_| false), &[(1, 0), (2, 1)], 3);
    assert!(other.iter().all(Vec::is_empty));
    // Its owner is known when it closes.
    let named = KeepFilter::new(|live| live.owner.name().is_some_and(|name| &**name == "nginx"));
    let late = asks(named, &[(1, 0)], 2);
    assert!(late[0].is_empty());
    assert_eq!(reasons(&late)[1], ["chosen"]);
}

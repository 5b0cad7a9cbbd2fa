// SPDX-License-Identifier: Apache-2.0
//! A timeout and a delayed ACK, recorded once.

use super::*;
use crate::script::{at, quiet, wall};
use slowpath_model::{Deltas, Finding, InteractionEvidence, Problem, ProblemSet, Share};

fn verdict(snapshot: &Snapshot, to: u64) -> IntervalVerdict {
    IntervalVerdict {
        connection: snapshot.id,
        from: at(to - 1),
        to: at(to),
        dominating: Problem::Timeout,
        findings: vec![Finding {
            problem: Problem::Timeout,
            share: Share::Measured(Micros(300_000)),
            events: Some(1),
        }],
        unmeasured: ProblemSet::EMPTY,
        deltas: Deltas {
            retransmitted: Some(1),
            acks_after_timeout: Some(1),
            ..Deltas::default()
        },
    }
}

/// The snapshot after [`quiet`] of a connection that received as much as makes a flow.
fn flow() -> Snapshot {
    let mut snapshot = quiet();
    snapshot.stats.bytes_received += 10 * u64::from(snapshot.stats.send_mss.max(1));
    snapshot
}

#[test]
fn what_rounds_find_one_after_another_is_one_record() {
    let mut interactions = InteractionTracker::default();
    let round = |interactions: &mut InteractionTracker, second| {
        interactions.round(at(second), wall(at(second)))
    };
    let snapshot = quiet();
    let owner = Owner::named(7, "curl");
    assert_eq!(round(&mut interactions, 50), []);
    let (still, flow) = (quiet(), flow());
    assert!(!interactions.wants(&still, &flow, &owner));
    interactions.observe(&snapshot, &owner, &verdict(&snapshot, 100));
    for second in 100..=105 {
        assert_eq!(round(&mut interactions, second), [], "{second}");
    }
    // That process's other flows, and the other end, may be part of it.
    assert!(interactions.wants(&still, &flow, &owner));
    assert!(!interactions.wants(&still, &still, &owner));
    let mut end = quiet();
    end.tuple = end.tuple.reversed();
    assert!(interactions.wants(&end, &end, &Owner::default()));
    assert!(!interactions.wants(&still, &flow, &Owner::named(8, "curl")));
    // Five seconds after the interval it is forgotten.
    let records = round(&mut interactions, 106);
    assert!(!interactions.wants(&still, &flow, &owner));
    let [found] = records.as_slice() else {
        panic!("{records:?}");
    };
    assert_eq!(found.kind, InteractionKind::TimeoutThenDelayedAck);
    assert_eq!((found.connection, found.cause), (snapshot.id, snapshot.id));
    assert_eq!((found.tuple, found.owner.pid()), (snapshot.tuple, Some(7)));
    // Six rounds, from the interval's beginning to the last of them.
    assert_eq!((found.rounds, found.connections), (6, 1));
    assert_eq!(found.end, wall(at(105)));
    assert_eq!(found.duration, Micros(6_000_000));
    assert_eq!(
        found.evidence,
        InteractionEvidence::TimeoutThenDelayedAck {
            timeouts: 1,
            delayed_acks: 1,
            retransmitted_segments: 1
        }
    );
    assert_eq!(round(&mut interactions, 107), []);
}

#[test]
fn small_writes_are_followed_where_a_timeout_had_too_little_in_flight() {
    let mut interactions = InteractionTracker::default();
    let (snapshot, owner) = (quiet(), Owner::named(7, "curl"));
    let mut thin = verdict(&snapshot, 100);
    thin.deltas.thin_timeouts = Some(1);
    interactions.observe(&snapshot, &owner, &thin);
    assert!(interactions.wants(&quiet(), &quiet(), &owner));
    let mut elsewhere = quiet();
    elsewhere.tuple.remote.set_port(1);
    assert!(!interactions.wants(&elsewhere, &elsewhere, &owner));
}

/// Else a busy process would be followed for ever after one problem.
#[test]
fn a_flow_without_a_problem_does_not_keep_its_process_followed() {
    let mut interactions = InteractionTracker::default();
    let (snapshot, owner) = (quiet(), Owner::named(7, "curl"));
    interactions.observe(&snapshot, &owner, &verdict(&snapshot, 100));
    let mut other = flow();
    other.id.cookie += 1;
    other.tuple.local.set_port(1);
    for second in 101..110 {
        interactions.round(at(second), wall(at(second)));
        if interactions.wants(&quiet(), &other, &owner) {
            let mut nothing = verdict(&other, second);
            nothing.findings.clear();
            interactions.observe(&other, &owner, &nothing);
        }
    }
    assert!(!interactions.wants(&quiet(), &other, &owner));
}

#[test]
fn what_goes_on_is_recorded_every_half_minute_and_at_the_end() {
    let mut interactions = InteractionTracker::default();
    let snapshot = quiet();
    let owner = Owner::named(7, "curl");
    let mut records = Vec::new();
    for second in 100..=170 {
        interactions.observe(&snapshot, &owner, &verdict(&snapshot, second));
        records.extend(interactions.round(at(second), wall(at(second))));
    }
    records.extend(interactions.finish(at(170), wall(at(170))));
    // From 99 to 129, 159 and 170: nothing twice, nothing left out.
    let ends: Vec<_> = records.iter().map(|found| found.end).collect();
    assert_eq!(ends, [129, 159, 170].map(|second| wall(at(second))));
    let time: u64 = records.iter().map(|found| found.duration.0).sum();
    assert_eq!(time, 71_000_000);
    assert_eq!(records.iter().map(|found| found.rounds).sum::<u64>(), 71);
}

// SPDX-License-Identifier: Apache-2.0
//! What the log has of connections' traffic, in virtual time. The script's beginning is half past an
//! hour of the wall clock: 1,700,001,000 s since 1970 are 472,222 hours and 1,800 s.

use super::*;
use crate::script::{Session, at, connection, wall};
use proptest::prelude::*;
use slowpath_model::{Micros, Origin};
use std::collections::BTreeMap;

/// The end of the first hour, seconds from the script's beginning.
const HOUR_ENDS: u64 = 1_800;

/// The connection at `now` with `counts` segments sent, received and retransmitted.
fn carried(cookie: u64, now: MonoNanos, counts: [u64; 3]) -> Snapshot {
    let mut snapshot = connection(cookie);
    snapshot.at = now;
    let stats = &mut snapshot.stats;
    [
        stats.data_segments_out,
        stats.data_segments_in,
        stats.retransmitted,
    ] = counts;
    snapshot
}

fn closed(snapshot: Snapshot) -> Snapshot {
    Snapshot {
        closed: true,
        ..snapshot
    }
}

/// The end, length and counts of each record.
fn logged(session: &Session) -> Vec<(WallMicros, Micros, [Option<u64>; 3])> {
    let traffic = session.machine.traffic().into_iter();
    let row = |t: TrafficInterval| {
        let counts = [t.data_segments_out, t.data_segments_in, t.retransmitted];
        (t.end, t.duration, counts)
    };
    traffic.map(row).collect()
}

fn seconds(seconds: u64) -> Micros {
    Micros(1_000_000 * seconds)
}

fn known(counts: [u64; 3]) -> [Option<u64>; 3] {
    counts.map(Some)
}

#[test]
fn a_connection_within_an_hour_has_one_record_with_all_it_carried() {
    let mut session = Session::logging();
    session.poll(at(1), [carried(5, at(1), [3, 1, 0])]);
    session.poll(at(2), [closed(carried(5, at(2), [9, 4, 2]))]);
    let all = (wall(at(2)), seconds(2), known([9, 4, 2]));
    assert_eq!(logged(&session), [all]);
    // The record is behind the connection's own, which has its addresses.
    assert_eq!(session.machine.summaries().len(), 1);
}

#[test]
fn one_that_carried_nothing_has_none() {
    let mut session = Session::logging();
    session.poll(at(1), [carried(5, at(1), [0, 0, 0])]);
    session.poll(at(2), [closed(carried(5, at(2), [0, 0, 0]))]);
    assert_eq!(logged(&session), []);
    assert_eq!(session.machine.summaries().len(), 1);
}

#[test]
fn each_hour_has_what_was_carried_in_it() {
    let mut session = Session::logging();
    session.poll(at(1), [carried(5, at(1), [10, 20, 0])]);
    // The minute's round saves its summary; then the hour ends and nothing has changed since.
    session.poll(at(70), []);
    session.poll(at(71), []);
    assert_eq!(logged(&session), []);
    let rounds = [HOUR_ENDS, HOUR_ENDS + 61, HOUR_ENDS + 122];
    for second in rounds {
        session.poll(at(second), []);
    }
    let [(end, duration, first)] = logged(&session)[..] else {
        panic!("{:?}", logged(&session));
    };
    assert_eq!(first, known([10, 20, 0]));
    assert!(end >= wall(at(HOUR_ENDS)) && end <= wall(at(HOUR_ENDS + 122)));
    let later = HOUR_ENDS + 1_000;
    session.poll(at(later), [closed(carried(5, at(later), [17, 20, 3]))]);
    let (last_end, last_duration, last) = logged(&session)[1];
    assert_eq!(last, known([7, 0, 3]));
    // No gap between them, and none before.
    assert_eq!(last_end, wall(at(later)));
    assert_eq!(duration + last_duration, seconds(later));
}

#[test]
fn of_one_older_than_the_agent_counts_what_was_carried_since() {
    let mut session = Session::logging();
    let old = |now, counts| {
        let mut snapshot = carried(5, now, counts);
        snapshot.id.start = MonoNanos(0);
        snapshot.origin = Origin::Unknown;
        snapshot
    };
    session.poll(at(10), [old(at(10), [1_000, 2_000, 30])]);
    session.poll(at(12), [closed(old(at(12), [1_005, 2_001, 31]))]);
    let since = (wall(at(12)), seconds(2), known([5, 1, 1]));
    assert_eq!(logged(&session), [since]);
}

#[test]
fn of_one_whose_opening_was_missed_too() {
    let mut session = Session::logging();
    let missed = |now, counts| Snapshot {
        origin: Origin::Unknown,
        ..carried(5, now, counts)
    };
    session.poll(at(10), [missed(at(10), [1_000, 2_000, 30])]);
    session.poll(at(12), [closed(missed(at(12), [1_005, 2_001, 31]))]);
    let since = (wall(at(12)), seconds(2), known([5, 1, 1]));
    assert_eq!(logged(&session), [since]);
}

#[test]
fn what_living_ones_carried_is_logged_when_the_agent_ends() {
    let mut session = Session::logging();
    session.poll(at(1), [carried(5, at(1), [10, 20, 0])]);
    session.poll(at(3), [carried(5, at(3), [11, 20, 0])]);
    session.core.tracker.save_last(&mut session.machine);
    let all = (wall(at(3)), seconds(3), known([11, 20, 0]));
    assert_eq!(logged(&session), [all]);
    session.core.tracker.save_last(&mut session.machine);
    assert_eq!(logged(&session).len(), 1, "it counts once");
}

#[test]
fn a_counter_that_went_backwards_gives_no_number() {
    let mut session = Session::logging();
    session.poll(at(1), [carried(5, at(1), [10, 20, 0])]);
    session.core.tracker.save_last(&mut session.machine);
    session.poll(at(2), [closed(carried(5, at(2), [4, 21, 0]))]);
    let (_, _, counts) = logged(&session)[1];
    assert_eq!(counts, [None, Some(1), Some(0)]);
}

#[test]
fn what_found_no_space_in_the_log_is_in_the_next_record() {
    let mut session = Session::logging();
    session.poll(at(1), [carried(5, at(1), [10, 20, 0])]);
    session.machine.log_limit = Some(0);
    session.core.tracker.save_last(&mut session.machine);
    assert_eq!(logged(&session), []);
    session.machine.log_limit = None;
    session.poll(at(2), [closed(carried(5, at(2), [12, 20, 1]))]);
    let all = (wall(at(2)), seconds(2), known([12, 20, 1]));
    assert_eq!(logged(&session), [all]);
}

proptest! {
    /// Whatever the connections carry and whenever they are polled, over some hours: the records of
    /// each add up to its counters, and their lengths to its time.
    #[test]
    fn records_add_up(
        steps in prop::collection::vec((1u64..700, 0u64..4, [0u64..9, 0u64..9, 0u64..3]), 1..80)
    ) {
        let mut session = Session::logging();
        let mut now = 0;
        let mut counts: BTreeMap<u64, [u64; 3]> = BTreeMap::new();
        for (pause, cookie, more) in steps {
            now += pause;
            let counts = counts.entry(cookie).or_default();
            *counts = std::array::from_fn(|i| counts[i] + more[i]);
            session.poll(at(now), [carried(cookie, at(now), *counts)]);
        }
        now += 1;
        let last = counts.iter().map(|(cookie, n)| closed(carried(*cookie, at(now), *n)));
        session.poll(at(now), last.collect::<Vec<_>>());
        for (cookie, counts) in counts {
            let all = session.machine.traffic();
            let own: Vec<_> = all.iter().filter(|t| t.connection.cookie == cookie).collect();
            let sum = |of: fn(&TrafficInterval) -> Option<u64>| own.iter().filter_map(|t| of(t)).sum::<u64>();
            prop_assert_eq!(
                [sum(|t| t.data_segments_out), sum(|t| t.data_segments_in), sum(|t| t.retransmitted)],
                counts
            );
            prop_assert!(own.iter().map(|t| t.duration.0).sum::<u64>() <= seconds(now).0);
            let ends: Vec<_> = own.iter().map(|t| t.end).collect();
            prop_assert!(ends.is_sorted());
        }
    }
}

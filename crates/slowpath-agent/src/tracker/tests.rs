// SPDX-License-Identifier: Apache-2.0
//! Summaries of living connections: in rotation under a CPU budget, all at once without; and which
//! connections' paths are to be traced.

use super::*;
use crate::owners::OwnerOptions;
use crate::paths::LossyConnection;
use crate::script::{Script, at, connection, wall};
use crate::summaries::SummaryRotation;
use slowpath_model::RtoStats;

const CONNECTIONS: u64 = 500;

fn tracker() -> ConnectionTracker {
    let options = TrackerOptions {
        thresholds: Thresholds::default(),
        history: 0,
        keep_verdicts: false,
    };
    let owners = Owners::new(OwnerOptions::default(), true);
    ConnectionTracker::new(options, owners, at(0))
}

/// A poll at which these connections show a change.
fn poll(
    tracker: &mut ConnectionTracker,
    host: &mut Script,
    now: MonoNanos,
    cookies: impl Iterator<Item = u64>,
) {
    let time = PollTime {
        now,
        wall: wall(now),
    };
    tracker.begin_poll(time, true);
    for cookie in cookies {
        let snapshot = Snapshot {
            at: now,
            ..connection(cookie)
        };
        tracker.observe(&snapshot, host);
    }
    tracker.end_poll();
}

#[test]
fn in_rotation_each_connection_that_changed_is_saved_once_a_minute() {
    let (mut tracker, mut host) = (tracker(), Script::logging());
    poll(&mut tracker, &mut host, at(0), 0..CONNECTIONS);
    let mut rotation = SummaryRotation::new(at(0));
    for second in 1..=60 {
        poll(&mut tracker, &mut host, at(second), 0..0);
        let before = host.summaries().len();
        tracker.save_due(&mut rotation, &mut host);
        // 500 in a minute are 8 and a third a second.
        let saved = host.summaries().len() - before;
        assert!((8..=9).contains(&saved), "{second}: {saved}");
        let written = host.summaries().len() as u64;
        assert_eq!(written, second * CONNECTIONS / 60);
    }
    // Of the next minute only the one that changed again is of interest.
    poll(&mut tracker, &mut host, at(61), 77..78);
    for second in 62..=121 {
        poll(&mut tracker, &mut host, at(second), 0..0);
        tracker.save_due(&mut rotation, &mut host);
    }
    assert_eq!(host.summaries().len() as u64, CONNECTIONS + 1);
}

#[test]
fn at_the_end_all_that_changed_are_saved_at_once() {
    let (mut tracker, mut host) = (tracker(), Script::logging());
    poll(&mut tracker, &mut host, at(0), 0..CONNECTIONS);
    let mut rotation = SummaryRotation::new(at(0));
    poll(&mut tracker, &mut host, at(6), 0..0);
    tracker.save_due(&mut rotation, &mut host);
    assert_eq!(host.summaries().len() as u64, CONNECTIONS / 10);
    tracker.save_summaries(&mut host);
    assert_eq!(host.summaries().len() as u64, CONNECTIONS);
}

/// A poll at which the connection has had `timeouts`; `unacknowledged` where the observer
/// states it.
fn poll_timeouts(
    tracker: &mut ConnectionTracker,
    now: MonoNanos,
    timeouts: u64,
    unacknowledged: Option<u32>,
) {
    let mut host = Script::logging();
    let time = PollTime {
        now,
        wall: wall(now),
    };
    tracker.begin_poll(time, true);
    let mut snapshot = connection(5);
    snapshot.at = now;
    snapshot.stats.rto_stats = Some(RtoStats {
        timeouts,
        recoveries: timeouts,
        time: Micros(200_000 * timeouts),
    });
    let mut intake = Intake {
        tracker,
        host: &mut host,
    };
    if let Some(sequence) = unacknowledged {
        intake.unacknowledged(sequence);
    }
    intake.see(&snapshot);
    tracker.end_poll();
}

#[test]
fn a_connection_that_lost_segments_is_noted_if_paths_are_traced() {
    let mut tracker = tracker();
    poll_timeouts(&mut tracker, at(1), 0, Some(70));
    poll_timeouts(&mut tracker, at(2), 1, Some(71));
    assert_eq!(tracker.consumers.lossy, None);
    tracker.consumers.lossy = Some(Vec::new());
    poll_timeouts(&mut tracker, at(3), 1, Some(72));
    assert_eq!(tracker.consumers.lossy, Some(Vec::new()));
    poll_timeouts(&mut tracker, at(4), 2, Some(73));
    let lossy = LossyConnection {
        id: connection(5).id,
        tuple: connection(5).tuple,
        unacknowledged: 73,
    };
    assert_eq!(tracker.consumers.lossy, Some(vec![lossy]));
}

#[test]
fn without_its_sequence_numbers_no_connection_is_noted() {
    let mut tracker = tracker();
    tracker.consumers.lossy = Some(Vec::new());
    poll_timeouts(&mut tracker, at(1), 0, None);
    poll_timeouts(&mut tracker, at(2), 1, None);
    assert_eq!(tracker.consumers.lossy, Some(Vec::new()));
}

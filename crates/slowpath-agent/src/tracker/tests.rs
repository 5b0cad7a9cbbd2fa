// SPDX-License-Identifier: Apache-2.0
//! Summaries of living connections: in rotation under a CPU budget, all at once without.

use super::*;
use crate::owners::OwnerOptions;
use crate::script::{Script, at, connection, wall};
use crate::summaries::SummaryRotation;

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

// SPDX-License-Identifier: Apache-2.0
//! Summaries of living connections: in rotation under a CPU budget, all at once without.

use super::*;
use crate::owners::OwnerOptions;
use serde::Deserialize;
use slowpath_model::{ConnectionId, WallMicros};
use slowpath_store::{HostIdentity, Options};

const CONNECTIONS: u64 = 500;

pub(crate) fn at(seconds: u64) -> MonoNanos {
    MonoNanos((1_000 + seconds) * 1_000_000_000)
}

pub(crate) fn wall(now: MonoNanos) -> WallMicros {
    WallMicros(1_700_000_000_000_000 + (now.0 / 1_000) as i64)
}

/// A connection that has done nothing: what kernels may lack is lacking, the rest is zero.
pub(crate) fn quiet() -> Snapshot {
    let mut value = serde_json::json!({
        "at": 0, "origin": "opened", "closed": false, "tier": "bpf",
        "id": {"boot_id": 7, "netns": 1, "cookie": 0, "start": 0},
        "tuple": {"local": "10.0.0.1:1", "remote": "10.0.0.2:2"},
        "stats": {"state": "established", "ca_state": "open"},
    });
    for _ in 0..100 {
        let error = match Snapshot::deserialize(&value) {
            Ok(snapshot) => return snapshot,
            Err(error) => error.to_string(),
        };
        value["stats"][error.split('`').nth(1).unwrap_or(&error)] = 0.into();
    }
    panic!("{value}");
}

fn core(dir: &std::path::Path) -> AgentCore {
    let host = HostIdentity {
        host: "here".to_owned(),
        boot_id: 7,
    };
    let log = LogWriter::open(dir, host, Options::default()).unwrap();
    let owners = Owners::new(OwnerOptions::default(), true);
    AgentCore::new(Thresholds::default(), 0, false, Some(log), owners, at(0))
}

/// A poll at which these connections show a change.
fn poll(core: &mut AgentCore, now: MonoNanos, cookies: impl Iterator<Item = u64>) {
    core.begin(now, wall(now), true);
    let quiet = quiet();
    for cookie in cookies {
        let id = ConnectionId {
            cookie,
            start: at(0),
            ..quiet.id
        };
        core.see(&Snapshot {
            id,
            at: now,
            ..quiet.clone()
        });
    }
    core.end(&mut Vec::new());
}

/// Summaries that the log has been given.
fn written(core: &AgentCore) -> u64 {
    let log = core.log.as_ref().unwrap();
    assert!(log.sync());
    log.status().records_written
}

#[test]
fn in_turns_each_connection_that_changed_is_saved_once_a_minute() {
    let dir = tempfile::tempdir().unwrap();
    let mut core = core(dir.path());
    poll(&mut core, at(0), 0..CONNECTIONS);
    let mut rotation = SummaryRotation::new(at(0));
    for second in 1..=60 {
        poll(&mut core, at(second), 0..0);
        let places = core.save_due(&mut rotation) as u64;
        // 500 in a minute are 8 and a third a second.
        assert!((8..=9).contains(&places), "{second}: {places}");
        assert_eq!(written(&core), second * CONNECTIONS / 60);
    }
    // Of the next minute only the one that changed again is of interest.
    poll(&mut core, at(61), 77..78);
    for second in 62..=121 {
        poll(&mut core, at(second), 0..0);
        core.save_due(&mut rotation);
    }
    assert_eq!(written(&core), CONNECTIONS + 1);
    assert_eq!(core.close(), None);
}

#[test]
fn at_the_end_all_that_changed_are_saved_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut core = core(dir.path());
    poll(&mut core, at(0), 0..CONNECTIONS);
    let mut rotation = SummaryRotation::new(at(0));
    poll(&mut core, at(6), 0..0);
    core.save_due(&mut rotation);
    assert_eq!(written(&core), CONNECTIONS / 10);
    core.save_summaries();
    assert_eq!(written(&core), CONNECTIONS);
    assert_eq!(core.close(), None);
}

// SPDX-License-Identifier: Apache-2.0
//! Results as pScheduler has them, so that what archives its results takes ours.
//!
//! What enters: what sessions left, with their report; hops and throughput as plain values. What leaves: a
//! [`Run`], whose JSON has the keys that pScheduler gives its archivers, with `result` as its validators accept it
//! (`pscheduler-test-{latency,rtt,trace,throughput}/*/validate.py` of perfsonar/pscheduler, version 5.2.5).
//! [`Archive`] posts it as its archiver `http` does: `POST`, `application/json`, any status from 200 to 299.

mod post;
mod reports;
mod results;

pub use post::{Archive, ArchiveError};
pub use reports::{throughput_of, trace_of};
pub use results::{Hop, Interval, Latency, RoundTrip, Rtt, Throughput, Trace, latency_of, rtt_of};

use crate::session::{PathError, random};
use serde_json::{Value, json};
use std::time::Duration;

/// A finished run of a test.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its identifier, a UUID.
    pub id: String,
    /// The identifier of the task that it belongs to, a UUID.
    pub task: String,
    /// When it began, RFC 3339.
    pub start: String,
    /// How long it took.
    pub duration: Duration,
    /// `latency`, `rtt`, `trace` or `throughput`.
    pub test: &'static str,
    /// What was asked for.
    pub spec: Value,
    /// The hosts that took part, the one that ran the test first.
    pub participants: Vec<String>,
    /// What came of it.
    pub result: Value,
}

impl Run {
    /// A run with identifiers of its own.
    ///
    /// # Errors
    /// The kernel gives no random octets.
    pub fn new(
        test: &'static str,
        (start, duration): (String, Duration),
        participants: Vec<String>,
        (spec, result): (Value, Value),
    ) -> Result<Self, PathError> {
        Ok(Run {
            id: uuid(random()?),
            task: uuid(random()?),
            start,
            duration,
            test,
            spec,
            participants,
            result,
        })
    }

    /// What pScheduler's archivers get.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let duration = iso_8601(self.duration);
        let test = json!({ "type": self.test, "spec": self.spec });
        let schedule = json!({ "start": self.start, "duration": duration });
        json!({
            "id": self.id,
            "schedule": schedule,
            "test": test,
            "tool": { "name": "slowpath", "version": env!("CARGO_PKG_VERSION") },
            "run": {
                "start-time": self.start,
                "duration": duration,
                "participants": self.participants,
                "state": "finished",
            },
            "task": { "id": self.task, "test": test, "schedule": schedule, "tool": "slowpath" },
            "participants": self.participants,
            "result": self.result,
            "reference": null,
        })
    }
}

/// Random octets as a UUID of version 4 (RFC 9562 section 5.4).
fn uuid(mut octets: [u8; 16]) -> String {
    octets[6] = octets[6] & 0x0f | 0x40;
    octets[8] = octets[8] & 0x3f | 0x80;
    let mut text = String::new();
    for (at, octet) in octets.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{octet:02x}"));
    }
    text
}

/// A length of time as ISO 8601 has it, in seconds.
#[must_use]
pub fn iso_8601(length: Duration) -> String {
    let nanos = format!("{:09}", length.subsec_nanos());
    match nanos.trim_end_matches('0') {
        "" => format!("PT{}S", length.as_secs()),
        fraction => format!("PT{}.{fraction}S", length.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_seconds_of_iso_8601() {
        let text = |nanos| iso_8601(Duration::from_nanos(nanos));
        assert_eq!(text(333_000), "PT0.000333S");
        assert_eq!(text(15_000_000_000), "PT15S");
        assert_eq!(text(0), "PT0S");
        assert_eq!(text(61_500_000_000), "PT61.5S");
    }

    #[test]
    fn identifiers_are_uuids_of_version_4() {
        let text = uuid([0xff; 16]);
        assert_eq!(text, "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }

    #[test]
    fn a_run_has_the_keys_that_archivers_get() {
        let run = Run::new(
            "rtt",
            (
                "2026-01-02T03:04:05.000Z".to_owned(),
                Duration::from_secs(10),
            ),
            vec!["a".to_owned()],
            (json!({ "dest": "b" }), json!({ "succeeded": true })),
        );
        let value = run.expect("random octets").to_json();
        let mut keys: Vec<&String> = value.as_object().expect("an object").keys().collect();
        keys.sort();
        // archiver.raw of pscheduler-server: what it puts into `result`.
        let expected = [
            "id",
            "participants",
            "reference",
            "result",
            "run",
            "schedule",
            "task",
            "test",
            "tool",
        ];
        assert_eq!(keys, expected);
        assert_eq!(value["schedule"]["duration"], "PT10S");
        assert_eq!(value["tool"]["name"], "slowpath");
        assert_eq!(value["test"]["spec"]["dest"], "b");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Logs written by every released schema version are read: `released/v1` and so on, each
//! made by `cargo run -p slowpath-store --example fixture` of its time.

use serde_json::{Value, json};
use slowpath_model::{ConnectionSummary, LifeFacts, ProblemInterval};
use slowpath_store::{IntervalFilter, LogReader, ReadReport, SCHEMA_VERSION, TimeRange};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn clean(report: &ReadReport) {
    assert_eq!(report.unreadable, []);
    assert_eq!(
        (report.corrupt, report.not_understood, report.torn_tail),
        (0, 0, 0)
    );
}

/// What was written, by cookie.
fn by_cookie(rows: &Value) -> BTreeMap<u64, &Value> {
    rows.as_array()
        .unwrap()
        .iter()
        .map(|row| (row["cookie"].as_u64().unwrap(), row))
        .collect()
}

/// An interval as `expected.json` has it.
fn interval_row(interval: &ProblemInterval) -> Value {
    json!({
        "problems": interval.findings.iter().map(|f| f.problem.name()).collect::<Vec<_>>(),
        "events": interval.findings.iter().map(|f| f.events).collect::<Vec<_>>(),
        "timeouts": interval.deltas.timeouts,
        "retransmitted": interval.deltas.retransmitted,
        "send_mss": interval.deltas.send_mss,
    })
}

/// A row's problems with their events; two whose times round to the same may change places.
fn sorted_problems(row: &Value) -> Vec<String> {
    let lists = ["problems", "events"].map(|l| row[l].as_array().unwrap().clone());
    let [problems, events] = lists;
    let mut pairs: Vec<_> = problems
        .into_iter()
        .zip(events)
        .map(|p| format!("{p:?}"))
        .collect();
    pairs.sort();
    pairs
}

fn check_intervals(reader: &LogReader, expected: &Value) {
    let read = reader
        .intervals(TimeRange::ALL, &IntervalFilter::default())
        .unwrap();
    clean(&read.report);
    let written = by_cookie(&expected["intervals"]);
    assert_eq!(read.rows.len(), written.len());
    for interval in &read.rows {
        let want = written[&interval.connection.cookie];
        let got = interval_row(interval);
        assert_eq!(sorted_problems(&got), sorted_problems(want));
        for name in ["timeouts", "retransmitted", "send_mss"] {
            assert_eq!(got[name], want[name], "{name}");
        }
        for (got, name) in [
            (interval.end.0, "end"),
            (interval.duration.0 as i64, "duration"),
        ] {
            assert!(got.abs_diff(want[name].as_i64().unwrap()) <= 256, "{name}");
        }
    }
}

/// A summary as `expected.json` has it.
fn summary_row(summary: &ConnectionSummary) -> Value {
    json!({
        "cookie": summary.connection.cookie,
        "local": summary.tuple.local.to_string(),
        "remote": summary.tuple.remote.to_string(),
        "command": summary.owner.command(),
        "last_seen": summary.last_observed.0,
        "observed": summary.observed.0,
        "problem_time": summary.problem_time.map(|t| t.0),
        "problem_events": summary.problem_events,
        "retransmitted": summary.stats.retransmitted,
        "closed": summary.closed,
    })
}

fn check_connections(reader: &LogReader, expected: &Value) {
    let read = reader.connections(TimeRange::ALL).unwrap();
    clean(&read.report);
    let written = by_cookie(&expected["connections"]);
    assert_eq!(read.rows.len(), written.len());
    for summary in &read.rows {
        let got = summary_row(summary);
        // What came later reads as not known.
        assert_eq!(summary.life, LifeFacts::default());
        let want = written[&summary.connection.cookie];
        for (name, want) in want.as_object().unwrap() {
            let got = &got[name];
            // Problems that a later version added come after those there were.
            match (got.as_array(), want.as_array()) {
                (Some(got), Some(want)) => assert_eq!(&got[..want.len()], &want[..], "{name}"),
                _ => assert_eq!(got, want, "{name}"),
            }
        }
    }
}

fn check_coverage(reader: &LogReader, expected: &Value) {
    let read = reader.coverage(TimeRange::ALL).unwrap();
    clean(&read.report);
    // The clock came later.
    assert!(read.rows.iter().all(|c| c.clock.is_none()));
    let got: Vec<Value> = read
        .rows
        .iter()
        .map(|c| {
            json!({
                "end": c.end.0,
                "polls": c.polls,
                "records_dropped": c.losses.records_dropped,
                "cpu": c.cpu.0,
            })
        })
        .collect();
    assert_eq!(Value::Array(got), expected["coverage"]);
}

fn check(dir: &Path, expected: &Value) {
    let reader = LogReader::open(dir).unwrap();
    check_intervals(&reader, expected);
    // The table came later.
    let read = reader.interactions(TimeRange::ALL).unwrap();
    clean(&read.report);
    assert_eq!(read.rows, []);
    // So did this one.
    let read = reader.traffic(TimeRange::ALL).unwrap();
    clean(&read.report);
    assert_eq!(read.rows, []);
    check_connections(&reader, expected);
    check_coverage(&reader, expected);
}

#[test]
fn every_released_version_is_read() {
    let released = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/released");
    let mut versions = Vec::new();
    for entry in fs::read_dir(&released).unwrap() {
        let dir = entry.unwrap().path();
        let expected: Value =
            serde_json::from_str(&fs::read_to_string(dir.join("expected.json")).unwrap()).unwrap();
        println!("{}", dir.display());
        check(&dir, &expected);
        versions.push(expected["schema_version"].as_u64().unwrap());
    }
    versions.sort_unstable();
    let all: Vec<u64> = (1..=u64::from(SCHEMA_VERSION)).collect();
    assert_eq!(versions, all, "each schema version has its directory");
}

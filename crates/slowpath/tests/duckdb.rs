// SPDX-License-Identifier: Apache-2.0
//! DuckDB reads a day's log by SELECT only: each question of `duckdb.sql` has the answer that
//! `slowpath report` gives or, where it reports nothing of the kind, the reader's rows.
//!
//! DuckDB is a wheel that `tools/duckdb/peer.py --install` puts into the user's cache.

mod day;

use serde_json::{Value, json};
use slowpath_model::ClockState;
use slowpath_store::{LogReader, TimeRange};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Microseconds.
const HOUR: i64 = 3_600_000_000;

const PEER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/duckdb/peer.py");
const QUESTIONS: &str = include_str!("duckdb.sql");

/// The interpreter with DuckDB, or why there is none.
fn interpreter() -> Result<PathBuf, String> {
    let output = Command::new("python3").args([PEER, "--which"]).output();
    let output = output.map_err(|e| format!("python3: {e}"))?;
    if output.status.success() {
        let path = String::from_utf8_lossy(&output.stdout);
        return Ok(PathBuf::from(path.trim()));
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// The questions of the file and their SQL.
fn questions() -> BTreeMap<&'static str, &'static str> {
    QUESTIONS
        .split("-- question: ")
        .skip(1)
        .map(|part| part.split_once('\n').expect("SQL follows a question"))
        .collect()
}

/// DuckDB's rows for each question, run in the folder that holds `log`.
fn answers(python: &Path, folder: &Path) -> BTreeMap<String, Vec<Vec<Value>>> {
    let mut child = Command::new(python)
        .arg(PEER)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python runs");
    let mut stdin = child.stdin.take().expect("is piped");
    let input = serde_json::to_vec(&questions()).expect("is JSON");
    stdin.write_all(&input).expect("takes the questions");
    drop(stdin);
    let output = child.wait_with_output().expect("ends");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("is JSON")
}

fn report(log: &Path, arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_slowpath"))
        .args(["report", "--json", "--log"])
        .arg(log)
        .args(arguments)
        .output()
        .expect("slowpath runs");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("is JSON")
}

/// DuckDB's rows as a set, whatever their order.
fn sorted(mut rows: Vec<Vec<Value>>) -> Vec<String> {
    let mut rows: Vec<String> = rows.iter_mut().map(|row| json!(row).to_string()).collect();
    rows.sort();
    rows
}

fn array<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key]
        .as_array()
        .unwrap_or_else(|| panic!("{key}: {value}"))
}

fn object(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().expect("is an object").iter()
}

/// The problems of a report's object but SenderAppLimited, which no row of the log states.
fn problems(of: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object(&of["problems"])
        .filter(|(name, sums)| *name != "SenderAppLimited" && sums["time_us"] != 0)
}

fn grouped(report: &Value) -> &Vec<Value> {
    array(&report["by"], "groups")
}

/// The values of these keys.
fn cells<const N: usize>(of: &Value, keys: [&str; N]) -> Vec<Value> {
    keys.map(|key| of[key].clone()).to_vec()
}

/// A row for each key of an object: the key and its count.
fn counts(of: &Value) -> Vec<Vec<Value>> {
    object(of)
        .map(|(name, count)| vec![json!(name), count.clone()])
        .collect()
}

/// What `slowpath report` answers to the questions that one report answers.
fn expected(log: &Path) -> BTreeMap<&'static str, Vec<Vec<Value>>> {
    let since = ["--since", "3d", "--by"];
    let by = |what| report(log, &[&since[..], &[what]].concat());
    let (peers, hosts, applications) = (by("peer"), by("host"), by("application"));
    let coverage = &peers["coverage"];
    let by_peer = grouped(&peers).iter().flat_map(|group| {
        problems(group)
            .map(|(name, sums)| vec![group["name"].clone(), json!(name), sums["time_us"].clone()])
    });
    let slowed = array(&peers, "problem_connections").iter().flat_map(|c| {
        problems(c).map(|(name, sums)| {
            let ends = cells(c, ["local", "remote"]);
            [ends, vec![json!(name)], cells(sums, ["time_us", "events"])].concat()
        })
    });
    let delayed = array(&peers, "table")
        .iter()
        .find(|row| row["problem"] == "DelayedAck");
    let delayed = delayed.expect("every problem has a row");
    let listeners = array(&peers, "listeners").iter().flat_map(|l| {
        object(&l["problems"]).map(|(name, sums)| {
            let sums = cells(sums, ["intervals", "time_us", "events"]);
            [vec![l["local"].clone(), json!(name)], sums].concat()
        })
    });
    let interactions = array(&peers, "interactions")
        .iter()
        .map(|i| cells(i, ["interaction", "local", "remote", "time_us", "rounds"]));
    BTreeMap::from([
        ("time of each problem by peer", by_peer.collect()),
        (
            "connections whose owner is unknown, by reason",
            counts(&coverage["unknown_owners"]),
        ),
        (
            "connections of each application",
            counts(&peers["owners"]["applications"]),
        ),
        ("what slowed each connection", slowed.collect()),
        (
            "share of connections with delayed ACKs",
            vec![vec![
                delayed["connections_percent"][0].clone(),
                delayed["unmeasured_connections"].clone(),
            ]],
        ),
        (
            "bytes of each application",
            grouped(&applications)
                .iter()
                .map(|g| cells(g, ["name", "bytes"]))
                .collect(),
        ),
        (
            "what the agent observed",
            vec![cells(coverage, ["polls", "time_us", "sockets", "missed"])],
        ),
        (
            "what could not be measured",
            array(coverage, "unmeasured")
                .iter()
                .map(|p| vec![p.clone()])
                .collect(),
        ),
        (
            "listeners that turned connections away",
            listeners.collect(),
        ),
        ("problems that explain each other", interactions.collect()),
        (
            "time observed at each address of this host",
            grouped(&hosts)
                .iter()
                .map(|g| cells(g, ["name", "connections", "observed_us"]))
                .collect(),
        ),
    ])
}

/// Losses since each of these hours, from a report each; what one has more than the next was
/// in that hour.
fn losses_by_hour(log: &Path, hours: &[String]) -> Vec<Vec<Value>> {
    let since = |hour: &String| -> u64 {
        let report = report(log, &["--since", hour, "--by", "host"]);
        let losses = |group: &Value| -> u64 {
            ["FastRetransmit", "Timeout"]
                .iter()
                .map(|p| group["problems"][p]["events"].as_u64().expect("a count"))
                .sum()
        };
        grouped(&report).iter().map(losses).sum()
    };
    let mut sums: Vec<u64> = hours.iter().map(since).collect();
    sums.push(0);
    let rows = hours.iter().zip(sums.windows(2));
    rows.map(|(hour, pair)| vec![json!(hour), json!(pair[0] - pair[1])])
        .collect()
}

/// Segments sent and retransmitted by hour, from the reader's rows.
fn traffic_by_hour(log: &Path, hours: &[String]) -> Vec<Vec<Value>> {
    let reader = LogReader::open(log).expect("a log");
    let rows = reader.traffic(TimeRange::ALL).expect("is read").rows;
    let first = rows.iter().map(|row| row.end.0 / HOUR).min();
    let first = first.expect("there was traffic");
    let mut sums = vec![[0; 2]; hours.len()];
    for row in rows {
        let sums = &mut sums[(row.end.0 / HOUR - first) as usize];
        sums[0] += row.data_segments_out.unwrap_or(0);
        sums[1] += row.retransmitted.unwrap_or(0);
    }
    let rows = hours.iter().zip(sums);
    rows.map(|(hour, [sent, again])| vec![json!(hour), json!(sent), json!(again)])
        .collect()
}

/// Each state of the clock with its largest error, from the reader's rows.
fn clocks(log: &Path) -> Vec<Vec<Value>> {
    let reader = LogReader::open(log).expect("a log");
    let mut clocks: BTreeMap<Option<&str>, Value> = BTreeMap::new();
    for row in reader.coverage(TimeRange::ALL).expect("is read").rows {
        let known = row.clock;
        let state = known.map(|clock| ClockState::NAMES[clock.state as usize]);
        let error = known.map(|clock| clock.max_error.0);
        let most = clocks.entry(state).or_default();
        *most = json!(error.max(most.as_u64()));
    }
    let rows = clocks.into_iter();
    rows.map(|(state, error)| vec![json!(state), json!(state.map(|_| true)), error])
        .collect()
}

#[test]
fn duckdb_and_the_report_give_the_same_answers() {
    let python = match interpreter() {
        Ok(python) => python,
        Err(reason) => {
            println!("SKIPPED duckdb_and_the_report_give_the_same_answers: {reason}");
            return;
        }
    };
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let hours = day::write(&log);
    let mut answered = answers(&python, folder.path());
    let mut expected = expected(&log);
    expected.insert("losses by hour", losses_by_hour(&log, &hours));
    expected.insert(
        "segments and retransmissions by hour",
        traffic_by_hour(&log, &hours),
    );
    expected.insert("clocks", clocks(&log));
    assert!(expected.len() >= 10);
    for (question, rows) in expected {
        let rows: Vec<Vec<Value>> = rows;
        assert!(!rows.is_empty(), "{question}: a day has an answer");
        let got = answered
            .remove(question)
            .expect("the question is in the file");
        assert_eq!(sorted(got), sorted(rows), "{question}");
    }
    assert!(
        answered.is_empty(),
        "questions without a comparison: {answered:?}"
    );
}

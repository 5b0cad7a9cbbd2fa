// SPDX-License-Identifier: Apache-2.0
//! What `slowpath trace --json` prints obeys the published schema.

mod frames;

use frames::{USUAL, menagerie, timed};
use serde_json::Value;
use slowpath_testbed::json_schema::violations;
use slowpath_trace::engine;
use slowpath_trace::read::{Input, Inputs};
use slowpath_trace::report::counters::LogComparison;
use slowpath_trace::report::selection::Keep;
use slowpath_trace::report::{CaptureReport, analysis, json, pairing};
use std::io::Cursor;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

fn schema() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/trace.json");
    serde_json::from_slice(&std::fs::read(path).expect("it is published")).expect("it is JSON")
}

/// Checks every line of a capture's output, paired with another; returns the lines' types.
fn check(capture: impl Fn() -> Inputs, other: Inputs) -> Vec<String> {
    let options = engine::Options::default();
    let go_on = |_| ControlFlow::Continue(());
    let analysis = analysis::analyse(capture(), &options, &Keep::all(), go_on).expect("it reads");
    let report = CaptureReport {
        name: "capture".into(),
        count: analysis.summary.connections,
        summary: analysis.summary,
        live_drops: None,
        connections: analysis.connections,
        troubled: analysis.troubled,
        unlisted: analysis.unlisted,
        artefacts: analysis.artefacts,
        overview: analysis.overview,
    };
    let log = LogComparison {
        connections: Vec::new(),
        notes: vec!["the log is empty".to_owned()],
    };
    let captures = [capture(), other];
    let paired =
        pairing::read(&report.connections, captures, &options, false, || go_on).expect("both read");
    let mut out = Vec::new();
    json::write(&report, Some(&log), &paired, &mut out).expect("memory");
    let schema = schema();
    let lines = String::from_utf8(out).expect("JSON is UTF-8");
    let types = lines.lines().map(|line| {
        let object: Value = serde_json::from_str(line).expect("it is JSON");
        let found = violations(&schema, &object);
        assert!(found.is_empty(), "{object}: {found:#?}");
        object["type"].as_str().expect("a type").to_owned()
    });
    types.collect()
}

#[test]
fn frames_of_all_kinds() {
    let capture = || {
        let bytes = USUAL.pcap(1, &timed(menagerie()));
        let input = Input::Stream("made".to_owned(), Box::new(Cursor::new(bytes)));
        Inputs::new(vec![input]).expect("there is one")
    };
    let types = check(capture, capture());
    for kind in ["capture", "connection", "log_notes", "pair"] {
        assert!(types.iter().any(|t| t == kind), "{kind}: {types:?}");
    }
}

/// Captures with losses, probes, delayed ACKs; the last at both sides of a NAT.
#[test]
fn captures_made_by_others() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    for (name, other) in [
        (
            "tcptrace/discard.solaris.dmp.gz",
            "tcptrace/psc.fddi.dmp.gz",
        ),
        ("verdicts/NAT_home_side.pcap", "verdicts/NAT_ISP_side.pcap"),
    ] {
        if !folder.join(name).exists() {
            println!("SKIPPED {name}: shared/captures is not here");
            continue;
        }
        let open = |name| Inputs::new(vec![Input::File(folder.join(name))]).expect("it opens");
        let types = check(|| open(name), open(other));
        assert!(types.iter().any(|t| t == "pair"), "{name}: {types:?}");
    }
}

#[test]
fn what_breaks_the_schema_is_found() {
    let schema = schema();
    for broken in [
        r#"{"type": "capture"}"#,
        r#"{"type": "log_notes", "notes": [1]}"#,
        r#"{"type": "another", "notes": []}"#,
        r#"{"notes": []}"#,
    ] {
        let object = serde_json::from_str(broken).expect("it is JSON");
        assert!(!violations(&schema, &object).is_empty(), "{broken}");
    }
    let notes = serde_json::from_str(r#"{"type": "log_notes", "notes": ["a"]}"#);
    assert_eq!(
        violations(&schema, &notes.expect("it is JSON")),
        Vec::<String>::new()
    );
}

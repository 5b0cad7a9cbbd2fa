// SPDX-License-Identifier: Apache-2.0
//! The metrics by the judgement of others: Prometheus's own linter, and the conventions.

mod states;

use slowpath_export::http::HttpCounters;
use slowpath_export::prometheus::{Format, encode};
use slowpath_export::push::PushCounters;
use slowpath_export::{Family, Kind, catalogue};
use slowpath_model::MonoNanos;
use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

fn families() -> Vec<Family> {
    let agent = states::played(&["nginx", "a \"quoted\"\\name\n", "naïve"]);
    let state = states::state(&agent, MonoNanos(2_000_000_000));
    catalogue::families(&state, &HttpCounters::default(), &PushCounters::default())
}

#[test]
fn promtool_finds_nothing_wrong() {
    let text = encode(&families(), Format::Text);
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = promtool else {
        println!("SKIPPED promtool_finds_nothing_wrong: no promtool here (Debian: prometheus)");
        return;
    };
    let mut input = promtool.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.is_empty(), "{said}\n{text}");
}

/// OpenTelemetry's translation of a name ("Prometheus and OpenMetrics Compatibility").
fn translated(family: &Family) -> String {
    let mut name = family.name.replace('.', "_");
    if let Some(unit) = family.unit.suffix() {
        name = format!("{name}_{unit}");
    }
    match family.kind {
        Kind::Counter => name + "_total",
        Kind::Info => name + "_info",
        Kind::Gauge | Kind::UpDown | Kind::Histogram => name,
    }
}

#[test]
fn both_worlds_have_the_same_names() {
    let families = families();
    let mut names = BTreeSet::new();
    for family in &families {
        assert!(
            names.insert(family.prometheus),
            "{} twice",
            family.prometheus
        );
        assert!(family.help.ends_with('.'), "{}", family.help);
        if !family.name.starts_with("process.") {
            assert_eq!(family.prometheus, translated(family));
        }
    }
}

#[test]
fn every_metric_is_in_the_documentation() {
    let doc = include_str!("../../../docs/reference/metrics.md");
    for family in families() {
        assert!(
            doc.contains(&format!("`{}`", family.prometheus)),
            "{} lacks in docs/reference/metrics.md",
            family.prometheus
        );
    }
}

#[test]
fn what_is_not_known_has_no_sample() {
    let text = encode(&families(), Format::Text);
    let has = |line: &str| text.lines().any(|l| l == line);
    assert!(
        has("slowpath_problem_time_seconds_total{problem=\"Timeout\"} 3"),
        "{text}"
    );
    assert!(
        has("slowpath_problem_events_total{problem=\"Timeout\"} 3"),
        "{text}"
    );
    assert!(has("slowpath_problem_unmeasured{problem=\"DelayedAck\"} 1"));
    assert!(
        !text.contains("seconds_total{problem=\"DelayedAck\"}"),
        "{text}"
    );
    assert!(has("slowpath_lost_total{kind=\"closes_dropped\"} 9"));
    assert!(has(
        "slowpath_application_problem_time_seconds_total{application=\"nginx\",problem=\"Timeout\"} 1"
    ));
}

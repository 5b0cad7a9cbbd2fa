// SPDX-License-Identifier: Apache-2.0
//! What the views say of listening sockets.

use crate::render::Paint;
use crate::session;
use crate::watch::{Form, Lines};
use crate::why;
use serde_json::{Value, json};
use slowpath_machine::system_names::SystemNames;
use slowpath_model::{
    Finding, ListenCounters, ListenerDeltas, ListenerId, ListenerSnapshot, ListenerVerdict,
    MonoNanos, Owner, Problem, ProblemSet, Share, Tier, WallMicros,
};
use slowpath_views::filter::Filter;
use slowpath_views::listeners::ListenerTally;
use slowpath_views::scripted::OwnedListener;
use slowpath_views::scripted::ScriptedSource;
use slowpath_views::selection::Selection;
use std::sync::mpsc::channel;
use std::time::Duration;

/// A listener on port 80 that turned 15 connections away in the second before `to`.
fn overflowing(to: MonoNanos) -> OwnedListener {
    let mut live = healthy();
    live.latest = Some(ListenerVerdict {
        listener: live.snapshot.id,
        from: MonoNanos(to.0 - 1_000_000_000),
        to,
        findings: vec![Finding {
            problem: Problem::AcceptQueueOverflow,
            share: Share::Coarse,
            events: Some(15),
        }],
        unmeasured: ProblemSet::EMPTY,
        deltas: ListenerDeltas {
            drops: Some(15),
            accept_queue_before: 129,
            accept_queue: 129,
            backlog: 128,
            namespace: ListenCounters {
                overflows: Some(15),
                ..ListenCounters::ZERO
            },
            dropping: 1,
            ..ListenerDeltas::default()
        },
    });
    live
}

fn healthy() -> OwnedListener {
    let snapshot = ListenerSnapshot {
        id: ListenerId {
            boot_id: 1,
            netns: 2,
            cookie: 3,
        },
        local: "10.0.0.1:80".parse().unwrap(),
        at: MonoNanos(5),
        closed: false,
        tier: Tier::Bpf,
        opener: Some(Owner::named(12, "nginx")),
        reuse_port: Some(false),
        accept_queue: 0,
        backlog: 128,
        drops: Some(0),
        syn_queue: Some(0),
        young: Some(0),
        cookie_age: None,
    };
    OwnedListener {
        owner: snapshot.opener.clone().unwrap_or_default(),
        snapshot,
        latest: None,
    }
}

fn watch(filter: &str, form: Form, polls: u64) -> (String, crate::watch::WatchSummary) {
    let mut source = ScriptedSource::new(vec![]);
    source.listeners = vec![overflowing(MonoNanos(9_000_000_000))];
    let mut out = Vec::new();
    let (_sender, events) = channel();
    let selection = Selection {
        filter: Filter::parse(filter, &SystemNames::default()).unwrap(),
        family: None,
    };
    let mut viewer = Lines::new(&mut out, form, selection, None);
    let length = Duration::from_micros(slowpath_views::scripted::INTERVAL.0 * (polls - 1));
    session::run(&mut source, &events, Some(length), &mut viewer).unwrap();
    let closing = viewer.closing;
    (String::from_utf8(out).unwrap(), closing)
}

#[test]
fn a_verdict_is_a_line_once() {
    let (text, closing) = watch("", Form::Text(Paint::OFF), 3);
    assert_eq!(text.lines().count(), 1, "{text}");
    for part in [
        "AcceptQueueOverflow",
        "15",
        "nginx[12]",
        "10.0.0.1:80",
        "backlog 128",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(closing.problems_found(&Default::default()));
}

#[test]
fn a_filter_is_about_listeners_too() {
    for (filter, shown) in [
        ("sport = :80", true),
        ("state listening", true),
        ("problem = AcceptQueueOverflow", true),
        ("process = nginx", true),
        ("sport = :81", false),
        ("dport = :80", false),
        ("problem = SynQueueOverflow", false),
        ("state established", false),
    ] {
        let (text, _) = watch(filter, Form::Text(Paint::OFF), 1);
        assert_eq!(!text.is_empty(), shown, "{filter}: {text}");
    }
}

#[test]
fn json_names_listener_finding_and_advice() {
    let (text, _) = watch("", Form::Json, 2);
    let object: Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!(object["type"], "listener");
    assert_eq!(object["local"], "10.0.0.1:80");
    assert_eq!(object["process"]["pid"], 12);
    assert_eq!(object["findings"][0]["problem"], "AcceptQueueOverflow");
    assert_eq!(object["findings"][0]["events"], 15);
    assert_eq!(object["interval_us"], 1_000_000);
    assert_eq!(object["evidence"]["accept_queue"], 129);
    assert_eq!(object["evidence"]["syn_queue"], Value::Null);
    assert_eq!(object["advice"][0]["who"], "accepting_developer");
}

fn why(target: &str, listener: OwnedListener) -> Result<String, crate::failure::Failure> {
    let mut source = ScriptedSource::new(vec![]);
    source.listeners = vec![listener];
    let (_sender, events) = channel();
    let mut out = Vec::new();
    why::run(
        &mut source,
        &events,
        &why::Target::parse(target, &SystemNames::default()).unwrap(),
        why::Options {
            length: Duration::from_secs(1),
            json: false,
            exit: Default::default(),
        },
        Paint::OFF,
        &mut out,
    )?;
    Ok(String::from_utf8(out).unwrap())
}

#[test]
fn why_answers_for_a_port_and_a_process() {
    for target in [":80", "12", "nginx", "10.0.0.1:80"] {
        let text = why(target, overflowing(MonoNanos(9_000_000_000))).unwrap();
        for part in [
            "nginx[12]  listens on 10.0.0.1:80",
            "AcceptQueueOverflow: 15 turned away in 1 round",
            "the developer of nginx[12]",
        ] {
            assert!(text.contains(part), "{target}: {part}: {text}");
        }
    }
    let text = why(":80", healthy()).unwrap();
    assert!(text.contains("No connection was turned away."), "{text}");
    assert!(why(":81", healthy()).is_err());
}

#[test]
fn sums_say_what_was_not_counted() {
    let mut heard = ListenerTally::default();
    let interval = |events| {
        let mut interval = overflowing(MonoNanos(9_000_000_000))
            .live()
            .interval(WallMicros(1))
            .unwrap();
        interval.findings[0].events = events;
        interval
    };
    heard.add(&interval(Some(3)), 1);
    heard.add(&interval(None), 1);
    let table = heard.table(5, Paint::OFF).join("\n");
    assert!(table.contains("3 or more"), "{table}");
    let json = slowpath_views::json::value(&heard.output());
    let sum = &json[0]["problems"]["AcceptQueueOverflow"];
    assert_eq!((&sum["intervals"], &sum["events"]), (&json!(2), &json!(3)));
    assert_eq!(sum["uncounted_intervals"], 1);
}

// SPDX-License-Identifier: Apache-2.0
//! Interactions as the views report them.

use crate::render::Paint;
use crate::session;
use crate::watch::{Form, Lines};
use crate::why;
use serde_json::{Value, json};
use slowpath_diagnose::Actor;
use slowpath_machine::system_names::SystemNames;
use slowpath_model::{Origin, Problem, Share};
use slowpath_views::scripted::{INTERVAL, ScriptedSource, finding, live, verdict};
use slowpath_views::selection::Selection;
use slowpath_views::source::OwnedConnection;
use std::sync::mpsc::channel;
use std::time::Duration;

/// A proxy, process 12: what comes in from :5000 waits, what goes out to :81 finds its
/// receiver's window full.
fn proxy() -> Vec<OwnedConnection> {
    let mut from = live(12, "relay", "10.0.0.1:80", "10.0.0.9:5000");
    from.snapshot.origin = Origin::Accepted;
    from.snapshot.stats.receive_buffer = Some(131_072);
    let mut into = verdict(12, INTERVAL, vec![]);
    into.deltas.bytes_received = Some(400_000);
    into.deltas.receive_queue = 100_000;
    from.latest = Some(into);
    let mut to = live(13, "relay", "10.0.0.1:4000", "10.0.0.2:81");
    to.owner = from.owner.clone();
    to.snapshot.origin = Origin::Opened;
    let share = Share::Measured(INTERVAL);
    let mut out = verdict(
        13,
        INTERVAL,
        vec![finding(Problem::ReceiverWindowLimited, share)],
    );
    out.deltas.bytes_sent = Some(400_000);
    to.latest = Some(out);
    vec![from, to]
}

fn watch(form: Form, steps: Vec<Vec<OwnedConnection>>) -> String {
    let polls = steps.len() as u64;
    let mut out = Vec::new();
    let (_sender, events) = channel();
    let mut viewer = Lines::new(&mut out, form, Selection::default(), None);
    let length = Duration::from_micros(INTERVAL.0 * (polls - 1));
    session::run(
        &mut ScriptedSource::new(steps),
        &events,
        Some(length),
        &mut viewer,
    )
    .unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn an_interaction_is_a_line_when_it_begins() {
    let text = watch(Form::Text(Paint::OFF), vec![proxy(), proxy(), proxy()]);
    let found: Vec<&str> = text
        .lines()
        .filter(|l| l.contains("PipelinedProxy"))
        .collect();
    assert_eq!(found.len(), 1, "{text}");
    for part in ["relay[12]", "10.0.0.1:80", "ReceiverWindowLimited, 100%"] {
        assert!(found[0].contains(part), "{part}: {}", found[0]);
    }
}

#[test]
fn json_names_connections_and_cause() {
    let text = watch(Form::Json, vec![proxy(), proxy()]);
    let found: Vec<Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .filter(|o: &Value| o["type"] == "interaction")
        .collect();
    assert_eq!(found.len(), 1, "{text}");
    let object = &found[0];
    assert_eq!(object["interaction"], "PipelinedProxy");
    assert_eq!(object["connections"][0]["remote"], "10.0.0.9:5000");
    assert_eq!(object["connections"][1]["remote"], "10.0.0.2:81");
    assert_eq!(object["connections"][1]["process"]["pid"], 12);
    assert_eq!(object["evidence"]["flow"], "backed_up");
    assert_eq!(object["evidence"]["problem"], "ReceiverWindowLimited");
    assert_eq!(object["advice"]["who"], json!(Actor::ReceiverSide));
}

#[test]
fn why_reports_either_side() {
    for target in ["12", ":5000", "10.0.0.2:81"] {
        let (_sender, events) = channel();
        let mut out = Vec::new();
        why::run(
            &mut ScriptedSource::new(vec![proxy(), proxy(), proxy()]),
            &events,
            &why::Target::parse(target, &SystemNames::default()).unwrap(),
            why::Options {
                length: Duration::from_secs(1),
                json: false,
                exit: Default::default(),
            },
            Paint::OFF,
            &mut out,
        )
        .unwrap();
        let text = String::from_utf8(out).unwrap();
        for part in ["interaction: PipelinedProxy", "the receiver, 10.0.0.2:81"] {
            assert!(text.contains(part), "{target}: {part}: {text}");
        }
    }
}

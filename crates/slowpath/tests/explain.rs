// SPDX-License-Identifier: Apache-2.0
//! `slowpath explain` and `slowpath replay --set` from end to end, on DETER's section 2.1 as a laboratory kernel records it.

mod command;

use serde_json::Value;
use slowpath_lab::virtual_time::{HZ, Kernel, SOURCE};
use std::path::Path;

/// What the command printed, and how it ended.
struct CommandResult {
    status: Option<i32>,
    out: String,
    error: String,
}

fn slowpath(arguments: &[&str]) -> CommandResult {
    let ended = command::slowpath(arguments);
    let [out, error] = [ended.stdout, ended.stderr].map(|bytes| command::text(&bytes));
    CommandResult {
        status: ended.status.code(),
        out,
        error,
    }
}

fn json(arguments: &[&str]) -> Value {
    let said = slowpath(arguments);
    assert_eq!(said.status, Some(0), "{}", said.error);
    serde_json::from_str(&said.out).unwrap()
}

/// The story's recording; `None`: no laboratory kernel.
fn story(test: &str, folder: &Path) -> Option<String> {
    if let Err(missing) = Kernel::find(SOURCE, HZ) {
        println!("SKIPPED {test}: {missing}");
        return None;
    }
    let scenario =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/replay/story-2.1.toml");
    let recording = folder.join("run.rec").display().to_string();
    let scenario = scenario.to_str().unwrap();
    json(&[
        "lab", "virtual", scenario, "--record", &recording, "--json", "--quiet",
    ]);
    Some(recording)
}

/// The short flow of the story: its last packets are lost, no duplicate ACK reports it, and the ACK of the retransmission is delayed.
const SHORT: &str = "4";
const SHORT_BYTES: u64 = 30_000;

/// What the text says of the short flow is drawn: a call, lost packets, what was sent again, a band
/// for each wait.
fn drawn(recording: &str, page: &Path, waits: usize) {
    let html = ["--html", page.to_str().unwrap(), "--quick"];
    let drawn = slowpath(&[&["explain", recording, "--connection", SHORT], &html[..]].concat());
    assert_eq!(drawn.status, Some(0), "{}", drawn.error);
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("<svg").count(), 1);
    for part in [
        "class=\"call\"",
        ", lost</title>",
        "class=\"again\"",
        "class=\"ack\"",
    ] {
        assert!(page.contains(part), "no {part}");
    }
    assert_eq!(page.matches("class=\"wait\"").count(), waits);
    assert!(page.contains("tail drops: packets"));
}

#[test]
fn the_short_flow_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let Some(recording) = story("the_short_flow_is_explained", folder.path()) else {
        return;
    };
    let answer = json(&["explain", &recording, "--connection", SHORT, "--json"]);
    let connections = answer["connections"].as_array().unwrap();
    assert_eq!(connections.len(), 1, "{answer}");
    let messages = connections[0]["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 1, "{answer}");
    let message = &messages[0];
    assert_eq!(message["category"], "timeout");
    assert_eq!(message["end"], "client");
    assert_eq!(message["bytes"], SHORT_BYTES);
    assert_eq!(answer["categories"]["timeout"], 1);
    let waits = message["waits"].as_array().unwrap();
    let causes: Vec<&str> = waits
        .iter()
        .flat_map(|wait| wait["causes"].as_array().unwrap())
        .map(|cause| cause["cause"].as_str().unwrap())
        .collect();
    for cause in ["tail_drops", "delayed_ack_after_timeout", "timeout_backoff"] {
        assert!(causes.contains(&cause), "no {cause} in {causes:?}");
    }
    // The waits are part of what the message took, and it took longer than its unimpeded time.
    let number = |value: &Value| value.as_f64().unwrap();
    let waited: f64 = waits.iter().map(|wait| number(&wait["milliseconds"])).sum();
    let took = number(&message["milliseconds"]);
    assert!(waited < took && number(&message["alone_milliseconds"]) < took);
    // The delayed acknowledgment was tried, and mattered.
    let tried: Vec<&Value> = waits.iter().map(|wait| &wait["confirmed"]).collect();
    assert!(tried.contains(&&Value::Bool(true)), "{waits:#?}");
    let quick = json(&[
        "explain",
        &recording,
        "--connection",
        SHORT,
        "--quick",
        "--json",
    ]);
    let untried = &quick["connections"][0]["messages"][0]["waits"];
    let mut untried = untried.as_array().unwrap().iter();
    assert!(untried.all(|wait| wait["confirmed"].is_null()));

    let output = slowpath(&["explain", &recording, "--connection", SHORT, "--exit-code"]);
    assert_eq!(output.status, Some(3), "{}", output.error);
    let said = output.out;
    for part in [
        "connection 4  10.0.0.1:",
        "message 0 of the client: 30000 bytes in",
        "tail drops: packets",
        "delayed ACK after a timeout",
        "tried: in a replay without that the message goes on earlier",
        "1 message: 1 retransmission timeout",
    ] {
        assert!(said.contains(part), "no '{part}' in: {said}");
    }
    drawn(&recording, &folder.path().join("page.html"), waits.len());
    let output = slowpath(&["explain", &recording, "--connection", "99"]);
    assert_eq!(output.status, Some(2));
    let said = output.error;
    assert!(
        said.contains("there is no connection 99") && said.contains("it has 5, from 0"),
        "{said}"
    );
}

#[test]
fn what_if_a_probe_had_been_sent() {
    let folder = tempfile::tempdir().unwrap();
    let Some(recording) = story("what_if_a_probe_had_been_sent", folder.path()) else {
        return;
    };
    let ask = |more: &[&str]| {
        let first = ["replay", &recording, "--connection", SHORT, "--json"];
        json(&[&first[..], more].concat())["connections"][0].take()
    };
    // As it was: nothing changes, and there is nothing to continue.
    let same = ask(&["--set", "tcp_early_retrans=0", "--continue"]);
    assert_eq!(same["departure"], Value::Null, "{same}");
    assert!(same.get("simulation").is_none(), "{same}");
    let explained = json(&["explain", &recording, "--connection", SHORT, "--json"]);
    let message = &explained["connections"][0]["messages"][0];
    let recorded = message["milliseconds"].as_f64().unwrap();

    // RFC 8985 section 7.2: a tail loss probe goes two round trips after the last packet, long before the timeout of 16 ms.
    let other = ask(&["--set", "tcp_early_retrans=3", "--continue"]);
    let departure = &other["departure"];
    assert_eq!(departure["end"], "client", "{other}");
    let number = |value: &Value| {
        value
            .as_f64()
            .unwrap_or_else(|| panic!("no number in {other}"))
    };
    let (was, now) = (&departure["was"], &departure["now"]);
    assert!(
        number(&was["at_ns"]) - number(&now["at_ns"]) > 10e6,
        "{departure}"
    );
    // The probe is data that had been sent before.
    let sequence = now["sequence"].as_u64().unwrap();
    assert!(
        (1..=SHORT_BYTES).contains(&sequence) && now["bytes"].as_u64().unwrap() > 0,
        "{now}"
    );
    // What comes then is a simulation, and says so.
    let simulation = &other["simulation"];
    assert_eq!(simulation["simulated"], true, "{other}");
    assert_eq!(simulation["simulator"], "slowpath-netsim");
    let left = simulation["bytes"].as_u64().unwrap();
    assert!((1..SHORT_BYTES).contains(&left), "{simulation}");
    let took = number(&simulation["milliseconds"]);
    assert!(
        took >= number(&simulation["round_trip_milliseconds"]) / 2.0,
        "{simulation}"
    );
    assert!(
        number(&simulation["message_milliseconds"]) < recorded / 4.0,
        "{simulation}"
    );
    assert!((number(&simulation["recorded_message_milliseconds"]) - recorded).abs() < 1e-6);
    // Without it the timeout comes, more than ten milliseconds later.
    assert!(
        number(&simulation["control"]["later_milliseconds"]) > 10.0,
        "{simulation}"
    );
    assert!(
        number(&simulation["gain_milliseconds"]) > 10.0,
        "{simulation}"
    );
    let plain = ask(&["--set", "tcp_early_retrans=3"]);
    assert!(plain.get("simulation").is_none(), "{plain}");
    said_of(&recording);
}

/// The same in words.
fn said_of(recording: &str) {
    let first = ["replay", recording, "--connection", SHORT];
    let said = |more: &[&str]| slowpath(&[&first[..], more].concat()).out;
    let printed = said(&["--set", "tcp_early_retrans=3", "--continue"]);
    for part in [
        "what the network would have answered is not known",
        "SIMULATED from there, nothing of it was recorded or replayed",
        "by itself on an empty path",
        "without the change, simulated likewise from its own next packet",
    ] {
        assert!(printed.contains(part), "no '{part}' in: {printed}");
    }
    assert!(said(&["--set", "tcp_early_retrans=0"]).contains("nothing changes"));
    let printed = said(&["--set", "congestion=vegas", "--continue"]);
    assert!(
        printed.contains("nothing changes")
            || printed.contains("slowpath-netsim has no congestion control 'vegas'"),
        "{printed}"
    );
}

/// Another initial window gives another future; the control is the same for all of them.
#[test]
fn a_changed_window_reaches_the_continuation() {
    let folder = tempfile::tempdir().unwrap();
    let Some(recording) = story("a_changed_window_reaches_the_continuation", folder.path()) else {
        return;
    };
    let [least, middle, most] = ["2", "20", "40"].map(|window| {
        let set = format!("initial_window={window}");
        let more = ["--set", &set, "--continue", "--json"];
        let first = ["replay", &recording, "--connection", SHORT];
        let answer = json(&[&first[..], &more].concat());
        let simulation = &answer["connections"][0]["simulation"];
        assert_eq!(simulation["window"].to_string(), window, "{answer}");
        assert_eq!(simulation["control"]["window"], 10, "{answer}");
        let number = |value: &Value| value.as_f64().expect("a number");
        let took = number(&simulation["message_milliseconds"]);
        let control = number(&simulation["control"]["message_milliseconds"]);
        let gain = number(&simulation["gain_milliseconds"]);
        assert!((control - took - gain).abs() < 1e-9, "{answer}");
        gain
    });
    assert!(
        least < 0.0 && 0.0 < middle && middle <= most,
        "{least} {middle} {most}"
    );
}

#[test]
fn settings_that_mean_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let Some(recording) = story("settings_that_mean_nothing", folder.path()) else {
        return;
    };
    for (set, why) in [
        ("tcp_nonsense=1", "is none of the recording's settings: "),
        ("tcp_recovery", "is not NAME=VALUE"),
    ] {
        let output = slowpath(&["replay", &recording, "--connection", SHORT, "--set", set]);
        assert_eq!(output.status, Some(2), "{}", output.error);
        assert!(output.error.contains(why), "{}", output.error);
    }
    let output = slowpath(&["replay", &recording, "--continue"]);
    assert_eq!(output.status, Some(2));
    assert!(output.error.contains("--set"), "{}", output.error);
}

/// Time beyond the unimpeded, of each message in the order of the text, in milliseconds.
fn lost(text: &str) -> Vec<f64> {
    let number = |line: &str, before: &str| -> Option<f64> {
        let rest = line.split_once(before)?.1;
        rest.split_once(" ms")?.0.parse().ok()
    };
    let messages = text.lines().filter(|line| line.starts_with("  message"));
    messages
        .filter_map(|line| Some(number(line, " in ")? - number(line, "unimpeded ")?))
        .collect()
}

#[test]
fn the_worst_message_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let Some(recording) = story("the_worst_message_comes_first", folder.path()) else {
        return;
    };
    let all = slowpath(&["explain", &recording, "--all", "--quick"]);
    let lost_by_all = lost(&all.out);
    assert!(lost_by_all.len() > 2, "{}", all.out);
    // Three digits are printed of either.
    assert!(
        lost_by_all.windows(2).all(|it| it[0] >= it[1] - 0.002),
        "{}",
        all.out
    );
    let top = slowpath(&["explain", &recording, "--all", "--quick", "--top", "2"]);
    assert_eq!(lost(&top.out), lost_by_all[..2]);
    let left = lost_by_all.len() - 2;
    assert!(
        top.out
            .contains(&format!("{left} messages more, which lost less time")),
        "{}",
        top.out
    );
}

#[test]
fn a_list_has_each_connection_with_its_bytes_and_timers() {
    let folder = tempfile::tempdir().unwrap();
    let test = "a_list_has_each_connection_with_its_bytes_and_timers";
    let Some(recording) = story(test, folder.path()) else {
        return;
    };
    let list = json(&["recording", "list", &recording, "--json"]);
    assert_eq!(list["type"], "recording_list");
    let connections = list["connections"].as_array().unwrap();
    // Four long flows and the short one, which lost its last packets.
    assert_eq!(connections.len(), 5);
    let short = &connections[4];
    assert_eq!(short["client_bytes"], SHORT_BYTES);
    assert_eq!(short["server_bytes"], 0);
    assert_eq!(short["replay"], "exact");
    assert_eq!(short["reason"], Value::Null);
    assert!(short["write_timers"].as_u64().unwrap() >= 2, "{short}");
    let text = slowpath(&["recording", "list", &recording]).out;
    assert!(
        text.contains("5 connections, of which 5 can be replayed"),
        "{text}"
    );
    let gone = slowpath(&["recording", "list", "/nonexistent.rec"]);
    assert_eq!(gone.status, Some(1));
}

// SPDX-License-Identifier: Apache-2.0
//! Frames that `slowpath explain` and `slowpath replay` name, as tshark finds them in the captures that they write; and what a page marks, by the
//! packets that are in one capture and not in the other. DETER's section 2.1, as a laboratory kernel records it.

mod command;

use serde_json::Value;
use slowpath_lab::virtual_time::{HZ, Kernel, SOURCE};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The story's short flow, the last of five: its last packets are lost, and two timeouts send again.
const SHORT: &str = "4";

fn slowpath(arguments: &[&str]) -> String {
    let ended = command::slowpath(arguments);
    assert!(ended.status.success(), "{}", command::text(&ended.stderr));
    command::text(&ended.stdout)
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&slowpath(&[arguments, &["--json"]].concat())).unwrap()
}

/// What tshark prints of each frame of a capture: its number, who sent it, its sequence number from the SYN's on, its payload.
struct Frame {
    number: u64,
    from: String,
    sequence: u64,
    bytes: u64,
}

fn tshark(capture: &Path) -> Vec<Frame> {
    let fields = [
        "frame.number",
        "ip.src",
        "tcp.srcport",
        "tcp.seq",
        "tcp.len",
    ];
    let mut command = Command::new("tshark");
    command.arg("-r").arg(capture).args(["-T", "fields"]);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", command::text(&output.stderr));
    let text = command::text(&output.stdout);
    let frame = |line: &str| {
        let parts: Vec<&str> = line.split('\t').collect();
        let number = |place: usize| parts[place].parse().unwrap();
        Frame {
            number: number(0),
            from: format!("{}:{}", parts[1], parts[2]),
            sequence: number(3),
            bytes: number(4),
        }
    };
    text.lines().map(frame).collect()
}

/// The recording; `None`: something is missing here.
fn story(test: &str, folder: &Path) -> Option<String> {
    if let Err(missing) = Kernel::find(SOURCE, HZ) {
        println!("SKIPPED {test}: {missing}");
        return None;
    }
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("SKIPPED {test}: there is no tshark");
        return None;
    }
    let scenario =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/replay/story-2.1.toml");
    let recording = folder.join("run.rec").display().to_string();
    let scenario = scenario.to_str().unwrap();
    slowpath(&[
        "lab", "virtual", scenario, "--record", &recording, "--quiet",
    ]);
    Some(recording)
}

/// The captures of a folder: by who sent them, the numbers of the frames in the capture of that end.
fn sent(folder: &Path) -> [BTreeMap<String, Vec<u64>>; 2] {
    ["client", "server"].map(|end| {
        let mut sent: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for frame in tshark(&folder.join(format!("{end}.pcapng"))) {
            sent.entry(frame.from).or_default().push(frame.number);
        }
        sent
    })
}

/// Every packet with a frame in an explanation is, in the capture of its end, preceded by as many packets of that end as its number says; how many there are.
fn named_frames_are_those_packets(
    connection: &Value,
    captures: &[BTreeMap<String, Vec<u64>>; 2],
) -> usize {
    let mut checked = 0;
    for message in connection["messages"].as_array().unwrap() {
        for wait in message["waits"].as_array().unwrap() {
            let causes = wait["causes"].as_array().unwrap().iter();
            let named = causes.flat_map(|cause| cause["packets"].as_array().unwrap());
            let next = (!wait["packet"].is_null()).then_some(&wait["packet"]);
            for packet in named.chain(next) {
                let end = packet["end"].as_str().unwrap();
                let sender = connection[end].as_str().unwrap();
                let frames = &captures[usize::from(end == "server")][sender];
                let number = packet["packet"].as_u64().unwrap();
                assert_eq!(packet["frame"], frames[number as usize], "{packet}");
                checked += 1;
            }
        }
    }
    checked
}

#[test]
fn a_named_frame_is_the_packet_in_the_written_capture() {
    let folder = tempfile::tempdir().unwrap();
    let test = "a_named_frame_is_the_packet_in_the_written_capture";
    let Some(recording) = story(test, folder.path()) else {
        return;
    };
    let all = folder.path().join("all");
    let out = all.display().to_string();
    // All five connections are in one capture: frames are not numbers of packets.
    let answer = json(&["explain", &recording, "--quick", "--out", &out]);
    let connections = answer["connections"].as_array().unwrap();
    let captures = sent(&all);
    let checked: usize = connections
        .iter()
        .map(|connection| named_frames_are_those_packets(connection, &captures))
        .sum();
    // The two lost packets, the retransmission whose ACK was delayed, what ended each wait.
    assert!(checked >= 5, "{answer}");
    the_short_flow_is_named_everywhere(&recording, folder.path());
}

/// Text and page name the frames that JSON has; without captures there are none.
fn the_short_flow_is_named_everywhere(recording: &str, folder: &Path) {
    let (out, page) = (folder.join("short"), folder.join("page.html"));
    let [to, html] = [&out, &page].map(|path| path.display().to_string());
    let first = ["explain", recording, "--quick", "--connection", SHORT];
    let written = ["--out", &to, "--html", &html];
    let answer = json(&[&first[..], &written].concat());
    let connection = &answer["connections"][0];
    assert!(
        named_frames_are_those_packets(connection, &sent(&out)) >= 5,
        "{answer}"
    );
    let cause = &connection["messages"][0]["waits"][0]["causes"][0];
    assert_eq!(cause["cause"], "tail_drops");
    let [one, other] = [0, 1].map(|place: usize| cause["packets"][place]["frame"].to_string());
    let text = slowpath(&[&first[..], &written].concat());
    let named = format!("[frames {one}, {other} of client.pcapng]");
    assert!(text.contains(&named), "no '{named}' in: {text}");
    assert!(!text.contains("--out DIR"), "{text}");
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains(&format!("frame {one} of client.pcapng, lost</title>")));
    // Without captures one line says how to get them.
    let without = json(&first);
    let wait = &without["connections"][0]["messages"][0]["waits"][0];
    let named = &wait["causes"][0]["packets"][0];
    assert!(wait["packet"]["frame"].is_null() && named["frame"].is_null());
    let text = slowpath(&first);
    assert_eq!(text.matches("--out DIR").count(), 1, "{text}");
    assert!(!text.contains("frame "), "{text}");
}

#[test]
fn the_frame_of_the_packet_that_differs_has_its_sequence_number() {
    let folder = tempfile::tempdir().unwrap();
    let test = "the_frame_of_the_packet_that_differs_has_its_sequence_number";
    let Some(recording) = story(test, folder.path()) else {
        return;
    };
    let out = folder.path().join("out");
    let to = out.display().to_string();
    let set = ["--connection", SHORT, "--set", "tcp_early_retrans=3"];
    let answer = json(&[&["replay", &recording][..], &set, &["--out", &to]].concat());
    let departure = &answer["connections"][0]["departure"];
    assert_eq!(departure["end"], "client");
    let frame = departure["frame"].as_u64().unwrap();
    let frames = tshark(&out.join("client.pcapng"));
    let at = frames.iter().find(|it| it.number == frame).unwrap();
    let was = &departure["was"];
    assert_eq!(Value::from(at.sequence), was["sequence"], "{departure}");
    assert_eq!(Value::from(at.bytes), was["bytes"], "{departure}");
    let text = slowpath(&[&["replay", &recording][..], &set, &["--out", &to]].concat());
    let named = format!("of the client (frame {frame} of client.pcapng) differs");
    assert!(text.contains(&named), "no '{named}' in: {text}");
}

/// The two drawings of the only connection: of its client, of its server.
fn drawings(page: &str) -> [&str; 2] {
    let mut parts = page.split("<svg ").skip(1);
    [parts.next().unwrap(), parts.next().unwrap()]
}

#[test]
fn plots_share_an_axis_and_mark_what_was_lost_and_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let test = "plots_share_an_axis_and_mark_what_was_lost_and_sent_again";
    let Some(recording) = story(test, folder.path()) else {
        return;
    };
    let out = folder.path().join("out");
    let (to, page) = (out.display().to_string(), folder.path().join("page.html"));
    let html = page.display().to_string();
    let variables = ["--probe", "cwnd,srtt_us,ssthresh,rto,ca_state"];
    let chosen = ["replay", &recording, "--connection", SHORT, "--quiet"];
    slowpath(&[&chosen[..], &variables, &["--html", &html, "--out", &to]].concat());
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(
        !page.contains("<script") && !page.contains("src="),
        "{page}"
    );
    assert_eq!(page.matches("<svg").count(), 2);
    let captures = ["client", "server"].map(|end| tshark(&out.join(format!("{end}.pcapng"))));
    let sender = &captures[0][0].from;
    let sent = |capture: usize| captures[capture].iter().filter(|it| it.from == *sender);
    let lost = sent(0).count() - sent(1).count();
    assert_eq!(lost, 2, "the story's");
    let mut highest = 0;
    let mut again = 0;
    for frame in sent(0).filter(|it| it.bytes > 0) {
        again += usize::from(frame.sequence < highest);
        highest = highest.max(frame.sequence + frame.bytes);
    }
    let [client, server] = drawings(&page);
    // Packets; milliseconds; a state.
    let charts = 3;
    for (class, count) in [
        ("lost", lost),
        ("again", again),
        ("timeout", 2),
        ("axis", 1),
    ] {
        let marks = client.matches(&format!("class=\"{class}\"")).count();
        assert_eq!(marks, charts * count, "{class}");
    }
    assert_eq!(
        client.matches("class=\"line ").count(),
        2 * 5,
        "a line and its name each"
    );
    assert!(!server.contains("class=\"timeout\""));
    // One axis: named once, below the last chart.
    assert_eq!(client.matches("ms since the connection").count(), 1);
    for unit in [">packets<", ">ms<"] {
        assert_eq!(client.matches(unit).count(), 1, "{unit}");
    }
    let refused = command::slowpath(&["replay", &recording, "--probe", "cwnd"]);
    assert_eq!(refused.status.code(), Some(2));
    let refused = command::text(&refused.stderr);
    assert!(refused.contains("--out <DIR>|--html <FILE>"), "{refused}");
}

// SPDX-License-Identifier: Apache-2.0
//! `slowpath path owd` as it is called: text, JSON, packets, session files, rows of time.

mod printed;

use printed::{printed, takes};
use serde_json::Value;
use slowpath_path::command::CommandError;
use slowpath_path::file::SessionFile;
use slowpath_path::serve::{ServeOptions, Serving};

fn serving() -> Serving {
    let any = || vec!["127.0.0.1:0".parse().expect("an address")];
    Serving::start(ServeOptions {
        owamp: any(),
        twamp: any(),
        stamp: any(),
        requests: any(),
        ..ServeOptions::default()
    })
    .expect("ports")
}

/// What the command prints.
fn output(arguments: &str) -> Result<String, CommandError> {
    printed("owd", arguments)
}

#[test]
fn text_json_and_packets_say_the_same() {
    let serving = serving();
    let peer = serving.owamp()[0];
    let text = output(&format!("{peer} -c 20 -i 0.005f -L 1 -a 90,99.9")).expect("a measurement");
    assert_eq!(
        text.matches("20 sent, 0 lost (0.000%), 0 duplicates")
            .count(),
        2,
        "{text}"
    );
    assert_eq!(text.matches("Hops = 0 (consistently)").count(), 2, "{text}");
    assert!(text.contains("99.9: "), "{text}");
    let json = output(&format!("{peer} -c 20 -i 0.005f -L 1 --json")).expect("a measurement");
    let json: Value = serde_json::from_str(&json).expect("one object");
    assert_eq!(json["protocol"], "owamp");
    let ways: Vec<&Value> = json["directions"]
        .as_array()
        .expect("both")
        .iter()
        .map(|d| &d["way"])
        .collect();
    assert_eq!(ways, ["there", "back"]);
    assert_eq!(
        (
            &json["directions"][0]["sent"],
            &json["directions"][0]["lost"]
        ),
        (&20.into(), &0.into())
    );
    let raw = output(&format!("{peer} -c 20 -i 0.005f -L 1 -t --raw")).expect("a measurement");
    assert_eq!(
        raw.lines().filter(|line| line.ends_with(" 255")).count(),
        20,
        "{raw}"
    );
}

#[test]
fn reflected_protocols_are_measured_as_well() {
    let serving = serving();
    for (protocol, peer) in [
        ("twamp", serving.twamp()[0]),
        ("stamp", serving.stamp()[0]),
        ("twamp-light", serving.stamp()[0]),
    ] {
        let text = output(&format!(
            "{peer} --protocol {protocol} -c 20 -i 0.005f -L 1"
        ))
        .expect("a measurement");
        assert_eq!(
            text.matches("20 sent, 0 lost (0.000%), 0 duplicates")
                .count(),
            3,
            "{text}"
        );
        assert!(text.contains("round trip delay min/median/max"), "{text}");
    }
}

#[test]
fn saved_files_are_session_files() {
    let serving = serving();
    let folder = tempfile::tempdir().expect("a scratch folder");
    let file = folder.path().join("session.owp");
    let arguments = format!(
        "{} -c 10 -i 0.005f -L 1 --save {}",
        serving.owamp()[0],
        file.display()
    );
    output(&arguments).expect("a measurement");
    for ending in ["there", "back"] {
        let bytes = std::fs::read(format!("{}.{ending}", file.display())).expect("it is there");
        let session = SessionFile::read(&bytes).expect("a session file");
        assert_eq!((session.records.len(), session.next_sequence), (10, 10));
        let mut again = Vec::new();
        session.write(&mut again).expect("memory");
        assert_eq!(again, bytes);
    }
}

#[test]
fn rows_of_time_hold_every_packet_once_and_come_in_order() {
    let serving = serving();
    let arguments = format!(
        "{} -t -c 120 -i 0.02f -L 1 --rolling 1s --json",
        serving.owamp()[0]
    );
    let text = output(&arguments).expect("a measurement");
    let rows: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let sent: Vec<u64> = rows
        .iter()
        .map(|row| row["directions"][0]["sent"].as_u64().expect("a number"))
        .collect();
    assert_eq!(sent, [50, 50, 20]);
    let starts: Vec<&str> = rows
        .iter()
        .map(|row| row["start"].as_str().expect("a time"))
        .collect();
    assert!(starts.is_sorted(), "{starts:?}");
}

#[test]
fn wrong_arguments_are_named() {
    for (arguments, reason) in [
        (
            "127.0.0.1 --protocol stamp -t",
            "reflector always measures both ways",
        ),
        ("127.0.0.1 -A X", "`X` is no mode"),
        ("127.0.0.1 -L 0", "cannot be"),
        ("127.0.0.1 -a 101", "no percentile"),
    ] {
        let error = output(arguments).expect_err("wrong usage");
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(error.code(), 2);
    }
    assert!(!takes("owd", "a -i 1x"));
    assert!(!takes("owd", "a -t -f"));
}

#[test]
fn throughput_prints_its_keys_and_its_text() {
    let serving = serving();
    let peer = serving.requests()[0];
    let arguments = format!("{peer} --for 1s --warm-up 200ms --streams 2 --reverse");
    let json = printed("throughput", &format!("{arguments} --json")).expect("a measurement");
    let json: Value = serde_json::from_str(&json).expect("one object");
    let keys = "peer protocol streams direction seconds goodput_bps sent_bytes received_bytes retransmitted_bytes \
                intervals idle_delay_ns loaded_delay_ns round_trips_per_minute ends verdict notes interrupted";
    for key in keys.split_whitespace() {
        assert!(!json[key].is_null(), "{key}: {json}");
    }
    assert_eq!(
        (&json["direction"], &json["streams"]),
        (&"back".into(), &2.into())
    );
    assert_eq!(json["ends"][0]["role"], "receiver");
    assert_eq!(json["ends"][1]["tcp"].as_array().map(Vec::len), Some(2));
    for key in ["limiter", "who", "evidence", "text"] {
        assert!(!json["verdict"][key].is_null(), "{key}: {json}");
    }
    let text = printed("throughput", &arguments).expect("a measurement");
    for part in [
        "limit: ",
        "warm-up",
        "round trip idle: ",
        "2 streams (slowpath)",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn throughput_names_what_it_cannot_do() {
    let error = |arguments: &str| printed("throughput", arguments).expect_err("refused");
    let of_ndt7 = error("ws://127.0.0.1:1 --protocol ndt7 --streams 2");
    assert_eq!(of_ndt7.code(), 2, "{of_ndt7}");
    let of_file = error("--iperf3 /nonexistent.json").to_string();
    assert!(of_file.contains("/nonexistent.json"), "{of_file}");
    let serving = serving();
    let peer = serving.requests()[0];
    let of_congestion = error(&format!("{peer} --congestion moon")).to_string();
    assert!(of_congestion.contains("\"moon\""), "{of_congestion}");
    let of_peer = error(&format!("{peer} --congestion moon --reverse")).to_string();
    assert!(of_peer.contains("congestion control"), "{of_peer}");
    let of_another = error(&serving.owamp()[0].to_string()).to_string();
    assert!(
        of_another.contains("another program listens"),
        "{of_another}"
    );
}

// SPDX-License-Identifier: Apache-2.0
//! `slowpath recording`: the command.

mod command;

use command::text;
use serde_json::{Value, json};
use slowpath_recording::{
    Connection, End, Handler, Moment, Origin, Outcome, Recording, Run, Settings, Timer, encode,
};
use std::path::{Path, PathBuf};
use std::process::Output;

fn run(at: u64, jiffies: u32, handler: Handler) -> Run {
    Run {
        at: Moment(at),
        jiffies,
        handler,
        outcomes: Vec::new(),
        check: Some(0x1234),
    }
}

/// Three runs at one end, one and a gap at the other.
fn recording() -> Recording {
    let packet = |marked| Handler::Packet {
        number: 3,
        marked,
        backlog: true,
        merged: 2,
        truesize: 4_608,
    };
    let send = Handler::Send {
        bytes: 100,
        flags: 0x40,
        result: -11,
    };
    let timer = Handler::Timer {
        timer: Timer::DelayedAck,
        deferred: false,
    };
    let mut last = run(9_000_000, 502, timer);
    last.outcomes.push(Outcome::Autocork {
        nth: 2,
        corked: true,
    });
    let client = vec![
        run(5_000_000, 501, Handler::Connect),
        run(5_000_007, 501, send),
        last,
    ];
    let ends = [
        End {
            runs: client,
            digest: 0xabcd_0123,
            ..End::default()
        },
        End {
            runs: vec![run(100, 7, packet(true))],
            gap: Some(1),
            lost: 4,
            ..End::default()
        },
    ];
    Recording {
        origin: Origin {
            kernel: "6.12.95".to_owned(),
            hz: 250,
            // 2026-01-02T03:04:05Z, so that 5 ms later is that and 5 ms.
            epoch: 1_767_323_045_000_000_000,
            recorder: "laboratory".into(),
        },
        connections: vec![Connection {
            addresses: [([10, 0, 0, 1], 40_000).into(), ([10, 0, 0, 2], 80).into()],
            settings: Settings {
                mtu: [1_500, 9_000],
                ..Settings::default()
            },
            ends,
            joint: None,
        }],
        one_sided: Vec::new(),
    }
}

fn written(folder: &Path, bytes: &[u8]) -> PathBuf {
    let file = folder.join("run.rec");
    std::fs::write(&file, bytes).expect("writes");
    file
}

fn slowpath(arguments: &[&str], file: &Path) -> Output {
    let file = file.to_str().expect("a temporary folder");
    command::slowpath(&[&["recording"], arguments, &[file]].concat())
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[test]
fn every_event_is_a_line_of_json() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = written(folder.path(), &encode(&recording()).expect("short"));
    let lines = lines(&slowpath(&["dump", "--json"], &file));
    let kinds: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["type"].as_str())
        .collect();
    assert_eq!(
        kinds,
        [
            "recording",
            "recorded_connection",
            "run",
            "run",
            "run",
            "end",
            "run",
            "end"
        ]
    );
    assert_eq!(
        lines[3],
        json!({
            "type": "run", "connection": 0, "end": "client", "run": 1, "at_ns": 5_000_007, "jiffies": 501,
            "handler": "send", "asked_bytes": 100, "flags": 64, "result": -11, "outcomes": [], "check": 0x34,
        })
    );
    assert_eq!(
        lines[4]["outcomes"],
        json!([{"decision": "autocork", "before": 2, "value": 1}])
    );
    assert_eq!(lines[4]["timer"], "delayed-ack");
    assert_eq!(lines[5]["digest"], 0xabcd_0123u32);
    assert_eq!(lines[5]["replayable_runs"], 3);
    let packet = &lines[6];
    for (key, value) in [
        ("packet", json!(3)),
        ("marked", json!(true)),
        ("backlog", json!(true)),
        ("merged", json!(2)),
        ("truesize_bytes", json!(4_608)),
    ] {
        assert_eq!(packet[key], value, "{key}");
    }
    assert_eq!(
        (&lines[7]["gap"], &lines[7]["lost_runs"]),
        (&json!(true), &json!(4))
    );
}

#[test]
fn lines_for_people_name_the_end_and_the_gap() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = written(folder.path(), &encode(&recording()).expect("short"));
    let server = slowpath(&["dump", "--connection", "0", "--end", "server"], &file);
    let server = text(&server.stdout);
    assert!(
        server.contains("packet 3 and 1 after it, merged, CE, from the backlog"),
        "{server}"
    );
    assert!(
        server.contains("not replayable after event 1: 4 events are missing"),
        "{server}"
    );
    assert!(!server.contains("delayed-ack"), "{server}");
    let info = text(&slowpath(&["info"], &file).stdout);
    for part in [
        "recorded by laboratory on Linux 6.12.95 at 250 ticks a second, format 2",
        "began 2026-01-02T03:04:05.000000Z",
        "10.0.0.1:40000 -> 10.0.0.2:80",
        "server: not replayable after event 1, 4 missing",
    ] {
        assert!(info.contains(part), "{part} in {info}");
    }
}

#[test]
fn a_cut_file_is_shown_as_far_as_it_goes_and_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = encode(&recording()).expect("short");
    let file = written(folder.path(), &whole[..whole.len() - 3]);
    let info = &lines(&slowpath(&["info", "--json"], &file))[0];
    assert_eq!(
        (&info["damage"]["cut"], &info["runs"]),
        (&json!(true), &json!(4))
    );
    assert_eq!(info["gaps"][0]["replayable_runs"], 3);
    assert_eq!(info["gaps"][0]["lost_runs"], Value::Null, "not counted");
    let dump = slowpath(&["dump"], &file);
    assert!(dump.status.success());
    assert!(
        text(&dump.stderr).contains("it is not whole"),
        "{}",
        text(&dump.stderr)
    );
}

#[test]
fn what_is_no_recording_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = written(folder.path(), b"PAR1");
    for command in ["dump", "info"] {
        let output = slowpath(&[command], &file);
        assert_eq!(output.status.code(), Some(1));
        let error = text(&output.stderr);
        assert!(
            error.contains("run.rec: it is not a slowpath recording"),
            "{error}"
        );
    }
    let output = slowpath(&["info"], &folder.path().join("none"));
    assert_eq!(output.status.code(), Some(1));
    let file = written(folder.path(), &encode(&recording()).expect("short"));
    let output = slowpath(&["dump", "--connection", "7"], &file);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("no connection 7"),
        "{}",
        text(&output.stderr)
    );
}

/// Before any kernel is asked for: what is missing, and what cannot be.
#[test]
fn a_recording_with_a_gap_is_not_replayed() {
    let folder = tempfile::tempdir().expect("a folder");
    let replay = |recording: &Recording| {
        let file = written(folder.path(), &encode(recording).expect("short"));
        let file = file.to_str().expect("a temporary folder");
        // Without a kernel, too.
        let explained = command::slowpath(&["explain", file]);
        assert_eq!(
            explained.status.code(),
            Some(1),
            "{}",
            text(&explained.stdout)
        );
        let output = command::slowpath(&["replay", file]);
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    let mut recording = recording();
    let error = replay(&recording);
    assert!(
        error.contains("connection 0: its server is not replayable after event 1"),
        "{error}"
    );
    recording.connections[0].ends[0].runs[2].at = Moment(1);
    let error = replay(&recording);
    assert!(error.contains("run 2: it is before the run"), "{error}");
}

/// No connection was opened while it ran: the output says that, and does not complain about what the file cannot know.
#[test]
fn nothing_was_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("empty.rec");
    std::fs::write(&file, encode(&Recording::default()).unwrap()).unwrap();
    for command in ["replay", "explain"] {
        let output = command::slowpath(&[command, file.to_str().unwrap()]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("empty.rec") && said.contains("nothing was recorded"),
            "{said}"
        );
    }
}

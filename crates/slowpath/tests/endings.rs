// SPDX-License-Identifier: Apache-2.0
//! How the command ends, and what it takes along.

mod command;

use command::{slowpath, text};
use serde_json::Value;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slowpath"));
    command.stdin(Stdio::null());
    command
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for argument in ["--help", "--version"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = program().arg(argument).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{argument}");
        assert!(text(&output.stderr).contains("No space left"));
    }
    let wrong = slowpath(&["--nonsense"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("--nonsense"));
}

/// The children of a process.
fn children(pid: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let listed = listed.unwrap_or_default();
    listed
        .split_whitespace()
        .map(|it| it.parse().unwrap())
        .collect()
}

/// Whether a process runs: one that ended and that its new parent has not waited for does not.
fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

#[test]
fn a_killed_watch_takes_its_command_along() {
    let mut watch = program()
        .args([
            "watch",
            "--lines",
            "--tier",
            "inet-diag",
            "--",
            "sleep",
            "1000",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let sleep = loop {
        // Until it is itself and no copy of its parent.
        let is_sleep = |pid: &u32| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|it| it.trim() == "sleep")
        };
        if let Some(pid) = children(watch.id()).into_iter().find(is_sleep) {
            break pid;
        }
        assert!(watch.try_wait().unwrap().is_none(), "it goes on");
        std::thread::sleep(Duration::from_millis(10));
    };
    watch.kill().unwrap();
    watch.wait().unwrap();
    while runs(sleep) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_recorder_says_which_signal_ended_its_command() {
    let test = "a_recorder_says_which_signal_ended_its_command";
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("x.rec");
    let output = program()
        .args(["record", "--out", out.to_str().unwrap()])
        .args(["--", "sh", "-c", "kill -INT $PPID; exec sleep 1000"])
        .output()
        .unwrap();
    let said = text(&output.stderr);
    if said.contains("cannot record") {
        println!("SKIPPED {test}: {said}");
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("signal 15 ended `sh`"), "{said}");
}

#[test]
fn a_terminal_that_can_move_no_cursor_gets_lines() {
    let test = "a_terminal_that_can_move_no_cursor_gets_lines";
    let watch = format!(
        "{} watch --tier inet-diag --for 300ms",
        env!("CARGO_BIN_EXE_slowpath")
    );
    // `script` gives it a terminal.
    let on = |kind: &str| {
        let output = Command::new("script")
            .args(["-qec", &watch, "/dev/null"])
            .env("TERM", kind)
            .stdin(Stdio::null())
            .output();
        output.map(|it| text(&it.stdout))
    };
    let Ok(dumb) = on("dumb") else {
        println!("SKIPPED {test}: there is no script(1)");
        return;
    };
    // Xterm's alternate screen.
    let screen = "\x1b[?1049h";
    assert!(
        dumb.contains("inet_diag") && !dumb.contains(screen),
        "{dumb:?}"
    );
    assert!(on("xterm").unwrap().contains(screen));
}

/// The capture's line of `trace --json`.
fn complete(capture: &Path) -> Value {
    let output = slowpath(&["trace", "--json", capture.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    let lines = lines
        .lines()
        .map(|it| serde_json::from_str::<Value>(it).unwrap());
    let mut lines = lines.filter(|it| it["type"] == "capture");
    lines.next().unwrap()["complete"].clone()
}

#[test]
fn a_damaged_capture_is_not_complete() {
    let captures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../captures");
    let whole = Path::new(captures).join("refused-2ms.pcap.gz");
    assert_eq!(complete(&whole), true);
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut.pcap.gz");
    let bytes = fs::read(&whole).unwrap();
    fs::write(&cut, &bytes[..bytes.len() - 20]).unwrap();
    assert_eq!(complete(&cut), false);
}

#[test]
fn a_window_of_zstd_that_is_too_large_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("large.pcap.zst");
    // RFC 8878: magic; a frame without size, checksum, dictionary; a window of 2^(10 + 21) bytes; one raw block,
    // the last, of nothing.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 0x01, 0x00, 0x00];
    fs::write(&capture, frame).unwrap();
    let output = slowpath(&["trace", capture.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("window of more than 128 MiB"), "{said}");
}

// SPDX-License-Identifier: Apache-2.0
//! `slowpath export` of a log that `slowpath up` kept, read by python3's own CSV reader.

use serde_json::Value;
use slowpath_testbed::attempts;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn slowpath(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_slowpath"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// What `slowpath export` prints, given this log and these arguments.
fn export(log: &str, arguments: &[&str]) -> String {
    let all = [&["export", "--log", log], arguments].concat();
    let output = slowpath(&all);
    assert!(output.status.success(), "{}", text(output.stderr));
    text(output.stdout)
}

/// The rows of a CSV as objects of strings, by python3; nothing without it.
fn by_python(csv: &str) -> Option<Vec<Value>> {
    let script = "import csv, json, sys; \
        [print(json.dumps(row)) for row in csv.DictReader(sys.stdin, strict=True)]";
    let mut python = Command::new("python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut input = python.stdin.take().unwrap();
    let csv = csv.to_owned();
    let writer = std::thread::spawn(move || input.write_all(csv.as_bytes()).unwrap());
    let mut out = String::new();
    python
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut out)
        .unwrap();
    writer.join().unwrap();
    assert!(python.wait().unwrap().success());
    Some(
        out.lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect(),
    )
}

/// As CSV has it.
fn as_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[test]
fn every_form_of_every_table_says_the_same() {
    const TEST: &str = "every_form_of_every_table_says_the_same";
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let log = log.to_str().unwrap();
    // A receiver that never reads.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (receiver, _) = listener.accept().unwrap();
    sender.set_nonblocking(true).unwrap();
    while sender.write(&[0; 65_536]).is_ok() {}
    let up = slowpath(&[
        "up",
        "--log",
        log,
        "--interval",
        "100ms",
        "--for",
        "2s",
        "--lines",
    ]);
    drop((sender, receiver));
    let said = text(up.stderr);
    if said.contains("cannot start observing connections") {
        println!("SKIPPED {TEST}: {said}");
        return;
    }
    assert!(up.status.success(), "{said}");
    let filter = format!("dport = :{port}");

    for table in ["intervals", "connections", "coverage", "listeners"] {
        let csv = export(log, &["--table", table]);
        let jsonl = export(log, &["--table", table, "--format", "jsonl"]);
        let objects: Vec<Value> = jsonl
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        assert!(table == "listeners" || !objects.is_empty(), "{table}");
        let Some(rows) = by_python(&csv) else {
            println!("SKIPPED {TEST}: no python3 here");
            return;
        };
        assert_eq!(rows.len(), objects.len(), "{table}");
        for (row, object) in rows.iter().zip(&objects) {
            let (row, object) = (row.as_object().unwrap(), object.as_object().unwrap());
            assert_eq!(row.len(), object.len());
            for (name, value) in object {
                assert_eq!(row[name], as_text(value), "{table} {name}");
            }
        }
    }

    let rows = by_python(&export(log, &[&filter])).unwrap();
    assert!(!rows.is_empty());
    for row in &rows {
        assert_eq!(row["remote_address"], "127.0.0.1");
        assert_eq!(row["remote_port"].as_str(), Some(port.to_string().as_str()));
        assert!(
            row["problems"]
                .as_str()
                .unwrap()
                .contains("ReceiverWindowLimited")
        );
        let time: u64 = row["receiver_window_limited_time_us"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        assert!(time > 0);
    }
    let rows = by_python(&export(log, &["--table", "connections", &filter])).unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(
        rows[0]["remote_port"].as_str(),
        Some(port.to_string().as_str())
    );
    hidden(directory.path(), log, port);
}

fn hidden(directory: &Path, log: &str, port: u16) {
    let table = |more: &[&str]| export(log, &[&["--table", "connections"], more].concat());
    let redacted = by_python(&table(&["--redact"])).unwrap();
    assert!(
        redacted
            .iter()
            .all(|r| r["command_line"] == "" && r["executable"] == "")
    );
    assert!(redacted.iter().any(|r| r["remote_address"] == "127.0.0.1"));

    let key = directory.join("key");
    std::fs::write(&key, [7; 16]).unwrap();
    let with_key = ["--anonymise", "--key-file", key.to_str().unwrap()];
    let first = table(&with_key);
    assert_eq!(first, table(&with_key));
    assert_ne!(first, table(&["--anonymise"]));
    let rows = by_python(&first).unwrap();
    for row in &rows {
        assert_ne!(row["local_address"], "127.0.0.1");
        assert_eq!(row["command_line"], "");
    }
    let port = port.to_string();
    let of = |row: &&Value| row["remote_port"] == port.as_str();
    let row = rows.iter().find(of).unwrap();
    assert_eq!(row["local_address"], row["remote_address"]);

    let refused = slowpath(&[
        "export",
        "--log",
        log,
        "--anonymise",
        "--key-file",
        "/nosuch",
    ]);
    assert_eq!(refused.status.code(), Some(2));
    let refused = slowpath(&["export", "--log", "/nosuch/log"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(refused.stderr).contains("/nosuch/log"));
}

/// The socket's cookie (SO_COOKIE, socket(7)).
fn cookie(socket: &TcpStream) -> u64 {
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: room for a number of that length.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    assert_eq!(result, 0);
    cookie
}

/// The file below the directory whose name ends so.
fn find(directory: &Path, suffix: &str) -> Option<PathBuf> {
    std::fs::read_dir(directory).unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find(&path, suffix)
        } else {
            path.to_str().unwrap().ends_with(suffix).then_some(path)
        }
    })
}

#[test]
fn mlab_series_are_saved_and_judged() {
    // Within one second; a busy machine looks once in that time.
    attempts("mlab_series_are_saved_and_judged", save_and_judge);
}

fn save_and_judge() {
    let directory = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (receiver, _) = listener.accept().unwrap();
    sender.set_nonblocking(true).unwrap();
    let at = directory.path().to_str().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_slowpath"));
    let mut saving = command
        .args(["export", "--mlab", at, "--interval", "10ms", "--for", "1s"])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A receiver that never reads, while it is looked at.
    while saving.try_wait().unwrap().is_none() {
        let _ = sender.write(&[0; 65_536]);
        std::thread::yield_now();
    }
    let output = saving.wait_with_output().unwrap();
    let said = text(output.stderr);
    if said.contains("cannot start observing connections") {
        println!("SKIPPED mlab_series_are_saved_and_judged: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    let name = format!("_unsafe_{:016X}.00000.jsonl.zst", cookie(&sender));
    let file = find(directory.path(), &name).expect(&said);
    let judged = slowpath(&["report", "--json", "--tcp-info", file.to_str().unwrap()]);
    assert!(judged.status.success(), "{}", text(judged.stderr));
    let judged = text(judged.stdout);
    let series: Value = judged
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap())
        .find(|o| o["type"] == "tcp_info")
        .unwrap();
    let port = listener.local_addr().unwrap().port();
    let remote = series["remote"].as_str().unwrap();
    assert!(remote.ends_with(&format!(":{port}")), "{series}");
    assert_eq!(series["dominating"], "ReceiverWindowLimited", "{series}");
    drop(receiver);
}

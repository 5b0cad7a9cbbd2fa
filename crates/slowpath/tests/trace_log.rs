// SPDX-License-Identifier: Apache-2.0
//! `slowpath trace --log`: `slowpath up` watches real transfers whose problem is injected while
//! their packets are captured; both must report the same.

mod path;

use path::{CLIENT, Network, Recording, SERVER, reclock, skipped, upload};
use serde_json::Value;
use slowpath_model::WallMicros;
use slowpath_store::{HostIdentity, LogReader, LogWriter, Options, TimeRange};
use slowpath_testbed::{DropRule, Side, attempts};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn slowpath(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slowpath"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn said(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("is text")
}

fn trace(arguments: &[&str]) -> String {
    said(
        slowpath(&[&["trace"], arguments].concat())
            .output()
            .expect("runs"),
    )
}

/// The objects of a type.
fn objects(text: &str, kind: &str) -> Vec<Value> {
    (text.lines())
        .map(|l| serde_json::from_str::<Value>(l).expect("is JSON"))
        .filter(|o| o["type"] == kind)
        .collect()
}

/// What the log is said to lack.
fn note(capture: &str, log: &str) -> String {
    let json = trace(&[capture, "--log", log, "--json"]);
    assert!(objects(&json, "log").is_empty(), "{json}");
    let notes = objects(&json, "log_notes");
    assert_eq!(notes.len(), 1, "{json}");
    let note = notes[0]["notes"].as_array().expect("a list").last();
    let note = note.and_then(Value::as_str).expect("is text").to_owned();
    let text = trace(&[capture, "--log", log]);
    assert!(text.contains(&note), "{text}");
    note
}

/// `slowpath up`, which has looked at the sockets once at least.
fn up(log: &str) -> Option<Child> {
    let mut up = slowpath(&["up", "--log", log, "--interval", "200ms", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    // A connection with findings: data waits for a receiver that does not read.
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("is bound");
    let mut stuck = TcpStream::connect(address).expect("connects");
    let _receiver = listener.accept().expect("accepts");
    stuck.set_nonblocking(true).expect("is set");
    while stuck.write(&[0; 65_536]).is_ok() {}
    let mut line = String::new();
    let mut out = BufReader::new(up.stdout.take().expect("is a pipe"));
    // Its first line reports that it runs; the rest must not fill the pipe.
    out.read_line(&mut line).expect("is read");
    std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    if line.is_empty() {
        let mut why = String::new();
        let errors = up.stderr.as_mut().expect("is a pipe");
        errors.read_to_string(&mut why).expect("is read");
        println!("SKIPPED trace --log: {why}");
        up.wait().expect("ends");
        return None;
    }
    Some(up)
}

/// Ends it; its log is whole then.
fn end(mut up: Child) {
    // SAFETY: kill takes plain numbers; the child has not been waited for.
    unsafe { libc::kill(up.id() as i32, libc::SIGTERM) };
    up.wait().expect("ends");
}

const EVER: TimeRange = TimeRange {
    from: WallMicros(i64::MIN),
    to: WallMicros(i64::MAX),
};

/// Until the log knows that the connection has ended.
fn wait_until_closed(log: &str, client: SocketAddr) {
    let patience = Instant::now() + Duration::from_secs(10);
    loop {
        let reader = LogReader::open(Path::new(log)).expect("opens");
        let all = reader.connections(EVER).expect("reads").rows;
        if all.iter().any(|s| s.tuple.local == client && s.closed) {
            return;
        }
        assert!(
            Instant::now() < patience,
            "the log does not say that it closed"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

struct Case {
    problem: &'static str,
    /// Every so-manieth segment is dropped.
    every: Option<u32>,
    /// The server's receive buffer.
    rmem: Option<&'static str>,
    bytes: usize,
}

/// Losses that duplicate ACKs repair, and a receive buffer smaller than the path holds.
const CASES: [Case; 2] = [
    Case {
        problem: "FastRetransmit",
        every: Some(60),
        rmem: None,
        bytes: 1_200_000,
    },
    Case {
        problem: "ReceiverWindowLimited",
        every: None,
        rmem: Some("4096 16384 16384"),
        bytes: 600_000,
    },
];

#[test]
fn counters_and_packets_report_the_same() {
    const TEST: &str = "counters_and_packets_report_the_same";
    if skipped(TEST, &[]) {
        return;
    }
    attempts(TEST, || {
        for case in CASES {
            let folder = tempfile::tempdir().expect("a folder");
            let log = folder.path().join("log");
            let log = log.to_str().expect("is text");
            let network = Network::new(20, false);
            if let Some(rmem) = case.rmem {
                network
                    .server
                    .sysctl("net.ipv4.tcp_rmem", rmem)
                    .expect("is set");
            }
            let dropper = case.every.map(|every| {
                let rule = DropRule {
                    every: Some(every),
                    first: every,
                    ..DropRule::default()
                };
                network.drop_data(Side::A, rule)
            });
            let Some(up) = up(log) else { return };
            let file = folder.path().join("client.pcap");
            let recording = Recording::start(&network.client, "host0", &file);
            let client = network.exchange(upload(case.bytes));
            let capture = recording.finish();
            wait_until_closed(log, client);
            end(up);
            let capture = capture.to_str().expect("is text");
            agree(
                &case,
                capture,
                log,
                dropper.map(|d| d.dropped().expect("is read").len()),
            );
            let text = trace(&[capture, "--log", log]);
            for wanted in [
                &client.to_string(),
                case.problem,
                "by counters",
                "bytes sent",
            ] {
                assert!(text.contains(wanted), "{wanted} lacks in\n{text}");
            }
            if case.every.is_some() {
                mismatches(folder.path(), capture, log);
            }
        }
    });
}

/// One connection, its client's side in the log, figures and problems alike.
fn agree(case: &Case, capture: &str, log: &str, dropped: Option<usize>) {
    let json = trace(&[capture, "--log", log, "--json"]);
    assert!(objects(&json, "log_notes").is_empty(), "{json}");
    // The server's socket is in the log too: another namespace of this machine.
    let beside = objects(&json, "log");
    let client: Vec<&Value> = beside.iter().filter(|b| b["side"] == "client").collect();
    let [client] = &client[..] else {
        panic!("{json}");
    };
    assert_eq!(client["closed"], true, "{client}");
    for figure in [
        "bytes_sent",
        "bytes_sent_again",
        "data_segments",
        "segments_sent_again",
    ] {
        let both = &client["figures"][figure];
        assert_eq!(both["agrees"], true, "{figure}: {client}");
    }
    let again = client["figures"]["segments_sent_again"]["packets"].as_u64();
    assert!(again >= dropped.map(|d| d as u64), "{client}");
    assert_eq!(again > Some(0), case.every.is_some(), "{client}");
    // The problem with most time, of both, among those that packets are judged for.
    let judged = |name: &str| client["packets_us"][name].is_number();
    for who in ["counters_us", "packets_us"] {
        let times = client[who].as_object().expect("an object");
        let problems =
            (times.iter()).filter(|(name, _)| *name != "SenderAppLimited" && judged(name));
        let most =
            problems.max_by(|a, b| a.1.as_f64().partial_cmp(&b.1.as_f64()).expect("numbers"));
        assert_eq!(most.expect("some").0, case.problem, "{who}: {client}");
    }
    let rows = client["intervals"].as_array().expect("a list");
    let agree = rows.iter().filter(|r| r["agrees"] == true).count();
    assert!(
        agree * 2 > rows.len(),
        "{agree} of {}: {client}",
        rows.len()
    );
}

/// Logs that have nothing of the capture, or are damaged: each has its own message.
fn mismatches(folder: &Path, capture: &str, log: &str) {
    let copy = |name: &str| {
        let path = folder.join(name);
        std::fs::copy(capture, &path).expect("is copied");
        path
    };
    let text = |path: &Path| path.to_str().expect("is text").to_owned();

    let later = copy("later.pcap");
    reclock(&later, |t, _| t + 5 * 86_400_000_000_000);
    assert!(note(&text(&later), log).contains("the log of another time"));

    // An hour off, as of a clock set to another zone: the log has the connection near by.
    let zone = copy("zone.pcap");
    reclock(&zone, |t, _| t - 3_600_000_000_000);
    assert!(note(&text(&zone), log).contains("the log of another time"));

    // 10.78 as 10.88 throughout: other hosts.
    let other = copy("other.pcap");
    let mut bytes = std::fs::read(&other).expect("is read");
    for at in 0..bytes.len() - 2 {
        if bytes[at..at + 2] == [10, 78] {
            bytes[at + 1] = 88;
        }
    }
    std::fs::write(&other, bytes).expect("is written");
    assert!(note(&text(&other), log).contains("the log of another host"));

    // The client's log only, and a capture behind a translator of its address.
    let reader = LogReader::open(Path::new(log)).expect("opens");
    let partial = text(&folder.join("partial"));
    let host = HostIdentity {
        boot_id: 1,
        host: "client".to_owned(),
    };
    let mut writer = LogWriter::open(Path::new(&partial), host, Options::default()).expect("opens");
    for coverage in reader.coverage(EVER).expect("reads").rows {
        writer.coverage(&coverage);
    }
    for summary in reader.connections(EVER).expect("reads").rows {
        if summary.tuple.local.ip().to_string() == CLIENT {
            writer.summary(&summary);
        }
    }
    writer.close();
    let translated = copy("translated.pcap");
    let mut bytes = std::fs::read(&translated).expect("is read");
    let client: [u8; 4] = [10, 78, 1, 2];
    for at in 0..bytes.len() - 4 {
        if bytes[at..at + 4] == client {
            bytes[at..at + 4].copy_from_slice(&[192, 0, 2, 7]);
        }
    }
    std::fs::write(&translated, bytes).expect("is written");
    let said = note(&text(&translated), &partial);
    assert!(
        said.contains("translated") && said.contains(SERVER),
        "{said}"
    );
    // Another connection of the same hosts.
    let ports = copy("ports.pcap");
    let mut bytes = std::fs::read(&ports).expect("is read");
    let port = slowpath_port(&bytes);
    for at in 24..bytes.len() - 2 {
        if bytes[at..at + 2] == port {
            bytes[at..at + 2].copy_from_slice(&[0, 9]);
        }
    }
    std::fs::write(&ports, bytes).expect("is written");
    assert!(note(&text(&ports), log).contains("none of these connections"));

    let empty = text(&folder.join("empty"));
    std::fs::create_dir(&empty).expect("is made");
    assert!(note(capture, &empty).contains("the log is empty"));
    damaged(folder, capture, log);
}

/// The port of the first frame's sender: the client's.
fn slowpath_port(capture: &[u8]) -> [u8; 2] {
    let at = 24 + 16 + 14 + 20;
    [capture[at], capture[at + 1]]
}

/// Every file of the log overwritten in its middle: reported, and no failure.
fn damaged(folder: &Path, capture: &str, log: &str) {
    let broken = folder.join("broken");
    let status = Command::new("cp").arg("-r").arg(log).arg(&broken).status();
    assert!(status.expect("cp runs").success());
    let mut files = vec![broken.clone()];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            let entries = path.read_dir().expect("is listed");
            files.extend(entries.map(|e| e.expect("is there").path()));
            continue;
        }
        let mut bytes = std::fs::read(&path).expect("is read");
        bytes.truncate(bytes.len() / 2);
        std::fs::write(&path, bytes).expect("is written");
    }
    let broken = broken.to_str().expect("is text");
    let text = trace(&[capture, "--log", broken]);
    for wanted in ["missing in the log: ", "no row of the log could be read"] {
        assert!(text.contains(wanted), "{text}");
    }
}

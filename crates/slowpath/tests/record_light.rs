// SPDX-License-Identifier: Apache-2.0
//! This machine's own kernel recorded by tracepoints only (`slowpath record --light`), in a network namespace, and replayed in the laboratory's, which is of another version:
//! how far is reported, and nothing else is promised.

#![cfg(target_arch = "x86_64")]

use serde_json::Value;
use slowpath_lab::virtual_time::{Kernel, SOURCE};
use slowpath_recording::{self as recording, Handler, Recording};
use slowpath_replay::{ReplayOptions, ReplayResult, replay};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

const SLOWPATH: &str = env!("CARGO_BIN_EXE_slowpath");
/// Where this very program runs once more, the connections' port is there.
const ROLE: &str = "SLOWPATH_LIGHT_WORKLOAD";
const PORT: u16 = 5001;
const CONNECTIONS: usize = 24;
/// Each is two packets of an end at least, and a block of the recorder holds less than 80: several blocks.
const TIMES: usize = 200;
const REQUEST: usize = 300;
const ANSWER: usize = 1_100;

fn answer(mut stream: TcpStream) {
    let mut request = [0; REQUEST];
    while stream.read_exact(&mut request).is_ok() {
        stream.write_all(&[0; ANSWER]).expect("answers");
    }
}

fn has_ipv6() -> bool {
    Path::new("/proc/net/if_inet6").exists()
}

/// No test: dialogues, over IPv4 with a server for both families, and one over IPv6, if the environment asks for them.
#[test]
fn workload() {
    let Ok(port) = std::env::var(ROLE) else {
        return;
    };
    let port: u16 = port.parse().expect("a port");
    let (any, more) = match has_ipv6() {
        true => (IpAddr::from(Ipv6Addr::UNSPECIFIED), 1),
        false => (IpAddr::from(Ipv4Addr::UNSPECIFIED), 0),
    };
    let listener = TcpListener::bind((any, port)).expect("binds");
    let server = std::thread::spawn(move || {
        for stream in listener.incoming().take(CONNECTIONS + more) {
            answer(stream.expect("a connection"));
        }
    });
    let ipv4 = [IpAddr::from(Ipv4Addr::LOCALHOST); CONNECTIONS];
    let ipv6 = [IpAddr::from(Ipv6Addr::LOCALHOST)];
    for address in ipv4.iter().chain(&ipv6[..more]) {
        let mut stream = TcpStream::connect((*address, port)).expect("connects");
        let mut buffer = [0; ANSWER];
        for _ in 0..TIMES {
            stream.write_all(&[0; REQUEST]).expect("asks");
            stream.read_exact(&mut buffer).expect("an answer");
        }
    }
    server.join().expect("ends");
}

struct Namespace(String);

impl Namespace {
    /// `None`: that is not allowed here.
    fn new() -> Option<Namespace> {
        let namespace = Namespace(format!("slowpath-light-{}", std::process::id()));
        let done = |words: &[&str]| {
            let status = Command::new("ip").args(words).output();
            status.is_ok_and(|output| output.status.success())
        };
        // A replay's device has a usual packet size, loopback's is larger than any IP packet.
        let up = ["-n", &namespace.0, "link", "set", "lo", "up", "mtu", "1500"];
        let made = done(&["netns", "add", &namespace.0]) && done(&up);
        let settings = "echo reno >/proc/sys/net/ipv4/tcp_congestion_control; echo 1 >/proc/sys/net/ipv4/tcp_no_metrics_save";
        (made && done(&["netns", "exec", &namespace.0, "sh", "-c", settings])).then_some(namespace)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

fn results(kernel: &Kernel, recording: &Recording) -> Vec<ReplayResult> {
    let folder = tempfile::tempdir().expect("a folder");
    let all: Vec<usize> = (0..recording.connections.len()).collect();
    let options = ReplayOptions::default();
    let again = replay(
        kernel,
        recording,
        &all,
        &options,
        folder.path(),
        &mut |_| {},
    );
    again.expect("a replay").results
}

/// No connection has a gap, and each end's calls sent all its bytes.
fn assert_all_was_recorded(recording: &Recording) {
    for connection in &recording.connections {
        let gaps = connection.ends.each_ref().map(|end| end.gap);
        assert_eq!(gaps, [None; 2], "nothing was lost");
        let moved = connection.ends.each_ref().map(|end| {
            let sent = end.runs.iter().filter_map(|run| match run.handler {
                Handler::Send { result, .. } => Some(result as usize),
                _ => None,
            });
            sent.sum::<usize>()
        });
        assert_eq!(moved, [TIMES * REQUEST, TIMES * ANSWER]);
    }
}

#[test]
fn a_replay_of_tracepoints_says_how_far_it_goes() {
    let skip = |reason: &str| {
        println!("SKIPPED a_replay_of_tracepoints_says_how_far_it_goes: {reason}");
    };
    let Some(namespace) = Namespace::new() else {
        return skip("network namespaces need root and ip");
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("run.rec");
    let ourselves = std::env::current_exe().expect("has a path");
    let mut command = Command::new(SLOWPATH);
    command.args([
        "record",
        "--light",
        "--json",
        "--port",
        &PORT.to_string(),
        "--out",
    ]);
    command
        .arg(&file)
        .args(["--", "ip", "netns", "exec", &namespace.0]);
    command.arg(&ourselves).args(["--exact", "workload"]);
    let output = command
        .env(ROLE, PORT.to_string())
        .output()
        .expect("starts");
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && said.contains("cannot record connections") {
        return skip(&said);
    }
    assert!(output.status.success(), "{said}");
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(summary["recorder"], "tracepoints", "{summary}");
    assert_eq!(summary["connections"], CONNECTIONS, "{summary}");
    assert_eq!(summary["lost_events"], 0, "{summary}");
    // Both ends of one.
    let ipv6 = if has_ipv6() { 2 } else { 0 };
    assert_eq!(summary["ipv6_sockets"], ipv6, "{summary}");
    let mut recording =
        recording::decode(&std::fs::read(&file).expect("reads")).expect("a recording");
    recording.validate().expect("makes sense");
    assert_all_was_recorded(&recording);
    let Ok(kernel) = Kernel::find(SOURCE, recording.origin.hz) else {
        return skip("no laboratory kernel with this machine's ticks: it was recorded only");
    };
    let found = results(&kernel, &recording);
    let exact: Vec<usize> = (0..found.len())
        .filter(|n| found[*n].difference.is_none())
        .collect();
    println!(
        "{} of {} as far as was observed; {summary}",
        exact.len(),
        found.len()
    );
    for result in found.iter().filter_map(|it| it.difference.as_ref()) {
        println!("{result:?}");
    }
    // Without loss or delay; the versions of Linux differ in how far they open the window.
    let reached = |it: &ReplayResult| it.difference.as_ref().is_none_or(|it| it.run > 8);
    assert!(found.iter().any(reached), "{found:?}");
    // A call less: the same replay must say so.
    for connection in &mut recording.connections {
        let runs = &mut connection.ends[0].runs;
        let sent = |handler: &Handler| matches!(handler, Handler::Send { .. });
        let first = runs.iter().position(|run| sent(&run.handler));
        runs.remove(first.expect("it sent"));
    }
    for (place, result) in results(&kernel, &recording).iter().enumerate() {
        let (now, was) = (&result.difference, &found[place].difference);
        let earlier = now.as_ref().is_some_and(|now| now.run < 8);
        assert!(
            earlier && now != was,
            "{place} has a call less: {now:?}, {was:?}"
        );
    }
}

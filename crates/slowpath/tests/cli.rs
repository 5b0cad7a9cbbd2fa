// SPDX-License-Identifier: Apache-2.0
//! The command as a process: exit statuses, messages, JSON, signals.

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

fn slowpath(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slowpath"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    slowpath(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn objects(bytes: &[u8]) -> Vec<Value> {
    text(bytes)
        .lines()
        .map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}")))
        .collect()
}

/// Whether the output says that this machine allows no tier; the test then is skipped.
fn nothing_allowed(test: &str, output: &Output) -> bool {
    let said = text(&output.stderr);
    let refused = said.contains("cannot start observing connections");
    if refused {
        println!("SKIPPED {test}: {said}");
    }
    refused
}

/// A loopback connection whose receiver reads a little now and then, so that its window is
/// full most of the time. Both ends are in this process.
struct Flow {
    server: SocketAddr,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Flow {
    fn start(address: &str) -> Flow {
        let listener = TcpListener::bind(address).unwrap();
        let server = listener.local_addr().unwrap();
        let mut sender = TcpStream::connect(server).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        sender
            .set_write_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let writing = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let data = vec![0; 65_536];
                while !stop.load(Ordering::Relaxed) {
                    // A timeout is what a full window gives.
                    let _ = sender.write(&data);
                }
            })
        };
        let reading = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let mut data = vec![0; 16_384];
                while !stop.load(Ordering::Relaxed) {
                    let _ = receiver.read(&mut data);
                    std::thread::park_timeout(Duration::from_millis(50));
                }
            })
        };
        Flow {
            server,
            stop,
            threads: vec![writing, reading],
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// What an operator would search for leads to a command, in the help and in the guide.
#[test]
fn symptoms_lead_to_a_command() {
    let help = Command::new(env!("CARGO_BIN_EXE_slowpath"))
        .arg("help")
        .output()
        .expect("slowpath starts");
    let help = String::from_utf8_lossy(&help.stdout);
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/symptoms.md");
    let guide = std::fs::read_to_string(guide).expect("the guide is there");
    for symptom in [
        "slow query",
        "slow API",
        "server hangs",
        "client does not read",
        "slow consumer",
        "connection refused",
        "no route to host",
        "backlog full",
        "packet loss",
        "bufferbloat",
        "slow upload",
        "N+1 queries",
        "40 ms delays",
    ] {
        let leads = |line: &str| line.contains(symptom) && line.contains("slowpath why ");
        assert!(help.lines().any(leads), "{symptom}: {help}");
        assert!(guide.lines().any(leads), "{symptom}");
    }
    let answers = guide.lines().filter(|line| line.contains("`Limited by "));
    assert!(answers.count() >= 10);
}

#[test]
fn wrong_usage_is_2_and_help_is_0() {
    for arguments in [
        &["nosuch"][..],
        &["watch", "--interval", "1ns"],
        &["watch", "dport", "=", ":nosuch"],
        &["report", "--since", "yesterday"],
        &["report", "--by", "colour"],
        &["why"],
        &["why", "[::1"],
        &["completions", "nosuch"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["watch", "--help"],
        &["man"],
        &["completions", "zsh"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(!output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_wrong_filter_is_shown_with_its_place() {
    let output = run(&["watch", "dst 10.0.0.1 and dport = :nosuch"]);
    let said = text(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    let caret = lines.iter().position(|l| l.contains('^')).unwrap();
    let at = lines[caret].find('^').unwrap();
    assert!(lines[caret - 1][at..].starts_with(":nosuch"), "{said}");
}

#[test]
fn what_is_not_there_is_1_with_a_way_out() {
    // Process ids end at 4194304 (PID_MAX_LIMIT).
    for (arguments, wanted) in [
        (&["why", "4194305"][..], "no process 4194305"),
        (&["why", "nosuch.invalid:80"], "nosuch.invalid"),
        (&["report", "--tcp-info", "/nosuch/file"], "/nosuch/file"),
        (&["report", "--log", "/nosuch/log"], "/nosuch/log"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
}

#[test]
fn why_names_the_receiver_of_a_process_and_of_a_peer() {
    const TEST: &str = "why_names_the_receiver_of_a_process_and_of_a_peer";
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let flow = Flow::start(address);
        let peer = flow.server.to_string();
        let output = run(&["why", &peer, "--for", "2s", "--json", "--exit-code"]);
        if nothing_allowed(TEST, &output) {
            return;
        }
        let answer = &objects(&output.stdout)[0];
        assert_eq!(answer["dominating"], "ReceiverWindowLimited", "{answer}");
        assert_eq!(answer["stage"], "receiver");
        assert_eq!(answer["connections"][0]["remote"], peer);
        assert_eq!(answer["connections"].as_array().unwrap().len(), 1);
        assert_eq!(output.status.code(), Some(3));
        let own = std::process::id();
        let output = run(&["why", &own.to_string(), "--for", "2s", "--json"]);
        let answer = &objects(&output.stdout)[0];
        let owner = &answer["connections"][0]["process"];
        assert_eq!(owner["pid"], own, "{answer}");
        assert_eq!(output.status.code(), Some(0));
    }
}

#[test]
fn a_watch_of_a_command_keeps_streams_and_statuses_separate() {
    const TEST: &str = "a_watch_of_a_command_keeps_streams_and_statuses_separate";
    let command = "echo from the command; exit 7";
    let output = run(&["watch", "--json", "--", "sh", "-c", command]);
    if nothing_allowed(TEST, &output) {
        return;
    }
    let all = objects(&output.stdout);
    let summary = all.last().unwrap();
    assert_eq!(summary["type"], "summary");
    assert_eq!(summary["command_exit_code"], 7);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("from the command"));

    let output = run(&["watch", "--", "/nosuch/program"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/nosuch/program"));
}

#[test]
fn a_watch_filters_and_stops_in_time() {
    const TEST: &str = "a_watch_filters_and_stops_in_time";
    let flow = Flow::start("127.0.0.1:0");
    let other = Flow::start("127.0.0.1:0");
    let filter = format!("dport = :{}", flow.server.port());
    let output = run(&["watch", "--for", "2s", "--json", &filter]);
    if nothing_allowed(TEST, &output) {
        return;
    }
    let all = objects(&output.stdout);
    let verdicts: Vec<&Value> = all.iter().filter(|o| o["type"] == "verdict").collect();
    assert!(!verdicts.is_empty());
    for verdict in verdicts {
        assert_eq!(verdict["remote"], flow.server.to_string());
    }
    drop(other);
}

fn terminate(child: &Child) {
    // SAFETY: kill takes plain numbers; the child has not been waited for.
    unsafe {
        libc::kill(child.id() as i32, libc::SIGTERM);
    }
}

#[test]
fn up_closes_its_log_on_sigterm_and_report_reads_it() {
    const TEST: &str = "up_closes_its_log_on_sigterm_and_report_reads_it";
    let flow = Flow::start("127.0.0.1:0");
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let log = log.to_str().unwrap();
    let mut up = slowpath(&["up", "--log", log, "--interval", "200ms", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Three verdicts on the flow, then the signal.
    let port = flow.server.port().to_string();
    let mut out = std::io::BufReader::new(up.stdout.take().unwrap());
    let mut line = String::new();
    let mut lines = 0;
    while lines < 3 && std::io::BufRead::read_line(&mut out, &mut line).unwrap() > 0 {
        lines += usize::from(line.contains(&format!(":{port}\"")));
        line.clear();
    }
    terminate(&up);
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let output = up.wait_with_output().unwrap();
    if nothing_allowed(TEST, &output) {
        return;
    }
    assert_eq!(lines, 3, "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(rest.contains("\"type\":\"summary\""));

    let filter = format!("dport = :{port}");
    let arguments = ["report", "--log", log, "--json", "--exit-code", &filter];
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let report = &objects(&output.stdout)[0];
    assert_eq!(report["connections"], 1, "{report}");
    let row = &report["table"][5];
    assert_eq!(row["problem"], "ReceiverWindowLimited");
    assert_eq!(row["connections_percent"][0], 100.0, "{report}");
    assert!(report["coverage"]["polls"].as_u64() > Some(2), "{report}");
    let human = run(&["report", "--log", log, "--by", "application"]);
    let human = text(&human.stdout);
    for wanted in ["ReceiverWindowLimited", "coverage:", "application"] {
        assert!(human.contains(wanted), "{wanted} lacks in\n{human}");
    }
}

/// One block of 512 bytes is room for the spool's beginning and for no Parquet file; without any,
/// all records are lost, and the last line says how many.
#[test]
fn a_limit_on_the_size_of_files_is_an_error() {
    const TEST: &str = "a_limit_on_the_size_of_files_is_an_error";
    for (limit, end) in [("1", ""), ("0", " lost")] {
        let directory = tempfile::tempdir().unwrap();
        let limited = format!("ulimit -f {limit}; exec \"$@\"");
        let output = Command::new("sh")
            .args(["-c", &limited, "sh", env!("CARGO_BIN_EXE_slowpath")])
            .args(["up", "--json", "--for", "1s", "--log"])
            .arg(directory.path().join("log"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        if nothing_allowed(TEST, &output) {
            return;
        }
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let last = said.lines().last().unwrap();
        assert!(last.contains("File too large"), "{said}");
        assert!(last.ends_with(end), "{said}");
    }
}

#[test]
fn a_reader_that_goes_is_no_failure() {
    let mut man = slowpath(&["man"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(man.stdout.take());
    assert_eq!(man.wait().unwrap().code(), Some(0));
}

#[test]
fn overhead_counts_polls_and_programs() {
    const TEST: &str = "overhead_counts_polls_and_programs";
    let output = run(&["overhead", "--for", "2s", "--interval", "100ms", "--json"]);
    if nothing_allowed(TEST, &output) {
        return;
    }
    let cost = &objects(&output.stdout)[0];
    assert!(cost["polls"].as_u64() > Some(1), "{cost}");
    assert!(cost["percent_of_one_core"].as_f64().is_some());
    let counted = cost["programs"].as_array().is_some_and(|p| !p.is_empty());
    assert!(
        counted || cost["programs_not_counted"].is_string(),
        "{cost}"
    );
}

#[test]
fn colours_stay_out_of_pipes() {
    let output = run(&["watch", "--for", "300ms"]);
    assert!(!text(&output.stdout).contains('\x1b'));
}

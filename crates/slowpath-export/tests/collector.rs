// SPDX-License-Identifier: Apache-2.0
//! Pushing to a collector of our own, whose messages python3 reads by the numbers in
//! OpenTelemetry's .proto files.

mod states;

use serde_json::Value;
use slowpath_export::Board;
use slowpath_export::otlp::Resource;
use slowpath_export::push::Pusher;
use slowpath_model::MonoNanos;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// A request as a collector gets it.
struct Pushed {
    header: Vec<String>,
    body: Vec<u8>,
}

/// Answers one request after the other with these, then with 200; hands over what came.
fn collector(answers: &'static [&'static str]) -> (String, Receiver<Pushed>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut answers = answers.iter();
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            loop {
                let mut header = Vec::new();
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|n| n > 2) {
                    header.push(line.trim_end().to_owned());
                    line.clear();
                }
                let length = header.iter().find_map(|l| {
                    let (name, value) = l.split_once(':')?;
                    name.eq_ignore_ascii_case("content-length")
                        .then(|| value.trim().parse::<usize>().ok())?
                });
                let Some(length) = length else { break };
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let answer = answers
                    .next()
                    .copied()
                    .unwrap_or("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                if stream.write_all(answer.as_bytes()).is_err()
                    || sender.send(Pushed { header, body }).is_err()
                {
                    return;
                }
            }
        }
    });
    (url, receiver)
}

fn board() -> Arc<Board> {
    let board = Arc::new(Board::default());
    let agent = states::played(&["nginx", "curl"]);
    board.publish(states::state(&agent, MonoNanos(2_000_000_000)));
    board
}

fn push(url: &str, board: &Arc<Board>) -> Pusher {
    Pusher::start(
        url.parse().unwrap(),
        "Authorization=Bearer%20secret",
        Duration::from_millis(50),
        Resource::new("host", "0.1.0", "instance"),
        board.clone(),
    )
    .unwrap()
}

/// What the message says, by tests/otlp.py; nothing without python3.
fn decoded(body: &[u8]) -> Option<Value> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/otlp.py");
    let mut python = Command::new("python3")
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    python.stdin.take().unwrap().write_all(body).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success());
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn a_collector_gets_what_the_agent_knows() {
    let (url, pushes) = collector(&[]);
    let board = board();
    let pusher = push(&url, &board);
    let Pushed { header, body } = pushes.recv_timeout(PATIENCE).unwrap();
    drop(pusher);
    assert_eq!(header[0], "POST /v1/metrics HTTP/1.1");
    let has = |wanted: &str| header.iter().any(|l| l.eq_ignore_ascii_case(wanted));
    assert!(has("content-type: application/x-protobuf"), "{header:?}");
    assert!(has("authorization: Bearer secret"), "{header:?}");
    let Some(message) = decoded(&body) else {
        println!("SKIPPED a_collector_gets_what_the_agent_knows: no python3 here");
        return;
    };
    assert_eq!(message["resource"]["service.name"], "slowpath-agent");
    assert_eq!(message["resource"]["host.name"], "host");
    assert_eq!(message["scope"]["name"], "slowpath");
    let metric = |name: &str| {
        let all = message["metrics"].as_array().unwrap();
        all.iter().find(|m| m["name"] == name).cloned().unwrap()
    };
    let time = metric("slowpath.application.problem.time");
    assert_eq!(time["unit"], "s");
    assert_eq!(time["sum"]["temporality"], "cumulative");
    assert_eq!(time["sum"]["monotonic"], true);
    let point = time["sum"]["points"]
        .as_array()
        .unwrap()
        .iter()
        .find(|p| p["attributes"]["application"] == "curl")
        .unwrap();
    assert_eq!(point["attributes"]["problem"], "Timeout");
    assert_eq!(point["value"], 1.0);
    assert_eq!(point["start"], states::EPOCH as u64 * 1_000);
    assert_eq!(point["time"], states::EPOCH as u64 * 1_000 + 2_000_000_000);
    let connections = metric("slowpath.connections");
    assert_eq!(connections["sum"]["monotonic"], false);
    assert_eq!(connections["sum"]["points"][0]["value"], 2);
    let rtt = metric("slowpath.rtt")["histogram"]["points"][0].clone();
    // Two connections with an RTT of 20 ms, in the bucket that ends at 25 ms.
    assert_eq!(rtt["count"], 2);
    assert_eq!(rtt["sum"], 0.04);
    let counts = rtt["counts"].as_array().unwrap();
    let bounds = rtt["bounds"].as_array().unwrap();
    assert_eq!(counts.len(), bounds.len() + 1);
    let bucket = bounds.iter().position(|b| *b == 0.025).unwrap();
    assert_eq!(counts[bucket], 2);
    let pushed: u64 = board.push.outcomes().map(|(_, n)| n).sum();
    assert!(pushed >= 1);
}

#[test]
fn what_may_succeed_later_is_tried_again_and_what_may_not_is_dropped() {
    let (url, pushes) = collector(&[
        "HTTP/1.1 503 Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    ]);
    let board = board();
    let pusher = push(&url, &board);
    let first = pushes.recv_timeout(PATIENCE).unwrap();
    let again = pushes.recv_timeout(PATIENCE).unwrap();
    assert_eq!(first.body, again.body);
    // A new state makes a new batch, which is taken.
    let agent = states::played(&["nginx"]);
    board.publish(states::state(&agent, MonoNanos(2_000_000_000)));
    pushes.recv_timeout(PATIENCE).unwrap();
    drop(pusher);
    let outcomes: Vec<_> = board.push.outcomes().collect();
    assert_eq!(outcomes, [("delivered", 1), ("retried", 1), ("refused", 1)]);
    assert!(board.push.points_dropped() > 0);
    assert_eq!(board.push.last_trouble(), None);
}

#[test]
fn nobody_there_is_said_and_the_last_push_ends_in_time() {
    let url = {
        let gone = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", gone.local_addr().unwrap())
    };
    let board = board();
    let pusher = push(&url, &board);
    let end = std::time::Instant::now() + PATIENCE;
    while board.push.last_trouble().is_none() && std::time::Instant::now() < end {
        std::thread::yield_now();
    }
    let trouble = board.push.last_trouble().unwrap();
    assert!(trouble.contains(&url), "{trouble}");
    drop(pusher);
    assert_eq!(board.push.outcomes().next(), Some(("delivered", 0)));
}

#[test]
fn the_end_pushes_what_was_not() {
    let (url, pushes) = collector(&[]);
    let board = board();
    let pusher = Pusher::start(
        url.parse().unwrap(),
        "",
        Duration::from_secs(3600),
        Resource::new("host", "0.1.0", "instance"),
        board.clone(),
    )
    .unwrap();
    drop(pusher);
    assert!(!pushes.recv_timeout(PATIENCE).unwrap().body.is_empty());
}

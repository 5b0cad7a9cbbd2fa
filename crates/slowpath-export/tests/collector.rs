// SPDX-License-Identifier: Apache-2.0
//! Pushing to a collector of our own, whose messages python3 reads by the numbers in
//! OpenTelemetry's .proto files.

mod states;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use slowpath_export::Board;
use slowpath_export::otlp::Resource;
use slowpath_export::push::{Options, Pusher};
use slowpath_model::MonoNanos;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
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
            let Ok(stream) = stream else { return };
            let mut reader = BufReader::new(stream);
            while let Some(pushed) = request(&mut reader) {
                let answer = answers.next().copied().unwrap_or(TAKEN);
                if reader.get_mut().write_all(answer.as_bytes()).is_err()
                    || sender.send(pushed).is_err()
                {
                    return;
                }
            }
        }
    });
    (url, receiver)
}

const TAKEN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// The next request; nothing at the end.
fn request(reader: &mut impl BufRead) -> Option<Pushed> {
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
    let mut body = vec![0; length?];
    reader.read_exact(&mut body).unwrap();
    Some(Pushed { header, body })
}

fn board() -> Arc<Board> {
    let board = Arc::new(Board::default());
    let agent = states::played(&["nginx", "curl"]);
    board.publish(states::state(&agent, MonoNanos(2_000_000_000)));
    board
}

fn push(url: &str, board: &Arc<Board>) -> Pusher {
    let options = Options {
        headers: "Authorization=Bearer%20secret".to_owned(),
        ..Options::default()
    };
    push_with(url, board, &options)
}

fn push_with(url: &str, board: &Arc<Board>, options: &Options) -> Pusher {
    Pusher::start(
        url.parse().unwrap(),
        options,
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
fn a_missing_collector_is_reported_and_the_last_push_ends_in_time() {
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
        &Options::default(),
        Duration::from_secs(3600),
        Resource::new("host", "0.1.0", "instance"),
        board.clone(),
    )
    .unwrap();
    drop(pusher);
    assert!(!pushes.recv_timeout(PATIENCE).unwrap().body.is_empty());
}

#[test]
fn compressed_it_says_the_same() {
    let (url, pushes) = collector(&[]);
    let board = board();
    let options = Options {
        gzip: true,
        ..Options::default()
    };
    let pusher = push_with(&url, &board, &options);
    let Pushed { header, body } = pushes.recv_timeout(PATIENCE).unwrap();
    drop(pusher);
    assert!(
        header
            .iter()
            .any(|l| l.eq_ignore_ascii_case("content-encoding: gzip"))
    );
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&*body)
        .read_to_end(&mut plain)
        .unwrap();
    assert!(plain.len() > body.len());
    match decoded(&plain) {
        Some(message) => assert_eq!(message["scope"]["name"], "slowpath"),
        None => println!("SKIPPED compressed_it_says_the_same: no python3 here"),
    }
}

/// A certificate for 127.0.0.1 that vouches for itself, and its key; nothing without openssl.
fn certificate(directory: &Path) -> Option<(PathBuf, PathBuf)> {
    let (certificate, key) = (directory.join("certificate.pem"), directory.join("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
        .args(["ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=collector"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .ok()?;
    assert!(made.status.success(), "{made:?}");
    Some((certificate, key))
}

/// A collector behind TLS; hands over what comes, handshakes that fail come to nothing.
fn secure_collector(certificate: &Path, key: &Path) -> (String, Receiver<Pushed>) {
    let chain = CertificateDer::pem_file_iter(certificate).unwrap();
    let key = PrivateKeyDer::from_pem_file(key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.map(Result::unwrap).collect(), key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            let session = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut reader = BufReader::new(rustls::StreamOwned::new(session, stream));
            while let Some(pushed) = request(&mut reader) {
                if reader.get_mut().write_all(TAKEN.as_bytes()).is_err()
                    || sender.send(pushed).is_err()
                {
                    return;
                }
            }
        }
    });
    (url, receiver)
}

#[test]
fn over_tls_only_to_whom_the_certificates_vouch_for() {
    let directory = tempfile::tempdir().unwrap();
    let Some((certificate, key)) = certificate(directory.path()) else {
        println!("SKIPPED over_tls_only_to_whom_the_certificates_vouch_for: no openssl here");
        return;
    };
    let (url, pushes) = secure_collector(&certificate, &key);
    let trusting = |certificate: PathBuf| Options {
        certificate: Some(certificate),
        ..Options::default()
    };
    let board = board();
    let pusher = push_with(&url, &board, &trusting(certificate));
    let Pushed { header, body } = pushes.recv_timeout(PATIENCE).unwrap();
    drop(pusher);
    assert_eq!(header[0], "POST /v1/metrics HTTP/1.1");
    assert!(!body.is_empty());
    // Another one that calls itself the same vouches for no one.
    let other = directory.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let (other, _) = self::certificate(&other).expect("was there before");
    let board = self::board();
    let pusher = push_with(&url, &board, &trusting(other));
    let end = std::time::Instant::now() + PATIENCE;
    while board.push.last_trouble().is_none() && std::time::Instant::now() < end {
        std::thread::yield_now();
    }
    let trouble = board.push.last_trouble().unwrap();
    assert!(trouble.contains("certificate"), "{trouble}");
    drop(pusher);
    assert_eq!(board.push.outcomes().next(), Some(("delivered", 0)));
    assert!(pushes.try_recv().is_err());
}

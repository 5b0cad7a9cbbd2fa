// SPDX-License-Identifier: Apache-2.0
//! Clients that are slow, broken, many or rude, over real sockets.

use axum::Router;
use axum::routing::{any, get};
use slowpath_http::{Events, Limits, Server};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A test waits this long only before it fails.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Counts {
    malformed: AtomicU64,
    too_large: AtomicU64,
    dropped: AtomicU64,
}

impl Events for Counts {
    fn refused(&self, status: u16) {
        match status {
            400 => self.malformed.fetch_add(1, Ordering::SeqCst),
            431 => self.too_large.fetch_add(1, Ordering::SeqCst),
            other => panic!("{other}"),
        };
    }

    fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl Counts {
    /// Waits until `count` were dropped.
    fn wait_for_dropped(&self, count: u64) {
        let end = std::time::Instant::now() + PATIENCE;
        while self.dropped.load(Ordering::SeqCst) < count && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(self.dropped.load(Ordering::SeqCst) >= count);
    }
}

/// More than the buffers of both sockets hold (`tcp_wmem`, `tcp_rmem`: 4 and 6 MiB by default).
const LARGE: usize = 64 << 20;

fn start(name: &str, limits: Limits) -> (Server, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let router = Router::new()
        .route("/", get(|| async { "here\n" }))
        .route("/any", any(|| async { "any\n" }))
        .route("/large", get(|| async { vec![b'x'; LARGE] }));
    let address = "127.0.0.1:0".parse().unwrap();
    let server = Server::start(name, address, limits, router, counts.clone()).unwrap();
    (server, counts)
}

/// Limits that no test reaches by accident.
const WIDE: Limits = Limits {
    clients: 32,
    accepted_a_second: 1_000_000,
    head_bytes: 8 << 10,
    headers: 64,
    patience: PATIENCE,
};

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn is_served(address: SocketAddr) {
    let answer = ask(address, "GET / HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nhere\n"), "{answer}");
    assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
}

#[test]
fn a_thousand_idle_clients_hold_up_no_other() {
    let (server, counts) = start("idle", WIDE);
    let idle: Vec<TcpStream> = (0..1_000).map(|_| connect(server.address())).collect();
    is_served(server.address());
    // All but those that have a place were sent away, and the one that was served took one.
    counts.wait_for_dropped(1_000 - WIDE.clients as u64 + 1);
    let mut first = &idle[0];
    assert!(matches!(first.read(&mut [0]), Ok(0) | Err(_)));
    drop(idle);
    is_served(server.address());
}

#[test]
fn a_client_that_sends_a_byte_now_and_then_is_sent_away() {
    let patience = Duration::from_secs(2);
    let (server, counts) = start("slow", Limits { patience, ..WIDE });
    let mut slow = connect(server.address());
    let sender = std::thread::spawn(move || {
        // An endless header, a byte at a time, until the server has enough.
        let bytes = b"GET / HTTP/1.1\r\nX: "
            .iter()
            .chain(std::iter::repeat(&b'a'));
        for byte in bytes {
            if slow.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    is_served(server.address());
    counts.wait_for_dropped(1);
    sender.join().unwrap();
    is_served(server.address());
}

#[test]
fn a_client_that_does_not_read_is_sent_away() {
    let patience = Duration::from_secs(2);
    let (server, counts) = start("deaf", Limits { patience, ..WIDE });
    let mut deaf = connect(server.address());
    deaf.write_all(b"GET /large HTTP/1.1\r\n\r\n").unwrap();
    is_served(server.address());
    counts.wait_for_dropped(1);
    is_served(server.address());
}

#[test]
fn what_is_not_http_or_too_long_is_refused_and_counted() {
    let (server, counts) = start("malformed", WIDE);
    let address = server.address();
    for text in ["nonsense\r\n\r\n", "GET /\r\n\r\n", "\x16\x03\x01\x02\r\n"] {
        let answer = ask(address, text);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{text:?}: {answer}");
    }
    assert_eq!(counts.malformed.load(Ordering::SeqCst), 3);
    let target = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(WIDE.head_bytes));
    let many = "a: b\r\n".repeat(WIDE.headers + 1);
    let many = format!("GET / HTTP/1.1\r\n{many}\r\n");
    for text in [target, many] {
        let answer = ask(address, &text);
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
    assert_eq!(counts.too_large.load(Ordering::SeqCst), 2);
    let headers = "a: b\r\n".repeat(WIDE.headers);
    let answer = ask(address, &format!("GET / HTTP/1.1\r\n{headers}\r\n"));
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(counts.dropped.load(Ordering::SeqCst), 0);
}

#[test]
fn clients_past_the_rate_wait_and_are_served() {
    let (server, counts) = start(
        "rate",
        Limits {
            accepted_a_second: 2,
            ..WIDE
        },
    );
    let clients: Vec<TcpStream> = (0..5).map(|_| connect(server.address())).collect();
    for mut client in clients {
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    }
    assert_eq!(counts.dropped.load(Ordering::SeqCst), 0);
}

#[test]
fn the_answer_arrives_though_more_was_sent_than_is_read() {
    let (server, _) = start("lingering", WIDE);
    let body = "b".repeat(48 << 10);
    let request = format!(
        "POST /any HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    for _ in 0..20 {
        let answer = ask(server.address(), &request);
        assert!(answer.ends_with("\r\n\r\nany\n"), "{answer}");
    }
}

#[test]
fn a_client_that_closed_its_side_reads_the_answer() {
    let (server, _) = start("half", WIDE);
    let mut stream = connect(server.address());
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("here\n"), "{text}");
}

#[test]
fn a_client_that_leaves_is_not_counted() {
    let (server, counts) = start("leaving", WIDE);
    for part in ["", "GET / HTTP/1.1\r\nHo"] {
        let mut stream = connect(server.address());
        stream.write_all(part.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "");
    }
    assert_eq!(counts.dropped.load(Ordering::SeqCst), 0);
    assert_eq!(counts.malformed.load(Ordering::SeqCst), 0);
}

/// Threads of this process with that name.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|comm| comm.trim_end() == name)
        .count()
}

#[test]
fn it_is_one_thread_that_ends_with_clients_in_it() {
    let (server, _) = start("one-thread", WIDE);
    is_served(server.address());
    let waiting = connect(server.address());
    assert_eq!(threads("one-thread"), 1);
    let address = server.address();
    drop(server);
    assert_eq!(threads("one-thread"), 0);
    // Closed, or reset if it had not been accepted yet.
    let mut text = String::new();
    let ended = (&waiting).read_to_string(&mut text);
    assert!(matches!(ended, Ok(0)) || ended.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset));
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn an_address_in_use_is_named() {
    let (server, counts) = start("twice", WIDE);
    let again = Server::start("twice", server.address(), WIDE, Router::new(), counts);
    let said = again.unwrap_err().to_string();
    assert!(said.contains(&server.address().to_string()), "{said}");
}

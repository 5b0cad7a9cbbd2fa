// SPDX-License-Identifier: Apache-2.0
//! Connections that stay open, with a handshake that is one line: a name, or an empty line.

use axum::routing::{get, post};
use axum::{Extension, Router};
use slowpath_http::Events;
use slowpath_http::sessions::{Established, Handshake, Session, SessionLimits, SessionServer};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;

/// A test waits this long only before it fails.
const PATIENCE: Duration = Duration::from_secs(60);

struct OneLine;

impl Handshake for OneLine {
    type Stream = tokio::net::TcpStream;
    type Peer = String;

    async fn shake(
        &self,
        mut stream: Self::Stream,
    ) -> io::Result<Established<Self::Stream, String>> {
        let mut line = Vec::new();
        loop {
            match stream.read_u8().await? {
                b'\n' => break,
                b'!' => return Err(ErrorKind::InvalidData.into()),
                byte => line.push(byte),
            }
        }
        let peer = String::from_utf8(line).map_err(|_| ErrorKind::InvalidData)?;
        let peer = (!peer.is_empty()).then_some(peer);
        Ok(Established { stream, peer })
    }

    fn name(peer: &String) -> &str {
        peer
    }
}

#[derive(Default)]
struct Counts {
    refused: AtomicU64,
    dropped: AtomicU64,
}

impl Events for Counts {
    fn refused(&self, _: u16) {
        self.refused.fetch_add(1, Ordering::SeqCst);
    }

    fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

/// Limits that no test reaches by accident.
const WIDE: SessionLimits = SessionLimits {
    sessions: 1_000,
    of_one_peer: 8,
    anonymous: 64,
    silent: 1_000,
    handshakes: 64,
    handshake: PATIENCE,
    crowded_handshake: PATIENCE,
    head_bytes: 8 << 10,
    headers: 64,
    head: PATIENCE,
    request: PATIENCE,
    idle: PATIENCE,
    anonymous_idle: PATIENCE,
};

fn start(name: &str, limits: SessionLimits) -> (SessionServer<String>, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let who = |Extension(session): Extension<Session<String>>| async move {
        session.peer.unwrap_or_else(|| "no one".to_owned())
    };
    let router = Router::new()
        .route("/", get(who))
        .route("/body", post(|body: String| async { body }));
    let address = "127.0.0.1:0".parse().unwrap();
    let served = (router, counts.clone() as Arc<dyn Events>);
    let server = SessionServer::start(name, address, limits, Arc::new(OneLine), served);
    (server.unwrap(), counts)
}

fn connect(address: SocketAddr, hello: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(hello.as_bytes()).unwrap();
    stream
}

const ASK: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Asks, and reads an answer that ends with `expected`.
fn ask(stream: &mut TcpStream, request: &str, expected: &str) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    while !text.ends_with(expected) {
        let mut piece = [0; 1000];
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "closed after {text:?}");
        text.push_str(std::str::from_utf8(&piece[..count]).unwrap());
    }
}

fn is_closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    let end = stream.read_to_end(&mut rest);
    assert!(end.is_ok() || end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn requests_of_one_connection_know_who_is_there() {
    let (server, counts) = start("named", WIDE);
    let mut named = connect(server.address(), "web-1\n");
    let mut anonymous = connect(server.address(), "\n");
    for _ in 0..3 {
        ask(&mut named, ASK, "\r\n\r\nweb-1");
        ask(&mut anonymous, ASK, "\r\n\r\nno one");
    }
    let body = "POST /body HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody";
    ask(&mut named, body, "\r\n\r\nbody");
    assert_eq!(server.sessions().peers(), 1);
    assert_eq!(counts.dropped.load(Ordering::SeqCst), 0);
}

#[test]
fn peers_are_closed_by_what_they_are() {
    let (server, _) = start("closed", WIDE);
    let mut closed = connect(server.address(), "web-1\n");
    let mut stays = connect(server.address(), "web-2\n");
    ask(&mut closed, ASK, "web-1");
    ask(&mut stays, ASK, "web-2");
    assert_eq!(server.sessions().close_where(|peer| peer == "web-1"), 1);
    is_closed(&mut closed);
    ask(&mut stays, ASK, "web-2");
    wait_until(|| server.sessions().connections() == 1);
}

#[test]
fn the_oldest_connection_of_one_peer_makes_room() {
    let limits = SessionLimits {
        of_one_peer: 2,
        ..WIDE
    };
    let (server, _) = start("of-one", limits);
    let mut other = connect(server.address(), "web-2\n");
    ask(&mut other, ASK, "web-2");
    let mut all: Vec<TcpStream> = Vec::new();
    for _ in 0..3 {
        let mut stream = connect(server.address(), "web-1\n");
        ask(&mut stream, ASK, "web-1");
        all.push(stream);
    }
    is_closed(&mut all[0]);
    for stream in &mut all[1..] {
        ask(stream, ASK, "web-1");
    }
    ask(&mut other, ASK, "web-2");
}

#[test]
fn a_thousand_silent_connections_hold_up_no_peer() {
    let limits = SessionLimits {
        silent: 50,
        handshakes: 2,
        ..WIDE
    };
    let (server, counts) = start("silent", limits);
    let mut before = connect(server.address(), "web-1\n");
    ask(&mut before, ASK, "web-1");
    let silent: Vec<TcpStream> = (0..1_000).map(|_| connect(server.address(), "")).collect();
    let mut after = connect(server.address(), "web-2\n");
    ask(&mut after, ASK, "web-2");
    ask(&mut before, ASK, "web-1");
    wait_until(|| counts.dropped.load(Ordering::SeqCst) >= 950);
    assert!(server.sessions().connections() <= 52);
    drop(silent);
}

#[test]
fn handshakes_that_take_long_make_room_where_all_places_are_taken() {
    let limits = SessionLimits {
        handshakes: 2,
        crowded_handshake: Duration::from_millis(200),
        ..WIDE
    };
    let (server, counts) = start("crowded", limits);
    let slow: Vec<TcpStream> = (0..20).map(|_| connect(server.address(), "w")).collect();
    let mut peer = connect(server.address(), "web-1\n");
    ask(&mut peer, ASK, "web-1");
    assert!(counts.dropped.load(Ordering::SeqCst) >= 18);
    drop(slow);
}

#[test]
fn a_handshake_has_a_deadline_and_one_that_fails_leaves_nothing() {
    let limits = SessionLimits {
        handshake: Duration::from_millis(300),
        ..WIDE
    };
    let (server, counts) = start("late", limits);
    for hello in ["", "w"] {
        is_closed(&mut connect(server.address(), hello));
    }
    wait_until(|| counts.dropped.load(Ordering::SeqCst) == 2);
    is_closed(&mut connect(server.address(), "!"));
    wait_until(|| counts.dropped.load(Ordering::SeqCst) == 2);
    wait_until(|| server.sessions().connections() == 0);
}

#[test]
fn the_oldest_without_an_identity_makes_room_and_peers_do_not() {
    let limits = SessionLimits {
        anonymous: 3,
        ..WIDE
    };
    let (server, counts) = start("anonymous", limits);
    let mut peer = connect(server.address(), "web-1\n");
    ask(&mut peer, ASK, "web-1");
    let mut all: Vec<TcpStream> = Vec::new();
    for _ in 0..4 {
        let mut stream = connect(server.address(), "\n");
        ask(&mut stream, ASK, "no one");
        all.push(stream);
    }
    is_closed(&mut all[0]);
    ask(&mut all[1], ASK, "no one");
    ask(&mut peer, ASK, "web-1");
    wait_until(|| counts.dropped.load(Ordering::SeqCst) == 1);
}

#[test]
fn each_state_of_a_session_has_its_deadline() {
    let short = Duration::from_millis(300);
    for (limits, bytes, counted) in [
        (
            SessionLimits {
                idle: short,
                ..WIDE
            },
            "",
            0,
        ),
        (
            SessionLimits {
                head: short,
                ..WIDE
            },
            "GET / HT",
            1,
        ),
        (
            SessionLimits {
                request: short,
                ..WIDE
            },
            "POST /body HTTP/1.1\r\nContent-Length: 9\r\n\r\nbo",
            1,
        ),
    ] {
        let (server, counts) = start("deadlines", limits);
        let mut stream = connect(server.address(), "web-1\n");
        ask(&mut stream, ASK, "web-1");
        stream.write_all(bytes.as_bytes()).unwrap();
        is_closed(&mut stream);
        wait_until(|| counts.dropped.load(Ordering::SeqCst) == counted);
    }
}

#[test]
fn further_peers_wait_until_one_leaves() {
    let limits = SessionLimits {
        sessions: 2,
        ..WIDE
    };
    let (server, _) = start("full", limits);
    let mut first = connect(server.address(), "web-1\n");
    let mut second = connect(server.address(), "web-2\n");
    ask(&mut first, ASK, "web-1");
    ask(&mut second, ASK, "web-2");
    let mut third = connect(server.address(), "web-3\n");
    third.write_all(ASK.as_bytes()).unwrap();
    ask(&mut second, ASK, "web-2");
    drop(first);
    ask(&mut third, "", "web-3");
}

#[test]
fn a_request_that_is_not_http_is_refused_and_counted() {
    let (server, counts) = start("malformed", WIDE);
    let mut stream = connect(server.address(), "web-1\nnonsense\r\n\r\n");
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
    wait_until(|| counts.refused.load(Ordering::SeqCst) == 1);
}

#[test]
fn the_thread_ends_with_sessions_in_it() {
    let (server, _) = start("ending", WIDE);
    let mut peer = connect(server.address(), "web-1\n");
    ask(&mut peer, ASK, "web-1");
    drop(server);
    is_closed(&mut peer);
}

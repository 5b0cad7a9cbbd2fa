// SPDX-License-Identifier: Apache-2.0
//! Requests on real sockets: keys, limits, and clients that are hostile.

use slowpath_path::control::Credentials;
use slowpath_path::requests::message::{
    Answer, Command, DataUse, Direction, Octets, Opened, Opening, Refusal, Request, StreamOptions,
    ThroughputRequest, Token,
};
use slowpath_path::requests::{GREETING, Greeting, Link, LinkError, RequestError, Side};
use slowpath_path::serve::{Policy, ServeOptions, Serving, ThroughputLimits};
use slowpath_path::throughput::{ThroughputOptions, measure_throughput};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const ANY: &str = "127.0.0.1:0";

static NEVER: AtomicBool = AtomicBool::new(false);

fn serving(policy: Policy, keys: &[(&str, &str)]) -> Serving {
    Serving::start(ServeOptions {
        requests: vec![ANY.parse().expect("an address")],
        secrets: keys
            .iter()
            .map(|(name, secret)| key(name, secret))
            .collect(),
        policy,
        ..ServeOptions::default()
    })
    .expect("a port")
}

fn key(name: &str, secret: &str) -> Credentials {
    Credentials {
        name: name.to_owned(),
        passphrase: secret.as_bytes().to_vec(),
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// A connection behind its greeting.
fn greeted(address: SocketAddr) -> (Link, Greeting) {
    let stream = TcpStream::connect(address).expect("it listens");
    let mut link = Link::new(stream, Side::Client).expect("a socket");
    let octets = link.greeting(soon(), &NEVER).expect("a greeting");
    (link, Greeting::decode(&octets).expect("ours"))
}

/// A connection on which requests are answered.
fn opened(address: SocketAddr) -> Link {
    let (mut link, _) = greeted(address);
    let opening = Opening::Control {
        nonce: Octets([1; 32]),
        key: None,
        proof: None,
    };
    link.send(&opening).expect("a socket");
    let welcome: Opened = link.receive(soon(), &NEVER).expect("an answer");
    assert_eq!(welcome, Opened::Welcome { proof: None });
    link.channel().open(None);
    link
}

fn request(streams: u16, length_ms: u64) -> Request {
    Request::Throughput(ThroughputRequest {
        direction: Direction::There,
        streams,
        length_ms,
        warm_up_ms: 0,
        options: StreamOptions::default(),
    })
}

fn ask(link: &mut Link, request: &Request) -> Answer {
    link.send(&Command::ask(request)).expect("a socket");
    link.receive(soon(), &NEVER).expect("an answer")
}

fn join(address: SocketAddr, token: Token, use_for: DataUse) -> (Link, Opened) {
    let (mut link, _) = greeted(address);
    link.send(&Opening::Data { token, use_for })
        .expect("a socket");
    let opened = link.receive(soon(), &NEVER).expect("an answer");
    (link, opened)
}

fn options(peer: SocketAddr, key: Option<Credentials>) -> ThroughputOptions {
    ThroughputOptions {
        peer,
        local: None,
        credentials: key,
        direction: Direction::There,
        streams: 1,
        length: Duration::from_secs(1),
        warm_up: Duration::ZERO,
        sender: StreamOptions::default(),
        receiver: StreamOptions::default(),
    }
}

#[test]
fn a_test_with_the_key_is_answered_and_with_another_refused() {
    let serving = serving(Policy::default(), &[("alice", "secret"), ("bob", "other")]);
    let peer = serving.requests()[0];
    let test = |key| measure_throughput(&options(peer, key), &NEVER);
    let report = test(Some(key("alice", "secret"))).expect("a measurement");
    assert!(report.received_bytes > Some(0), "{report:?}");
    for wrong in [
        None,
        Some(key("alice", "other")),
        Some(key("carol", "secret")),
        Some(key("alice", "")),
    ] {
        let error = test(wrong).expect_err("refused");
        let refused = matches!(
            error,
            RequestError::Refused {
                reason: Refusal::Key,
                ..
            }
        );
        assert!(refused, "{error}");
    }
}

#[test]
fn a_server_without_the_key_is_not_trusted() {
    // It asks for a key, and welcomes whatever comes: its own proof is a copy of the client's.
    let listener = TcpListener::bind(ANY).expect("a socket");
    let peer = listener.local_addr().expect("bound");
    let server = thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a client");
        let mut link = Link::new(stream, Side::Server).expect("a socket");
        let greeting = Greeting {
            keyed: true,
            nonce: [0; 32],
        };
        link.send_octets(&greeting.encode()).expect("a socket");
        let Opening::Control { proof, .. } = link.receive(soon(), &NEVER).expect("an opening")
        else {
            panic!("no control connection");
        };
        let _ = link.send(&Opened::Welcome { proof });
    });
    let error = measure_throughput(&options(peer, Some(key("alice", "secret"))), &NEVER);
    let error = error.expect_err("not trusted");
    assert!(matches!(error, RequestError::Key { .. }), "{error}");
    server.join().expect("no panic");
}

#[test]
fn requests_past_the_limits_are_refused_and_named() {
    let serving = serving(Policy::default(), &[]);
    let mut link = opened(serving.requests()[0]);
    for (streams, length) in [
        (0, 1_000),
        (17, 1_000),
        (u16::MAX, 1_000),
        (1, 0),
        (1, u64::MAX),
    ] {
        let reason = Refusal::OverLimit;
        let answer = ask(&mut link, &request(streams, length));
        assert_eq!(answer, Answer::Refused { reason }, "{streams} {length}");
    }
    // What a newer client may ask for.
    let newer = Command::Ask {
        request: serde_json::json!({"moon_phase": {"of": "today"}}),
    };
    link.send(&newer).expect("a socket");
    let answer: Answer = link.receive(soon(), &NEVER).expect("an answer");
    let reason = Refusal::UnknownRequest;
    assert_eq!(answer, Answer::Refused { reason });
    assert_eq!(
        serving.counters().refused_sessions.load(Ordering::Relaxed),
        6
    );
}

#[test]
fn a_server_that_offers_no_tests_and_one_that_is_busy_say_so() {
    let none = Policy {
        throughput: ThroughputLimits {
            seconds: 0,
            ..ThroughputLimits::default()
        },
        ..Policy::default()
    };
    let refusal = |serving: &Serving| {
        let mut link = opened(serving.requests()[0]);
        ask(&mut link, &request(1, 1_000))
    };
    let reason = Refusal::NotOffered;
    assert_eq!(refusal(&serving(none, &[])), Answer::Refused { reason });
    let serving = serving(Policy::default(), &[]);
    let mut first = opened(serving.requests()[0]);
    let accepted = ask(&mut first, &request(1, 1_000));
    assert!(matches!(accepted, Answer::Accepted { .. }), "{accepted:?}");
    let reason = Refusal::Busy;
    assert_eq!(refusal(&serving), Answer::Refused { reason });
}

#[test]
fn data_connections_without_the_token_or_one_too_many_are_refused() {
    let serving = serving(Policy::default(), &[]);
    let address = serving.requests()[0];
    let mut link = opened(address);
    let Answer::Accepted { token } = ask(&mut link, &request(1, 1_000)) else {
        panic!("not accepted");
    };
    let reason = Refusal::Token;
    let refused = Opened::Refused { reason };
    let guessed = Octets([0; 16]);
    assert_eq!(join(address, guessed, DataUse::Stream).1, refused);
    let (_stream, welcome) = join(address, token, DataUse::Stream);
    assert_eq!(welcome, Opened::Welcome { proof: None });
    assert_eq!(
        join(address, token, DataUse::Stream).1,
        refused,
        "the second of one"
    );
    // When its control connection ends, the test does.
    drop(link);
    let gone = (0..200).any(|_| {
        thread::sleep(Duration::from_millis(20));
        matches!(
            join(address, token, DataUse::Delay).1,
            Opened::Refused { .. }
        )
    });
    assert!(gone);
}

#[test]
fn a_test_whose_streams_never_came_is_refused() {
    let serving = serving(Policy::default(), &[]);
    let mut link = opened(serving.requests()[0]);
    let accepted = ask(&mut link, &request(2, 1_000));
    assert!(matches!(accepted, Answer::Accepted { .. }), "{accepted:?}");
    link.send(&Command::Start {}).expect("a socket");
    let answer: Answer = link.receive(soon(), &NEVER).expect("an answer");
    let reason = Refusal::Failed;
    assert_eq!(answer, Answer::Refused { reason });
}

#[test]
fn octets_that_are_no_messages_end_the_connection() {
    let serving = serving(Policy::default(), &[]);
    let long = |length: u32| [&length.to_be_bytes()[..], &[b'x'; 64]].concat();
    for garbage in [
        long(u32::MAX),
        long(1_025),
        long(64),
        b"GET / HTTP/1.1\r\n\r\n".repeat(20),
        vec![0; 400],
    ] {
        let mut stream = TcpStream::connect(serving.requests()[0]).expect("it listens");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a socket");
        // The server may have closed before all was written.
        let _ = stream.write_all(&garbage);
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        assert!(all.len() <= GREETING, "a greeting, no more: {}", all.len());
    }
    assert!(
        serving
            .counters()
            .failed_connections
            .load(Ordering::Relaxed)
            >= 5
    );
}

#[test]
fn a_client_that_sends_an_octet_a_second_is_sent_away() {
    let serving = serving(Policy::default(), &[]);
    let mut stream = TcpStream::connect(serving.requests()[0]).expect("it listens");
    let mut greeting = [0; GREETING];
    stream.read_exact(&mut greeting).expect("a greeting");
    stream
        .set_read_timeout(Some(Duration::from_millis(500)))
        .expect("a socket");
    // The head of a message of 64 octets, then one of them twice a second: it is never through in the time for the set-up.
    stream.write_all(&64u32.to_be_bytes()).expect("a socket");
    let closed = (0..63).any(|_| {
        let refused = stream.write_all(b" ").is_err();
        let ended = match stream.read(&mut [0; 8]) {
            Ok(length) => length == 0,
            Err(error) => !matches!(
                error.kind(),
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
            ),
        };
        refused || ended
    });
    assert!(closed, "half a minute is more than its patience");
}

#[test]
fn peers_that_are_not_allowed_get_no_octet() {
    let policy = Policy {
        allow: vec!["192.0.2.0/24".parse().expect("a range")],
        ..Policy::default()
    };
    let serving = serving(policy, &[]);
    let mut stream = TcpStream::connect(serving.requests()[0]).expect("the kernel accepts");
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    assert!(all.is_empty());
    let error = measure_throughput(&options(serving.requests()[0], None), &NEVER);
    let error = error.expect_err("not let in");
    assert!(matches!(error, RequestError::NotAllowed { .. }), "{error}");
}

/// A server whose figures are as large as they get: they are judged without a panic, and of more streams than there are
/// none is believed.
#[test]
fn a_servers_impossible_figures_do_no_harm() {
    for (streams, believed) in [(1, true), (2, false)] {
        let listener = TcpListener::bind(ANY).expect("a socket");
        let peer = listener.local_addr().expect("bound");
        let server = thread::spawn(move || hostile_server(&listener, streams));
        let report = measure_throughput(&options(peer, None), &NEVER);
        assert_eq!(report.is_ok(), believed, "{report:?}");
        if let Ok(report) = report {
            let text = slowpath_path::throughput::report::text(&report);
            assert!(!text.contains('\u{1b}'), "{text:?}");
            serde_json::to_string(&report).expect("JSON");
        }
        server.join().expect("no panic");
    }
}

fn hostile_server(listener: &TcpListener, streams: usize) {
    let accept = || {
        let (stream, _) = listener.accept().expect("a client");
        let mut link = Link::new(stream, Side::Server).expect("a socket");
        let greeting = Greeting {
            keyed: false,
            nonce: [0; 32],
        };
        link.send_octets(&greeting.encode()).expect("a socket");
        let _: Opening = link.receive(soon(), &NEVER).expect("an opening");
        link.send(&Opened::Welcome { proof: None })
            .expect("a socket");
        link
    };
    let mut control = accept();
    control.channel().open(None);
    let _: Command = control.receive(soon(), &NEVER).expect("a request");
    let token = Octets([0; 16]);
    control.send(&Answer::Accepted { token }).expect("a socket");
    let (_stream, _probes) = (accept(), accept());
    let _: Command = control.receive(soon(), &NEVER).expect("a start");
    control.send(&Answer::Started {}).expect("a socket");
    let most = u64::MAX;
    let stream = serde_json::json!({"totals": {"observed": most, "polls": most, "unmeasured": [],
        "problem_time": vec![most; 16], "problem_events": vec![most; 16]},
        "samples": most, "window_sum": most, "rtt_samples": 1, "rtt_sum": most, "starved": most});
    let row = serde_json::json!({"from": most, "to": 0, "octets": most, "retransmitted": most, "window": most, "rtt": most});
    let result = serde_json::json!({"role": "receiver", "octets": most, "length": most, "rows": vec![row; 50],
        "streams": vec![stream; streams], "congestion": "\u{1b}[31mred", "broken": false,
        "cpu": {"percent": 1e308, "busiest_percent": 1e308, "waited_percent": 1e308}});
    control
        .send(&Answer::Finished { result })
        .expect("a socket");
    // Until the client has gone.
    let _ = control.receive::<Command>(soon(), &NEVER);
}

#[test]
fn a_server_that_is_none_is_named() {
    let listener = TcpListener::bind(ANY).expect("a socket");
    let peer = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming().take(2) {
            let _ = stream.expect("a client").write_all(&[b'S'; 64]);
        }
    });
    let error = measure_throughput(&options(peer, None), &NEVER).expect_err("none");
    assert!(matches!(error, RequestError::Greeting { .. }), "{error}");
}

#[test]
fn a_peer_that_starts_and_says_nothing_more_is_late() {
    let (ours, _theirs) = pair();
    let mut link = Link::new(ours, Side::Client).expect("a socket");
    let deadline = Instant::now() + Duration::from_millis(100);
    let error = link.receive::<Answer>(deadline, &NEVER).expect_err("late");
    assert!(matches!(error, LinkError::Late), "{error}");
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(ANY).expect("a socket");
    let ours = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
    (ours, listener.accept().expect("accepts").0)
}

// SPDX-License-Identifier: Apache-2.0
//! The client of ndt7 against a server written from its specification, over a line of the emulator.

mod emulated;
mod pair;

use pair::up;
use slowpath_path::requests::message::{Direction, StreamOptions};
use slowpath_path::throughput::ndt7::{Ndt7Options, measure_ndt7};
use slowpath_path::throughput::report::ThroughputNote;
use slowpath_path::throughput::verdict::{Limiter, Role};
use slowpath_path::throughput::{ThroughputReport, tcp};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};
use tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tungstenite::{Error, Message, WebSocket};

const LINE: &str = "rate = \"50 Mbit/s\", delay = \"5 ms\"";

/// How long the server's tests are: it may end one before the ten seconds.
const LENGTH: Duration = Duration::from_secs(4);

/// Not more often than ten times a second.
const MEASUREMENTS: Duration = Duration::from_millis(250);

static NEVER: AtomicBool = AtomicBool::new(false);

/// One connection, with a buffer for many round trips, so that a late server is not what limits: handshake, then the test that its path asks for.
#[allow(clippy::result_large_err, reason = "the library's callback")]
fn serve(stream: TcpStream) {
    let buffer = socket2::SockRef::from(&stream).set_send_buffer_size(200_000);
    buffer.expect("a socket");
    let mut path = String::new();
    let accept = |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
        path = request.uri().path().to_owned();
        let protocol = request.headers().get("Sec-WebSocket-Protocol");
        assert_eq!(
            protocol.expect("a subprotocol"),
            "net.measurementlab.ndt.v7"
        );
        assert!(request.headers().contains_key("User-Agent"));
        response.headers_mut().insert(
            "Sec-WebSocket-Protocol",
            "net.measurementlab.ndt.v7".parse().expect("a value"),
        );
        Ok(response)
    };
    let mut socket = tungstenite::accept_hdr(stream, accept).expect("a handshake");
    match path.as_str() {
        "/ndt/v7/download" => download(&mut socket),
        "/ndt/v7/upload" => upload(&mut socket),
        other => panic!("no test: {other}"),
    }
    // The client answers the closing handshake, or has gone.
    let _ = socket.close(None);
    for _ in 0..1_000 {
        if socket.read().is_err_and(|error| !waits(&error)) {
            return;
        }
    }
}

fn waits(error: &Error) -> bool {
    matches!(error, Error::Io(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

fn measurement(stream: &TcpStream, started: Instant, octets: u64) -> Message {
    let elapsed = started.elapsed().as_micros() as u64;
    let stats = tcp::stats(stream).expect("statistics");
    let micros = |time: Option<slowpath_model::Micros>| time.map(|time| time.0);
    let text = serde_json::json!({
        "AppInfo": {"ElapsedTime": elapsed, "NumBytes": octets},
        "ConnectionInfo": {"Client": "1.2.3.4:5678", "Server": "[::1]:2345", "UUID": "x"},
        "Origin": "server",
        "TCPInfo": {
            "BusyTime": micros(stats.busy), "BytesAcked": stats.bytes_acked, "BytesReceived": stats.bytes_received,
            "BytesSent": stats.bytes_sent, "BytesRetrans": stats.bytes_retransmitted, "ElapsedTime": elapsed,
            "MinRTT": micros(stats.min_rtt), "RTT": micros(stats.srtt), "RTTVar": stats.rttvar.0,
            "RWndLimited": micros(stats.rwnd_limited), "SndBufLimited": micros(stats.sndbuf_limited),
        },
    });
    Message::text(text.to_string())
}

fn download(socket: &mut WebSocket<TcpStream>) {
    let (started, mut next, mut octets) = (Instant::now(), Duration::ZERO, 0);
    while started.elapsed() < LENGTH {
        let message = Message::binary(vec![7; 1 << 16]);
        if socket.send(message).is_err() {
            return;
        }
        octets += 1 << 16;
        if started.elapsed() >= next {
            let message = measurement(socket.get_ref(), started, octets);
            let _ = socket.send(message);
            next = started.elapsed() + MEASUREMENTS;
        }
    }
}

fn upload(socket: &mut WebSocket<TcpStream>) {
    let patience = Some(Duration::from_millis(100));
    socket
        .get_ref()
        .set_read_timeout(patience)
        .expect("a socket");
    let (started, mut next, mut octets) = (Instant::now(), Duration::ZERO, 0);
    while started.elapsed() < LENGTH {
        match socket.read() {
            Ok(Message::Binary(data)) => {
                let size = data.len();
                assert!(
                    (1 << 10..=1 << 24).contains(&size) && size.is_power_of_two(),
                    "{size}"
                );
                octets += size as u64;
            }
            Ok(_) => {}
            Err(error) if waits(&error) => {}
            Err(_) => return,
        }
        if started.elapsed() >= next {
            let message = measurement(socket.get_ref(), started, octets);
            let _ = socket.send(message);
            next = started.elapsed() + MEASUREMENTS;
        }
    }
}

fn measured(test: &str, direction: Direction, options: StreamOptions) -> Option<ThroughputReport> {
    let lab = up(test, LINE, "")?;
    let (a, b) = (&lab.hosts()[0], &lab.hosts()[1]);
    let listener = b.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)));
    let listener = listener.expect("enters").expect("listens");
    let port = listener.local_addr().expect("bound").port();
    let options = Ndt7Options {
        server: format!("ws://{}:{port}", b.ipv4()),
        local: None,
        direction,
        options,
    };
    let server = thread::spawn(move || serve(listener.accept().expect("a client").0));
    let report = a
        .run(|| measure_ndt7(&options, &NEVER))
        .expect("enters")
        .expect("a measurement");
    server.join().expect("the server found nothing wrong");
    println!("{}", slowpath_path::throughput::report::text(&report));
    Some(report)
}

/// 1,448 of 1,500 octets are payload, and of four seconds slow start takes a few round trips of 20 ms.
fn is_the_lines(goodput: Option<f64>) -> bool {
    let most = 50e6 * 1_448.0 / 1_500.0;
    goodput.is_some_and(|goodput| (0.92 * most..=1.01 * most).contains(&goodput))
}

#[test]
fn a_download_is_judged_by_the_servers_statistics() {
    let test = "a_download_is_judged_by_the_servers_statistics";
    let report = measured(test, Direction::Back, StreamOptions::default());
    let Some(report) = report else { return };
    assert!(is_the_lines(report.goodput_bps), "{report:?}");
    assert_eq!(report.verdict.limiter, Limiter::Network, "{report:?}");
    assert_eq!(report.notes, [ThroughputNote::PeerStatistics]);
    assert!(report.retransmitted_bytes.is_some());
    // What the server does not send is not zero.
    let evidence = report.verdict.evidence.join("; ");
    assert!(!evidence.contains("segments"), "{evidence}");
    assert!(report.intervals.iter().all(|row| row.cwnd_bytes.is_none()));
    // Four seconds, and what was still on its way then.
    assert!(report.intervals.len() >= 4, "{report:?}");
}

#[test]
fn an_upload_is_judged_by_this_ends_statistics_and_counted_by_the_servers() {
    let test = "an_upload_is_judged_by_this_ends_statistics_and_counted_by_the_servers";
    let options = StreamOptions {
        congestion: Some("cubic".to_owned()),
        ..StreamOptions::default()
    };
    let Some(report) = measured(test, Direction::There, options) else {
        return;
    };
    // Messages count when they are whole: the last one of up to 1 MiB, of 24 MB, may be missing.
    let goodput = report.goodput_bps.expect("counted");
    assert!(
        is_the_lines(Some(goodput * 1.04)) || is_the_lines(Some(goodput)),
        "{report:?}"
    );
    assert_eq!(report.verdict.limiter, Limiter::Network, "{report:?}");
    assert_eq!(report.notes, [ThroughputNote::OwnStatistics]);
    assert_eq!(report.ends[0].congestion.as_deref(), Some("cubic"));
}

#[test]
fn a_small_receive_buffer_limits_a_download() {
    let options = StreamOptions {
        receive_buffer: Some(32_768),
        ..StreamOptions::default()
    };
    let test = "a_small_receive_buffer_limits_a_download";
    let Some(report) = measured(test, Direction::Back, options) else {
        return;
    };
    let verdict = &report.verdict;
    assert_eq!(
        (verdict.limiter, verdict.who),
        (Limiter::Receiver, Role::ReceivingHost),
        "{report:?}"
    );
}

#[test]
fn a_server_that_is_none_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let server = format!("ws://{}", listener.local_addr().expect("bound"));
    let served = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let _ = std::io::Write::write_all(
            &mut stream,
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        );
        let _ = std::io::Read::read(&mut stream, &mut [0; 1_024]);
    });
    let options = Ndt7Options {
        server,
        local: None,
        direction: Direction::Back,
        options: StreamOptions::default(),
    };
    let error = measure_ndt7(&options, &NEVER)
        .expect_err("none")
        .to_string();
    assert!(
        error.contains("does not speak ndt7") && error.contains("404"),
        "{error}"
    );
    served.join().expect("no panic");
}

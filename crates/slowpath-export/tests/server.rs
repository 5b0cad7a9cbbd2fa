// SPDX-License-Identifier: Apache-2.0
//! The server by clients good and bad, over real sockets.

mod states;

use slowpath_export::Board;
use slowpath_export::http::{MAX_CLIENTS, Server};
use slowpath_model::MonoNanos;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// A test waits this long only before it fails.
const PATIENCE: Duration = Duration::from_secs(30);

fn publish(board: &Board) {
    let agent = states::played(&["nginx"]);
    board.publish(states::state(&agent, MonoNanos(2_000_000_000)));
}

fn start() -> (Server, Arc<Board>) {
    let board = Arc::new(Board::default());
    let any = "127.0.0.1:0".parse().unwrap();
    let server = Server::start(any, board.clone(), Duration::from_millis(500)).unwrap();
    (server, board)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn read(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    read(stream)
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

const METRICS: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn it_answers_what_it_is_asked() {
    let (server, board) = start();
    let address = server.address();
    assert!(ask(address, METRICS).starts_with("HTTP/1.1 503 "));
    assert!(ask(address, "GET /healthz HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 503 "));
    publish(&board);
    let answer = ask(address, METRICS);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"));
    let text = body(&answer);
    assert!(answer.contains(&format!("\r\nContent-Length: {}\r\n", text.len())));
    assert!(text.contains("\nslowpath_connections 1\n"), "{text}");

    let head = ask(address, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 "));
    assert_eq!(body(&head), "");
    // The same length: nothing was published in between.
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", text.len())));

    let open =
        "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n";
    let open = ask(address, open);
    assert!(open.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0"));
    assert!(open.ends_with("# EOF\n"));

    for (request, status) in [
        ("GET /healthz HTTP/1.1\r\n\r\n", "200"),
        ("GET / HTTP/1.1\r\n\r\n", "200"),
        ("GET /nosuch HTTP/1.1\r\n\r\n", "404"),
        (
            "POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
            "405",
        ),
        ("nonsense\r\n\r\n", "400"),
    ] {
        let answer = ask(address, request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
    }
    let counted: Vec<(u16, u64)> = board.http.answers().collect();
    for wanted in [(200, 5), (400, 1), (404, 1), (405, 1), (503, 2)] {
        assert!(counted.contains(&wanted), "{counted:?}");
    }
}

#[test]
fn requests_are_distinguished() {
    let (server, board) = start();
    publish(&board);
    let address = server.address();
    let (text, open) = ("text/plain; version=0.0.4", "application/openmetrics-text");
    for (request, status, content_type) in [
        ("GET /metrics?x=/y HTTP/1.0\r\n\r\n", 200, text),
        (
            "GET http://h:1/metrics HTTP/1.1\r\nHost: h\r\n\r\n",
            200,
            text,
        ),
        ("HEAD /metrics HTTP/1.1\r\n\r\n", 200, text),
        (
            "GET /metrics HTTP/1.1\r\naccept: text/plain;q=0.1\r\nAccept: application/openmetrics-text\r\n\r\n",
            200,
            open,
        ),
        ("GET / HTTP/1.1\r\n\r\n", 200, "text/plain; charset=utf-8"),
        (
            "GET /healthz HTTP/1.1\r\n\r\n",
            200,
            "text/plain; charset=utf-8",
        ),
        (
            "GET /metrics/ HTTP/1.1\r\n\r\n",
            404,
            "text/plain; charset=utf-8",
        ),
        ("POST /x HTTP/1.1\r\n\r\n", 404, "text/plain; charset=utf-8"),
        (
            "PUT /metrics HTTP/1.1\r\n\r\n",
            405,
            "text/plain; charset=utf-8",
        ),
        ("\x16\x03\x01\x02\r\n\r\n", 400, ""),
        ("GET /metrics\r\n\r\n", 400, ""),
    ] {
        let answer = ask(address, request);
        let line = answer.split_once(' ').unwrap().1;
        assert!(
            line.starts_with(&format!("{status} ")),
            "{request:?}: {answer}"
        );
        assert_eq!(answer.contains("\r\nAllow: GET, HEAD\r\n"), status == 405);
        assert!(
            content_type.is_empty()
                || answer.contains(&format!("\r\nContent-Type: {content_type}"))
        );
        assert!(answer.contains("\r\nConnection: close\r\n") || request.contains("HTTP/1.0"));
        if status != 400 {
            assert!(
                answer.contains("\r\nVary: Accept\r\nCache-Control: no-store\r\n"),
                "{answer}"
            );
        }
    }
}

#[test]
fn a_request_in_small_pieces_is_a_request() {
    let (server, board) = start();
    publish(&board);
    let mut stream = connect(server.address());
    stream.set_nodelay(true).unwrap();
    for byte in METRICS.as_bytes() {
        stream.write_all(&[*byte]).unwrap();
    }
    assert!(read(stream).starts_with("HTTP/1.1 200 "));
}

#[test]
fn an_endless_header_is_refused() {
    let (server, board) = start();
    publish(&board);
    let mut stream = connect(server.address());
    let mut sent = stream.write_all(b"GET / HTTP/1.1\r\n");
    for _ in 0..10_000 {
        if sent.is_err() {
            break;
        }
        sent = stream.write_all(b"X: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n");
    }
    // It is answered, or reset when the client goes on all the same.
    let mut text = String::new();
    match stream.read_to_string(&mut text) {
        Ok(_) => assert!(text.starts_with("HTTP/1.1 431 "), "{text}"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    assert!(board.http.answers().any(|counted| counted == (431, 1)));
}

#[test]
fn idle_clients_hold_up_no_other() {
    let (server, board) = start();
    publish(&board);
    // More than there are places, none of which says a word, nor reads.
    let idle: Vec<TcpStream> = (0..MAX_CLIENTS + 8)
        .map(|_| connect(server.address()))
        .collect();
    assert!(ask(server.address(), METRICS).starts_with("HTTP/1.1 200 "));
    // The first ones had to go, and are counted.
    assert!(board.http.dropped() >= 8, "{}", board.http.dropped());
    let mut first = &idle[0];
    assert!(matches!(first.read(&mut [0]), Ok(0) | Err(_)));
    drop(idle);
    assert!(ask(server.address(), METRICS).starts_with("HTTP/1.1 200 "));
}

#[test]
fn it_ends_with_clients_in_it() {
    let (server, board) = start();
    publish(&board);
    let waiting = connect(server.address());
    let address = server.address();
    drop(server);
    // Closed, or reset if it had not been accepted yet.
    let mut text = String::new();
    let ended = (&waiting).read_to_string(&mut text);
    assert!(matches!(ended, Ok(0)) || ended.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset));
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn an_address_in_use_is_named() {
    let (server, board) = start();
    let again = Server::start(server.address(), board, Duration::from_secs(1));
    let said = again.unwrap_err().to_string();
    assert!(said.contains(&server.address().to_string()), "{said}");
}

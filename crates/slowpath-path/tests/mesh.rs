// SPDX-License-Identifier: Apache-2.0
//! A mesh of a peer that answers and one that does not.

use slowpath_path::mesh::{Measurement, Mesh, MeshStart};
use slowpath_path::report::{Reading, of_two_way};
use slowpath_path::serve::{ServeOptions, Serving};
use slowpath_path::session::{TestOptions, TwoWayKind, measure_two_way};
use slowpath_path::time::Span;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn measurement(peer: SocketAddr, kind: TwoWayKind) -> Measurement {
    let options = TestOptions {
        packets: 20,
        slots: "0.01f".parse().expect("a schedule"),
        timeout: Span::from_seconds(0.5).expect("a span"),
        ..TestOptions::to(peer)
    };
    Arc::new(move |stop: &AtomicBool| {
        let outcome = measure_two_way(&options, kind, stop)?;
        Ok(of_two_way(
            &outcome,
            kind,
            &Reading {
                timeout: Duration::from_millis(500),
                ..Reading::default()
            },
        ))
    })
}

fn scraped(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nhost: m\r\n\r\n")
        .expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    text
}

#[test]
fn a_peer_that_is_away_is_counted_and_holds_no_other() {
    let local = |port| SocketAddr::new("127.0.0.1".parse().expect("an address"), port);
    let serving = Serving::start(ServeOptions {
        stamp: vec![local(0)],
        ..ServeOptions::default()
    });
    let serving = serving.expect("a port");
    let stamp = serving.stamp()[0];
    // The port is free: TWAMP needs a connection.
    let free = std::net::TcpListener::bind(local(0)).expect("a port");
    let away = free.local_addr().expect("an address");
    drop(free);
    let mesh = Mesh::start(MeshStart {
        peers: vec![
            ("there".to_owned(), measurement(stamp, TwoWayKind::Stamp)),
            ("away".to_owned(), measurement(away, TwoWayKind::Twamp)),
        ],
        stretch: Duration::from_secs(1),
        listen: Some(local(0)),
    });
    let mesh = mesh.expect("a port");
    let address = mesh.address().expect("it listens");
    let value = |text: &str, name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0.0, |value| value.trim().parse().expect("a number"))
    };
    let text = loop {
        let text = scraped(address);
        let stretches = value(&text, "slowpath_path_stretches_total{peer=\"there\"}");
        let failures = value(&text, "slowpath_path_failures_total{peer=\"away\"}");
        if stretches >= 2.0 && failures >= 2.0 {
            break text;
        }
        std::thread::yield_now();
    };
    assert!(text.contains("text/plain; version=0.0.4"), "{text}");
    assert_eq!(value(&text, "slowpath_path_up{peer=\"there\"}"), 1.0);
    assert_eq!(value(&text, "slowpath_path_up{peer=\"away\"}"), 0.0);
    let sent = "slowpath_path_packets_sent_total{peer=\"there\",way=\"round_trip\"}";
    assert!(value(&text, sent) >= 40.0, "{text}");
    assert!(value(&text, "slowpath_path_stretches_total{peer=\"away\"}") == 0.0);
}

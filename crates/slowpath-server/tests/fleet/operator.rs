// SPDX-License-Identifier: Apache-2.0
//! What an operator asks of a server that runs.

use crate::setting::{Fleet, batch};
use std::io::{Read, Write};
use std::net::TcpStream;

fn fetch(fleet: &Fleet, path: &str) -> String {
    let address = fleet.server().metrics_address().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn status_names_hosts_before_and_after_a_restart() {
    let mut fleet = Fleet::new();
    let mine = fleet.join("web-1");
    assert_eq!(fleet.connect(&mine).ship(&batch("a")).status, 200);
    let status = |fleet: &Fleet| {
        slowpath_server::command::status(fleet.folder.path(), &fleet.clock()).unwrap()
    };
    let running = status(&fleet);
    assert_eq!(running.running.as_ref().unwrap().batches, 1);
    let record = running.hosts["web-1"].record.clone();
    assert_eq!(record.flushed_us, fleet.now().0);
    assert_eq!(record.gap_bytes, 100);
    assert_eq!(record.boot_id, format!("{:032x}", 0xb007));
    fleet.server.take().unwrap().stop().unwrap();
    let at_rest = status(&fleet);
    assert!(at_rest.running.is_none());
    assert_eq!(at_rest.hosts["web-1"].record, record);
    assert_eq!(at_rest.server, running.server);
    fleet.start();
    assert_eq!(status(&fleet).hosts["web-1"].record, record);
}

#[test]
fn metrics_and_health_are_on_a_listener_of_their_own() {
    let fleet = Fleet::new();
    let mine = fleet.join("web-1");
    assert_eq!(fleet.connect(&mine).ship(&batch("a")).status, 200);
    let text = fetch(&fleet, "/metrics");
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
    assert!(text.contains("slowpath_server_batches_total 1"), "{text}");
    assert!(fetch(&fleet, "/healthz").ends_with("\r\n\r\nok\n"));
    for path in ["/v1/ca", "/v1/batch"] {
        assert!(fetch(&fleet, path).starts_with("HTTP/1.1 404"), "{path}");
    }
}

#[test]
fn a_second_server_is_refused() {
    let fleet = Fleet::new();
    let second = slowpath_server::state::StateDirectory::open(fleet.folder.path());
    assert!(second.unwrap_err().to_string().contains("another process"));
}

// SPDX-License-Identifier: Apache-2.0
//! Under limits: what could not be looked at is said as such.

use serde_json::Value;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Connections of this process, each of them busy.
const CONNECTIONS: usize = 15;

/// `slowpath` with a limit of `descriptors`.
fn limited(descriptors: u64, arguments: &[&str]) -> Child {
    let program = env!("CARGO_BIN_EXE_slowpath");
    let script = format!("ulimit -n {descriptors}; exec \"$@\"");
    Command::new("sh")
        .args(["-c", &script, "sh", program])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn without_descriptors_owners_are_not_looked_for_and_that_is_said() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut clients = Vec::new();
    let mut servers = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(TcpStream::connect(("127.0.0.1", port)).unwrap());
        servers.push(listener.accept().unwrap().0);
    }
    // What is idle makes no interval.
    let (stop, stopped) = channel::<()>();
    let busy = std::thread::spawn(move || {
        while stopped.recv_timeout(Duration::from_millis(50)) == Err(RecvTimeoutError::Timeout) {
            clients
                .iter_mut()
                .for_each(|it| it.write_all(b"x").unwrap());
        }
    });
    let port = port.to_string();
    let arguments = [
        "watch",
        "--tier",
        "inet-diag",
        "--json",
        "--for",
        "2s",
        "dport",
        "=",
        &port,
    ];
    // From too few to start to enough to look at every process.
    let running: Vec<(u64, Child)> = (6..=40).map(|n| (n, limited(n, &arguments))).collect();
    let mut failed = 0;
    for (descriptors, child) in running {
        let output = child.wait_with_output().unwrap();
        let limit = format!("this process may have {descriptors} (RLIMIT_NOFILE)");
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains(&limit), "{said}");
            continue;
        }
        let last = output
            .stdout
            .split(|b| *b == b'\n')
            .rfind(|line| !line.is_empty());
        let last: Value = serde_json::from_slice(last.unwrap()).unwrap();
        let unknown = &last["owners"]["unknown"];
        assert_eq!(
            unknown["held_by_nobody"],
            Value::Null,
            "{descriptors}: {unknown}"
        );
        if unknown["look_failed"] == CONNECTIONS {
            failed += 1;
            let text = last["capabilities"].to_string();
            assert!(text.contains(&limit), "{text}");
        }
    }
    drop(stop);
    busy.join().unwrap();
    assert!(failed > 0, "some had too few descriptors");
}

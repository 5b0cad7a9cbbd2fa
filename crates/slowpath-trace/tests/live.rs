// SPDX-License-Identifier: Apache-2.0
//! A capture of the loopback interface of a network namespace of the test's own.

use slowpath_trace::decode::DecodeOptions;
use slowpath_trace::live::{Request, capture};
use slowpath_trace::read::{Capture, Inputs};
use slowpath_trace::segment::Flags;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Moves this thread into a network namespace of its own. `false`: not allowed here.
fn is_isolated() -> bool {
    // SAFETY: it takes an integer and concerns this thread only.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        println!(
            "SKIPPED live: no network namespace ({})",
            std::io::Error::last_os_error()
        );
        return false;
    }
    let up = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status();
    if !up.is_ok_and(|status| status.success()) {
        println!("SKIPPED live: ip cannot set lo up");
        return false;
    }
    true
}

/// 100,000 bytes from a client to a server, and a datagram.
fn traffic() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("it listens");
    let server = listener.local_addr().expect("it has one");
    let mut client = TcpStream::connect(server).expect("it connects");
    let (mut accepted, _) = listener.accept().expect("it accepts");
    let sender = std::thread::spawn(move || {
        client.write_all(&[7; 100_000]).expect("it sends");
    });
    let mut all = Vec::new();
    accepted.read_to_end(&mut all).expect("it receives");
    sender.join().expect("it sent");
    assert_eq!(all.len(), 100_000);
    let udp = UdpSocket::bind("127.0.0.1:0").expect("it binds");
    udp.send_to(b"the end", server).expect("it sends");
    server.port()
}

fn check(interface: &str, filter: Option<&str>, datagrams: u64) {
    let stop = Arc::new(AtomicBool::new(false));
    let request = Request {
        snap_length: 100,
        filter: filter.map(|f| f.parse().expect("it is one")),
        ..Request::new(interface)
    };
    let (input, counters) = capture(&request, Arc::clone(&stop)).expect("it captures");
    let port = traffic();
    stop.store(true, Ordering::Relaxed);
    let inputs = Inputs::new(vec![input]).expect("there is one");
    let mut capture = Capture::new(inputs, DecodeOptions::default()).expect("there is one");
    let (mut sent, mut syns) = (0, 0);
    while let Some(packet) = capture.next().expect("it reads") {
        assert!(packet.data().len() <= 116);
        let Ok(segment) = packet.segment() else {
            continue;
        };
        if segment.destination.port == port {
            sent += u64::from(segment.length);
        }
        syns += u64::from(segment.flags.any(Flags::SYN));
    }
    // Each frame once, although a loopback interface shows what it sends and what it receives.
    assert_eq!((sent, syns), (100_000, 2), "{interface} {filter:?}");
    assert_eq!(capture.totals().udp().frames, datagrams);
    assert_eq!(counters.dropped(), 0);
    assert!(counters.received() >= capture.totals().all().frames);
}

#[test]
fn a_loopback_interface() {
    if !is_isolated() {
        return;
    }
    check("lo", None, 1);
    check("lo", Some("tcp"), 0);
    check("lo", Some("tcp and not vlan"), 0);
    check("any", Some("ip"), 1);
    let stop = Arc::new(AtomicBool::new(true));
    let none = capture(&Request::new("nosuch0"), stop).map(drop);
    let said = none.expect_err("there is none").to_string();
    assert!(
        said.starts_with("cannot capture on nosuch0: No such device"),
        "{said}"
    );
}

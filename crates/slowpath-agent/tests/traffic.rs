// SPDX-License-Identifier: Apache-2.0
//! The log's traffic of real connections adds up to what their own sockets state (TCP_INFO): of
//! one older than the agent since it looked, of the others from their opening on.

mod sockets;
mod starting;

use slowpath_agent::{Config, Namespaces, TierChoice};
use slowpath_store::{LogReader, TimeRange};
use sockets::{cookie, move_on};
use starting::start;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

/// `tcpi_data_segs_out`, `tcpi_data_segs_in`, `tcpi_total_retrans` (include/uapi/linux/tcp.h).
fn counts(socket: &TcpStream) -> [u64; 3] {
    let mut info = [0u8; 256];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut length,
        )
    };
    assert_eq!(done, 0);
    [156, 152, 100].map(|at| {
        let field = info[at..at + 4].try_into().unwrap();
        u32::from_ne_bytes(field).into()
    })
}

fn exchange(from: &mut TcpStream, to: &mut TcpStream, times: usize) {
    for _ in 0..times {
        from.write_all(&[7; 100]).unwrap();
        to.read_exact(&mut [0; 100]).unwrap();
    }
}

/// Connections with their agent, in this thread's namespace.
fn traffic_is_what_sockets_state(test: &str, tier: TierChoice) {
    if let Err(error) = move_on() {
        println!("SKIPPED {test}: no network namespace: {error}");
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let open = || {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    };
    let mut old = open();
    exchange(&mut old.0, &mut old.1, 5);
    let before = [counts(&old.0), counts(&old.1)];
    let log = tempfile::tempdir().unwrap();
    let config = Config {
        namespaces: Namespaces::Own,
        log: Some(log.path().to_owned()),
        tier,
        ..Config::default()
    };
    let Some(mut agent) = start(test, config) else {
        return;
    };
    agent.poll().unwrap();
    let (mut living, mut closing) = (open(), open());
    // inet_diag knows no opening: it has to look before they carry anything.
    std::thread::sleep(agent.until_next_poll());
    agent.poll().unwrap();
    let expected: BTreeMap<u64, [u64; 3]> = {
        exchange(&mut old.1, &mut old.0, 3);
        exchange(&mut living.0, &mut living.1, 2);
        exchange(&mut closing.0, &mut closing.1, 4);
        let since = |socket: &TcpStream, from: [u64; 3]| {
            let now = counts(socket);
            (cookie(socket), std::array::from_fn(|i| now[i] - from[i]))
        };
        let new = [&living.0, &living.1, &closing.0, &closing.1];
        let new = new.map(|socket| since(socket, [0; 3]));
        let old = [since(&old.0, before[0]), since(&old.1, before[1])];
        new.into_iter().chain(old).collect()
    };
    std::thread::sleep(agent.until_next_poll());
    agent.poll().unwrap();
    drop(closing);
    std::thread::sleep(agent.until_next_poll());
    agent.poll().unwrap();
    agent.finish();
    let mut logged: BTreeMap<u64, [u64; 3]> = BTreeMap::new();
    let reader = LogReader::open(log.path()).unwrap();
    for traffic in reader.traffic(TimeRange::ALL).unwrap().rows {
        let sums = logged.entry(traffic.connection.cookie).or_default();
        let counts = [
            traffic.data_segments_out,
            traffic.data_segments_in,
            traffic.retransmitted,
        ];
        *sums = std::array::from_fn(|i| sums[i] + counts[i].unwrap());
    }
    assert_eq!(logged, expected);
    let coverage = reader.coverage(TimeRange::ALL).unwrap().rows;
    assert!(coverage.last().unwrap().clock.is_some());
}

#[test]
fn traffic_is_what_the_sockets_state() {
    traffic_is_what_sockets_state("traffic_is_what_the_sockets_state", TierChoice::Bpf);
}

#[test]
fn so_it_is_from_inet_diag() {
    traffic_is_what_sockets_state("so_it_is_from_inet_diag", TierChoice::InetDiag);
}

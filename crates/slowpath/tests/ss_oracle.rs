// SPDX-License-Identifier: Apache-2.0
//! Filters select the sockets that `ss` selects.

use slowpath_machine::system_names::SystemNames;
use slowpath_model::{FourTuple, ProblemSet, TcpState};
use slowpath_views::filter::{Filter, Subject};
use std::collections::BTreeSet;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::process::Command;

/// Both ends of connections over IPv4, IPv6 and IPv6 with mapped addresses.
fn sockets() -> Vec<(TcpStream, TcpStream)> {
    let mapped = |port| {
        let address: Ipv6Addr = "::ffff:127.0.0.1".parse().unwrap();
        SocketAddr::V6(SocketAddrV6::new(address, port, 0, 0))
    };
    ["127.0.0.1:0", "[::1]:0", "[::]:0", "127.0.0.1:0"]
        .iter()
        .map(|address| {
            let listener = TcpListener::bind(address).unwrap();
            let mut server = listener.local_addr().unwrap();
            if server.ip().is_unspecified() {
                server = mapped(server.port());
            }
            let client = TcpStream::connect(server).unwrap();
            (client, listener.accept().unwrap().0)
        })
        .collect()
}

fn tuple(socket: &TcpStream) -> FourTuple {
    FourTuple::new(socket.local_addr().unwrap(), socket.peer_addr().unwrap())
}

/// `[::ffff:127.0.0.1]:80` as `127.0.0.1:80`, a zone index dropped.
fn address(text: &str) -> Option<SocketAddr> {
    let parsed: SocketAddr = text.parse().ok()?;
    Some(SocketAddr::new(parsed.ip().to_canonical(), parsed.port()))
}

/// The 4-tuples of established sockets that `ss` selects; `None` if it cannot read the filter.
fn selected_by_ss(filter: &str) -> Option<BTreeSet<FourTuple>> {
    let output = Command::new("ss")
        .args(["-Htn", "state", "established"])
        .arg(filter)
        .output()
        .unwrap();
    if !output.stderr.is_empty() {
        return None;
    }
    let text = String::from_utf8(output.stdout).unwrap();
    Some(
        text.lines()
            .filter_map(|line| {
                // Receive queue, send queue, local, remote: with `state` there is no state.
                let mut words = line.split_whitespace().skip(2);
                Some(FourTuple::new(
                    address(words.next()?)?,
                    address(words.next()?)?,
                ))
            })
            .collect(),
    )
}

/// Filters that hold for any ports.
const FILTERS: &[&str] = &[
    "dst 127.0.0.1",
    "dst 127.0.0.0/8",
    "dst 127/8",
    "dst 127.0/16",
    "src [::1]",
    "src [::1/128]",
    "dst ::1/128",
    "dst 0.0.0.0/0",
    "dst 0.0.0.0/1",
    "dst *",
    "dst any",
    "not dst 127.0.0.1",
    "dst 10.0.0.0/8",
    "dport = :*",
    "dport <= :*",
    "dport >= :1024",
    "sport lt 1024",
    "autobound",
];

/// Filters in which A, B and C stand for ports of clients, S and T for ports of servers.
const PORT_FILTERS: &[&str] = &[
    "sport = :A",
    "dport :A",
    "dport A",
    "dport != :A",
    "dport neq A",
    "sport > :A",
    "sport < :A",
    "sport ge A",
    "sport le A",
    "dst 127.0.0.1:S",
    "dst :S",
    "dst *:S",
    "src [::1]:T",
    "dst 0.0.0.0/0:S",
    "dst = 127.0.0.0/8:S",
    "sport = :A or sport = :B",
    "sport = :A or sport = :B and dport = :T",
    "dport = :T and sport = :A or sport = :C",
    "sport = :A or ( sport = :B and dport = :S )",
    "( sport = :A or dport = :A ) and not src [::1]",
    "not sport = :A dst 127.0.0.1",
    "! ( sport = :A | dport = :A ) && dst 127.0.0.1",
    "not not sport = :A",
];

#[test]
fn filters_select_what_ss_selects() {
    const TEST: &str = "filters_select_what_ss_selects";
    if Command::new("ss").arg("-V").output().is_err() {
        println!("SKIPPED {TEST}: there is no ss");
        return;
    }
    let sockets = sockets();
    let tuples: BTreeSet<FourTuple> = sockets
        .iter()
        .flat_map(|(a, b)| [tuple(a), tuple(b)])
        .collect();
    let port = |i: usize| sockets[i].0.local_addr().unwrap().port();
    let server = |i: usize| sockets[i].0.peer_addr().unwrap().port();
    let (a, b, c) = (port(0), port(1), port(2));
    let (s, t) = (server(0), server(1));
    let ports = [("A", a), ("B", b), ("C", c), ("S", s), ("T", t)];
    let with_ports = PORT_FILTERS.iter().map(|text| {
        ports.iter().fold((*text).to_owned(), |text, (name, port)| {
            text.replace(name, &port.to_string())
        })
    });
    let fixed = FILTERS.iter().map(|text| (*text).to_owned());
    for text in fixed.chain(with_ports) {
        let ss = selected_by_ss(&text).unwrap_or_else(|| panic!("ss cannot read `{text}`"));
        let filter = Filter::parse(&text, &SystemNames::default()).unwrap();
        let ours: BTreeSet<FourTuple> = tuples
            .iter()
            .filter(|t| {
                filter.selects(&Subject {
                    local: t.local,
                    remote: t.remote,
                    state: TcpState::Established,
                    owner: &Default::default(),
                    problems: ProblemSet::EMPTY,
                })
            })
            .copied()
            .collect();
        let theirs: BTreeSet<FourTuple> = ss.intersection(&tuples).copied().collect();
        assert_eq!(ours, theirs, "{text}");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What a recording says of the kernel and the sockets that it was made on.

use super::event::Found;
use crate::recording::Settings;
use std::collections::BTreeMap;

/// `values` of the probe's `struct settings`, up to the receive buffer's three.
const NAMES: [&str; 9] = [
    "tcp_timestamps",
    "tcp_sack",
    "tcp_ecn",
    "tcp_recovery",
    "tcp_early_retrans",
    "tcp_reordering",
    "tcp_slow_start_after_idle",
    "tcp_moderate_rcvbuf",
    "ip_default_ttl",
];

/// What every socket has that nobody set: net/ipv4/tcp.c, include/net/tcp.h (`TCP_RTO_MIN`, `TCP_TIMEOUT_INIT`, `TCP_INIT_CWND`,
/// `TCP_INFINITE_SSTHRESH`).
const SOCKET: [(&str, &str); 7] = [
    ("rto_min_ns", "200000000"),
    ("rto_initial_ns", "1000000000"),
    ("initial_window", "10"),
    ("initial_ssthresh", "2147483647"),
    ("receive_window", "0"),
    ("mss", "0"),
    ("ack_at_once", "0"),
];

/// Settings of both ends; `hystart` is the module's parameter of CUBIC.
pub(crate) fn settings(ends: [&Found; 2], hystart: bool) -> Settings {
    let [a, b] = ends;
    let mut accepted = socket(b);
    accepted.insert("reader".to_owned(), "at-once".to_owned());
    Settings {
        sysctls: ends.map(|end| sysctls(end, hystart)),
        socket: [socket(a), accepted],
        mtu: ends.map(|end| end.mtu),
    }
}

/// Settings of an end that is alone: its sysctls and its socket's; `side` 0: it connected.
pub(crate) fn own(found: &Found, side: usize, hystart: bool) -> [BTreeMap<String, String>; 2] {
    let Settings {
        sysctls, socket, ..
    } = settings([found, found], hystart);
    [sysctls, socket].map(|[client, server]| if side == 0 { client } else { server })
}

fn sysctls(found: &Found, hystart: bool) -> BTreeMap<String, String> {
    let [values @ .., least, usual, most] = &found.values;
    let named = NAMES.iter().zip(values);
    let named = named.map(|(name, value)| ((*name).to_owned(), value.to_string()));
    let more = [
        ("tcp_rmem", format!("{least} {usual} {most}")),
        ("tcp_cubic.hystart", u8::from(hystart).to_string()),
    ];
    named
        .chain(more.map(|(name, value)| (name.to_owned(), value)))
        .collect()
}

fn socket(found: &Found) -> BTreeMap<String, String> {
    let all = SOCKET.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let congestion = ("congestion".to_owned(), found.congestion.clone());
    all.into_iter().chain([congestion]).collect()
}

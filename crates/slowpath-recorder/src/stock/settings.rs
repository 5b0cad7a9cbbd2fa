// SPDX-License-Identifier: Apache-2.0
//! What a recording says of the kernel and the sockets that it was made on.

use super::event::SocketSettings;
use slowpath_recording::Settings;
use slowpath_recording::sysctls::{SEGMENTATION, SYSCTLS, WRITE_BUFFER, WRITE_BUFFERS};
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

/// What every socket has by default: net/ipv4/tcp.c, include/net/tcp.h (`TCP_RTO_MIN`, `TCP_TIMEOUT_INIT`, `TCP_INIT_CWND`,
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
pub(crate) fn settings(ends: [&SocketSettings; 2], hystart: bool, hz: u32) -> Settings {
    let [a, b] = ends;
    let mut accepted = socket(b);
    accepted.insert("reader".to_owned(), "at-once".to_owned());
    Settings {
        sysctls: ends.map(|end| sysctls(end, hystart, hz)),
        socket: [socket(a), accepted],
        mtu: ends.map(|end| end.mtu),
    }
}

/// Settings of a one-sided end: its sysctls and its socket's; `side` 0: it connected.
pub(crate) fn own(
    found: &SocketSettings,
    side: usize,
    hystart: bool,
    hz: u32,
) -> [BTreeMap<String, String>; 2] {
    let Settings {
        sysctls, socket, ..
    } = settings([found, found], hystart, hz);
    [sysctls, socket].map(|[client, server]| if side == 0 { client } else { server })
}

/// Of the kernel's own those that are not what it has by itself.
fn unusual(found: &SocketSettings, hz: u32) -> Vec<(String, String)> {
    let Some((buffers, others)) = found.more.split_first_chunk() else {
        return Vec::new();
    };
    let of_buffers = buffers != &WRITE_BUFFERS && !buffers.contains(&u32::MAX);
    let of_buffers = of_buffers.then(|| {
        let [least, first, most] = buffers;
        (WRITE_BUFFER.to_owned(), format!("{least} {first} {most}"))
    });
    let others = others.iter().zip(SYSCTLS);
    let others =
        others.filter(|(value, (_, usual, ..))| **value != u32::MAX && **value != usual.value(hz));
    let others = others.map(|(value, (name, usual, ..))| (usual.name(name), value.to_string()));
    of_buffers.into_iter().chain(others).collect()
}

fn sysctls(found: &SocketSettings, hystart: bool, hz: u32) -> BTreeMap<String, String> {
    let [values @ .., least, usual, most] = &found.values;
    let named = NAMES.iter().zip(values);
    let named = named.map(|(name, value)| ((*name).to_owned(), value.to_string()));
    let more = [
        ("tcp_rmem", format!("{least} {usual} {most}")),
        ("tcp_cubic.hystart", u8::from(hystart).to_string()),
    ];
    named
        .chain(more.map(|(name, value)| (name.to_owned(), value)))
        .chain(unusual(found, hz))
        .chain((found.segments == Some(false)).then(|| (SEGMENTATION.to_owned(), "0".to_owned())))
        .collect()
}

fn socket(found: &SocketSettings) -> BTreeMap<String, String> {
    let all = SOCKET.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let congestion = ("congestion".to_owned(), found.congestion.clone());
    all.into_iter().chain([congestion]).collect()
}

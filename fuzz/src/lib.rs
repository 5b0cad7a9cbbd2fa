// SPDX-License-Identifier: Apache-2.0
//! What the fuzz targets share: valid inputs built by hand to start from, and what must
//! hold of every value that a parser hands out.
//!
//! A target run with `SLOWPATH_SEEDS=DIRECTORY` writes its seeds there and ends.

use slowpath_model::{Micros, TcpStats};
use std::path::Path;

/// Writes the seeds and ends the process if the environment asks for that.
pub fn write_seeds(seeds: impl FnOnce() -> Vec<Vec<u8>>) {
    let Some(directory) = std::env::var_os("SLOWPATH_SEEDS") else {
        return;
    };
    for (number, seed) in seeds().into_iter().enumerate() {
        let path = Path::new(&directory).join(format!("seed-{number:02}"));
        if let Err(error) = std::fs::write(&path, seed) {
            eprintln!("writing the seed {}: {error}", path.display());
            std::process::exit(1);
        }
    }
    std::process::exit(0);
}

/// What no `tcp_info` may make of a connection, whatever its bytes.
pub fn check_stats(stats: &TcpStats) {
    assert!(stats.ssthresh.is_none_or(|segments| segments < 0x7fff_ffff));
    assert!(stats.pacing_rate != Some(u64::MAX));
    assert!(stats.delivery_rate != Some(0));
    assert!(stats.srtt != Some(Micros::ZERO));
    let within_u32 = |time: Micros| time.0 <= u64::from(u32::MAX);
    assert!(stats.srtt.is_none_or(within_u32));
    assert!(stats.min_rtt.is_none_or(|us| us.0 < u64::from(u32::MAX)));
    assert!(within_u32(stats.rto) && within_u32(stats.rttvar));
    assert!(stats.unanswered_timeouts < 256 && stats.probes < 256 && stats.backoff < 256);
    assert!(stats.rtt_sums.is_none() && stats.recovery.is_none());
    if let Some(rto) = stats.rto_stats {
        assert!(rto.timeouts <= u64::from(u16::MAX) && rto.recoveries <= u64::from(u16::MAX));
        assert!(rto.time.0.is_multiple_of(1_000));
    }
    // Fields appear in the order of their offsets: a later one implies every earlier one.
    let there = [
        stats.app_limited.is_some(),
        stats.busy.is_some(),
        stats.rwnd_limited.is_some(),
        stats.sndbuf_limited.is_some(),
        stats.delivered.is_some(),
        stats.delivered_ce.is_some(),
        stats.bytes_sent.is_some(),
        stats.bytes_retransmitted.is_some(),
        stats.dsack_duplicates.is_some(),
        stats.reordering_events.is_some(),
        stats.out_of_order_in.is_some(),
        stats.send_window.is_some(),
        stats.receive_window.is_some(),
        stats.rto_stats.is_some(),
    ];
    assert!(there.is_sorted_by(|earlier, later| earlier >= later));
}

/// A `struct tcp_info` of that length, of a connection that moved data.
pub fn tcp_info(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; 280];
    bytes[..8].copy_from_slice(&[1, 0, 0, 0, 0, 7, 0x77, 1]);
    let words: &[(usize, u32)] = &[
        (8, 204_000),
        (16, 1_448),
        (24, 10),
        (60, 1_500),
        (68, 25_000),
        (72, 3_000),
        (76, 0x7fff_ffff),
        (80, 10),
        (88, 3),
        (100, 2),
        (136, 500),
        (140, 400),
        (148, 24_000),
        (156, 480),
        (228, 65_536),
        (240, 0x0001_0002),
        (244, 850),
    ];
    for (offset, word) in words {
        bytes[*offset..offset + 4].copy_from_slice(&word.to_ne_bytes());
    }
    bytes[104..112].fill(0xff);
    bytes[120..128].copy_from_slice(&695_040u64.to_ne_bytes());
    bytes[168..176].copy_from_slice(&2_000_000u64.to_ne_bytes());
    bytes.truncate(length);
    bytes
}

/// A `struct inet_diag_msg`.
pub fn diag_header(family: u8, cookie: u64) -> Vec<u8> {
    let mut bytes = vec![family, 1, 1, 0, 0x1f, 0x90, 0xc3, 0x50];
    for last in [1, 2] {
        let mut address = [0; 16];
        if family == 2 {
            address[..4].copy_from_slice(&[10, 0, 0, last]);
        } else {
            address[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, last]);
        }
        bytes.extend(address);
    }
    bytes.extend(0u32.to_ne_bytes());
    bytes.extend((cookie as u32).to_ne_bytes());
    bytes.extend(((cookie >> 32) as u32).to_ne_bytes());
    for word in [200u32, 0, 14_480, 1000, 4242] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

/// A netlink attribute, padded.
pub fn attribute(number: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(number.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A netlink message, padded.
pub fn message(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = ((16 + payload.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(1u32.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes());
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

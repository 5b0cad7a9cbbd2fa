// SPDX-License-Identifier: Apache-2.0
//! `slowpath trace --pair` on real TCP between two hosts: what was dropped between them is
//! written down by the program that dropped it, the delay is the delay line's, and the clocks differ by
//! what the test adds.

mod path;

use path::{
    CLIENT, Load, Network, OUTSIDE, Recording, SERVER, download, reclock, records, skipped, upload,
};
use serde_json::Value;
use slowpath_testbed::{DropRule, DroppedSegment, Side, attempts};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The server's clock is ahead by this, ns.
const AHEAD: i64 = 7_250_000_000;

/// What passes the machine itself takes: scheduling and the delay line's thread. Where a
/// processor is held back for longer, the attempt fails and is repeated.
const OWN_MS: f64 = 5.0;

/// Runs `work` between captures at both hosts: the two files, the server's clock set ahead.
fn captured(network: &Network, folder: &Path, work: impl FnOnce()) -> [String; 2] {
    let near = Recording::start(&network.client, "host0", &folder.join("client.pcap"));
    let far = Recording::start(&network.server, "host0", &folder.join("server.pcap"));
    work();
    let files = [near.finish(), far.finish()];
    reclock(&files[1], |t, _| t + AHEAD);
    files.map(|f| f.to_str().expect("is text").to_owned())
}

fn trace(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_slowpath"))
        .arg("trace")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("is text")
}

/// What `--pair` says of the one connection, and the connection.
fn paired(one: &str, other: &str) -> (Value, Value) {
    let said = trace(&[one, "--pair", other, "--json"]);
    let object = |kind: &str| {
        let all = said.lines().map(serde_json::from_str::<Value>);
        let mut of = all
            .map(|o| o.expect("is JSON"))
            .filter(|o| o["type"] == kind);
        let first = of.next().unwrap_or_else(|| panic!("no {kind} in {said}"));
        assert!(of.next().is_none(), "one {kind}");
        first
    };
    (object("pair"), object("connection"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

/// Offset within its own uncertainty, and this near: both ways are alike. The uncertainty is half
/// the least round trip, at least the delay line's.
fn check_clock(pair: &Value, delay_ms: f64) {
    let off = (number(&pair["server_clock_ahead_us"]) - AHEAD as f64 / 1e3).abs() / 1e3;
    let uncertainty = number(&pair["server_clock_uncertainty_us"]) / 1e3;
    assert!(off <= uncertainty, "{off} ms of {uncertainty}: {pair}");
    assert!(off <= OWN_MS, "{off} ms: {pair}");
    let range = delay_ms..delay_ms + OWN_MS;
    assert!(range.contains(&uncertainty), "{uncertainty}: {pair}");
    for path in ["from_client", "from_server"] {
        let least = number(&pair[path]["one_way"]["least_us"]) / 1e3;
        assert!(range.contains(&least), "{path} {least}: {pair}");
    }
}

/// The lost segments are those that were dropped, each transmission.
fn check_losses(path: &Value, sent: &str, dropped: &[DroppedSegment]) {
    let bytes: u64 = dropped.iter().map(|d| u64::from(d.length)).sum();
    assert_eq!(path["lost_bytes"], bytes, "{path}");
    assert_eq!(path["lost"], dropped.len(), "{path}");
    let frames = path["lost_frames"].as_array().expect("is a list");
    let all = records(Path::new(sent));
    let mut lost: Vec<u32> = (frames.iter())
        .map(|f| all[f.as_u64().expect("a number") as usize - 1].sequence())
        .collect();
    let mut wanted: Vec<u32> = dropped.iter().map(|d| d.sequence).collect();
    lost.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(lost, wanted);
}

/// Numbers of segments, and how many transmissions of each are dropped.
fn rule(ordinals: &[(u32, u32)]) -> DropRule {
    DropRule {
        ordinals: ordinals.iter().copied().collect(),
        ..DropRule::default()
    }
}

/// Single losses, a pair, one whose repair is lost as well, and the last one.
const CHOSEN: [(u32, u32); 6] = [(5, 1), (60, 1), (61, 1), (100, 2), (150, 1), (207, 1)];
/// 207 segments of 1,448 bytes.
const BYTES: usize = 207 * 1_448;

#[test]
fn losses_delays_and_clocks_are_those_of_the_network() {
    const TEST: &str = "losses_delays_and_clocks_are_those_of_the_network";
    if skipped(TEST, &[]) {
        return;
    }
    attempts(TEST, || {
        for (load, from, key) in [
            (upload(BYTES), Side::A, "from_client"),
            (download(BYTES), Side::B, "from_server"),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let network = Network::new(20, false);
            let dropper = network.drop_data(from, rule(&CHOSEN));
            let files = captured(&network, folder.path(), || {
                network.exchange(load);
            });
            let dropped = dropper.dropped().expect("is read");
            assert_eq!(dropped.len(), 7);
            let [near, far] = &files;
            for (one, other, first_is_client) in [(near, far, true), (far, near, false)] {
                let (pair, _) = paired(one, other);
                assert_eq!(pair["first_is_client"], first_is_client);
                assert_eq!(pair["paired_by"], "addresses and ports");
                check_clock(&pair, 20.0);
                let sent = if key == "from_client" { near } else { far };
                check_losses(&pair[key], sent, &dropped);
                let back = if key == "from_client" {
                    "from_server"
                } else {
                    "from_client"
                };
                assert_eq!(pair[back]["lost"], 0, "{pair}");
                for path in [key, back] {
                    assert_eq!(pair[path]["outside"], 0, "{pair}");
                    assert_eq!(pair[path]["receiver_only"], 0, "{pair}");
                }
            }
            let said = trace(&[near, "--pair", far]);
            assert!(said.contains("its clock is ahead by 7.2"), "{said}");
        }
    });
}

/// The sender's capture has segments of up to 64 KiB, the receiver's those of 1,448 bytes.
#[test]
fn joined_segments_lose_what_was_dropped_of_them() {
    const TEST: &str = "joined_segments_lose_what_was_dropped_of_them";
    if skipped(TEST, &[]) {
        return;
    }
    attempts(TEST, || {
        let folder = tempfile::tempdir().expect("a folder");
        let network = Network::new(20, true);
        let dropper = network.drop_data(Side::A, rule(&[(5, 1), (60, 1), (61, 1), (150, 1)]));
        let bytes = 2 * BYTES;
        let [near, far] = captured(&network, folder.path(), || {
            network.exchange(upload(bytes));
        });
        let largest = |file: &str| {
            records(Path::new(file))
                .iter()
                .map(path::Record::length)
                .max()
        };
        assert!(largest(&near) > Some(1_500), "no joined segments to test");
        assert_eq!(largest(&far), Some(1_500));
        let dropped = dropper.dropped().expect("is read");
        assert_eq!(dropped.len(), 4);
        let (pair, _) = paired(&near, &far);
        check_clock(&pair, 20.0);
        let path = &pair["from_client"];
        let lost: u64 = dropped.iter().map(|d| u64::from(d.length)).sum();
        assert_eq!(path["lost_bytes"], lost, "{path}");
        assert!(path["rejoined"].as_u64() > Some(0), "{path}");
        assert_eq!(path["receiver_only"], 0, "{path}");
        assert_eq!(pair["from_server"]["lost"], 0, "{pair}");
    });
}

/// ACKs dropped by a rule with a counter.
#[test]
fn lost_acknowledgements_are_counted() {
    const TEST: &str = "lost_acknowledgements_are_counted";
    if skipped(TEST, &["nft"]) {
        return;
    }
    attempts(TEST, || {
        let folder = tempfile::tempdir().expect("a folder");
        let network = Network::new(20, false);
        network.nft(
            Side::A,
            &format!(
                "table ip t {{ chain f {{ type filter hook forward priority 0; \
                 ip saddr {SERVER} ip length 52 numgen inc mod 5 == 2 counter drop\n}}\n}}\n"
            ),
        );
        let [near, far] = captured(&network, folder.path(), || {
            network.exchange(upload(BYTES));
        });
        let dropped = network.counted(Side::A);
        assert!(dropped > 10);
        let (pair, _) = paired(&near, &far);
        check_clock(&pair, 20.0);
        assert_eq!(pair["from_server"]["lost"], dropped, "{pair}");
        assert_eq!(pair["from_server"]["lost_bytes"], 0, "{pair}");
        assert_eq!(pair["from_client"]["lost"], 0, "{pair}");
    });
}

/// The router rewrites the client's address and port.
#[test]
fn a_translated_connection_is_found_by_its_sequence_numbers() {
    const TEST: &str = "a_translated_connection_is_found_by_its_sequence_numbers";
    if skipped(TEST, &["nft"]) {
        return;
    }
    attempts(TEST, || {
        let folder = tempfile::tempdir().expect("a folder");
        let network = Network::new(20, false);
        network.nft(
            Side::A,
            "table ip t { chain p { type nat hook postrouting priority 100; \
             oifname sp0 meta l4proto tcp counter masquerade to :40000-40099\n}\n}\n",
        );
        let dropper = network.drop_data(Side::A, rule(&CHOSEN));
        let [near, far] = captured(&network, folder.path(), || {
            network.exchange(upload(BYTES));
            // Another connection between the same hosts is not taken for it.
            network.exchange(upload(BYTES));
        });
        assert_eq!(network.counted(Side::A), 2);
        let listed = trace(&[&far, "--json"]);
        assert!(listed.contains(&format!("\"{OUTSIDE}:400")), "{listed}");
        assert!(!listed.contains(CLIENT), "{listed}");
        let dropped = dropper.dropped().expect("is read");
        let said = trace(&[&near, "--pair", &far, "--json"]);
        let pairs: Vec<Value> = (said.lines())
            .map(|l| serde_json::from_str::<Value>(l).expect("is JSON"))
            .filter(|o| o["type"] == "pair")
            .collect();
        assert_eq!(pairs.len(), 2);
        for pair in pairs {
            assert_eq!(pair["paired_by"], "initial sequence numbers");
            check_clock(&pair, 20.0);
            let all = records(Path::new(&near));
            let first = pair["connection"] == 1;
            // Each connection's own losses: seven of either.
            assert_eq!(pair["from_client"]["lost"], 7, "{pair}");
            let frames = pair["from_client"]["lost_frames"]
                .as_array()
                .expect("a list");
            let mine = frames
                .iter()
                .map(|f| all[f.as_u64().expect("a number") as usize - 1].sequence());
            let (one, two) = dropped.split_at(7);
            let wanted = if first { one } else { two };
            let mut mine: Vec<u32> = mine.collect();
            let mut wanted: Vec<u32> = wanted.iter().map(|d| d.sequence).collect();
            mine.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(mine, wanted);
        }
    });
}

/// The server's clock runs faster by 400 parts in a million. A long connection with a short
/// delay: an exchange every 50 ms over 1 ms.
#[test]
fn a_clock_that_drifts_is_followed() {
    const TEST: &str = "a_clock_that_drifts_is_followed";
    const DRIFT: f64 = 400.0;
    if skipped(TEST, &[]) {
        return;
    }
    attempts(TEST, || {
        let folder = tempfile::tempdir().expect("a folder");
        let network = Network::new(1, false);
        let load = Load {
            up: 100,
            down: 100,
            times: 220,
            pause: Duration::from_millis(48),
        };
        let [near, far] = captured(&network, folder.path(), || {
            network.exchange(load);
        });
        // On top of the offset, which captured() has added already.
        reclock(Path::new(&far), |t, first| {
            t + ((t - first) as f64 * DRIFT * 1e-6) as i64
        });
        let (pair, _) = paired(&near, &far);
        let off = (number(&pair["drift_ppm"]) - DRIFT).abs();
        let uncertainty = number(&pair["drift_uncertainty_ppm"]);
        assert!(off <= uncertainty, "{pair}");
        // Not by chance: without drift the estimate would be refused.
        assert!(uncertainty < DRIFT, "{pair}");
        check_clock(&pair, 1.0);
        assert_eq!(pair["from_client"]["lost"], 0, "{pair}");
        assert_eq!(pair["from_server"]["lost"], 0, "{pair}");
    });
}

/// Captures of two connections that have nothing to do with each other.
#[test]
fn another_connection_is_refused() {
    const TEST: &str = "another_connection_is_refused";
    if skipped(TEST, &[]) {
        return;
    }
    attempts(TEST, || {
        let folder = tempfile::tempdir().expect("a folder");
        let network = Network::new(1, false);
        let capture = |name: &str| {
            let near = Recording::start(&network.client, "host0", &folder.path().join(name));
            network.exchange(upload(20_000));
            near.finish().to_str().expect("is text").to_owned()
        };
        let (one, other) = (capture("one.pcap"), capture("other.pcap"));
        let (pair, _) = paired(&one, &other);
        assert_eq!(
            pair["error"],
            "the captures do not hold the same connection"
        );
    });
}

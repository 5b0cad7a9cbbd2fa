// SPDX-License-Identifier: Apache-2.0
//! What slowpaths ask each other for, and the results of others: frames, messages, iperf3's JSON, ndt7's measurements.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slowpath_path::requests::message::{Answer, Command, Opened, Opening, Request};
use slowpath_path::requests::{Channel, GREETING, Greeting, MOST_OCTETS, Side};
use slowpath_path::throughput::ndt7::Measurement;
use slowpath_path::throughput::tally::StreamTally;
use slowpath_path::throughput::{read_iperf3, report, verdict};

fuzz_target!(
    init: slowpath_fuzz::write_seeds(seeds),
    |data: &[u8]| {
        let Some((&first, rest)) = data.split_first() else { return };
        match first & 3 {
            0 => channel(rest.chunks(usize::from(first >> 2) + 1)),
            1 => {
                if let Ok(text) = std::str::from_utf8(rest)
                    && let Ok(read) = read_iperf3(text)
                {
                    assert!(!report::text(&read).contains('\u{1b}'));
                }
            }
            2 => measurement(rest),
            _ => {
                let _ = rest.first_chunk::<GREETING>().map(Greeting::decode);
                if let Ok(tally) = serde_json::from_slice::<StreamTally>(rest) {
                    let _ = verdict::judge(&report::of_tallies(&[tally]));
                }
            }
        }
    }
);

fn channel<'a>(pieces: impl Iterator<Item = &'a [u8]>) {
    let mut channel = Channel::new(Side::Server);
    for piece in pieces {
        channel.feed(piece);
        match channel.missing() {
            Ok(missing) => assert!(missing <= MOST_OCTETS + 36),
            Err(_) => return,
        }
        match channel.message::<serde_json::Value>() {
            Ok(None) => {}
            Ok(Some(value)) => {
                let _ = serde_json::from_value::<Opening>(value.clone());
                let _ = serde_json::from_value::<Opened>(value.clone());
                let _ = serde_json::from_value::<Answer>(value.clone());
                if let Ok(Command::Ask { request }) = serde_json::from_value(value) {
                    let _ = serde_json::from_value::<Request>(request);
                }
                channel.open(None);
            }
            Err(_) => return,
        }
    }
}

fn measurement(text: &[u8]) {
    let Ok(read) = serde_json::from_slice::<Measurement>(text) else {
        return;
    };
    let mut tally = StreamTally::default();
    for factor in 1..4 {
        if let Some(mut info) = read.tcp_info {
            info.elapsed_time = info.elapsed_time.map(|time| time.saturating_mul(factor));
            if let Some((at, stats)) = info.at().zip(info.stats()) {
                tally.add(at, stats);
            }
        }
    }
    let _ = verdict::judge(&report::of_tallies(&[tally]));
}

/// One of each.
fn seeds() -> Vec<Vec<u8>> {
    let mut client = Channel::new(Side::Client);
    let mut frames = vec![0xfc];
    let opening =
        serde_json::json!({"control": {"nonce": "00".repeat(32), "key": null, "proof": null}});
    let ask = serde_json::json!({"ask": {"request": {"throughput": {"direction": "back", "streams": 2,
        "length_ms": 1000, "warm_up_ms": 100, "options": {"congestion": "cubic", "pace": 1000}}}}});
    for message in [opening, ask] {
        frames.extend(client.seal(&message).expect("short"));
    }
    let iperf3 = serde_json::json!({"start": {"version": "iperf 3.12", "test_start": {"protocol": "TCP", "num_streams": 1,
        "reverse": 0}}, "intervals": [{"streams": [{"snd_cwnd": 9, "rtt": 7, "sender": true}],
        "sum": {"start": 0, "end": 1, "bits_per_second": 8.0}}],
        "end": {"sum_sent": {"bytes": 9, "retransmits": 1}, "sum_received": {"bytes": 9, "bits_per_second": 8.0}}});
    let ndt7 = serde_json::json!({"TCPInfo": {"ElapsedTime": 1000, "BusyTime": 900, "RWndLimited": 10,
        "SndBufLimited": 0, "RTT": 20, "MinRTT": 10, "SndCwnd": 10, "SndMSS": 1448}});
    let tally = serde_json::json!({"samples": 3, "window_sum": 9, "totals": {"observed": 5, "polls": 1,
        "unmeasured": [], "problem_time": vec![1; 16], "problem_events": vec![0; 16]}});
    let text =
        |kind: u8, value: serde_json::Value| [&[kind][..], value.to_string().as_bytes()].concat();
    vec![frames, text(1, iperf3), text(2, ndt7), text(3, tally)]
}

// SPDX-License-Identifier: Apache-2.0
//! Scapy's STAMP at the other end, in both roles. Its wheel is put into the user's cache by `tools/scapy/peer.py --install`.

use serde_json::Value;
use slowpath_path::report::{Reading, Way, of_two_way, text};
use slowpath_path::serve::{ServeOptions, Serving};
use slowpath_path::session::{TestOptions, TwoWayKind, measure_two_way};
use slowpath_path::time::Span;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const PEER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/scapy/peer.py");

/// The interpreter with scapy, or why there is none.
fn interpreter() -> Result<PathBuf, String> {
    let output = Command::new("python3").args([PEER, "--which"]).output();
    let output = output.map_err(|error| format!("python3: {error}"))?;
    match output.status.success() {
        true => Ok(PathBuf::from(
            String::from_utf8_lossy(&output.stdout).trim(),
        )),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

#[test]
fn scapy_reflects_what_we_send_and_its_losses_are_found() {
    let python = match interpreter() {
        Ok(python) => python,
        Err(reason) => {
            println!("SKIPPED scapy_reflects_what_we_send_and_its_losses_are_found: {reason}");
            return;
        }
    };
    let mut scapy = Command::new(python)
        .args([PEER, "reflect", "50", "--drop", "7,8,20"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("python runs");
    let mut lines = BufReader::new(scapy.stdout.take().expect("piped")).lines();
    let port = lines.next().expect("a line").expect("text");
    let options = TestOptions {
        packets: 50,
        slots: "0.02f".parse().expect("a schedule"),
        padding: 8,
        timeout: Span::from_seconds(3.0).expect("a span"),
        ..TestOptions::to(format!("127.0.0.1:{port}").parse().expect("an address"))
    };
    let outcome = measure_two_way(&options, TwoWayKind::Stamp, &AtomicBool::new(false))
        .expect("a measurement");
    assert!(scapy.wait().expect("it ends").success());
    let reading = Reading {
        timeout: Duration::from_secs(3),
        ..Reading::default()
    };
    let report = of_two_way(&outcome, TwoWayKind::Stamp, &reading);
    let printed = text::report(&report);
    let of = |way: Way| {
        &report
            .directions
            .iter()
            .find(|d| d.way == way)
            .expect("measured")
            .summary
    };
    assert_eq!(
        (of(Way::There).sent, of(Way::There).lost, of(Way::Back).lost),
        (50, 3, 0),
        "{printed}"
    );
    assert_eq!(
        of(Way::There).hops.least,
        Some(4),
        "the reflector says a TTL of 251"
    );
    assert_eq!(outcome.strangers, 0, "{printed}");
    // It knows no follow-up telemetry and returns ours as it came: no time of its own.
    assert!(outcome.follow_ups.is_empty());
}

#[test]
fn we_reflect_what_scapy_sends() {
    let python = match interpreter() {
        Ok(python) => python,
        Err(reason) => {
            println!("SKIPPED we_reflect_what_scapy_sends: {reason}");
            return;
        }
    };
    let serving = Serving::start(ServeOptions {
        stamp: vec!["127.0.0.1:0".parse().expect("an address")],
        ..ServeOptions::default()
    })
    .expect("a port");
    let port = serving.stamp()[0].port().to_string();
    let output = Command::new(python)
        .args([PEER, "send", "127.0.0.1", &port, "5"])
        .output()
        .expect("python runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let replies: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(replies.len(), 5, "{output:?}");
    for (number, reply) in replies.iter().enumerate() {
        assert_eq!(reply["length"], 44);
        assert_eq!(
            (&reply["seq"], &reply["seq_sender"]),
            (&Value::from(number), &Value::from(number))
        );
        assert_eq!(
            (&reply["ssid"], &reply["scale_sender"]),
            (&Value::from(4711), &Value::from(20))
        );
        assert_eq!(reply["same_time"], true);
        // Linux sends with a TTL of 64 unless asked otherwise.
        assert!(reply["ttl_sender"].as_u64().expect("a number") > 0);
        assert!(reply["ts"].as_f64() >= reply["ts_rx"].as_f64());
    }
}

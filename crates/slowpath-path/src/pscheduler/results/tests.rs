// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::time::{ErrorEstimate, Timestamp};
use std::io::Write;
use std::process::{Command, Stdio};

fn record(sequence: u32, delay_ns: i64, ttl: u8) -> Record {
    let sent = Timestamp::from_unix_nanos(1_700_000_000_000_000_000);
    Record {
        sequence,
        sent,
        sent_error: ErrorEstimate::UNKNOWN,
        received: sent.moved(delay_ns),
        received_error: ErrorEstimate::UNKNOWN,
        ttl,
    }
}

fn latency_result() -> Value {
    Latency {
        sent: 5,
        lost: 2,
        duplicated: 1,
        reordered: 1,
        clock_error_ms: Some(1.25),
        // 0.334 ms is 0.33; −0.204 ms is −0.20; 12 ms.
        records: vec![
            record(0, 334_000, 255),
            record(1, -204_000, 250),
            record(3, 12_000_000, 250),
        ],
        raw: true,
    }
    .to_json()
}

fn rtt_result() -> Value {
    let trip = |number, micros| RoundTrip {
        number,
        from: "192.0.2.1".parse().expect("an address"),
        ttl: 64,
        rtt: Duration::from_micros(micros),
    };
    Rtt {
        sent: 4,
        lost: 2,
        duplicated: 0,
        reordered: 0,
        round_trips: vec![trip(1, 300), trip(3, 500)],
    }
    .to_json()
}

fn trace_result() -> Value {
    let hop = Hop {
        ip: Some("2001:db8::1".parse().expect("an address")),
        name: Some("router.example.org".to_owned()),
        rtt: Some(Duration::from_micros(1_500)),
        mtu: Some(1_500),
    };
    Trace {
        paths: vec![vec![hop.clone(), Hop::default(), hop]],
    }
    .to_json()
}

fn throughput_result() -> Value {
    let second = |start, bytes| Interval {
        start,
        end: start + 1.0,
        bytes,
        retransmits: Some(3),
        rtt_ms: None,
    };
    Throughput {
        intervals: vec![(vec![second(0.0, 1_000)], second(0.0, 1_000))],
        whole: (vec![second(0.0, 1_000)], second(0.0, 1_000)),
        mss: Some(1_448),
    }
    .to_json()
}

#[test]
fn a_latency_result_has_histograms_in_hundredths_of_a_millisecond() {
    let result = latency_result();
    assert_eq!(
        result["histogram-latency"],
        json!({ "0.33": 1, "-0.20": 1, "12.00": 1 })
    );
    assert_eq!(result["histogram-ttl"], json!({ "255": 1, "250": 2 }));
    assert_eq!(
        (&result["packets-sent"], &result["packets-received"]),
        (&json!(5), &json!(3))
    );
    assert_eq!(result["max-clock-error"], 1.25);
    let raw = &result["raw-packets"][0];
    assert_eq!(raw["src-ts"], record(0, 0, 0).sent.0);
    assert_eq!(raw["src-clock-sync"], false);
}

#[test]
fn round_trips_have_their_mean_and_deviation_as_durations() {
    let result = rtt_result();
    // 300 and 500 us: mean 400, each 100 from it.
    assert_eq!(result["mean"], "PT0.0004S");
    assert_eq!(result["stddev"], "PT0.0001S");
    assert_eq!(
        (&result["min"], &result["max"]),
        (&json!("PT0.0003S"), &json!("PT0.0005S"))
    );
    assert_eq!(result["loss"], 0.5);
    assert_eq!(result["roundtrips"][1]["seq"], 3);
}

#[test]
fn a_silent_hop_of_a_trace_has_no_keys() {
    let result = trace_result();
    assert_eq!(result["paths"][0][1], json!({}));
    assert_eq!(result["paths"][0][0]["rtt"], "PT0.0015S");
}

#[test]
fn throughput_is_octets_and_bits_a_second() {
    let result = throughput_result();
    assert_eq!(result["summary"]["summary"]["throughput-bits"], 8_000.0);
    assert_eq!(result["summary"]["streams"][0]["stream-id"], 0);
    let mut keys: Vec<&String> = result.as_object().expect("an object").keys().collect();
    keys.sort();
    // The schema takes no others.
    assert_eq!(
        keys,
        [
            "diags",
            "intervals",
            "mss",
            "schema",
            "succeeded",
            "summary"
        ]
    );
}

/// With the sources of perfsonar/pscheduler in $PSCHEDULER_SOURCE and Python's jsonschema.
#[test]
fn pschedulers_own_validators_accept_the_results() {
    const NAME: &str = "pschedulers_own_validators_accept_the_results";
    const SCRIPT: &str = "\
import sys, json, types, copy, importlib.util as u, jsonschema
source, test = sys.argv[1:3]
def load(name, path):
    spec = u.spec_from_file_location(name, path)
    module = u.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
jsonval = load('jsonval', source + '/python-pscheduler/pscheduler/pscheduler/jsonval.py')
package = types.ModuleType('pscheduler')
package.json_validate = jsonval.json_validate
sys.modules['pscheduler'] = package
validate = load('validate', f'{source}/pscheduler-test-{test}/{test}/validate.py')
print(validate.result_is_valid(json.load(sys.stdin)))
";
    let Ok(source) = std::env::var("PSCHEDULER_SOURCE") else {
        println!("SKIPPED {NAME}: $PSCHEDULER_SOURCE names no sources of perfsonar/pscheduler");
        return;
    };
    let results = [
        ("trace", crate::pscheduler::reports::tests::route().result),
        (
            "throughput",
            crate::pscheduler::reports::tests::transfer().result,
        ),
        ("latency", latency_result()),
        ("rtt", rtt_result()),
        ("trace", trace_result()),
        ("throughput", throughput_result()),
    ];
    for (test, result) in results {
        let mut child = Command::new("python3")
            .args(["-c", SCRIPT, &source, test])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let mut input = child.stdin.take().expect("a pipe");
        input
            .write_all(result.to_string().as_bytes())
            .expect("it reads");
        drop(input);
        let output = child.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.starts_with("(True"), "{test}: {text}");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Routes and transfers as runs of pScheduler's tests `trace` and `throughput`.

use super::results::{Hop, Interval, Throughput, Trace};
use super::{Run, iso_8601};
use crate::requests::message::Direction;
use crate::route::{Engine, Route, TraceOptions};
use crate::session::PathError;
use crate::throughput::ThroughputReport;
use serde_json::json;
use std::net::IpAddr;
use std::time::Duration;

/// A run of `trace`: each way that flows took, with the median round trip of each hop.
///
/// # Errors
/// The kernel gives no random octets.
pub fn trace_of(
    route: &Route,
    options: &TraceOptions,
    time: (String, Duration),
) -> Result<Run, PathError> {
    let mut ways: Vec<Vec<Option<IpAddr>>> = Vec::new();
    for flow in &route.flows {
        if !ways.contains(&flow.addresses) {
            ways.push(flow.addresses.clone());
        }
    }
    if ways.is_empty() {
        let first = route
            .hops
            .iter()
            .map(|hop| Some(hop.addresses.first()?.address));
        ways.push(first.collect());
    }
    let hop = |ttl: usize, address: &Option<IpAddr>| {
        let Some(ip) = *address else {
            return Hop::default();
        };
        let known = route.hops.iter().find(|hop| usize::from(hop.ttl) == ttl);
        let known = known.and_then(|hop| hop.addresses.iter().find(|one| one.address == ip));
        let trips = known.and_then(|one| one.rtt_ns);
        let reported = route.mtu.as_ref().filter(|mtu| mtu.reported_by == Some(ip));
        Hop {
            ip: Some(ip),
            name: None,
            rtt: trips.map(|trips| Duration::from_nanos(trips.median)),
            mtu: reported.map(|mtu| mtu.bytes),
        }
    };
    let path = |way: &Vec<Option<IpAddr>>| (1..).zip(way).map(|(ttl, ip)| hop(ttl, ip)).collect();
    let trace = Trace {
        paths: ways.iter().map(path).collect(),
    };
    let spec = json!({
        "schema": 1,
        "dest": route.address.to_string(),
        "hops": options.max_ttl,
        "ip-version": if route.address.is_ipv4() { 4 } else { 6 },
        "probe-type": match route.protocol {
            Engine::Udp | Engine::UdpClassic | Engine::UdpDublin => "udp",
            Engine::Tcp => "tcp",
            Engine::Icmp => "icmp",
        },
    });
    let participants = vec![route.address.to_string()];
    Run::new("trace", time, participants, (spec, trace.to_json()))
}

/// The host of a peer as it was given: with a scheme, a port, or neither.
fn host_of(peer: &str) -> &str {
    let bare = peer.split_once("://").map_or(peer, |(_, rest)| rest);
    let bare = bare.split('/').next().unwrap_or(bare);
    if let Some(rest) = bare.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    match bare.split_once(':') {
        // More than one colon: an address of IPv6 without a port.
        Some((host, port)) if !port.contains(':') => host,
        _ => bare,
    }
}

/// A run of `throughput`. Streams are listed where there is one: reports have sums of several.
///
/// # Errors
/// The kernel gives no random octets.
pub fn throughput_of(report: &ThroughputReport, start: String) -> Result<Run, PathError> {
    let octets = |bits: Option<f64>, seconds: f64| bits.map_or(0.0, |bits| bits * seconds / 8.0);
    let with_stream = |all: Interval| match report.streams {
        1 => (vec![all], all),
        _ => (Vec::new(), all),
    };
    let counted = report.intervals.iter().filter(|interval| !interval.warm_up);
    let offset = counted
        .clone()
        .map(|interval| interval.start)
        .fold(f64::INFINITY, f64::min);
    let intervals = counted.map(|interval| {
        with_stream(Interval {
            start: interval.start - offset,
            end: interval.end - offset,
            bytes: octets(interval.goodput_bps, interval.end - interval.start).round() as u64,
            retransmits: None,
            rtt_ms: interval.rtt_ns.map(|nanos| nanos as f64 / 1e6),
        })
    });
    let bytes = octets(report.goodput_bps, report.seconds).round() as u64;
    let throughput = Throughput {
        intervals: intervals.collect(),
        whole: with_stream(Interval {
            start: 0.0,
            end: report.seconds,
            bytes: report.received_bytes.unwrap_or(bytes),
            retransmits: None,
            rtt_ms: None,
        }),
        mss: None,
    };
    let length = Duration::try_from_secs_f64(report.seconds).unwrap_or_default();
    let spec = json!({
        "schema": 4,
        "dest": host_of(&report.peer),
        "duration": iso_8601(length),
        "parallel": report.streams,
        "reverse": report.direction == Direction::Back,
    });
    Run::new(
        "throughput",
        (start, length),
        Vec::new(),
        (spec, throughput.to_json()),
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::Value;

    /// Two ways that join again, and a silent hop; the last router reported an MTU.
    pub fn route() -> Run {
        let address = |ip: &str, median: u64| {
            json!({ "address": ip, "sent": 9, "answered": 9, "next": [],
                    "rtt_ns": { "min": median - 1, "median": median, "max": median + 9 } })
        };
        let hop = |ttl: u8, addresses: Vec<Value>| {
            let kind = if addresses.is_empty() {
                "silent"
            } else {
                "router"
            };
            json!({ "ttl": ttl, "addresses": addresses, "sent": 9, "answered": 9, "kind": kind })
        };
        let flow = |port: u16, second: &str| json!({ "source_port": port, "addresses": ["192.0.2.1", second, null, "192.0.2.9"] });
        let route = json!({
            "peer": "peer", "address": "192.0.2.9", "protocol": "udp",
            "hops": [
                hop(1, vec![address("192.0.2.1", 1_000_000)]),
                hop(2, vec![address("192.0.2.2", 2_000_000), address("192.0.2.3", 2_500_000)]),
                hop(3, vec![]),
                hop(4, vec![address("192.0.2.9", 4_000_000)]),
            ],
            "flows": [flow(1, "192.0.2.2"), flow(2, "192.0.2.3"), flow(3, "192.0.2.2")],
            "ways": 2, "per_packet": false, "missed_probability": 0.05, "loss": null,
            "mtu": { "bytes": 1400, "icmp": true, "black_hole": null, "reported_by": "192.0.2.3" },
            "ecn": null, "dscp": null, "changes": [], "complete": true, "notes": [],
        });
        let route: Route = serde_json::from_value(route).expect("a route");
        let time = (
            "2026-01-02T03:04:05.000Z".to_owned(),
            Duration::from_secs(7),
        );
        trace_of(&route, &TraceOptions::default(), time).expect("random octets")
    }

    #[test]
    fn each_way_of_a_route_is_a_path_with_its_hops() {
        let run = route();
        let paths = &run.result["paths"];
        let expected = |second: Value| {
            json!([
                { "ip": "192.0.2.1", "rtt": "PT0.001S" },
                second,
                {},
                { "ip": "192.0.2.9", "rtt": "PT0.004S" },
            ])
        };
        let first = json!({ "ip": "192.0.2.2", "rtt": "PT0.002S" });
        let other = json!({ "ip": "192.0.2.3", "rtt": "PT0.0025S", "mtu": 1400 });
        assert_eq!(*paths, json!([expected(first), expected(other)]));
        assert_eq!(run.spec["dest"], "192.0.2.9");
        assert_eq!(run.spec["probe-type"], "udp");
    }

    /// 2 s of one stream, after one of warm-up.
    pub fn transfer() -> Run {
        let report = crate::throughput::result_of_iperf3(|_| {});
        throughput_of(&report, "2026-01-02T03:04:05.000Z".to_owned()).expect("random octets")
    }

    #[test]
    fn a_transfer_has_what_came_in_each_interval_without_the_warm_up() {
        let run = transfer();
        // 48 Mbit/s are 6,000,000 octets a second.
        let interval = |start: f64| {
            let all = json!({ "start": start, "end": start + 1.0, "throughput-bytes": 6_000_000,
                "throughput-bits": 48e6, "retransmits": null, "rtt": 40.0 });
            let mut stream = all.clone();
            stream["stream-id"] = json!(0);
            json!({ "streams": [stream], "summary": all })
        };
        assert_eq!(
            run.result["intervals"],
            json!([interval(0.0), interval(1.0)])
        );
        let whole = &run.result["summary"]["summary"];
        assert_eq!(whole["throughput-bytes"], 11_900_000);
        assert_eq!(run.spec["dest"], "192.0.2.7");
        assert_eq!(
            (&run.spec["parallel"], &run.spec["reverse"]),
            (&json!(1), &json!(false))
        );
    }

    #[test]
    fn hosts_have_no_ports() {
        for (peer, host) in [
            ("192.0.2.7:8863", "192.0.2.7"),
            ("[2001:db8::7]:8863", "2001:db8::7"),
            ("2001:db8::7", "2001:db8::7"),
            ("wss://ndt.example/ndt/v7", "ndt.example"),
            ("ws://ndt.example:80", "ndt.example"),
            ("peer", "peer"),
        ] {
            assert_eq!(host_of(peer), host, "{peer}");
        }
    }
}

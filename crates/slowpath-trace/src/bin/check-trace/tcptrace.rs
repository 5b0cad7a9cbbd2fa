// SPDX-License-Identifier: Apache-2.0
//! What `tcptrace -l -r -n` prints, and the same rows from our report.

use slowpath_trace::segment::Endpoint;
use slowpath_trace::tcp::{ConnectionReport, Direction, Samples, Side};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// One connection as tcptrace prints it: who is `a` and `b`, and the rows of both
/// directions, by label and unit.
#[derive(Debug)]
pub struct Printed {
    pub a: Endpoint,
    pub b: Endpoint,
    pub rows: BTreeMap<String, [String; 2]>,
}

/// Runs tcptrace. `Ok(None)`: it is not installed.
pub fn run(capture: &Path) -> Result<Option<String>, String> {
    let mut command = Command::new("tcptrace");
    // No configuration of the user's may change the output.
    command
        .env("HOME", "/nonexistent")
        .env_remove("TCPTRACEOPTS");
    // -w: which packets it ignores.
    command.args(["-l", "-r", "-n", "-w"]).arg(capture);
    match command.output() {
        Ok(output) => {
            let mut text = String::from_utf8_lossy(&output.stderr).into_owned();
            text.push_str(&String::from_utf8_lossy(&output.stdout));
            Ok(Some(text))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("tcptrace: {error}")),
    }
}

/// Whether tcptrace could read the capture at all.
pub fn understood(text: &str) -> bool {
    text.contains("packets seen")
}

/// The frames that tcptrace says it ignores: "TCP packet 239 truncated too short to trace,
/// ignored", which is also said of frames that are whole.
pub fn ignored(text: &str) -> BTreeSet<u64> {
    text.lines()
        .filter(|line| line.ends_with("too short to trace, ignored"))
        .filter_map(|line| {
            line.strip_prefix("TCP packet ")?
                .split(' ')
                .next()?
                .parse()
                .ok()
        })
        .collect()
}

/// Reads the long output.
pub fn parse(text: &str) -> Result<Vec<Printed>, String> {
    let mut connections: Vec<Printed> = Vec::new();
    let mut host_a = None;
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(rest) = trimmed.strip_prefix("host ") {
            let (_, end) = rest
                .split_once(": ")
                .ok_or_else(|| format!("tcptrace's line {line:?}"))?;
            // It prints some IPv6 addresses in a way of its own: "::1" as ":0001".
            let end = endpoint(end.trim()).unwrap_or(UNREADABLE);
            match host_a.take() {
                None => host_a = Some(end),
                Some(a) => connections.push(Printed {
                    a,
                    b: end,
                    rows: BTreeMap::new(),
                }),
            }
            continue;
        }
        if let (Some(connection), true) = (connections.last_mut(), line.starts_with("     "))
            && let Some((label, values)) = row(trimmed)
        {
            connection.rows.insert(label, values);
        }
    }
    Ok(connections)
}

/// An end whose address tcptrace did not print.
pub const UNREADABLE: Endpoint = Endpoint {
    address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    port: 0,
};

fn endpoint(text: &str) -> Option<Endpoint> {
    let (address, port) = text.rsplit_once(':')?;
    Some(Endpoint {
        address: address.parse::<IpAddr>().ok()?.to_canonical(),
        port: port.parse().ok()?,
    })
}

/// `label: value unit   label: value unit`; the unit distinguishes rows of one label.
fn row(line: &str) -> Option<(String, [String; 2])> {
    let (label, rest) = line.split_once(':')?;
    let (left, right) = rest.split_once(&format!("{label}:"))?;
    let mut units = left.split_whitespace();
    let value = units.next().unwrap_or("").to_owned();
    let other = right.split_whitespace().next().unwrap_or("").to_owned();
    let label = match units.next() {
        Some(unit) if label == "initial window" => format!("{label} {unit}"),
        _ => label.to_owned(),
    };
    Some((label, [value, other]))
}

/// How two values of a row are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Row {
    /// The same text.
    Text,
    /// The same number, to half of the last digit that tcptrace prints, and as much again
    /// for its microseconds.
    Number(f64),
}

/// What our report says in a row of tcptrace's; `None` for rows without a counterpart in the
/// comparison (docs/reference/trace.md says which and why).
pub fn ours(report: &ConnectionReport, side: Side, label: &str) -> Option<(Row, String)> {
    let d = report.sent_by(side);
    let peer = report.sent_by(side.peer());
    if let Some(count) = count(d, label) {
        return Some((Row::Text, count.to_string()));
    }
    if let Some(ms) = milliseconds(d, label) {
        return Some((Row::Number(0.0521), format!("{ms:.3}")));
    }
    let scaling = d.offered.window_scale.is_some() && peer.offered.window_scale.is_some();
    let yes = |b: bool| if b { "Y" } else { "N" }.to_owned();
    let text = match label {
        "SYN/FIN pkts sent" => format!("{}/{}", d.control.syns, d.control.fins),
        "req sack" => yes(d.offered.sack),
        // With only one side's offer it depends on what else was observed.
        "adv wind scale" if scaling => d.offered.window_scale.unwrap_or(0).to_string(),
        "ttl stream length" => optional(d.data.stream_length),
        "missed data" => optional(d.data.missed_bytes),
        "avg win adv" if scaling => d.window.mean().to_string(),
        "avg win adv" => (d.window.sum)
            .checked_div(d.packets)
            .unwrap_or(0)
            .to_string(),
        "avg owin" => {
            let owin = d.flight.owin;
            owin.sum.checked_div(owin.count).unwrap_or(0).to_string()
        }
        // tcptrace keeps clear of a division by zero by adding a thousandth.
        "avg segm size" => {
            let mean = d.data.bytes as f64 / (d.data.packets as f64 + 0.001);
            (mean as u64).to_string()
        }
        "data xmit time" => {
            let time = d.timing.data_time().unwrap_or_default();
            return Some((Row::Number(0.00051), format!("{:.6}", time.as_secs_f64())));
        }
        "throughput" => {
            let seconds = report.duration().as_secs_f64();
            if seconds < 1e-6 {
                "NA".to_owned()
            } else {
                let rate = d.data.unique_bytes as f64 / seconds;
                // Both ends of the duration are cut to microseconds.
                let cut = 1.1e-6 / (seconds - 1.1e-6).max(1e-7);
                let tolerance = 0.5 + rate * (1e-5 + cut);
                return Some((Row::Number(tolerance), format!("{rate:.3}")));
            }
        }
        _ => return None,
    };
    Some((Row::Text, text))
}

fn optional(value: Option<u64>) -> String {
    value.map_or_else(|| "NA".to_owned(), |v| v.to_string())
}

fn count(d: &Direction, label: &str) -> Option<u64> {
    Some(match label {
        "total packets" => d.packets,
        "resets sent" => d.control.resets,
        "ack pkts sent" => d.control.acks,
        "pure acks sent" => d.control.pure_acks,
        "sack pkts sent" | "sacks sent" => d.control.sacks,
        "dsack pkts sent" => d.control.dsacks,
        "max sack blks/ack" => u64::from(d.control.most_sack_blocks),
        "unique bytes sent" => d.data.unique_bytes,
        "actual data pkts" => d.data.packets,
        "actual data bytes" => d.data.bytes,
        "rexmt data pkts" => d.retransmitted.observed_before,
        "rexmt data bytes" => d.retransmitted.observed_before_bytes,
        "zwnd probe pkts" => d.window.probes,
        "zwnd probe bytes" => d.window.probe_bytes,
        "outoforder pkts" => d.order.before_observed,
        "pushed data pkts" => d.data.pushed,
        "urgent data pkts" => d.data.urgent_packets,
        "urgent data bytes" => d.data.urgent_bytes,
        "mss requested" => u64::from(d.offered.mss.unwrap_or(0)),
        "max segm size" => u64::from(d.data.largest),
        "min segm size" => u64::from(d.data.smallest),
        "max win adv" => d.window.largest,
        "min win adv" => d.window.smallest,
        "zero win adv" => d.window.zero,
        "max owin" => d.flight.owin.largest,
        "min non-zero owin" => d.flight.owin.smallest,
        "initial window bytes" => d.data.initial_window.0,
        "initial window pkts" => d.data.initial_window.1,
        "truncated data" => d.data.truncated_bytes,
        "truncated packets" => d.data.truncated_packets,
        "hardware dups" => d.order.hardware_duplicates,
        "RTT samples" => d.rtt.acked.count(),
        "post-loss acks" => d.rtt.after_loss,
        "ambiguous acks" => d.rtt.ambiguous.count(),
        "segs cum acked" => d.rtt.cumulative,
        "duplicate acks" => d.acks.duplicate_tcptrace,
        "triple dupacks" => d.acks.triple,
        "max # retrans" => u64::from(d.retransmitted.most),
        _ => return None,
    })
}

fn milliseconds(d: &Direction, label: &str) -> Option<f64> {
    let ms = |duration: Option<Duration>| duration.unwrap_or_default().as_secs_f64() * 1e3;
    // And by adding a ten-thousandth here.
    let mean = |s: &Samples| ms(Some(s.total())) / (s.count() as f64 + 0.0001);
    // tcptrace gives none for fewer than three.
    let deviation = |s: &Samples| match s.count() {
        0..=2 => 0.0,
        _ => ms(s.deviation()),
    };
    Some(match label {
        "RTT min" => ms(d.rtt.acked.shortest()),
        "RTT max" => ms(d.rtt.acked.longest()),
        "RTT avg" => mean(&d.rtt.acked),
        "RTT stdev" => deviation(&d.rtt.acked),
        "RTT from 3WHS" => ms(d.rtt.handshake),
        "RTT min (last)" => ms(d.rtt.ambiguous.shortest()),
        "RTT max (last)" => ms(d.rtt.ambiguous.longest()),
        "RTT avg (last)" => mean(&d.rtt.ambiguous),
        "RTT sdv (last)" => deviation(&d.rtt.ambiguous),
        "min retr time" => ms(d.retransmitted.interval.shortest()),
        "max retr time" => ms(d.retransmitted.interval.longest()),
        "avg retr time" => mean(&d.retransmitted.interval),
        "sdv retr time" => deviation(&d.retransmitted.interval),
        _ => return None,
    })
}

// SPDX-License-Identifier: Apache-2.0
//! JSON: one object a line: the capture, each connection, then the counters of a log and the
//! results of pairing.

mod verdict;

pub use verdict::problems;

use super::capture::{moment, span};
use super::counters::{self, LogComparison};
use super::csv::name;
use super::figures::{figures, micros};
use super::pairing::{self, PairedConnection};
use super::selector::end;
use super::{CaptureReport, RankedConnection};
use crate::decode::Undecodable;
use crate::read::SkipReason;
use crate::tcp::{Ending, Scaling, Side};
use crate::totals::Count;
use serde_json::{Map, Value, json};
use std::io::{self, Write};
use std::time::Duration;
use verdict::{vantage, verdict};

/// Writes all objects.
pub fn write(
    report: &CaptureReport,
    counters: Option<&LogComparison>,
    paired: &[PairedConnection],
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "{}", capture(report))?;
    connections(&report.connections, out)?;
    for object in counters.map(counters::json).unwrap_or_default() {
        writeln!(out, "{object}")?;
    }
    for paired in paired {
        writeln!(out, "{}", pairing::json(paired))?;
    }
    Ok(())
}

/// Connections that one thread formats at a time.
const SHARE: usize = 64;

/// Formats connections on all cores; writes them in their order.
fn connections(all: &[RankedConnection], out: &mut dyn Write) -> io::Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for round in all.chunks(SHARE * threads) {
        let texts: Vec<String> = std::thread::scope(|scope| {
            let shares = round
                .chunks(SHARE)
                .map(|share| scope.spawn(|| lines(share)));
            let running: Vec<_> = shares.collect();
            running
                .into_iter()
                .map(|thread| match thread.join() {
                    Ok(text) => text,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
                .collect()
        });
        for text in texts {
            out.write_all(text.as_bytes())?;
        }
    }
    Ok(())
}

fn lines(share: &[RankedConnection]) -> String {
    let lines = share
        .iter()
        .map(|ranked| format!("{}\n", connection(ranked)));
    lines.collect()
}

fn capture(report: &CaptureReport) -> Value {
    let s = &report.summary;
    let count = |c: Count| json!({"packets": c.frames, "bytes": c.bytes});
    let protocols: Map<String, Value> = (s.totals.ip_protocols())
        .map(|(number, c)| (number.to_string(), count(c)))
        .collect();
    let ether: Map<String, Value> = (s.totals.ether_types.iter())
        .map(|(number, c)| (format!("0x{number:04x}"), count(*c)))
        .collect();
    let links: Map<String, Value> = (s.totals.link_types.iter())
        .map(|(number, c)| (number.to_string(), count(*c)))
        .collect();
    let undecodable: Map<String, Value> = Undecodable::ALL
        .into_iter()
        .map(|reason| (reason.to_string(), count(s.totals.undecodable(reason))))
        .collect();
    let skipped: Map<String, Value> = SkipReason::ALL
        .into_iter()
        .map(|reason| {
            let skip = s.notes.skipped(reason);
            let value = json!({"times": skip.times, "bytes": skip.bytes});
            (reason.to_string(), value)
        })
        .collect();
    let all = s.totals.all();
    json!({
        "type": "capture",
        "name": report.name,
        "first": s.first.map(moment),
        "last": s.last.map(moment),
        "duration_us": span(s).0,
        "packets": all.frames,
        "bytes": all.bytes,
        "connections": s.connections,
        "tcp": count(s.totals.tcp()),
        "udp": count(s.totals.udp()),
        "icmp": count(s.totals.icmp()),
        "arp": count(s.totals.arp()),
        "later_fragments": count(s.totals.later_fragments),
        "filtered_out": count(s.totals.filtered_out),
        "ip_protocols": protocols,
        "ether_types": ether,
        "link_types_not_decoded": links,
        "undecodable": undecodable,
        "skipped": skipped,
        "capture_drops": report.live_drops.or(s.notes.capture_drops()),
        "clock_went_back": s.notes.clock_went_back,
        "evicted_connections": s.evicted,
        "complete": s.complete,
    })
}

fn connection(ranked: &RankedConnection) -> Value {
    let r = ranked.report();
    let side = |side: Side| -> Map<String, Value> {
        figures(r, side)
            .into_iter()
            .map(|(field, value)| (field.key.into_owned(), value.json()))
            .collect()
    };
    let time = |t: Option<Duration>| t.map(micros);
    json!({
        "type": "connection",
        "connection": ranked.number,
        "client": end(r.client),
        "server": end(r.server),
        "first": moment(r.first.time),
        "first_frame": ranked.finished.first_frame,
        "last_frame": ranked.finished.last_frame,
        "duration_us": micros(r.duration()),
        "packets": r.packets(),
        "reused_ports": r.reused,
        "ending": ending(r.ending),
        "handshake": {
            "rtt_us": time(r.handshake.rtt()),
            "window_scaling": match r.handshake.window_scaling {
                Scaling::Unknown => Value::Null,
                Scaling::Off => json!(false),
                Scaling::On { .. } => json!(true),
            },
            "sack": r.handshake.sack,
            "timestamps": r.handshake.timestamps,
            "ecn": r.handshake.ecn,
            "accurate_ecn": r.handshake.accurate_ecn,
        },
        "turns": {
            "requests": r.turns.from_client,
            "responses": r.turns.from_server,
            "server_think_us": micros(r.turns.server_think.total()),
            "client_think_us": micros(r.turns.client_think.total()),
            "largest_request_bytes": r.turns.largest_request,
            "largest_response_bytes": r.turns.largest_response,
        },
        "clock_steps_back": r.clock_steps_back,
        "bad_checksums": r.bad_checksums,
        "forgotten_segments": r.dropped.segments,
        "forgotten_ranges": r.dropped.ranges,
        "vantage": vantage(&ranked.finished.report.verdicts.vantage),
        "client_verdict": verdict(ranked, Side::Client),
        "server_verdict": verdict(ranked, Side::Server),
        "from_client": side(Side::Client),
        "from_server": side(Side::Server),
    })
}

fn ending(ending: Ending) -> String {
    match ending {
        Ending::Open => "open".to_owned(),
        Ending::Unanswered => "unanswered".to_owned(),
        Ending::Refused => "refused".to_owned(),
        Ending::Closed => "closed".to_owned(),
        Ending::HalfClosed(side) => format!("half_closed_by_{}", name(side)),
        Ending::Reset(side) => format!("reset_by_{}", name(side)),
    }
}

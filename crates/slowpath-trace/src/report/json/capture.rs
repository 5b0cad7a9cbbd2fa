// SPDX-License-Identifier: Apache-2.0
//! The capture as JSON: what its packets are and what it lacks.

use super::super::CaptureReport;
use super::super::capture::{moment, span};
use super::super::csv::name;
use super::super::headline::{headline, remarks};
use super::super::overview::FailureGroup;
use super::super::selector::end;
use super::optional;
use super::verdict::AdviceOutput;
use crate::decode::Undecodable;
use crate::read::SkipReason;
use crate::totals::{Count, Totals};
use crate::verdict::TraceProblem;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// Packets of one kind.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(super) struct CountOutput {
    packets: u64,
    /// On the wire.
    bytes: u64,
}

impl From<Count> for CountOutput {
    fn from(count: Count) -> Self {
        CountOutput {
            packets: count.frames,
            bytes: count.bytes,
        }
    }
}

/// Parts of the file that could not be read.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(super) struct SkippedOutput {
    times: u64,
    bytes: u64,
}

/// Packets by a protocol's number, a link type or a reason.
type Counts = BTreeMap<String, CountOutput>;

/// What the packets are.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct ProtocolsOutput {
    tcp: CountOutput,
    udp: CountOutput,
    icmp: CountOutput,
    arp: CountOutput,
    /// Fragments of IP packets other than the first.
    later_fragments: CountOutput,
    /// Left out by the filter.
    filtered_out: CountOutput,
    /// By protocol number.
    ip_protocols: Counts,
    /// By EtherType, in hexadecimal.
    ether_types: Counts,
    /// By link type.
    link_types_not_decoded: Counts,
    /// By the reason why they could not be decoded.
    undecodable: Counts,
}

/// What is said first of the capture.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct HeadlineOutput {
    /// The worst problem of both directions of all connections; `none`: nothing to report.
    #[cfg_attr(test, schemars(schema_with = "super::schema::headline_problem"))]
    problem: &'static str,
    /// The same as a sentence.
    text: String,
    /// What it cost in the worst connection; null: nothing, or not known.
    time_us: Option<f64>,
    /// That time's part of the connection's, 0 to 1.
    share: Option<f64>,
    /// How many connections have it.
    connections: u64,
    /// The number of the worst.
    connection: Option<u64>,
    /// Whose data, SYN or RST it is about; null: the connection.
    from: Option<String>,
    first_frame: Option<u64>,
    last_frame: Option<u64>,
    advice: Option<AdviceOutput>,
    /// What else is worth a note: a queue on the path, segments that overtook each other.
    notes: Vec<String>,
    /// The part of the connections' time in which no side had anything to send, 0 to 1.
    idle_share: f64,
}

impl HeadlineOutput {
    fn of(report: &CaptureReport) -> Self {
        let headline = headline(report);
        let finding = headline.worst.map(|worst| worst.finding);
        let frames = finding.and_then(|f| f.frames);
        HeadlineOutput {
            problem: headline.problem.map_or("none", TraceProblem::name),
            time_us: optional(headline.time()),
            share: finding.map(|f| f.share),
            connections: headline.connections,
            connection: headline.worst.map(|worst| worst.number),
            from: headline.from().map(end),
            first_frame: frames.map(|(from, _)| from.frame),
            last_frame: frames.map(|(_, to)| to.frame),
            advice: headline.advice.map(AdviceOutput::from),
            text: headline.text,
            notes: remarks(report),
            idle_share: report.overview.idle(),
        }
    }
}

/// Connections that failed alike.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct FailureGroupOutput {
    /// `Unanswered`, `Refused` or `Reset`.
    #[cfg_attr(test, schemars(schema_with = "super::schema::trace_problem"))]
    problem: &'static str,
    connections: u64,
    /// The server's address.
    server: String,
    /// Its port; null: several.
    port: Option<u64>,
    /// Who sent the SYN or the RST: `client` or `server`.
    from: Option<&'static str>,
    /// The first of them.
    connection: u64,
    first_frame: u64,
}

impl From<&FailureGroup> for FailureGroupOutput {
    fn from(group: &FailureGroup) -> Self {
        FailureGroupOutput {
            problem: group.kind.problem.name(),
            connections: group.connections,
            server: group.kind.server.to_string(),
            port: group.port.map(u64::from),
            from: group.kind.from.map(name),
            connection: group.number,
            first_frame: group.first_frame,
        }
    }
}

/// What is said of connections that failed, all in all.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct FailuresOutput {
    /// Connections that failed, by how and to which server; most first.
    failures: Vec<FailureGroupOutput>,
    /// Failed connections that are in none of them, for want of memory.
    failures_not_grouped: u64,
    /// Unanswered connections beyond the worst 512, which are not listed.
    unanswered_not_listed: u64,
}

impl FailuresOutput {
    fn of(report: &CaptureReport) -> Self {
        let groups = report.overview.failures();
        FailuresOutput {
            failures: groups.iter().map(FailureGroupOutput::from).collect(),
            failures_not_grouped: report.overview.ungrouped,
            unanswered_not_listed: report.unlisted,
        }
    }
}

/// The capture: `{"type": "capture"}`.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(super) struct CaptureOutput {
    /// Its files.
    name: String,
    /// When the first packet was captured, RFC 3339 in UTC.
    first: Option<String>,
    /// When the last packet was captured.
    last: Option<String>,
    /// From the first to the last.
    duration_us: u64,
    packets: u64,
    /// On the wire.
    bytes: u64,
    /// TCP connections.
    connections: u64,
    headline: HeadlineOutput,
    #[serde(flatten)]
    failures: FailuresOutput,
    #[serde(flatten)]
    protocols: ProtocolsOutput,
    /// By the reason why they could not be read.
    skipped: BTreeMap<String, SkippedOutput>,
    /// Packets that the capture lost by its own account.
    capture_drops: Option<u64>,
    /// Packets captured more than once: copies, without the first.
    captured_twice: u64,
    /// ACKs of data that was never captured.
    acks_of_uncaptured_data: u64,
    /// Bytes of that data.
    uncaptured_bytes: u64,
    /// Connections that the capture has twice, before and after a device that translates addresses or
    /// sequence numbers.
    connections_on_both_sides: u64,
    /// Packets with an earlier time than the one before them.
    clock_went_back: u64,
    /// Connections given up while they were open, for want of memory.
    evicted_connections: u64,
    /// All inputs were read to their ends, and nothing of them was skipped.
    complete: bool,
}

impl ProtocolsOutput {
    fn of(totals: &Totals) -> Self {
        let ether_types = totals.ether_types.iter();
        let link_types = totals.link_types.iter();
        let undecodable = |reason: Undecodable| {
            let count = totals.undecodable(reason);
            (reason.to_string(), count.into())
        };
        ProtocolsOutput {
            tcp: totals.tcp().into(),
            udp: totals.udp().into(),
            icmp: totals.icmp().into(),
            arp: totals.arp().into(),
            later_fragments: totals.later_fragments.into(),
            filtered_out: totals.filtered_out.into(),
            ip_protocols: (totals.ip_protocols())
                .map(|(number, count)| (number.to_string(), count.into()))
                .collect(),
            ether_types: ether_types
                .map(|(number, count)| (format!("0x{number:04x}"), (*count).into()))
                .collect(),
            link_types_not_decoded: link_types
                .map(|(number, count)| (number.to_string(), (*count).into()))
                .collect(),
            undecodable: Undecodable::ALL.into_iter().map(undecodable).collect(),
        }
    }
}

impl CaptureOutput {
    pub(super) fn of(report: &CaptureReport) -> Self {
        let s = &report.summary;
        let all = s.totals.all();
        let skipped = |reason: SkipReason| {
            let skip = s.notes.skipped(reason);
            let output = SkippedOutput {
                times: skip.times,
                bytes: skip.bytes,
            };
            (reason.to_string(), output)
        };
        CaptureOutput {
            name: report.name.raw().to_owned(),
            first: s.first.map(moment),
            last: s.last.map(moment),
            duration_us: span(s).0,
            packets: all.frames,
            bytes: all.bytes,
            connections: s.connections,
            headline: HeadlineOutput::of(report),
            failures: FailuresOutput::of(report),
            protocols: ProtocolsOutput::of(&s.totals),
            skipped: SkipReason::ALL.into_iter().map(skipped).collect(),
            capture_drops: report.live_drops.or(s.notes.capture_drops()),
            captured_twice: report.artefacts.captured_twice,
            acks_of_uncaptured_data: report.artefacts.uncaptured,
            uncaptured_bytes: report.artefacts.uncaptured_bytes,
            connections_on_both_sides: report.artefacts.captured_on_both_sides,
            clock_went_back: s.notes.clock_went_back,
            evicted_connections: s.evicted,
            complete: s.complete
                && SkipReason::ALL
                    .into_iter()
                    .all(|it| s.notes.skipped(it).times == 0),
        }
    }
}

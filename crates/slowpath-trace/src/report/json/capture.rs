// SPDX-License-Identifier: Apache-2.0
//! The capture as JSON: what its packets are and what it lacks.

use super::super::CaptureReport;
use super::super::capture::{moment, span};
use crate::decode::Undecodable;
use crate::read::SkipReason;
use crate::totals::{Count, Totals};
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
    /// Packets with an earlier time than the one before them.
    clock_went_back: u64,
    /// Connections given up while they were open, for want of memory.
    evicted_connections: u64,
    /// All inputs were read to their ends.
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
            name: report.name.clone(),
            first: s.first.map(moment),
            last: s.last.map(moment),
            duration_us: span(s).0,
            packets: all.frames,
            bytes: all.bytes,
            connections: s.connections,
            protocols: ProtocolsOutput::of(&s.totals),
            skipped: SkipReason::ALL.into_iter().map(skipped).collect(),
            capture_drops: report.live_drops.or(s.notes.capture_drops()),
            captured_twice: report.artefacts.captured_twice,
            acks_of_uncaptured_data: report.artefacts.uncaptured,
            uncaptured_bytes: report.artefacts.uncaptured_bytes,
            clock_went_back: s.notes.clock_went_back,
            evicted_connections: s.evicted,
            complete: s.complete,
        }
    }
}

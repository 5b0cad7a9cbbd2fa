// SPDX-License-Identifier: Apache-2.0
//! Text about a capture as a whole: its size and time, other protocols, what was not read.

use super::CaptureReport;
use crate::decode::Undecodable;
use crate::engine::Summary;
use crate::read::SkipReason;
use crate::segment::Timestamp;
use crate::totals::Count;
use slowpath_model::{Micros, WallMicros};
use slowpath_text::wall;
use slowpath_text::{bytes, percent, plural};

/// A moment as RFC 3339.
pub fn moment(time: Timestamp) -> String {
    wall(WallMicros(time.0.div_euclid(1000)))
}

/// From the first to the last frame.
pub fn span(summary: &Summary) -> Micros {
    let (Some(first), Some(last)) = (summary.first, summary.last) else {
        return Micros::ZERO;
    };
    Micros(u64::try_from(last.0.saturating_sub(first.0) / 1000).unwrap_or(0))
}

/// One line: number of packets and their time span.
pub fn line(report: &CaptureReport) -> String {
    let summary = &report.summary;
    let all = summary.totals.all();
    let mut line = format!(
        "{}: {}, {}",
        report.name,
        plural(all.frames, "packet"),
        bytes(all.bytes)
    );
    if let Some(first) = summary.first {
        line += &format!(", {} from {}", span(summary), moment(first));
    }
    line + &format!("; {}", plural(summary.connections, "TCP connection"))
}

/// Lines on other protocols and on what was not read.
pub fn notes(report: &CaptureReport) -> Vec<String> {
    let summary = &report.summary;
    let mut lines = vec![kinds(summary)];
    let totals = &summary.totals;
    for reason in Undecodable::ALL {
        let count = totals.undecodable(reason);
        if count.frames > 0 {
            lines.push(format!(
                "not decoded: {}: {reason}",
                plural(count.frames, "packet")
            ));
        }
    }
    for (number, count) in &totals.link_types {
        lines.push(format!(
            "not decoded: {} of link type {number}",
            plural(count.frames, "packet")
        ));
    }
    let notes = &summary.notes;
    for reason in SkipReason::ALL {
        let skip = notes.skipped(reason);
        if skip.times > 0 {
            lines.push(format!(
                "skipped: {reason}, {}, {}",
                plural(skip.times, "time"),
                bytes(skip.bytes)
            ));
        }
    }
    if let Some(lost) = notes.capture_drops().filter(|lost| *lost > 0) {
        lines.push(format!(
            "the capture lost {} by its own account; gaps may be its doing",
            plural(lost, "packet")
        ));
    }
    if let Some(lost) = report.live_drops.filter(|lost| *lost > 0) {
        lines.push(format!(
            "the kernel lost {} of this capture; gaps may be its doing",
            plural(lost, "packet")
        ));
    }
    lines.extend(report.artefacts.lines());
    if notes.clock_went_back > 0 {
        lines.push(format!(
            "the capture's clock went back {}, by {} at most",
            plural(notes.clock_went_back, "time"),
            Micros(notes.clock_back_max / 1000)
        ));
    }
    if summary.evicted > 0 {
        lines.push(format!(
            "{} were ended early for want of memory",
            plural(summary.evicted, "connection")
        ));
    }
    if !summary.complete {
        lines.push("stopped before the end".to_owned());
    }
    lines
}

/// The packets by protocol.
fn kinds(summary: &Summary) -> String {
    let totals = &summary.totals;
    let all = totals.all();
    let mut parts = Vec::new();
    let mut rest = all.frames;
    let mut say = |name: &str, count: Count| {
        if count.frames > 0 {
            rest = rest.saturating_sub(count.frames);
            let share = count.bytes as f64 / all.bytes.max(1) as f64;
            parts.push(format!(
                "{name} {} ({} of bytes)",
                count.frames,
                percent(share)
            ));
        }
    };
    say("TCP", totals.tcp());
    say("UDP", totals.udp());
    say("ICMP", totals.icmp());
    say("ARP", totals.arp());
    say("later fragments", totals.later_fragments);
    say("left out by the filter", totals.filtered_out);
    if rest > 0 {
        parts.push(format!("other {rest}"));
    }
    if parts.is_empty() {
        parts.push("none".to_owned());
    }
    format!("packets: {}", parts.join(", "))
}

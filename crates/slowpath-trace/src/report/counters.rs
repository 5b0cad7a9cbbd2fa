// SPDX-License-Identifier: Apache-2.0
//! Counters counted packets: a slowpath log of the same time, for the connections of a
//! capture.

use super::capture::moment;
use super::selector::end;
use super::{CaptureReport, RankedConnection};
use crate::segment::{Endpoint, Timestamp};
use crate::tcp::{Direction, Side};
use crate::verdict::join::{Joined, Row, is_same, join};
use slowpath_model::{
    ConnectionId, ConnectionSummary, Coverage, Micros, ProblemInterval, WallMicros,
};
use slowpath_text::wall;
use slowpath_text::{Columns, Paint, plural};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::IpAddr;

/// What a log adds to a capture.
pub struct LogComparison {
    /// The connections that are in both.
    pub connections: Vec<ConnectionCounters>,
    /// What is missing from it, or why it has none of them.
    pub notes: Vec<String>,
}

/// What the log knows of what one end of a connection sent.
pub struct ConnectionCounters {
    /// The connection's number.
    pub number: u64,
    /// Which end the log is of.
    pub side: Side,
    /// Both, by time.
    pub joined: Joined,
    /// Over the connection's whole life.
    pub lifetime: Lifetime,
}

/// A connection's whole life by the counters, and what of it was captured. What was captured
/// in part differs.
pub struct Lifetime {
    /// The network namespace of the log's socket.
    pub netns: u32,
    /// When the log saw it first and last.
    pub observed: (WallMicros, WallMicros),
    /// It has closed, so that the counters are final.
    pub closed: bool,
    /// What both count.
    pub figures: [Figure; 4],
}

/// One figure of both.
pub struct Figure {
    /// Its key in JSON.
    pub(super) key: &'static str,
    /// Its name for a person.
    name: &'static str,
    /// By `tcp_info`; `None`: the kernel does not count it.
    pub(super) counters: Option<u64>,
    /// By the packets.
    pub(super) packets: u64,
    /// The share by which the log may have rounded it (docs/reference/log-format.md, "Rounding").
    rounding: f64,
}

impl Figure {
    /// Whether both are the same as far as the log shows.
    pub(super) fn agrees(&self) -> Option<bool> {
        let (a, b) = (self.counters? as f64, self.packets as f64);
        Some((a - b).abs() <= self.rounding * a.max(b))
    }
}

/// Columns of 8 and of 5 significant bits.
const BITS_8: f64 = 0.004;
const BITS_5: f64 = 0.032;

impl Lifetime {
    /// `tcp_info` counts each transmission of payload in bytes and segments, retransmissions
    /// included (`tcpi_bytes_sent`, `tcpi_data_segs_out`), and only retransmissions (`tcpi_bytes_retrans`,
    /// `tcpi_total_retrans`, which has SYNs too).
    fn of(summary: &ConnectionSummary, sent: &Direction) -> Self {
        let figure = |key, name, counters, packets, rounding| Figure {
            key,
            name,
            counters,
            packets,
            rounding,
        };
        let (stats, again) = (&summary.stats, &sent.retransmitted);
        // SYN and FIN are a byte each in the packets' figure.
        let payload_again = again.bytes.saturating_sub(again.syns + again.fins);
        let sent_again = figure(
            "bytes_sent_again",
            "of these, sent again",
            stats.bytes_retransmitted,
            payload_again,
            BITS_5,
        );
        let bytes = ("bytes_sent", "bytes sent");
        let segments = ("data_segments", "segments with data");
        let again_segments = ("segments_sent_again", "segments sent again");
        let data = &sent.data;
        Lifetime {
            netns: summary.connection.netns,
            observed: (summary.first_observed, summary.last_observed),
            closed: summary.closed,
            figures: [
                figure(bytes.0, bytes.1, stats.bytes_sent, data.bytes, BITS_8),
                sent_again,
                figure(
                    segments.0,
                    segments.1,
                    Some(stats.data_segments_out),
                    data.packets,
                    BITS_5,
                ),
                figure(
                    again_segments.0,
                    again_segments.1,
                    Some(stats.retransmitted),
                    again.packets,
                    0.0,
                ),
            ],
        }
    }
}

fn micros_of(time: Timestamp) -> i64 {
    time.0.div_euclid(1000)
}

/// When the first and the last packet were captured; `None` of an empty capture.
pub fn captured(report: &CaptureReport) -> Option<(WallMicros, WallMicros)> {
    let (first, last) = (report.summary.first?, report.summary.last?);
    Some((WallMicros(micros_of(first)), WallMicros(micros_of(last))))
}

/// The log's connections that the capture has too, each with its own of the capture.
pub struct Matches<'a>(Vec<(&'a RankedConnection, Side, &'a ConnectionSummary)>);

impl<'a> Matches<'a> {
    /// Finds them by addresses and time.
    pub fn find(report: &'a CaptureReport, summaries: &'a [ConnectionSummary]) -> Self {
        let found = report.connections.iter();
        Matches(found.flat_map(|one| matching(one, summaries)).collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their names in the log.
    pub fn ids(&self) -> BTreeSet<ConnectionId> {
        self.0.iter().map(|(.., s)| s.connection).collect()
    }

    /// Compares counters and packets; `intervals` are the log's of [`Matches::ids`].
    pub fn compare(self, intervals: &[ProblemInterval]) -> Vec<ConnectionCounters> {
        let compare = |(ranked, side, summary): (&RankedConnection, Side, &ConnectionSummary)| {
            let own: Vec<ProblemInterval> = (intervals.iter())
                .filter(|i| i.connection == summary.connection)
                .cloned()
                .collect();
            ConnectionCounters {
                number: ranked.number,
                side,
                joined: join(&own, Some(summary), ranked.verdict(side), 0),
                lifetime: Lifetime::of(summary, ranked.report().sent_by(side)),
            }
        };
        self.0.into_iter().map(compare).collect()
    }
}

/// Why the log has none of the capture's connections: the first of these that holds.
///
/// 1. The log is empty.
/// 2. It was not kept while the capture ran.
/// 3. None of its sockets has an address of the capture: another host's log. Sockets with the same
///    peer as a captured connection indicate translated addresses.
/// 4. The connections were not observed.
pub fn why_none(
    report: &CaptureReport,
    (from, to): (WallMicros, WallMicros),
    coverage: &[Coverage],
    at_that_time: &[ConnectionSummary],
) -> String {
    let begin = (coverage.iter().map(|c| c.end - c.duration))
        .chain(at_that_time.iter().map(|s| s.first_observed))
        .min();
    let end = (coverage.iter().map(|c| c.end))
        .chain(at_that_time.iter().map(|s| s.last_observed))
        .max();
    let (Some(begin), Some(end)) = (begin, end) else {
        return "the log is empty: no `slowpath up` has written to it yet".to_owned();
    };
    let meets = |a: WallMicros, b: WallMicros| a <= to && b >= from;
    let kept = coverage.iter().any(|c| meets(c.end - c.duration, c.end))
        || at_that_time
            .iter()
            .any(|s| meets(s.first_observed, s.last_observed));
    if !kept {
        return format!(
            "the log was not kept while this was captured, {} to {}: it goes from {} to {}; \
             the log of another time, or clocks that differ",
            wall(from),
            wall(to),
            wall(begin),
            wall(end)
        );
    }
    let mut ends = BTreeSet::new();
    for ranked in &report.connections {
        let r = ranked.report();
        ends.extend([r.client, r.server]);
    }
    let addresses: BTreeSet<IpAddr> = ends.iter().map(|e| e.address).collect();
    let here = |s: &&ConnectionSummary| addresses.contains(&s.tuple.local.ip());
    let peer = |s: &&ConnectionSummary| {
        let remote = s.tuple.remote;
        ends.contains(&Endpoint {
            address: remote.ip(),
            port: remote.port(),
        })
    };
    if at_that_time.iter().any(|s| here(&s)) {
        return "the log has sockets of these hosts at that time, but none of these \
                connections: they came and went unobserved, or ran in a network namespace that was \
                not watched"
            .to_owned();
    }
    if let Some(translated) = at_that_time.iter().find(peer) {
        return format!(
            "the log has connections to {} at that time, but from {}, which is not in the capture: \
             addresses are translated between the two (NAT), and cannot be distinguished; capture on the \
             logging host",
            translated.tuple.remote,
            translated.tuple.local.ip()
        );
    }
    "no socket in the log has an address that is in the capture: the log of another host, or \
     addresses are translated between the two (NAT)"
        .to_owned()
}

/// The log's connections between the same ends at the same time.
fn matching<'a>(
    ranked: &'a RankedConnection,
    summaries: &'a [ConnectionSummary],
) -> impl Iterator<Item = (&'a RankedConnection, Side, &'a ConnectionSummary)> {
    let r = ranked.report();
    let (begin, end) = (r.first.time.0 / 1000, r.last.time.0 / 1000);
    summaries.iter().filter_map(move |s| {
        let overlaps = s.first_observed.0 <= end && s.last_observed.0 >= begin;
        let side = [Side::Client, Side::Server]
            .into_iter()
            .find(|side| is_same(s.tuple, r.endpoint(*side), r.endpoint(side.peer())))?;
        overlaps.then_some((ranked, side, s))
    })
}

/// Writes them for a person.
pub fn write(
    log: &LogComparison,
    report: &CaptureReport,
    paint: Paint,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out)?;
    for note in &log.notes {
        writeln!(out, "{note}")?;
    }
    for counted in &log.connections {
        if let Some(ranked) = (report.connections.iter()).find(|n| n.number == counted.number) {
            one(counted, ranked, paint, out)?;
        }
    }
    Ok(())
}

fn one(
    counted: &ConnectionCounters,
    ranked: &RankedConnection,
    paint: Paint,
    out: &mut dyn Write,
) -> io::Result<()> {
    let r = ranked.report();
    let rows = &counted.joined.rows;
    let judged = rows.iter().filter_map(Row::agrees);
    let (agree, all) = judged.fold((0, 0), |(yes, all), a| (yes + u64::from(a), all + 1));
    let title = format!(
        "#{} {} -> {}: counters and packets name the same problem in {agree} of {}",
        counted.number,
        end(r.endpoint(counted.side)),
        end(r.endpoint(counted.side.peer())),
        plural(all, "interval"),
    );
    writeln!(out, "{}", paint.bold(&title))?;
    let lifetime = &counted.lifetime;
    let mut columns = Columns::new(&["sent by this end", ">by counters", ">by packets", ""]);
    for figure in &lifetime.figures {
        let counters = figure.counters.map_or("-".to_owned(), |n| n.to_string());
        let same = match figure.agrees() {
            Some(true) => "same",
            Some(false) => "differs",
            None => "",
        };
        columns.row([
            figure.name.to_owned(),
            counters,
            figure.packets.to_string(),
            same.to_owned(),
        ]);
    }
    for line in columns.lines(2, paint) {
        writeln!(out, "{line}")?;
    }
    let (first, last) = (
        WallMicros(micros_of(r.first.time)),
        WallMicros(micros_of(r.last.time)),
    );
    let life = format!(
        "  the counters are of {} to {}{}, network namespace {}; captured: {} to {}",
        wall(lifetime.observed.0),
        wall(lifetime.observed.1),
        if lifetime.closed { "" } else { ", still open" },
        lifetime.netns,
        wall(first),
        wall(last),
    );
    writeln!(out, "{}", paint.dim(&life))?;
    let mut columns = Columns::new(&["from", ">length", "by counters", "by packets", ">captured"]);
    for row in rows {
        let length = row.to.0.saturating_sub(row.from.0).max(0) as u64 / 1000;
        columns.row([
            moment(row.from),
            Micros(length).to_string(),
            row.by_counters().name().to_owned(),
            row.by_packets().name().to_owned(),
            Micros::from(row.covered).to_string(),
        ]);
    }
    for line in columns.lines(2, paint) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

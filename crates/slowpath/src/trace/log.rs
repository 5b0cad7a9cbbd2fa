// SPDX-License-Identifier: Apache-2.0
//! Counters beside packets: a slowpath log of the same time, for the connections of a
//! capture.

use super::capture::moment;
use super::csv::name;
use super::fields::micros;
use super::select::end;
use super::{Numbered, Report};
use crate::failure::Failure;
use crate::render::{Columns, Paint, plural};
use serde_json::{Value, json};
use slowpath_model::{ConnectionSummary, Micros, Problem, ProblemInterval, WallMicros};
use slowpath_store::{IntervalFilter, LogReader, TimeRange};
use slowpath_trace::tcp::Side;
use slowpath_trace::verdict::join::{Joined, Row, is_same, join};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

/// Time before and after the capture that is looked at in the log, for intervals that began
/// or end there.
const MARGIN: i64 = 3_600_000_000;

/// What the log knows of what one end of a connection sent.
pub struct Beside {
    /// The connection's number.
    pub number: u64,
    /// Which end the log is of.
    pub side: Side,
    /// Both, by time.
    pub joined: Joined,
}

/// Finds the connections in the log.
pub fn read(directory: &Path, report: &Report) -> Result<Vec<Beside>, Failure> {
    let failed = |reason: String| Failure::Log {
        directory: directory.to_owned(),
        reason,
    };
    if !directory.exists() {
        return Err(failed("there is none; `slowpath up` keeps one".to_owned()));
    }
    let store = |error: slowpath_store::StoreError| failed(error.to_string());
    let at = |t: slowpath_trace::segment::Timestamp| t.0.div_euclid(1000);
    let (Some(first), Some(last)) = (report.summary.first, report.summary.last) else {
        return Ok(Vec::new());
    };
    let range = TimeRange {
        from: WallMicros(at(first).saturating_sub(MARGIN)),
        to: WallMicros(at(last).saturating_add(MARGIN)),
    };
    let reader = LogReader::open(directory).map_err(store)?;
    let summaries = reader.connections(range).map_err(store)?.rows;
    let mut found = Vec::new();
    for numbered in &report.connections {
        found.extend(matching(numbered, &summaries));
    }
    let wanted = IntervalFilter {
        connections: Some(
            found
                .iter()
                .map(|(.., s)| s.connection)
                .collect::<BTreeSet<_>>(),
        ),
        ..IntervalFilter::default()
    };
    let intervals = if found.is_empty() {
        Vec::new()
    } else {
        reader.intervals(range, &wanted).map_err(store)?.rows
    };
    let beside = found.into_iter().map(|(numbered, side, summary)| {
        let mine: Vec<ProblemInterval> = (intervals.iter())
            .filter(|i| i.connection == summary.connection)
            .cloned()
            .collect();
        Beside {
            number: numbered.number,
            side,
            joined: join(&mine, Some(summary), numbered.verdict(side), 0),
        }
    });
    Ok(beside.collect())
}

/// The log's connections between the same ends at the same time.
fn matching<'a>(
    numbered: &'a Numbered,
    summaries: &'a [ConnectionSummary],
) -> impl Iterator<Item = (&'a Numbered, Side, &'a ConnectionSummary)> {
    let r = numbered.report();
    let (begin, end) = (r.first.time.0 / 1000, r.last.time.0 / 1000);
    summaries.iter().filter_map(move |s| {
        let overlaps = s.first_seen.0 <= end && s.last_seen.0 >= begin;
        let side = [Side::Client, Side::Server]
            .into_iter()
            .find(|side| is_same(s.tuple, r.endpoint(*side), r.endpoint(side.peer())))?;
        overlaps.then_some((numbered, side, s))
    })
}

/// Writes them for a person.
pub fn write(all: &[Beside], report: &Report, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    if all.is_empty() {
        return writeln!(
            out,
            "the log has none of these connections at that time; was `slowpath up` running here?"
        );
    }
    for beside in all {
        let Some(numbered) = report
            .connections
            .iter()
            .find(|n| n.number == beside.number)
        else {
            continue;
        };
        let r = numbered.report();
        let rows = &beside.joined.rows;
        let told = rows.iter().filter_map(Row::agrees);
        let (agree, all) = told.fold((0, 0), |(yes, all), a| (yes + u64::from(a), all + 1));
        let title = format!(
            "#{} {} -> {}: counters and packets name the same problem in {agree} of {}",
            beside.number,
            end(r.endpoint(beside.side)),
            end(r.endpoint(beside.side.peer())),
            plural(all, "interval"),
        );
        writeln!(out, "{}", paint.bold(&title))?;
        let mut columns =
            Columns::new(&["from", ">length", "by counters", "by packets", ">captured"]);
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
    }
    Ok(())
}

/// One object a connection.
pub fn json(beside: &Beside) -> Value {
    let rows: Vec<Value> = (beside.joined.rows.iter())
        .map(|row| {
            let packets: serde_json::Map<String, Value> = (Problem::ALL.into_iter())
                .map(|p| {
                    (
                        p.name().to_owned(),
                        json!(micros(row.packets.of_problem(p))),
                    )
                })
                .collect();
            let counters: serde_json::Map<String, Value> = (row.counters.iter())
                .map(|f| {
                    let length = row.to.0.saturating_sub(row.from.0).max(0) as u64 / 1000;
                    (
                        f.problem.name().to_owned(),
                        json!(f.share.time_of(Micros(length)).0),
                    )
                })
                .collect();
            json!({
                "from": moment(row.from),
                "to": moment(row.to),
                "captured_us": micros(row.covered),
                "counters_us": counters,
                "packets_us": packets,
                "by_counters": row.by_counters().name(),
                "by_packets": row.by_packets().name(),
                "agrees": row.agrees(),
                "unmeasured": crate::json::problems(row.unmeasured),
                "delayed_acks": row.delayed_acks.0,
                "delayed_ack_samples": row.delayed_acks.1,
            })
        })
        .collect();
    json!({
        "type": "log",
        "connection": beside.number,
        "side": name(beside.side),
        "intervals": rows,
    })
}

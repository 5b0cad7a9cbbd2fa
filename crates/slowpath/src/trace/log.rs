// SPDX-License-Identifier: Apache-2.0
//! Reads the slowpath log of a capture's time.

use crate::failure::Failure;
use slowpath_model::WallMicros;
use slowpath_store::{IntervalFilter, LogReader, ReadReport, StoreError, TimeRange};
use slowpath_trace::report::CaptureReport;
use slowpath_trace::report::counters::{LogComparison, Matches, captured, why_none};
use std::path::Path;

/// Time before and after the capture that is read from the log, for intervals that began
/// or end there: one hour, in microseconds.
const MARGIN: i64 = 3_600_000_000;

/// Compares the capture's connections with those of the log.
pub fn read(directory: &Path, report: &CaptureReport) -> Result<LogComparison, Failure> {
    let failed = |reason: String| Failure::Log {
        directory: directory.to_owned(),
        reason,
    };
    if !directory.exists() {
        return Err(failed("there is none; `slowpath up` keeps one".to_owned()));
    }
    let store = |error: StoreError| failed(error.to_string());
    let Some((first, last)) = captured(report) else {
        return Ok(LogComparison {
            connections: Vec::new(),
            notes: vec!["the capture is empty: there is nothing to look up".to_owned()],
        });
    };
    let range = TimeRange {
        from: WallMicros(first.0.saturating_sub(MARGIN)),
        to: WallMicros(last.0.saturating_add(MARGIN)),
    };
    let reader = LogReader::open(directory).map_err(store)?;
    let summaries = reader.connections(range).map_err(store)?;
    let mut unread = summaries.report;
    let matches = Matches::find(report, &summaries.rows);
    if matches.is_empty() {
        let everything = TimeRange {
            from: WallMicros(i64::MIN),
            to: WallMicros(i64::MAX),
        };
        let coverage = reader.coverage(everything).map_err(store)?;
        unread.absorb(coverage.report);
        let mut notes = damage(&unread);
        let none = coverage.rows.is_empty() && summaries.rows.is_empty();
        notes.push(if none && !notes.is_empty() {
            "no row of the log could be read".to_owned()
        } else {
            why_none(report, (first, last), &coverage.rows, &summaries.rows)
        });
        return Ok(LogComparison {
            connections: Vec::new(),
            notes,
        });
    }
    let wanted = IntervalFilter {
        connections: Some(matches.ids()),
        ..IntervalFilter::default()
    };
    let intervals = reader.intervals(range, &wanted).map_err(store)?;
    unread.absorb(intervals.report);
    Ok(LogComparison {
        connections: matches.compare(&intervals.rows),
        notes: damage(&unread),
    })
}

/// What of the log could not be read.
fn damage(report: &ReadReport) -> Vec<String> {
    let lines = report.lines().into_iter();
    lines
        .map(|line| format!("missing in the log: {line}"))
        .collect()
}

// SPDX-License-Identifier: Apache-2.0
//! `slowpath report`: verdicts over a time range, from the log.

use crate::args::GroupArg;
use crate::failure::{Failure, Outcome};
use crate::options::{Answering, Since};
use crate::render::Paint;
use slowpath_model::{ConnectionId, WallMicros};
use slowpath_store::{IntervalFilter, LogReader, ReadReport, TimeRange};
use slowpath_views::json;
pub use slowpath_views::report::{GroupBy, Options, Records, Report, ReportRange};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

impl From<GroupArg> for GroupBy {
    fn from(by: GroupArg) -> Self {
        match by {
            GroupArg::Application => GroupBy::Application,
            GroupArg::Host => GroupBy::Host,
            GroupArg::Peer => GroupBy::Peer,
            GroupArg::Unit => GroupBy::Unit,
            GroupArg::Container => GroupBy::Container,
            GroupArg::Pod => GroupBy::Pod,
            GroupArg::Port => GroupBy::Port,
        }
    }
}

/// From there until `now`.
pub fn range(since: Since, now: WallMicros) -> ReportRange {
    let from = match since {
        Since::Ago(ago) => now - ago.into(),
        Since::At(time) => {
            let after = time.duration_since(SystemTime::UNIX_EPOCH);
            WallMicros(after.map_or(0, |d| d.as_micros() as i64))
        }
    };
    ReportRange { from, to: now }
}

/// Writes the report on these records.
///
/// # Errors
/// When the output refuses.
pub fn write(
    records: Records,
    options: &Options,
    answering: Answering,
    paint: Paint,
    out: &mut dyn Write,
) -> Result<Outcome, Failure> {
    let report = Report::of(records, options);
    if answering.json {
        writeln!(out, "{}", json::value(&report.output()))?;
    } else {
        for line in report.lines(paint) {
            writeln!(out, "{line}")?;
        }
    }
    out.flush()?;
    Ok((answering.exit).outcome(|criterion| report.problems_found(criterion)))
}

/// What the log in `directory` knows of `range`. Problem intervals are read only of
/// connections that began before the range or lived on after it: of the others, the
/// summary says all.
///
/// # Errors
/// [`Failure::Log`] when there is no log that can be read. Single files that cannot be read
/// are named in [`Records::unread`].
pub fn read(directory: &Path, range: ReportRange) -> Result<Records, Failure> {
    let failed = |reason: String| Failure::Log {
        directory: directory.to_owned(),
        reason,
    };
    if !directory.exists() {
        return Err(failed(
            "there is none; `slowpath up` keeps one, and --log names another".to_owned(),
        ));
    }
    let store = |error: slowpath_store::StoreError| failed(error.to_string());
    let reader = LogReader::open(directory).map_err(store)?;
    let time = TimeRange {
        from: range.from,
        to: WallMicros(range.to.0.saturating_add(1)),
    };
    let connections = reader.connections(time).map_err(store)?;
    let coverage = reader.coverage(time).map_err(store)?;
    let listeners = reader.listeners(time).map_err(store)?;
    let interactions = reader.interactions(time).map_err(store)?;
    let mut unread = ReadReport::default();
    unread.absorb(connections.report);
    unread.absorb(coverage.report);
    unread.absorb(listeners.report);
    unread.absorb(interactions.report);
    let straddling: BTreeSet<ConnectionId> = connections
        .rows
        .iter()
        .filter(|s| !range.contains(s.first_observed) || !range.contains(s.last_observed))
        .map(|s| s.connection)
        .collect();
    let mut problems = Vec::new();
    if !straddling.is_empty() {
        let wanted = IntervalFilter {
            connections: Some(straddling),
            ..IntervalFilter::default()
        };
        let intervals = reader.intervals(time, &wanted).map_err(store)?;
        unread.absorb(intervals.report);
        problems = intervals.rows;
    }
    Ok(Records {
        summaries: connections.rows,
        problems,
        listeners: listeners.rows,
        interactions: interactions.rows,
        coverage: coverage.rows,
        unread: unread.lines(),
    })
}

#[cfg(test)]
pub(crate) mod tests;

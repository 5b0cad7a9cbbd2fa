// SPDX-License-Identifier: Apache-2.0
//! `slowpath report --tcp-info`: verdicts on a series of `tcp_info` that another tool
//! polled and saved.

use crate::failure::{Failure, Outcome};
use crate::options::Answering;
use crate::render::{Paint, plural};
use slowpath_observe::mlab;
use slowpath_views::json;
use slowpath_views::series::{Series, judge};
use std::io::Write;
use std::path::Path;

/// Reads the series in `file` and writes what limited its connection.
///
/// # Errors
/// [`Failure::Series`] when the file is none or holds no two snapshots; when the output
/// refuses.
pub fn run(
    file: &Path,
    answering: Answering,
    paint: Paint,
    out: &mut dyn Write,
) -> Result<Outcome, Failure> {
    let read = mlab::read_series(file).map_err(|e| Failure::Series(e.to_string()))?;
    let left_out = read.skipped.iter();
    let series = Series {
        left_out: left_out
            .map(|(why, lines)| (why.to_string(), *lines))
            .collect(),
        cut: read.cut.as_ref().map(std::io::Error::to_string),
        uuid: read.uuid,
        start: read.start,
        snapshots: read.snapshots,
    };
    let Some(judged) = judge(&series) else {
        return Err(Failure::Series(format!(
            "{} holds {}; a verdict takes two at different times",
            file.display(),
            plural(series.snapshots.len() as u64, "snapshot")
        )));
    };
    if answering.json {
        for verdict in judged.verdicts() {
            writeln!(out, "{}", json::value(&verdict))?;
        }
        writeln!(out, "{}", json::value(&judged.output(&series)))?;
    } else {
        for line in judged.lines(&series, paint) {
            writeln!(out, "{line}")?;
        }
    }
    out.flush()?;
    Ok((answering.exit).outcome(|criterion| judged.problems_found(criterion)))
}

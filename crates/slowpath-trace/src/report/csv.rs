// SPDX-License-Identifier: Apache-2.0
//! Comma-separated values (RFC 4180): a line a connection, the keys of JSON as columns.

use super::CaptureReport;
use super::capture::moment;
use super::figures::{figures, micros};
use super::phrases;
use super::selector::end;
use crate::tcp::Side;
use crate::verdict::{Limit, TraceProblem};
use std::io::{self, Write};

/// Writes a header and the connections.
pub fn write(report: &CaptureReport, out: &mut dyn Write) -> io::Result<()> {
    let Some(first) = report.connections.first() else {
        return Ok(());
    };
    let mut header: Vec<String> = ["connection", "client", "server", "first", "duration_us"]
        .map(str::to_owned)
        .into();
    for side in [Side::Client, Side::Server] {
        let prefix = name(side);
        header.push(format!("{prefix}_dominating"));
        let limits = Limit::ALL.iter();
        header.extend(limits.map(|l| format!("{prefix}_{}_us", l.name())));
        let keys = figures(first.report(), side);
        header.extend(
            keys.iter()
                .map(|(field, _)| format!("{prefix}_{}", field.key)),
        );
    }
    header.extend(["problem", "failures"].map(str::to_owned));
    writeln!(out, "{}", header.join(","))?;
    for ranked in &report.connections {
        let r = ranked.report();
        let mut cells = vec![
            ranked.number.to_string(),
            end(r.client),
            end(r.server),
            moment(r.first.time),
            micros(r.duration()).to_string(),
        ];
        for side in [Side::Client, Side::Server] {
            let verdict = ranked.verdict(side);
            cells.push(verdict.dominating.name().to_owned());
            let shares = verdict.line.shares();
            cells.extend(Limit::ALL.map(|l| micros(shares.of(l)).to_string()));
            cells.extend(figures(r, side).iter().map(|(_, value)| value.text()));
        }
        let found = ranked.findings().iter();
        let failures = found.filter(|f| f.problem.is_of_connection());
        let failures: Vec<&str> = failures.map(|f| f.problem.name()).collect();
        let worst = phrases::worst(ranked).problem;
        cells.push(worst.map_or("", TraceProblem::name).to_owned());
        cells.push(failures.join(" "));
        writeln!(out, "{}", cells.join(","))?;
    }
    Ok(())
}

/// `client` or `server`.
pub fn name(side: Side) -> &'static str {
    match side {
        Side::Client => "client",
        Side::Server => "server",
    }
}

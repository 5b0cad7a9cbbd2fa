// SPDX-License-Identifier: Apache-2.0
//! The list of connections as text, with what limits the worst and every figure on request.

use super::advice::advise;
use super::figures::{Value, figures};
use super::selector::end;
use super::{CaptureReport, RankedConnection, capture, headline, phrases};
use crate::message::Category;
use crate::tcp::Side;
use crate::verdict::{Limit, Observation, TraceFinding, TraceProblem};
use slowpath_model::{Micros, Problem};
use slowpath_text::{Columns, Paint, bit_rate, bytes, percent, wrapped};
use std::io::{self, Write};
use std::time::Duration;

/// Connections about which the first screen says more.
const EXPLAINED: usize = 3;

/// Lines about failures that are alike.
const GROUPS: usize = 4;

/// Columns of text.
const WIDTH: usize = 100;

/// What the list shows.
#[derive(Clone, Copy, Debug)]
pub struct ListOptions {
    /// Connections listed at most.
    pub top: usize,
    /// Every figure of each listed connection.
    pub long: bool,
    /// The report has one connection, which the user selected.
    pub selected: bool,
}

/// Writes the list.
pub fn write(
    report: &CaptureReport,
    options: &ListOptions,
    paint: Paint,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "{}", paint.bold(&capture::line(report)))?;
    first_lines(report, paint, out)?;
    for line in capture::notes(report) {
        writeln!(out, "{}", paint.dim(&line))?;
    }
    if report.connections.is_empty() {
        return writeln!(out, "no TCP connection in it");
    }
    writeln!(out)?;
    let mut columns = Columns::new(&[
        ">#",
        "limited by",
        ">share",
        ">time",
        ">events",
        ">data",
        ">rate",
        ">RTT",
        ">again",
        "connection, sender first",
    ]);
    for ranked in report.connections.iter().take(options.top) {
        columns.row(row(ranked));
    }
    for line in columns.lines(2, paint) {
        writeln!(out, "{line}")?;
    }
    let more = report.count.saturating_sub(options.top as u64);
    if more > 0 && !options.selected {
        writeln!(out, "  and {more} more (--top N lists more, --json all)")?;
    }
    let explained = if options.long {
        options.top
    } else {
        options.top.min(EXPLAINED)
    };
    for ranked in report.connections.iter().take(explained) {
        if options.long || options.selected || ranked.troubled() {
            explain(ranked, paint, out)?;
        }
        if options.long {
            long(ranked, paint, out)?;
        }
    }
    Ok(())
}

/// The headline, who has to act, failures that are alike, what else is worth a note.
fn first_lines(report: &CaptureReport, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    if report.connections.is_empty() {
        return Ok(());
    }
    let headline = headline::headline(report);
    for (i, line) in wrapped(&headline.text, WIDTH).into_iter().enumerate() {
        let indent = if i == 0 { "" } else { "  " };
        writeln!(out, "{indent}{}", paint.bold(&line))?;
    }
    if let Some((who, _)) = headline.advice {
        writeln!(out, "  act: {who}")?;
    }
    let failures = headline::failures(report, GROUPS);
    for line in failures.into_iter().chain(headline::remarks(report)) {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

fn row(ranked: &RankedConnection) -> [String; 10] {
    let r = ranked.report();
    let worst = phrases::worst(ranked);
    let side = worst.side;
    let d = r.sent_by(side);
    let seconds = r.duration().as_secs_f64();
    let rate = if seconds > 0.0 {
        bit_rate(d.data.unique_bytes as f64 / seconds)
    } else {
        "-".to_owned()
    };
    let vantage = &ranked.finished.report.verdicts.vantage;
    [
        ranked.number.to_string(),
        worst.name.to_owned(),
        worst.time.map_or(String::new(), |_| percent(worst.share)),
        worst
            .time
            .map_or(String::new(), |t| Micros::from(t).to_string()),
        worst.events.map_or(String::new(), |e| e.to_string()),
        bytes(d.data.bytes),
        rate,
        time(vantage.of_path(side, d.rtt.acked.mean())),
        d.retransmitted.packets.to_string(),
        format!(
            "{} -> {}",
            end(r.endpoint(side)),
            end(r.endpoint(side.peer()))
        ),
    ]
}

fn time(t: Option<Duration>) -> String {
    t.map_or("-".to_owned(), |t| Micros::from(t).to_string())
}

/// What is wrong with a connection in either direction, the evidence, and advice.
fn explain(ranked: &RankedConnection, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    let r = ranked.report();
    let worst = phrases::worst(ranked);
    let side = worst.side;
    writeln!(out)?;
    let title = format!(
        "#{} {} -> {}",
        ranked.number,
        end(r.endpoint(side)),
        end(r.endpoint(side.peer()))
    );
    writeln!(out, "{}", paint.bold(&title))?;
    let painted = worst.problem.and_then(TraceProblem::live);
    let painted = painted.unwrap_or(Problem::SenderAppLimited);
    writeln!(
        out,
        "  {}",
        paint.problem(painted, &phrases::limited(&worst))
    )?;
    let mut points = finding_points(ranked, side);
    points.extend(other_points(ranked, side));
    let vantage = &ranked.finished.report.verdicts.vantage;
    points.push(("", phrases::vantage(vantage, r.client, r.server)));
    for (head, text) in points {
        for (i, line) in wrapped(&text, WIDTH).into_iter().enumerate() {
            let head = if i == 0 { head } else { "" };
            writeln!(out, "  {head:<10}{line}")?;
        }
    }
    Ok(())
}

/// A line's heading and its text.
type Point = (&'static str, String);

/// The evidence of each finding, and advice on the first. `side`: whose data the title is about.
fn finding_points(ranked: &RankedConnection, side: Side) -> Vec<Point> {
    let mut points = Vec::new();
    for (i, finding) in ranked.findings().iter().enumerate() {
        let evidence = phrases::evidence(ranked, finding);
        if i == 0 && !finding.problem.is_harmless() {
            points.push(("evidence", evidence));
            points.extend(phrases::frames(finding).map(|text| ("see", text)));
            if let Some((who, advice)) = advise(ranked, finding) {
                points.push(("act", who));
                points.push(("advice", advice.what));
                points.push(("after", advice.source.to_owned()));
            }
            continue;
        }
        let other_way = match finding.from {
            Some(from) if from != side && !finding.problem.is_of_connection() => {
                format!(" of what {} sent", end(ranked.report().endpoint(from)))
            }
            _ => String::new(),
        };
        let time = finding.time.map_or(String::new(), |time| {
            format!(", {} ({})", percent(finding.share), Micros::from(time))
        });
        let head = if other_way.is_empty() { "also" } else { "back" };
        let problem = finding.problem;
        points.push((head, format!("{problem}{other_way}{time}: {evidence}")));
    }
    points
}

/// Losses, other observations, slow messages, what could not be measured.
fn other_points(ranked: &RankedConnection, side: Side) -> Vec<Point> {
    let verdict = ranked.verdict(side);
    let vantage = &ranked.finished.report.verdicts.vantage;
    let mut points = Vec::new();
    points.extend(phrases::losses(&verdict.losses, vantage, side).map(|text| ("losses", text)));
    points.extend(phrases::path(&verdict.path).map(|text| ("path", text)));
    let found = |observation: Observation| {
        let named = |f: &TraceFinding| {
            f.problem.name() == observation.name() && f.from == Some(side)
                || f.problem.is_failure() && observation == Observation::SynRetransmit
        };
        ranked.findings().iter().any(named)
    };
    let others: Vec<String> = (verdict.observed.iter())
        .filter(|other| !found(other.observation))
        .map(|other| phrases::observed(verdict, other))
        .collect();
    if !others.is_empty() {
        points.push(("observed", others.join(", ")));
    }
    let messages = &verdict.messages;
    let causes: Vec<String> = (Category::ALL.into_iter())
        .filter(|c| messages.with(*c) > 0)
        .map(|c| format!("{} {}", c.name(), messages.with(c)))
        .collect();
    if !causes.is_empty() {
        points.push((
            "messages",
            format!(
                "{}, slow ones by cause: {}",
                messages.count,
                causes.join(", ")
            ),
        ));
    }
    let failed = ranked.findings().iter().any(|f| f.problem.is_failure());
    if !verdict.unmeasured.is_empty() && !failed {
        let names: Vec<&str> = verdict.unmeasured.iter().map(Problem::name).collect();
        points.push(("", format!("could not measure: {}", names.join(", "))));
    }
    points
}

/// Every figure of one connection.
fn long(ranked: &RankedConnection, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    let r = ranked.report();
    writeln!(out)?;
    let mut columns = Columns::new(&["", ">client sent", ">server sent"]);
    let lines = [Side::Client, Side::Server].map(|s| &ranked.verdict(s).line);
    for limit in Limit::ALL {
        let times = lines.map(|l| l.shares().of(limit));
        if times.iter().any(|t| !t.is_zero()) {
            let [client, server] = times.map(|t| Micros::from(t).to_string());
            columns.row([format!("waited for {}", limit.name()), client, server]);
        }
    }
    let both = figures(r, Side::Client)
        .into_iter()
        .zip(figures(r, Side::Server));
    for ((field, client), (_, server)) in both {
        let text = |v: &Value| match v {
            Value::Time(t) => Micros::from(*t).to_string(),
            Value::Rate(rate) => bit_rate(*rate),
            Value::Unknown => "-".to_owned(),
            v => v.text(),
        };
        columns.row([field.name.to_owned(), text(&client), text(&server)]);
    }
    for line in columns.lines(2, paint) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

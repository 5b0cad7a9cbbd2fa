// SPDX-License-Identifier: Apache-2.0
//! The first screen, and everything about a connection.

use super::args::Trace;
use super::fields::{Value, fields};
use super::select::end;
use super::words::{self, headline, part};
use super::{Numbered, Report, capture};
use crate::render::{Columns, Paint, bit_rate, bytes, percent, wrapped};
use slowpath_model::{Micros, Problem};
use slowpath_trace::message::Category;
use slowpath_trace::tcp::Side;
use slowpath_trace::verdict::Limit;
use std::io::{self, Write};
use std::time::Duration;

/// Connections about which the first screen says more.
const EXPLAINED: usize = 3;

/// Columns of text.
const WIDTH: usize = 100;

/// Writes the list.
pub fn write(report: &Report, args: &Trace, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", paint.bold(&capture::line(report)))?;
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
    for numbered in report.connections.iter().take(args.top) {
        columns.row(row(numbered));
    }
    for line in columns.lines(2, paint) {
        writeln!(out, "{line}")?;
    }
    let more = report.count.saturating_sub(args.top as u64);
    if more > 0 && args.connection.is_none() {
        writeln!(out, "  and {more} more (--top N lists more, --json all)")?;
    }
    let explained = if args.long {
        args.top
    } else {
        args.top.min(EXPLAINED)
    };
    for numbered in report.connections.iter().take(explained) {
        if args.long || args.connection.is_some() || numbered.troubled() {
            explain(numbered, paint, out)?;
        }
        if args.long {
            long(numbered, paint, out)?;
        }
    }
    Ok(())
}

fn row(numbered: &Numbered) -> [String; 10] {
    let r = numbered.report();
    let side = numbered.worst_side();
    let d = r.sent_by(side);
    let seconds = r.duration().as_secs_f64();
    let rate = if seconds > 0.0 {
        bit_rate(d.data.unique_bytes as f64 / seconds)
    } else {
        "-".to_owned()
    };
    let headline = headline(numbered.verdict(side));
    [
        numbered.number.to_string(),
        headline.name.to_owned(),
        percent(headline.share),
        Micros::from(headline.time).to_string(),
        headline.events.map_or(String::new(), |e| e.to_string()),
        bytes(d.data.bytes),
        rate,
        time(d.rtt.acked.mean()),
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

/// What limits a connection, why we say so, what to do.
fn explain(numbered: &Numbered, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    let r = numbered.report();
    let side = numbered.worst_side();
    let verdict = numbered.verdict(side);
    let headline = headline(verdict);
    writeln!(out)?;
    let by = headline.problem.map_or("", crate::evidence::stage);
    let title = format!(
        "#{} {} -> {}",
        numbered.number,
        end(r.endpoint(side)),
        end(r.endpoint(side.peer()))
    );
    writeln!(out, "{}", paint.bold(&title))?;
    let limited = match headline.problem {
        Some(_) => format!(
            "Limited by {by}: {}, {} of the time",
            headline.name,
            percent(headline.share)
        ),
        None => format!(
            "{}, {} of the time; no problem found",
            headline.name,
            percent(headline.share)
        ),
    };
    let painted = headline.problem.unwrap_or(Problem::SenderAppLimited);
    writeln!(out, "  {}", paint.problem(painted, &limited))?;
    let mut points: Vec<(&str, String)> = Vec::new();
    for finding in &verdict.findings {
        let problem = finding.problem;
        let numbers = words::numbers(verdict, problem);
        if Some(problem) == headline.problem {
            points.push(("evidence", numbers));
            if let Some((from, to)) = verdict.proof(problem) {
                let longest = to.time.0.saturating_sub(from.time.0).max(0) as u64 / 1000;
                points.push((
                    "see",
                    format!(
                        "packets {} to {}, {}",
                        from.frame,
                        to.frame,
                        Micros(longest)
                    ),
                ));
            }
            if let Some((who, advice)) = words::advise(numbered, side, problem) {
                points.push(("act", who));
                points.push(("advice", advice.what));
                points.push(("after", advice.source.to_owned()));
            }
        } else {
            let time = verdict.line.shares().of_problem(problem);
            let share = percent(part(verdict, time));
            points.push(("also", format!("{problem}, {share} of the time: {numbers}")));
        }
    }
    points.extend(words::losses(&verdict.losses).map(|text| ("losses", text)));
    let else_: Vec<String> = (verdict.observed.iter())
        .map(|seen| words::observed(verdict, seen))
        .collect();
    if !else_.is_empty() {
        points.push(("observed", else_.join(", ")));
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
    if !verdict.unmeasured.is_empty() {
        let names: Vec<&str> = verdict.unmeasured.iter().map(Problem::name).collect();
        points.push(("", format!("could not measure: {}", names.join(", "))));
    }
    points.push((
        "",
        words::vantage(
            &numbered.finished.report.verdicts.vantage,
            r.client,
            r.server,
        ),
    ));
    for (head, text) in points {
        for (i, line) in wrapped(&text, WIDTH).into_iter().enumerate() {
            let head = if i == 0 { head } else { "" };
            writeln!(out, "  {head:<10}{line}")?;
        }
    }
    Ok(())
}

/// Everything about one connection.
fn long(numbered: &Numbered, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    let r = numbered.report();
    writeln!(out)?;
    let mut columns = Columns::new(&["", ">client sent", ">server sent"]);
    let lines = [Side::Client, Side::Server].map(|s| &numbered.verdict(s).line);
    for limit in Limit::ALL {
        let times = lines.map(|l| l.shares().of(limit));
        if times.iter().any(|t| !t.is_zero()) {
            let [client, server] = times.map(|t| Micros::from(t).to_string());
            columns.row([format!("waited for {}", limit.name()), client, server]);
        }
    }
    let both = fields(r, Side::Client)
        .into_iter()
        .zip(fields(r, Side::Server));
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

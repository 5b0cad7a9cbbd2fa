// SPDX-License-Identifier: Apache-2.0
//! Every event of a recording.

use crate::{SIDES, ends, info, lost, one_sided};
use serde_json::{Map, Value, json};
use slowpath_recording::{Connection, End, Handler, Origin, Recording, Run};
use slowpath_text::{Paint, plain};
use std::io::Write;

/// Which events, and how.
#[derive(Clone, Copy, Debug)]
pub struct Selection {
    /// Only the connection with that number, counted from 0.
    pub connection: Option<u32>,
    /// Only that end: 0 the client, 1 the server.
    pub end: Option<usize>,
    /// JSON, an object a line.
    pub json: bool,
}

/// Writes the selected events.
///
/// # Errors
/// Writing fails.
pub fn write(
    recording: &Recording,
    selection: Selection,
    paint: Paint,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let connections = recording.connections.len();
    let mut printer = Printer {
        json: selection.json,
        paint,
        out,
    };
    printer.origin(&recording.origin)?;
    for (number, connection) in recording.connections.iter().enumerate() {
        if selection
            .connection
            .is_some_and(|wanted| wanted as usize != number)
        {
            continue;
        }
        printer.connection(number, connection)?;
        for (place, end) in connection.ends.iter().enumerate() {
            if selection.end.is_none_or(|side| side == place) {
                printer.end(number, place, end)?;
            }
        }
    }
    for (number, single) in (connections..).zip(&recording.one_sided) {
        let wanted = selection
            .connection
            .is_none_or(|wanted| wanted as usize == number);
        if !wanted || selection.end.is_some_and(|side| side != single.side) {
            continue;
        }
        one_sided::title(number, single, selection.json, paint, printer.out)?;
        printer.end(number, single.side & 1, &single.end)?;
        one_sided::packets(number, single, selection.json, printer.out)?;
    }
    Ok(())
}

struct Printer<'a> {
    json: bool,
    paint: Paint,
    out: &'a mut dyn Write,
}

impl Printer<'_> {
    fn origin(&mut self, origin: &Origin) -> std::io::Result<()> {
        if self.json {
            return writeln!(self.out, "{}", info::origin_json(origin));
        }
        writeln!(self.out, "{}", self.paint.bold(&info::origin(origin)))
    }

    fn connection(&mut self, number: usize, connection: &Connection) -> std::io::Result<()> {
        let settings = &connection.settings;
        if self.json {
            let [client, server] = connection.addresses.map(|address| address.to_string());
            let line = json!({
                "type": "recorded_connection",
                "connection": number,
                "client": client,
                "server": server,
                "sysctls": settings.sysctls,
                "socket": settings.socket,
                "mtu_bytes": settings.mtu,
            });
            return writeln!(self.out, "{line}");
        }
        let title = format!("connection {number}: {}", ends(connection));
        writeln!(self.out, "\n{}", self.paint.bold(&title))?;
        for (place, side) in SIDES.iter().enumerate() {
            let values = settings.sysctls[place]
                .iter()
                .chain(&settings.socket[place]);
            let values = values.map(|(name, value)| format!("{name}={value}"));
            let all: Vec<String> = values
                .chain([format!("mtu={}", settings.mtu[place])])
                .collect();
            let line = format!("  {side} settings: {}", plain(&all.join(", ")));
            writeln!(self.out, "{}", self.paint.dim(&line))?;
        }
        Ok(())
    }

    fn end(&mut self, connection: usize, place: usize, end: &End) -> std::io::Result<()> {
        let side = SIDES[place];
        let start = end.runs.first().map_or(0, |run| run.at.0);
        for (number, run) in end.runs.iter().enumerate() {
            if end.gap == Some(number as u64) {
                self.gap(side, end)?;
            }
            let timed = end.sent.is_none();
            if self.json {
                let line = run_json(connection, side, number, run, timed);
                writeln!(self.out, "{line}")?;
                continue;
            }
            let since = run.at.0.wrapping_sub(start) as i64 as f64 / 1e9;
            let time = match timed {
                true => format!("{since:>15.9} s"),
                // To a tick.
                false => format!("about {since:>9.3} s"),
            };
            let check = run
                .check
                .map_or_else(String::new, |check| format!("check {check:02x}"));
            writeln!(
                self.out,
                "  {side} {number:>7} {time}  {}  {check}",
                words(run)
            )?;
        }
        if end.gap == Some(end.runs.len() as u64) {
            self.gap(side, end)?;
        }
        self.samples(connection, side, end)?;
        if self.json {
            let line = json!({
                "type": "end",
                "connection": connection,
                "end": side,
                "runs": end.runs.len(),
                "replayable_runs": end.gap.unwrap_or(end.runs.len() as u64),
                "gap": end.gap.is_some(),
                "lost_runs": lost(end),
                "digest": end.digest,
                "within_ns": end.within,
            });
            return writeln!(self.out, "{line}");
        }
        let count = end.runs.len();
        let within = match end.within {
            0 => String::new(),
            ns => format!(", times within {} us", f64::from(ns) / 1e3),
        };
        writeln!(
            self.out,
            "  {side}: {count} runs, digest {:08x}{within}",
            end.digest
        )
    }

    fn gap(&mut self, side: &str, end: &End) -> std::io::Result<()> {
        if self.json {
            return Ok(());
        }
        let lost = match lost(end) {
            Some(lost) => format!("{lost} events are missing"),
            None => "it is unknown how many events are missing".to_owned(),
        };
        let after = end.gap.unwrap_or(0);
        writeln!(
            self.out,
            "  {side}: not replayable after event {after}: {lost}"
        )
    }

    fn samples(&mut self, connection: usize, side: &str, end: &End) -> std::io::Result<()> {
        let Some(sent) = &end.sent else {
            return Ok(());
        };
        for sample in &sent.samples {
            let (packets, nanos) = (sample.step.denominator.get(), sample.step.numerator);
            if self.json {
                let line = json!({
                    "type": "sample",
                    "connection": connection,
                    "end": side,
                    "packet": sample.index,
                    "sent_ns": sample.time,
                    "step_ns": nanos,
                    "step_packets": packets,
                    "threshold_ns": sent.threshold,
                });
                writeln!(self.out, "{line}")?;
                continue;
            }
            let (index, time) = (sample.index, sample.time);
            writeln!(
                self.out,
                "  {side} sent packet {index} at {time} ns, then one each {nanos}/{packets} ns"
            )?;
        }
        Ok(())
    }
}

fn words(run: &Run) -> String {
    let name = run.handler.name();
    let mut text = match &run.handler {
        Handler::Connect
        | Handler::Accept
        | Handler::Resume
        | Handler::Close
        | Handler::SmallQueue => name.to_owned(),
        Handler::Begin { fresh: true } => format!("{name}, nothing known of the path"),
        Handler::Begin { fresh: false } => name.to_owned(),
        Handler::Send {
            bytes,
            flags,
            result,
        }
        | Handler::Receive {
            bytes,
            flags,
            result,
        } => format!("{name} {bytes} bytes, flags {flags:#x}: {result}"),
        Handler::Shutdown { how } => format!("{name} {how}"),
        Handler::Option { level, name, value } => format!("option {level}/{name} = {value}"),
        Handler::Packet {
            number,
            marked,
            backlog,
            merged,
            truesize,
        } => {
            let mut text = format!("{name} {number}");
            if *merged != 1 {
                text += &format!(" and {} after it, merged", i32::from(*merged) - 1);
            }
            text += if *marked { ", CE" } else { "" };
            text += if *backlog { ", from the backlog" } else { "" };
            text + &format!(", takes {truesize} bytes")
        }
        Handler::Timer { timer, deferred } => {
            let late = if *deferred { ", put off" } else { "" };
            format!("{name} {}{late}", timer.name())
        }
        Handler::Release { flags } => format!("{name} {flags:#x}"),
    };
    for outcome in &run.outcomes {
        let (name, [first, second]) = (outcome.decision().name(), outcome.numbers());
        text += &format!(" [{name} after {first}: {second}]");
    }
    text
}

fn run_json(connection: usize, side: &str, number: usize, run: &Run, timed: bool) -> Value {
    let mut line = Map::new();
    let mut put = |key: &str, value: Value| {
        line.insert(key.to_owned(), value);
    };
    put("type", json!("run"));
    put("connection", json!(connection));
    put("end", json!(side));
    put("run", json!(number));
    put("at_ns", json!(timed.then_some(run.at.0)));
    put("jiffies", json!(run.jiffies));
    put("handler", json!(run.handler.name()));
    match &run.handler {
        Handler::Send {
            bytes,
            flags,
            result,
        }
        | Handler::Receive {
            bytes,
            flags,
            result,
        } => {
            put("asked_bytes", json!(bytes));
            put("flags", json!(flags));
            put("result", json!(result));
        }
        Handler::Begin { fresh } => put("fresh", json!(fresh)),
        Handler::Shutdown { how } => put("how", json!(how)),
        Handler::Option { level, name, value } => {
            put("level", json!(level));
            put("option", json!(name));
            put("value", json!(value));
        }
        Handler::Packet {
            number,
            marked,
            backlog,
            merged,
            truesize,
        } => {
            put("packet", json!(number));
            put("marked", json!(marked));
            put("backlog", json!(backlog));
            put("merged", json!(merged));
            put("truesize_bytes", json!(truesize));
        }
        Handler::Timer { timer, deferred } => {
            put("timer", json!(timer.name()));
            put("deferred", json!(deferred));
        }
        Handler::Release { flags } => put("flags", json!(flags)),
        Handler::Connect
        | Handler::Accept
        | Handler::Resume
        | Handler::Close
        | Handler::SmallQueue => {}
    }
    let outcome = |outcome: &slowpath_recording::Outcome| {
        let [before, value] = outcome.numbers();
        json!({
            "decision": outcome.decision().name(),
            "before": before,
            "value": value,
        })
    };
    put("outcomes", run.outcomes.iter().map(outcome).collect());
    put("check", json!(run.check));
    line.into()
}

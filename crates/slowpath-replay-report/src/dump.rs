// SPDX-License-Identifier: Apache-2.0
//! Every event of a recording.

use crate::output::{
    ArgumentsOutput, ConnectionOutput, EndOutput, OutcomeOutput, RunOutput, SampleOutput, value,
};
use crate::{SIDES, ends, info, lost, one_sided};
use slowpath_recording::{Connection, End, Handler, Origin, Outcome, Recording, Run};
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
            let line = ConnectionOutput {
                kind: "recorded_connection",
                connection: number,
                client,
                server,
                sysctls: &settings.sysctls,
                socket: &settings.socket,
                mtu_bytes: settings.mtu,
            };
            return writeln!(self.out, "{}", value(&line));
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
                let line = run_output(connection, side, number, run, timed);
                writeln!(self.out, "{}", value(&line))?;
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
            let line = EndOutput {
                kind: "end",
                connection,
                end: side,
                runs: end.runs.len(),
                replayable_runs: end.gap.unwrap_or(end.runs.len() as u64),
                gap: end.gap.is_some(),
                lost_runs: lost(end),
                digest: end.digest,
                within_ns: end.within,
            };
            return writeln!(self.out, "{}", value(&line));
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

    fn samples(&mut self, connection: usize, side: &'static str, end: &End) -> std::io::Result<()> {
        let Some(sent) = &end.sent else {
            return Ok(());
        };
        for sample in &sent.samples {
            let (packets, nanos) = (sample.step.denominator.get(), sample.step.numerator);
            if self.json {
                let line = SampleOutput {
                    kind: "sample",
                    connection,
                    end: side,
                    packet: sample.index,
                    sent_ns: sample.time,
                    step_ns: nanos,
                    step_packets: packets,
                    threshold_ns: sent.threshold,
                };
                writeln!(self.out, "{}", value(&line))?;
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

fn run_output(
    connection: usize,
    side: &'static str,
    number: usize,
    run: &Run,
    timed: bool,
) -> RunOutput {
    let outcome = |outcome: &Outcome| {
        let [before, value] = outcome.numbers();
        OutcomeOutput {
            decision: outcome.decision().name(),
            before,
            value,
        }
    };
    RunOutput {
        kind: "run",
        connection,
        end: side,
        run: number,
        at_ns: timed.then_some(run.at.0),
        jiffies: run.jiffies,
        handler: run.handler.name(),
        arguments: arguments(&run.handler),
        outcomes: run.outcomes.iter().map(outcome).collect(),
        check: run.check,
    }
}

fn arguments(handler: &Handler) -> ArgumentsOutput {
    match *handler {
        Handler::Send {
            bytes,
            flags,
            result,
        }
        | Handler::Receive {
            bytes,
            flags,
            result,
        } => ArgumentsOutput::Transfer {
            asked_bytes: bytes,
            flags,
            result,
        },
        Handler::Begin { fresh } => ArgumentsOutput::Begin { fresh },
        Handler::Shutdown { how } => ArgumentsOutput::Shutdown { how },
        Handler::Option { level, name, value } => ArgumentsOutput::Option {
            level,
            option: name,
            value,
        },
        Handler::Packet {
            number,
            marked,
            backlog,
            merged,
            truesize,
        } => ArgumentsOutput::Packet {
            packet: number,
            marked,
            backlog,
            merged,
            truesize_bytes: truesize,
        },
        Handler::Timer { timer, deferred } => ArgumentsOutput::Timer {
            timer: timer.name(),
            deferred,
        },
        Handler::Release { flags } => ArgumentsOutput::Release { flags },
        Handler::Connect
        | Handler::Accept
        | Handler::Resume
        | Handler::Close
        | Handler::SmallQueue => ArgumentsOutput::Nothing {},
    }
}

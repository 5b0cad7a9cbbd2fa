// SPDX-License-Identifier: Apache-2.0
//! Replays with a setting changed, up to the first packet that differs.

use crate::end_name;
use crate::frames::Frames;
use crate::output::{
    AnswerOutput, ControlOutput, DepartureOutput, HeaderOutput, SimulatedOutput, SimulationOutput,
    value,
};
use serde_json::Value;
use slowpath_recording::headers::Header;
use slowpath_recording::{Moment, Recording};
use slowpath_replay::Answer;
use slowpath_replay::continuation::Continuation;
use slowpath_text::plural;
use std::io::{self, Write};
use std::time::Duration;

/// What was simulated, or why nothing was.
pub type Simulated = Result<Continuation, String>;

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Writes what was simulated.
///
/// # Errors
/// Writing fails.
pub fn simulation_text(simulated: &Simulated, out: &mut dyn Write) -> io::Result<()> {
    let it = match simulated {
        Ok(it) => it,
        Err(reason) => {
            writeln!(out, "  not simulated: {reason}")?;
            return Ok(());
        }
    };
    let (changed, control) = (&it.changed, &it.control);
    let (from, path) = (&changed.from, &changed.from.path);
    write!(
        out,
        "  SIMULATED from there, nothing of it was recorded or replayed: the last {} bytes of message {} of the {} take {:.3} ms\n  \
         by itself on an empty path of {:.3} ms",
        from.left,
        from.message.number,
        end_name(from.message.end),
        ms(changed.took),
        ms(path.round_trip)
    )?;
    if let Some(rate) = path.rate {
        write!(out, " and {:.1} Mbit/s", rate as f64 * 8e-6)?;
    }
    writeln!(
        out,
        ", from a window of {}",
        plural(u64::from(from.window), "packet")
    )?;
    let gain = it.gain_s() * 1e3;
    let later = control.from.at.0.saturating_sub(from.at.0);
    writeln!(
        out,
        "  without the change, simulated likewise from its own next packet, {:.3} ms later, and a window of {}: {:.3} ms",
        later as f64 / 1e6,
        plural(u64::from(control.from.window), "packet"),
        ms(control.took)
    )?;
    write!(
        out,
        "  the message, up to there as recorded: {:.3} ms, without the change {:.3} ms; the change {} {:.3} ms",
        ms(changed.message()),
        ms(control.message()),
        if gain < 0.0 { "costs" } else { "saves" },
        gain.abs()
    )?;
    match from.message.duration() {
        Some(took) => writeln!(out, "; recorded were {:.3} ms", ms(took)),
        None => writeln!(out, "; as recorded it did not end"),
    }
}

/// What was simulated, as JSON.
pub fn simulation_json(simulated: &Simulated) -> Value {
    let it = match simulated {
        Ok(it) => it,
        Err(reason) => {
            return value(&SimulationOutput::Refused {
                simulated: false,
                reason,
            });
        }
    };
    let (it, control, gain) = (&it.changed, &it.control, it.gain_s());
    let from = &it.from;
    value(&SimulationOutput::Simulated(SimulatedOutput {
        simulated: true,
        simulator: "slowpath-netsim",
        assumes: "no other traffic, no loss, the path as recorded, the window as replayed with the change",
        end: end_name(from.message.end),
        message: from.message.number,
        bytes: from.left,
        window: from.window,
        slow_start_threshold: from.threshold,
        round_trip_milliseconds: ms(from.path.round_trip),
        rate_bits_per_second: from.path.rate.map(|rate| rate.saturating_mul(8)),
        milliseconds: ms(it.took),
        message_milliseconds: ms(it.message()),
        recorded_message_milliseconds: from.message.duration().map(ms),
        control: ControlOutput {
            later_milliseconds: control.from.at.0.saturating_sub(from.at.0) as f64 / 1e6,
            window: control.from.window,
            slow_start_threshold: control.from.threshold,
            milliseconds: ms(control.took),
            message_milliseconds: ms(control.message()),
        },
        gain_milliseconds: gain * 1e3,
    }))
}

/// Since the connection began.
fn since(recording: &Recording, number: usize, answer: &Answer) -> Option<f64> {
    let departure = answer.departure?;
    let begun = begun(recording, number, answer)?;
    Some(departure.at.0.saturating_sub(begun.0) as f64 / 1e6)
}

/// When its client, or the server, began.
fn begun(recording: &Recording, number: usize, answer: &Answer) -> Option<Moment> {
    let end = usize::from(answer.departure?.end);
    Some(recording.connections[number].ends[end].runs.first()?.at)
}

/// RFC 9293 section 3.1, RFC 3168 section 6.1, RFC 3540 section 9; the lowest bit first.
const FLAGS: [&str; 9] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR", "NS"];

/// What else is not as in the other packet: flags, options, ECN bits.
fn peculiar(it: &Header, other: Option<&Header>) -> String {
    let mut text = String::new();
    let Some(other) = other else {
        return text;
    };
    if it.flags != other.flags {
        let set = |bit: &usize| it.flags >> bit & 1 == 1;
        let names: Vec<&str> = (0..FLAGS.len()).filter(set).map(|bit| FLAGS[bit]).collect();
        text += &format!(", flags {}", names.join(" "));
    }
    if it.ecn != other.ecn {
        text += &format!(", ECN {:02b}", it.ecn);
    }
    if it.options != other.options || it.timestamps.is_some() != other.timestamps.is_some() {
        let timestamps = it.timestamps.map(|_| "8".to_owned());
        let kinds = it.options.iter().map(|(kind, value)| match value[..] {
            [] => kind.to_string(),
            _ => format!("{kind} {value:?}"),
        });
        let kinds: Vec<String> = kinds.chain(timestamps).collect();
        text += &format!(", options {}", kinds.join(", "));
    }
    text
}

fn packet(header: Option<&Header>, other: Option<&Header>, begun: Option<Moment>) -> String {
    let Some(it) = header else {
        return "nothing".to_owned();
    };
    let from = it.sequence;
    let mut text = if it.payload > 0 {
        format!("bytes {from} to {}", from.wrapping_add(it.payload))
    } else {
        "no data".to_owned()
    };
    if let Some(acknowledgment) = it.acknowledgment {
        text += &format!(", ACK {acknowledgment}");
    }
    text += &format!(", window {}", it.window);
    if !it.sack.is_empty() {
        text += &format!(", SACK {:?}", it.sack);
    }
    text += &peculiar(it, other);
    match begun {
        Some(begun) => {
            let at = it.at.0.saturating_sub(begun.0) as f64 / 1e6;
            text + &format!(", at {at:.3} ms")
        }
        None => text,
    }
}

/// Writes an answer.
///
/// # Errors
/// Writing fails.
pub fn write(
    recording: &Recording,
    number: usize,
    answer: &Answer,
    frames: &Frames,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Some(departure) = answer.departure else {
        let [client, server] = answer.same;
        writeln!(
            out,
            "connection {number}: nothing changes, {client} and {server} packets are sent as they were"
        )?;
        return Ok(());
    };
    let begun = begun(recording, number, answer);
    let frame = frames.name(number, departure.end, &[departure.packet]);
    let frame = frame.map_or(String::new(), |frame| format!(" ({frame})"));
    writeln!(
        out,
        "connection {number}: packet {} of the {}{frame} differs, {:.3} ms after its beginning\n  was:  {}\n  now:  {}\n  up to there all is as it was; what the network would have answered is not known",
        departure.packet,
        end_name(departure.end),
        since(recording, number, answer).unwrap_or_default(),
        packet(answer.was.as_ref(), answer.is.as_ref(), begun),
        packet(answer.is.as_ref(), answer.was.as_ref(), begun)
    )?;
    Ok(())
}

fn header(it: &Header) -> HeaderOutput<'_> {
    HeaderOutput {
        at_ns: it.at.0,
        sequence: it.sequence,
        acknowledgment: it.acknowledgment,
        flags: it.flags,
        window: it.window,
        bytes: it.payload,
        ecn: it.ecn,
        sack: &it.sack,
        options: it.options.iter().map(|(kind, _)| *kind).collect(),
    }
}

/// An answer as JSON.
pub fn answer_json(
    recording: &Recording,
    number: usize,
    answer: &Answer,
    frames: &Frames,
) -> Value {
    let departure = answer.departure.map(|it| DepartureOutput {
        end: end_name(it.end),
        packet: it.packet,
        frame: frames.of(number, it.end, it.packet),
        milliseconds: since(recording, number, answer),
        was: answer.was.as_ref().map(header),
        now: answer.is.as_ref().map(header),
    });
    value(&AnswerOutput {
        connection: number,
        same_packets: answer.same,
        departure,
    })
}

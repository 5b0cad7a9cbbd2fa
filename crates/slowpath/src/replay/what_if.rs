// SPDX-License-Identifier: Apache-2.0
//! A replay with a setting changed, up to the first packet that is not as it was.

use super::{Replay, end_name};
use crate::failure::{Failure, Outcome};
use serde_json::{Value, json};
use slowpath_lab::virtual_time::{Altered, Answer, Kernel, WhatIf, WhatIfError};
use slowpath_replay::headers::Header;
use slowpath_replay::recording::Recording;
use std::io::{Write, stdout};
use std::path::Path;

/// `NAME=VALUE`.
pub(super) fn setting(text: &str) -> Result<Altered, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok(Altered::Setting {
            name: name.trim().to_owned(),
            value: value.trim().to_owned(),
        }),
        _ => Err("is not NAME=VALUE".to_owned()),
    }
}

pub(super) fn run(
    args: &Replay,
    kernel: &Kernel,
    recording: &Recording,
    chosen: &[usize],
    folder: &Path,
) -> Result<Outcome, Failure> {
    let failed = |error: WhatIfError| match error {
        WhatIfError::Setting(error) => Failure::Usage(format!("--set: {error}")),
        error => Failure::Recording {
            file: args.file.clone(),
            reason: error.to_string(),
        },
    };
    let out = &mut stdout().lock();
    let mut told = Vec::new();
    for number in chosen.iter().copied() {
        let own = folder.join(format!("what-if-{number}"));
        std::fs::create_dir(&own)
            .map_err(|error| Failure::Write(format!("cannot create {}: {error}", own.display())))?;
        let mut what_if = WhatIf::new(kernel, recording, number, &own).map_err(failed)?;
        let answer = what_if.ask(&args.set).map_err(failed)?;
        if args.json {
            told.push(as_json(recording, number, &answer));
        } else {
            as_text(recording, number, &answer, out)?;
        }
    }
    if args.json {
        writeln!(out, "{}", json!({ "connections": told }))?;
    }
    Ok(Outcome::Done)
}

/// Since the connection began.
fn since(recording: &Recording, number: usize, answer: &Answer) -> Option<f64> {
    let departure = answer.departure?;
    let runs = &recording.connections[number].ends[usize::from(departure.end)].runs;
    let begun = runs.first()?.at;
    Some(departure.at.0.saturating_sub(begun.0) as f64 / 1e6)
}

fn packet(header: Option<&Header>) -> String {
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
    text + &format!(", window {}", it.window)
}

fn as_text(
    recording: &Recording,
    number: usize,
    answer: &Answer,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let Some(departure) = answer.departure else {
        let [client, server] = answer.same;
        writeln!(
            out,
            "connection {number}: nothing changes, {client} and {server} packets are sent as they were"
        )?;
        return Ok(());
    };
    writeln!(
        out,
        "connection {number}: packet {} of the {} differs, {:.3} ms after its beginning\n  was:  {}\n  now:  {}\n  up to there all is as it was; what the network would have answered is not known",
        departure.packet,
        end_name(departure.end),
        since(recording, number, answer).unwrap_or_default(),
        packet(answer.was.as_ref()),
        packet(answer.is.as_ref())
    )?;
    Ok(())
}

fn header_json(header: Option<&Header>) -> Value {
    header.map_or(Value::Null, |it| {
        json!({
            "at_ns": it.at.0,
            "sequence": it.sequence,
            "acknowledgment": it.acknowledgment,
            "flags": it.flags,
            "window": it.window,
            "bytes": it.payload,
        })
    })
}

fn as_json(recording: &Recording, number: usize, answer: &Answer) -> Value {
    let departure = answer.departure.map(|it| {
        json!({
            "end": end_name(it.end),
            "packet": it.packet,
            "milliseconds": since(recording, number, answer),
            "was": header_json(answer.was.as_ref()),
            "now": header_json(answer.is.as_ref()),
        })
    });
    json!({ "connection": number, "same_packets": answer.same, "departure": departure })
}

// SPDX-License-Identifier: Apache-2.0
//! The connections of a recording, a line each.

use crate::output::{ListOutput, ListedConnection, value};
use crate::{end_name, ends};
use serde_json::Value;
use slowpath_lab::virtual_time::SOURCE;
use slowpath_recording::{Connection, Decoded, End, Handler, Recording, ReplayKind, Timer};
use slowpath_text::{Columns, Paint, bytes as size, plain, plural};
use std::io::{self, Write};
use std::time::Duration;

/// What one connection of the list has.
fn listed(recording: &Recording) -> Vec<ListedConnection> {
    let both = recording.connections.iter().map(|it| joined(recording, it));
    let single = recording.one_sided.iter().map(|it| {
        let [client, server] = it.addresses;
        let end = &it.end;
        let mut bytes = [None; 2];
        bytes[it.side & 1] = Some(sent(end));
        ListedConnection {
            connection: 0,
            client: client.to_string(),
            server: server.to_string(),
            client_bytes: bytes[0],
            server_bytes: bytes[1],
            milliseconds: milliseconds(&[end]),
            runs: end.runs.len() as u64,
            write_timers: timers(&[end], Timer::Write),
            delayed_acks: timers(&[end], Timer::DelayedAck),
            replay: ReplayKind::OneSided.name(),
            reason: Some(format!(
                "only the {} was recorded here: `slowpath recording join`",
                end_name((it.side & 1) as u8)
            )),
        }
    });
    let mut all: Vec<ListedConnection> = both.chain(single).collect();
    for (number, one) in all.iter_mut().enumerate() {
        one.connection = number;
    }
    all
}

fn joined(recording: &Recording, it: &Connection) -> ListedConnection {
    let [client, server] = it.addresses;
    let both = [&it.ends[0], &it.ends[1]];
    let reason = it.replayable().err().map(|reason| reason.to_string());
    let possible = || slowpath_replay::possible_settings(it.addresses, &it.settings);
    let reason = reason.or_else(|| possible().err().map(|reason| reason.to_string()));
    ListedConnection {
        connection: 0,
        client: client.to_string(),
        server: server.to_string(),
        client_bytes: Some(sent(both[0])),
        server_bytes: Some(sent(both[1])),
        milliseconds: milliseconds(&both),
        runs: both.iter().map(|end| end.runs.len() as u64).sum(),
        write_timers: timers(&both, Timer::Write),
        delayed_acks: timers(&both, Timer::DelayedAck),
        replay: match &reason {
            Some(_) => "not_possible",
            None => ReplayKind::of(&recording.origin, false, SOURCE).name(),
        },
        reason,
    }
}

/// Bytes that the application of an end wrote.
fn sent(end: &End) -> u64 {
    let results = end.runs.iter().map(|run| match run.handler {
        Handler::Send { result, .. } => u64::try_from(result).unwrap_or(0),
        _ => 0,
    });
    results.sum()
}

fn timers(ends: &[&End], which: Timer) -> u64 {
    let runs = ends.iter().flat_map(|end| &end.runs);
    let of =
        runs.filter(|run| matches!(run.handler, Handler::Timer { timer, .. } if timer == which));
    of.count() as u64
}

/// From an end's first run to its last, of the end that lasted longer: two machines have two clocks.
fn milliseconds(ends: &[&End]) -> f64 {
    let lasted = ends.iter().filter_map(|end| {
        let (first, last) = (end.runs.first()?, end.runs.last()?);
        Some(Duration::from_nanos(last.at.0.saturating_sub(first.at.0)))
    });
    lasted.max().unwrap_or_default().as_secs_f64() * 1e3
}

/// The list as a JSON object.
pub fn json(decoded: &Decoded) -> Value {
    value(&ListOutput {
        kind: "recording_list",
        recorder: decoded.recording.origin.recorder.name().to_owned(),
        connections: listed(&decoded.recording),
    })
}

/// Writes the list.
///
/// # Errors
/// Writing fails.
pub fn write(decoded: &Decoded, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    let recording = &decoded.recording;
    let all = listed(recording);
    let mut table = Columns::new(&[
        ">#",
        "connection",
        ">client wrote",
        ">server wrote",
        ">lasted",
        ">runs",
        ">timers",
        ">delayed ACKs",
        "replay",
    ]);
    let wrote = |bytes: Option<u64>| bytes.map_or("-".to_owned(), size);
    for one in &all {
        let place = one.connection;
        let name = match recording.connections.get(place) {
            Some(connection) => ends(connection),
            None => format!("{} -> {}", one.client, one.server),
        };
        table.row([
            place.to_string(),
            name,
            wrote(one.client_bytes),
            wrote(one.server_bytes),
            format!("{:.3} ms", one.milliseconds),
            one.runs.to_string(),
            one.write_timers.to_string(),
            one.delayed_acks.to_string(),
            plain(one.reason.as_deref().unwrap_or(one.replay)),
        ]);
    }
    for line in table.lines(0, paint) {
        writeln!(out, "{line}")?;
    }
    let whole = all.iter().filter(|it| it.reason.is_none()).count();
    writeln!(
        out,
        "{}, of which {whole} can be replayed",
        plural(all.len() as u64, "connection")
    )
}

// SPDX-License-Identifier: Apache-2.0
//! One-sided recordings as lines or JSON: their addresses, and the packets that identify the
//! other end's recording.

use crate::SIDES;
use crate::output::{PacketOutput, RecordedEndOutput, value};
use slowpath_recording::{OneSided, Packet, Recording};
use slowpath_text::{Paint, plain};
use std::io::{self, Write};

/// `client 10.0.0.1:4000 -> 10.0.0.2:80, SYN 123, SYN-ACK 456`: what the other end's recording has as well.
pub fn name(single: &OneSided) -> String {
    let [client, server] = single.addresses;
    let initial = |number: Option<u32>| number.map_or("unknown".to_owned(), |it| it.to_string());
    let [syn, answer] = single.initial.map(initial);
    let side = SIDES[single.side & 1];
    format!("{side} of {client} -> {server}, initial sequence numbers {syn} and {answer}")
}

/// Writes its addresses and settings.
///
/// # Errors
/// Writing fails.
pub fn title(
    number: usize,
    single: &OneSided,
    json: bool,
    paint: Paint,
    out: &mut dyn Write,
) -> io::Result<()> {
    let side = SIDES[single.side & 1];
    if json {
        let [client, server] = single.addresses.map(|address| address.to_string());
        let line = RecordedEndOutput {
            kind: "recorded_end",
            connection: number,
            end: side,
            client,
            server,
            initial_sequence_numbers: single.initial,
            sysctls: &single.sysctls,
            socket: &single.socket,
            mtu_bytes: single.mtu,
        };
        return writeln!(out, "{}", value(&line));
    }
    let title = format!("end {number}: {}", name(single));
    writeln!(out, "\n{}", paint.bold(&title))?;
    let values = single.sysctls.iter().chain(&single.socket);
    let values: Vec<String> = values
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let line = format!(
        "  {side} settings: {}, mtu={}",
        plain(&values.join(", ")),
        single.mtu
    );
    writeln!(out, "{}", paint.dim(&line))
}

/// Writes the packets that identify it.
///
/// # Errors
/// Writing fails.
pub fn packets(
    number: usize,
    single: &OneSided,
    json: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let side = SIDES[single.side & 1];
    for (way, all) in [("sent", &single.sent), ("came", &single.came)] {
        for (place, packet) in all.iter().enumerate() {
            if json {
                let line = PacketOutput {
                    kind: "packet",
                    connection: number,
                    end: side,
                    way,
                    packet: place,
                    run: packet.run,
                    identification: packet.id,
                    begins: packet.begins,
                    length: packet.length,
                    mark: packet.mark,
                };
                writeln!(out, "{}", value(&line))?;
                continue;
            }
            let Packet {
                run,
                id,
                begins,
                length,
                mark,
            } = packet;
            let mark = match mark {
                0 => String::new(),
                mark => format!(", mark {mark:08x}"),
            };
            let to = begins.wrapping_add(*length);
            writeln!(
                out,
                "  {side} {way} {place} in run {run}: identification {id}, {begins} to {to}{mark}"
            )?;
        }
    }
    Ok(())
}

/// A note on one-sided recordings, and what they need; `None`: there are none.
pub fn note(recording: &Recording) -> Option<String> {
    let count = recording.one_sided.len();
    (count > 0).then(|| {
        format!(
            "{count} ends whose other end is on another machine: slowpath replay takes both machines' recordings"
        )
    })
}

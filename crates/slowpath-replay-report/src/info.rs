// SPDX-License-Identifier: Apache-2.0
//! How much a recording holds of what.

use crate::output::{
    ColumnOutput, DamageOutput, GapOutput, InfoOutput, OriginOutput, SizesOutput, value,
};
use crate::{SIDES, ends, lost, one_sided};
use serde_json::Value;
use slowpath_model::WallMicros;
use slowpath_recording::{Damage, Decoded, End, Origin, Recording, Size, Sizes, VERSION};
use slowpath_text::{Columns, Paint, bytes as size, count, plain, wall};
use std::io::Write;

#[derive(Default)]
struct Counted {
    runs: u64,
    outcomes: u64,
    samples: u64,
    /// Runs whose times are near the true ones.
    near: u64,
}

impl Counted {
    fn of(recording: &Recording) -> Counted {
        let mut counted = Counted::default();
        let single = recording.one_sided.iter().map(|it| &it.end);
        for end in recording
            .connections
            .iter()
            .flat_map(|c| &c.ends)
            .chain(single)
        {
            counted.runs += end.runs.len() as u64;
            if end.within > 0 {
                counted.near += end.runs.len() as u64;
            }
            counted.outcomes += end
                .runs
                .iter()
                .map(|run| run.outcomes.len() as u64)
                .sum::<u64>();
            counted.samples += end
                .sent
                .as_ref()
                .map_or(0, |sent| sent.samples.len() as u64);
        }
        counted
    }
}

/// A share of something, if there is any.
fn each(bytes: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| bytes as f64 / of as f64)
}

/// Where it comes from, in a line.
pub fn origin(origin: &Origin) -> String {
    let (recorder, kernel) = (plain(origin.recorder.name()), plain(&origin.kernel));
    format!(
        "recorded by {recorder} on Linux {kernel} at {} ticks a second, format {VERSION}",
        origin.hz
    )
}

/// Where it comes from, as JSON.
pub fn origin_json(origin: &Origin) -> Value {
    value(&origin_output(origin))
}

fn origin_output(origin: &Origin) -> OriginOutput {
    OriginOutput {
        kind: "recording",
        format: VERSION,
        recorder: origin.recorder.name().to_owned(),
        kernel: origin.kernel.clone(),
        hz: origin.hz,
        epoch_ns: origin.epoch,
    }
}

/// When the first event was, by the wall clock.
fn began(recording: &Recording) -> Option<String> {
    let ends = recording.connections.iter().flat_map(|c| &c.ends);
    let first = ends
        .chain(recording.one_sided.iter().map(|it| &it.end))
        .filter_map(|end| end.runs.first())
        .map(|run| run.at)
        .min()?;
    let nanos = i128::from(recording.origin.epoch) + i128::from(first.0);
    i64::try_from(nanos / 1_000)
        .ok()
        .map(|micros| wall(WallMicros(micros)))
}

/// The damage of a file, in a sentence.
pub fn damaged(damage: &Damage) -> String {
    let mut parts = Vec::new();
    if damage.cut {
        parts.push("the recorder did not end it, or it was cut".to_owned());
    }
    for (number, what) in [
        (damage.stretches, "damaged stretches"),
        (damage.bytes, "damaged bytes"),
        (damage.missing, "frames missing"),
        (damage.repeated, "frames a second time or late, left out"),
        (
            damage.unknown,
            "frames of a kind this version does not know",
        ),
        (
            damage.orphans,
            "parts of connections whose beginning is lost",
        ),
    ] {
        if number > 0 {
            parts.push(format!("{} {what}", count(number)));
        }
    }
    format!("it is not whole: {}", parts.join("; "))
}

fn gaps(recording: &Recording) -> impl Iterator<Item = (usize, usize, &End)> {
    let connections = recording.connections.iter().enumerate();
    let single = (recording.connections.len()..).zip(&recording.one_sided);
    let single = single.filter(|(_, it)| it.end.gap.is_some());
    let single = single.map(|(number, it)| (number, it.side & 1, &it.end));
    let both = connections.flat_map(|(number, connection)| {
        let ends = connection.ends.iter().enumerate();
        ends.filter(|(_, end)| end.gap.is_some())
            .map(move |(place, end)| (number, place, end))
    });
    both.chain(single)
}

/// As a JSON object.
pub fn json(whole: &Decoded, sizes: &Sizes) -> Value {
    let Decoded { recording, damage } = whole;
    let counted = Counted::of(recording);
    let gaps = gaps(recording).map(|(connection, place, end)| GapOutput {
        connection,
        end: SIDES[place],
        replayable_runs: end.gap,
        lost_runs: lost(end),
    });
    let column = |size: &Size| ColumnOutput {
        plain_bytes: size.plain,
        bytes: size.kept,
    };
    let columns = sizes.columns.iter();
    let impossible = recording.validate().err();
    value(&InfoOutput {
        origin: origin_output(&recording.origin),
        began: began(recording),
        connections: recording.connections.len(),
        ends_alone: recording.one_sided.len(),
        joined: (recording.connections.iter())
            .filter(|it| it.joint.is_some())
            .count(),
        runs: counted.runs,
        outcomes: counted.outcomes,
        samples: counted.samples,
        near_runs: counted.near,
        sizes: SizesOutput {
            bytes: sizes.file,
            bytes_per_run: each(sizes.file, counted.runs),
            frames: sizes.frames,
            framing_bytes: sizes.framing,
            connections_bytes: sizes.connections,
            totals_bytes: sizes.totals,
            packets_bytes: sizes.packets,
            columns: columns.map(|(name, size)| (*name, column(size))).collect(),
        },
        possible: impossible.is_none(),
        impossible: impossible.map(|reason| reason.to_string()),
        gaps: gaps.collect(),
        damage: DamageOutput {
            cut: damage.cut,
            stretches: damage.stretches,
            bytes: damage.bytes,
            missing_frames: damage.missing,
            repeated_frames: damage.repeated,
            unknown_frames: damage.unknown,
            orphans: damage.orphans,
        },
    })
}

/// Writes it as text.
///
/// # Errors
/// Writing fails.
pub fn write(
    whole: &Decoded,
    sizes: &Sizes,
    paint: Paint,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let Decoded { recording, damage } = whole;
    let counted = Counted::of(recording);
    writeln!(out, "{}", paint.bold(&origin(&recording.origin)))?;
    if let Some(began) = began(recording) {
        writeln!(out, "began {began}")?;
    }
    let connections = recording.connections.len() as u64;
    writeln!(
        out,
        "{} connections, {} runs, {} outcomes, {} samples",
        count(connections),
        count(counted.runs),
        count(counted.outcomes),
        count(counted.samples)
    )?;
    if let Some(single) = one_sided::note(recording) {
        writeln!(out, "{single}")?;
    }
    if counted.near > 0 {
        let near = count(counted.near);
        writeln!(
            out,
            "{near} runs with times near the true ones, the others with exact ones"
        )?;
    }
    let each = each(sizes.file, counted.runs);
    let each = each.map_or(String::new(), |each| format!(", {each:.2} bytes a run"));
    writeln!(
        out,
        "{} in {} frames{each}",
        size(sizes.file),
        count(sizes.frames)
    )?;
    if let Err(reason) = recording.validate() {
        writeln!(out, "not possible, and not to be replayed: {reason}")?;
    }
    if !damage.is_none() {
        writeln!(out, "{}", damaged(damage))?;
    }
    for (number, place, end) in gaps(recording) {
        let missing = match lost(end) {
            Some(lost) => format!("{} missing", count(lost)),
            None => "unknown how many missing".to_owned(),
        };
        let first = recording.connections.len();
        let connection = match recording.connections.get(number) {
            Some(connection) => ends(connection),
            None => one_sided::name(&recording.one_sided[number - first]),
        };
        writeln!(
            out,
            "connection {number} ({connection}), {}: not replayable after event {}, {missing}",
            SIDES[place],
            end.gap.unwrap_or(0)
        )?;
    }
    write_sizes(sizes, paint, out)
}

/// What takes how many bytes.
fn write_sizes(sizes: &Sizes, paint: Paint, out: &mut dyn Write) -> std::io::Result<()> {
    let mut table = Columns::new(&["what", ">bytes", ">before compression"]);
    table.row(["framing".to_owned(), count(sizes.framing), String::new()]);
    table.row([
        "connections".to_owned(),
        count(sizes.connections),
        String::new(),
    ]);
    table.row(["totals".to_owned(), count(sizes.totals), String::new()]);
    if sizes.packets > 0 {
        let packets = count(sizes.packets);
        table.row([
            "packets of one-sided ends".to_owned(),
            packets,
            String::new(),
        ]);
    }
    for (name, size) in sizes.columns.iter().filter(|(_, size)| size.plain > 0) {
        table.row([(*name).to_owned(), count(size.kept), count(size.plain)]);
    }
    for line in table.lines(2, paint) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

// SPDX-License-Identifier: Apache-2.0
//! Reports of connections captured at both ends: true losses and one-way times.

use super::analysis::Selected;
use super::csv::name;
use super::selector::end;
use super::{CaptureReport, RankedConnection};
use crate::engine::{self, Progress};
use crate::pair::{Delays, Likeness, PairError, Paired, Recorder, Recording, pair};
use crate::read::{Inputs, ReadError};
use crate::segment::{Endpoint, Flags, Segment};
use crate::tcp::Side;
use slowpath_model::Micros;
use slowpath_text::{Columns, Paint, plural};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::time::Duration;

/// A connection in both captures.
pub struct PairedConnection {
    /// Its number in the first capture.
    pub number: u64,
    /// What became of its segments, or why that is not known.
    pub paired: Result<Paired, PairError>,
}

/// Records the connections whose first segment is `wanted`, by their first frames.
fn record(
    inputs: Inputs,
    options: &engine::Options,
    wanted: impl Fn(&Segment<'_>) -> bool + Sync,
    progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<BTreeMap<u64, Recording>, ReadError> {
    let mut recordings = BTreeMap::new();
    engine::run(
        inputs,
        options,
        |first, _| match wanted(first) {
            true => Selected::Follow(Box::new(Recorder::new(first))),
            false => Selected::Skip,
        },
        |finished| {
            recordings.extend(finished.report.map(|r| (finished.first_frame, r)));
        },
        progress,
    )?;
    Ok(recordings)
}

type Ends = (Endpoint, Endpoint);

fn ends(a: Endpoint, b: Endpoint) -> Ends {
    (a.min(b), a.max(b))
}

/// Pairs connections of one capture with those of the `other`, which is read to its end.
/// `any`: looks at all connections of the other, whatever their addresses and numbers, which may
/// have been rewritten.
///
/// # Errors
/// A capture cannot be read.
pub fn read<P: FnMut(Progress) -> ControlFlow<()>>(
    chosen: &[RankedConnection],
    captures: [Inputs; 2],
    options: &engine::Options,
    any: bool,
    mut progress: impl FnMut() -> P,
) -> Result<Vec<PairedConnection>, ReadError> {
    let [own, other] = captures;
    let firsts: BTreeSet<u64> = chosen.iter().map(|n| n.finished.first_frame).collect();
    let wanted = |first: &Segment<'_>| firsts.contains(&first.frame);
    let mine = record(own, options, wanted, progress())?;
    let tuples: BTreeSet<Ends> = mine.values().map(|r| ends(r.client, r.server)).collect();
    let initial: BTreeSet<u32> = mine.values().flat_map(|r| r.initial).flatten().collect();
    let wanted = |first: &Segment<'_>| {
        any || tuples.contains(&ends(first.source, first.destination))
            || first.flags.any(Flags::SYN) && initial.contains(&first.sequence)
    };
    let theirs = record(other, options, wanted, progress())?;
    let paired = chosen.iter().filter_map(|ranked| {
        let mine = mine.get(&ranked.finished.first_frame)?;
        let tries = theirs.values().map(|theirs| pair(mine, theirs));
        // Of several on the same ports the one that shares most.
        let best = tries.max_by_key(|paired| match paired {
            Ok(p) => (2, p.from_client.arrived + p.from_server.arrived),
            Err(PairError::Different) => (0, 0),
            Err(_) => (1, 0),
        });
        Some(PairedConnection {
            number: ranked.number,
            paired: best.unwrap_or(Err(PairError::Different)),
        })
    });
    Ok(paired.collect())
}

fn signed(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    format!("{sign}{}", Micros(nanos.unsigned_abs() / 1000))
}

/// Writes them for a person.
pub fn write(
    all: &[PairedConnection],
    report: &CaptureReport,
    paint: Paint,
    out: &mut dyn Write,
) -> io::Result<()> {
    for both in all {
        let Some(ranked) = report.connections.iter().find(|n| n.number == both.number) else {
            continue;
        };
        let r = ranked.report();
        writeln!(out)?;
        let title = format!(
            "#{} {} -> {}, both ends",
            both.number,
            end(r.client),
            end(r.server)
        );
        writeln!(out, "{}", paint.bold(&title))?;
        match &both.paired {
            Ok(paired) => one(paired, paint, out)?,
            Err(error) => writeln!(out, "  {error}")?,
        }
    }
    Ok(())
}

fn one(paired: &Paired, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    let which = if paired.first_is_client {
        "second"
    } else {
        "first"
    };
    let clock = &paired.clock;
    writeln!(
        out,
        "  the server side is the {which} capture, by {}; its clock is ahead by {} +- {}, drift {:.1} +- {:.1} ppm",
        by(paired.likeness),
        signed(clock.offset),
        Micros::from(clock.uncertainty),
        clock.drift_ppm,
        clock.drift_uncertainty_ppm,
    )?;
    let mut columns = Columns::new(&[
        "sent by",
        ">segments",
        ">lost",
        ">share",
        ">reordered",
        ">one way, least",
        ">median",
        ">95 %",
        ">most",
    ]);
    for side in [Side::Client, Side::Server] {
        let path = paired.sent_by(side);
        let delay = |of: fn(&Delays) -> Duration| {
            path.delays
                .map_or("-".to_owned(), |d| Micros::from(of(&d)).to_string())
        };
        columns.row([
            name(side).to_owned(),
            path.sent.to_string(),
            path.lost_count.to_string(),
            format!("{:.2} %", path.loss_rate() * 100.0),
            path.reordered.to_string(),
            delay(|d| d.least),
            delay(|d| d.median),
            delay(|d| d.high),
            delay(|d| d.most),
        ]);
    }
    for line in columns.lines(2, paint) {
        writeln!(out, "{line}")?;
    }
    for side in [Side::Client, Side::Server] {
        let path = paired.sent_by(side);
        if path.unsent + path.outside > 0 {
            writeln!(
                out,
                "  of the {}'s, {} lay outside the other capture's time; {} are in the receiver's capture only",
                name(side),
                plural(path.outside, "segment"),
                path.unsent
            )?;
        }
    }
    Ok(())
}

/// By what two connections are one, in words.
pub(super) fn by(likeness: Likeness) -> &'static str {
    match likeness {
        Likeness::FourTuple => "addresses and ports",
        Likeness::SequenceNumbers => "initial sequence numbers",
        Likeness::Lengths => "lengths and IP identifications",
    }
}

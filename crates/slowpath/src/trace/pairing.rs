// SPDX-License-Identifier: Apache-2.0
//! The other end's capture beside ours: what was really lost, and one-way times.

use super::args::Trace;
use super::csv::name;
use super::error::TraceError;
use super::fields::micros;
use super::input::Source;
use super::select::end;
use super::work::{Bar, Wanted};
use super::{Numbered, Report};
use crate::render::{Columns, Paint, plural};
use serde_json::{Value, json};
use slowpath_model::Micros;
use slowpath_trace::engine;
use slowpath_trace::pair::{Delays, Likeness, PairError, Paired, Path, Recorder, Recording, pair};
use slowpath_trace::segment::{Endpoint, Flags, Segment};
use slowpath_trace::tcp::Side;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::Duration;

/// A connection in both captures.
pub struct InBoth {
    /// Its number in the first capture.
    pub number: u64,
    /// What became of its segments, or why that cannot be told.
    pub paired: Result<Paired, PairError>,
}

/// Records the connections whose first segment is `wanted`, by their first frames.
fn record(
    source: &mut Source,
    options: &engine::Options,
    wanted: impl Fn(&Segment<'_>) -> bool + Sync,
) -> Result<BTreeMap<u64, Recording>, TraceError> {
    let mut recordings = BTreeMap::new();
    let mut bar = Bar::new("pairing");
    engine::run(
        source.inputs()?,
        options,
        |first, _| match wanted(first) {
            true => Wanted::Yes(Box::new(Recorder::new(first))),
            false => Wanted::No,
        },
        |finished| {
            recordings.extend(finished.report.map(|r| (finished.first_frame, r)));
        },
        |progress| bar.at(progress),
    )?;
    Ok(recordings)
}

type Ends = (Endpoint, Endpoint);

fn ends(a: Endpoint, b: Endpoint) -> Ends {
    (a.min(b), a.max(b))
}

/// Pairs the listed connections with those of the other capture.
pub fn read(
    args: &Trace,
    source: &mut Source,
    other: &mut Source,
    options: &engine::Options,
    report: &Report,
) -> Result<Vec<InBoth>, TraceError> {
    let chosen: Vec<&Numbered> = report.connections.iter().take(args.top).collect();
    let firsts: BTreeSet<u64> = chosen.iter().map(|n| n.finished.first_frame).collect();
    let mine = record(source, options, |first| firsts.contains(&first.frame))?;
    let tuples: BTreeSet<Ends> = mine.values().map(|r| ends(r.client, r.server)).collect();
    let initial: BTreeSet<u32> = mine.values().flat_map(|r| r.initial).flatten().collect();
    // Addresses and numbers may have been rewritten; all are kept only where one was asked for.
    let any = args.connection.is_some();
    let theirs = record(other, options, |first| {
        any || tuples.contains(&ends(first.source, first.destination))
            || first.flags.any(Flags::SYN) && initial.contains(&first.sequence)
    })?;
    let paired = chosen.iter().filter_map(|numbered| {
        let mine = mine.get(&numbered.finished.first_frame)?;
        let tries = theirs.values().map(|theirs| pair(mine, theirs));
        // Of several on the same ports the one that shares most.
        let best = tries.max_by_key(|paired| match paired {
            Ok(p) => (2, p.from_client.arrived + p.from_server.arrived),
            Err(PairError::Different) => (0, 0),
            Err(_) => (1, 0),
        });
        Some(InBoth {
            number: numbered.number,
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
pub fn write(all: &[InBoth], report: &Report, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    for both in all {
        let Some(numbered) = report.connections.iter().find(|n| n.number == both.number) else {
            continue;
        };
        let r = numbered.report();
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

fn by(likeness: Likeness) -> &'static str {
    match likeness {
        Likeness::FourTuple => "addresses and ports",
        Likeness::SequenceNumbers => "initial sequence numbers",
        Likeness::Lengths => "lengths and IP identifications",
    }
}

/// One object a connection.
pub fn json(both: &InBoth) -> Value {
    let path = |path: &Path| {
        let delays = path.delays.map(|d| {
            json!({
                "count": d.count,
                "least_us": micros(d.least),
                "median_us": micros(d.median),
                "p95_us": micros(d.high),
                "most_us": micros(d.most),
            })
        });
        json!({
            "sent": path.sent,
            "arrived": path.arrived,
            "rejoined": path.rejoined,
            "lost": path.lost_count,
            "lost_bytes": path.lost_bytes,
            "loss_rate": path.loss_rate(),
            "lost_frames": path.lost.iter().map(|l| l.frame).collect::<Vec<_>>(),
            "outside": path.outside,
            "receiver_only": path.unsent,
            "reordered": path.reordered,
            "most_overtaken": path.most_overtaken,
            "one_way": delays,
        })
    };
    match &both.paired {
        Err(error) => json!({
            "type": "pair",
            "connection": both.number,
            "error": error.to_string(),
        }),
        Ok(p) => json!({
            "type": "pair",
            "connection": both.number,
            "error": null,
            "paired_by": by(p.likeness),
            "first_is_client": p.first_is_client,
            "server_clock_ahead_us": p.clock.offset as f64 / 1000.0,
            "server_clock_uncertainty_us": micros(p.clock.uncertainty),
            "drift_ppm": p.clock.drift_ppm,
            "drift_uncertainty_ppm": p.clock.drift_uncertainty_ppm,
            "from_client": path(&p.from_client),
            "from_server": path(&p.from_server),
        }),
    }
}

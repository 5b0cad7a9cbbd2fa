// SPDX-License-Identifier: Apache-2.0
//! The payload of a frame of runs: pieces of many ends, their values in columns.
//!
//! A frame is read without the frames before it.

mod column;
mod gaps;
mod model;
#[cfg(test)]
mod random;
mod samples;
mod shape;
mod ticks;

pub use column::Size;
pub(super) use column::{MAX_BYTES, compress, decompress, sizes};
pub(super) use gaps::{Gaps, Kind};
pub(super) use shape::MAX_OUTCOMES;
pub(super) use ticks::later;

use super::error::{EncodeError, Nonsense};
use super::varint::{put, put_signed};
use super::{CHECKED, Handler, Moment, Run};
use crate::sampling::Sample;
use column::{Column, Dense, Plain, Reading, Sparse, Writing};
use ticks::Ticks;

/// Runs, outcomes and samples that a frame holds at most, in all.
pub(super) const MAX_EVENTS: usize = 1 << 20;

/// Some runs of one end, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece<R> {
    pub(super) connection: u32,
    pub(super) end: usize,
    /// Runs of this end before these, without those that were lost.
    pub(super) first: u64,
    /// The number of this piece's runs before a gap, and of those that were lost there.
    pub(super) gap: Option<(u64, u64)>,
    /// The packet that is expected first.
    pub(super) expected: u64,
    pub(super) runs: R,
    /// The unit that its times have where they are near the true ones; 0: they are those.
    pub(super) near: u64,
    /// Samples of sent packets, where times are sampled; and how many there were before.
    pub(super) sampled: Option<(u64, Vec<Sample>)>,
}

/// A piece as it is read.
pub(super) type ReadPiece = Piece<Vec<Run>>;

/// A frame as it is read.
pub(super) struct Block {
    pub(super) pieces: Vec<ReadPiece>,
    /// What its columns took.
    pub(super) bytes: usize,
}

impl<R: AsRef<[Run]>> Piece<R> {
    /// What it counts against the limits.
    pub(super) fn events(&self) -> usize {
        let runs = self.runs.as_ref();
        let outcomes: usize = runs.iter().map(|run| run.outcomes.len()).sum();
        let samples = self
            .sampled
            .as_ref()
            .map_or(0, |(_, samples)| samples.len());
        1 + runs.len() + outcomes + samples
    }
}

/// What earlier pieces of the frame predict of the next one.
struct Before {
    connection: u32,
    /// When the first run of the last piece was.
    at: u64,
    /// The ticks of the last piece of such an end: those of the same host often.
    ticks: [Ticks; 2],
}

impl Before {
    fn new(hz: u32) -> Before {
        let none = Ticks::new(Moment(0), 0, hz);
        Before {
            connection: 0,
            at: 0,
            ticks: [none.clone(), none],
        }
    }
}

const HAS_GAP: u8 = 2;
const HAS_SAMPLES: u8 = 4;
/// Its times are near the true ones: their gaps are range-coded.
const IS_NEAR: u8 = 8;
/// Each run has its check, not only one of [`CHECKED`](crate::CHECKED).
const HAS_CHECKS: u8 = 16;
const FLAGS: u8 = 1 | HAS_GAP | HAS_SAMPLES | IS_NEAR | HAS_CHECKS;

/// Encodes pieces.
pub(super) fn encode(
    pieces: &[Piece<&[Run]>],
    hz: u32,
    level: i32,
) -> Result<Vec<u8>, EncodeError> {
    let mut out = Writing::default();
    let mut before = Before::new(hz);
    put(&mut out[Column::Pieces], pieces.len() as u64);
    let mut times = Times::default();
    for piece in pieces {
        put_piece(piece, &mut before, &mut times, &mut out);
    }
    out[Column::NearTimes] = times.finish();
    shape::put_shapes(pieces.iter().map(|piece| piece.runs), &mut out);
    out.compressed(level)
}

/// The gaps between runs whose times are near the true ones; nothing where there are none.
#[derive(Default)]
struct Times(Option<(Gaps, model::Encoder)>);

impl Times {
    fn put(&mut self, runs: &[Run], unit: u64) {
        let (gaps, coder) = self
            .0
            .get_or_insert_with(|| (Gaps::new(), model::Encoder::new()));
        for (place, pair) in runs.windows(2).enumerate() {
            if place == 0 {
                gaps.begin(unit, Kind::of(&pair[0]));
            }
            gaps.next(
                Kind::of(&pair[1]),
                runs.get(place + 2).map_or(Kind::NONE, Kind::of),
            );
            gaps.encode(units(pair, unit), coder);
        }
    }

    fn finish(self) -> Vec<u8> {
        self.0.map_or_else(Vec::new, |(_, coder)| coder.finish())
    }
}

/// Whole units between two runs.
fn units(pair: &[Run], unit: u64) -> i64 {
    // The quotient of a 64-bit number by one that is at least 1.
    (i128::from(since(pair[0].at, pair[1].at)) / i128::from(unit.max(1))) as i64
}

fn put_piece(piece: &Piece<&[Run]>, before: &mut Before, times: &mut Times, out: &mut Writing) {
    let gap = if piece.gap.is_some() { HAS_GAP } else { 0 };
    let samples = if piece.sampled.is_some() {
        HAS_SAMPLES
    } else {
        0
    };
    let head = &mut out[Column::Pieces];
    let near = if piece.near > 0 { IS_NEAR } else { 0 };
    let dense = piece.near == 0 && piece.sampled.is_none() && has_checks(piece.runs);
    let checks = if dense { HAS_CHECKS } else { 0 };
    head.push(piece.end as u8 | gap | samples | near | checks);
    let on = i64::from(piece.connection) - i64::from(before.connection);
    before.connection = piece.connection;
    put_signed(head, on);
    put(head, piece.first);
    put(head, piece.runs.len() as u64);
    if let Some((after, lost)) = piece.gap {
        put(head, after);
        put(head, lost);
    }
    if let Some((earlier, samples)) = &piece.sampled {
        put(head, *earlier);
        put(head, samples.len() as u64);
    }
    if let Some(first) = piece.runs.first() {
        put(head, piece.expected);
        put_times(
            first,
            piece,
            &mut before.ticks[piece.end],
            before.at,
            times,
            out,
        );
        before.at = first.at.0;
        put_packets(piece, out);
    }
    for (place, run) in piece.runs.iter().enumerate() {
        if dense || is_checked(piece.first, place) {
            // A recorder that has checks has all of them.
            out[Column::Checks].push(run.check.unwrap_or(0) as u8);
        }
    }
    if let Some((_, samples)) = &piece.sampled {
        samples::put_samples(samples, before.at, out);
    }
}

/// The largest unit of which all times between runs are multiples; 0: there are none, or they are 0.
fn common_unit(runs: &[Run]) -> u64 {
    let gaps = runs.windows(2);
    gaps.map(|pair| since(pair[0].at, pair[1].at).unsigned_abs())
        .fold(0, common_divisor)
}

/// A time in units, and what is left of it.
fn put_on_grid(nanos: i64, unit: u64, out: &mut Vec<u8>) {
    let (nanos, grid) = (i128::from(nanos), i128::from(unit.max(1)));
    put(out, unit);
    // The quotient of a 64-bit number, and less than a unit.
    put_signed(out, nanos.div_euclid(grid) as i64);
    put(out, nanos.rem_euclid(grid) as u64);
}

/// Whether all runs have their checks.
pub(super) fn has_checks(runs: &[Run]) -> bool {
    !runs.is_empty() && runs.iter().all(|run| run.check.is_some())
}

/// Whether a run at that place of a piece keeps its check where few do.
fn is_checked(first: u64, place: usize) -> bool {
    first.wrapping_add(place as u64) % CHECKED as u64 == CHECKED as u64 - 1
}

/// Times and ticks.
fn put_times(
    first: &Run,
    piece: &Piece<&[Run]>,
    before: &mut Ticks,
    at: u64,
    times: &mut Times,
    out: &mut Writing,
) {
    let runs = piece.runs;
    let clocks = &mut out[Column::Clocks];
    let mut unit = common_unit(runs);
    if piece.near > 0 && unit.is_multiple_of(piece.near) {
        // As most have it.
        unit = piece.near;
    }
    match piece.near {
        0 => put_signed(clocks, since(Moment(at), first.at)),
        _ => put_on_grid(since(Moment(at), first.at), unit, clocks),
    }
    put_signed(clocks, before.differ_at(first).into());
    let mut ticks = Ticks::new(first.at, first.jiffies, before.hz());
    let mut sparse = Sparse::new(Column::TickPlaces, Column::Ticks);
    if piece.sampled.is_some() {
        let mut jiffies = first.jiffies;
        for run in runs {
            let more = run.jiffies.wrapping_sub(jiffies) as i32;
            sparse.push(more.into(), out);
            jiffies = run.jiffies;
        }
    } else {
        let usual = before.phase_at(first.at);
        let phase = ticks.fit(runs, usual);
        if piece.near == 0 {
            put(clocks, unit.max(1));
        }
        put_signed(clocks, phase.wrapping_sub(usual) as i64);
        if piece.near > 0 {
            times.put(runs, unit);
        } else {
            for pair in runs.windows(2) {
                put_signed(&mut out[Column::Times], units(pair, unit));
            }
        }
        for run in runs {
            sparse.push(ticks.differ(run).into(), out);
        }
    }
    sparse.end(out);
    *before = ticks;
}

fn put_packets(piece: &Piece<&[Run]>, out: &mut Writing) {
    let mut expected = piece.expected;
    let mut sparse = Sparse::new(Column::NumberPlaces, Column::Numbers);
    for run in piece.runs {
        if let Handler::Packet { number, merged, .. } = run.handler {
            sparse.push(i64::from(number).wrapping_sub(expected as i64), out);
            expected = after(expected, number, merged);
        }
    }
    sparse.end(out);
}

fn since(before: Moment, after: Moment) -> i64 {
    after.0.wrapping_sub(before.0) as i64
}

fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Which packet is expected after that one: the one after the newest that came.
pub(super) fn after(expected: u64, number: u32, merged: u16) -> u64 {
    expected.max(u64::from(number) + u64::from(merged))
}

/// Counts events against what the frame may still have.
fn spend(left: &mut usize, events: usize) -> Result<(), Nonsense> {
    *left = left.checked_sub(events).ok_or(Nonsense::Frame)?;
    Ok(())
}

/// Decodes pieces.
pub(super) fn decode(payload: &[u8], hz: u32) -> Result<Block, Nonsense> {
    let columns = Plain::of(payload)?;
    let mut from = columns.read();
    let times = match from[Column::NearTimes].rest() {
        [] => None,
        some => Some((Gaps::new(), model::Decoder::new(some)?, some)),
    };
    let mut decoder = Decoder {
        shapes: shape::Reader::new(&mut from)?,
        times,
        from,
        before: Before::new(hz),
        hz,
        events: MAX_EVENTS,
    };
    let count = decoder.from[Column::Pieces].number()?;
    let mut pieces = Vec::new();
    for _ in 0..count {
        spend(&mut decoder.events, 1)?;
        pieces.push(decoder.piece()?);
    }
    decoder.shapes.end()?;
    if let Some((_, coder, bytes)) = &decoder.times {
        coder.end(bytes)?;
    }
    decoder.from.end()?;
    Ok(Block {
        pieces,
        bytes: columns.bytes(),
    })
}

/// The moment that is `units` after `at`.
fn further(at: Moment, units: i64, unit: u64, column: Column) -> Result<Moment, Nonsense> {
    let nanos = i64::try_from(i128::from(units) * i128::from(unit));
    let nanos = nanos.map_err(|_| Nonsense::Large {
        what: column.name(),
    })?;
    Ok(Moment(at.0.wrapping_add(nanos as u64)))
}

struct Decoder<'a> {
    shapes: shape::Reader<'a>,
    /// Where there are gaps.
    times: Option<(Gaps, model::Decoder, &'a [u8])>,
    from: Reading<'a>,
    before: Before,
    hz: u32,
    /// Events that the frame may still have.
    events: usize,
}

impl Decoder<'_> {
    fn piece(&mut self) -> Result<ReadPiece, Nonsense> {
        let head = &mut self.from[Column::Pieces];
        let flags = head.byte()?;
        if flags > FLAGS {
            return Err(Nonsense::Unknown {
                what: "a piece's flags",
                number: flags.into(),
            });
        }
        let large = Nonsense::Large {
            what: Column::Pieces.name(),
        };
        let number = i64::from(self.before.connection).checked_add(head.signed()?);
        let number = number.and_then(|number| u32::try_from(number).ok());
        self.before.connection = number.ok_or(large)?;
        let mut piece = ReadPiece {
            connection: self.before.connection,
            end: usize::from(flags & 1),
            first: head.number()?,
            gap: None,
            expected: 0,
            near: u64::from(flags & IS_NEAR != 0),
            runs: Vec::new(),
            sampled: None,
        };
        let count = head.number()?;
        if flags & HAS_GAP != 0 {
            let gap = (head.number()?, head.number()?);
            if gap.0 > count {
                return Err(large);
            }
            piece.gap = Some(gap);
        }
        let sampled = match flags & HAS_SAMPLES {
            0 => None,
            _ => Some((head.number()?, head.number()?)),
        };
        if count > 0 {
            piece.expected = head.number()?;
            self.runs(&mut piece, count, flags)?;
        }
        if let Some((earlier, count)) = sampled {
            let base = self.before.at;
            let samples = samples::samples(count, base, &mut self.from, &mut self.events)?;
            piece.sampled = Some((earlier, samples));
        }
        Ok(piece)
    }

    fn runs(&mut self, piece: &mut ReadPiece, count: u64, flags: u8) -> Result<(), Nonsense> {
        let sampled = flags & HAS_SAMPLES != 0;
        let dense = flags & HAS_CHECKS != 0;
        let from = &mut self.from;
        let clocks = &mut from[Column::Clocks];
        let before = &mut self.before.ticks[piece.end];
        let mut unit = 0;
        let nanos = if piece.near > 0 {
            unit = clocks.number()?;
            let units = clocks.signed()? as u64;
            units
                .wrapping_mul(unit.max(1))
                .wrapping_add(clocks.number()?)
        } else {
            clocks.signed()? as u64
        };
        let at = Moment(self.before.at.wrapping_add(nanos));
        self.before.at = at.0;
        let jiffies = before.jiffies_at(at, clocks.signed()?);
        let mut ticks = Ticks::new(at, jiffies, self.hz);
        if !sampled {
            if piece.near == 0 {
                unit = clocks.number()?;
            }
            ticks.set(before.phase_at(at).wrapping_add(clocks.signed()? as u64));
        }
        let mut off = Dense::new(Column::TickPlaces, Column::Ticks, from)?;
        let mut numbers = Dense::new(Column::NumberPlaces, Column::Numbers, from)?;
        let mut expected = piece.expected;
        let mut left = shape::Left::default();
        for place in 0..count {
            let (plain, outcomes) = self.shapes.run(from)?;
            spend(&mut self.events, 1 + outcomes.len())?;
            let handler = plain.handler(&mut left, |merged| {
                let number = i128::from(expected) + i128::from(numbers.next(from)?);
                let number = u32::try_from(number).map_err(|_| Nonsense::Large {
                    what: Column::Numbers.name(),
                })?;
                expected = after(expected, number, merged);
                Ok(number)
            })?;
            let check = match dense || is_checked(piece.first, place as usize) {
                true => Some(from[Column::Checks].byte()?.into()),
                false => None,
            };
            piece.runs.push(Run {
                at,
                jiffies,
                handler,
                outcomes,
                check,
            });
        }
        numbers.end()?;
        if sampled {
            let mut last = (at, jiffies);
            for run in &mut piece.runs {
                let more = off.next(from)?;
                last = (
                    later(last.0, more as i32, self.hz),
                    last.1.wrapping_add(more as u32),
                );
                (run.at, run.jiffies) = last;
            }
        } else {
            match piece.near {
                0 => self.times(&mut piece.runs, unit)?,
                _ => self.near_times(&mut piece.runs, unit)?,
            }
            for run in &mut piece.runs {
                run.jiffies = ticks.jiffies(run.at, off.next(&mut self.from)?);
            }
        }
        off.end()?;
        self.before.ticks[piece.end] = ticks;
        Ok(())
    }

    /// The times of runs after the first.
    fn times(&mut self, runs: &mut [Run], unit: u64) -> Result<(), Nonsense> {
        let mut at = runs.first().map_or(Moment(0), |run| run.at);
        for run in runs.iter_mut().skip(1) {
            let units = self.from[Column::Times].signed()?;
            at = further(at, units, unit, Column::Times)?;
            run.at = at;
        }
        Ok(())
    }

    /// The same where they are near the true ones.
    fn near_times(&mut self, runs: &mut [Run], unit: u64) -> Result<(), Nonsense> {
        let what = Column::NearTimes.name();
        let mut kinds = runs.iter().map(Kind::of).collect::<Vec<_>>().into_iter();
        let mut rest = runs.iter_mut();
        let (Some(first), Some(mut now)) = (rest.next(), kinds.next()) else {
            return Ok(());
        };
        let mut at = first.at;
        for (place, run) in rest.enumerate() {
            let (gaps, coder, bytes) = self.times.as_mut().ok_or(Nonsense::Short { what })?;
            if place == 0 {
                gaps.begin(unit, now);
                now = kinds.next().unwrap_or(Kind::NONE);
            }
            let later = kinds.next().unwrap_or(Kind::NONE);
            gaps.next(now, later);
            now = later;
            at = further(at, gaps.decode(coder, bytes)?, unit, Column::NearTimes)?;
            run.at = at;
        }
        Ok(())
    }
}

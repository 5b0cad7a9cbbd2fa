// SPDX-License-Identifier: Apache-2.0
//! The payload of a frame of runs: pieces of many ends, their columns after each other.
//!
//! Like values stand together, each column is compressed by itself. A piece is read without the pieces before it.

use super::error::{EncodeError, Nonsense};
use super::shape;
use super::ticks::{Ticks, later};
use super::varint::{Bytes, put, put_signed};
use super::{CHECKED, Handler, Moment, Run};
use crate::sampling::{Sample, Step};
use std::num::NonZeroU64;

/// Runs, outcomes and samples that a frame holds at most, together.
pub(super) const MAX_EVENTS: usize = 1 << 20;
/// Bytes of all columns of a frame, uncompressed, at most.
const MAX_COLUMNS: usize = 1 << 25;

/// Some runs of one end, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece<R> {
    pub(super) connection: u32,
    pub(super) end: usize,
    /// Runs of this end before these, without those that were lost.
    pub(super) first: u64,
    /// So many runs of this piece are before a gap, and so many were lost there.
    pub(super) gap: Option<(u64, u64)>,
    /// The packet that is expected first.
    pub(super) expected: u64,
    pub(super) runs: R,
    /// Samples of sent packets, where times are sampled; and how many there were before.
    pub(super) sampled: Option<(u64, Vec<Sample>)>,
}

/// A piece as it is read.
pub(super) type Read = Piece<Vec<Run>>;

/// A frame as it is read.
pub(super) struct Block {
    pub(super) pieces: Vec<Read>,
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

const COLUMNS: usize = 17;
/// What the columns are, for errors.
const NAMES: [&str; COLUMNS] = [
    "pieces",
    "patterns",
    "patterns of runs",
    "stretches of runs",
    "first numbers",
    "second numbers",
    "third numbers",
    "outcomes",
    "times",
    "places of ticks",
    "ticks",
    "places of packet numbers",
    "packet numbers",
    "checks",
    "sampled packets",
    "sampled times",
    "sampled steps",
];

#[derive(Default)]
struct Values {
    pieces: Vec<u8>,
    times: Vec<u8>,
    tick_places: Vec<u8>,
    ticks: Vec<u8>,
    number_places: Vec<u8>,
    numbers: Vec<u8>,
    checks: Vec<u8>,
    sampled: Vec<u8>,
    sampled_times: Vec<u8>,
    steps: Vec<u8>,
}

const HAS_GAP: u8 = 2;
const HAS_SAMPLES: u8 = 4;

/// Encodes pieces.
pub(super) fn encode(
    pieces: &[Piece<&[Run]>],
    hz: u32,
    level: i32,
) -> Result<Vec<u8>, EncodeError> {
    let mut values = Values::default();
    put(&mut values.pieces, pieces.len() as u64);
    for piece in pieces {
        values.piece(piece, hz);
    }
    let shapes = shape::Columns::of(pieces.iter().flat_map(|piece| piece.runs));
    let [first, second, third] = shapes.numbers;
    let columns: [Vec<u8>; COLUMNS] = [
        values.pieces,
        shapes.patterns,
        shapes.which,
        shapes.repeats,
        first,
        second,
        third,
        shapes.outcomes,
        values.times,
        values.tick_places,
        values.ticks,
        values.number_places,
        values.numbers,
        values.checks,
        values.sampled,
        values.sampled_times,
        values.steps,
    ];
    let mut out = Vec::new();
    for column in &columns {
        compress(column, level, &mut out)?;
    }
    Ok(out)
}

impl Values {
    fn piece(&mut self, piece: &Piece<&[Run]>, hz: u32) {
        let out = &mut self.pieces;
        let flags = piece.end as u8
            | if piece.gap.is_some() { HAS_GAP } else { 0 }
            | if piece.sampled.is_some() {
                HAS_SAMPLES
            } else {
                0
            };
        out.push(flags);
        put(out, piece.connection.into());
        put(out, piece.first);
        put(out, piece.runs.len() as u64);
        if let Some((after, lost)) = piece.gap {
            put(out, after);
            put(out, lost);
        }
        if let Some((before, samples)) = &piece.sampled {
            put(out, *before);
            put(out, samples.len() as u64);
            self.samples(samples);
        }
        if let Some(run) = piece.runs.first() {
            put(&mut self.pieces, piece.expected);
            self.runs(run, piece.runs, piece.sampled.is_some(), hz);
        }
        self.packets(piece);
        let checks = piece.runs.iter().map(|run| run.check as u8);
        match piece.sampled {
            None => self.checks.extend(checks),
            Some(_) => self
                .checks
                .extend(checks.skip(CHECKED - 1).step_by(CHECKED)),
        }
    }

    /// Times and ticks.
    fn runs(&mut self, first: &Run, runs: &[Run], sampled: bool, hz: u32) {
        let out = &mut self.pieces;
        put(out, first.at.0);
        put(out, first.jiffies.into());
        let mut ticks = Ticks::new(first, hz);
        let mut sparse = Sparse::default();
        if sampled {
            let mut jiffies = first.jiffies;
            for run in runs {
                let more = run.jiffies.wrapping_sub(jiffies) as i32;
                sparse.push(more.into(), &mut self.tick_places, &mut self.ticks);
                jiffies = run.jiffies;
            }
            sparse.end(&mut self.tick_places);
            return;
        }
        let unit = runs
            .windows(2)
            .map(|pair| since(pair[0].at, pair[1].at).unsigned_abs())
            .fold(0, common_divisor)
            .max(1);
        put(out, unit);
        put(out, ticks.fit(runs));
        for pair in runs.windows(2) {
            let units = i128::from(since(pair[0].at, pair[1].at)) / i128::from(unit);
            // The quotient of a 64-bit number by one that is at least 1.
            put_signed(&mut self.times, units as i64);
        }
        for run in runs {
            sparse.push(
                ticks.differ(run).into(),
                &mut self.tick_places,
                &mut self.ticks,
            );
        }
        sparse.end(&mut self.tick_places);
    }

    fn packets(&mut self, piece: &Piece<&[Run]>) {
        let mut expected = piece.expected;
        let mut sparse = Sparse::default();
        for run in piece.runs {
            if let Handler::Packet { number, merged, .. } = run.handler {
                let off = i64::from(number).wrapping_sub(expected as i64);
                sparse.push(off, &mut self.number_places, &mut self.numbers);
                expected = after(expected, number, merged);
            }
        }
        if !piece.runs.is_empty() {
            sparse.end(&mut self.number_places);
        }
    }

    fn samples(&mut self, samples: &[Sample]) {
        let mut before: Option<&Sample> = None;
        for (place, sample) in samples.iter().enumerate() {
            let (index, time) = before.map_or((0, 0), |b| (b.index, b.infer(sample.index)));
            put_signed(&mut self.sampled, sample.index.wrapping_sub(index) as i64);
            put_signed(
                &mut self.sampled_times,
                sample.time.wrapping_sub(time) as i64,
            );
            let packets = packets_of(sample.index, samples.get(place + 1).map(|s| s.index));
            let denominator = sample.step.denominator.get();
            put(&mut self.steps, denominator.wrapping_sub(packets));
            put(&mut self.steps, sample.step.numerator);
            before = Some(sample);
        }
    }
}

/// The denominator of a sample's step, as it usually is.
fn packets_of(index: u64, next: Option<u64>) -> u64 {
    next.map_or(1, |next| next.wrapping_sub(index).wrapping_sub(1).max(1))
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

/// Values that are nearly always zero: where they are not, and what they are.
#[derive(Default)]
struct Sparse {
    zeros: u64,
}

impl Sparse {
    fn push(&mut self, value: i64, places: &mut Vec<u8>, values: &mut Vec<u8>) {
        if value == 0 {
            self.zeros += 1;
            return;
        }
        put(places, self.zeros);
        put_signed(values, value);
        self.zeros = 0;
    }

    /// No more values: what is left are zeros.
    fn end(&self, places: &mut Vec<u8>) {
        put(places, self.zeros);
    }
}

/// The reverse: a value each call.
struct Dense<'b, 'a> {
    places: &'b mut Bytes<'a>,
    values: &'b mut Bytes<'a>,
    zeros: u64,
}

impl<'b, 'a> Dense<'b, 'a> {
    fn new(places: &'b mut Bytes<'a>, values: &'b mut Bytes<'a>) -> Result<Self, Nonsense> {
        let zeros = places.number()?;
        Ok(Dense {
            places,
            values,
            zeros,
        })
    }

    fn next(&mut self) -> Result<i64, Nonsense> {
        if self.zeros > 0 {
            self.zeros -= 1;
            return Ok(0);
        }
        self.zeros = self.places.number()?;
        self.values.signed()
    }

    fn end(self) -> Result<(), Nonsense> {
        match self.zeros {
            0 => Ok(()),
            _ => Err(Nonsense::Left { what: "places" }),
        }
    }
}

const RAW: u8 = 0;
const ZSTD: u8 = 1;

/// Appends a column: how it is kept, its length, its length as it is kept, and it.
pub(super) fn compress(column: &[u8], level: i32, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let packed = match column.len() {
        0..16 => None,
        _ => Some(zstd::bulk::compress(column, level).map_err(|_| EncodeError::Compression)?),
    };
    match packed {
        Some(packed) if packed.len() < column.len() => {
            out.push(ZSTD);
            put(out, column.len() as u64);
            put(out, packed.len() as u64);
            out.extend(packed);
        }
        _ => {
            out.push(RAW);
            put(out, column.len() as u64);
            out.extend(column);
        }
    }
    Ok(())
}

/// The reverse, within `budget` bytes.
pub(super) fn decompress(
    payload: &mut Bytes<'_>,
    budget: &mut usize,
    what: &'static str,
) -> Result<Vec<u8>, Nonsense> {
    let how = payload.byte()?;
    let length: usize = payload.narrow()?;
    *budget = budget.checked_sub(length).ok_or(Nonsense::Frame)?;
    match how {
        RAW => Ok(payload.take(length)?.to_vec()),
        ZSTD => {
            let packed = payload.narrow()?;
            let packed = payload.take(packed)?;
            // Gives no more than that, and takes no more memory.
            match zstd::bulk::decompress(packed, length) {
                Ok(column) if column.len() == length => Ok(column),
                _ => Err(Nonsense::Compression { what }),
            }
        }
        how => Err(Nonsense::Unknown {
            what: "compression",
            number: how.into(),
        }),
    }
}

/// How much all columns of a frame may take.
pub(super) const fn budget() -> usize {
    MAX_COLUMNS
}

struct Cursors<'a> {
    pieces: Bytes<'a>,
    shapes: shape::Reader<'a>,
    times: Bytes<'a>,
    tick_places: Bytes<'a>,
    ticks: Bytes<'a>,
    number_places: Bytes<'a>,
    numbers: Bytes<'a>,
    checks: Bytes<'a>,
    sampled: Bytes<'a>,
    sampled_times: Bytes<'a>,
    steps: Bytes<'a>,
    /// Events that the frame may still have.
    events: usize,
}

/// Counts events against what the frame may still have.
fn spend(left: &mut usize, events: usize) -> Result<(), Nonsense> {
    *left = left.checked_sub(events).ok_or(Nonsense::Frame)?;
    Ok(())
}

/// Decodes pieces.
pub(super) fn decode(payload: &[u8], hz: u32) -> Result<Block, Nonsense> {
    let mut payload = Bytes::new(payload, "columns");
    let mut budget = budget();
    let mut columns: [Vec<u8>; COLUMNS] = Default::default();
    for (column, name) in columns.iter_mut().zip(NAMES) {
        *column = decompress(&mut payload, &mut budget, name)?;
    }
    payload.end()?;
    let bytes = |place: usize| Bytes::new(&columns[place], NAMES[place]);
    let shapes = [2, 3, 4, 5, 6, 7].map(bytes);
    let mut cursors = Cursors {
        pieces: bytes(0),
        shapes: shape::Reader::new(bytes(1), shapes)?,
        times: bytes(8),
        tick_places: bytes(9),
        ticks: bytes(10),
        number_places: bytes(11),
        numbers: bytes(12),
        checks: bytes(13),
        sampled: bytes(14),
        sampled_times: bytes(15),
        steps: bytes(16),
        events: MAX_EVENTS,
    };
    let count = cursors.pieces.number()?;
    let mut pieces = Vec::new();
    for _ in 0..count {
        spend(&mut cursors.events, 1)?;
        pieces.push(cursors.piece(hz)?);
    }
    cursors.end()?;
    let bytes = columns.iter().map(Vec::len).sum();
    Ok(Block { pieces, bytes })
}

impl Cursors<'_> {
    fn piece(&mut self, hz: u32) -> Result<Read, Nonsense> {
        let from = &mut self.pieces;
        let flags = from.byte()?;
        if flags > 1 | HAS_GAP | HAS_SAMPLES {
            return Err(Nonsense::Unknown {
                what: "a piece's flags",
                number: flags.into(),
            });
        }
        let mut piece = Read {
            connection: from.narrow()?,
            end: usize::from(flags & 1),
            first: from.number()?,
            gap: None,
            expected: 0,
            runs: Vec::new(),
            sampled: None,
        };
        let count = from.number()?;
        if flags & HAS_GAP != 0 {
            let gap = (from.number()?, from.number()?);
            if gap.0 > count {
                return Err(Nonsense::Large { what: "a gap" });
            }
            piece.gap = Some(gap);
        }
        if flags & HAS_SAMPLES != 0 {
            let before = from.number()?;
            let samples = from.number()?;
            piece.sampled = Some((before, self.samples(samples)?));
        }
        if count > 0 {
            piece.expected = self.pieces.number()?;
            self.runs(&mut piece, count, hz)?;
        }
        Ok(piece)
    }

    fn samples(&mut self, count: u64) -> Result<Vec<Sample>, Nonsense> {
        let mut samples: Vec<Sample> = Vec::new();
        let mut steps = Vec::new();
        for _ in 0..count {
            spend(&mut self.events, 1)?;
            let before = samples.last().map_or(0, |last| last.index);
            let index = before.wrapping_add(self.sampled.signed()? as u64);
            samples.push(Sample {
                index,
                time: 0,
                step: Step::ZERO,
            });
            steps.push((self.steps.number()?, self.steps.number()?));
        }
        let indices: Vec<u64> = samples.iter().map(|sample| sample.index).collect();
        let mut before: Option<Sample> = None;
        for (place, sample) in samples.iter_mut().enumerate() {
            let packets = packets_of(sample.index, indices.get(place + 1).copied());
            let (denominator, numerator) = steps[place];
            let denominator = NonZeroU64::new(denominator.wrapping_add(packets));
            let denominator = denominator.ok_or(Nonsense::Large {
                what: "sampled steps",
            })?;
            sample.step = Step {
                numerator,
                denominator,
            };
            let time = before.map_or(0, |before| before.infer(sample.index));
            sample.time = time.wrapping_add(self.sampled_times.signed()? as u64);
            before = Some(*sample);
        }
        Ok(samples)
    }

    fn runs(&mut self, piece: &mut Read, count: u64, hz: u32) -> Result<(), Nonsense> {
        let sampled = piece.sampled.is_some();
        let at = Moment(self.pieces.number()?);
        let jiffies = self.pieces.narrow()?;
        let (unit, phase) = match sampled {
            true => (0, 0),
            false => (self.pieces.number()?, self.pieces.number()?),
        };
        if sampled && !piece.first.is_multiple_of(CHECKED as u64) {
            return Err(Nonsense::Unknown {
                what: "a piece's first run",
                number: piece.first,
            });
        }
        let first = Run {
            at,
            jiffies,
            handler: Handler::Connect,
            outcomes: Vec::new(),
            check: 0,
        };
        let mut ticks = Ticks::new(&first, hz);
        ticks.set(phase);
        let mut off = Dense::new(&mut self.tick_places, &mut self.ticks)?;
        let mut numbers = Dense::new(&mut self.number_places, &mut self.numbers)?;
        let mut expected = piece.expected;
        let mut before = (at, jiffies);
        for place in 0..count {
            let (plain, outcomes) = self.shapes.run()?;
            spend(&mut self.events, 1 + outcomes.len())?;
            let off = off.next()?;
            let handler = plain.handler(|merged| {
                let number = i128::from(expected) + i128::from(numbers.next()?);
                let number = u32::try_from(number);
                let number = number.map_err(|_| Nonsense::Large { what: NAMES[12] })?;
                expected = after(expected, number, merged);
                Ok(number)
            })?;
            let mut run = Run {
                at: before.0,
                jiffies: before.1,
                handler,
                outcomes,
                check: 0,
            };
            if sampled {
                let more = off as i32;
                run.at = later(run.at, more, hz);
                run.jiffies = run.jiffies.wrapping_add(more as u32);
            } else {
                if place > 0 {
                    let units = i128::from(self.times.signed()?) * i128::from(unit);
                    let nanos =
                        i64::try_from(units).map_err(|_| Nonsense::Large { what: "times" })?;
                    run.at.0 = run.at.0.wrapping_add(nanos as u64);
                }
                run.jiffies = ticks.jiffies(run.at, off);
            }
            if !sampled || place as usize % CHECKED == CHECKED - 1 {
                run.check = self.checks.byte()?.into();
            }
            before = (run.at, run.jiffies);
            piece.runs.push(run);
        }
        off.end()?;
        numbers.end()
    }

    fn end(&self) -> Result<(), Nonsense> {
        self.shapes.end()?;
        [
            &self.pieces,
            &self.times,
            &self.tick_places,
            &self.ticks,
            &self.number_places,
            &self.numbers,
            &self.checks,
            &self.sampled,
            &self.sampled_times,
            &self.steps,
        ]
        .into_iter()
        .try_for_each(Bytes::end)
    }
}

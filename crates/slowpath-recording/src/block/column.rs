// SPDX-License-Identifier: Apache-2.0
//! The columns of a frame of runs: like values stand side by side, each column is compressed by itself.

use crate::error::{EncodeError, Nonsense};
use crate::varint::{Bytes, put, put_signed};
use std::ops::{Index, IndexMut};

/// Bytes of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Before compression.
    pub plain: u64,
    /// In the file.
    pub kept: u64,
}

/// Bytes of all columns of a frame, uncompressed, at most.
pub(crate) const MAX_BYTES: usize = 1 << 25;

/// Which column; they stand in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Column {
    Pieces,
    Clocks,
    Patterns,
    Which,
    Rare,
    First,
    Second,
    Third,
    Outcomes,
    Times,
    NearTimes,
    TickPlaces,
    Ticks,
    NumberPlaces,
    Numbers,
    Checks,
    Sampled,
    SampledTimes,
    Steps,
    DivisorPlaces,
    Divisors,
}

const COUNT: usize = Column::Divisors as usize + 1;

/// What the columns are, for people.
const NAMES: [&str; COUNT] = [
    "pieces",
    "clocks",
    "patterns",
    "patterns of runs",
    "rare patterns of runs",
    "first numbers",
    "second numbers",
    "third numbers",
    "outcomes",
    "times",
    "near times",
    "places of ticks",
    "ticks",
    "places of packet numbers",
    "packet numbers",
    "checks",
    "sampled packets",
    "sampled times",
    "sampled steps",
    "places of step divisors",
    "step divisors",
];

impl Column {
    pub(super) fn name(self) -> &'static str {
        NAMES[self as usize]
    }
}

/// Columns as they are written.
#[derive(Clone, Debug, Default)]
pub(super) struct Writing([Vec<u8>; COUNT]);

impl Index<Column> for Writing {
    type Output = Vec<u8>;

    fn index(&self, column: Column) -> &Vec<u8> {
        &self.0[column as usize]
    }
}

impl IndexMut<Column> for Writing {
    fn index_mut(&mut self, column: Column) -> &mut Vec<u8> {
        &mut self.0[column as usize]
    }
}

impl Writing {
    /// All of them, compressed.
    pub(super) fn compressed(&self, level: i32) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        for column in &self.0 {
            compress(column, level, &mut out)?;
        }
        Ok(out)
    }
}

/// Columns decompressed.
#[derive(Clone, Debug, Default)]
pub(super) struct Plain([Vec<u8>; COUNT]);

impl Plain {
    pub(super) fn of(payload: &[u8]) -> Result<Plain, Nonsense> {
        let mut payload = Bytes::new(payload, "columns");
        let mut budget = MAX_BYTES;
        let mut columns = Plain::default();
        for (column, name) in columns.0.iter_mut().zip(NAMES) {
            *column = decompress(&mut payload, &mut budget, name)?;
        }
        payload.end()?;
        Ok(columns)
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    pub(super) fn read(&self) -> Reading<'_> {
        let mut left = [const { Bytes::EMPTY }; COUNT];
        for ((left, column), name) in left.iter_mut().zip(&self.0).zip(NAMES) {
            *left = Bytes::new(column, name);
        }
        Reading(left)
    }
}

/// What is left of columns as they are read.
#[derive(Clone, Debug)]
pub(super) struct Reading<'a>([Bytes<'a>; COUNT]);

impl<'a> Index<Column> for Reading<'a> {
    type Output = Bytes<'a>;

    fn index(&self, column: Column) -> &Bytes<'a> {
        &self.0[column as usize]
    }
}

impl<'a> IndexMut<Column> for Reading<'a> {
    fn index_mut(&mut self, column: Column) -> &mut Bytes<'a> {
        &mut self.0[column as usize]
    }
}

impl Reading<'_> {
    /// Nothing may be left of any.
    pub(super) fn end(&self) -> Result<(), Nonsense> {
        self.0.iter().try_for_each(Bytes::end)
    }
}

/// Writes values that are nearly always zero: where they are not, and what they are.
pub(super) struct Sparse {
    places: Column,
    values: Column,
    zeros: u64,
}

impl Sparse {
    pub(super) fn new(places: Column, values: Column) -> Sparse {
        Sparse {
            places,
            values,
            zeros: 0,
        }
    }

    pub(super) fn push(&mut self, value: i64, out: &mut Writing) {
        if value == 0 {
            self.zeros += 1;
            return;
        }
        put(&mut out[self.places], self.zeros + 1);
        put_signed(&mut out[self.values], value);
        self.zeros = 0;
    }

    /// No more values: what is left are zeros.
    pub(super) fn end(self, out: &mut Writing) {
        put(&mut out[self.places], 0);
    }
}

/// The reverse: a value each call.
pub(super) struct Dense {
    places: Column,
    values: Column,
    /// Before the next other value; `None`: there is none.
    zeros: Option<u64>,
}

impl Dense {
    pub(super) fn new(
        places: Column,
        values: Column,
        from: &mut Reading<'_>,
    ) -> Result<Self, Nonsense> {
        let zeros = from[places].number()?.checked_sub(1);
        Ok(Dense {
            places,
            values,
            zeros,
        })
    }

    pub(super) fn next(&mut self, from: &mut Reading<'_>) -> Result<i64, Nonsense> {
        match &mut self.zeros {
            None => return Ok(0),
            Some(0) => {}
            Some(zeros) => {
                *zeros -= 1;
                return Ok(0);
            }
        }
        self.zeros = from[self.places].number()?.checked_sub(1);
        from[self.values].signed()
    }

    pub(super) fn end(self) -> Result<(), Nonsense> {
        match self.zeros {
            None => Ok(()),
            Some(_) => Err(Nonsense::Left {
                what: self.places.name(),
            }),
        }
    }
}

const RAW: u8 = 0;
const ZSTD: u8 = 1;
/// Shorter ones are not worth a header of zstd's.
const SHORT: usize = 16;

/// Appends bytes: how they are kept, their length, their length as they are kept, and they.
pub(crate) fn compress(bytes: &[u8], level: i32, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let packed = match bytes.len() {
        0..SHORT => None,
        _ => Some(zstd::bulk::compress(bytes, level).map_err(|_| EncodeError::Compression)?),
    };
    match packed {
        Some(packed) if packed.len() < bytes.len() => {
            out.push(ZSTD);
            put(out, bytes.len() as u64);
            put(out, packed.len() as u64);
            out.extend(packed);
        }
        _ => {
            out.push(RAW);
            put(out, bytes.len() as u64);
            out.extend(bytes);
        }
    }
    Ok(())
}

/// Bytes as they are kept.
struct Packed<'a> {
    how: u8,
    /// When they are decompressed.
    length: usize,
    bytes: &'a [u8],
}

fn packed<'a>(payload: &mut Bytes<'a>) -> Result<Packed<'a>, Nonsense> {
    let how = payload.byte()?;
    let length = payload.narrow()?;
    let kept = match how {
        RAW => length,
        ZSTD => payload.narrow()?,
        how => {
            return Err(Nonsense::Unknown {
                what: "compression",
                number: how.into(),
            });
        }
    };
    let bytes = payload.take(kept)?;
    Ok(Packed { how, length, bytes })
}

/// The reverse of [`compress`], within `budget` bytes.
pub(crate) fn decompress(
    payload: &mut Bytes<'_>,
    budget: &mut usize,
    what: &'static str,
) -> Result<Vec<u8>, Nonsense> {
    let Packed { how, length, bytes } = packed(payload)?;
    *budget = budget.checked_sub(length).ok_or(Nonsense::Frame)?;
    if how == RAW {
        return Ok(bytes.to_vec());
    }
    // Gives no more than that, and takes no more memory.
    match zstd::bulk::decompress(bytes, length) {
        Ok(plain) if plain.len() == length => Ok(plain),
        _ => Err(Nonsense::Compression { what }),
    }
}

/// What each column of a frame takes.
pub(crate) fn sizes(payload: &[u8]) -> Result<Vec<(&'static str, Size)>, Nonsense> {
    let mut payload = Bytes::new(payload, "columns");
    let mut sizes = Vec::new();
    for name in NAMES {
        let before = payload.len();
        let plain = packed(&mut payload)?.length as u64;
        let kept = (before - payload.len()) as u64;
        sizes.push((name, Size { plain, kept }));
    }
    payload.end()?;
    Ok(sizes)
}

// SPDX-License-Identifier: Apache-2.0
//! Rows that are to be encoded, as columns.

use crate::column::{Column, Kind, damaged};
use crate::packed::{Numbers, Texts};
use parquet::errors::Result;
use std::ops::Range;

/// A value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Not known.
    Null,
    /// Of a column of [`Kind::Int64`].
    Int(i64),
    /// Of a column of [`Kind::UInt32`] (where larger numbers are not known) or
    /// [`Kind::UInt64`].
    UInt(u64),
    /// Of a column of [`Kind::Timestamp`]: microseconds since 1970-01-01T00:00:00Z.
    Time(i64),
    /// Of a column of [`Kind::Bool`].
    Bool(bool),
    /// Of a column of [`Kind::Text`].
    Text(&'a str),
    /// Of a column of [`Kind::TextList`].
    List(Vec<&'a str>),
}

/// Rows that are not encoded yet.
#[derive(Debug)]
pub struct Rows {
    pub(crate) columns: Vec<Column>,
    pub(crate) values: Vec<Values>,
    count: usize,
    /// A column without nulls that lacks a value.
    incomplete: Option<usize>,
}

impl Rows {
    /// No rows of these columns.
    pub fn new(columns: Vec<Column>) -> Self {
        Rows {
            values: columns.iter().map(Values::new).collect(),
            columns,
            count: 0,
            incomplete: None,
        }
    }

    /// Appends a row. What it lacks, or what is not of its column's type, is null; rows with a
    /// null in a column without nulls cannot be encoded.
    pub fn push<'a>(&mut self, row: impl IntoIterator<Item = Value<'a>>) {
        let mut row = row.into_iter();
        for (place, values) in self.values.iter_mut().enumerate() {
            let value = row.next().unwrap_or(Value::Null);
            if !values.push(value) {
                self.incomplete = Some(place);
            }
        }
        self.count += 1;
    }

    /// Whether every row can be encoded.
    pub(crate) fn check(&self) -> Result<()> {
        match self.incomplete.and_then(|place| self.columns.get(place)) {
            Some(column) => Err(damaged(format!("a row has no {}", column.name))),
            None => Ok(()),
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }
}

/// The values of a column, those of rows without one left out.
#[derive(Debug, Default)]
pub(crate) struct Values {
    /// Which rows have a value; `None` where nulls are not allowed.
    known: Option<Validity>,
    pub data: Data,
}

#[derive(Debug)]
pub(crate) enum Data {
    /// Those that a column of 32 bits holds, with their signs.
    Int32(Numbers),
    Int64(Kind, Numbers),
    Bool(Vec<bool>),
    Text(Texts),
    /// The lists' lengths, and what they hold one after the other.
    List(Vec<u32>, Texts),
}

impl Default for Data {
    fn default() -> Self {
        Data::Bool(Vec::new())
    }
}

impl Values {
    fn new(column: &Column) -> Self {
        Values {
            known: column.nullable.then(Validity::default),
            data: match column.kind {
                Kind::Int64 | Kind::UInt64 | Kind::Timestamp => {
                    Data::Int64(column.kind, Numbers::default())
                }
                Kind::UInt32 => Data::Int32(Numbers::default()),
                Kind::Bool => Data::Bool(Vec::new()),
                Kind::Text => Data::Text(Texts::default()),
                Kind::TextList => Data::List(Vec::new(), Texts::default()),
            },
        }
    }

    /// Appends the value; false if it is null where nulls are not allowed.
    fn push(&mut self, value: Value<'_>) -> bool {
        let is_known = self.data.push(value);
        match &mut self.known {
            Some(known) => {
                known.push(is_known);
                true
            }
            None => is_known,
        }
    }

    /// Whether a row has a value.
    pub(crate) fn is_known(&self, row: usize) -> bool {
        self.known.as_ref().is_none_or(|known| known.get(row))
    }

    /// Writes the definition levels of flat rows, where there are any; returns how many rows
    /// have a value.
    pub(crate) fn levels(&self, rows: Range<usize>, levels: &mut Vec<i16>) -> usize {
        levels.clear();
        let Some(known) = &self.known else {
            return rows.len();
        };
        levels.extend(rows.map(|row| i16::from(known.get(row))));
        levels.iter().filter(|level| **level == 1).count()
    }

    /// Whether definition levels are written.
    pub(crate) fn is_nullable(&self) -> bool {
        self.known.is_some()
    }
}

impl Data {
    /// Appends the value; false if it is none of this column's type.
    fn push(&mut self, value: Value<'_>) -> bool {
        match (self, value) {
            (Data::Int64(Kind::Int64, numbers), Value::Int(number))
            | (Data::Int64(Kind::Timestamp, numbers), Value::Time(number)) => numbers.push(number),
            (Data::Int64(Kind::UInt64, numbers), Value::UInt(number)) => {
                numbers.push(number.cast_signed());
            }
            (Data::Int32(numbers), Value::UInt(number)) => match u32::try_from(number) {
                Ok(number) => numbers.push(number.cast_signed().into()),
                Err(_) => return false,
            },
            (Data::Bool(flags), Value::Bool(flag)) => flags.push(flag),
            (Data::Text(texts), Value::Text(text)) => texts.push(text),
            (Data::List(lengths, texts), Value::List(list)) => {
                lengths.push(list.len() as u32);
                list.into_iter().for_each(|text| texts.push(text));
            }
            _ => return false,
        }
        true
    }
}

/// One bit a row.
#[derive(Debug, Default)]
struct Validity {
    rows: usize,
    words: Vec<u64>,
}

impl Validity {
    fn push(&mut self, known: bool) {
        let (word, bit) = (self.rows / 64, self.rows % 64);
        if bit == 0 {
            self.words.push(0);
        }
        self.words[word] |= u64::from(known) << bit;
        self.rows += 1;
    }

    fn get(&self, row: usize) -> bool {
        self.words
            .get(row / 64)
            .is_some_and(|word| word >> (row % 64) & 1 == 1)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Columns as data: name, type, unit, precision, meaning, and the record field each comes from.
//!
//! The schema, the writer, the reader and the tables of `docs/reference/log-format.md` follow these
//! declarations.

/// How a column is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Whole number, stored as it is.
    Exact,
    /// Whole number, rounded to that many significant bits in Parquet.
    Rounded(u8),
    /// Microseconds since 1970-01-01T00:00:00Z.
    Time,
    /// 0 or 1.
    Flag,
    /// Number of a name; a string in Parquet.
    Word(&'static [&'static str]),
    /// A string.
    Text,
    /// A set of problems, one bit each; a list of their names in Parquet (a number in
    /// version 1).
    Problems,
}

impl Kind {
    /// The Parquet type as SQL calls it.
    fn sql(self) -> &'static str {
        match self {
            Kind::Exact | Kind::Rounded(_) => "BIGINT",
            Kind::Time => "TIMESTAMPTZ",
            Kind::Flag => "BOOLEAN",
            Kind::Word(_) | Kind::Text => "VARCHAR",
            Kind::Problems => "VARCHAR[]",
        }
    }
}

/// One column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    /// Name in Parquet.
    pub name: &'static str,
    /// Name in files of schema version 1.
    pub v1: &'static str,
    /// Type and precision.
    pub kind: Kind,
    /// Unit, empty for a plain number or a word.
    pub unit: &'static str,
    /// What it states.
    pub meaning: &'static str,
    /// The field of the record, as `Type::field`; empty where the writer computes it.
    pub field: &'static str,
}

impl Column {
    /// A column of that name and type.
    pub(crate) const fn new(name: &'static str, kind: Kind, meaning: &'static str) -> Self {
        Column {
            name,
            v1: name,
            kind,
            unit: "",
            meaning,
            field: "",
        }
    }

    /// The same in that unit.
    pub(crate) const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    /// The same, of that record field.
    pub(crate) const fn of(mut self, field: &'static str) -> Self {
        self.field = field;
        self
    }

    /// The same with so many significant bits.
    pub(crate) const fn rounded(mut self, bits: u8) -> Self {
        self.kind = Kind::Rounded(bits);
        self
    }

    /// The same, called `name` in files of version 1.
    pub(crate) const fn was(mut self, name: &'static str) -> Self {
        self.v1 = name;
        self
    }

    /// The name in files of that schema version.
    pub(crate) fn name_in(&self, version: u16) -> &'static str {
        if version == 1 { self.v1 } else { self.name }
    }

    /// The row of the column in `docs/reference/log-format.md`.
    pub(crate) fn markdown(&self) -> String {
        let precision = match self.kind {
            Kind::Rounded(bits) => format!(" ({bits} significant bits)"),
            _ => String::new(),
        };
        let field = match self.field {
            "" => String::new(),
            field => format!("`{field}`"),
        };
        let Column {
            name,
            kind,
            unit,
            meaning,
            ..
        } = self;
        format!(
            "| `{name}` | {} | {unit} | {meaning}{precision} | {field} |",
            kind.sql()
        )
    }
}

/// A number without a unit, a count above all.
pub(crate) const fn number(name: &'static str, meaning: &'static str) -> Column {
    Column::new(name, Kind::Exact, meaning)
}

/// Bytes.
pub(crate) const fn bytes(name: &'static str, meaning: &'static str) -> Column {
    number(name, meaning).unit("bytes")
}

/// Segments.
pub(crate) const fn segments(name: &'static str, meaning: &'static str) -> Column {
    number(name, meaning).unit("segments")
}

/// A duration in microseconds.
pub(crate) const fn us(name: &'static str, meaning: &'static str) -> Column {
    number(name, meaning).unit("µs")
}

/// A rate in bytes a second.
pub(crate) const fn rate(name: &'static str, meaning: &'static str) -> Column {
    number(name, meaning).unit("bytes/s")
}

/// A moment of the wall clock, UTC.
pub(crate) const fn time(name: &'static str, meaning: &'static str) -> Column {
    Column::new(name, Kind::Time, meaning)
}

/// True or false.
pub(crate) const fn flag(name: &'static str, meaning: &'static str) -> Column {
    Column::new(name, Kind::Flag, meaning)
}

/// One of a fixed set of words.
pub(crate) const fn word(
    name: &'static str,
    words: &'static [&'static str],
    meaning: &'static str,
) -> Column {
    Column::new(name, Kind::Word(words), meaning)
}

/// Any string.
pub(crate) const fn text(name: &'static str, meaning: &'static str) -> Column {
    Column::new(name, Kind::Text, meaning)
}

/// A set of problems.
pub(crate) const fn problems(name: &'static str, meaning: &'static str) -> Column {
    Column::new(name, Kind::Problems, meaning)
}

/// `value` with only its `bits` most significant bits kept, rounded to the nearest such
/// number (halves up). The relative error is at most 2^-bits; numbers below 2^bits stay.
pub(crate) fn round(value: u64, bits: u8) -> u64 {
    let width = 64 - value.leading_zeros();
    let Some(drop) = width.checked_sub(u32::from(bits)).filter(|d| *d > 0) else {
        return value;
    };
    let half = 1 << (drop - 1);
    match value.checked_add(half) {
        Some(sum) => sum >> drop << drop,
        None => value >> drop << drop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rounding_errs_by_at_most_its_share(value: u64, bits in 2u8..12) {
            let near = round(value, bits);
            let most = value as f64 / f64::from(1u32 << bits);
            // Only where rounding up would leave 64 bits is the error that of rounding down.
            if value.checked_add(value >> (bits - 1)).is_some() {
                prop_assert!(near.abs_diff(value) as f64 <= most * (1.0 + 1e-9));
            }
            prop_assert_eq!(round(near, bits), near, "rounding again changes nothing");
            if value < 1 << bits {
                prop_assert_eq!(near, value);
            }
        }
    }
}

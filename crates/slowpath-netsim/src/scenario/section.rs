// SPDX-License-Identifier: Apache-2.0
//! Tables and values that know where they stand.

use super::error::{Problem, ScenarioError};
use super::units::{Dimension, PACKETS, PARTS, RATE, SIZE, TIME, fraction};
use slowpath_model::nearest;
use slowpath_switch::{Alpha, Limit, Rate, Span, Threshold};
use std::cell::RefCell;
use std::ops::RangeInclusive;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A table of the file. Remembers which keys it was asked for, so that the others are
/// unknown.
pub(super) struct Section<'a> {
    text: &'a str,
    path: String,
    line: usize,
    table: &'a DeTable<'a>,
    asked: RefCell<Vec<&'static str>>,
}

/// A value of the file.
#[derive(Clone)]
pub(super) struct Value<'a> {
    text: &'a str,
    path: String,
    line: usize,
    value: &'a DeValue<'a>,
}

/// The line that a byte is in.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

impl<'a> Section<'a> {
    /// The whole file.
    pub fn root(text: &'a str, table: &'a DeTable<'a>) -> Self {
        Section {
            text,
            path: String::new(),
            line: 1,
            table,
            asked: RefCell::default(),
        }
    }

    fn path_to(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// The value of a key, if there is one.
    pub fn get(&self, key: &'static str) -> Option<Value<'a>> {
        self.asked.borrow_mut().push(key);
        let value: &Spanned<DeValue<'a>> = self.table.get(key)?;
        Some(Value {
            text: self.text,
            path: self.path_to(key),
            line: line_of(self.text, value.span().start),
            value: value.get_ref(),
        })
    }

    /// The value of a key.
    pub fn need(&self, key: &'static str) -> Result<Value<'a>, ScenarioError> {
        self.get(key).ok_or_else(|| {
            self.misspelt(&[key]).unwrap_or_else(|| ScenarioError {
                line: self.line,
                key: self.path_to(key),
                problem: Problem::Missing,
            })
        })
    }

    /// That one of several keys is needed.
    pub fn needs_one_of(&self, keys: &'static [&'static str]) -> ScenarioError {
        let misspelt = self.misspelt(keys);
        misspelt.unwrap_or_else(|| self.error(Problem::OneOf(keys)))
    }

    /// The first key that was not asked for and that is nearly one of these.
    fn misspelt(&self, wanted: &[&'static str]) -> Option<ScenarioError> {
        let asked = self.asked.borrow();
        let others = self.table.iter().filter_map(|(key, _)| {
            let name: &str = key.get_ref();
            let near = nearest(name, wanted).filter(|_| !asked.contains(&name))?;
            Some((key.span().start, name, near))
        });
        let (at, name, near) = others.min_by_key(|(at, ..)| *at)?;
        Some(ScenarioError {
            line: line_of(self.text, at),
            key: self.path_to(name),
            problem: Problem::Misspelt(near),
        })
    }

    /// The table of a key; an empty one if there is none.
    pub fn section(&self, key: &'static str) -> Result<Option<Section<'a>>, ScenarioError> {
        self.get(key).map(|value| value.section()).transpose()
    }

    /// An error about the table as a whole.
    pub fn error(&self, problem: impl Into<Problem>) -> ScenarioError {
        ScenarioError {
            line: self.line,
            key: self.path.clone(),
            problem: problem.into(),
        }
    }

    /// That there are no keys but those that were asked for.
    pub fn finish(self) -> Result<(), ScenarioError> {
        self.done()
    }

    /// [`Section::finish`] for a section that is needed once more.
    pub fn done(&self) -> Result<(), ScenarioError> {
        let asked = self.asked.borrow().clone();
        let unknown = self.table.iter().filter(|(key, _)| {
            let key: &str = key.get_ref();
            !asked.contains(&key)
        });
        // The first of the file, not of the alphabet.
        let Some((key, _)) = unknown.min_by_key(|(key, _)| key.span().start) else {
            return Ok(());
        };
        let path = &self.path;
        let name: &str = key.get_ref();
        let mut known = asked;
        known.sort_unstable();
        known.dedup();
        Err(ScenarioError {
            line: line_of(self.text, key.span().start),
            key: if path.is_empty() {
                name.to_owned()
            } else {
                format!("{path}.{name}")
            },
            problem: Problem::UnknownKey { known },
        })
    }
}

impl<'a> Value<'a> {
    /// An error about this value.
    pub fn error(&self, problem: impl Into<Problem>) -> ScenarioError {
        ScenarioError {
            line: self.line,
            key: self.path.clone(),
            problem: problem.into(),
        }
    }

    fn wrong_type(&self, wanted: &'static str) -> ScenarioError {
        self.error(Problem::Type {
            wanted,
            found: self.value.type_str(),
        })
    }

    pub fn section(&self) -> Result<Section<'a>, ScenarioError> {
        let DeValue::Table(table) = self.value else {
            return Err(self.wrong_type("a table, as in { KEY = VALUE },"));
        };
        Ok(Section {
            text: self.text,
            path: self.path.clone(),
            line: self.line,
            table,
            asked: RefCell::default(),
        })
    }

    /// The values of an array.
    pub fn list(&self) -> Result<Vec<Value<'a>>, ScenarioError> {
        let DeValue::Array(array) = self.value else {
            return Err(match self.value {
                DeValue::Table(_) => self.error(Problem::OneTable),
                _ => self.wrong_type("a list, as in [\"a\", \"b\"],"),
            });
        };
        let member = |(number, value): (usize, &'a Spanned<DeValue<'a>>)| Value {
            text: self.text,
            path: format!("{}[{number}]", self.path),
            line: line_of(self.text, value.span().start),
            value: value.get_ref(),
        };
        Ok(array.iter().enumerate().map(member).collect())
    }

    /// The keys and values of a table whose keys are names, in the order of the file.
    pub fn entries(&self) -> Result<Vec<(String, Value<'a>)>, ScenarioError> {
        let DeValue::Table(table) = self.value else {
            return Err(self.wrong_type("a table"));
        };
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let named = |(key, value): (&'a Spanned<_>, &'a Spanned<DeValue<'a>>)| {
            let name: &std::borrow::Cow<'a, str> = key.get_ref();
            let value = Value {
                text: self.text,
                path: format!("{}.\"{name}\"", self.path),
                line: line_of(self.text, key.span().start),
                value: value.get_ref(),
            };
            (name.to_string(), value)
        };
        Ok(entries.into_iter().map(named).collect())
    }

    /// A string, an integer or a truth value, as text; true is 1.
    pub fn scalar(&self) -> Result<String, ScenarioError> {
        match self.value {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Integer(integer) if integer.radix() == 10 => Ok(integer.as_str().to_owned()),
            DeValue::Boolean(given) => Ok(u8::from(*given).to_string()),
            _ => Err(self.wrong_type("a string or an integer")),
        }
    }

    /// A share from 0 to 1 in parts of 10^9, exactly: a number, or percent.
    pub fn parts(&self) -> Result<u32, ScenarioError> {
        let text = match self.value {
            DeValue::String(text) => text.as_ref(),
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str(),
            DeValue::Float(float) => float.as_str(),
            _ => return Err(self.wrong_type("a number, or percent")),
        };
        let parts = self.quantity(text, &PARTS)?;
        let parts = u32::try_from(parts)
            .ok()
            .filter(|parts| *parts <= 1_000_000_000);
        parts.ok_or_else(|| self.range(text, "0", "1"))
    }

    /// How far a clock is ahead, in nanoseconds: a duration with a sign.
    pub fn offset(&self) -> Result<i64, ScenarioError> {
        let text = self.string()?.trim();
        let (sign, size) = match text.strip_prefix('-') {
            Some(size) => (-1, size),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        let picoseconds = self.quantity(size.trim_start(), &TIME)?;
        // At most 2^64 / 1,000, so it fits.
        Ok(sign * (picoseconds / 1_000) as i64)
    }

    /// What TOML calls its type.
    pub fn type_name(&self) -> &'static str {
        self.value.type_str()
    }

    pub fn is_table(&self) -> bool {
        self.value.is_table()
    }

    pub fn string(&self) -> Result<&'a str, ScenarioError> {
        self.value
            .as_str()
            .ok_or_else(|| self.wrong_type("a string"))
    }

    /// A string with a unit; a number says which one.
    fn with_unit(&self, example: &'static str) -> Result<&'a str, ScenarioError> {
        let given = match self.value {
            DeValue::Integer(integer) => integer.as_str(),
            DeValue::Float(float) => float.as_str(),
            _ => return self.string(),
        };
        Err(self.error(Problem::NoUnit {
            given: given.to_owned(),
            example,
        }))
    }

    pub fn boolean(&self) -> Result<bool, ScenarioError> {
        self.value
            .as_bool()
            .ok_or_else(|| self.wrong_type("true or false"))
    }

    /// One of several words; the index.
    pub fn choice<T: Copy>(&self, choices: &[(&'static str, T)]) -> Result<T, ScenarioError> {
        let names = || choices.iter().map(|(name, _)| *name).collect();
        let given = self.value.as_str().ok_or_else(|| {
            self.error(Problem::NoWord {
                choices: names(),
                found: self.value.type_str(),
            })
        })?;
        let found = choices.iter().find(|(name, _)| *name == given);
        found.map(|(_, value)| *value).ok_or_else(|| {
            self.error(Problem::Choice {
                given: given.to_owned(),
                choices: names(),
            })
        })
    }

    /// An integer between bounds.
    pub fn integer(&self, bounds: RangeInclusive<u64>) -> Result<u64, ScenarioError> {
        let Some(integer) = self.value.as_integer() else {
            return Err(self.wrong_type("an integer"));
        };
        let (digits, radix) = (integer.as_str(), integer.radix());
        let number = i128::from_str_radix(digits, radix).ok();
        let number = number.and_then(|number| u64::try_from(number).ok());
        number
            .filter(|number| bounds.contains(number))
            .ok_or_else(|| self.range(digits.to_owned(), *bounds.start(), *bounds.end()))
    }

    pub fn small(&self, bounds: RangeInclusive<u32>) -> Result<u32, ScenarioError> {
        let (least, most) = (u64::from(*bounds.start()), u64::from(*bounds.end()));
        // Within the bounds, so it fits.
        self.integer(least..=most).map(|number| number as u32)
    }

    pub(super) fn range(
        &self,
        given: impl ToString,
        least: impl ToString,
        most: impl ToString,
    ) -> ScenarioError {
        self.error(Problem::Range {
            given: given.to_string(),
            least: least.to_string(),
            most: most.to_string(),
        })
    }

    fn quantity(&self, text: &str, dimension: &Dimension) -> Result<u64, ScenarioError> {
        dimension.read(text).map_err(|error| {
            self.error(Problem::Quantity {
                given: text.to_owned(),
                error,
            })
        })
    }

    /// A string of that dimension between bounds, in grains; the bounds also as words.
    pub fn bounded(
        &self,
        dimension: &Dimension,
        bounds: RangeInclusive<u64>,
        words: [&'static str; 2],
    ) -> Result<u64, ScenarioError> {
        let text = self.with_unit(dimension.example)?;
        let grains = self.quantity(text, dimension)?;
        if bounds.contains(&grains) {
            Ok(grains)
        } else {
            Err(self.range(format!("'{text}'"), words[0], words[1]))
        }
    }

    /// A duration of at most a day.
    pub fn span(&self) -> Result<Span, ScenarioError> {
        let day = Span::from_secs(86_400).0;
        self.bounded(&TIME, 0..=day, ["0 s", "86400 s"]).map(Span)
    }

    /// A duration of at most a day that is not zero.
    pub fn positive_span(&self) -> Result<Span, ScenarioError> {
        let day = Span::from_secs(86_400).0;
        self.bounded(&TIME, 1..=day, ["1 ps", "86400 s"]).map(Span)
    }

    pub fn rate(&self) -> Result<Rate, ScenarioError> {
        let text = self.with_unit(RATE.example)?;
        let bits = self.quantity(text, &RATE)?;
        Rate::from_bits_per_second(bits)
            .ok_or_else(|| self.range(format!("'{text}'"), "1 kbit/s", "100 Tbit/s"))
    }

    /// Bytes between bounds.
    pub fn size(&self, bounds: RangeInclusive<u64>) -> Result<u64, ScenarioError> {
        let text = self.with_unit(SIZE.example)?;
        let bytes = self.quantity(text, &SIZE)?;
        if bounds.contains(&bytes) {
            Ok(bytes)
        } else {
            let bytes = |number: &u64| format!("{number} B");
            Err(self.range(
                format!("'{text}'"),
                bytes(bounds.start()),
                bytes(bounds.end()),
            ))
        }
    }

    /// A number of packets, or of bytes, or an array of both.
    pub fn limit(&self) -> Result<Limit, ScenarioError> {
        if !matches!(self.value, DeValue::Array(_)) {
            return self.threshold(1).map(|one| match one {
                Threshold::Packets(packets) => Limit::packets(packets),
                Threshold::Bytes(bytes) => Limit::bytes(bytes),
            });
        }
        let mut limit = Limit::NONE;
        for value in self.list()? {
            match value.threshold(1)? {
                Threshold::Packets(packets) if limit.packets.is_none() => {
                    limit.packets = Some(packets);
                }
                Threshold::Bytes(bytes) if limit.bytes.is_none() => limit.bytes = Some(bytes),
                _ => return Err(value.error(Problem::TooMany(1))),
            }
        }
        if limit.is_none() {
            return Err(self.wrong_type("packets, bytes, or both"));
        }
        Ok(limit)
    }

    /// A number of packets or of bytes, at least `least` of them.
    pub fn threshold(&self, least: u32) -> Result<Threshold, ScenarioError> {
        let text = self.with_unit(PACKETS.example)?;
        let wrong = |most: String| self.range(format!("'{text}'"), least, most);
        if PACKETS.fits(text) {
            let packets = u32::try_from(self.quantity(text, &PACKETS)?);
            let packets = packets
                .ok()
                .filter(|packets| (least..u32::MAX).contains(packets));
            return packets
                .map(Threshold::Packets)
                .ok_or_else(|| wrong(u32::MAX.to_string()));
        }
        if !SIZE.fits(text) {
            // Says which units there are.
            self.quantity(text, &SIZE)?;
        }
        let bytes = self.quantity(text, &SIZE)?;
        if (u64::from(least)..=1 << 50).contains(&bytes) {
            Ok(Threshold::Bytes(bytes))
        } else {
            Err(wrong("2^50".to_owned()))
        }
    }

    /// A fraction above 0.
    pub fn alpha(&self) -> Result<Alpha, ScenarioError> {
        let text = match self.value {
            DeValue::String(text) => text.as_ref(),
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str(),
            DeValue::Float(float) => float.as_str(),
            _ => return Err(self.wrong_type("a fraction, as in '1/2'")),
        };
        let alpha = fraction(text).and_then(|(above, below)| Alpha::new(above, below));
        alpha.ok_or_else(|| self.range(format!("'{text}'"), "1/4294967295", "4294967295"))
    }

    /// A share above 0 and up to 1: a number, or percent.
    pub fn share(&self) -> Result<f64, ScenarioError> {
        let text = match self.value {
            DeValue::String(text) => text.as_ref(),
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str(),
            DeValue::Float(float) => float.as_str(),
            _ => return Err(self.wrong_type("a number, or percent")),
        };
        let share = if self.value.is_str() {
            self.quantity(text, &super::units::SHARE)? as f64 / 1e6
        } else {
            text.parse().unwrap_or(f64::NAN)
        };
        if share > 0.0 && share <= 1.0 {
            Ok(share)
        } else if (2.0..=100.0).contains(&share) && !self.value.is_str() {
            Err(self.error(Problem::Percent(text.to_owned())))
        } else {
            Err(self.range(text, "0 (excluded)", "1"))
        }
    }

    /// Events a second.
    pub fn frequency(&self) -> Result<f64, ScenarioError> {
        let most = 1_000_000_000_000_000;
        let words = ["0.000001 /s", "1000000000 /s"];
        let millionths = self.bounded(&super::units::FREQUENCY, 1..=most, words)?;
        Ok(millionths as f64 / 1e6)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Rows as CSV or as JSON lines, one at a time.
//!
//! CSV is quoted as RFC 4180 says (section 2, rules 5 to 7); lines end with a line feed, as
//! those of other tools here do. What is not known is nothing between two commas in CSV and
//! `null` in JSON.

use slowpath_model::clean;
use std::borrow::Cow;
use std::io::{self, Write};

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Comma-separated values, the first line names the columns.
    Csv,
    /// A JSON object a line, its keys in alphabetical order.
    Jsonl,
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// Not known.
    Null,
    /// True or false.
    Flag(bool),
    /// A number.
    Number(u64),
    /// A text.
    Text(Cow<'a, str>),
}

impl From<bool> for Field<'_> {
    fn from(flag: bool) -> Self {
        Field::Flag(flag)
    }
}

macro_rules! number_cells {
    ($($type:ty),*) => {$(
        impl From<$type> for Field<'_> {
            fn from(number: $type) -> Self {
                Field::Number(number.into())
            }
        }
    )*};
}
number_cells!(u16, u32, u64);

impl From<String> for Field<'_> {
    fn from(text: String) -> Self {
        Field::Text(text.into())
    }
}

impl<'a> From<&'a str> for Field<'a> {
    fn from(text: &'a str) -> Self {
        Field::Text(text.into())
    }
}

impl<'a, T: Into<Field<'a>>> From<Option<T>> for Field<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Field::Null, Into::into)
    }
}

/// A row: each column's name and value, the same columns in the same order in every row.
pub type Row<'a> = Vec<(&'static str, Field<'a>)>;

/// Writes rows.
#[derive(Debug)]
pub struct Table<W> {
    out: W,
    form: Form,
    /// Each column's place in the row and its name as a key of JSON, in the order of the keys.
    keys: Vec<(usize, String)>,
    /// The line in the making.
    line: Vec<u8>,
}

impl<W: Write> Table<W> {
    /// Writes the columns' names, as `columns` has them, if the form has a place for them.
    ///
    /// # Errors
    /// When the output refuses.
    pub fn new(out: W, form: Form, columns: &[&'static str]) -> io::Result<Self> {
        let mut keys: Vec<(usize, &str)> = columns.iter().copied().enumerate().collect();
        keys.sort_by_key(|(_, name)| *name);
        let keyed = |(place, name)| (place, format!("\"{name}\":"));
        let mut table = Table {
            out,
            form,
            keys: keys.into_iter().map(keyed).collect(),
            line: Vec::new(),
        };
        if form == Form::Csv {
            for (place, name) in columns.iter().enumerate() {
                table.comma(place);
                csv_text(name, &mut table.line);
            }
            table.end_line()?;
            // Who reads only these has them at once.
            table.out.flush()?;
        }
        Ok(table)
    }

    /// Writes one row.
    ///
    /// # Errors
    /// When the output refuses.
    pub fn row(&mut self, row: &Row<'_>) -> io::Result<()> {
        match self.form {
            Form::Csv => {
                for (place, (_, cell)) in row.iter().enumerate() {
                    self.comma(place);
                    match cell {
                        Field::Null => {}
                        Field::Text(text) => csv_text(text, &mut self.line),
                        cell => json(cell, &mut self.line)?,
                    }
                }
            }
            Form::Jsonl => {
                self.line.push(b'{');
                for (number, (place, key)) in self.keys.iter().enumerate() {
                    if number > 0 {
                        self.line.push(b',');
                    }
                    self.line.extend_from_slice(key.as_bytes());
                    let cell = row.get(*place).map_or(&Field::Null, |(_, cell)| cell);
                    json(cell, &mut self.line)?;
                }
                self.line.push(b'}');
            }
        }
        self.end_line()
    }

    fn comma(&mut self, place: usize) {
        if place > 0 {
            self.line.push(b',');
        }
    }

    fn end_line(&mut self) -> io::Result<()> {
        self.line.push(b'\n');
        let wrote = self.out.write_all(&self.line);
        self.line.clear();
        wrote
    }

    /// Hands everything on.
    ///
    /// # Errors
    /// When the output refuses.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A value as JSON; numbers and flags are the same in CSV.
fn json(cell: &Field<'_>, line: &mut Vec<u8>) -> io::Result<()> {
    match cell {
        Field::Null => line.extend_from_slice(b"null"),
        Field::Flag(flag) => line.extend_from_slice(if *flag { b"true" } else { b"false" }),
        Field::Number(number) => serde_json::to_writer(line, number)?,
        Field::Text(text) => serde_json::to_writer(line, text.as_ref())?,
    }
    Ok(())
}

/// What a text cell does not begin with: a spreadsheet takes it for a formula.
const FORMULA: [char; 4] = ['=', '+', '-', '@'];

/// A field: clean, with an apostrophe before what a spreadsheet would take for a formula, and in quotation
/// marks if it holds a comma or a quotation mark, quotation marks doubled.
fn csv_text(text: &str, line: &mut Vec<u8>) {
    let text = clean(text);
    let apostrophe: &[u8] = if text.starts_with(FORMULA) { b"'" } else { b"" };
    if text.contains([',', '"']) {
        line.push(b'"');
        line.extend_from_slice(apostrophe);
        line.extend_from_slice(text.replace('"', "\"\"").as_bytes());
        line.push(b'"');
    } else {
        line.extend_from_slice(apostrophe);
        line.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn written(form: Form) -> String {
        let row: Row<'_> = vec![
            ("name", "a \"b\", c\nd".into()),
            ("plain", "it's 1;2".to_owned().into()),
            ("none", None::<u64>.into()),
            ("share_us", Some(5_u32).into()),
            ("closed", true.into()),
        ];
        let mut out = Vec::new();
        let columns: Vec<&str> = row.iter().map(|(name, _)| *name).collect();
        let mut table = Table::new(&mut out, form, &columns).unwrap();
        table.row(&row).unwrap();
        table.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn fields_are_quoted_as_rfc_4180_says() {
        assert_eq!(
            written(Form::Csv),
            "name,plain,none,share_us,closed\n\"a \"\"b\"\", c?d\",it's 1;2,,5,true\n"
        );
    }

    #[test]
    fn no_text_is_a_formula_and_no_number_changes() {
        for (text, expected) in [
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            (
                "=HYPERLINK(\"x\",\"y\")",
                "\"'=HYPERLINK(\"\"x\"\",\"\"y\"\")\"",
            ),
            ("a=b", "a=b"),
            ("\u{202e}=1", "?=1"),
            ("\x1b]0;x\x07", "?]0;x?"),
        ] {
            let mut line = Vec::new();
            csv_text(text, &mut line);
            assert_eq!(String::from_utf8(line).unwrap(), expected);
        }
    }

    #[test]
    fn json_lines_have_null_for_nothing() {
        let text = written(Form::Jsonl);
        let value: Value = serde_json::from_str(text.trim_end()).unwrap();
        assert_eq!(value["none"], Value::Null);
        assert_eq!(value["name"], "a \"b\", c\nd");
        assert_eq!(text.lines().count(), 1);
        // The object as serde_json prints it: keys in alphabetical order, no spaces.
        assert_eq!(text.trim_end(), value.to_string());
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Rows as CSV or as JSON lines, one at a time.
//!
//! CSV is quoted as RFC 4180 says (section 2, rules 5 to 7); lines end with a line feed, as
//! those of other tools here do. What is not known is nothing between two commas in CSV and
//! `null` in JSON.

use serde_json::{Map, Value};
use std::io::{self, Write};

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Comma-separated values, the first line names the columns.
    Csv,
    /// A JSON object a line.
    Jsonl,
}

/// A row: each column's name and value, the same columns in the same order in every row.
pub type Row = Vec<(String, Value)>;

/// Writes rows.
#[derive(Debug)]
pub struct Table<W> {
    out: W,
    form: Form,
}

impl<W: Write> Table<W> {
    /// Writes the columns' names, as `columns` has them, if the form has a place for them.
    ///
    /// # Errors
    /// When the output refuses.
    pub fn new(mut out: W, form: Form, columns: &Row) -> io::Result<Self> {
        if form == Form::Csv {
            let names = columns.iter().map(|(name, _)| cell(name));
            writeln!(out, "{}", names.collect::<Vec<_>>().join(","))?;
        }
        Ok(Table { out, form })
    }

    /// Writes one row.
    ///
    /// # Errors
    /// When the output refuses.
    pub fn row(&mut self, row: Row) -> io::Result<()> {
        match self.form {
            Form::Csv => {
                for (i, (_, value)) in row.iter().enumerate() {
                    if i > 0 {
                        self.out.write_all(b",")?;
                    }
                    match value {
                        Value::Null => {}
                        Value::String(text) => self.out.write_all(cell(text).as_bytes())?,
                        Value::Array(_) | Value::Object(_) => {
                            self.out.write_all(cell(&value.to_string()).as_bytes())?;
                        }
                        value => write!(self.out, "{value}")?,
                    }
                }
                self.out.write_all(b"\n")
            }
            Form::Jsonl => writeln!(self.out, "{}", Value::Object(Map::from_iter(row))),
        }
    }

    /// Hands everything on.
    ///
    /// # Errors
    /// When the output refuses.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A field: in quotation marks if it holds a comma, a quotation mark, CR or LF, quotation
/// marks doubled.
fn cell(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn written(form: Form) -> String {
        let row: Row = [
            ("name", json!("a \"b\", c\nd")),
            ("plain", json!("it's 1;2")),
            ("none", Value::Null),
            ("share_us", json!(0.5)),
            ("closed", json!(true)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let mut out = Vec::new();
        let mut table = Table::new(&mut out, form, &row).unwrap();
        table.row(row).unwrap();
        table.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn fields_are_quoted_as_rfc_4180_says() {
        assert_eq!(
            written(Form::Csv),
            "name,plain,none,share_us,closed\n\"a \"\"b\"\", c\nd\",it's 1;2,,0.5,true\n"
        );
    }

    #[test]
    fn json_lines_have_null_for_nothing() {
        let text = written(Form::Jsonl);
        let value: Value = serde_json::from_str(text.trim_end()).unwrap();
        assert_eq!(value["none"], Value::Null);
        assert_eq!(value["name"], "a \"b\", c\nd");
        assert_eq!(text.lines().count(), 1);
    }
}

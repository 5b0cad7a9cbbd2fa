// SPDX-License-Identifier: Apache-2.0
//! Aligned tables.

use crate::Paint;

/// A table whose columns are as wide as their widest cell.
#[derive(Clone, Debug)]
pub struct Columns {
    header: Vec<String>,
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Columns {
    /// Column names; those that begin with `>` are aligned to the right.
    pub fn new<S: AsRef<str>>(header: &[S]) -> Self {
        let names = header.iter().map(AsRef::as_ref);
        Columns {
            header: names
                .clone()
                .map(|name| name.strip_prefix('>').unwrap_or(name).to_owned())
                .collect(),
            right: names.map(|name| name.starts_with('>')).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing cells are empty, extra ones are dropped.
    pub fn row<I: IntoIterator<Item = S>, S: Into<String>>(&mut self, cells: I) {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).collect();
        row.resize(self.header.len(), String::new());
        self.rows.push(row);
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines, the header first, each with `indent` spaces before it.
    pub fn lines(&self, indent: usize, paint: Paint) -> Vec<String> {
        let width = |c: usize| {
            self.rows
                .iter()
                .map(|r| r[c].chars().count())
                .chain([self.header[c].chars().count()])
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut out = " ".repeat(indent);
            for (c, cell) in cells.enumerate() {
                if c > 0 {
                    out.push_str("  ");
                }
                let w = widths[c];
                if self.right[c] {
                    out.push_str(&format!("{cell:>w$}"));
                } else {
                    out.push_str(&format!("{cell:<w$}"));
                }
            }
            out.truncate(out.trim_end().len());
            out
        };
        let header = line(&mut self.header.iter().map(String::as_str));
        std::iter::once(paint.dim(&header))
            .chain(
                self.rows
                    .iter()
                    .map(|row| line(&mut row.iter().map(String::as_str))),
            )
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Columns::new(&["name", ">bytes"]);
        table.row(["a", "1"]);
        table.row(["longer", "12345"]);
        let lines = table.lines(2, Paint::OFF);
        assert_eq!(lines[0].find("bytes").map(|i| i + 5), Some(lines[1].len()));
        assert_eq!(lines[1].len(), lines[2].len());
        assert!(lines.iter().all(|l| l.starts_with("  ")));
    }
}

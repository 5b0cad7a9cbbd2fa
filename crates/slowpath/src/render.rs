// SPDX-License-Identifier: Apache-2.0
//! Text for people: colours, aligned tables, numbers with units.

use slowpath_model::{FourTuple, Micros, Owner, Problem};
use std::io::IsTerminal;
use std::net::SocketAddr;

/// Colours, if the stream may have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    on: bool,
}

impl Paint {
    /// No colours.
    pub const OFF: Paint = Paint { on: false };

    /// Colours if standard output is a terminal, `NO_COLOR` is unset or empty
    /// (<https://no-color.org>) and `TERM` is not `dumb`.
    pub fn for_stdout() -> Self {
        let unset = |name| std::env::var_os(name).is_none_or(|v| v.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        Paint {
            on: std::io::stdout().is_terminal() && unset("NO_COLOR") && !dumb,
        }
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.on {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// Bold.
    pub fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// Dim.
    pub fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    /// The colour of a problem: none for the application, red for losses, yellow for the
    /// rest.
    pub fn problem(self, problem: Problem, text: &str) -> String {
        match problem {
            Problem::SenderAppLimited => text.to_owned(),
            Problem::FastRetransmit | Problem::Timeout => self.wrap("31", text),
            _ => self.wrap("33", text),
        }
    }
}

/// Text that came from outside (command names), with everything a terminal could act on
/// replaced.
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// A connection's addresses, with the peer behind address translation.
pub fn ends(tuple: &FourTuple, real_peer: Option<SocketAddr>) -> String {
    match real_peer {
        Some(peer) => format!("{tuple} (real peer {peer})"),
        None => tuple.to_string(),
    }
}

/// `command[pid]`, with the application before it if a rule names one; or `?`.
pub fn process(owner: &Owner) -> String {
    let process = match (owner.process(), &owner.listener) {
        (Some(p), _) => format!("{}[{}]", plain(&p.command), p.pid),
        (None, Some(listener)) => format!("? of {}", plain(listener)),
        (None, None) => "?".to_owned(),
    };
    match &owner.application {
        Some(application) => format!("{} {process}", plain(application)),
        None => process,
    }
}

/// Where the owner runs, and why its process is unknown; empty if nothing is known.
pub fn whereabouts(owner: &Owner) -> String {
    let mut words = Vec::new();
    words.extend(owner.why_unknown().map(|r| r.words().to_owned()));
    words.extend(owner.unit().map(|u| plain(u)));
    words.extend(owner.container().map(|c| {
        let id: String = c.id.chars().take(12).collect();
        let runtime = c.runtime.as_deref().unwrap_or("container");
        format!("{} {}", plain(runtime), plain(&id))
    }));
    words.extend(owner.pod().map(|p| format!("pod {}", plain(p))));
    if let Some(line) = owner.process().and_then(|p| p.command_line.as_ref()) {
        words.push(plain(line).chars().take(200).collect());
    }
    words.join(", ")
}

/// A share as a percentage; a share that is not zero never reads `0%`, one that is not the
/// whole never `100%`.
pub fn percent(share: f64) -> String {
    let p = share * 100.0;
    if p <= 0.0 {
        "0%".to_owned()
    } else if p < 1.0 {
        "<1%".to_owned()
    } else if p > 99.0 && p < 100.0 {
        ">99%".to_owned()
    } else {
        format!("{p:.0}%")
    }
}

/// A quantity with a decimal prefix: `0`, `850`, `12.3k`, `4.20M`.
fn scaled(value: f64) -> String {
    const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    let (mut value, mut prefix) = (value.max(0.0), 0);
    // 999.5 would print as 1000.
    while value >= 999.5 && prefix + 1 < PREFIXES.len() {
        value /= 1000.0;
        prefix += 1;
    }
    let digits = match value {
        _ if prefix == 0 => 0,
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}{}", PREFIXES[prefix])
}

/// Bytes with a binary prefix, as the classifier's advice writes them: `850 B`, `12.1 KiB`.
pub fn bytes(count: u64) -> String {
    const PREFIXES: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let (mut value, mut prefix) = (count as f64 / 1024.0, 0);
    // 1023.95 would print as 1024.0.
    while value >= 1023.95 && prefix + 1 < PREFIXES.len() {
        value /= 1024.0;
        prefix += 1;
    }
    format!("{value:.1} {}", PREFIXES[prefix])
}

/// A rate in bits a second, the unit of links: `12.3Mbit/s`.
pub fn bit_rate(bytes_per_second: f64) -> String {
    format!("{}bit/s", scaled(bytes_per_second * 8.0))
}

/// A count with a decimal prefix.
pub fn count(value: u64) -> String {
    scaled(value as f64)
}

/// `1 connection`, `2 connections`.
pub fn plural(count: u64, noun: &str) -> String {
    let ending = match (count, noun) {
        (1, _) => "",
        (_, noun) if noun.ends_with("ss") || noun.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{count} {noun}{ending}")
}

/// A duration, or `-` for none.
pub fn time(value: Option<Micros>) -> String {
    value.map_or_else(|| "-".to_owned(), |t| t.to_string())
}

/// A table whose columns are as wide as their widest cell.
#[derive(Clone, Debug)]
pub struct Columns {
    header: Vec<&'static str>,
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Columns {
    /// Column names; those that begin with `>` are aligned to the right.
    pub fn new(header: &[&'static str]) -> Self {
        Columns {
            header: header
                .iter()
                .map(|h| h.strip_prefix('>').unwrap_or(h))
                .collect(),
            right: header.iter().map(|h| h.starts_with('>')).collect(),
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
        let header = line(&mut self.header.iter().copied());
        std::iter::once(paint.dim(&header))
            .chain(
                self.rows
                    .iter()
                    .map(|row| line(&mut row.iter().map(String::as_str))),
            )
            .collect()
    }
}

/// Breaks `text` into lines of at most `width` characters where it has spaces.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut length = 0;
    for word in text.split_whitespace() {
        let word_length = word.chars().count();
        let last = lines.len() - 1;
        if length > 0 && length + 1 + word_length > width {
            lines.push(word.to_owned());
            length = word_length;
        } else {
            if length > 0 {
                lines[last].push(' ');
                length += 1;
            }
            lines[last].push_str(word);
            length += word_length;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        for (value, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1.00k"),
            (12_345, "12.3k"),
            (99_960, "100k"),
            (999_499, "999k"),
            (999_500, "1.00M"),
        ] {
            assert_eq!(count(value), text, "{value}");
        }
        for (value, text) in [
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (65_536, "64.0 KiB"),
            (1_048_575, "1.0 MiB"),
            (1 << 30, "1.0 GiB"),
        ] {
            assert_eq!(bytes(value), text, "{value}");
        }
        assert_eq!(bit_rate(125_000_000.0), "1.00Gbit/s");
    }

    #[test]
    fn a_percentage_never_rounds_something_to_nothing() {
        for (share, text) in [
            (0.0, "0%"),
            (0.001, "<1%"),
            (0.634, "63%"),
            (0.995, ">99%"),
            (1.0, "100%"),
        ] {
            assert_eq!(percent(share), text);
        }
    }

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

    #[test]
    fn names_cannot_steer_the_terminal() {
        assert!(!plain("a\x1b[31mb\n").contains(char::is_control));
    }

    #[test]
    fn long_text_breaks_at_spaces() {
        for line in wrapped("the quick brown fox jumps over the lazy dog", 12) {
            assert!(line.chars().count() <= 12, "{line}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Text that came from outside: names of processes, units, files and hosts, arguments, what a
//! scenario says.
//!
//! A terminal acts on control characters, a journal and a CSV file begin a line at one, and
//! characters of Unicode's `Bidi_Control` property let text read otherwise than it stands there
//! (UAX #9; CVE-2021-42574). [`clean`] is the one place that replaces them, for every output
//! that people read; JSON keeps them, escaped.

use std::borrow::Cow;
use std::fmt;

/// What stands for a character that was taken out.
const REPLACEMENT: char = '?';

/// Whether a character can make text read otherwise than it stands there: a control character,
/// a separator of lines, or one of Unicode's `Bidi_Control`.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

/// The text with a question mark for every character that [`steers`].
pub fn clean(text: &str) -> Cow<'_, str> {
    replaced(text, steers)
}

/// The same for text that may have several lines of its own.
pub fn clean_lines(text: &str) -> Cow<'_, str> {
    replaced(text, |c| steers(c) && c != '\n')
}

fn replaced(text: &str, taken: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&taken) {
        return Cow::Borrowed(text);
    }
    let kept = |c| if taken(c) { REPLACEMENT } else { c };
    Cow::Owned(text.chars().map(kept).collect())
}

/// A name or text from outside. It displays clean, so that forgetting to clean it takes a
/// [`Foreign::raw`] that a reader of the code sees.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Foreign(String);

impl Foreign {
    /// As it came: to compare, to look up, and for JSON.
    pub fn raw(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for Foreign {
    fn from(text: T) -> Self {
        Foreign(text.into())
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&clean(&self.0))
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", clean(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unicode 16.0's `Bidi_Control` (PropList.txt), ESC, CSI as one character of C1, NUL, DEL,
    /// tab, both ends of a line, and both of Unicode's separators.
    const STEERING: &str = "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\
                            \u{2066}\u{2067}\u{2068}\u{2069}\x1b\u{9b}\0\x7f\t\n\r\u{2028}\u{2029}";

    #[test]
    fn nothing_that_steers_is_left() {
        let text = format!("a{STEERING}b");
        let expected = format!("a{}b", "?".repeat(STEERING.chars().count()));
        assert_eq!(clean(&text), expected);
        let foreign = Foreign::from(text.as_str());
        assert_eq!(foreign.to_string(), expected);
        assert_eq!(foreign.raw(), text);
        assert!(!format!("{foreign:?}").contains(steers));
        assert_eq!(clean_lines("a\nb\r\x1b"), "a\nb??");
    }

    #[test]
    fn what_people_write_stays() {
        for text in [
            "nginx: worker",
            "größe",
            "日本",
            "עברית",
            "👩\u{200d}💻",
            "a\u{a0}b",
        ] {
            assert!(matches!(clean(text), Cow::Borrowed(it) if it == text));
        }
    }
}

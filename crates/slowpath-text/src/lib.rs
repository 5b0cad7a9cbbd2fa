// SPDX-License-Identifier: Apache-2.0
//! How slowpath writes for people.
//!
//! What enters: quantities, owners, problems with their statistics. What leaves: text:
//! aligned tables ([`Columns`]), colours ([`Paint`]), numbers with units, owners by name,
//! the evidence of a problem ([`evidence`]), who has to act ([`who`]).
//!
//! What is promised: what was not measured is left out and never printed as zero; a share
//! that is not zero never reads `0%`; names from outside cannot steer the terminal
//! ([`plain`]).
//!
//! What it never does: judge, read clocks, write.

mod actor;
mod columns;
pub mod evidence;
mod owner;
mod paint;
mod quantity;

pub use actor::who;
pub use columns::Columns;
pub use owner::{ends, process, whereabouts};
pub use paint::Paint;
pub use quantity::{bit_rate, bytes, count, percent, plural, time, wall};
pub use slowpath_model::{clean, clean_lines};

/// Text that came from outside (command names), with everything that could steer a terminal
/// replaced ([`slowpath_model::clean`]).
pub fn plain(text: &str) -> String {
    clean(text).into_owned()
}

/// The content security policy of a page: it loads nothing, whatever a name in it contains.
pub const PAGE_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// The same as a page wants it, between tags and within quotation marks of an attribute.
pub fn html(text: &str) -> String {
    escaped(&clean(text))
}

/// [`html`] of text that may have several lines.
pub fn html_lines(text: &str) -> String {
    escaped(&clean_lines(text))
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
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
    fn names_cannot_steer_the_terminal() {
        assert!(!plain("a\x1b[31mb\n").contains(char::is_control));
    }

    #[test]
    fn pages_show_names_and_obey_none() {
        let hostile = "</a><b c=\"d&\">\u{202e}\n";
        let shown = "&lt;/a&gt;&lt;b c=&quot;d&amp;&quot;&gt;??";
        assert_eq!(html(hostile), shown);
        assert_eq!(html_lines("a\n\x1b<"), "a\n?&lt;");
    }

    #[test]
    fn long_text_breaks_at_spaces() {
        for line in wrapped("the quick brown fox jumps over the lazy dog", 12) {
            assert!(line.chars().count() <= 12, "{line}");
        }
    }
}

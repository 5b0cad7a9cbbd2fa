// SPDX-License-Identifier: Apache-2.0
//! The points of an answer: a heading and a text each.

use slowpath_text::wrapped;

/// Headings in a column of their own, texts broken at `width` characters beside them.
pub(crate) fn lines<I: IntoIterator<Item = (&'static str, String)>>(
    points: I,
    width: usize,
) -> Vec<String> {
    let mut lines = Vec::new();
    for (heading, text) in points {
        for (i, line) in wrapped(&text, width).into_iter().enumerate() {
            let heading = if i == 0 { heading } else { "" };
            lines.push(format!("  {heading:<10}{line}"));
        }
    }
    lines
}

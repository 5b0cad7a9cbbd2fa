// SPDX-License-Identifier: Apache-2.0
//! What is said on standard error, beside the output.
//!
//! Whatever a message quotes (paths, arguments, names) is clean when it leaves, and a URL without user,
//! password and query: no other module of this crate may write there (`clippy::print_stderr` in `lib.rs`), except for progress.

use slowpath_model::without_url_secrets;
use slowpath_text::clean_lines;
use std::fmt::Display;
use std::io::{Write, stderr};

/// Says something, after the command's name. Where nothing can be said, that is not reported either.
pub fn say(text: impl Display) {
    line(format_args!("slowpath: {text}"));
}

/// A line, or several, as they are.
pub fn line(text: impl Display) {
    let text = text.to_string();
    let text = clean_lines(&text);
    let _ = writeln!(stderr(), "{}", without_url_secrets(&text));
}

// SPDX-License-Identifier: Apache-2.0
//! The command, run as a user does.

use std::process::{Command, Output, Stdio};

/// `slowpath` with these arguments, to its end.
pub fn slowpath(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_slowpath"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// What it said.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

// SPDX-License-Identifier: Apache-2.0
//! The slowpath command.

use std::process::ExitCode;

fn main() -> ExitCode {
    // In a guest kernel this program is also the first process (`slowpath lab guest`).
    slowpath_lab::guest::role().unwrap_or_else(slowpath_cli::main)
}

// SPDX-License-Identifier: Apache-2.0
//! The slowpath command.

use std::process::ExitCode;

fn main() -> ExitCode {
    slowpath_cli::main()
}

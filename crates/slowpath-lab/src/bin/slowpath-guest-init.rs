// SPDX-License-Identifier: Apache-2.0
//! The first process of a guest kernel (`slowpath lab guest`).

use std::process::ExitCode;

fn main() -> ExitCode {
    slowpath_lab::guest::role().unwrap_or(ExitCode::FAILURE)
}

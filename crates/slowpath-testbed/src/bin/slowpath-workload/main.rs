// SPDX-License-Identifier: Apache-2.0
//! Makes the traffic of a test network; see `slowpath_testbed::workload` for what it is
//! given and what it reports.

mod control;
mod drive;
mod options;
mod serve;

use clap::Parser;
use slowpath_testbed::workload::{DriveOptions, ServeOptions};
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "Makes the traffic of a test network")]
enum Command {
    /// Accept connections.
    Serve(ServeOptions),
    /// Open connections.
    Drive(DriveOptions),
}

fn main() -> ExitCode {
    let (what, result) = match Command::parse() {
        Command::Serve(options) => ("serve", serve::run(options)),
        Command::Drive(options) => ("drive", drive::run(&options)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("slowpath-workload {what}: {e}");
            ExitCode::FAILURE
        }
    }
}

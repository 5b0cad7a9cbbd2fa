// SPDX-License-Identifier: Apache-2.0
//! A replay under gdb: a laboratory kernel is a process like any other.

use super::Replay;
use crate::failure::{Failure, Outcome};
use slowpath_lab::virtual_time::Kernel;
use slowpath_recording::Recording;
use slowpath_replay::{ReplayOptions, Stretch, replay_command};
use std::path::Path;
use std::process::Command;

/// What the kernel calls before the run.
const STOP: &str = "slowpath_replay_stop";

/// Signals that the kernel uses for itself.
const SIGNALS: [&str; 4] = ["SIGSEGV", "SIGUSR1", "SIGALRM", "SIGIO"];

pub(super) fn run(
    args: &Replay,
    kernel: &Kernel,
    recording: &Recording,
    chosen: &[usize],
    stop: &Stretch,
    folder: &Path,
) -> Result<Outcome, Failure> {
    let options = ReplayOptions {
        seed: args.seed,
        capture: None,
        stop: Some(stop.clone()),
        ..ReplayOptions::default()
    };
    let command = replay_command(kernel, recording, chosen, &options, folder);
    let command = command.map_err(|error| Failure::Recording {
        file: args.file.clone(),
        reason: error.to_string(),
    })?;
    let Some(command) = command else {
        return Ok(Outcome::Done);
    };
    let mut gdb = Command::new("gdb");
    gdb.current_dir(folder);
    for signal in SIGNALS {
        gdb.arg("-ex");
        gdb.arg(format!("handle {signal} nostop noprint pass"));
    }
    gdb.args(["-ex", &format!("break {STOP}"), "-ex", "run", "--args"]);
    gdb.arg(command.get_program()).args(command.get_args());
    let status = gdb.status().map_err(|error| {
        Failure::Lab(format!(
            "cannot start gdb: {error}; apt-get install gdb, or leave --gdb out"
        ))
    })?;
    Ok(Outcome::Command(status.code().unwrap_or(1) as u8))
}

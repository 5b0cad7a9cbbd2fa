// SPDX-License-Identifier: Apache-2.0
//! `slowpath recording shrink`: the same, in fewer bytes.
//!
//! What enters: a recording with exact times, and a laboratory kernel. What leaves: one whose times are only near, and whose replays were found to send the same packets.

use crate::failure::Failure;
use crate::replay;
use clap::Args;
use slowpath_lab::virtual_time::{self, Kernel};
use slowpath_recording::{RecorderKind, encode};
use slowpath_replay::{ShrinkOptions, shrink};
use slowpath_replay_report::{outputs, shrunk};
use slowpath_text::Paint;
use std::io::Write;
use std::path::PathBuf;

/// `slowpath recording shrink`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath lab virtual scenarios/replay/exact.toml --record run.rec
  slowpath recording shrink run.rec small.rec
  slowpath recording shrink run.rec small.rec --within 1
  slowpath recording info small.rec
`make lab-kernel` builds the kernel first. Each connection is replayed with its new times before they are written; one whose replay changes keeps its true times.")]
pub struct Shrink {
    /// The recording, with exact times
    pub file: PathBuf,
    /// The smaller one; a file of that name is replaced
    pub to: PathBuf,
    /// The most that a time may differ from the true one, in microseconds
    #[arg(long, value_name = "US", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub within: u32,
    /// Print JSON; docs/reference/cli.md lists the keys
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: &Shrink, paint: Paint, out: &mut dyn Write) -> Result<(), Failure> {
    let recording = replay::read(std::slice::from_ref(&args.file), &[])?;
    let failed = |reason: String| Failure::Recording {
        file: args.file.clone(),
        reason,
    };
    let before = std::fs::metadata(&args.file).map_err(|error| failed(error.to_string()))?;
    if recording.origin.recorder != RecorderKind::Laboratory {
        let reason =
            "recorded by BPF on a stock kernel: only recordings of the laboratory can be shrunk";
        return Err(failed(reason.to_owned()));
    }
    let kernel = Kernel::find(virtual_time::SOURCE, recording.origin.hz)
        .map_err(|error| Failure::Lab(error.to_string()))?;
    let working = outputs::Working::new()?;
    let options = ShrinkOptions {
        // At most a thousand.
        within: args.within * 1_000,
        ..ShrinkOptions::default()
    };
    let light = shrink(&kernel, &recording, &options, &working.path, &mut |_| {})
        .map_err(|error| failed(error.to_string()))?;
    let small = encode(&light.recording).map_err(|error| failed(error.to_string()))?;
    slowpath_files::write(&args.to, &small)
        .map_err(|error| Failure::Write(format!("cannot write {}: {error}", args.to.display())))?;
    let sizes = [before.len(), small.len() as u64];
    match args.json {
        true => writeln!(out, "{}", shrunk::json(&light, sizes))?,
        false => shrunk::write(&light, sizes, paint, out)?,
    }
    Ok(())
}

// SPDX-License-Identifier: Apache-2.0
//! `slowpath recording info`: how much there is of what.

use crate::failure::Failure;
use clap::Args;
use slowpath_recording::{Selection, decode_with, inspect};
use slowpath_replay_report::file::{decoded, read};
use slowpath_replay_report::info;
use slowpath_text::Paint;
use std::io::Write;
use std::path::PathBuf;

/// `slowpath recording info`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath recording info run.rec
  slowpath recording info run.rec --json | jq .bytes_per_run")]
pub struct Info {
    /// The recording
    pub file: PathBuf,
    /// Print JSON; docs/reference/cli.md lists the keys
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: &Info, paint: Paint, out: &mut dyn Write) -> Result<(), Failure> {
    let bytes = read(&args.file)?;
    let whole = decoded(&args.file, decode_with(&bytes, Selection::default()))?;
    let sizes = decoded(&args.file, inspect(&bytes))?;
    if args.json {
        writeln!(out, "{}", info::json(&whole, &sizes))?;
    } else {
        info::write(&whole, &sizes, paint, out)?;
    }
    Ok(())
}

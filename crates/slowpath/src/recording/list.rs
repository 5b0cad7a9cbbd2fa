// SPDX-License-Identifier: Apache-2.0
//! `slowpath recording list`: the connections of a recording.

use crate::failure::Failure;
use clap::Args;
use slowpath_recording::{Selection, decode_with};
use slowpath_replay_report::file::{decoded, read};
use slowpath_replay_report::list;
use slowpath_text::Paint;
use std::io::Write;
use std::path::PathBuf;

/// `slowpath recording list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath recording list run.rec
  slowpath recording list run.rec --json | jq '.connections[] | select(.write_timers > 0)'
timers: runs of the timer of retransmissions, loss probes and zero-window probes, which idle connections have none of. replay: exact; inferred (recorded by tracepoints); or why it is not possible.")]
pub struct List {
    /// The recording
    pub file: PathBuf,
    /// Print JSON; docs/reference/cli.md lists the keys
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: &List, paint: Paint, out: &mut dyn Write) -> Result<(), Failure> {
    let bytes = read(&args.file)?;
    let whole = decoded(&args.file, decode_with(&bytes, Selection::default()))?;
    if args.json {
        writeln!(out, "{}", list::json(&whole))?;
    } else {
        list::write(&whole, paint, out)?;
    }
    Ok(())
}

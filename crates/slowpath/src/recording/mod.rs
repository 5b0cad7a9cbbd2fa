// SPDX-License-Identifier: Apache-2.0
//! `slowpath recording`: what is in a recording.
//!
//! What enters: a file that a recorder wrote, whole or not. What leaves: its events, as lines or JSON ([`dump`]), its connections, a line each ([`list`]), how much there is of what ([`info`]), several machines' as one ([`join`]), or the same in fewer bytes ([`shrink`]).

pub mod dump;
pub mod info;
pub mod join;
pub mod list;
pub mod shrink;

use crate::failure::{Failure, Outcome};
use clap::Subcommand;
use slowpath_text::Paint;
use std::io::Write;

/// What to do with a recording.
#[derive(Debug, Subcommand)]
pub enum Recorded {
    /// Print every event of a recording
    Dump(dump::Dump),
    /// List the connections of a recording: bytes, duration, timers, whether it can be replayed
    List(list::List),
    /// Summarise what a recording holds and what is missing
    Info(info::Info),
    /// Join recordings by several machines: connections with one end in each
    Join(join::Join),
    /// Write a recording in fewer bytes: times are rounded, and replays prove that the rest is unchanged
    Shrink(shrink::Shrink),
}

/// Carries it out.
///
/// # Errors
/// What is wrong with the file, or the output.
pub fn run(recorded: &Recorded, paint: Paint, out: &mut dyn Write) -> Result<Outcome, Failure> {
    match recorded {
        Recorded::Dump(args) => dump::run(args, paint, out)?,
        Recorded::List(args) => list::run(args, paint, out)?,
        Recorded::Info(args) => info::run(args, paint, out)?,
        Recorded::Join(args) => {
            let outcome = join::run(args, paint, out)?;
            out.flush()?;
            return Ok(outcome);
        }
        Recorded::Shrink(args) => shrink::run(args, paint, out)?,
    }
    out.flush()?;
    Ok(Outcome::Done)
}

// SPDX-License-Identifier: Apache-2.0
//! `slowpath recording`: what is in a recording.
//!
//! What enters: a file that a recorder wrote, whole or not. What leaves: its events, as lines or JSON ([`dump`]), how much there is of what ([`info`]), several machines' as one ([`join`]), or the same in fewer bytes ([`shrink`]).

pub(crate) mod alone;
pub mod dump;
pub mod info;
pub mod join;
pub mod shrink;

use crate::failure::{Failure, Outcome};
use crate::render::Paint;
use clap::Subcommand;
use slowpath_replay::recording::{Connection, DecodeError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What to do with a recording.
#[derive(Debug, Subcommand)]
pub enum Recorded {
    /// Every event of a recording
    Dump(dump::Dump),
    /// How much a recording holds, of what, and what is missing
    Info(info::Info),
    /// Recordings of several machines as one: connections with an end in each
    Join(join::Join),
    /// The same recording in fewer bytes: times only near the true ones, replays proven the same
    Shrink(shrink::Shrink),
}

/// Why a recording cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be opened or read.
    #[error("cannot read the recording {}: {error}", file.display())]
    Read {
        /// Which.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is none, or one that makes no sense.
    #[error("cannot read the recording {}: {reason}", file.display())]
    Decode {
        /// Which.
        file: PathBuf,
        /// Why.
        reason: DecodeError,
    },
    /// It has no such connection.
    #[error("the recording {} has no connection {wanted}: it has {count}, counted from 0", file.display())]
    NoConnection {
        /// Which.
        file: PathBuf,
        /// Asked for.
        wanted: u32,
        /// There are.
        count: usize,
    },
}

/// Carries it out.
///
/// # Errors
/// What is wrong with the file, or the output.
pub fn run(recorded: &Recorded, paint: Paint, out: &mut dyn Write) -> Result<Outcome, Failure> {
    match recorded {
        Recorded::Dump(args) => dump::run(args, paint, out)?,
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

fn read(file: &Path) -> Result<Vec<u8>, RecordingError> {
    std::fs::read(file).map_err(|error| RecordingError::Read {
        file: file.to_owned(),
        error,
    })
}

fn decoded<T>(file: &Path, result: Result<T, DecodeError>) -> Result<T, RecordingError> {
    result.map_err(|reason| RecordingError::Decode {
        file: file.to_owned(),
        reason,
    })
}

/// The two ends, as they are called here.
const SIDES: [&str; 2] = ["client", "server"];

fn ends(connection: &Connection) -> String {
    let [client, server] = connection.addresses;
    format!("{client} -> {server}")
}

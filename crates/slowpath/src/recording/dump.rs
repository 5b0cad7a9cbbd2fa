// SPDX-License-Identifier: Apache-2.0
//! `slowpath recording dump`: every event.

use crate::failure::Failure;
use crate::message;
use clap::{Args, ValueEnum};
use slowpath_recording::{Decoded, Selection, decode_with};
use slowpath_replay_report::file::{RecordingError, decoded, read};
use slowpath_replay_report::{dump, info};
use slowpath_text::Paint;
use std::io::Write;
use std::path::PathBuf;

/// `slowpath recording dump`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath recording dump run.rec
  slowpath recording dump run.rec --connection 3 --end server
  slowpath recording dump run.rec --json | jq 'select(.handler == \"timer\")'
docs/reference/recording-format.md says what each event means.")]
pub struct Dump {
    /// The recording
    pub file: PathBuf,
    /// Only the connection with this number, from 0
    #[arg(long, value_name = "N")]
    pub connection: Option<u32>,
    /// Only this end
    #[arg(long, value_enum)]
    pub end: Option<Side>,
    /// Print JSON, an object a line; docs/reference/cli.md lists the keys
    #[arg(long)]
    pub json: bool,
}

/// `--end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Side {
    /// The one that connected
    Client,
    /// The one that accepted
    Server,
}

pub(super) fn run(args: &Dump, paint: Paint, out: &mut dyn Write) -> Result<(), Failure> {
    let bytes = read(&args.file)?;
    let wanted = Selection {
        connection: args.connection,
        ..Selection::default()
    };
    let Decoded { recording, damage } = decoded(&args.file, decode_with(&bytes, wanted))?;
    let connections = recording.connections.len();
    let count = connections + recording.one_sided.len();
    if let Some(wanted) = args.connection.filter(|wanted| *wanted as usize >= count) {
        let file = args.file.clone();
        return Err(RecordingError::NoConnection {
            file,
            wanted,
            count,
        }
        .into());
    }
    if !damage.is_none() {
        message::say(format_args!(
            "{}: {}",
            args.file.display(),
            info::damaged(&damage)
        ));
    }
    let selection = dump::Selection {
        connection: args.connection,
        end: args.end.map(|side| side as usize),
        json: args.json,
    };
    Ok(dump::write(&recording, selection, paint, out)?)
}

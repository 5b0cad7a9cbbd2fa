// SPDX-License-Identifier: Apache-2.0
//! How a command can end.

use crate::trace::TraceError;
use slowpath_replay_report::collection::CollectionError;
use slowpath_replay_report::file::RecordingError;
use slowpath_replay_report::outputs::OutputError;
use slowpath_text::clean;
use slowpath_views::filter::FilterError;
use slowpath_views::source::SourceError;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// How a command ended that did its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing more to say.
    Done,
    /// Problems were found, and `--exit-code` asks for them to show.
    ProblemsFound,
    /// A command was run for its own sake, and this is its exit status.
    Command(u8),
}

impl Outcome {
    /// `ProblemsFound` if problems were found and asked for.
    pub fn of(asked: bool, found: bool) -> Self {
        if asked && found {
            Outcome::ProblemsFound
        } else {
            Outcome::Done
        }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => ExitCode::SUCCESS,
            Outcome::ProblemsFound => ExitCode::from(3),
            Outcome::Command(code) => ExitCode::from(code),
        }
    }
}

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The filter cannot be parsed.
    #[error("cannot read the filter: {0}")]
    Filter(#[from] FilterError),
    /// An argument that only the command itself can judge.
    #[error("{0}")]
    Usage(String),
    /// The agent does not start.
    #[error("cannot start observing connections: {0}")]
    Start(String),
    /// An exporter does not start.
    #[error("{0}")]
    Export(String),
    /// A poll failed.
    #[error("cannot observe connections: {0}")]
    Poll(#[from] SourceError),
    /// The log cannot be read.
    #[error("cannot read the log in {directory}: {reason}")]
    Log {
        /// Where.
        directory: PathBuf,
        /// Why, and the way out.
        reason: String,
    },
    /// The log could not be written to its end.
    #[error("the log in {directory} is incomplete: {reason}")]
    LogWrite {
        /// Where.
        directory: PathBuf,
        /// Why.
        reason: String,
    },
    /// A saved series cannot be judged.
    #[error("cannot judge the series: {0}")]
    Series(String),
    /// A scenario cannot be run.
    #[error("cannot run {file}: {reason}")]
    Scenario {
        /// Which.
        file: PathBuf,
        /// Where and why.
        reason: String,
    },
    /// Runs cannot be compared.
    #[error("{0}")]
    Compare(String),
    /// A recording cannot be read or replayed.
    #[error("cannot replay {file}: {reason}")]
    Recording {
        /// Which.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// Connections cannot be recorded.
    #[error("cannot record connections: {0}")]
    Record(String),
    /// The laboratory cannot do it.
    #[error("{0}")]
    Lab(String),
    /// The server cannot do it.
    #[error("{0}")]
    Server(String),
    /// Results cannot be written.
    #[error("{0}")]
    Write(String),
    /// A capture cannot be analysed, or an output of it not written.
    #[error("{0}")]
    Trace(#[from] TraceError),
    /// A path cannot be measured.
    #[error("{0}")]
    Path(#[from] slowpath_path::command::CommandError),
    /// A recording cannot be shown.
    #[error("{0}")]
    Recorded(#[from] RecordingError),
    /// The command to watch does not start.
    #[error("cannot start `{program}`: {error}")]
    Spawn {
        /// Which.
        program: String,
        /// Why.
        error: io::Error,
    },
    /// The thing that the arguments name does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The output or the terminal refuses.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl From<CollectionError> for Failure {
    fn from(error: CollectionError) -> Self {
        match error {
            CollectionError::File(error) => Failure::Recorded(error),
            CollectionError::Unusable { file, reason } => Failure::Recording { file, reason },
        }
    }
}

impl From<OutputError> for Failure {
    fn from(error: OutputError) -> Self {
        Failure::Write(error.to_string())
    }
}

impl Failure {
    /// What is said of it: one line, but for a filter, which is shown with the place.
    pub fn text(&self) -> String {
        match self {
            Failure::Filter(error) => format!("cannot read the filter: {error}"),
            other => clean(&other.to_string()).into_owned(),
        }
    }

    /// 2 for wrong usage, else 1; a reader of the output that has gone is no failure.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Filter(_) | Failure::Usage(_) => 2,
            Failure::Recorded(RecordingError::NoConnection { .. }) => 2,
            Failure::Path(e) => e.code(),
            Failure::Trace(e) if e.is_usage() => 2,
            Failure::Output(e) if e.kind() == io::ErrorKind::BrokenPipe => 0,
            _ => 1,
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Why a trace could not be analysed.

use slowpath_files::ResultsError;
use slowpath_model::Foreign;
use slowpath_trace::filter::FilterError;
use slowpath_trace::read::{ReadError, SourceError};
use slowpath_trace::write::WriteError;
use std::io;
use std::path::PathBuf;

/// Why a trace could not be analysed, with the way out.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A capture cannot be read.
    #[error("{0}")]
    Source(#[from] SourceError),
    /// The filter is none.
    #[error("{0}; see pcap-filter(7)")]
    Filter(#[from] FilterError),
    /// An output cannot be written.
    #[error("cannot write {path}: {error}")]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A capture cannot be written.
    #[error("cannot write {path}: {error}")]
    Copy {
        /// Which.
        path: PathBuf,
        /// Why.
        error: WriteError,
    },
    /// Graphs cannot go to their folder.
    #[error("{0}")]
    Results(#[from] ResultsError),
    /// Not a connection's name.
    #[error("cannot read the connection to extract: {0}")]
    Which(String),
    /// Standard input cannot be read for both.
    #[error("the other end's capture must be a file")]
    PairIsStandardInput,
    /// No such connection.
    #[error("no {which} in {what}, which has {count}; run without --connection for the list")]
    NoConnection {
        /// Which was asked for.
        which: String,
        /// Where.
        what: Foreign,
        /// How many there are.
        count: String,
    },
}

impl From<ReadError> for TraceError {
    fn from(error: ReadError) -> Self {
        TraceError::Source(error.into())
    }
}

impl TraceError {
    /// Whether the command line is to blame.
    pub fn is_usage(&self) -> bool {
        match self {
            TraceError::Results(error) => error.is_usage(),
            TraceError::Filter(_) | TraceError::PairIsStandardInput | TraceError::Which(_) => true,
            _ => false,
        }
    }
}

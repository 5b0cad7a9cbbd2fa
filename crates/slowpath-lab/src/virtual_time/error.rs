// SPDX-License-Identifier: Apache-2.0
//! Why there is no run.

use super::kernel::MissingKernel;
use std::io;
use std::path::{Path, PathBuf};

/// What Linux does otherwise than a scenario says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct Refusal {
    /// The key of the scenario: `tcp.limited-transmit`.
    pub key: String,
    /// What Linux does.
    pub reason: String,
}

impl Refusal {
    pub(super) fn new(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Refusal {
            key: key.into(),
            reason: reason.into(),
        }
    }
}

/// Why there is no run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is no kernel.
    #[error(transparent)]
    Kernel(#[from] MissingKernel),
    /// The scenario says what this substrate cannot do.
    #[error("Linux in virtual time cannot do what the scenario says: {0}")]
    Refused(#[from] Refusal),
    /// A file of the run.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file of the run does not hold what it should.
    #[error("{} is not what a laboratory kernel writes", .0.display())]
    Garbled(PathBuf),
    /// The kernel's process does not start.
    #[error("the laboratory kernel {} does not start: {error}", path.display())]
    Start {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It ended before the run did.
    #[error("the laboratory kernel died ({status}); its last lines:\n{lines}")]
    Died {
        /// How.
        status: String,
        /// The last lines of its console.
        lines: String,
    },
    /// It said nothing for too long and was killed.
    #[error(
        "the laboratory kernel said nothing for {seconds} s and was killed; its last lines:\n{lines}"
    )]
    Hung {
        /// For how long.
        seconds: u64,
        /// The last lines of its console.
        lines: String,
    },
    /// Packets are missing that were not dropped: a defect.
    #[error("the run does not account for every packet: {0}")]
    Conservation(String),
}

impl RunError {
    /// Of a file of the run.
    pub fn file(path: &Path, error: io::Error) -> Self {
        RunError::File {
            path: path.to_owned(),
            error,
        }
    }
}

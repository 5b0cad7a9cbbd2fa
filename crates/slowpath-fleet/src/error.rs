// SPDX-License-Identifier: Apache-2.0
//! What can go wrong with the fleet's files.

use slowpath_table::ParquetError;
use std::io;
use std::path::{Path, PathBuf};

/// An operation on the fleet's files that failed.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The file system refused.
    #[error("cannot {operation} {}: {source}{}", path.display(), way_out(source))]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A Parquet file cannot be written or read.
    #[error("cannot {operation} Parquet file {}: {source}", path.display())]
    Parquet {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the library said.
        source: ParquetError,
    },
    /// A file is damaged or of a newer version.
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A test stopped the work before this step, as a kill would.
    #[error("stopped before it would {0}")]
    Stopped(&'static str),
}

impl FleetError {
    pub(crate) fn io(
        operation: &'static str,
        path: &Path,
    ) -> impl FnOnce(io::Error) -> FleetError + use<> {
        let path = path.to_owned();
        move |source| FleetError::Io {
            operation,
            path,
            source,
        }
    }

    pub(crate) fn parquet(
        operation: &'static str,
        path: &Path,
    ) -> impl FnOnce(ParquetError) -> FleetError + use<> {
        let path = path.to_owned();
        move |source| FleetError::Parquet {
            operation,
            path,
            source,
        }
    }

    /// Whether the file system has no room.
    pub fn is_full(&self) -> bool {
        match self {
            FleetError::Io { source, .. } => is_full(source),
            FleetError::Parquet {
                source: ParquetError::External(e),
                ..
            } => e.downcast_ref::<io::Error>().is_some_and(is_full),
            _ => false,
        }
    }
}

impl FleetError {
    /// Whether a file's checksum is wrong.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, FleetError::Io { source, .. } if source.kind() == io::ErrorKind::InvalidData)
    }
}

/// Whether an error says that the file system has no room.
pub(crate) fn is_full(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

fn way_out(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free space there, or let the server keep less"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; give the server a directory that its user may write to"
        }
        _ => "",
    }
}

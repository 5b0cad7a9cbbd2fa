// SPDX-License-Identifier: Apache-2.0
//! What can go wrong, with the operation, the object and the way out.

use std::io;
use std::path::{Path, PathBuf};

/// An operation on the log's files that failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
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
        source: slowpath_table::ParquetError,
    },
    /// A Parquet file that this version cannot read.
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl StoreError {
    pub(crate) fn io(
        operation: &'static str,
        path: &Path,
    ) -> impl FnOnce(io::Error) -> StoreError + use<> {
        let path = path.to_owned();
        move |source| StoreError::Io {
            operation,
            path,
            source,
        }
    }

    pub(crate) fn parquet(
        operation: &'static str,
        path: &Path,
    ) -> impl FnOnce(slowpath_table::ParquetError) -> StoreError + use<> {
        let path = path.to_owned();
        move |source| StoreError::Parquet {
            operation,
            path,
            source,
        }
    }

    /// Whether the file is simply gone: retention or a conversion was quicker.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, StoreError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

fn way_out(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free space there or give the log less to keep"
        }
        io::ErrorKind::FileTooLarge => "; raise the limit on the size of files (ulimit -f)",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; give the log a directory that this user may write to"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "; a file is in the way, give the log another directory"
        }
        _ => "",
    }
}

/// Why a log cannot be opened for writing.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its directory cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another process writes to it.
    #[error(
        "cannot write the log in {}: another slowpath writes there{}; stop it or give this one \
         another directory",
        dir.display(),
        holder.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    Locked {
        /// The log's directory.
        dir: PathBuf,
        /// The other process, if it left its number.
        holder: Option<u32>,
    },
    /// A thread could not be started.
    #[error("cannot start the log's thread {name}: {source}; raise the limit on threads")]
    Thread {
        /// Which.
        name: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

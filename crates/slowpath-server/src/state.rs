// SPDX-License-Identifier: Apache-2.0
//! The state directory: one process at a time, and files that are whole and on the disk.

use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The most bytes of a state file: `hosts.json` of 100,000 hosts.
const MOST: u64 = 256 << 20;

/// Why the state cannot be had, or not be kept.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{} is damaged: {reason}; restore it from a copy of the directory", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is no state.
    #[error("{} holds no server; 'slowpath server init --dir {} --name NAME' makes one", directory.display(), directory.display())]
    Missing {
        /// Where it would be.
        directory: PathBuf,
    },
    /// There is one already.
    #[error("{} holds a server already", directory.display())]
    Exists {
        /// Where.
        directory: PathBuf,
    },
    /// Another process has it.
    #[error("another process uses {}", directory.display())]
    Locked {
        /// Which directory.
        directory: PathBuf,
    },
    /// A key or a certificate cannot be made or used.
    #[error("cannot {what}: {source}")]
    Certificate {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: rcgen::Error,
    },
}

impl StateError {
    pub(crate) fn damaged(path: &Path, reason: impl ToString) -> Self {
        StateError::Damaged {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }

    pub(crate) fn certificate(what: &'static str) -> impl Fn(rcgen::Error) -> Self {
        move |source| StateError::Certificate { what, source }
    }
}

/// A state directory that no other process uses meanwhile.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    /// Its lock ends with it (flock(2)).
    _lock: File,
}

impl StateDirectory {
    /// Takes the directory, which is made for its owner only if it is not there.
    ///
    /// # Errors
    /// It cannot be made, or another process has it.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let lock_path = path.join("lock");
        let failed = |source| StateError::Write {
            path: lock_path.clone(),
            source,
        };
        create_folder(path)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = rustix::fs::open(&lock_path, flags, Mode::from_raw_mode(0o600));
        let lock = File::from(lock.map_err(|error| failed(error.into()))?);
        give_to_owner(&lock, path).map_err(failed)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(StateDirectory {
                path: path.to_owned(),
                _lock: lock,
            }),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(StateError::Locked {
                directory: path.to_owned(),
            }),
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Writes a file that is whole and on the disk when this returns, or is as before.
///
/// # Errors
/// [`StateError::Write`].
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), StateError> {
    let write = || {
        let mut file = slowpath_files::OutputFile::create(path)?;
        file.write_all(bytes)?;
        give_to_owner(&file.handle()?, folder_of(path))?;
        file.sync()?;
        file.commit()?;
        File::open(folder_of(path))?.sync_all()
    };
    write().map_err(|source| StateError::Write {
        path: path.to_owned(),
        source,
    })
}

/// As [`write()`], in JSON.
///
/// # Errors
/// [`StateError::Write`].
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), StateError> {
    let mut text = serde_json::to_vec_pretty(value).map_err(|error| StateError::Write {
        path: path.to_owned(),
        source: error.into(),
    })?;
    text.push(b'\n');
    write(path, &text)
}

/// Reads a file; `None` if it is not there.
///
/// # Errors
/// [`StateError::Read`].
pub fn read(path: &Path) -> Result<Option<Vec<u8>>, StateError> {
    match slowpath_files::read(path, MOST) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StateError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

/// As [`read`], of JSON.
///
/// # Errors
/// [`StateError::Read`], [`StateError::Damaged`].
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, StateError> {
    let Some(bytes) = read(path)? else {
        return Ok(None);
    };
    let value = serde_json::from_slice(&bytes);
    value
        .map(Some)
        .map_err(|error| StateError::damaged(path, error))
}

/// Deletes a file, if it is there.
///
/// # Errors
/// [`StateError::Write`].
pub fn remove(path: &Path) -> Result<(), StateError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != ErrorKind::NotFound => Err(StateError::Write {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

/// Makes a folder of the state, for its owner only, if it is not there.
///
/// # Errors
/// [`StateError::Write`].
pub fn create_folder(path: &Path) -> Result<(), StateError> {
    let make = || {
        if path.is_dir() {
            return Ok(());
        }
        slowpath_files::create_folder(path)?;
        give_to_owner(&File::open(path)?, folder_of(path))
    };
    make().map_err(|source| StateError::Write {
        path: path.to_owned(),
        source,
    })
}

/// What root makes in the directory of a service's user is that user's, or the service could not
/// read it.
fn give_to_owner(file: &File, folder: &Path) -> io::Result<()> {
    let owner = folder.metadata()?;
    if rustix::process::geteuid().is_root() && is_state(folder) && owner.uid() != 0 {
        std::os::unix::fs::fchown(file, Some(owner.uid()), Some(owner.gid()))?;
    }
    Ok(())
}

/// Whether the folder is one of a state directory: the directories above belong to others.
fn is_state(folder: &Path) -> bool {
    let has_lock = |folder: &Path| folder.join("lock").exists();
    has_lock(folder) || folder.parent().is_some_and(has_lock)
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

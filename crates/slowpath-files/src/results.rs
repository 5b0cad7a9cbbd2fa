// SPDX-License-Identifier: Apache-2.0
//! Folders that the results of a run are written to.
//!
//! One rule for all commands: such a folder is new, empty, or holds what an earlier run of the
//! same command left there, which the new run replaces as a whole. Files that a user put beside
//! the results stay. A list in the folder says which command wrote which files.

use crate::{create_folder, new_folder, read_text, write};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

/// The list of a folder's results: the command, then the names, a line each.
pub const LIST: &str = ".slowpath-results";
/// Begins the names that are not results: of the list, and of drafts.
const OWN: &str = ".slowpath-";
/// The most that is read of a list: 1 MiB, some ten thousand names.
const MOST_LIST: u64 = 1 << 20;
/// The most drafts that processes with one number may have left behind.
const MOST_DRAFTS: u32 = 1000;

/// Why results cannot go to a folder.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// It has something that no run left there.
    #[error(
        "{path} is not empty, and `{maker}` did not write {entry} there: results go to a folder of their own; name another one, or remove this"
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// The command that wants to write there.
        maker: String,
        /// One of the entries.
        entry: String,
    },
    /// It has the results of another command.
    #[error("{path} has the results of `{maker}`: name another folder, or remove this")]
    OfAnother {
        /// The folder.
        path: PathBuf,
        /// That command.
        maker: String,
    },
    /// It cannot be read or written.
    #[error("cannot write results to {path}: {error}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl ResultsError {
    /// Whether the command line is to blame, and not the file system.
    pub fn is_usage(&self) -> bool {
        !matches!(self, ResultsError::Folder { .. })
    }

    fn at(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |error| ResultsError::Folder {
            path: path.to_owned(),
            error,
        }
    }
}

/// The results of one run, in a draft folder until they are whole ([`ResultsFolder::commit`]);
/// dropped before, they leave what was there before.
#[derive(Debug)]
pub struct ResultsFolder {
    path: PathBuf,
    maker: String,
    /// What an earlier run left.
    before: BTreeSet<String>,
    draft: PathBuf,
    /// Locks the draft, so that another run does not take it for a killed one's.
    _lock: OwnedFd,
}

impl ResultsFolder {
    /// Begins the results of a run of the command `maker`; the folder is made if it is not there.
    ///
    /// # Errors
    /// See [`check`]; or no draft can be made there.
    pub fn open(path: &Path, maker: &str) -> Result<Self, ResultsError> {
        let before = check(path, maker)?;
        let failed = ResultsError::at(path);
        create_folder(path).map_err(failed)?;
        remove_drafts(path).map_err(failed)?;
        let (draft, lock) = new_draft(path).map_err(failed)?;
        Ok(ResultsFolder {
            path: path.to_owned(),
            maker: maker.to_owned(),
            before,
            draft,
            _lock: lock,
        })
    }

    /// Where the run writes: flat files, or folders that count as one result each.
    pub fn draft(&self) -> &Path {
        &self.draft
    }

    /// Puts the results in place of those of the run before; what that one left and this one
    /// did not write is removed.
    ///
    /// # Errors
    /// The file system refuses; then results of both runs may be there, all in the list.
    pub fn commit(self) -> Result<(), ResultsError> {
        self.replace().map_err(ResultsError::at(&self.path))
    }

    fn replace(&self) -> io::Result<()> {
        let written = results(&self.draft)?;
        // A kill in between leaves nothing that the next run would refuse.
        list(&self.path, &self.maker, self.before.union(&written))?;
        for name in self.before.difference(&written) {
            remove(&self.path.join(name))?;
        }
        for name in &written {
            let (from, to) = (self.draft.join(name), self.path.join(name));
            match fs::symlink_metadata(&to) {
                Ok(old) if old.is_file() => keep_mode(&old, &from)?,
                Ok(_) => remove(&to)?,
                Err(_) => {}
            }
            fs::rename(from, to)?;
        }
        list(&self.path, &self.maker, written.iter())
    }
}

impl Drop for ResultsFolder {
    fn drop(&mut self) {
        // If that fails too, the next run tries again.
        let _ = fs::remove_dir_all(&self.draft);
    }
}

/// Whether a run of the command `maker` may write its results to the folder; what an earlier
/// one left there. Changes nothing.
///
/// # Errors
/// The folder holds something else, or cannot be read.
pub fn check(path: &Path, maker: &str) -> Result<BTreeSet<String>, ResultsError> {
    let failed = ResultsError::at(path);
    let all = match results(path) {
        Ok(all) => all,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(failed(error)),
    };
    let text = match read_text(&path.join(LIST), MOST_LIST) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return match all.into_iter().next() {
                None => Ok(BTreeSet::new()),
                Some(entry) => Err(ResultsError::Foreign {
                    path: path.to_owned(),
                    maker: maker.to_owned(),
                    entry,
                }),
            };
        }
        Err(error) => return Err(failed(error)),
    };
    let mut lines = text.lines();
    match lines.next() {
        Some(other) if other != maker => Err(ResultsError::OfAnother {
            path: path.to_owned(),
            maker: other.to_owned(),
        }),
        _ => Ok(lines
            .filter(|it| is_result(it))
            .map(str::to_owned)
            .collect()),
    }
}

/// Takes a folder for a command whose runs go on in it: its files, by name, are written in place.
///
/// # Errors
/// See [`check`]; or the folder cannot be made.
pub fn claim(path: &Path, maker: &str, names: &[&str]) -> Result<(), ResultsError> {
    check(path, maker)?;
    let failed = ResultsError::at(path);
    create_folder(path).map_err(failed)?;
    list(path, maker, names).map_err(failed)
}

fn list<S: AsRef<str>>(
    folder: &Path,
    maker: &str,
    names: impl IntoIterator<Item = S>,
) -> io::Result<()> {
    let mut text = format!("{maker}\n");
    for name in names {
        text += name.as_ref();
        text.push('\n');
    }
    write(&folder.join(LIST), text)
}

/// What is in a folder besides what is slowpath's own. A name that a list cannot hold is changed
/// so that it is still something.
fn results(folder: &Path) -> io::Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.starts_with(OWN) {
            all.insert(name);
        }
    }
    Ok(all)
}

/// Whether a line of a list can be the name of a result: nothing outside the folder.
fn is_result(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    let one = matches!(
        (parts.next(), parts.next()),
        (Some(Component::Normal(_)), None)
    );
    one && !name.starts_with(OWN)
}

/// Permissions only, and only those of a file of this user.
fn keep_mode(old: &fs::Metadata, new: &Path) -> io::Result<()> {
    if old.uid() == rustix::process::geteuid().as_raw() && fs::symlink_metadata(new)?.is_file() {
        fs::set_permissions(new, Permissions::from_mode(old.mode() & 0o777))?;
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(it) if it.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// A draft that no other process takes for a killed one's.
fn new_draft(folder: &Path) -> io::Result<(PathBuf, OwnedFd)> {
    for attempt in 0..MOST_DRAFTS {
        let path = folder.join(format!("{OWN}{}-{attempt}.draft", std::process::id()));
        match new_folder(&path) {
            Ok(()) => {
                let lock = lock(&path)?;
                return Ok((path, lock));
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Removes the drafts of runs that were killed: those that no process has locked.
fn remove_drafts(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_draft = name.starts_with(OWN) && name.ends_with(".draft");
        if is_draft && entry.file_type()?.is_dir() && lock(&entry.path()).is_ok() {
            // Another run may be removing it.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

fn lock(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = open(path, flags, Mode::empty())?;
    flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
    Ok(folder)
}

#[cfg(test)]
mod tests;

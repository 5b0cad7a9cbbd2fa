// SPDX-License-Identifier: Apache-2.0
//! One writer a log; who it is, for readers.

use crate::modes;
use crate::{OpenError, StoreError};
use rustix::fs::FlockOperation;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// Held as long as this lives; the kernel lets go of it when the process ends, however.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Lock {
    /// Whether the lock file of `dir` still is the one that is locked: the directory may have been
    /// deleted, or another one put in its place.
    pub(crate) fn is_current(&self, dir: &Path) -> bool {
        names(&dir.join("lock"), &self.file)
    }
}

/// Whether a path stands for this open file.
pub(crate) fn names(path: &Path, file: &File) -> bool {
    let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let named = std::fs::metadata(path).map(identity).ok();
    named.is_some() && named == file.metadata().map(identity).ok()
}

/// Holds a spool as long as its writer has it open, so that one without the lock file knows. Where
/// the file system has no locks, only the lock file counts.
pub(crate) fn hold(spool: &File) {
    let _ = rustix::fs::flock(spool, FlockOperation::NonBlockingLockExclusive);
}

/// Whether a process holds a spool.
pub(crate) fn is_held(spool: &Path) -> bool {
    let held = File::open(spool).map(|file| {
        let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared);
        locked == Err(rustix::io::Errno::WOULDBLOCK)
    });
    held.unwrap_or(false)
}

/// How often, and how long after each other, the lock is tried for: a reader that looks whether
/// there is a writer holds it for a moment ([`live`]).
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// Takes the lock of the log in `dir`, for a run whose segments' names begin like this.
pub(crate) fn take(dir: &Path, run: &str) -> Result<Lock, OpenError> {
    let path = dir.join("lock");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(modes::FILE)
        .open(&path)
        .map_err(StoreError::io("open the lock file", &path))?;
    let mut attempts = 1;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(rustix::io::Errno::WOULDBLOCK) if attempts < ATTEMPTS => {
                attempts += 1;
                std::thread::sleep(PAUSE);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                // Only to name the holder; without it the message is still right.
                let holder = contents(&mut file);
                return Err(OpenError::Locked {
                    dir: dir.to_owned(),
                    holder: holder.lines().next().and_then(|pid| pid.parse().ok()),
                });
            }
            Err(e) => return Err(StoreError::io("lock", &path)(e.into()).into()),
        }
    }
    // On a full disk the number is missing from messages; the lock holds all the same.
    let _ = file
        .set_len(0)
        .and_then(|()| writeln!(file, "{}\n{run}", std::process::id()));
    Ok(Lock { file })
}

fn contents(file: &mut File) -> String {
    let mut text = String::new();
    let _ = file.take(256).read_to_string(&mut text);
    text
}

/// Who writes to a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LiveRun {
    /// No process.
    Absent,
    /// The run whose segments' names begin like this.
    Named(String),
    /// A process of an older version, or one that cannot be asked about.
    Unknown,
}

/// Looks who writes to the log in `dir`.
pub(crate) fn live(dir: &Path) -> LiveRun {
    let mut file = match File::open(dir.join("lock")) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return LiveRun::Absent,
        Err(_) => return LiveRun::Unknown,
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => LiveRun::Absent,
        Err(rustix::io::Errno::WOULDBLOCK) => match contents(&mut file).lines().nth(1) {
            Some(run) => LiveRun::Named(run.to_owned()),
            None => LiveRun::Unknown,
        },
        Err(_) => LiveRun::Unknown,
    }
}

// SPDX-License-Identifier: Apache-2.0
//! One writer a log.

use crate::{OpenError, StoreError};
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

/// Held as long as this lives; the kernel lets go of it when the process ends, however.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// Takes the lock of the log in `dir`.
pub(crate) fn take(dir: &Path) -> Result<Lock, OpenError> {
    let path = dir.join("lock");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(StoreError::io("open the lock file", &path))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            // Only to name the holder; without it the message is still right.
            let _ = file.read_to_string(&mut pid);
            return Err(OpenError::Locked {
                dir: dir.to_owned(),
                holder: pid.trim().parse().ok(),
            });
        }
        Err(e) => return Err(StoreError::io("lock", &path)(e.into()).into()),
    }
    // On a full disk the number is missing from messages; the lock holds all the same.
    let _ = file
        .set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(Lock { _file: file })
}

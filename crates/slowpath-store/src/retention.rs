// SPDX-License-Identifier: Apache-2.0
//! Deleting the oldest whole hours of a log.

use crate::layout::{self, sync_dir};
use crate::{Retention, StoreError};
use slowpath_model::{Micros, WallMicros};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;

/// What [`retain`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// Hours deleted.
    pub hours_deleted: u64,
    /// Bytes of Parquet files deleted.
    pub bytes_deleted: u64,
    /// Bytes of Parquet files left.
    pub bytes_left: u64,
}

/// Deletes the oldest hours of the log in `dir` until it is within `limits`. The newest
/// hour always stays, and so do spools: they are not in Parquet yet.
///
/// # Errors
/// A directory that cannot be listed or removed.
pub fn retain(dir: &Path, limits: Retention, now: WallMicros) -> Result<Retained, StoreError> {
    let hours = layout::hours(dir)?;
    let mut sizes = Vec::with_capacity(hours.len());
    for hour in &hours {
        sizes.push(size(hour)?);
    }
    let mut done = Retained {
        bytes_left: sizes.iter().sum(),
        ..Retained::default()
    };
    let oldest_kept = limits
        .max_age
        .map(|age| hour_of(&layout::partition(dir, now - Micros::from(age), "")));
    let Some((_newest, older)) = hours.split_last() else {
        return Ok(done);
    };
    for (hour, size) in older.iter().zip(sizes) {
        let too_old = oldest_kept
            .as_ref()
            .is_some_and(|kept| Some(hour.as_os_str()) < kept.as_deref());
        if done.bytes_left <= limits.max_bytes && !too_old {
            break;
        }
        remove_hour(hour)?;
        done.hours_deleted += 1;
        done.bytes_deleted += size;
        done.bytes_left -= size;
    }
    Ok(done)
}

fn hour_of(partition: &Path) -> Option<std::ffi::OsString> {
    partition.parent().map(|hour| hour.as_os_str().to_owned())
}

fn size(hour: &Path) -> Result<u64, StoreError> {
    Ok(layout::tables(hour)?
        .iter()
        .filter_map(|file| fs::metadata(&file.path).ok())
        .map(|metadata| metadata.len())
        .sum())
}

/// Removes an hour, and its day once that is empty.
fn remove_hour(hour: &Path) -> Result<(), StoreError> {
    fs::remove_dir_all(hour).map_err(StoreError::io("delete the old hour", hour))?;
    let Some(date) = hour.parent() else {
        return Ok(());
    };
    debug_assert!(
        date.file_name()
            .and_then(OsStr::to_str)
            .is_some_and(|n| n.starts_with("date="))
    );
    match fs::remove_dir(date) {
        Ok(()) => date.parent().map_or(Ok(()), sync_dir),
        Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => sync_dir(date),
        Err(e) => Err(StoreError::io("delete the empty day", date)(e)),
    }
}

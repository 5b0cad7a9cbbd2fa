// SPDX-License-Identifier: Apache-2.0
//! Deleting the oldest whole hours of a log, and the oldest segments of its only hour.

use crate::layout::{self, sync_dir};
use crate::{Retention, StoreError};
use slowpath_model::{Micros, WallMicros};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What [`retain`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// Hours deleted.
    pub hours_deleted: u64,
    /// Segments of the newest hour deleted.
    pub segments_deleted: u64,
    /// Bytes of Parquet files deleted.
    pub bytes_deleted: u64,
    /// Bytes of Parquet files left.
    pub bytes_left: u64,
}

/// Deletes the oldest hours of the log in `dir` until it is within `limits`, and where the newest
/// hour is too large by itself the oldest segments of it. The newest segment always stays, and so
/// do spools: they are not in Parquet yet.
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
    let Some((newest, older)) = hours.split_last() else {
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
    if done.bytes_left > limits.max_bytes {
        trim(newest, limits.max_bytes, &mut done)?;
    }
    Ok(done)
}

/// Deletes the oldest segments of an hour, but for the newest one.
fn trim(hour: &Path, most: u64, done: &mut Retained) -> Result<(), StoreError> {
    let mut segments: BTreeMap<String, (SystemTime, u64, Vec<PathBuf>)> = BTreeMap::new();
    for file in layout::tables(hour)? {
        let Ok(metadata) = fs::metadata(&file.path) else {
            continue;
        };
        let written = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let new = (written, 0, Vec::new());
        let segment = segments.entry(file.segment).or_insert(new);
        segment.0 = segment.0.max(written);
        segment.1 += metadata.len();
        segment.2.push(file.path);
    }
    // Names order the segments of one run, the times those of several.
    let mut oldest_first: Vec<_> = segments.into_iter().collect();
    oldest_first
        .sort_by(|(a, (written_a, ..)), (b, (written_b, ..))| (written_a, a).cmp(&(written_b, b)));
    oldest_first.pop();
    for (_, (_, bytes, files)) in oldest_first {
        if done.bytes_left <= most {
            break;
        }
        for path in &files {
            fs::remove_file(path).map_err(StoreError::io("delete", path))?;
        }
        done.segments_deleted += 1;
        done.bytes_deleted += bytes;
        done.bytes_left -= bytes;
    }
    Ok(())
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

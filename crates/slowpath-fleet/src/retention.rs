// SPDX-License-Identifier: Apache-2.0
//! Deleting the oldest hours of the tables, by the hours of the server's clock: a host whose clock is
//! ahead pushes no other host's rows out.

use crate::files;
use crate::hour::Hour;
use crate::layout;
use crate::{FleetError, Tables};
use slowpath_model::{Micros, WallMicros};
use std::fs;
use std::path::Path;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepLimits {
    /// Hours that ended longer ago go.
    pub age: Micros,
    /// The oldest hours go until the tables have no more bytes.
    pub bytes: u64,
}

/// What was deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// Hours deleted.
    pub hours_deleted: u64,
    /// Their bytes.
    pub bytes_deleted: u64,
    /// Bytes left.
    pub bytes_left: u64,
    /// The oldest hour left begins then.
    pub oldest: Option<WallMicros>,
}

impl Tables {
    /// Deletes the oldest hours until the tables are within the limits; never the newest. On an object store only the age
    /// counts, and only this server's objects go.
    ///
    /// # Errors
    /// A directory cannot be listed or removed.
    pub fn retain(&mut self, limits: KeepLimits, now: WallMicros) -> Result<Retained, FleetError> {
        let kept = self.retain_here(limits, now)?;
        if let Some(copies) = &mut self.copies {
            copies.expire(&self.server, limits.age, now)?;
        }
        Ok(kept)
    }

    fn retain_here(&mut self, limits: KeepLimits, now: WallMicros) -> Result<Retained, FleetError> {
        let hours = files::hours(&layout::tables_dir(&self.dir))?;
        let mut sizes = Vec::with_capacity(hours.len());
        for (_, dir) in &hours {
            sizes.push(size(dir)?);
        }
        let mut kept = Retained {
            bytes_left: sizes.iter().sum(),
            oldest: hours.first().map(|(hour, _)| hour.begins()),
            ..Retained::default()
        };
        let oldest = Hour::of(now - limits.age);
        let Some(((newest, _), older)) = hours.split_last() else {
            return Ok(kept);
        };
        for (n, ((hour, dir), bytes)) in older.iter().zip(sizes).enumerate() {
            if *hour >= oldest && kept.bytes_left <= limits.bytes {
                break;
            }
            self.steps.before("delete an hour")?;
            fs::remove_dir_all(dir).map_err(FleetError::io("delete the old hour", dir))?;
            self.forget(*hour);
            remove_empty_day(dir)?;
            kept.hours_deleted += 1;
            kept.bytes_deleted += bytes;
            kept.bytes_left -= bytes;
            let next = older.get(n + 1).map_or(*newest, |(hour, _)| *hour);
            kept.oldest = Some(next.begins());
        }
        Ok(kept)
    }
}

fn size(dir: &Path) -> Result<u64, FleetError> {
    let sizes = layout::entries(dir)?.into_iter();
    let sizes = sizes.filter_map(|path| fs::metadata(path).ok());
    Ok(sizes.map(|metadata| metadata.len()).sum())
}

fn remove_empty_day(hour: &Path) -> Result<(), FleetError> {
    let Some(day) = hour.parent() else {
        return Ok(());
    };
    match fs::remove_dir(day) {
        Ok(()) => day.parent().map_or(Ok(()), layout::sync_dir),
        Err(e) if e.kind() == std::io::ErrorKind::DirectoryNotEmpty => layout::sync_dir(day),
        Err(e) => Err(FleetError::io("delete the empty day", day)(e)),
    }
}

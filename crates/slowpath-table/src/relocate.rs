// SPDX-License-Identifier: Apache-2.0
//! Where a file's row groups lie, and how they come to the front of it step by step.
//!
//! A reader may hold the footer of a file that has been replaced, and look in the new one for what that footer points to. So
//! whoever replaces a file keeps each byte in its place that a footer of some time points to, and goes in steps, between which
//! that time passes:
//!
//! 1. [`join`](crate::join): the rows once more behind all others; the footer points to them only.
//! 2. [`forward`]: row groups copied to the front, where nothing lies that is pointed to; they stay where they were besides.
//!    What has no room yet is left to the next such step.
//! 3. [`cut`]: without what lies behind the last row group.
//!
//! Rows may be added ([`extend`](crate::extend)) between any two of them.

use crate::column::{Settings, damaged};
use crate::extend::{MAGIC, copy, end_of, finish, metadata_of, moved, places};
use parquet::errors::Result;
use parquet::file::metadata::RowGroupMetaData;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::Range;

/// Where a file's row groups lie, by its footer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    places: Vec<Range<u64>>,
}

impl Layout {
    /// Of a file.
    ///
    /// # Errors
    /// Its metadata cannot be read, or points to more than row groups.
    pub fn of(file: &File) -> Result<Self> {
        let places = places(metadata_of(file)?.row_groups())?;
        Ok(Layout { places })
    }

    /// Bytes of each row group, as places in the file.
    pub fn places(&self) -> &[Range<u64>] {
        &self.places
    }

    /// Where the last row group ends.
    pub fn end(&self) -> u64 {
        end_of(&self.places)
    }

    /// Bytes of the row groups.
    pub fn bytes(&self) -> u64 {
        self.places
            .iter()
            .map(|place| place.end - place.start)
            .sum()
    }

    /// Whether [`forward`] would move anything.
    pub fn can_move(&self) -> bool {
        !self.moves().is_empty()
    }

    /// Row groups that have room further in front, where nothing lies that the footer points to, and where that is.
    fn moves(&self) -> Vec<(usize, u64)> {
        let mut order: Vec<usize> = (0..self.places.len()).collect();
        order.sort_unstable_by_key(|group| self.places[*group].start);
        let mut moves = Vec::new();
        let mut free = MAGIC.len() as u64;
        for group in order {
            let place = &self.places[group];
            let to = free..free + (place.end - place.start);
            let overlaps = |other: &Range<u64>| other.start < to.end && to.start < other.end;
            if to.start == place.start || self.places.iter().any(overlaps) {
                free = place.end;
                continue;
            }
            free = to.end;
            moves.push((group, to.start));
        }
        moves
    }
}

/// Writes a new file: the bytes of `old` up to its last row group or to `keep`, where they are, but row groups copied as far to
/// the front as there is room that its footer does not point to. The new footer points to the copies. The new file is left open for the
/// caller to flush.
///
/// # Errors
/// `old` is damaged, or a file cannot be read or written.
pub fn forward(old: &File, keep: u64, new: File, settings: &Settings) -> Result<File> {
    let metadata = metadata_of(old)?;
    let layout = Layout {
        places: places(metadata.row_groups())?,
    };
    let mut groups = metadata.row_groups().to_vec();
    let end = layout.end().max(keep);
    copy(old, &new, end)?;
    for (group, to) in layout.moves() {
        let from = &layout.places[group];
        (&new).seek(SeekFrom::Start(to))?;
        let mut source = old;
        source.seek(SeekFrom::Start(from.start))?;
        let length = from.end - from.start;
        if io::copy(&mut source.take(length), &mut &new)? != length {
            return Err(damaged("it ends within a row group"));
        }
        let by = to as i64 - from.start as i64;
        groups[group] = moved(&groups[group], by, group)?;
    }
    rewritten(new, end, groups, &metadata, settings)
}

/// Writes a new file: the bytes of `old` up to the end of its last row group. The new file is left open for the caller to
/// flush.
///
/// # Errors
/// `old` is damaged, or a file cannot be read or written.
pub fn cut(old: &File, new: File, settings: &Settings) -> Result<File> {
    let metadata = metadata_of(old)?;
    let end = end_of(&places(metadata.row_groups())?);
    copy(old, &new, end)?;
    let groups = metadata.row_groups().to_vec();
    rewritten(new, end, groups, &metadata, settings)
}

fn rewritten(
    new: File,
    end: u64,
    groups: Vec<RowGroupMetaData>,
    metadata: &parquet::file::metadata::ParquetMetaData,
    settings: &Settings,
) -> Result<File> {
    (&new).seek(SeekFrom::Start(end))?;
    let descriptor = metadata.file_metadata().schema_descr().clone();
    finish(new, groups, descriptor, settings)
}

#[cfg(test)]
mod tests;

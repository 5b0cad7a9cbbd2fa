// SPDX-License-Identifier: Apache-2.0
//! Files with many small row groups get few large ones, in steps that no reader notices.
//!
//! An engine reads a file's footer, and perhaps opens its name again for the rows. So what a footer points to keeps its place
//! for [`FOOTER_LIFE`] after that footer was replaced (`slowpath_table`'s `Layout`): first the rows are written once more behind
//! the old row groups, later copied to the front, later still what is behind them is cut off. What must stay until when is in the file's
//! metadata, so a kill between two steps costs nothing.

use crate::FleetError;
use crate::files::{Draft, HourFiles, Pinned, Steps, TableFile, look, open};
use slowpath_model::{Micros, WallMicros};
use slowpath_store::tables::{OpenFile, seal};
use slowpath_table::{Old, ParquetError, Settings, cut, forward, join};
use std::fs::File;

/// For so long after a file was replaced a reader may use the footer that it had.
const FOOTER_LIFE: Micros = Micros(3_600_000_000);
/// Row groups of fewer rows are joined.
const SMALL_GROUP: u64 = 64 << 10;
/// zstd's level of rows that are written for good.
const COMPACT_LEVEL: i32 = 9;
/// Bytes that a footer does not point to may be this part of those that it does.
const WASTE: u64 = 8;
/// Less than a block of a file system is no waste.
const BLOCK: u64 = 4 << 10;

/// What is to be done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Its rows once more, in large row groups.
    Join,
    /// Row groups to the front.
    Forward,
    /// What is behind the last row group goes.
    Cut,
}

impl TableFile {
    fn small_groups(&self) -> usize {
        let small = |group: &&slowpath_table::Group| group.rows < SMALL_GROUP;
        self.groups.iter().filter(small).count()
    }

    /// Where its row groups, and what is pinned, end.
    fn end(&self) -> u64 {
        let pinned = self.pinned.map_or(0, |pinned| pinned.until);
        self.layout.end().max(pinned)
    }

    /// Whether much of it is what its footer does not point to.
    fn is_wasteful(&self) -> bool {
        let live = self.layout.bytes();
        self.end().saturating_sub(live) > live / WASTE + BLOCK
    }

    /// Whether nothing but its own row groups is needed: all readers with earlier footers are gone. After a clock went back by more
    /// than such a time, nothing waits for it.
    fn is_free(&self, now: WallMicros) -> bool {
        self.pinned.is_none_or(|pinned| {
            let age = now.0.saturating_sub(pinned.since.0);
            age.unsigned_abs() >= FOOTER_LIFE.0
        })
    }
}

impl HourFiles {
    /// What is to be done to a file in the end, whenever that may be: its small row groups joined when it is full or its hour is `closed`,
    /// then what is left of the old ones removed.
    fn wanted(&self, at: usize, closed: bool) -> Option<Step> {
        let file = &self.files[at];
        let full = file.bytes >= self.full() || at + 1 < self.files.len();
        let enough = match closed {
            true => 2,
            false => 8,
        };
        if !file.extendable {
            return None;
        }
        if (closed || full) && file.small_groups() >= enough {
            return Some(Step::Join);
        }
        if !file.is_wasteful() {
            return None;
        }
        match file.layout.can_move() {
            true => Some(Step::Forward),
            false => (file.end() > file.layout.end()).then_some(Step::Cut),
        }
    }

    /// Whether there is anything to be done to its files, now or later.
    pub(crate) fn is_settled(&self, closed: bool) -> bool {
        (0..self.files.len()).all(|at| self.wanted(at, closed).is_none())
    }

    /// Files to which something is to be done now.
    pub(crate) fn due(&self, closed: bool, now: WallMicros) -> Vec<(usize, Step)> {
        let files = self.files.iter().enumerate();
        let free = files.filter(|(_, file)| file.is_free(now));
        free.filter_map(|(at, _)| Some((at, self.wanted(at, closed)?)))
            .collect()
    }

    /// Puts a file with the step done in the place of another.
    pub(crate) fn take_step(
        &mut self,
        (at, step): (usize, Step),
        now: WallMicros,
        steps: &mut Steps,
    ) -> Result<(), FleetError> {
        let old = &self.files[at];
        let path = old.path.clone();
        let open = open(&path)?;
        open.check().map_err(FleetError::io("read", &path))?;
        let pinned = Pinned {
            until: old.layout.end(),
            since: now,
        };
        let pinned = (step != Step::Cut).then_some(pinned);
        let settings = self.settings(open.span(), &old.intakes, pinned, COMPACT_LEVEL);
        let draft = Draft::new(&path)?;
        steps.before("write the draft of a compacted file")?;
        let file = draft
            .file
            .try_clone()
            .map_err(FleetError::io("write", &path))?;
        self.write((at, step), &open, file, &settings)
            .map_err(FleetError::parquet("compact", &path))?;
        // Other bytes at the front than before, unless rows were only added.
        let before = (step == Step::Join).then_some(&open);
        seal(&draft.file, before).map_err(FleetError::io("write the checksums of", &path))?;
        draft.commit(&path, steps)?;
        self.files[at] = look(path, self.table, old.number);
        Ok(())
    }

    fn write(
        &self,
        (at, step): (usize, Step),
        open: &OpenFile,
        new: File,
        settings: &Settings,
    ) -> Result<File, ParquetError> {
        let old = open.bytes();
        match step {
            Step::Join => {
                let columns = self.table.columns();
                // All of it, also what no reader looks for any more: the checksum is of that.
                let keep = self.files[at].end();
                let old = Old { file: old, keep };
                join(old, open.reader(), new, columns, settings)
            }
            Step::Forward => forward(old, 0, new, settings),
            Step::Cut => cut(old, new, settings),
        }
    }
}

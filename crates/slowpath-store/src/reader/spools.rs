// SPDX-License-Identifier: Apache-2.0
//! The spools of a log: records that are not in Parquet files yet, and spools that were set aside.

use super::LogReader;
use crate::read_report::{ReadReport, end_of, missing_from, unclosed};
use crate::spool::{self, Frame, Frames, HeaderError, Record, kind, record_again};
use crate::{StoreError, layout, lock};
use slowpath_model::{ConnectionId, Micros, WallMicros};
use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

impl LogReader {
    /// Gives every record of that kind of every spool to `each`; returns the segments read.
    pub(crate) fn spools(
        &self,
        report: &mut ReadReport,
        kind: u8,
        mut each: impl FnMut(Record),
    ) -> Result<BTreeSet<String>, StoreError> {
        self.spooled_frames(report, |frames, frame| {
            // Those that this version does not know are counted.
            if (frame.kind == kind || frame.kind > kind::LAST)
                && let Some(record) = frames.decode(&frame)
            {
                each(record);
            }
        })
    }

    /// Gives connection, end and duration of every spooled interval to `each`.
    pub(crate) fn spooled_intervals(
        &self,
        report: &mut ReadReport,
        mut each: impl FnMut(ConnectionId, WallMicros, Micros),
    ) -> Result<BTreeSet<String>, StoreError> {
        self.spooled_frames(report, |frames, frame| {
            if frame.kind == kind::PROBLEM
                && let Some((id, end, duration)) = frame.interval_key(frames.header())
            {
                each(id, end, duration);
            }
        })
    }

    fn spooled_frames(
        &self,
        report: &mut ReadReport,
        mut each: impl FnMut(&mut Frames<'_>, Frame<'_>),
    ) -> Result<BTreeSet<String>, StoreError> {
        let mut read = BTreeSet::new();
        let spools = layout::spools(&self.dir)?;
        // After the listing: what ends its run meanwhile is closed, not cut off.
        let live = lock::live(&self.dir);
        let ended = layout::unclosed(&spools, &live);
        for path in spools {
            let bytes = match fs::read(&path).map_err(StoreError::io("read", &path)) {
                Ok(bytes) => bytes,
                // Converted in the meantime: its Parquet files are there.
                Err(e) if e.is_not_found() => continue,
                Err(e) => {
                    report.unreadable.push((path, e.to_string()));
                    continue;
                }
            };
            if let Ok((header, _)) = spool::header_of(&bytes)
                && read.contains(&header.segment)
            {
                let reason = format!("it is a copy of segment {}, which was read", header.segment);
                report.unreadable.push((path, reason));
                continue;
            }
            // Of a run that was cut off, its last record is stated, of whatever kind.
            let cut_off = ended.contains(&path);
            let mut last = None;
            match Frames::new(&bytes) {
                Ok(mut frames) => {
                    while !self.stop.is_set()
                        && let Some(frame) = frames.next()
                    {
                        if cut_off {
                            let record = record_again(&bytes, frame.at, frames.header());
                            last = last.max(record.as_ref().map(end_of));
                        }
                        each(&mut frames, frame);
                    }
                    let mut parsed = frames.end();
                    report.count(&parsed);
                    read.insert(std::mem::take(&mut parsed.header.segment));
                    if parsed.torn_tail > 0 && is_growing(&path, bytes.len()) {
                        parsed.torn_tail = 0;
                    }
                    let mut missing = missing_from(&parsed);
                    missing.extend(cut_off.then(|| unclosed(last)));
                    let missing = missing.into_iter().map(|what| (path.clone(), what));
                    report.incomplete.extend(missing);
                }
                Err(HeaderError::Torn) if bytes.is_empty() || is_growing(&path, bytes.len()) => {}
                Err(e) => report.unreadable.push((path, e.to_string())),
            }
        }
        report.unreadable.extend(set_aside(&self.dir)?);
        Ok(read)
    }
}

/// Whether a spool is longer than it was a moment ago, or gone: its end is being written.
fn is_growing(path: &Path, length: usize) -> bool {
    /// A write of a batch of 64 KiB takes tens of microseconds; after this one it has ended.
    const MOMENT: Duration = Duration::from_millis(20);
    std::thread::sleep(MOMENT);
    fs::metadata(path).map_or(true, |metadata| metadata.len() != length as u64)
}

/// The spools that were set aside, and why.
pub(crate) fn set_aside(dir: &Path) -> Result<Vec<(PathBuf, String)>, StoreError> {
    let aside = layout::set_aside(dir)?.into_iter();
    Ok(aside.map(|path| (path.clone(), why_aside(&path))).collect())
}

/// Why a spool was set aside.
fn why_aside(path: &Path) -> String {
    /// More than the longest header.
    const HEADER: u64 = 2_048;
    let mut bytes = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(HEADER).read_to_end(&mut bytes));
    match read.map(|_| spool::header_of(&bytes)) {
        Ok(Ok(_)) => "it was set aside; slowpath takes it back when it starts next".to_owned(),
        Ok(Err(e)) => format!("it was set aside: {e}"),
        Err(e) => format!("it was set aside: {e}"),
    }
}

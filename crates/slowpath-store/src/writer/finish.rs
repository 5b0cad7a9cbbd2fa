// SPDX-License-Identifier: Apache-2.0
//! The thread that converts finished segments, flushes the present one to the disk, and
//! applies retention.

use super::Shared;
use super::inbox::{Inbox, News, Waiting};
use crate::convert::{Converted, Source, convert};
use crate::lock::LiveRun;
use crate::{Options, StoreError, layout, retain};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long to wait before a failed conversion is tried again.
const RETRY: Duration = Duration::from_secs(5);

pub(super) struct Finisher {
    dir: PathBuf,
    shared: Arc<Shared>,
    options: Options,
    inbox: Inbox,
    waiting: Vec<Waiting>,
}

impl Finisher {
    pub(super) fn new(
        dir: &Path,
        shared: Arc<Shared>,
        options: Options,
        inbox: Inbox,
        left: Vec<PathBuf>,
    ) -> Self {
        // This writer has none yet.
        let unclosed = layout::unclosed(&left, &LiveRun::Absent);
        let waiting: Vec<Waiting> = left
            .into_iter()
            .map(|path| Waiting {
                length: fs::metadata(&path).map_or(0, |m| m.len()),
                unclosed: unclosed.contains(&path),
                inherited: true,
                path,
            })
            .collect();
        shared.lock().status.spool_bytes = waiting.iter().map(|w| w.length).sum();
        Finisher {
            dir: dir.to_owned(),
            shared,
            options,
            inbox,
            waiting,
        }
    }

    pub(super) fn run(mut self) {
        self.convert_all();
        loop {
            let retry = (!self.waiting.is_empty()).then_some(RETRY);
            match self.inbox.wait(retry) {
                News::Done => {}
                News::Ended | News::Nothing => self.convert_all(),
                News::Closed => break,
            }
        }
        if !self.waiting.is_empty() {
            self.convert_waiting();
        }
    }

    /// Tries every waiting spool, and those of the segments that end meanwhile.
    fn convert_all(&mut self) {
        loop {
            self.waiting.append(&mut self.inbox.ended);
            self.convert_waiting();
            if self.inbox.ended.is_empty() {
                break;
            }
        }
    }

    fn note(&self, error: Option<StoreError>) {
        self.shared.lock().finish_error = error.as_ref().map(StoreError::to_string);
    }

    /// Tries every waiting spool once, then applies retention: where a full disk stops conversions,
    /// that is what makes space.
    fn convert_waiting(&mut self) {
        let Options {
            merge_up_to, ship, ..
        } = self.options;
        // What another writer left may wait to be shipped, although this one ships nothing.
        let shipped = ship || layout::ship_dir(&self.dir).is_dir();
        let mut error = None;
        let mut waiting = std::mem::take(&mut self.waiting);
        let inbox = &mut self.inbox;
        waiting.retain(|spool| {
            let source = Source {
                path: &spool.path,
                unclosed: spool.unclosed,
                ship: ship || spool.inherited && shipped,
            };
            let done = match convert(&self.dir, source, merge_up_to, &mut || inbox.rest()) {
                Ok(done) => done,
                Err(_) if !spool.path.exists() => Converted {
                    unreadable: 1,
                    missing: Some("it was deleted before it was converted".to_owned()),
                    ..Converted::default()
                },
                Err(e) => {
                    error = Some(e);
                    return true;
                }
            };
            let mut state = self.shared.lock();
            let status = &mut state.status;
            if let Some(missing) = done.missing {
                status.note_damage(&spool.path, &missing);
            }
            status.segments_converted += u64::from(!done.set_aside);
            status.rows_converted += done.rows;
            status.parquet_bytes += done.parquet_bytes;
            status.unreadable += done.unreadable + u64::from(done.set_aside);
            status.segments_waiting -= 1;
            status.spool_bytes = status.spool_bytes.saturating_sub(spool.length);
            false
        });
        self.waiting = waiting;
        match self.retain() {
            Ok(hours) => self.shared.lock().status.hours_deleted += hours,
            Err(e) => error = error.or(Some(e)),
        }
        self.note(error);
    }

    /// Keeps the log within its limits, the spools included; gives how many hours were deleted.
    fn retain(&self) -> Result<u64, StoreError> {
        let (now, spools) = {
            let state = self.shared.lock();
            (state.now, state.status.spool_bytes)
        };
        let mut limits = self.options.retention;
        limits.max_bytes = limits.max_bytes.saturating_sub(spools);
        Ok(retain(&self.dir, limits, now)?.hours_deleted)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The thread that converts finished segments, flushes the present one to the disk, and
//! applies retention.

use super::Shared;
use super::inbox::{Inbox, News, Waiting};
use crate::convert::convert;
use crate::{Options, StoreError, retain};
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
        let waiting: Vec<Waiting> = left
            .into_iter()
            .map(|path| Waiting {
                length: fs::metadata(&path).map_or(0, |m| m.len()),
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

    /// Tries every waiting spool once, then applies retention.
    fn convert_waiting(&mut self) {
        let merge_up_to = self.options.merge_up_to;
        let mut error = None;
        let mut converted = false;
        let mut waiting = std::mem::take(&mut self.waiting);
        let inbox = &mut self.inbox;
        waiting.retain(|spool| {
            let done = match convert(&self.dir, &spool.path, merge_up_to, &mut || inbox.rest()) {
                Ok(done) => done,
                Err(e) => {
                    error = Some(e);
                    return true;
                }
            };
            converted = true;
            let mut state = self.shared.lock();
            let status = &mut state.status;
            status.segments_converted += u64::from(!done.set_aside);
            status.rows_converted += done.rows;
            status.parquet_bytes += done.parquet_bytes;
            status.unreadable += done.unreadable + u64::from(done.set_aside);
            status.segments_waiting -= 1;
            status.spool_bytes = status.spool_bytes.saturating_sub(spool.length);
            false
        });
        self.waiting = waiting;
        if converted {
            let now = self.shared.lock().now;
            match retain(&self.dir, self.options.retention, now) {
                Ok(done) => self.shared.lock().status.hours_deleted += done.hours_deleted,
                Err(e) => error = error.or(Some(e)),
            }
        }
        self.note(error);
    }
}

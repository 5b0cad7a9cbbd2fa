// SPDX-License-Identifier: Apache-2.0
//! The thread that converts finished segments, flushes the present one to the disk, and
//! applies retention.

use super::inbox::{Inbox, News, Waiting};
use super::{Item, Shared, told};
use crate::convert::{Carry, Settings, convert};
use crate::spool::Encoder;
use crate::{Options, StoreError, layout, retain};
use slowpath_model::ConnectionSummary;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How long to leave a conversion alone that failed.
const RETRY: Duration = Duration::from_secs(5);

pub(super) struct Finisher {
    dir: PathBuf,
    boot_id: u128,
    shared: Arc<Shared>,
    options: Options,
    inbox: Inbox,
    waiting: Vec<Waiting>,
}

impl Finisher {
    pub(super) fn new(
        dir: &Path,
        boot_id: u128,
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
                followed: false,
            })
            .collect();
        shared.lock().status.spool_bytes = waiting.iter().map(|w| w.length).sum();
        Finisher {
            dir: dir.to_owned(),
            boot_id,
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
        self.shared.lock().finish_error = error.as_ref().and_then(told);
    }

    /// Tries every waiting spool once, then applies retention.
    fn convert_waiting(&mut self) {
        let settings = Settings {
            merge_up_to: self.options.merge_up_to,
            evidence: self.options.evidence,
        };
        let dir = self.dir.clone();
        let shared = self.shared.clone();
        let boot_id = self.boot_id;
        let limit = self.options.buffer_bytes / 2;
        let mut error = None;
        let mut converted = false;
        let mut waiting = std::mem::take(&mut self.waiting);
        let inbox = &mut self.inbox;
        waiting.retain(|spool| {
            let carry = |summaries: &[&ConnectionSummary]| {
                carry_on(&shared, &dir, &spool.path, boot_id, limit, summaries)
            };
            let carry: Option<&Carry<'_>> = spool.followed.then_some(&carry);
            let done = match convert(&dir, &spool.path, settings, carry, &mut || inbox.rest()) {
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

/// Writes checkpoints to the present spool and flushes it. `false` if that cannot be: the
/// writer is closing, the disk refuses, or they are more than `limit` bytes.
fn carry_on(
    shared: &Shared,
    dir: &Path,
    from: &Path,
    boot_id: u128,
    limit: usize,
    summaries: &[&ConnectionSummary],
) -> bool {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(boot_id);
    for summary in summaries {
        encoder.summary(summary, &mut bytes);
    }
    if bytes.len() > limit {
        return false;
    }
    let mut state = shared.lock();
    if state.closing {
        return false;
    }
    let count = summaries.len() as u64;
    state.status.buffered_bytes += bytes.len();
    state.accepted += count;
    state.queue.push_back(Item::Records {
        bytes,
        count,
        since: Instant::now(),
        carried: true,
    });
    let target = state.accepted;
    state.hurry = target;
    let failures = state.failures;
    shared.work.notify_one();
    while state.settled < target && state.failures == failures && !state.closing {
        state = shared
            .done
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner);
    }
    if state.settled < target || state.closing {
        return false;
    }
    drop(state);
    // The old spool is removed for good; the one that follows must be there as surely.
    let Ok(spools) = layout::spools(dir) else {
        return false;
    };
    spools
        .iter()
        .filter(|spool| *spool != from)
        .all(|spool| File::open(spool).and_then(|f| f.sync_data()).is_ok())
}

// SPDX-License-Identifier: Apache-2.0
//! The thread that writes the spool.

use super::inbox::Job;
use super::{BATCH_BYTES, Item, Shared, State};
use crate::spool::{Header, encode_header};
use crate::{HostIdentity, OpenError, Options, SCHEMA_VERSION, StoreError, layout, lock, modes};
use rustix::time::{ClockId, clock_gettime};
use slowpath_model::WallMicros;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How long to wait before writing again to a disk that refused.
const RETRY: Duration = Duration::from_millis(500);

/// The spool of the present segment.
struct Spool {
    file: File,
    path: PathBuf,
    /// Header bytes not yet written.
    header: Vec<u8>,
    length: u64,
    /// Records written to it.
    records: u64,
    synced: Instant,
}

/// What the segment ids of a run that begins now begin with: they differ from those of every other
/// run since boot.
pub(super) fn segment_prefix(host: &HostIdentity) -> String {
    let monotonic = clock_gettime(ClockId::Monotonic);
    let run = monotonic.tv_sec as u64 * 1_000_000 + monotonic.tv_nsec as u64 / 1_000;
    format!("{:08x}-{run:012x}", (host.boot_id >> 96) as u32)
}

/// What one attempt to write came to.
#[derive(Default)]
struct Outcome {
    records: u64,
    bytes: usize,
    spooled: u64,
    /// Spools that were gone, the records in them, and their bytes.
    gone: u32,
    lost: u64,
    unspooled: u64,
    error: Option<StoreError>,
}

pub(super) struct Spooler {
    dir: PathBuf,
    host: HostIdentity,
    shared: Arc<Shared>,
    options: Options,
    jobs: Sender<Job>,
    spool: Option<Spool>,
    begun: Option<WallMicros>,
    /// Begins the segment ids of this run.
    run: String,
    sequence: u32,
    /// Taken from the queue and not yet done; the first item may be written in part.
    backlog: VecDeque<Item>,
    written_of_first: usize,
}

impl Spooler {
    pub(super) fn new(
        dir: &Path,
        (host, run): (HostIdentity, String),
        shared: Arc<Shared>,
        options: Options,
        jobs: Sender<Job>,
    ) -> Self {
        Spooler {
            dir: dir.to_owned(),
            host,
            shared,
            options,
            jobs,
            spool: None,
            begun: None,
            run,
            sequence: 0,
            backlog: VecDeque::new(),
            written_of_first: 0,
        }
    }

    pub(super) fn run(mut self) {
        let shared = self.shared.clone();
        let mut failed_at: Option<Instant> = None;
        loop {
            let mut state = shared.lock();
            let closing = loop {
                if state.closing {
                    break true;
                }
                let wait = match failed_at {
                    Some(at) => RETRY.saturating_sub(at.elapsed()),
                    None => self.due_in(&state),
                };
                if wait.is_zero() {
                    break false;
                }
                (state, _) = shared
                    .work
                    .wait_timeout(state, wait)
                    .unwrap_or_else(PoisonError::into_inner);
            };
            self.backlog.append(&mut state.queue);
            let now = state.now;
            drop(state);

            let outcome = self.attempt(now);
            failed_at = outcome.error.as_ref().map(|_| Instant::now());

            let mut state = shared.lock();
            self.settle(&outcome, &mut state);
            if closing {
                for item in self
                    .backlog
                    .drain(..)
                    .chain(state.queue.drain(..).collect::<Vec<_>>())
                {
                    if let Item::Records { count, .. } = item {
                        state.status.records_dropped += count;
                        state.settled += count;
                    }
                }
                state.status.buffered_bytes = 0;
            }
            shared.done.notify_all();
            if closing {
                break;
            }
        }
        self.end_segment(true);
        let mut state = shared.lock();
        state.closing = true;
        shared.done.notify_all();
    }

    /// Counts what an attempt came to.
    fn settle(&self, outcome: &Outcome, state: &mut State) {
        state.settled += outcome.records;
        state.failures += u64::from(outcome.error.is_some());
        state.write_error = outcome.error.as_ref().map(StoreError::to_string);
        let status = &mut state.status;
        status.records_written += outcome.records;
        status.buffered_bytes -= outcome.bytes;
        status.spool_bytes += outcome.spooled;
        if outcome.gone > 0 {
            self.shared
                .replaced
                .fetch_add(outcome.gone, Ordering::Relaxed);
            status.records_written = status.records_written.saturating_sub(outcome.lost);
            status.records_dropped += outcome.lost;
            status.spool_bytes = status.spool_bytes.saturating_sub(outcome.unspooled);
            let what = format!(
                "its spool was deleted or replaced while it was written, and made again; records lost with it: {}",
                outcome.lost
            );
            status.note_damage(&self.dir, &what);
        }
    }

    /// When the queue must be looked at again; zero for now.
    fn due_in(&self, state: &State) -> Duration {
        let idle = self.options.sync_every.unwrap_or(Duration::from_secs(3600));
        let first = match self.backlog.front().or(state.queue.front()) {
            None => return idle,
            Some(first) => first,
        };
        match first {
            Item::Rotate(_) => Duration::ZERO,
            Item::Records { bytes, since, .. } => {
                if bytes.len() >= BATCH_BYTES
                    || state.queue.len() > 1
                    || state.hurry > state.settled
                {
                    return Duration::ZERO;
                }
                self.options.batch_age.saturating_sub(since.elapsed())
            }
        }
    }

    /// Does as much of the backlog as the disk takes.
    fn attempt(&mut self, now: WallMicros) -> Outcome {
        let mut outcome = Outcome::default();
        while let Some(item) = self.backlog.front() {
            match item {
                Item::Rotate(at) => {
                    self.begun = Some(*at);
                    self.end_segment(false);
                    self.backlog.pop_front();
                }
                Item::Records { .. } => {
                    let there = self.keep_directory(&mut outcome);
                    if let Err(error) = there.and_then(|()| self.write_first(now, &mut outcome)) {
                        outcome.error = Some(error);
                        return outcome;
                    }
                }
            }
        }
        self.sync_if_due();
        outcome
    }

    /// Looks whether the directory is still what was opened: it may have been deleted, or another
    /// one mounted or moved there. Then it is made again, with its lock, and a new spool begins.
    fn keep_directory(&mut self, outcome: &mut Outcome) -> Result<(), StoreError> {
        let spool = self
            .spool
            .take_if(|spool| !lock::names(&spool.path, &spool.file));
        if let Some(spool) = spool {
            outcome.gone += 1;
            outcome.lost += spool.records;
            outcome.unspooled += spool.length;
            self.written_of_first = 0;
        }
        let mut lock = self
            .shared
            .lock_file
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if lock.as_ref().is_some_and(|lock| lock.is_current(&self.dir)) {
            return Ok(());
        }
        layout::make_dirs(&self.dir, &self.dir)?;
        let taken = lock::take(&self.dir, &self.run).map_err(|error| match error {
            OpenError::Store(error) => error,
            other => StoreError::io("lock", &self.dir)(io::Error::other(other.to_string())),
        })?;
        *lock = Some(taken);
        Ok(())
    }

    /// Writes the backlog's first item, records.
    fn write_first(&mut self, now: WallMicros, outcome: &mut Outcome) -> Result<(), StoreError> {
        let spool = match &mut self.spool {
            Some(spool) => spool,
            None => {
                let begun = *self.begun.get_or_insert(now);
                let opened = self.create(begun)?;
                self.spool.insert(opened)
            }
        };
        let Some(Item::Records { bytes, count, .. }) = self.backlog.front() else {
            return Ok(());
        };
        let result = write_from(&mut spool.file, &spool.header, 0);
        outcome.spooled += result.0 as u64;
        spool.length += result.0 as u64;
        spool.header.drain(..result.0);
        result
            .1
            .map_err(StoreError::io("write the spool", &spool.path))?;

        let result = write_from(&mut spool.file, bytes, self.written_of_first);
        self.written_of_first += result.0;
        outcome.spooled += result.0 as u64;
        spool.length += result.0 as u64;
        result
            .1
            .map_err(StoreError::io("write the spool", &spool.path))?;

        outcome.records += count;
        outcome.bytes += bytes.len();
        spool.records += count;
        self.written_of_first = 0;
        self.backlog.pop_front();
        Ok(())
    }

    fn create(&mut self, begun: WallMicros) -> Result<Spool, StoreError> {
        let segment = format!("{}-{:04}", self.run, self.sequence);
        let path = layout::spool_path(&self.dir, &segment);
        layout::make_dirs(&self.dir, &layout::spool_dir(&self.dir))?;
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(modes::FILE)
            .open(&path)
            .map_err(StoreError::io("create the spool", &path))?;
        lock::hold(&file);
        self.sequence += 1;
        Ok(Spool {
            file,
            path,
            header: encode_header(&Header {
                schema_version: SCHEMA_VERSION,
                host: self.host.clone(),
                segment,
                begun,
            }),
            length: 0,
            records: 0,
            synced: Instant::now(),
        })
    }

    /// Hands the present spool on to be converted; whether it is this writer's last.
    fn end_segment(&mut self, last: bool) {
        if let Some(spool) = self.spool.take() {
            self.shared.lock().status.segments_waiting += 1;
            // The other end is gone only if its thread panicked: the spool then waits for
            // the next run.
            let _ = self.jobs.send(Job::Convert {
                path: spool.path,
                file: spool.file,
                length: spool.length,
                last,
            });
        }
    }

    fn sync_if_due(&mut self) {
        if let (Some(every), Some(spool)) = (self.options.sync_every, &mut self.spool)
            && spool.synced.elapsed() >= every
        {
            spool.synced = Instant::now();
            if let Ok(file) = spool.file.try_clone() {
                let _ = self.jobs.send(Job::Sync(file));
            }
        }
    }
}

/// Writes `bytes` from `at` on; returns how many of them, and why not all.
fn write_from(file: &mut File, bytes: &[u8], at: usize) -> (usize, Result<(), io::Error>) {
    let mut written = 0;
    while at + written < bytes.len() {
        match file.write(&bytes[at + written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(n) => written += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return (written, Err(e)),
        }
    }
    (written, Ok(()))
}

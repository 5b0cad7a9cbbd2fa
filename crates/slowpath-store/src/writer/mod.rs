// SPDX-License-Identifier: Apache-2.0
//! Writing a log.
//!
//! The caller only encodes into memory. One thread writes the spool ([`mod@write`]), a
//! second converts finished segments, flushes to the disk and applies retention
//! ([`mod@finish`]), so that neither a slow disk nor a conversion delays the polling or
//! the next batch.

mod finish;
mod inbox;
mod pacing;
mod unreadable_spools;
mod write;

use crate::spool::Encoder;
use crate::{HostIdentity, OpenError, Options, layout, lock};
use finish::Finisher;
use inbox::Inbox;
use slowpath_model::{
    ConnectionSummary, Coverage, InteractionInterval, ListenerInterval, PathHop, ProblemInterval,
    TrafficInterval, WallMicros,
};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use write::{Spooler, segment_prefix};

/// Size at which waiting records are written although they are young.
const BATCH_BYTES: usize = 64 << 10;

/// How a writer fares. Counts are since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriterStatus {
    /// Records handed to the operating system.
    pub records_written: u64,
    /// Records lost: the buffer was full, or the disk still refused when the log closed.
    pub records_dropped: u64,
    /// Bytes of records that wait for the disk.
    pub buffered_bytes: usize,
    /// Bytes of spools that are not in Parquet yet, as far as this writer wrote them.
    pub spool_bytes: u64,
    /// Segments turned into Parquet, those that earlier runs left behind included.
    pub segments_converted: u64,
    /// Rows of problem intervals in them.
    pub rows_converted: u64,
    /// Bytes of Parquet written.
    pub parquet_bytes: u64,
    /// Segments whose conversion failed and is tried again; their spools are readable.
    pub segments_waiting: u64,
    /// Spools without a usable header, set aside as `*.unreadable`, and damaged places in
    /// converted ones.
    pub unreadable: u64,
    /// Hours that retention deleted.
    pub hours_deleted: u64,
    /// What the disk last refused, until the same succeeds.
    pub last_error: Option<String>,
    /// What was found to be missing from the log, in words: what earlier runs set aside or did not
    /// close, and damage met in converting; the first 64 findings.
    pub damage: Vec<String>,
}

impl WriterStatus {
    /// Most findings that are kept.
    const FINDINGS: usize = 64;

    fn note_damage(&mut self, path: &Path, what: &str) {
        if self.damage.len() < Self::FINDINGS {
            self.damage.push(format!("{}: {what}", path.display()));
        }
    }
}

/// Something for the spool's thread.
enum Item {
    /// Encoded records.
    Records {
        bytes: Vec<u8>,
        count: u64,
        since: Instant,
    },
    /// The next record begins a new segment, at that time.
    Rotate(WallMicros),
}

#[derive(Default)]
struct State {
    queue: VecDeque<Item>,
    /// Records accepted, and those of them written or dropped since.
    accepted: u64,
    settled: u64,
    /// Up to which accepted record `sync` wants them written at once.
    hurry: u64,
    /// Failed attempts to write.
    failures: u64,
    closing: bool,
    now: WallMicros,
    status: WriterStatus,
    write_error: Option<String>,
    finish_error: Option<String>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Something for the spool's thread to do.
    work: Condvar,
    /// Something was written, or could not be.
    done: Condvar,
    /// Spools that were gone and begun again.
    replaced: AtomicU32,
    /// Held until the last thread has ended.
    lock_file: Mutex<Option<lock::Lock>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked left counters behind, not broken invariants.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a log. One per directory, over all processes.
///
/// Dropping it closes it.
pub struct LogWriter {
    shared: Arc<Shared>,
    encoder: Encoder,
    options: Options,
    /// The multiple of the segment time that `tick` was last in.
    bucket: Option<i64>,
    /// Number of the segment that the next record belongs to, and bytes of its records.
    segment: u32,
    segment_bytes: u64,
    threads: Vec<JoinHandle<()>>,
}

impl LogWriter {
    /// Opens the log in `dir`, which is created if it does not exist, and begins to convert
    /// what earlier runs left in the spool, what an older version set aside included.
    ///
    /// # Errors
    /// The directory cannot be created or written, another process writes to it, or a
    /// thread cannot be started.
    pub fn open(dir: &Path, host: HostIdentity, options: Options) -> Result<Self, OpenError> {
        let options = options.within_limits();
        layout::make_dirs(dir, dir)?;
        let run = segment_prefix(&host);
        let lock = lock::take(dir, &run)?;
        layout::make_dirs(dir, &layout::spool_dir(dir))?;
        for hour in layout::hours(dir)? {
            crate::convert::sweep(&hour)?;
        }
        unreadable_spools::take_back(dir)?;
        let left = layout::spools(dir)?;
        if left.iter().any(|spool| lock::is_held(spool)) {
            // Its lock file was deleted.
            return Err(OpenError::Locked {
                dir: dir.to_owned(),
                holder: None,
            });
        }
        let shared = Arc::new(Shared {
            lock_file: Mutex::new(Some(lock)),
            ..Shared::default()
        });
        {
            let mut state = shared.lock();
            state.now = wall_clock();
            state.status.segments_waiting = left.len() as u64;
            for (path, what) in crate::reader::set_aside(dir)? {
                state.status.note_damage(&path, &what);
            }
        }
        let (jobs, finisher_jobs) = mpsc::channel();
        let encoder = Encoder::new(host.boot_id);
        let inbox = Inbox::new(
            finisher_jobs,
            dir.to_owned(),
            shared.clone(),
            options.conversion,
        );
        let finisher = Finisher::new(dir, shared.clone(), options, inbox, left);
        let spooler = Spooler::new(dir, (host, run), shared.clone(), options, jobs);
        // Without its thread, a half-opened writer is dropped whole: the channel's end stops
        // the first thread.
        let spawn = |name: &'static str, body: Box<dyn FnOnce() + Send>| {
            thread::Builder::new()
                .name(name.to_owned())
                .spawn(body)
                .map_err(|source| OpenError::Thread { name, source })
        };
        let finish = spawn("sp-log-finish", Box::new(move || finisher.run()))?;
        let write = spawn("sp-log-write", Box::new(move || spooler.run()))?;
        Ok(LogWriter {
            shared,
            encoder,
            options,
            bucket: None,
            segment: 1,
            segment_bytes: 0,
            threads: vec![write, finish],
        })
    }

    /// Logs a problem interval of a connection that has a summary in this segment. This and the
    /// others return whether there was space; what there was none for is counted.
    pub fn problem(&mut self, interval: &ProblemInterval) -> bool {
        self.append(|encoder, out| {
            encoder.problem(interval, out);
            1
        })
    }

    /// Logs a problem interval after its connection's summary, in one segment. Returns
    /// whether there was space for them.
    pub fn problem_of(&mut self, summary: &ConnectionSummary, interval: &ProblemInterval) -> bool {
        self.append(|encoder, out| {
            encoder.summary(summary, out);
            encoder.problem(interval, out);
            2
        })
    }

    /// Logs what a connection carried after its summary, in one segment. Returns whether there was
    /// space for them.
    pub fn traffic_of(&mut self, summary: &ConnectionSummary, traffic: &TrafficInterval) -> bool {
        self.append(|encoder, out| {
            encoder.summary(summary, out);
            encoder.traffic(traffic, out);
            2
        })
    }

    /// Logs the hops of a connection's path after its summary, in one segment; without one where it
    /// has closed meanwhile. Returns whether there was space for them.
    pub fn hops_of(&mut self, summary: Option<&ConnectionSummary>, hops: &[PathHop]) -> bool {
        self.append(|encoder, out| {
            if let Some(summary) = summary {
                encoder.summary(summary, out);
            }
            for hop in hops {
                encoder.hop(hop, out);
            }
            u64::from(summary.is_some()) + hops.len() as u64
        })
    }

    /// The segment that the next record belongs to, counted from 1. Who the connections of a
    /// segment's intervals are is read from that segment: the first interval of each goes to
    /// [`LogWriter::problem_of`].
    pub fn segment(&self) -> u32 {
        let replaced = self.shared.replaced.load(Ordering::Relaxed);
        self.segment.wrapping_add(replaced).max(1)
    }

    /// Logs a connection's summary, or a checkpoint of it that replaces earlier ones. Returns
    /// whether there was space for it.
    pub fn summary(&mut self, summary: &ConnectionSummary) -> bool {
        self.append(|encoder, out| {
            encoder.summary(summary, out);
            1
        })
    }

    /// Logs what was looked at.
    pub fn coverage(&mut self, coverage: &Coverage) -> bool {
        self.append(|encoder, out| {
            encoder.coverage(coverage, out);
            1
        })
    }

    /// Logs an interaction.
    pub fn interaction(&mut self, interval: &InteractionInterval) -> bool {
        self.append(|encoder, out| {
            encoder.interaction(interval, out);
            1
        })
    }

    /// Logs an interval in which a listener had a problem.
    pub fn listener(&mut self, interval: &ListenerInterval) -> bool {
        self.append(|encoder, out| {
            encoder.listener(interval, out);
            1
        })
    }

    /// Lets `encode` append records, which it counts; `false` if there is no space for them.
    fn append(&mut self, encode: impl FnOnce(&mut Encoder, &mut Vec<u8>) -> u64) -> bool {
        let mut state = self.shared.lock();
        if state.status.buffered_bytes >= self.options.buffer_bytes {
            state.status.records_dropped += encode(&mut self.encoder, &mut Vec::new());
            return false;
        }
        if !matches!(state.queue.back(), Some(Item::Records { bytes, .. }) if bytes.len() < BATCH_BYTES)
        {
            state.queue.push_back(Item::Records {
                bytes: Vec::new(),
                count: 0,
                since: Instant::now(),
            });
            self.shared.work.notify_one();
        }
        let Some(Item::Records { bytes, count, .. }) = state.queue.back_mut() else {
            return false;
        };
        let before = bytes.len();
        let records = encode(&mut self.encoder, bytes);
        let grown = bytes.len() - before;
        let full = bytes.len() >= BATCH_BYTES;
        *count += records;
        state.accepted += records;
        state.status.buffered_bytes += grown;
        if full {
            self.shared.work.notify_one();
        }
        self.segment_bytes += grown as u64;
        if self.segment_bytes >= self.options.segment_bytes {
            let now = state.now;
            drop(state);
            self.begin_segment(now);
        }
        true
    }

    /// The next record begins a new segment.
    fn begin_segment(&mut self, now: WallMicros) {
        let mut state = self.shared.lock();
        state.queue.push_back(Item::Rotate(now));
        self.segment = self.segment.wrapping_add(1).max(1);
        self.segment_bytes = 0;
        self.shared.work.notify_one();
    }

    /// Sets the wall time, as often as the caller polls: a segment ends when it passes a
    /// multiple of [`Options::segment_time`], in either direction. A clock that jumps back
    /// therefore also ends one; records keep the times they state.
    pub fn tick(&mut self, now: WallMicros) {
        let length = i64::try_from(self.options.segment_time.0)
            .unwrap_or(i64::MAX)
            .max(1_000);
        let bucket = now.0.div_euclid(length);
        self.shared.lock().now = now;
        if self.bucket != Some(bucket) {
            self.bucket = Some(bucket);
            self.begin_segment(now);
        }
    }

    /// Waits until every record handed over so far is with the operating system: readable,
    /// and safe from a `kill -9`. Returns whether it is; `false` if the disk refuses.
    pub fn sync(&self) -> bool {
        let mut state = self.shared.lock();
        let target = state.accepted;
        state.hurry = target;
        let failures = state.failures;
        self.shared.work.notify_one();
        while state.settled < target && state.failures == failures && !state.closing {
            state = self
                .shared
                .done
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.settled >= target
    }

    /// How the writer fares.
    pub fn status(&self) -> WriterStatus {
        let state = self.shared.lock();
        let mut status = state.status.clone();
        status.last_error = state.write_error.clone().or(state.finish_error.clone());
        status
    }

    /// Writes what waits, turns everything into Parquet and ends. What the disk refuses
    /// is counted as dropped; segments that cannot be converted stay readable in their
    /// spools, and [`WriterStatus::last_error`] says why.
    pub fn close(mut self) -> WriterStatus {
        self.stop();
        self.status()
    }

    fn stop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A panic of that thread has been printed; its records are in the counts.
            let _ = thread.join();
        }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The wall clock; used only until the first `tick`.
fn wall_clock() -> WallMicros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    WallMicros(since.map_or(0, |d| d.as_micros() as i64))
}

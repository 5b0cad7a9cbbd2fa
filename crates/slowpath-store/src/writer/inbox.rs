// SPDX-License-Identifier: Apache-2.0
//! What the finishing thread is asked to do, and its rests between two pieces of a paced conversion.
//!
//! It rests on its inbox: what comes meanwhile is done at once (a spool to flush) or noted
//! (a segment that ended), and when the writer closes the rest ends and none follows.

use super::Shared;
use super::pacing::{Pacer, allowance};
use crate::{CpuShare, StoreError};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Something to do.
pub(super) enum Job {
    /// A segment has ended.
    Convert {
        path: PathBuf,
        file: File,
        length: u64,
        /// No segment of this writer follows.
        last: bool,
    },
    /// Flush the present spool.
    Sync(File),
}

/// A spool to convert, and how many bytes of it the status counts.
pub(super) struct Waiting {
    pub path: PathBuf,
    pub length: u64,
    /// The last one of a run that did not close its log.
    pub unclosed: bool,
    /// A writer before this one left it.
    pub inherited: bool,
}

/// What a wait came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// A segment ended.
    Ended,
    /// Something else was asked for and done.
    Done,
    /// Nothing came.
    Nothing,
    /// Nothing will come any more.
    Closed,
}

pub(super) struct Inbox {
    jobs: Receiver<Job>,
    dir: PathBuf,
    shared: Arc<Shared>,
    /// What a conversion may take of a core; `None` for as much as there is.
    share: Option<CpuShare>,
    pacer: Pacer,
    began: Instant,
    /// Segments that ended and were not taken yet.
    pub ended: Vec<Waiting>,
    /// The writer goes on.
    open: bool,
}

impl Inbox {
    pub(super) fn new(
        jobs: Receiver<Job>,
        dir: PathBuf,
        shared: Arc<Shared>,
        share: Option<CpuShare>,
    ) -> Self {
        Inbox {
            jobs,
            dir,
            shared,
            share,
            pacer: Pacer::default(),
            began: Instant::now(),
            ended: Vec::new(),
            open: true,
        }
    }

    /// Waits for a job, at most so long, and does it or notes it.
    pub(super) fn wait(&mut self, most: Option<Duration>) -> News {
        let job = match most {
            None => self.jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(most) => self.jobs.recv_timeout(most),
        };
        match job {
            Ok(Job::Sync(file)) => {
                if let Err(e) = file.sync_data() {
                    let error = StoreError::io("flush a spool in", &self.dir)(e);
                    self.shared.lock().finish_error = Some(error.to_string());
                }
                News::Done
            }
            Ok(Job::Convert {
                path,
                file,
                length,
                last,
            }) => {
                // Conversion flushes what it makes of it; this is for when that fails.
                let _ = file.sync_data();
                self.ended.push(Waiting {
                    path,
                    length,
                    unclosed: false,
                    inherited: false,
                });
                self.open &= !last;
                News::Ended
            }
            Err(RecvTimeoutError::Timeout) => News::Nothing,
            Err(RecvTimeoutError::Disconnected) => {
                self.open = false;
                News::Closed
            }
        }
    }

    /// Between two pieces of a conversion: rests until its share of a core is kept.
    pub(super) fn rest(&mut self) {
        while let Some(share) = self.share.filter(|_| self.open) {
            let waiting = self.shared.lock().status.segments_waiting;
            let Some(share) = allowance(share, waiting) else {
                return;
            };
            let rest = self.pacer.rest(self.began.elapsed(), thread_cpu(), share);
            if rest.is_zero() {
                return;
            }
            self.wait(Some(rest));
        }
    }
}

/// CPU time of this thread, user and system.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

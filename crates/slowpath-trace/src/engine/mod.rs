// SPDX-License-Identifier: Apache-2.0
//! From captures to connections, on all cores.
//!
//! What enters: [`Inputs`], and for each connection something that implements [`Follow`].
//!
//! What leaves: what each connection's follower made of it, handed over when the connection is
//! over, and a [`Summary`] of the capture.
//!
//! What is promised: the results do not depend on the number of threads; memory depends on the
//! connections that are open at the same time, of which there is a bound, and not on the
//! capture's length; every frame is counted once.
//!
//! How: workers take turns at reading; each follows the connections of its own shards. A
//! shard is chosen by a hash of addresses and ports that is the same in every run; what happens in it
//! depends on its segments only, which come in the order of the capture whoever read them. So workers share
//! decoded segments and nothing else. Segments are taken in groups, whose connections' places are fetched all at once. Where
//! a connection begins and ends is decided at once; its follower gets segments later, many in a
//! row, while its state is in the caches. A connection of one segment has none before it ends.

mod backlog;
mod belt;
mod followers;
mod huge;
mod key;
mod life;
mod open;
mod sheaf;
mod table;
mod worker;

use crate::decode::DecodeOptions;
use crate::filter::Filter;
use crate::read::{Inputs, Notes, ReadError};
use crate::segment::{Segment, Timestamp};
use crate::tcp::{Connection, ConnectionReport, Moment};
use crate::totals::Totals;
use belt::Belt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Shards; more than there are workers, so that they can be divided among them.
const SHARDS: usize = 64;

/// How often progress is reported.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// Follows one connection.
pub trait Follow: Send {
    /// What is made of the connection.
    type Report: Send;

    /// A segment of the connection, of either direction; the first one too.
    fn segment(&mut self, segment: &Segment<'_>);

    /// ICMP reported the destination of one of its segments as unreachable, after the last segment
    /// so far; `refused`: the host itself did, of the port.
    fn unreachable(&mut self, _at: Moment, _refused: bool) {}

    /// Nothing more of the connection was captured up to that time. Comes after the last segment.
    fn silent_until(&mut self, _time: Timestamp) {}

    /// The connection is over.
    fn finish(self) -> Self::Report;

    /// Segments come soon: fetches memory that [`Follow::segment`] will touch and that the
    /// follower points to. The follower itself was fetched before. See [`prefetch`].
    #[inline]
    fn prefetch(&self) {}
}

impl Follow for Connection {
    type Report = ConnectionReport;

    fn segment(&mut self, segment: &Segment<'_>) {
        Connection::segment(self, segment);
    }

    fn finish(self) -> ConnectionReport {
        Connection::finish(self)
    }

    #[inline]
    fn prefetch(&self) {
        self.prefetch_outstanding();
    }
}

/// How a connection came to be another one than those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Began {
    /// Its addresses and ports were not in use.
    Fresh,
    /// It took over the addresses and ports of one that was still remembered.
    OnReusedPorts,
}

/// Asks the processor to fetch the cache line at an address that need not be valid, into its
/// second-level cache: a batch's connections are more than the first level holds.
#[inline]
pub fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is without effect on what a program can see.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Asks for all cache lines of `bytes` from an address on.
#[inline]
pub(crate) fn prefetch_all(start: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(64) {
        prefetch(start.wrapping_add(line));
    }
}

/// How captures are analysed.
#[derive(Clone, Debug)]
pub struct Options {
    /// Workers; 0: one a core.
    pub threads: usize,
    /// Connections open at the same time, about: each of 64 shards takes its part of them.
    pub connections: usize,
    /// And of these, such as more than one segment was captured of: a scan or a flood of SYNs may
    /// have as many connections as there is room for, and costs little.
    pub followed: usize,
    /// How long a closed connection is kept for what comes late, in the capture's time.
    pub linger: Duration,
    /// How frames are decoded.
    pub decode: DecodeOptions,
    /// Which frames are wanted; the others are counted only.
    pub filter: Option<Filter>,
}

impl Options {
    /// How many workers there are.
    fn workers(&self) -> usize {
        let threads = match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        threads.clamp(1, SHARDS)
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            threads: 0,
            // 250 MB: a slot, the first segment, and their entries in table and lists.
            connections: 1 << 20,
            // 3 GB with the 11 kB that verdicts take for a connection of 16 segments.
            followed: 1 << 18,
            // Twice the maximum segment lifetime of RFC 9293 section 3.4.2.
            linger: Duration::from_secs(240),
            decode: DecodeOptions::default(),
            filter: None,
        }
    }
}

/// Why a connection was finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Both sides finished, or one reset it.
    Closed,
    /// Another connection began between the same ports.
    Reused,
    /// The capture ended first.
    Capture,
    /// A bound on open connections was reached, and it had been silent for longer than others, or
    /// was the oldest with one segment.
    /// Segments that came later count as another connection.
    Evicted,
}

/// A connection that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished<R> {
    /// Its first frame: a number for the connection that no other has.
    pub first_frame: u64,
    /// Its last frame.
    pub last_frame: u64,
    /// Why it is over.
    pub ended: Ended,
    /// What its follower made of it.
    pub report: R,
}

impl<R> Finished<R> {
    /// The same of a part of the report, if there is that part.
    pub fn filter_map<T>(self, part: impl FnOnce(R) -> Option<T>) -> Option<Finished<T>> {
        Some(Finished {
            first_frame: self.first_frame,
            last_frame: self.last_frame,
            ended: self.ended,
            report: part(self.report)?,
        })
    }
}

/// How far the work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read of all inputs, as they lie on disk.
    pub bytes: u64,
    /// All bytes; `None` where an input is no file.
    pub total: Option<u64>,
    /// Frames read.
    pub frames: u64,
}

/// What there was beside the connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Where the frames went.
    pub totals: Totals,
    /// What the captures reported beside their frames, and what could not be read.
    pub notes: Notes,
    /// The first frame's time.
    pub first: Option<Timestamp>,
    /// The last frame's time.
    pub last: Option<Timestamp>,
    /// Connections.
    pub connections: u64,
    /// Connections finished early for want of room.
    pub evicted: u64,
    /// Closed connections that were not kept for all of their linger, for want of room.
    pub hurried: u64,
    /// All inputs were read to their ends; `false` if it was stopped.
    pub complete: bool,
}

/// A worker that panics stops the others: they would wait for what it was to decode.
struct StopOnPanic<'a>(&'a Belt);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.abort();
        }
    }
}

/// Analyses captures. `begin` makes the follower of a new connection from its first segment,
/// which it then gets by [`Follow::segment`] too; `each` gets every connection that is over, in
/// no certain order; `progress` is reported every 100 ms at least how far the work is, and can stop it.
///
/// # Errors
/// An input cannot be read or is no capture.
pub fn run<F, B>(
    inputs: Inputs,
    options: &Options,
    begin: B,
    mut each: impl FnMut(Finished<F::Report>),
    mut progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Summary, ReadError>
where
    F: Follow,
    B: Fn(&Segment<'_>, Began) -> F + Sync,
{
    let threads = options.workers();
    let total = inputs.total_bytes();
    let stop = AtomicBool::new(false);
    let frames = AtomicU64::new(0);
    let hasher = key::KeyHasher::random();
    let consumed = inputs.consumed_counter();
    let belt = Belt::new(inputs.cursor(), threads);
    let reported = || Progress {
        bytes: consumed.load(Ordering::Relaxed),
        total,
        frames: frames.load(Ordering::Relaxed),
    };
    let results = std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel(2 * threads);
        let mut workers = Vec::new();
        for number in 0..threads {
            let assignment = worker::Assignment {
                number,
                workers: threads,
                belt: &belt,
                stop: &stop,
                frames: &frames,
            };
            let rules = open::Rules {
                begin: &begin,
                hasher,
                bound: options.connections.div_ceil(SHARDS).max(1),
                followed: options.followed.div_ceil(SHARDS).max(1),
                linger: i64::try_from(options.linger.as_nanos()).unwrap_or(i64::MAX),
            };
            let sender = sender.clone();
            workers.push(scope.spawn(move || {
                let _guard = StopOnPanic(assignment.belt);
                let result = worker::work(&assignment, &rules, options, &sender);
                if result.is_err() {
                    assignment.belt.abort();
                }
                result
            }));
        }
        drop(sender);
        deliver(&receiver, &mut each, || {
            if progress(reported()).is_break() {
                stop.store(true, Ordering::Relaxed);
            }
        });
        workers
            .into_iter()
            .map(|worker| match worker.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect::<Vec<_>>()
    });
    let complete = !stop.load(Ordering::Relaxed);
    let mut summary = belt.summary();
    summary.complete = complete;
    for done in results {
        let done = done?;
        summary.totals.merge(&done.totals);
        summary.connections += done.tally.begun;
        summary.evicted += done.tally.evicted;
        summary.hurried += done.tally.hurried;
    }
    let _ = progress(reported());
    Ok(summary)
}

/// Hands over the connections that the workers send, until all workers are done; calls `report`
/// after each batch, and every [`REPORT_EVERY`] without one.
fn deliver<R>(
    receiver: &Receiver<Vec<Finished<R>>>,
    mut each: impl FnMut(Finished<R>),
    mut report: impl FnMut(),
) {
    loop {
        match receiver.recv_timeout(REPORT_EVERY) {
            Ok(finished) => finished.into_iter().for_each(&mut each),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        report();
    }
}

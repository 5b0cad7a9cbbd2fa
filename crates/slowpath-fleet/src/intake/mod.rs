// SPDX-License-Identifier: Apache-2.0
//! The intake: batches of all hosts, each decided on, appended to one file and flushed before it is
//! answered.
//!
//! One thread does it. Each flush takes what came during the one before (group commit), so that a
//! slow disk makes larger groups and not a longer queue. A file ends at a size or an age; with its
//! end the offsets are written, and from then on it may be published and removed.
//!
//! What is bounded: batches that wait for the thread, their bytes, and the bytes of files that are
//! not published. Past a bound a batch is answered [`Receipt::Busy`].

mod open;
mod writer;

#[cfg(test)]
mod tests;

use crate::FleetError;
use crate::decide::Position;
use crate::status::{HostStatus, Peer};
use slowpath_model::{Micros, WallMicros};
use slowpath_ship::batch::Batch;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The intake's limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntakeOptions {
    /// A file ends when it has this number of bytes.
    pub file_bytes: u64,
    /// A file ends when its first batch was received so long ago.
    pub file_age: Micros,
    /// The most bytes of files that are not published.
    pub unpublished: u64,
    /// The most batches that wait.
    pub queue: usize,
    /// The most bytes of items in them.
    pub queue_bytes: u64,
}

impl Default for IntakeOptions {
    fn default() -> Self {
        IntakeOptions {
            file_bytes: 64 << 20,
            file_age: Micros(60_000_000),
            unpublished: 4 << 30,
            queue: 4_096,
            queue_bytes: 64 << 20,
        }
    }
}

/// What a batch is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// The segment is flushed up to here: 200.
    Flushed(Position),
    /// The segment is flushed up to here only, and the batch begins behind it: 409.
    Behind(Position),
    /// Other bytes of the segment are flushed up to here: 409.
    OtherBytes(Position),
    /// Another process ships under the same identity: 409.
    Clone {
        /// That process, where it is known.
        other: Option<Peer>,
    },
    /// Too much waits: 503.
    Busy,
    /// The disk is full: 507.
    Full,
    /// The disk refused to write otherwise: 503. The text is for the journal.
    Failed(String),
}

type Reply = Box<dyn FnOnce(Receipt) + Send>;
type PositionsReply = Box<dyn FnOnce(Vec<Position>) + Send>;

/// A batch that was handed in.
struct Submission {
    host: String,
    address: IpAddr,
    batch: Batch,
    received: WallMicros,
    reply: Reply,
}

enum Message {
    Batch(Box<Submission>),
    Positions(String, Vec<String>, PositionsReply),
    Refused(String, &'static str, WallMicros),
    Tick(WallMicros),
    Hosts(Box<dyn FnOnce(Vec<HostStatus>) + Send>),
    EndFile(Box<dyn FnOnce() + Send>),
}

/// What the intake's thread, its callers and the publication share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The file that is written; those of lower numbers have ended.
    pub current: AtomicU64,
    /// Bytes of files that are not published.
    pub unpublished: AtomicU64,
    /// Bytes of items that wait.
    queued: AtomicU64,
    counters: Mutex<IntakeCounters>,
}

impl Shared {
    /// A file of that length was published and removed.
    pub(crate) fn published(&self, bytes: u64) {
        let less = |left: u64| Some(left.saturating_sub(bytes));
        let _ = self
            .unpublished
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    fn count(&self, count: impl FnOnce(&mut IntakeCounters)) {
        count(&mut self.counters.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// What the intake did since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntakeCounters {
    /// Batches of which something was new.
    pub batches: u64,
    /// Records taken.
    pub records: u64,
    /// Bytes appended.
    pub bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Batches that were taken before, all of them.
    pub known: u64,
    /// Batches not taken, by reason.
    pub refused: HashMap<&'static str, u64>,
    /// Bytes of records that gaps stand for.
    pub gap_bytes: u64,
    /// What last went wrong with the disk; nothing once a flush succeeded.
    pub error: Option<String>,
}

/// The intake of a server. Dropped, it flushes what was handed in and ends.
pub struct Intake {
    sender: Option<SyncSender<Message>>,
    shared: Arc<Shared>,
    queue_bytes: u64,
    unpublished: u64,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake")
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}

impl Intake {
    /// Opens the intake in a server's directory, which no other process may use, and takes up what
    /// an earlier one flushed.
    ///
    /// # Errors
    /// The directory cannot be used, or `offsets` in it is damaged.
    pub fn open(dir: &Path, options: IntakeOptions) -> Result<Intake, FleetError> {
        let (sender, receiver) = sync_channel(options.queue);
        let (queue_bytes, unpublished) = (options.queue_bytes, options.unpublished);
        let shared = Arc::new(Shared::default());
        let writer = open::writer(dir, options, shared.clone())?;
        let thread = std::thread::Builder::new()
            .name("intake".to_owned())
            .spawn(move || writer.run(&receiver))
            .map_err(FleetError::io("start a thread for the intake in", dir))?;
        Ok(Intake {
            sender: Some(sender),
            shared,
            queue_bytes,
            unpublished,
            thread: Some(thread),
        })
    }

    /// Hands in a batch of a host, the certificate's, that was received at a time of the server's
    /// clock. Never waits: `reply` is called on the intake's thread once it is flushed or refused,
    /// or at once where the queue is full.
    pub fn submit(
        &self,
        (host, address): (&str, IpAddr),
        batch: Batch,
        received: WallMicros,
        reply: impl FnOnce(Receipt) + Send + 'static,
    ) {
        let bytes = batch.items.bytes().len() as u64;
        let waiting = self.shared.queued.fetch_add(bytes, Ordering::Relaxed);
        let full = self.shared.unpublished.load(Ordering::Relaxed) >= self.unpublished;
        let submission = Box::new(Submission {
            host: host.to_owned(),
            address,
            batch,
            received,
            reply: Box::new(reply),
        });
        if full || waiting + bytes > self.queue_bytes {
            return self.busy(submission);
        }
        match self
            .sender
            .as_ref()
            .map(|s| s.try_send(Message::Batch(submission)))
        {
            Some(Err(TrySendError::Full(Message::Batch(back)))) => self.busy(back),
            Some(Err(TrySendError::Disconnected(Message::Batch(back)))) => self.busy(back),
            _ => {}
        }
    }

    fn busy(&self, submission: Box<Submission>) {
        let bytes = submission.batch.items.bytes().len() as u64;
        self.shared.queued.fetch_sub(bytes, Ordering::Relaxed);
        self.shared
            .count(|c| *c.refused.entry("busy").or_default() += 1);
        (submission.reply)(Receipt::Busy);
    }

    /// Gives what is flushed of a host's segments, in the order asked for; the default of one that
    /// is not known. Waits for a place in the queue.
    pub fn positions(
        &self,
        host: &str,
        segments: Vec<String>,
        reply: impl FnOnce(Vec<Position>) + Send + 'static,
    ) {
        self.send(Message::Positions(
            host.to_owned(),
            segments,
            Box::new(reply),
        ));
    }

    /// Notes that a request of a host was refused before it was handed in, for `hosts` and
    /// [`Intake::hosts`]. Dropped where the queue is full.
    pub fn refused(&self, host: &str, reason: &'static str, now: WallMicros) {
        self.shared
            .count(|c| *c.refused.entry(reason).or_default() += 1);
        if let Some(sender) = &self.sender {
            let _ = sender.try_send(Message::Refused(host.to_owned(), reason, now));
        }
    }

    /// Lets a file end that is old enough at this time of the server's clock; to be called every
    /// few seconds.
    pub fn tick(&self, now: WallMicros) {
        if let Some(sender) = &self.sender {
            let _ = sender.try_send(Message::Tick(now));
        }
    }

    /// Ends the present file, whatever its age, and then calls `done`.
    pub fn end_file(&self, done: impl FnOnce() + Send + 'static) {
        self.send(Message::EndFile(Box::new(done)));
    }

    /// Gives what is known of every host that spoke since the intake was opened, by name.
    pub fn hosts(&self, reply: impl FnOnce(Vec<HostStatus>) + Send + 'static) {
        self.send(Message::Hosts(Box::new(reply)));
    }

    /// What the intake did.
    pub fn counters(&self) -> IntakeCounters {
        let counters = self.shared.counters.lock();
        counters.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Bytes of intake that are not published.
    pub fn unpublished(&self) -> u64 {
        self.shared.unpublished.load(Ordering::Relaxed)
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    fn send(&self, message: Message) {
        if let Some(sender) = &self.sender {
            let _ = sender.send(message);
        }
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

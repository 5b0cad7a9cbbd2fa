// SPDX-License-Identifier: Apache-2.0
//! The intake's thread.

use super::{IntakeOptions, Message, Receipt, Reply, Shared, Submission};
use crate::FleetError;
use crate::checkpoint::Checkpoint;
use crate::decide::Decision;
use crate::error::is_full;
use crate::frame::Taken;
use crate::layout;
use crate::offsets::{Judgement, Offsets, Undo};
use crate::status::{HostStatus, Statuses};
use slowpath_model::{Micros, WallMicros};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

/// The most bytes of frames that are flushed at once.
const GROUP: usize = 4 << 20;
/// After a file could not be ended it is tried again so much later.
const RETRY: Micros = Micros(10_000_000);

/// Writes the intake's files.
pub(super) struct Writer {
    dir: PathBuf,
    options: IntakeOptions,
    shared: Arc<Shared>,
    checkpoint: Checkpoint,
    offsets: Offsets,
    statuses: Statuses,
    file: File,
    /// Up to where the file is flushed.
    length: u64,
    /// Something may stand behind that.
    unclean: bool,
    /// When the file's first batch was received.
    begun: Option<WallMicros>,
    /// The file's end is tried again then.
    retry: Option<WallMicros>,
}

/// What is flushed at once.
#[derive(Default)]
struct Group {
    frames: Vec<u8>,
    moves: Vec<Undo>,
    /// Answers that hold once the frames are flushed.
    replies: Vec<(Reply, Receipt)>,
    batches: u64,
    records: u64,
    known: u64,
    gap_bytes: u64,
    received: Option<WallMicros>,
}

impl Writer {
    pub(super) fn new(
        (dir, number): (&Path, u64),
        options: IntakeOptions,
        (checkpoint, offsets): (Checkpoint, Offsets),
        shared: Arc<Shared>,
    ) -> Result<Self, FleetError> {
        let file = create(dir, number)?;
        shared.current.store(number, Ordering::Release);
        Ok(Writer {
            dir: dir.to_owned(),
            options,
            shared,
            checkpoint,
            offsets,
            statuses: Statuses::default(),
            file,
            length: 0,
            unclean: false,
            begun: None,
            retry: None,
        })
    }

    /// Takes messages until the last sender is gone.
    pub(super) fn run(mut self, receiver: &Receiver<Message>) {
        while let Ok(message) = receiver.recv() {
            let mut group = Group::default();
            self.handle(message, &mut group);
            while group.frames.len() < GROUP
                && let Ok(message) = receiver.try_recv()
            {
                self.handle(message, &mut group);
            }
            self.flush(group);
        }
    }

    fn handle(&mut self, message: Message, group: &mut Group) {
        match message {
            Message::Batch(submission) => self.take(*submission, group),
            Message::Refused(host, reason, now) => self.statuses.refused(&host, reason, now),
            // The others ask for what is flushed.
            message => {
                self.flush(std::mem::take(group));
                match message {
                    Message::Positions(host, segments, reply) => {
                        let ids = segments.iter();
                        let positions = ids.map(|id| self.offsets.position(&host, id));
                        reply(positions.collect());
                    }
                    Message::Tick(now) => self.end_if_due(now),
                    Message::Hosts(reply) => reply(self.hosts()),
                    Message::EndFile(done) => {
                        self.end_file(WallMicros(i64::MAX));
                        done();
                    }
                    Message::Batch(_) | Message::Refused(..) => {}
                }
            }
        }
    }

    fn hosts(&self) -> Vec<HostStatus> {
        self.statuses.all()
    }

    fn take(&mut self, submission: Submission, group: &mut Group) {
        let Submission {
            host,
            address,
            batch,
            received,
            reply,
        } = submission;
        let bytes = batch.items.bytes().len() as u64;
        self.shared.queued.fetch_sub(bytes, Ordering::Relaxed);
        group.received = group.received.max(Some(received));
        let (known, decision) = match self.offsets.judge(&host, &batch) {
            Judgement::Decided(known, decision) => (known, decision),
            Judgement::Clone => {
                let present = self.offsets.runs(&host).and_then(|runs| runs.present());
                self.statuses.refused(&host, "clone", received);
                let other = self.statuses.cloned(&host, address, &batch.header, present);
                return self.refuse(reply, "clone", Receipt::Clone { other });
            }
            Judgement::TooManySegments => return self.refuse(reply, "segments", Receipt::Busy),
        };
        let receipt = match decision {
            Decision::Behind => Receipt::Behind(known),
            Decision::OtherBytes => Receipt::OtherBytes(known),
            Decision::Known => {
                group.known += 1;
                self.statuses.spoke(&host, address, &batch.header, received);
                Receipt::Flushed(known)
            }
            Decision::Take {
                items,
                from,
                then,
                records,
                gap_bytes,
            } => {
                let own = (host.as_str(), address, received);
                let taken = Taken::new(own, &batch.header, (from, then.crc, items));
                taken.write(&mut group.frames);
                group.gap_bytes += gap_bytes;
                group.batches += 1;
                group.records += records;
                let moved = self.offsets.replace(&host, &batch.header.segment, then);
                group.moves.push(moved);
                self.statuses.spoke(&host, address, &batch.header, received);
                self.statuses.took(&host, (records, bytes, gap_bytes));
                Receipt::Flushed(then)
            }
        };
        let refused = match &receipt {
            Receipt::Behind(_) => Some("behind"),
            Receipt::OtherBytes(_) => Some("other-bytes"),
            _ => None,
        };
        if let Some(reason) = refused {
            self.statuses.refused(&host, reason, received);
            self.shared
                .count(|c| *c.refused.entry(reason).or_default() += 1);
        }
        group.replies.push((reply, receipt));
    }

    fn refuse(&self, reply: Reply, reason: &'static str, receipt: Receipt) {
        self.shared
            .count(|c| *c.refused.entry(reason).or_default() += 1);
        reply(receipt);
    }

    /// Appends and flushes a group, then answers it; where that fails nothing of it is taken.
    fn flush(&mut self, group: Group) {
        let bytes = group.frames.len() as u64;
        let written = match bytes {
            0 => Ok(()),
            _ => self.append(&group.frames),
        };
        match written {
            Ok(()) => {
                self.shared.unpublished.fetch_add(bytes, Ordering::Relaxed);
                self.shared.count(|c| {
                    c.batches += group.batches;
                    c.records += group.records;
                    c.known += group.known;
                    c.gap_bytes += group.gap_bytes;
                    c.bytes += bytes;
                    c.flushes += u64::from(bytes > 0);
                    if bytes > 0 {
                        c.error = None;
                    }
                });
                if bytes > 0 {
                    self.begun = self.begun.or(group.received);
                }
                for (reply, receipt) in group.replies {
                    reply(receipt);
                }
                if let Some(received) = group.received {
                    self.end_if_due(received);
                }
            }
            Err(e) => {
                self.offsets.undo(group.moves);
                let full = is_full(&e);
                let text = format!("cannot append to the intake in {}: {e}", self.dir.display());
                let reason = if full { "full" } else { "failed" };
                self.shared.count(|c| {
                    *c.refused.entry(reason).or_default() += group.batches;
                    c.error = Some(text.clone());
                });
                for (reply, _) in group.replies {
                    reply(match full {
                        true => Receipt::Full,
                        false => Receipt::Failed(text.clone()),
                    });
                }
            }
        }
    }

    fn append(&mut self, frames: &[u8]) -> io::Result<()> {
        if self.unclean {
            self.file.set_len(self.length)?;
            self.unclean = false;
        }
        let written = self.write(frames);
        let flushed = written.and_then(|()| self.file.sync_data());
        match flushed {
            Ok(()) => {
                self.length += frames.len() as u64;
                Ok(())
            }
            Err(e) => {
                // What stands behind the flushed frames would be read after a restart.
                self.unclean = self.file.set_len(self.length).is_err();
                Err(e)
            }
        }
    }

    fn write(&self, frames: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        super::tests::write(&self.dir, &self.file, self.length, frames)?;
        self.file.write_all_at(frames, self.length)
    }

    /// Ends the file if it is large or old enough.
    fn end_if_due(&mut self, now: WallMicros) {
        let old = self
            .begun
            .is_some_and(|begun| begun + self.options.file_age <= now);
        if old || self.length >= self.options.file_bytes {
            self.end_file(now);
        }
    }

    fn end_file(&mut self, now: WallMicros) {
        let empty = self.length == 0 && !self.statuses.has_refusals();
        if empty || self.retry.is_some_and(|retry| now < retry) {
            return;
        }
        self.retry = None;
        if let Err(e) = self.next_file() {
            self.retry = Some(now + RETRY);
            self.shared.count(|c| c.error = Some(e.to_string()));
        }
    }

    /// Writes the offsets, and goes on in a new file.
    fn next_file(&mut self) -> Result<(), FleetError> {
        let number = self.shared.current.load(Ordering::Relaxed);
        let refusals = self.statuses.refusals();
        if !refusals.is_empty() {
            let path = layout::intake_path(&self.dir, number);
            self.append(&refusals)
                .map_err(FleetError::io("append to", &path))?;
            self.shared
                .unpublished
                .fetch_add(refusals.len() as u64, Ordering::Relaxed);
            self.statuses.forget_refusals();
        }
        self.checkpoint.save(&mut self.offsets, number)?;
        self.file = create(&self.dir, number + 1)?;
        (self.length, self.unclean, self.begun) = (0, false, None);
        self.shared.current.store(number + 1, Ordering::Release);
        Ok(())
    }
}

fn create(dir: &Path, number: u64) -> Result<File, FleetError> {
    let path = layout::intake_path(dir, number);
    let mut new = layout::options();
    // One of that name is empty: what was flushed to it would have been met.
    let file = new.read(true).write(true).create(true).truncate(true);
    let file = file.open(&path).map_err(FleetError::io("create", &path))?;
    layout::sync_dir(&layout::intake_dir(dir))?;
    Ok(file)
}

// SPDX-License-Identifier: Apache-2.0
//! One worker: all records, its own shards' connections.

use super::backlog::Packed;
use super::key::{Key, KeyHasher};
use super::open::{Connections, Label, Rules};
use super::{Began, Finished, Follow, Options, SHARDS, Summary};
use crate::decode::{self, DecodeOptions, NotTcp, locate};
use crate::filter::Filter;
use crate::frame::Record;
use crate::read::{Cursor, ReadError};
use crate::segment::{Segment, Timestamp};
use crate::tcp::Moment;
use crate::totals::Totals;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

/// Segments whose connections' memory is fetched while others are worked on.
const BATCH: usize = 32;
/// Batches: one is filled, of one the slots are fetched, of one the places where its segments
/// will wait.
const STAGES: usize = 3;
/// Finished connections handed over at once.
const HAND_OVER: usize = 64;

/// A worker's number and what it shares with the others.
pub(super) struct Assignment<'a> {
    pub(super) number: usize,
    pub(super) workers: usize,
    pub(super) stop: &'a AtomicBool,
    pub(super) frames: &'a AtomicU64,
}

/// Segments of one worker, in order.
struct Batch {
    filled: usize,
    pending: [Pending; BATCH],
}

impl Batch {
    const EMPTY: Batch = Batch {
        filled: 0,
        pending: [Pending::EMPTY; BATCH],
    };
}

/// A segment of a batch.
struct Pending {
    record: Record,
    place: decode::TcpLocation,
    from_low: bool,
    label: Label,
    packed: Packed,
}

impl Pending {
    /// To be filled.
    const EMPTY: Pending = Pending {
        record: Record::EMPTY,
        place: decode::TcpLocation::EMPTY,
        from_low: false,
        label: Label::EMPTY,
        packed: Packed::EMPTY,
    };
}

type Sender<F> = SyncSender<Vec<Finished<<F as Follow>::Report>>>;

pub(super) fn work<F, B>(
    mut cursor: Cursor,
    assignment: &Assignment<'_>,
    rules: &Rules<'_, B>,
    options: &Options,
    sender: &Sender<F>,
) -> Result<Summary, ReadError>
where
    F: Follow,
    B: Fn(&Segment<'_>, Began) -> F,
{
    let mut worker = Worker {
        connections: Connections::<F>::new(),
        mine: std::array::from_fn(|shard| shard % assignment.workers == assignment.number),
        others: assignment.number as u64,
        workers: assignment.workers as u64,
        batches: [Batch::EMPTY; STAGES],
        newest: 0,
        totals: Totals::default(),
        first: None,
        last: None,
        decode: options.decode,
        filter: options.filter.as_ref(),
    };
    while cursor.refill()? {
        worker.piece(&mut cursor, rules);
        worker.hand_over(sender, HAND_OVER);
        if assignment.number == 0 {
            assignment.frames.store(cursor.frames(), Ordering::Relaxed);
        }
        if assignment.stop.load(Ordering::Relaxed) {
            break;
        }
    }
    let notes = cursor.notes().clone();
    drop(cursor);
    let end = worker.last.map_or(i64::MIN, |last| last.0);
    while worker.connections.finish_some(end) {
        worker.hand_over(sender, HAND_OVER);
    }
    worker.hand_over(sender, 1);
    let tally = worker.connections.tally;
    Ok(Summary {
        totals: worker.totals,
        notes,
        first: worker.first,
        last: worker.last,
        connections: tally.begun,
        evicted: tally.evicted,
        hurried: tally.hurried,
        complete: true,
    })
}

struct Worker<'a, F: Follow> {
    connections: Connections<F>,
    /// Which shards are this worker's.
    mine: [bool; SHARDS],
    /// Frames that are not TCP are counted by the worker with this rest of their number.
    others: u64,
    workers: u64,
    batches: [Batch; STAGES],
    /// The batch that is filled.
    newest: usize,
    totals: Totals,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
    decode: DecodeOptions,
    filter: Option<&'a Filter>,
}

impl<F: Follow> Worker<'_, F> {
    fn hand_over(&mut self, sender: &Sender<F>, at_least: usize) {
        let out = &mut self.connections.out;
        if out.len() >= at_least {
            // No one listens any more only if the caller's closure panicked.
            let next = Vec::with_capacity(2 * HAND_OVER);
            let _ = sender.send(std::mem::replace(out, next));
        }
    }

    /// Whether the filter leaves a frame out.
    fn unwanted(&mut self, data: &[u8], record: &Record) -> bool {
        let wanted = |f: &Filter| f.matches(record.link, data, record.wire_length);
        if self.filter.is_none_or(wanted) {
            return false;
        }
        if record.number % self.workers == self.others {
            self.totals.filtered_out.add(record.wire_length);
        }
        true
    }

    #[cold]
    fn other(&mut self, other: NotTcp, record: &Record) {
        if record.number % self.workers == self.others {
            self.totals.other(other, record.wire_length);
        }
    }

    /// ICMP may say what became of a connection's segment.
    #[cold]
    fn unreachable<B: Fn(&Segment<'_>, Began) -> F>(
        &mut self,
        record: &Record,
        bytes: &[u8],
        rules: &Rules<'_, B>,
    ) {
        let data = &bytes[record.start..record.start + record.captured as usize];
        let found = decode::unreachable(record.link, data, record.wire_length, self.decode);
        let Some(quoted) = found else { return };
        let (key, _) = Key::of(quoted.place, data);
        let shard = (KeyHasher::FIXED.hash(&key) >> 32) as usize % SHARDS;
        if !self.mine[shard] {
            return;
        }
        // What came before it first.
        for _ in 0..STAGES {
            self.step(bytes, rules);
        }
        let at = Moment {
            frame: record.number,
            time: record.time,
        };
        let tag = rules.hasher.hash(&key) as u32;
        self.connections.unreachable(tag, &key, at, quoted.refused);
    }

    /// All records of the present piece.
    fn piece<B: Fn(&Segment<'_>, Began) -> F>(
        &mut self,
        cursor: &mut Cursor,
        rules: &Rules<'_, B>,
    ) {
        let piece = cursor.piece();
        let bytes = piece.bytes();
        let mut record = Record::EMPTY;
        while cursor.next_here(&mut record) {
            if record.number == 1 {
                self.first = Some(record.time);
            }
            let data = &bytes[record.start..record.start + record.captured as usize];
            if self.filter.is_some() && self.unwanted(data, &record) {
                continue;
            }
            let found = match locate(record.link, data, record.wire_length, self.decode) {
                Ok(found) => found,
                Err(other) => {
                    if matches!(other, NotTcp::Ip(1 | 58)) {
                        self.unreachable(&record, bytes, rules);
                    }
                    self.other(other, &record);
                    continue;
                }
            };
            let (key, from_low) = Key::of(found, data);
            let shard = (KeyHasher::FIXED.hash(&key) >> 32) as usize % SHARDS;
            let tag = rules.hasher.hash(&key) as u32;
            self.connections.prefetch_table(tag);
            // Field by field: a copy of it all would wait for what was just written.
            let batch = &mut self.batches[self.newest];
            let pending = &mut batch.pending[batch.filled];
            pending.record.number = record.number;
            pending.record.time = record.time;
            pending.record.start = record.start;
            pending.record.captured = record.captured;
            pending.record.wire_length = record.wire_length;
            pending.place = found;
            pending.label.key = key;
            pending.from_low = from_low;
            pending.label.shard = shard as u8;
            pending.label.tag = tag;
            // Which worker's it is is hard to predict: no branch, the next one overwrites it.
            batch.filled += usize::from(self.mine[shard]);
            if batch.filled == BATCH {
                self.step(bytes, rules);
            }
        }
        for _ in 0..STAGES {
            self.step(bytes, rules);
        }
        if record.number > 0 {
            self.last = Some(record.time);
        }
    }

    /// Every batch goes one stage on; the oldest goes to its connections.
    fn step<B: Fn(&Segment<'_>, Began) -> F>(&mut self, bytes: &[u8], rules: &Rules<'_, B>) {
        let [newest, older, oldest] =
            [0, STAGES - 1, STAGES - 2].map(|back| (self.newest + back) % STAGES);
        let batch = &mut self.batches[newest];
        for pending in &mut batch.pending[..batch.filled] {
            pending.label.guess = self.connections.prefetch_slot(pending.label.tag);
            // Now, while the frame is in the nearest cache.
            let record = &pending.record;
            let data = &bytes[record.start..record.start + record.captured as usize];
            self.totals.tcp_frame(record.wire_length);
            let segment = pending.place.segment(record, data, self.decode);
            pending.packed.fill(pending.from_low, &segment);
        }
        let batch = &self.batches[older];
        for pending in &batch.pending[..batch.filled] {
            self.connections.prefetch_backlog(pending.label.guess);
        }
        let batch = &mut self.batches[oldest];
        for pending in &batch.pending[..batch.filled] {
            self.connections
                .segment(&pending.label, &pending.packed, rules);
        }
        batch.filled = 0;
        self.newest = oldest;
    }
}

// SPDX-License-Identifier: Apache-2.0
//! One worker: its turns at reading, and its own shards' connections.

use super::backlog::NO_REST;
use super::belt::{Belt, Turn};
use super::key::{Key, KeyHasher};
use super::open::{Connections, NO_SLOT, Rules, Tally};
use super::sheaf::{Address, GROUP, Sheaf};
use super::{Began, Finished, Follow, Options, SHARDS};
use crate::decode::{self, DecodeOptions, NotTcp, TcpLocation, locate, locate_plain};
use crate::filter::Filter;
use crate::frame::Record;
use crate::read::{Cursor, Piece, ReadError};
use crate::segment::{Segment, Timestamp};
use crate::tcp::Moment;
use crate::totals::Totals;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

/// Finished connections handed over at once.
const HAND_OVER: usize = 64;

/// A worker's number and what it shares with the others.
pub(super) struct Assignment<'a> {
    pub(super) number: usize,
    pub(super) workers: usize,
    pub(super) belt: &'a Belt,
    pub(super) stop: &'a AtomicBool,
    pub(super) frames: &'a AtomicU64,
}

/// What a worker did.
pub(super) struct Done {
    /// Of the frames that it decoded.
    pub(super) totals: Totals,
    /// Of the connections that it followed.
    pub(super) tally: Tally,
}

type Sender<F> = SyncSender<Vec<Finished<<F as Follow>::Report>>>;

pub(super) fn work<F, B>(
    assignment: &Assignment<'_>,
    rules: &Rules<'_, B>,
    options: &Options,
    sender: &Sender<F>,
) -> Result<Done, ReadError>
where
    F: Follow,
    B: Fn(&Segment<'_>, Began) -> F,
{
    let belt = assignment.belt;
    let mut reading = Reading {
        piece: Piece::default(),
        records: Vec::new(),
        found: 0,
        workers: std::array::from_fn(|shard| shard % assignment.workers),
        totals: Totals::default(),
        decode: options.decode,
        filter: options.filter.as_ref(),
        hasher: rules.hasher,
    };
    let mut connections = Connections::<F>::new(assignment.workers);
    let (mut next, mut done) = (0, None);
    while !assignment.stop.load(Ordering::Relaxed) {
        match belt.turn(assignment.number, next, done.take()) {
            Turn::Follow(sheaf) => {
                follow(&mut connections, &sheaf, rules);
                hand_over(&mut connections, sender, HAND_OVER);
                next += 1;
                done = Some(sheaf);
            }
            Turn::Read(mut cursor, mut portion) => {
                if !cursor.refill(&mut reading.piece)? {
                    belt.ended(cursor);
                    continue;
                }
                let times = reading.walk(&mut cursor);
                let frames = cursor.frames();
                assignment.frames.fetch_max(frames, Ordering::Relaxed);
                belt.walked(cursor, times);
                reading.decode(&mut portion.sheaves);
                belt.filled(portion);
            }
            Turn::Over => break,
        }
    }
    if assignment.stop.load(Ordering::Relaxed) {
        belt.abort();
    }
    let end = belt.last().map_or(i64::MIN, |last| last.0);
    while connections.finish_some(end, rules) {
        hand_over(&mut connections, sender, HAND_OVER);
    }
    hand_over(&mut connections, sender, 1);
    Ok(Done {
        totals: reading.totals,
        tally: connections.tally,
    })
}

fn hand_over<F: Follow>(connections: &mut Connections<F>, sender: &Sender<F>, at_least: usize) {
    let out = &mut connections.out;
    if out.len() >= at_least {
        // No one listens any more only if the caller's closure panicked.
        let next = Vec::with_capacity(2 * HAND_OVER);
        let _ = sender.send(std::mem::replace(out, next));
    }
}

/// Each segment goes four steps, a group of segments later each: its place in the table is
/// fetched, its connection's slot, the place where it will wait; then it is put there.
fn follow<F: Follow, B: Fn(&Segment<'_>, Began) -> F>(
    connections: &mut Connections<F>,
    sheaf: &Sheaf,
    rules: &Rules<'_, B>,
) {
    let mut rests = sheaf.rests().iter();
    let mut guesses = [[NO_SLOT; GROUP]; 2];
    for n in 0..sheaf.groups() + 3 {
        let [newer, older] = &mut guesses;
        for item in sheaf.group(Some(n)) {
            connections.prefetch_table(item.tag);
        }
        let last = sheaf.group(n.checked_sub(3)).iter();
        for (item, guess) in last.zip(older.iter()) {
            if let Some(reported) = item.packed.reported() {
                connections.unreachable(item, reported, rules);
                continue;
            }
            let rest = if item.packed.has_rest() {
                rests.next().unwrap_or(&NO_REST)
            } else {
                &NO_REST
            };
            connections.segment(item, rest, *guess, rules);
        }
        let third = sheaf.group(n.checked_sub(2)).len();
        for guess in &newer[..third] {
            connections.prefetch_backlog(*guess);
        }
        std::mem::swap(newer, older);
        let second = sheaf.group(n.checked_sub(1)).iter();
        for (item, guess) in second.zip(newer) {
            *guess = connections.prefetch_slot(item.tag);
        }
    }
}

/// From bytes to segments, sorted by the workers that follow them.
struct Reading<'a> {
    piece: Piece,
    /// Those of the piece are as many as were found.
    records: Vec<Record>,
    found: usize,
    /// Whose the shards are.
    workers: [usize; SHARDS],
    totals: Totals,
    decode: DecodeOptions,
    filter: Option<&'a Filter>,
    /// Of the tables.
    hasher: KeyHasher,
}

impl Reading<'_> {
    /// Finds the piece's records; gives the first one's time and the last one's.
    fn walk(&mut self, cursor: &mut Cursor) -> Option<(Timestamp, Timestamp)> {
        self.found = 0;
        loop {
            if self.found == self.records.len() {
                let room = (2 * self.found).max(256);
                self.records.resize(room, Record::EMPTY);
            }
            // In place: a copy would wait for what was just written.
            if !cursor.next_here(&self.piece, &mut self.records[self.found]) {
                break;
            }
            self.found += 1;
        }
        let found = &self.records[..self.found];
        Some((found.first()?.time, found.last()?.time))
    }

    /// Makes segments of the records.
    fn decode(&mut self, sheaves: &mut [Sheaf]) {
        let piece = std::mem::take(&mut self.piece);
        let records = std::mem::take(&mut self.records);
        let bytes = piece.bytes();
        for record in &records[..self.found] {
            let data = &bytes[record.start..record.start + record.captured as usize];
            if let Some(filter) = self.filter
                && !filter.matches(record.link, data, record.wire_length)
            {
                self.totals.filtered_out.add(record.wire_length);
                continue;
            }
            // Compiled twice: most frames' headers lie where they always do.
            if let Some(found) = locate_plain(record.link, data) {
                self.sort(found, record, data, sheaves);
                self.totals.tcp_frame(record.wire_length);
            } else {
                self.uncommon(record, data, sheaves);
            }
        }
        (self.piece, self.records) = (piece, records);
    }

    fn uncommon(&mut self, record: &Record, data: &[u8], sheaves: &mut [Sheaf]) {
        match locate(record.link, data, record.wire_length, self.decode) {
            Ok(found) => {
                self.totals.tcp_frame(record.wire_length);
                self.sort(found, record, data, sheaves);
            }
            Err(other) => {
                if matches!(other, NotTcp::Ip(1 | 58)) {
                    self.unreachable(record, data, sheaves);
                }
                self.totals.other(other, record.wire_length);
            }
        }
    }

    /// A segment goes to the worker that follows its connection.
    #[inline(always)]
    fn sort(&self, found: TcpLocation, record: &Record, data: &[u8], sheaves: &mut [Sheaf]) {
        let (key, from_low) = Key::of(found, data);
        let address = Address::of(key, self.hasher);
        let worker = self.workers[usize::from(address.shard)];
        let segment = found.segment(record, data, self.decode);
        sheaves[worker].add(&address, from_low, &segment);
    }

    /// ICMP may say what became of a connection's segment.
    #[cold]
    fn unreachable(&self, record: &Record, data: &[u8], sheaves: &mut [Sheaf]) {
        let found = decode::unreachable(record.link, data, record.wire_length, self.decode);
        let Some(quoted) = found else { return };
        let (key, _) = Key::of(quoted.place, data);
        let address = Address::of(key, self.hasher);
        let at = Moment {
            frame: record.number,
            time: record.time,
        };
        sheaves[self.workers[usize::from(address.shard)]].report(&address, at, quoted.refused);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! One poll: collecting what was noted, or walking over everything.

use super::thin::Waiting;
use super::{BpfTier, PollError};
use crate::probes::connection::layouts::record_flag::RECORD_BUSY;
use crate::probes::connection::{Note, Record, Shared};
use crate::probes::lifecycle::Closes;
use crate::{PollReport, Sink, monotonic, prefetch_part};
use rustc_hash::FxHashSet;
use slowpath_model::MonoNanos;
use std::mem::offset_of;
use std::ops::Range;

/// Passes over the sockets that one poll makes at most, when more changed than the area
/// holds.
const MAX_PASSES: u32 = 64;

/// Changed connections collected at a time: their snapshots stay in the cache until they
/// have been read.
const BATCH: u32 = 512;

/// How many snapshots before its own a connection is announced, and how many before expected:
/// each time who takes them can have the processor fetch something, first where to look.
const ANNOUNCED: usize = 8;
const EXPECTED: usize = 4;

/// How many snapshots before its own a record is fetched from the cache to which the ones behind it
/// have displaced it while the kernel wrote them.
const FETCHED: usize = 2;

/// What every record has: `waits` and what follows are of few.
const HOT: Range<usize> = 0..offset_of!(Record, waits);

/// What is fixed when a poll begins.
struct Round {
    /// The epoch of the list of notes that the poll closes.
    list_epoch: u32,
    /// The length of each list, and none of the one that is begun.
    noted: [u32; 2],
    /// Notes in the other list that an event on another processor was still writing when that
    /// list was read.
    late: Range<u32>,
    /// Whether the poll walks over every connection.
    walk: bool,
}

impl Round {
    /// The list that the poll closes and reads.
    fn reading(&self) -> usize {
        (self.list_epoch & 1) as usize
    }

    /// The list that events write from now on.
    fn writing(&self) -> usize {
        self.reading() ^ 1
    }
}

impl BpfTier {
    /// One poll: hands each changed connection, then each closed one, to `sink`.
    ///
    /// # Errors
    /// If the kernel cannot be read. Connections handed over until then were read properly,
    /// and later polls report the others.
    pub fn poll(&mut self, sink: &mut impl Sink) -> Result<PollReport, PollError> {
        let mut report = PollReport {
            at: monotonic(),
            ..PollReport::default()
        };
        let round = self.begin_round();
        if let Some(mut waiting) = self.waiting.take() {
            let done = self.poll_thinned(&mut waiting, round, &mut report, sink);
            self.waiting = Some(waiting);
            done?;
        } else {
            self.poll_changed(round, &mut report, sink)?;
        }
        self.take_closes(&mut report, sink)?;
        Ok(report)
    }

    fn begin_round(&mut self) -> Round {
        let list_epoch = self.epoch;
        self.epoch = list_epoch.wrapping_add(1);
        let noted = self.shared.first().noted;
        let mut round = Round {
            list_epoch,
            noted,
            late: 0..0,
            walk: false,
        };
        let (reading, writing) = (round.reading(), round.writing());
        round.late = self.read_until[writing]..noted[writing].min(self.note_entries);
        round.noted[writing] = 0;
        round.walk = !self.by_notes
            || std::mem::take(&mut self.walk_next)
            || noted[reading] > self.note_entries;
        round
    }

    /// The poll without thinning: looks at every connection that changed.
    fn poll_changed(
        &mut self,
        round: Round,
        report: &mut PollReport,
        sink: &mut impl Sink,
    ) -> Result<(), PollError> {
        let (reading, writing) = (round.reading(), round.writing());
        let list_epoch = round.list_epoch;
        let mut carried = std::mem::take(&mut self.carried);
        if round.walk || round.late.is_empty() {
            self.begin_poll(report.at, round.noted);
        } else {
            // Those that the list names again are looked at with the others, and those that
            // are carried over not again.
            let mut met = FxHashSet::default();
            self.read_notes(writing, round.late.clone(), |note| {
                met.insert(note.cookie);
            });
            carried.retain(|note| !met.contains(&note.cookie));
            self.begin_poll(report.at, self.shared.first().noted);
            self.collect(round.late, writing, list_epoch, true, report, sink)?;
            self.begin_poll(report.at, round.noted);
        }
        self.read_until[reading] = round.noted[reading].min(self.note_entries);
        if round.walk {
            return self.walk_all(report, sink);
        }
        let list = 0..self.read_until[reading];
        self.collect(list, reading, list_epoch, false, report, sink)?;
        let count = carried.len().min(self.note_entries as usize);
        self.notes.write(2 * self.note_entries as usize, &carried);
        self.collect(0..count as u32, 2, list_epoch, true, report, sink)?;
        report.live = self.shared.first().live;
        report.visited = report.live;
        Ok(())
    }

    /// The poll with thinning: looks only at connections that are due.
    fn poll_thinned(
        &mut self,
        waiting: &mut Waiting,
        round: Round,
        report: &mut PollReport,
        sink: &mut impl Sink,
    ) -> Result<(), PollError> {
        let (reading, writing) = (round.reading(), round.writing());
        let list_epoch = round.list_epoch;
        let mut due = std::mem::take(&mut self.due);
        due.clear();
        let was_late = !round.late.is_empty();
        self.read_notes(writing, round.late, |note| {
            waiting.add(note, list_epoch, &mut due)
        });
        self.begin_poll(report.at, round.noted);
        let until = round.noted[reading].min(self.note_entries);
        self.read_until[reading] = until;
        self.read_notes(reading, 0..until, |note| {
            waiting.add(note, list_epoch, &mut due);
        });
        waiting.take(list_epoch, &mut due);
        let mut met = FxHashSet::default();
        if was_late {
            // Such a connection may have been noted again for this very poll, and its mark does not say
            // that this poll is the one that looks at it.
            due.retain(|note| met.insert(note.cookie));
        }
        if round.walk {
            // It meets all of them, and every busy connection.
            waiting.take_busy(list_epoch, &mut due);
            waiting.forget_busy();
            self.shared.update(|s| {
                // SAFETY: `s` points to the mapped value.
                unsafe { (&raw mut (*s).list_epoch).write_volatile(list_epoch) }
            });
            self.walk_all(report, sink)?;
        } else {
            self.collect_due(&due, list_epoch, false, report, sink)?;
            due.clear();
            waiting.take_busy(list_epoch, &mut due);
            due.retain(|note| !met.contains(&note.cookie));
            self.collect_due(&due, list_epoch, true, report, sink)?;
            report.live = self.shared.first().live;
            report.visited = report.live;
        }
        self.due = due;
        for note in std::mem::take(&mut self.carried) {
            let rate = self.rate(note.cookie);
            if self.by_notes {
                waiting.carry(note, rate, list_epoch.wrapping_add(1));
            }
        }
        Ok(())
    }

    /// Hands over the connections behind `due`.
    fn collect_due(
        &mut self,
        due: &[Note],
        list_epoch: u32,
        carried: bool,
        report: &mut PollReport,
        sink: &mut impl Sink,
    ) -> Result<(), PollError> {
        for due in due.chunks(self.note_entries as usize) {
            self.notes.write(2 * self.note_entries as usize, due);
            let range = 0..due.len() as u32;
            self.collect(range, 2, list_epoch, carried, report, sink)?;
        }
        Ok(())
    }

    /// Hands notes `range` of list `list` to `each`.
    fn read_notes(&self, list: usize, range: Range<u32>, mut each: impl FnMut(Note)) {
        let first = list * self.note_entries as usize;
        for i in range {
            if let Some(note) = self.notes.get(first + i as usize) {
                each(note);
            }
        }
    }

    fn take_closes(
        &mut self,
        report: &mut PollReport,
        sink: &mut impl Sink,
    ) -> Result<(), PollError> {
        let Some(closes) = self.state_mut::<Closes>() else {
            return Ok(());
        };
        let closed = closes.take().map_err(PollError::Closes)?;
        for record in closed.borrow_mut().drain(..) {
            if let Some(snapshot) = record.snapshot(&self.context) {
                report.closed += 1;
                sink.unchanged_until(MonoNanos(record.since_ns));
                sink.namespace(record.netns_cookie);
                sink.unacknowledged(record.snd_una);
                sink.see(&snapshot);
            }
        }
        Ok(())
    }

    /// Sets the clock and turns to the other list of notes.
    pub(super) fn begin_poll(&mut self, now: MonoNanos, noted: [u32; 2]) {
        let epoch = self.epoch;
        let writing = (epoch & 1) as usize;
        self.shared.update(|s| {
            // SAFETY: `s` points to the mapped value. The list that is turned to is not
            // being written, so its count can be set before the epoch is.
            unsafe {
                (&raw mut (*s).now_ns).write_volatile(now.0);
                (&raw mut (*s).noted[writing]).write_volatile(noted[writing]);
                std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
                (&raw mut (*s).epoch).write_volatile(epoch);
            }
        });
        self.begin_pass();
    }

    fn begin_pass(&mut self) {
        self.shared.update(|s| {
            // SAFETY: `s` points to the mapped value.
            unsafe {
                (&raw mut (*s).area_used).write_volatile(0);
                (&raw mut (*s).visited).write_volatile(0);
                (&raw mut (*s).repeats).write_volatile(0);
                (&raw mut (*s).left_over).write_volatile(0);
            }
        });
    }

    /// Walks over every connection that has storage.
    fn walk_all(&mut self, report: &mut PollReport, sink: &mut impl Sink) -> Result<(), PollError> {
        report.walked = true;
        for pass in 0..MAX_PASSES {
            self.begin_pass();
            self.walk()?;
            let shared = self.shared.first();
            if pass == 0 {
                report.repeats = shared.repeats.into();
            }
            report.visited += u64::from(shared.visited);
            report.live = shared.live;
            report.left_over = shared.left_over.into();
            self.take_area(&shared, report, sink);
            if shared.left_over == 0 {
                break;
            }
        }
        report.missed = report.live.saturating_sub(report.visited);
        Ok(())
    }

    /// Snapshots of the connections that notes `range` of list `list` name.
    fn collect(
        &mut self,
        mut range: Range<u32>,
        list: usize,
        list_epoch: u32,
        carried: bool,
        report: &mut PollReport,
        sink: &mut impl Sink,
    ) -> Result<(), PollError> {
        let first = list as u32 * self.note_entries;
        while !range.is_empty() {
            self.begin_pass();
            let count = BATCH.min(range.len() as u32);
            self.shared.update(|s| {
                // SAFETY: `s` points to the mapped value.
                unsafe {
                    (&raw mut (*s).list_base).write_volatile(first + range.start);
                    (&raw mut (*s).list_count).write_volatile(count);
                    (&raw mut (*s).list_epoch).write_volatile(list_epoch);
                    (&raw mut (*s).carried).write_volatile(carried.into());
                }
            });
            self.run_collect()?;
            let shared = self.shared.first();
            self.take_area(&shared, report, sink);
            let done = count - shared.left_over.min(count);
            if done == 0 {
                break;
            }
            range.start += done;
        }
        report.left_over += range.len() as u64;
        Ok(())
    }

    /// Hands over what a pass left in the area.
    fn take_area(&mut self, shared: &Shared, report: &mut PollReport, sink: &mut impl Sink) {
        report.passes += 1;
        report.emitted += u64::from(shared.area_used);
        // SAFETY: the kernel writes to the area only in `walk` and `collect`.
        let records = unsafe { self.area.values(shared.area_used as usize) };
        for first in records.iter().take(ANNOUNCED) {
            sink.announce(first.netns, first.cookie);
        }
        for first in records.iter().take(EXPECTED) {
            sink.expect(first.netns, first.cookie);
        }
        for (i, record) in records.iter().enumerate() {
            if let Some(later) = records.get(i + ANNOUNCED) {
                sink.announce(later.netns, later.cookie);
            }
            if let Some(later) = records.get(i + EXPECTED) {
                sink.expect(later.netns, later.cookie);
            }
            if let Some(later) = records.get(i + FETCHED) {
                prefetch_part(later, HOT);
            }
            if record.has(RECORD_BUSY) && self.carried.len() < self.note_entries as usize {
                self.carried.push(Note {
                    sk: record.sk,
                    connection: record.connection,
                    cookie: record.cookie,
                    due: 0,
                    pad: 0,
                });
            }
            if let Some(snapshot) = record.snapshot(&self.context) {
                sink.unchanged_until(MonoNanos(record.since_ns));
                sink.namespace(record.netns_cookie);
                sink.unacknowledged(record.snd_una);
                sink.see(&snapshot);
            }
        }
    }
}

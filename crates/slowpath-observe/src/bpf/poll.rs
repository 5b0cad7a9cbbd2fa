// SPDX-License-Identifier: Apache-2.0
//! One poll: collecting what was noted, or walking over everything.

use super::{BpfTier, PollError};
use crate::wire::{Note, RECORD_BUSY, Shared};
use crate::{PollReport, Sink, monotonic};
use libbpf_rs::{Iter, ProgramInput};
use slowpath_model::MonoNanos;
use std::io::{self, Read};

/// Passes over the sockets that one poll makes at most, when more changed than the area
/// holds.
const MAX_PASSES: u32 = 64;

/// Changed connections collected at a time: their snapshots stay in the cache until they
/// have been read.
const BATCH: u32 = 512;

/// How many snapshots before its own a connection is announced.
const AHEAD: usize = 4;

impl BpfTier {
    /// One poll: hands each changed connection, then each closed one, to `sink`.
    ///
    /// # Errors
    /// If the kernel cannot be read. Connections handed over until then were read properly,
    /// and later polls report the others.
    pub fn poll(&mut self, sink: &mut impl Sink) -> Result<PollReport, PollError> {
        let at = monotonic();
        let mut report = PollReport {
            at,
            ..PollReport::default()
        };
        let reading = (self.epoch & 1) as usize;
        let writing = reading ^ 1;
        let mut noted = self.shared.first().noted;
        // Notes that an event on another processor was still writing when this list was read.
        let late = self.read_until[writing]..noted[writing].min(self.note_entries);
        let list_epoch = self.epoch;
        self.epoch = self.epoch.wrapping_add(1);
        noted[writing] = 0;
        let walk = !self.by_notes
            || std::mem::take(&mut self.walk_next)
            || noted[reading] > self.note_entries;
        if walk || late.is_empty() {
            self.begin_poll(at, noted);
        } else {
            self.begin_poll(at, self.shared.first().noted);
            self.collect(late, writing, list_epoch, false, &mut report, sink)?;
            self.begin_poll(at, noted);
        }
        self.read_until[reading] = noted[reading].min(self.note_entries);
        let carried = std::mem::take(&mut self.carried);
        if walk {
            self.walk_all(&mut report, sink)?;
        } else {
            let list = 0..self.read_until[reading];
            self.collect(list, reading, list_epoch, false, &mut report, sink)?;
            let count = carried.len().min(self.note_entries as usize);
            self.notes.write(2 * self.note_entries as usize, &carried);
            self.collect(0..count as u32, 2, list_epoch, true, &mut report, sink)?;
            report.live = self.shared.first().live;
            report.visited = report.live;
        }
        self.closes.consume().map_err(PollError::Closes)?;
        for record in self.closed.borrow_mut().drain(..) {
            if let Some(snapshot) = record.snapshot(&self.context) {
                report.closed += 1;
                sink.see(&snapshot);
            }
        }
        Ok(report)
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
        mut range: std::ops::Range<u32>,
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
            self.loaded
                .iter()
                .flat_map(|l| l.object.progs_mut())
                .find(|p| p.name() == "collect")
                .ok_or_else(|| libbpf_rs::Error::from(io::Error::from(io::ErrorKind::NotFound)))
                .and_then(|p| p.test_run(ProgramInput::default()))
                .map_err(PollError::Collect)?;
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
        for (i, record) in records.iter().enumerate() {
            if let Some(later) = records.get(i + AHEAD) {
                sink.expect(later.netns, later.cookie);
            }
            if record.flags & RECORD_BUSY != 0 && self.carried.len() < self.note_entries as usize {
                self.carried.push(Note {
                    sk: record.sk,
                    connection: record.connection,
                    cookie: record.cookie,
                });
            }
            if let Some(snapshot) = record.snapshot(&self.context) {
                sink.see(&snapshot);
            }
        }
    }

    pub(super) fn walk(&mut self) -> Result<(), PollError> {
        let what = "socket storage";
        let mut iterator =
            Iter::new(&self.snapshot_link).map_err(|source| PollError::Open { what, source })?;
        drain(&mut iterator).map_err(|source| PollError::Read { what, source })?;
        Ok(())
    }
}

/// Reads an iterator to its end.
pub(super) fn drain(iterator: &mut Iter) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 32 * 1024];
    loop {
        match iterator.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
            // EAGAIN: the kernel pauses after a million sockets (bpf_seq_read).
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                ) => {}
            Err(e) => return Err(e),
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The queue: segments that wait for the server, as they lie in the log's own folders.
//!
//! A segment is *live* (in `spool`, shipped as it grows), then *waiting* (in `ship`, moved there by
//! the conversion into Parquet), then *acknowledged*, and stays as long as there is room, for a
//! server that was restored from an older copy. Over the limit its details give way (*thinned*),
//! then the rest (*gone*): whatever goes leaves a gap, which is shipped in its place.
//!
//! Every accepted record is offered until it is acknowledged, or stands in exactly one gap. All
//! that decides this is in files' names and contents; `ship/state` only saves sending again.

mod disk;
mod folder;
mod form;
mod inventory;
mod limit;
mod offer;
mod removal;
mod segment;
mod state;
mod thinned;

pub use inventory::QueueStatus;
pub use offer::Offer;

use crate::batch::{GapReason, Prefix};
use disk::Disk;
use folder::Folder;
use form::Form;
use segment::Segment;
use state::QueueState;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Which segments a batch is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Those that still grow, or wait to become Parquet.
    Live,
    /// Those that ended.
    Waiting,
}

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The segment goes on behind what was acknowledged.
    Advanced,
    /// It goes on from further back: the server has less than it had.
    Rewound,
    /// The server has other bytes of this segment: it is left as it is for an hour.
    Conflict,
}

/// Segments that wait for the server. Times are since any fixed moment, by a monotonic clock.
#[derive(Debug)]
pub struct Queue {
    folder: Folder,
    limit: u64,
    segments: BTreeMap<String, Segment>,
    lost_bytes: BTreeMap<GapReason, u64>,
    server_start: String,
    ship_bytes: u64,
    disk: Disk,
}

impl Queue {
    /// The queue of a log, of which `ship` may take `limit` bytes.
    ///
    /// # Errors
    /// A folder or `ship/state` cannot be read.
    pub fn open(log: &Path, limit: u64) -> io::Result<Queue> {
        let folder = Folder::of(log);
        slowpath_files::create_folder(folder.ship())?;
        let state = QueueState::read(&folder.state())?;
        let segments = state
            .segments
            .into_iter()
            .map(|(id, kept)| (id, Segment::kept(kept)));
        let mut queue = Queue {
            folder,
            limit,
            segments: segments.collect(),
            lost_bytes: state.lost_bytes,
            server_start: state.server_start,
            ship_bytes: 0,
            disk: Disk::default(),
        };
        queue.refresh()?;
        Ok(queue)
    }

    /// Looks at the folders again: segments that are new, have moved, are gone.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn refresh(&mut self) -> io::Result<()> {
        let listing = self.folder.list()?;
        for path in &listing.superseded {
            self.disk.remove(path)?;
        }
        for path in &listing.full_stubs {
            self.disk.empty(path)?;
        }
        self.ship_bytes = listing.bytes;
        let there = &listing.segments;
        self.segments
            .retain(|id, segment| there.contains_key(id) || segment.lose_file());
        for (id, form) in listing.segments {
            self.segments.entry(id).or_default().take_form(form)?;
        }
        Ok(())
    }

    /// The next items to be sent of a class, of `most` bytes at most (but for a single longer
    /// record): of waiting segments the oldest, of live ones the oldest with something new.
    /// `None`: nothing is there.
    ///
    /// # Errors
    /// A segment cannot be read.
    pub fn offer(&mut self, class: Class, most: usize, now: Duration) -> io::Result<Option<Offer>> {
        for id in self.oldest_first() {
            let Some(segment) = self.segments.get_mut(&id) else {
                continue;
            };
            if segment.class() != class || !segment.is_due(now) {
                continue;
            }
            match segment.offer(&id, most) {
                Ok(Some(offer)) => return Ok(Some(offer)),
                Ok(None) => {}
                // It moved since the folders were looked at.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(None)
    }

    /// The server has flushed a batch: up to `offset`, with the running CRC `crc`.
    ///
    /// # Errors
    /// The segment cannot be read, `ship/state` not be written. What is kept in memory holds.
    pub fn flushed(
        &mut self,
        sent: &Offer,
        (offset, crc): (u64, Prefix),
        now: Duration,
    ) -> io::Result<Settlement> {
        if (offset, crc) != (sent.end, sent.end_prefix) {
            return self.rewind(sent, (offset, crc), now);
        }
        let Some(segment) = self.segments.get_mut(&sent.segment) else {
            return Ok(Settlement::Advanced);
        };
        let lost = segment.advance(sent);
        for (reason, bytes) in lost {
            *self.lost_bytes.entry(reason).or_default() += bytes;
        }
        if let (true, Some(Form::Gone(remains))) = (segment.kept.complete, &segment.form) {
            let stub = self.folder.gone(&sent.segment, remains);
            // One that the log set aside is still there, and stays known as complete.
            if remains.reason == GapReason::Dropped {
                self.segments.remove(&sent.segment);
            }
            self.disk.remove(&stub)?;
        }
        self.save()?;
        Ok(Settlement::Advanced)
    }

    /// The server has flushed something else than what the batch follows (`behind`), or other
    /// bytes (`other-bytes`): up to `offset`, with the running CRC `crc`.
    ///
    /// # Errors
    /// As [`Queue::flushed`].
    pub fn rewind(
        &mut self,
        sent: &Offer,
        (offset, crc): (u64, Prefix),
        now: Duration,
    ) -> io::Result<Settlement> {
        let Some(segment) = self.segments.get_mut(&sent.segment) else {
            return Ok(Settlement::Rewound);
        };
        // A server that refuses what follows from where it stands would do so for good.
        let stands_there = (sent.offset, sent.prefix) == (offset, crc);
        let settlement = match !stands_there && segment.go_back(offset, crc)? {
            true => Settlement::Rewound,
            false => {
                segment.hold_in_conflict(now);
                Settlement::Conflict
            }
        };
        self.save()?;
        Ok(settlement)
    }

    /// The server reads only older versions than the segment's: it is offered again in an hour.
    pub fn hold_newer(&mut self, sent: &Offer, now: Duration) {
        if let Some(segment) = self.segments.get_mut(&sent.segment) {
            segment.hold_newer(now);
        }
    }

    /// The server could not read these items, for the third time: they become a gap, and `body`, as
    /// it was sent, stays in `ship/refused` while that has room. A gap that is refused is a
    /// conflict.
    ///
    /// # Errors
    /// `ship/state` cannot be written.
    pub fn refuse(&mut self, sent: &Offer, body: &[u8], now: Duration) -> io::Result<()> {
        let Some(segment) = self.segments.get_mut(&sent.segment) else {
            return Ok(());
        };
        if sent.records == 0 {
            segment.hold_in_conflict(now);
        } else {
            segment.kept.refused.push((sent.offset, sent.end));
            self.keep_refused(sent, body);
        }
        self.save()
    }

    /// Whose `start` answered last: where it changed, [`Queue::inventory`] is to be sent.
    pub fn server_start(&self) -> &str {
        &self.server_start
    }

    /// The ids, oldest first.
    fn oldest_first(&self) -> Vec<String> {
        let mut ids: Vec<(i64, &String)> = self
            .segments
            .iter()
            .map(|(id, segment)| (segment.begun_us(), id))
            .collect();
        ids.sort_unstable();
        ids.into_iter().map(|(_, id)| id.clone()).collect()
    }

    /// Writes `ship/state`. A full disk gets room from what the server has already.
    fn save(&mut self) -> io::Result<()> {
        let state = QueueState {
            segments: self
                .segments
                .iter()
                .filter(|(_, segment)| segment.is_worth_keeping())
                .map(|(id, segment)| (id.clone(), segment.kept.clone()))
                .collect(),
            lost_bytes: self.lost_bytes.clone(),
            server_start: self.server_start.clone(),
        };
        let bytes = state.bytes();
        match self.disk.write(&self.folder.state(), &bytes) {
            Err(e) if is_full(&e) && self.remove_acknowledged()? => {
                self.disk.write(&self.folder.state(), &bytes)
            }
            result => result,
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

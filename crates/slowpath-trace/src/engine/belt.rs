// SPDX-License-Identifier: Apache-2.0
//! Who reads, and who follows what was read.
//!
//! A capture's records have to be walked in order, by one worker at a time: whoever has nothing to follow takes
//! the cursor, fills a piece, finds its records and gives the cursor back. What is in the records it decodes while
//! another worker may read on already. So a portion of segments is made of each piece, a
//! [`Sheaf`] for each worker; each takes its sheaves in the order of the pieces. Who has more to follow reads less.

use super::Summary;
use super::sheaf::Sheaf;
use crate::read::Cursor;
use crate::segment::Timestamp;
use crate::totals::Totals;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Portions a worker that may be under way: who is faster is kept waiting beyond that.
const AHEAD: usize = 4;

/// Segments that wait before workers rather follow them than read on: this number is in a core's own
/// cache, and no one waits for the other to have read.
const ENOUGH: usize = 2048;

/// What a worker is to do.
pub(super) enum Turn {
    /// Follow these segments.
    Follow(Sheaf),
    /// Read on, and make a portion of it, with these sheaves.
    Read(Box<Cursor>, Empty),
    /// Nothing follows.
    Over,
}

/// A portion that is to be filled.
pub(super) struct Empty {
    number: u64,
    pub(super) sheaves: Vec<Sheaf>,
}

/// What one piece gave.
struct Portion {
    /// One for each worker; empty: not yet decoded.
    sheaves: Vec<Sheaf>,
    /// Workers that have not taken theirs.
    left: usize,
}

/// What the workers share.
pub(super) struct Belt {
    state: Mutex<State>,
    changed: Condvar,
    workers: usize,
}

struct State {
    /// `None`: a worker reads.
    cursor: Option<Box<Cursor>>,
    portions: VecDeque<Portion>,
    /// The number of the first of them.
    first: u64,
    /// In sheaves that no one has taken.
    segments: usize,
    /// Everything was read.
    ended: bool,
    /// A worker failed, or the work was stopped.
    aborted: bool,
    times: Option<(Timestamp, Timestamp)>,
    /// Workers that wait.
    waiting: usize,
    /// To be filled again.
    spare: Vec<Sheaf>,
}

impl Belt {
    pub(super) fn new(cursor: Cursor, workers: usize) -> Self {
        Belt {
            state: Mutex::new(State {
                cursor: Some(Box::new(cursor)),
                portions: VecDeque::new(),
                segments: 0,
                first: 0,
                ended: false,
                aborted: false,
                times: None,
                waiting: 0,
                spare: Vec::new(),
            }),
            changed: Condvar::new(),
            workers,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What the lock holds is whole at any time.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever waits looks again.
    fn wake(&self, state: &State) {
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// What a worker is to do that has followed the portions before `next`. `done`: the sheaf that
    /// it has followed.
    pub(super) fn turn(&self, worker: usize, next: u64, done: Option<Sheaf>) -> Turn {
        let done = done.map(|sheaf| sheaf.emptied(self.workers));
        let mut state = self.lock();
        state.spare.extend(done);
        loop {
            if state.aborted {
                return Turn::Over;
            }
            if state.segments < ENOUGH
                && let Some((cursor, empty)) = state.begin(self.workers)
            {
                return Turn::Read(cursor, empty);
            }
            if let Some(sheaf) = state.take(worker, next) {
                if state.forget() {
                    self.wake(&state);
                }
                return Turn::Follow(sheaf);
            }
            if state.ended && next == state.end() {
                return Turn::Over;
            }
            if let Some((cursor, empty)) = state.begin(self.workers) {
                return Turn::Read(cursor, empty);
            }
            state.waiting += 1;
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }

    /// The records of a piece were found, from the first one's time to the last one's: others may read on.
    pub(super) fn walked(&self, cursor: Box<Cursor>, times: Option<(Timestamp, Timestamp)>) {
        let mut state = self.lock();
        state.cursor = Some(cursor);
        if let Some((from, to)) = times {
            let from = state.times.map_or(from, |(first, _)| first);
            state.times = Some((from, to));
        }
        self.wake(&state);
    }

    /// The portion was filled.
    pub(super) fn filled(&self, portion: Empty) {
        let segments: usize = portion.sheaves.iter().map(Sheaf::len).sum();
        let mut state = self.lock();
        state.segments += segments;
        let index = portion.number.checked_sub(state.first);
        let index = index.and_then(|n| usize::try_from(n).ok());
        if let Some(place) = index.and_then(|n| state.portions.get_mut(n)) {
            place.sheaves = portion.sheaves;
        }
        self.wake(&state);
    }

    /// There was nothing more to read.
    pub(super) fn ended(&self, cursor: Box<Cursor>) {
        let mut state = self.lock();
        state.cursor = Some(cursor);
        // No one else has begun another since.
        state.portions.pop_back();
        state.ended = true;
        self.wake(&state);
    }

    /// No one goes on.
    pub(super) fn abort(&self) {
        let mut state = self.lock();
        state.aborted = true;
        self.wake(&state);
    }

    /// What is known of the capture so far, without its frames and connections.
    pub(super) fn summary(&self) -> Summary {
        let state = self.lock();
        let notes = state.cursor.as_ref().map(|cursor| cursor.notes().clone());
        Summary {
            totals: Totals::default(),
            notes: notes.unwrap_or_default(),
            first: state.times.map(|(first, _)| first),
            last: state.times.map(|(_, last)| last),
            connections: 0,
            evicted: 0,
            hurried: 0,
            complete: false,
        }
    }

    /// The last record's time so far.
    pub(super) fn last(&self) -> Option<Timestamp> {
        self.lock().times.map(|(_, last)| last)
    }
}

impl State {
    /// One past the last portion.
    fn end(&self) -> u64 {
        self.first + self.portions.len() as u64
    }

    /// A worker's sheaf of a portion, if that is filled.
    fn take(&mut self, worker: usize, number: u64) -> Option<Sheaf> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let portion = self.portions.get_mut(index)?;
        let sheaf = std::mem::take(portion.sheaves.get_mut(worker)?);
        portion.left -= 1;
        self.segments -= sheaf.len();
        Some(sheaf)
    }

    /// Portions that all workers have taken go; `false`: none did.
    fn forget(&mut self) -> bool {
        let before = self.portions.len();
        while self.portions.front().is_some_and(|p| p.left == 0) {
            self.portions.pop_front();
            self.first += 1;
        }
        before > self.portions.len()
    }

    /// Another portion is begun, if there is something to read and not too much is under way.
    fn begin(&mut self, workers: usize) -> Option<(Box<Cursor>, Empty)> {
        if self.ended || self.portions.len() >= AHEAD * workers {
            return None;
        }
        let cursor = self.cursor.take()?;
        let number = self.end();
        self.portions.push_back(Portion {
            sheaves: Vec::new(),
            left: workers,
        });
        let spare = |_| self.spare.pop().unwrap_or_default();
        let sheaves = (0..workers).map(spare).collect();
        Some((cursor, Empty { number, sheaves }))
    }
}

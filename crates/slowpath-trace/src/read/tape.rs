// SPDX-License-Identifier: Apache-2.0
//! The bytes of one input in pieces, for several readers.
//!
//! Every reader asks for the pieces in order, and each says from where on and how much it
//! needs at least. A plain file is opened and read by each reader for itself: a copy out of
//! the page cache costs less than to fetch lines that another core wrote, or to map pages.
//! A stream can be read once only: its pieces are shared. Readers of the same records ask the
//! same, so whoever comes first has the piece made and the others get it too; it goes when
//! the last one has left it.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes of a piece, but for longer records: they stay in a core's own cache.
const PIECE: usize = 384 << 10;
/// How many pieces the fastest reader may be ahead of the slowest.
const AHEAD: usize = 16;

/// Where bytes come from.
pub(crate) type Source = Box<dyn Read + Send>;

/// Bytes of an input.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    buffer: Vec<u8>,
    filled: usize,
    /// Nothing follows.
    pub(crate) last: bool,
}

impl Piece {
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    /// The bytes from `at` on and those that follow, at least so many if there are.
    fn next(&self, at: usize, at_least: usize, source: &mut Source) -> io::Result<Arc<Self>> {
        let mut next = Piece {
            buffer: self.bytes()[at..].to_vec(),
            ..Piece::default()
        };
        next.go_on(next.buffer.len(), at_least, source)?;
        Ok(Arc::new(next))
    }

    /// Keeps so many bytes and reads on.
    fn go_on(&mut self, keep: usize, at_least: usize, source: &mut Source) -> io::Result<()> {
        let size = (keep + PIECE / 2).max(at_least).max(PIECE);
        if self.buffer.len() < size {
            self.buffer.resize(size, 0);
        }
        self.filled = keep;
        self.fill(at_least, source)
    }

    /// Reads on. A pipe gives what it has: what is whole is not kept waiting for more.
    fn fill(&mut self, at_least: usize, source: &mut Source) -> io::Result<()> {
        let enough = at_least.max(self.filled + 1);
        while self.filled < enough && !self.last {
            match source.read(&mut self.buffer[self.filled..]) {
                Ok(0) => self.last = true,
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A stream, shared by its readers.
pub(crate) struct Tape {
    source: Mutex<Source>,
    pieces: Mutex<Pieces>,
    left: Condvar,
}

#[derive(Default)]
struct Pieces {
    /// The number of the first piece that is kept.
    first: u64,
    /// With the number of readers that have not taken it.
    kept: VecDeque<(Arc<Piece>, usize)>,
    readers: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What the locks hold is whole at any time.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tape {
    /// A tape for so many readers; all of them must come, see [`Reel::shared`].
    pub(crate) fn new(source: Source, readers: usize) -> Self {
        Tape {
            source: Mutex::new(source),
            pieces: Mutex::new(Pieces {
                readers,
                ..Pieces::default()
            }),
            left: Condvar::new(),
        }
    }

    /// The piece with that number, which begins at `at` of the one before.
    fn take(
        &self,
        number: u64,
        before: &Piece,
        at: usize,
        at_least: usize,
    ) -> io::Result<Arc<Piece>> {
        let mut pieces = lock(&self.pieces);
        while pieces.kept.len() >= AHEAD && number >= pieces.first + pieces.kept.len() as u64 {
            pieces = self
                .left
                .wait(pieces)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(piece) = pieces.claim(number, &self.left) {
            return Ok(piece);
        }
        drop(pieces);
        // Whoever else needs it waits here for whoever makes it.
        let mut source = lock(&self.source);
        if let Some(piece) = lock(&self.pieces).claim(number, &self.left) {
            return Ok(piece);
        }
        let piece = before.next(at, at_least, &mut source)?;
        let mut pieces = lock(&self.pieces);
        let readers = pieces.readers;
        pieces.kept.push_back((Arc::clone(&piece), readers));
        pieces.claim(number, &self.left);
        Ok(piece)
    }
}

impl Pieces {
    fn claim(&mut self, number: u64, left: &Condvar) -> Option<Arc<Piece>> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let (piece, missing) = self.kept.get_mut(index)?;
        *missing = missing.saturating_sub(1);
        let piece = Arc::clone(piece);
        self.forget(left);
        Some(piece)
    }

    fn forget(&mut self, left: &Condvar) {
        while self.kept.front().is_some_and(|(_, missing)| *missing == 0) {
            self.kept.pop_front();
            self.first += 1;
            left.notify_all();
        }
    }
}

/// One reader's place in an input.
pub(crate) struct Reel {
    supply: Supply,
    pub(crate) piece: Arc<Piece>,
}

enum Supply {
    Own(Source),
    Shared {
        tape: Arc<Tape>,
        /// Of the next piece.
        number: u64,
    },
}

impl Reel {
    /// A reader that has the source for itself.
    pub(crate) fn own(source: Source) -> Self {
        Reel {
            supply: Supply::Own(source),
            piece: Arc::default(),
        }
    }

    /// A reader at the beginning. Each of the tape's readers makes one, before or while the
    /// others read.
    pub(crate) fn shared(tape: Arc<Tape>) -> Self {
        Reel {
            supply: Supply::Shared { tape, number: 0 },
            piece: Arc::default(),
        }
    }

    /// Goes on to the piece that begins at `at` of the present one.
    pub(crate) fn advance(&mut self, at: usize, at_least: usize) -> io::Result<()> {
        match &mut self.supply {
            Supply::Own(source) => match Arc::get_mut(&mut self.piece) {
                Some(piece) => {
                    piece.buffer.copy_within(at..piece.filled, 0);
                    piece.go_on(piece.filled - at, at_least, source)?;
                }
                // Another reader still uses it.
                None => self.piece = self.piece.next(at, at_least, source)?,
            },
            Supply::Shared { tape, number } => {
                self.piece = tape.take(*number, &self.piece, at, at_least)?;
                *number += 1;
            }
        }
        Ok(())
    }
}

impl Drop for Reel {
    /// A reader that leaves early keeps no one waiting.
    fn drop(&mut self) {
        let Supply::Shared { tape, number } = &self.supply else {
            return;
        };
        let mut pieces = lock(&tape.pieces);
        pieces.readers = pieces.readers.saturating_sub(1);
        let from = number.saturating_sub(pieces.first) as usize;
        for (_, missing) in pieces.kept.iter_mut().skip(from) {
            *missing = missing.saturating_sub(1);
        }
        pieces.forget(&tape.left);
        tape.left.notify_all();
    }
}

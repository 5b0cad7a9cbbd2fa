// SPDX-License-Identifier: Apache-2.0
//! The bytes of an input, a piece at a time.

use std::io::{self, Read};

/// Bytes of a piece, but for longer records: they stay in a core's own cache.
pub(crate) const PIECE: usize = 384 << 10;

/// Where bytes come from.
pub(crate) type Source = Box<dyn Read + Send>;

/// Bytes of an input. Its memory is used again for the next ones.
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

    /// `rest` and the bytes that follow it, at least `least` if there are.
    pub(super) fn follow(
        &mut self,
        rest: &[u8],
        at_least: usize,
        source: &mut Source,
    ) -> io::Result<()> {
        let size = (rest.len() + PIECE / 2).max(at_least).max(PIECE);
        if self.buffer.len() < size {
            self.buffer.resize(size, 0);
        }
        self.buffer[..rest.len()].copy_from_slice(rest);
        self.filled = rest.len();
        self.last = false;
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

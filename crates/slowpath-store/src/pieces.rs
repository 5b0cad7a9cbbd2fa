// SPDX-License-Identifier: Apache-2.0
//! The work of a conversion in pieces, between which the caller may rest.

/// Counts rows of work, and lets the caller rest after each piece.
pub(crate) struct Pieces<'a> {
    rest: &'a mut dyn FnMut(),
    rows: u32,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(rest: &'a mut dyn FnMut()) -> Self {
        Pieces { rest, rows: 0 }
    }

    /// Rows of a piece: with 150 columns half a millisecond.
    const ROWS: u32 = 256;

    /// A row was dealt with.
    pub(crate) fn row(&mut self) {
        self.rows += 1;
        if self.rows >= Self::ROWS {
            self.done();
        }
    }

    /// A piece was dealt with.
    pub(crate) fn done(&mut self) {
        self.rows = 0;
        (self.rest)();
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Rows on their way from an intake file to a table, or to a reader.

use crate::hour::Hour;
use crate::tables::Table;
use slowpath_model::WallMicros;
use slowpath_table::Value;

/// Where a row belongs, and when what it states began and ended by its host's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub table: Table,
    pub hour: Hour,
    pub span: (WallMicros, WallMicros),
}

/// What takes rows.
pub(crate) trait Sink {
    /// Whether rows of a table are taken at all.
    fn wants(&self, table: Table) -> bool;
    /// Takes a row, its values in the order of [`Table::columns`].
    fn row<'v>(&mut self, placed: Placed, values: impl Iterator<Item = Value<'v>>);
}

/// A number as columns have it.
pub(crate) fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

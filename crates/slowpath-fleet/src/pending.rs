// SPDX-License-Identifier: Apache-2.0
//! Rows of an intake file, by where they go.

use crate::files::HourRows;
use crate::hour::Hour;
use crate::sink::{Placed, Sink};
use crate::tables::Table;
use slowpath_table::Value;
use std::collections::BTreeMap;

/// Rows by table and hour.
#[derive(Default)]
pub(crate) struct Pending(pub BTreeMap<(Table, Hour), HourRows>);

impl Sink for Pending {
    fn wants(&self, _: Table) -> bool {
        true
    }

    fn row<'v>(&mut self, placed: Placed, values: impl Iterator<Item = Value<'v>>) {
        let Placed { table, hour, span } = placed;
        let rows = self.0.entry((table, hour));
        let rows = rows.or_insert_with(|| HourRows::new(table));
        rows.widen(span);
        rows.rows.push(values);
    }
}

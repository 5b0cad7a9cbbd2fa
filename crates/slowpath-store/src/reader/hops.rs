// SPDX-License-Identifier: Apache-2.0
//! Traced paths, read.

use super::{LogReader, ReadRows, TimeRange, identities};
use crate::cells::{Flat, Row};
use crate::hops::take;
use crate::layout::{HOPS, TableFile};
use crate::schema::{self, TIMED};
use crate::spool::{Record, kind};
use crate::{ReadReport, StoreError, table};
use slowpath_model::PathHop;

impl LogReader {
    /// The hops of paths that were traced in `range`, trace by trace. Logs written before there was
    /// such a table have none.
    ///
    /// # Errors
    /// A directory that cannot be listed. Files that cannot be read are reported.
    pub fn hops(&self, range: TimeRange) -> Result<ReadRows<PathHop>, StoreError> {
        let mut rows = Vec::new();
        let mut give = |hop: PathHop| {
            if range.meets(hop.end - hop.duration, hop.end) {
                rows.push(hop);
            }
        };
        let mut report = ReadReport::default();
        let spooled = self.spools(&mut report, kind::HOP, |record| {
            if let Record::Hop(hop) = record {
                give(*hop);
            }
        })?;
        let columns = &schema::columns(HOPS)[TIMED..];
        let wanted = |file: &TableFile, table: table::Table, bad: &mut u64| {
            let connections = identities(file)?;
            table.rows(&file.path, columns, |cells| {
                let mut row = Row::new(cells);
                let id = u64::take(&mut row).and_then(|number| connections.get(&number));
                let hop = id.and_then(|id| take(*id, &mut row));
                hop.map_or_else(|| *bad += 1, &mut give);
            })
        };
        self.files(HOPS, range, &spooled, &mut report, wanted)?;
        rows.sort_by_key(|hop| (hop.end, hop.connection, hop.ttl));
        Ok(ReadRows { rows, report })
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Routers on traced paths, as rows, and how they are read.

use crate::cells::{CellValue, Flat, Row};
use crate::column::{Column, number, text, time, us};
use crate::layout::{HOPS, TableFile};
use crate::reader::{LogReader, ReadRows, TimeRange, identities};
use crate::schema::{self, TIMED};
use crate::spool::{Record, kind};
use crate::{ReadReport, StoreError, table};
use slowpath_model::{ConnectionId, PathHop};

/// A column for each cell of [`PathHop`]'s row after its connection, in the order of `put` and
/// `take`.
pub(crate) const COLUMNS: [Column; 4] = [
    time(
        "end_time",
        "when answers were no longer awaited, the same for a trace's rows",
    )
    .of("PathHop::end"),
    us("duration_us", "for how long they were").of("PathHop::duration"),
    number("ttl", "how many hops from this host, from 1").of("PathHop::ttl"),
    text(
        "router",
        "the router's address; NULL: none answered, and a later one did",
    )
    .of("PathHop::router"),
];

/// Appends the cells after the connection's.
pub(crate) fn put(hop: &PathHop, row: &mut Vec<CellValue>) {
    let PathHop {
        connection: _,
        end,
        duration,
        ttl,
        router,
    } = hop;
    end.put(row);
    duration.put(row);
    ttl.put(row);
    router.map(|router| router.to_string()).put(row);
}

/// Takes them.
pub(crate) fn take(connection: ConnectionId, row: &mut Row<'_>) -> Option<PathHop> {
    Some(PathHop {
        connection,
        end: Flat::take(row)?,
        duration: Flat::take(row)?,
        ttl: Flat::take(row)?,
        router: match <Option<String> as Flat>::take(row)? {
            Some(router) => Some(router.parse().ok()?),
            None => None,
        },
    })
}

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

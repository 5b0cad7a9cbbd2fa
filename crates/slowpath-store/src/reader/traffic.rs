// SPDX-License-Identifier: Apache-2.0
//! What connections carried, read.

use super::{LogReader, ReadRows, TimeRange, identities};
use crate::cells::{Flat, Row};
use crate::layout::{TRAFFIC, TableFile};
use crate::schema::{self, TIMED};
use crate::spool::{Record, kind};
use crate::traffic::take;
use crate::{ReadReport, StoreError, table};
use slowpath_model::TrafficInterval;

impl LogReader {
    /// What connections carried in stretches that have a part in `range`, by their ends. Logs
    /// written before there was such a table have none.
    ///
    /// # Errors
    /// A directory that cannot be listed. Files that cannot be read are reported.
    pub fn traffic(&self, range: TimeRange) -> Result<ReadRows<TrafficInterval>, StoreError> {
        let mut rows = Vec::new();
        let report = self.each_traffic(range, |traffic| rows.push(traffic))?;
        rows.sort_by_key(|t| (t.end, t.connection));
        Ok(ReadRows { rows, report })
    }

    /// Gives each of these stretches to `each`, segment by segment and not in the order of time;
    /// memory stays that of one segment.
    ///
    /// # Errors
    /// A directory that cannot be listed. Files that cannot be read are reported.
    pub fn each_traffic(
        &self,
        range: TimeRange,
        mut each: impl FnMut(TrafficInterval),
    ) -> Result<ReadReport, StoreError> {
        let mut give = |traffic: TrafficInterval| {
            if range.meets(traffic.end - traffic.duration, traffic.end) {
                each(traffic);
            }
        };
        let mut report = ReadReport::default();
        let spooled = self.spools(&mut report, kind::TRAFFIC, |record| {
            if let Record::Traffic(traffic) = record {
                give(*traffic);
            }
        })?;
        let columns = &schema::columns(TRAFFIC)[TIMED..];
        let wanted = |file: &TableFile, table: table::Table, bad: &mut u64| {
            let connections = identities(file)?;
            table.rows(&file.path, columns, |cells| {
                let mut row = Row::new(cells);
                let id = u64::take(&mut row).and_then(|number| connections.get(&number));
                let traffic = id.and_then(|id| take(*id, &mut row));
                traffic.map_or_else(|| *bad += 1, &mut give);
            })
        };
        self.files(TRAFFIC, range, &spooled, &mut report, wanted)?;
        Ok(report)
    }
}

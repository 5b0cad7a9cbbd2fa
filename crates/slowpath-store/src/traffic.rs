// SPDX-License-Identifier: Apache-2.0
//! What connections carried, as rows, and how they are read.

use crate::cells::{CellValue, Flat, Row};
use crate::column::{Column, segments, time, us};
use crate::layout::{TRAFFIC, TableFile};
use crate::reader::{LogReader, ReadRows, TimeRange, identities};
use crate::schema::{self, TIMED};
use crate::spool::{Record, kind};
use crate::{ReadReport, StoreError, table};
use slowpath_model::{ConnectionId, TrafficInterval};

/// A column for each cell of [`TrafficInterval`]'s row after its connection, in the order of
/// `put` and `take`.
pub(crate) const COLUMNS: [Column; 5] = [
    time("end_time", "end of the stretch").of("TrafficInterval::end"),
    us("duration_us", "its length").of("TrafficInterval::duration"),
    segments(
        "data_segments_out",
        "segments with payload sent in it, retransmissions included; NULL, as in the next two: the counter went backwards",
    )
    .of("TrafficInterval::data_segments_out"),
    segments("data_segments_in", "segments with payload received")
        .of("TrafficInterval::data_segments_in"),
    segments("retransmitted", "segments retransmitted for whatever reason")
        .of("TrafficInterval::retransmitted"),
];

/// Appends the cells after the connection's.
pub(crate) fn put(traffic: &TrafficInterval, row: &mut Vec<CellValue>) {
    let TrafficInterval {
        connection: _,
        end,
        duration,
        data_segments_out,
        data_segments_in,
        retransmitted,
    } = traffic;
    end.put(row);
    duration.put(row);
    data_segments_out.put(row);
    data_segments_in.put(row);
    retransmitted.put(row);
}

/// Takes them.
pub(crate) fn take(connection: ConnectionId, row: &mut Row<'_>) -> Option<TrafficInterval> {
    Some(TrafficInterval {
        connection,
        end: Flat::take(row)?,
        duration: Flat::take(row)?,
        data_segments_out: Flat::take(row)?,
        data_segments_in: Flat::take(row)?,
        retransmitted: Flat::take(row)?,
    })
}

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

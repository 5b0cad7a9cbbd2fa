// SPDX-License-Identifier: Apache-2.0
//! Reading who the connections of a log are, without their statistics.

use crate::cells::CellValue;
use crate::layout::{CONNECTIONS, INTERVALS};
use crate::read_report::ReadReport;
use crate::reader::{LogReader, TimeRange};
use crate::spool::{Record, kind};
use crate::summary_rank::{ConnectionIdentity, Rank, summary_rank};
use crate::{StoreError, schema, version1};
use slowpath_model::{ConnectionId, ConnectionSummary, Micros, WallMicros};
use std::cell::Cell;

impl LogReader {
    /// Gives who the connections are that were observed in `range`, by those of their summaries
    /// that are `wanted`, segment by segment; of the others no text is read.
    ///
    /// # Errors
    /// A directory that cannot be listed. Files that cannot be read are reported.
    pub fn each_identity(
        &self,
        range: TimeRange,
        wanted: impl Fn(&ConnectionId, Rank) -> bool,
        mut each: impl FnMut(ConnectionIdentity),
    ) -> Result<ReadReport, StoreError> {
        let whole = |summary: ConnectionSummary, each: &mut dyn FnMut(ConnectionIdentity)| {
            if range.meets(summary.first_observed, summary.last_observed)
                && wanted(&summary.connection, summary_rank(&summary))
            {
                each(summary.into());
            }
        };
        let mut report = ReadReport::default();
        let spooled = self.spools(&mut report, kind::SUMMARY, |record| {
            if let Record::Summary(summary) = record {
                whole(*summary, &mut each);
            }
        })?;
        let columns = schema::identity_cells();
        let report_of = &mut report;
        self.files(
            CONNECTIONS,
            range,
            &spooled,
            report_of,
            |file, table, bad| {
                if table.version == 1 {
                    return version1::summaries(file, table, |summary| match summary {
                        Some(summary) => whole(summary, &mut each),
                        None => *bad += 1,
                    });
                }
                let senseless = Cell::new(0);
                let note = || senseless.set(senseless.get() + 1);
                let ranked = |cells: &[CellValue]| match schema::take_ranked(cells) {
                    // A connection that had problems and no summary in this segment.
                    Some(None) => None,
                    Some(Some(row)) => {
                        let meets = range.meets(row.first_observed, row.last_observed);
                        (meets && wanted(&row.connection, row.rank())).then_some(row)
                    }
                    None => {
                        note();
                        None
                    }
                };
                let done = table.rows_if(
                    &file.path,
                    (&columns, schema::RANK),
                    ranked,
                    |row, cells| match schema::take_identity(&row, cells) {
                        Some(identity) => each(identity),
                        None => note(),
                    },
                );
                *bad += senseless.get();
                done
            },
        )?;
        Ok(report)
    }

    /// Gives the number of the connection of each problem interval
    /// that has a part in `range` to `each`, segment by segment.
    ///
    /// # Errors
    /// A directory that cannot be listed. Files that cannot be read are reported.
    pub fn each_interval_connection(
        &self,
        range: TimeRange,
        mut each: impl FnMut(ConnectionNumber),
    ) -> Result<ReadReport, StoreError> {
        let mut give = |number: u64, end: WallMicros, duration: Micros| {
            if range.meets(end - duration, end) {
                each(ConnectionNumber(number));
            }
        };
        let mut report = ReadReport::default();
        let spooled = self.spooled_intervals(&mut report, |id, end, duration| {
            give(schema::connection_number(&id), end, duration);
        })?;
        let columns = schema::interval_key_cells();
        self.files(
            INTERVALS,
            range,
            &spooled,
            &mut report,
            |file, table, bad| {
                if table.version == 1 {
                    return version1::intervals(file, table, |logged| match logged {
                        Some(logged) => {
                            let interval = logged.interval;
                            let number = schema::connection_number(&interval.connection);
                            give(number, interval.end, interval.duration);
                        }
                        None => *bad += 1,
                    });
                }
                table.rows(
                    &file.path,
                    &columns,
                    |cells| match schema::take_interval_key(cells) {
                        Some((number, end, duration)) => give(number, end, duration),
                        None => *bad += 1,
                    },
                )
            },
        )?;
        Ok(report)
    }
}

/// The number that the tables join connections by: a hash of 63 bits of the identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionNumber(u64);

impl ConnectionNumber {
    /// As the tables have it.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl From<&ConnectionId> for ConnectionNumber {
    fn from(id: &ConnectionId) -> Self {
        ConnectionNumber(schema::connection_number(id))
    }
}

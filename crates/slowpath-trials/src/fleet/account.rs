// SPDX-License-Identifier: Apache-2.0
//! Row by row: what hosts' logs accepted against what the server has and what gaps state.

use super::ledger::{Accepted, Kind, Ledgers};
use super::tally::FleetTally;
use slowpath_fleet::{FleetReader, Table};
use slowpath_store::TimeRange;
use slowpath_store::tables::LogTable;
use slowpath_table::Value;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

/// A row's host, table and connection.
type Key = (String, Kind, u64);

/// What a server has.
#[derive(Debug, Default)]
pub(super) struct ServerRows {
    rows: BTreeMap<Key, u64>,
    /// By host and segment: from, to, bytes.
    gaps: BTreeMap<(String, String), Vec<(u64, u64)>>,
    /// What could not be read.
    unreadable: Vec<String>,
}

impl ServerRows {
    /// Reads a server's directory; it may run.
    pub(super) fn read(directory: &Path, server: &str) -> Result<ServerRows, Box<dyn Error>> {
        let reader = FleetReader::new(directory, server);
        let mut kept = ServerRows::default();
        for (table, kind) in [
            (LogTable::Intervals, Kind::Interval),
            (LogTable::Connections, Kind::Connection),
        ] {
            let columns = ["host", "connection_id"];
            let report = reader.each_row(Table::Log(table), &columns, TimeRange::ALL, |row| {
                if let [Value::Text(host), Value::Int(connection)] = row {
                    let key = ((*host).to_owned(), kind, connection.cast_unsigned());
                    *kept.rows.entry(key).or_default() += 1;
                }
            })?;
            let bad = report.unreadable.into_iter();
            kept.unreadable
                .extend(bad.map(|(path, why)| format!("{}: {why}", path.display())));
        }
        let columns = ["host", "segment", "offset", "length"];
        reader.each_row(Table::Gaps, &columns, TimeRange::ALL, |row| {
            if let [
                Value::Text(host),
                Value::Text(segment),
                Value::Int(offset),
                Value::Int(length),
            ] = row
            {
                let key = ((*host).to_owned(), (*segment).to_owned());
                let from = offset.cast_unsigned();
                let gap = (from, from + length.cast_unsigned());
                kept.gaps.entry(key).or_default().push(gap);
            }
        })?;
        Ok(kept)
    }

    fn is_in_gap(&self, host: &str, segment: &str, row: &Accepted) -> bool {
        let gaps = self.gaps.get(&(host.to_owned(), segment.to_owned()));
        let gaps = gaps.map_or(&[][..], Vec::as_slice);
        gaps.iter()
            .any(|(from, to)| (*from..*to).contains(&row.offset))
    }
}

/// Compares, and counts in the tally.
pub(super) fn settle(
    what: &str,
    ledgers: &Ledgers,
    mut kept: ServerRows,
    tally: &mut FleetTally,
) -> Result<(), Box<dyn Error>> {
    for line in &kept.unreadable {
        tally.find(format!("{what}: the server's tables: {line}"));
    }
    for (host, ledger) in ledgers {
        for (segment, rows) in ledger.rows()? {
            let (mut lost, mut in_gaps, mut stretches, mut false_gaps) = (0, 0, 0, 0);
            let mut is_missing = false;
            for row in &rows {
                let key = (host.clone(), row.kind, row.connection);
                let is_there = kept.rows.get_mut(&key).is_some_and(|count| {
                    let is_left = *count > 0;
                    *count = count.saturating_sub(1);
                    is_left
                });
                let in_gap = kept.is_in_gap(host, &segment, row);
                in_gaps += u64::from(in_gap);
                false_gaps += u64::from(is_there && in_gap);
                let lacks = !is_there && !in_gap;
                lost += u64::from(lacks);
                stretches += u64::from(lacks && !is_missing);
                is_missing = lacks;
            }
            tally.rows += rows.len() as u64;
            tally.rows_in_gaps += in_gaps;
            tally.lost_rows += lost;
            tally.unsaid_gaps += stretches + u64::from(false_gaps > 0);
            if lost > 0 {
                let all = rows.len();
                tally.find(format!(
                    "{what}: {host}, {segment}: {lost} of {all} rows lost"
                ));
            }
            if false_gaps > 0 {
                let line = "rows are at the server that a gap states as missing";
                tally.find(format!("{what}: {host}, {segment}: {false_gaps} {line}"));
            }
        }
    }
    // What is left was counted once and is there again, or no log accepted it.
    let left: Vec<(&Key, &u64)> = kept.rows.iter().filter(|(_, count)| **count > 0).collect();
    let doubled: u64 = left.iter().map(|(_, count)| **count).sum();
    tally.doubled_rows += doubled;
    if let Some((key, _)) = left.first() {
        let text = format!(
            "{what}: {doubled} rows more than logs accepted, of {}",
            left.len()
        );
        tally.find(format!("{text} connections, such as {key:?}"));
    }
    Ok(())
}

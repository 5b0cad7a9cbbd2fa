// SPDX-License-Identifier: Apache-2.0
//! What a log states, as times: which stretches of which connection, listener or coverage a row
//! stands for. Rows of one connection are joined when a spool becomes Parquet; the time that they
//! stand for stays.

use slowpath_model::{ConnectionId, Micros, WallMicros};
use slowpath_store::{IntervalFilter, LogReader, TimeRange};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::Path;

/// A stretch of time: from, to, in microseconds.
type Stretch = (i64, i64);

/// All that is read of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Sorted, by what they are of.
    stretches: BTreeMap<String, Vec<Stretch>>,
    connections: BTreeSet<ConnectionId>,
    /// Files that could not be read.
    pub(crate) unreadable: Vec<String>,
}

impl Contents {
    pub(crate) fn read(log: &Path) -> Result<Contents, Box<dyn Error>> {
        let mut contents = Contents::default();
        if !log.exists() {
            return Ok(contents);
        }
        let reader = LogReader::open(log)?;
        let intervals = reader.intervals(TimeRange::ALL, &IntervalFilter::default())?;
        for row in &intervals.rows {
            contents.add(format!("{:?}", row.connection), row.end, row.duration);
        }
        let coverage = reader.coverage(TimeRange::ALL)?;
        for row in &coverage.rows {
            contents.add("coverage".to_owned(), row.end, row.duration);
        }
        let connections = reader.connections(TimeRange::ALL)?;
        contents.connections = connections.rows.iter().map(|row| row.connection).collect();
        for report in [intervals.report, coverage.report, connections.report] {
            let unreadable = report.unreadable.iter();
            let lines = unreadable.map(|(path, why)| format!("{}: {why}", path.display()));
            contents.unreadable.extend(lines);
        }
        for stretches in contents.stretches.values_mut() {
            stretches.sort_unstable();
        }
        Ok(contents)
    }

    fn add(&mut self, of: String, end: WallMicros, duration: Micros) {
        let stretch = (end.0 - duration.0 as i64, end.0);
        self.stretches.entry(of).or_default().push(stretch);
    }

    /// Rows in all.
    pub(crate) fn rows(&self) -> usize {
        self.stretches.values().map(Vec::len).sum::<usize>() + self.connections.len()
    }

    /// Rows of these contents for less than half of whose time a row of `later` stands, and
    /// connections that `later` lacks.
    pub(crate) fn missing_from(&self, later: &Contents) -> u64 {
        let connections = self.connections.difference(&later.connections).count() as u64;
        let rows = self.stretches.iter().map(|(of, rows)| {
            let later = later.stretches.get(of).map_or(&[][..], Vec::as_slice);
            rows.iter().filter(|row| !is_covered(**row, later)).count() as u64
        });
        connections + rows.sum::<u64>()
    }

    /// Rows of which the row before, of the same connection, stands for more than half of the time.
    /// A difference in microseconds between the wall clock and the monotonic one is none.
    pub(crate) fn doubled(&self) -> u64 {
        let of = |rows: &Vec<Stretch>| {
            let pairs = rows.windows(2);
            let doubled = pairs.filter(|pair| {
                let shorter = length(pair[0]).min(length(pair[1]));
                2 * common(pair[0], pair[1]) > shorter
            });
            doubled.count() as u64
        };
        self.stretches.values().map(of).sum()
    }
}

fn length((from, to): Stretch) -> i64 {
    to - from
}

fn common(a: Stretch, b: Stretch) -> i64 {
    (a.1.min(b.1) - a.0.max(b.0)).max(0)
}

/// `rows` are sorted and hardly overlap.
fn is_covered(row: Stretch, rows: &[Stretch]) -> bool {
    let first = rows.partition_point(|other| other.1 < row.0);
    let near = rows[first..].iter().take_while(|other| other.0 <= row.1);
    let (mut covered, mut met) = (0, false);
    for other in near {
        covered += common(row, *other);
        met = true;
    }
    met && 2 * covered >= length(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(rows: &[Stretch]) -> Contents {
        let mut contents = Contents::default();
        for (from, to) in rows {
            contents.add("c".to_owned(), WallMicros(*to), Micros((to - from) as u64));
        }
        contents
    }

    #[test]
    fn rows_that_were_joined_are_not_lost() {
        let before = log(&[(0, 10), (10, 20), (30, 40)]);
        assert_eq!(before.missing_from(&log(&[(0, 20), (30, 40)])), 0);
        assert_eq!(before.missing_from(&log(&[(0, 20)])), 1);
        assert_eq!(before.missing_from(&log(&[])), 3);
    }

    #[test]
    fn a_row_that_is_there_twice_is_doubled() {
        assert_eq!(log(&[(0, 10), (10, 20), (30, 40)]).doubled(), 0);
        // Clocks differ by less than half of a row.
        assert_eq!(log(&[(0, 10), (9, 20)]).doubled(), 0);
        assert_eq!(log(&[(0, 10), (0, 10), (10, 20)]).doubled(), 1);
        assert_eq!(log(&[(0, 20), (10, 20)]).doubled(), 1);
    }
}

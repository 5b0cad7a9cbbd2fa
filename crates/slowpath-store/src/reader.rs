// SPDX-License-Identifier: Apache-2.0
//! Reading a log: Parquet files and the spools that are not in them yet.
//!
//! A reader takes no lock and may run beside a writer. It reads the spools first and then
//! those Parquet files whose segment it has not met: a segment converted in between is
//! found in Parquet, one half converted is taken from its spool, none counts twice.

mod hops;
mod selection;
mod spools;
mod traffic;

pub use selection::{IntervalFilter, TimeRange};
pub(crate) use spools::set_aside;

use crate::cells::{Flat, Row};
use crate::interval::Logged;
use crate::layout::{
    self, CONNECTIONS, COVERAGE, INTERACTIONS, INTERVALS, LISTENERS, PROBLEMS, TRAFFIC, TableFile,
};
use crate::read_report::ReadReport;
use crate::rows::IDENTITY;
use crate::schema::{self, INTERACTION, TIMED, connection_number};
use crate::spool::{Record, kind};
use crate::stop::Stop;
use crate::summary_rank::supersedes;
use crate::{StoreError, table, version1};
use slowpath_model::{
    ConnectionId, ConnectionSummary, Coverage, Finding, InteractionInterval, ListenerInterval,
    ProblemInterval,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

/// Rows, and what could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRows<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// What is missing from them.
    pub report: ReadReport,
}

/// Reads a log.
#[derive(Clone, Debug)]
pub struct LogReader {
    dir: PathBuf,
    stop: Stop,
}

impl LogReader {
    /// A reader of the log in `dir`.
    ///
    /// # Errors
    /// `dir` is not a directory that can be listed.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        fs::read_dir(dir).map_err(StoreError::io("open the log in", dir))?;
        Ok(LogReader {
            dir: dir.to_owned(),
            stop: Stop::default(),
        })
    }

    /// Ends what this reader and its clones are reading.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Gives each problem interval that has a part in `range` to `each`, segment by segment
    /// and not in the order of time; memory stays that of one segment.
    ///
    /// # Errors
    /// A directory that cannot be listed. Files that cannot be read are reported.
    pub fn each_interval(
        &self,
        range: TimeRange,
        filter: &IntervalFilter,
        mut each: impl FnMut(ProblemInterval),
    ) -> Result<ReadReport, StoreError> {
        let mut give = |logged: Logged| {
            let ProblemInterval { end, duration, .. } = logged.interval;
            if range.meets(end - duration, end) && filter.wants(&logged) {
                each(logged.interval);
            }
        };
        let mut report = ReadReport::default();
        let spooled = self.spools(&mut report, kind::PROBLEM, |record| {
            if let Record::Problem(interval) = record {
                give(Logged {
                    interval: *interval,
                    polls: 1,
                });
            }
        })?;
        self.files(
            INTERVALS,
            range,
            &spooled,
            &mut report,
            |file, table, bad| {
                let each = |logged: Option<Logged>| match logged {
                    Some(logged) => give(logged),
                    None => *bad += 1,
                };
                if table.version == 1 {
                    version1::intervals(file, table, each)
                } else {
                    intervals(file, table, each)
                }
            },
        )?;
        Ok(report)
    }

    /// The problem intervals that have a part in `range`, by their ends.
    ///
    /// # Errors
    /// A directory that cannot be listed. Files that cannot be read are reported.
    pub fn intervals(
        &self,
        range: TimeRange,
        filter: &IntervalFilter,
    ) -> Result<ReadRows<ProblemInterval>, StoreError> {
        let mut rows = Vec::new();
        let report = self.each_interval(range, filter, |interval| rows.push(interval))?;
        rows.sort_by_key(|i| (i.end, i.connection));
        Ok(ReadRows { rows, report })
    }

    /// The latest summary of each connection that was observed in `range`, by when they
    /// were first observed.
    ///
    /// # Errors
    /// A directory that cannot be listed. Files that cannot be read are reported.
    pub fn connections(&self, range: TimeRange) -> Result<ReadRows<ConnectionSummary>, StoreError> {
        let mut latest: BTreeMap<ConnectionId, ConnectionSummary> = BTreeMap::new();
        let report =
            self.each_summary(range, |summary| match latest.get_mut(&summary.connection) {
                Some(old) if supersedes(&summary, old) => *old = summary,
                Some(_) => {}
                None => {
                    latest.insert(summary.connection, summary);
                }
            })?;
        let mut rows: Vec<_> = latest.into_values().collect();
        rows.sort_by_key(|s| (s.first_observed, s.connection));
        Ok(ReadRows { rows, report })
    }

    /// Gives every summary of connections that were observed in `range` to `each`, segment
    /// by segment; memory stays that of one segment. Of a connection there may be several:
    /// the one of the greatest [rank](crate::summary_rank) replaces the others.
    ///
    /// # Errors
    /// A directory that cannot be listed. Files that cannot be read are reported.
    pub fn each_summary(
        &self,
        range: TimeRange,
        mut each: impl FnMut(ConnectionSummary),
    ) -> Result<ReadReport, StoreError> {
        let mut give = |summary: ConnectionSummary| {
            if range.meets(summary.first_observed, summary.last_observed) {
                each(summary);
            }
        };
        let mut report = ReadReport::default();
        let spooled = self.spools(&mut report, kind::SUMMARY, |record| {
            if let Record::Summary(summary) = record {
                give(*summary);
            }
        })?;
        self.files(
            CONNECTIONS,
            range,
            &spooled,
            &mut report,
            |file, table, bad| {
                let mut each = |summary: Option<ConnectionSummary>| match summary {
                    Some(summary) => give(summary),
                    None => *bad += 1,
                };
                if table.version == 1 {
                    return version1::summaries(file, table, each);
                }
                table.rows(&file.path, schema::connection_cells(), |cells| {
                    match schema::take_connection(cells) {
                        // A connection that had problems and no summary in this segment.
                        Some(None) => {}
                        summary => each(summary.flatten()),
                    }
                })
            },
        )?;
        Ok(report)
    }

    /// The coverage records that have a part in `range`, by their ends.
    ///
    /// # Errors
    /// A directory that cannot be listed. Files that cannot be read are reported.
    pub fn coverage(&self, range: TimeRange) -> Result<ReadRows<Coverage>, StoreError> {
        let mut rows = Vec::new();
        let mut give = |record: Coverage| {
            if range.meets(record.end - record.duration, record.end) {
                rows.push(record);
            }
        };
        let mut report = ReadReport::default();
        let spooled = self.spools(&mut report, kind::COVERAGE, |record| {
            if let Record::Coverage(record) = record {
                give(*record);
            }
        })?;
        let columns = &schema::columns(COVERAGE)[TIMED..];
        self.files(
            COVERAGE,
            range,
            &spooled,
            &mut report,
            |file, table, bad| {
                table.rows(&file.path, columns, |cells| {
                    match Coverage::take(&mut Row::new(cells)) {
                        Some(record) => give(record),
                        None => *bad += 1,
                    }
                })
            },
        )?;
        rows.sort_by_key(|c| c.end);
        Ok(ReadRows { rows, report })
    }

    /// The intervals in which a listener had a problem that have a part in `range`, by their
    /// ends. Logs written before there were any have none.
    ///
    /// # Errors
    /// A directory that cannot be listed. Files that cannot be read are reported.
    pub fn listeners(&self, range: TimeRange) -> Result<ReadRows<ListenerInterval>, StoreError> {
        let mut rows = Vec::new();
        let report = self.each_listener(range, |interval| rows.push(interval))?;
        rows.sort_by_key(|i| (i.end, i.listener));
        Ok(ReadRows { rows, report })
    }

    /// Gives each of these intervals to `each`, segment by segment and not in the order of
    /// time; memory stays that of one segment.
    ///
    /// # Errors
    /// A directory that cannot be listed. Files that cannot be read are reported.
    pub fn each_listener(
        &self,
        range: TimeRange,
        mut each: impl FnMut(ListenerInterval),
    ) -> Result<ReadReport, StoreError> {
        let mut give = |interval: ListenerInterval| {
            if range.meets(interval.end - interval.duration, interval.end) {
                each(interval);
            }
        };
        let mut report = ReadReport::default();
        let spooled = self.spools(&mut report, kind::LISTENER, |record| {
            if let Record::Listener(interval) = record {
                give(*interval);
            }
        })?;
        let wanted = |file: &TableFile, table: table::Table, bad: &mut u64| {
            table.rows(&file.path, &schema::columns(LISTENERS)[TIMED..], |cells| {
                match ListenerInterval::take(&mut Row::new(cells)) {
                    Some(interval) => give(interval),
                    None => *bad += 1,
                }
            })
        };
        self.files(LISTENERS, range, &spooled, &mut report, wanted)?;
        Ok(report)
    }

    /// The interactions that have a part in `range`, by their ends. Logs written before there
    /// were any have none.
    ///
    /// # Errors
    /// A directory that cannot be listed. Files that cannot be read are reported.
    pub fn interactions(
        &self,
        range: TimeRange,
    ) -> Result<ReadRows<InteractionInterval>, StoreError> {
        let mut rows = Vec::new();
        let mut give = |found: InteractionInterval| {
            if range.meets(found.end - found.duration, found.end) {
                rows.push(found);
            }
        };
        let mut report = ReadReport::default();
        let spooled = self.spools(&mut report, kind::INTERACTION, |record| {
            if let Record::Interaction(found) = record {
                give(*found);
            }
        })?;
        let columns = &schema::columns(INTERACTIONS)[INTERACTION..];
        let wanted = |file: &TableFile, table: table::Table, bad: &mut u64| {
            table.rows(&file.path, columns, |cells| {
                let found = InteractionInterval::take(&mut Row::new(cells));
                found.map_or_else(|| *bad += 1, &mut give);
            })
        };
        self.files(INTERACTIONS, range, &spooled, &mut report, wanted)?;
        rows.sort_by_key(|i| (i.end, i.kind, i.connection));
        Ok(ReadRows { rows, report })
    }

    /// Gives every file of a table that may have rows in `range` to `each`.
    pub(crate) fn files(
        &self,
        wanted: &'static str,
        range: TimeRange,
        spooled: &BTreeSet<String>,
        report: &mut ReadReport,
        mut each: impl FnMut(&TableFile, table::Table, &mut u64) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut read: BTreeMap<String, PathBuf> = BTreeMap::new();
        for hour in layout::hours(&self.dir)? {
            let files = layout::tables(&hour)?;
            for file in &files {
                if spooled.contains(&file.segment) {
                    continue;
                }
                if self.stop.is_set() {
                    return Ok(());
                }
                if file.table != wanted {
                    report.unreadable.extend(lost(file, wanted, &files, range));
                    continue;
                }
                let mut segment = None;
                let result = table::open(&file.path).and_then(|mut table| {
                    table.stop = self.stop.clone();
                    let (from, to) = table.span();
                    // A row's clock may have jumped: files are chosen by what they say of
                    // their rows, not by their partition.
                    if !range.meets(from, to) {
                        return Ok(());
                    }
                    let own = table.segment().unwrap_or(&file.segment).to_owned();
                    if let Some(first) = read.get(&own) {
                        let reason = format!("it is a copy of {}", first.display());
                        report.unreadable.push((file.path.clone(), reason));
                        return Ok(());
                    }
                    if let Some(missing) = table.missing() {
                        let all = file.beside("*");
                        report.incomplete.push((all, missing.to_owned()));
                    }
                    // Of a file without checksums, rows may have been given before damage is met.
                    segment = Some((own, !table.has_checksums()));
                    let before = report.not_understood;
                    each(file, table, &mut report.not_understood)?;
                    let rows = report.not_understood - before;
                    if rows > 0 {
                        let what = format!("{rows} of its rows make no sense to this version");
                        report.incomplete.push((file.path.clone(), what));
                    }
                    Ok(())
                });
                if let Some((segment, given)) = segment
                    && (given || result.is_ok())
                {
                    read.insert(segment, file.path.clone());
                }
                match result {
                    Ok(()) => report.files += 1,
                    // Retention was quicker.
                    Err(e) if e.is_not_found() && !file.path.exists() => {}
                    Err(e) => report.unreadable.push((file.path.clone(), e.to_string())),
                }
            }
        }
        Ok(())
    }
}

/// The file of the wanted table that this one proves to have been there, if it is gone.
fn lost(
    file: &TableFile,
    wanted: &'static str,
    all: &[TableFile],
    range: TimeRange,
) -> Option<(PathBuf, String)> {
    // Each interval has a problem and a connection, in the same segment, and traffic has a connection.
    let has = |table| all.iter().any(|other| other.path == file.beside(table));
    let proves = match wanted {
        INTERVALS => file.table == PROBLEMS,
        CONNECTIONS => file.table == INTERVALS || file.table == TRAFFIC && !has(INTERVALS),
        _ => false,
    };
    if !proves || has(wanted) {
        return None;
    }
    let path = file.beside(wanted);
    let (from, to) = table::open(&file.path).ok()?.span();
    // Else retention deletes the hour just now.
    let is_lost = range.meets(from, to) && file.path.exists();
    is_lost.then(|| {
        let reason = format!("it is missing, its segment's {} are there", file.table);
        (path, reason)
    })
}

/// Gives the intervals of a file to `each`, `None` for a row that makes no sense.
fn intervals(
    file: &TableFile,
    table: table::Table,
    mut each: impl FnMut(Option<Logged>),
) -> Result<(), StoreError> {
    let connections = identities(file)?;
    let findings = findings(file)?;
    let mut left = findings.as_slice();
    let not_looked_for = table.not_looked_for();
    table.rows(&file.path, &schema::interval_cells(), |cells| {
        let mut row = Row::new(cells);
        let key = u64::take(&mut row).zip(u64::take(&mut row));
        each(key.and_then(|(number, connection)| {
            // Both files have the order of the intervals' numbers.
            let before = left.partition_point(|(of, _)| *of < number);
            let until = left.partition_point(|(of, _)| *of <= number);
            let own = left[before..until].iter().map(|(_, finding)| *finding);
            let own = own.collect();
            left = &left[until..];
            let id = *connections.get(&connection)?;
            let mut logged = schema::take_interval(id, own, &mut row)?;
            for problem in not_looked_for.iter() {
                logged.interval.unmeasured.insert(problem);
            }
            Some(logged)
        }));
    })
}

/// The problems of an intervals file's segment, by the number of their interval.
fn findings(file: &TableFile) -> Result<Vec<(u64, Finding)>, StoreError> {
    let path = file.beside(PROBLEMS);
    let mut found = Vec::new();
    table::open(&path)?.rows(&path, &schema::problem_cells(), |cells| {
        // A problem that a later version added is none that this one can name.
        found.extend(schema::take_problem(&mut Row::new(cells)));
    })?;
    Ok(found)
}

/// The connections of a file's segment, by their number.
fn identities(file: &TableFile) -> Result<HashMap<u64, ConnectionId>, StoreError> {
    let path = file.beside(CONNECTIONS);
    let columns = &schema::connection_cells()[..IDENTITY.len()];
    let mut ids = HashMap::new();
    table::open(&path)?.rows(&path, columns, |cells| {
        if let Some(id) = ConnectionId::take(&mut Row::new(cells)) {
            ids.insert(connection_number(&id), id);
        }
    })?;
    Ok(ids)
}

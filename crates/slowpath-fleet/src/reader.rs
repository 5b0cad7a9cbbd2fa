// SPDX-License-Identifier: Apache-2.0
//! Reading the fleet's tables: their files, and the intake that is not in them yet.
//!
//! A reader takes no lock and works beside a server. It opens the intake files first and the tables
//! after them; of an intake file it then gives the rows of those tables and hours that did not list
//! it when they were opened. So a file that is published meanwhile counts once.

use crate::FleetError;
use crate::decode::IntakeFile;
use crate::files::{self, KEY_INTAKE};
use crate::hour::Hour;
use crate::intakes::Intakes;
use crate::layout;
use crate::owners::Owners;
use crate::scan;
use crate::sink::{Placed, Sink};
use crate::tables::Table;
use slowpath_store::TimeRange;
use slowpath_store::tables::LogTable;
use slowpath_table::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// What a reader met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetReadReport {
    /// Files of the table that were read.
    pub files: u64,
    /// Intake files that were read.
    pub intakes: u64,
    /// Files that could not be read, and why; none of their rows is given.
    pub unreadable: Vec<(PathBuf, String)>,
    /// Bytes of the intake that are damaged.
    pub damaged_bytes: u64,
}

/// Reads the tables of a server.
#[derive(Clone, Debug)]
pub struct FleetReader {
    dir: PathBuf,
    server: String,
}

impl FleetReader {
    /// A reader of the tables in a server's directory; `server` is its id.
    pub fn new(dir: &Path, server: &str) -> Self {
        FleetReader {
            dir: dir.to_owned(),
            server: server.to_owned(),
        }
    }

    /// Gives each row of a table that has a part in `range`, by its host's clock, to `each`: the
    /// values of these columns, in no order of rows. A column that the table does not have is null.
    ///
    /// # Errors
    /// A directory cannot be listed. Files that cannot be read are reported.
    pub fn each_row(
        &self,
        table: Table,
        columns: &[&str],
        range: TimeRange,
        mut each: impl FnMut(&[Value<'_>]),
    ) -> Result<FleetReadReport, FleetError> {
        let mut report = FleetReadReport::default();
        let intakes = self.intakes(&mut report)?;
        let mut read = TableQuery {
            table,
            wanted: columns,
            range,
            each: &mut each,
        };
        let listed = read.tables(&self.dir, &self.server, &mut report)?;
        let own = table.columns();
        let place = |name: &str| own.iter().position(|column| column.name == name);
        let (from, to) = times(table);
        let mut unpublished = Unpublished {
            places: columns.iter().map(|name| place(name)).collect(),
            span: (place(from), place(to)),
            read,
            listed: &listed,
            number: 0,
        };
        let mut owners = Owners::default();
        for (number, intake) in intakes {
            unpublished.number = number;
            match intake.rows(&mut owners, &mut unpublished) {
                Ok(_) => report.intakes += 1,
                Err(e) => report.unreadable.push((intake.path.clone(), e.to_string())),
            }
            report.damaged_bytes += intake.damaged();
        }
        Ok(report)
    }

    /// The intake files, opened.
    fn intakes(&self, report: &mut FleetReadReport) -> Result<Vec<(u64, IntakeFile)>, FleetError> {
        let mut opened = Vec::new();
        for number in layout::intakes(&self.dir)? {
            let path = layout::intake_path(&self.dir, number);
            match IntakeFile::open(&path) {
                Ok(intake) => opened.push((number, intake)),
                // Publication was quicker.
                Err(FleetError::Io { source, .. }) if layout::is_gone(&source) => {}
                Err(e) => report.unreadable.push((path, e.to_string())),
            }
        }
        Ok(opened)
    }
}

/// The columns of a table that state when a row began and ended.
fn times(table: Table) -> (&'static str, &'static str) {
    match table {
        Table::Log(LogTable::Connections) => ("first_observed", "last_observed"),
        Table::Log(_) | Table::Ends => ("start_time", "end_time"),
        Table::Gaps => ("received", "received"),
        Table::Hosts => ("minute", "received"),
    }
}

/// Whether something that lasted from `from` to `to` has a part in a range.
fn meets(range: TimeRange, from: i64, to: i64) -> bool {
    from < range.to.0 && (to > range.from.0 || (from == to && to >= range.from.0))
}

/// What is read.
struct TableQuery<'a> {
    table: Table,
    wanted: &'a [&'a str],
    range: TimeRange,
    each: &'a mut dyn FnMut(&[Value<'_>]),
}

/// By hour, the intake files whose rows the tables had when they were opened.
type Listed = HashMap<Hour, Vec<Intakes>>;

impl TableQuery<'_> {
    /// Reads the files of the table.
    fn tables(
        &mut self,
        dir: &Path,
        server: &str,
        report: &mut FleetReadReport,
    ) -> Result<Listed, FleetError> {
        let mut listed = Listed::new();
        for (hour, hour_dir) in files::hours(&layout::tables_dir(dir))? {
            for path in layout::entries(&hour_dir)? {
                let Some((table, by, _)) = files::parts(&path) else {
                    continue;
                };
                if table != self.table {
                    continue;
                }
                match self.file(&path) {
                    Ok(intakes) => {
                        report.files += 1;
                        if by == server {
                            listed.entry(hour).or_default().push(intakes);
                        }
                    }
                    // Retention was quicker.
                    Err(_) if !path.exists() => {}
                    Err(e) => report.unreadable.push((path, e.to_string())),
                }
            }
        }
        Ok(listed)
    }

    fn file(&mut self, path: &Path) -> Result<Intakes, FleetError> {
        let file = files::open(path)?;
        let intakes = file.reader().metadata(KEY_INTAKE);
        let intakes = intakes.and_then(|text| text.parse().ok());
        let intakes: Intakes = intakes.ok_or_else(|| FleetError::Unreadable {
            path: path.to_owned(),
            reason: "it does not state which intake files it has".to_owned(),
        })?;
        let (from, to) = file.span();
        if !meets(self.range, from.0, to.0) {
            return Ok(intakes);
        }
        let (from, to) = times(self.table);
        let columns: Vec<&str> = [from, to]
            .into_iter()
            .chain(self.wanted.iter().copied())
            .collect();
        scan::rows_of(&file, path, &columns, |rows| {
            let from = scan::number(rows, 0);
            let to = scan::number(rows, 1);
            if self.is_wanted(from, to) {
                let values = 2..columns.len();
                let values = values.map(|column| rows.value(column));
                let values: Vec<Value<'_>> = values.collect::<Result<_, _>>()?;
                (self.each)(&values);
            }
            Ok(())
        })?;
        Ok(intakes)
    }

    /// A row that does not state its times is given.
    fn is_wanted(&self, from: Option<i64>, to: Option<i64>) -> bool {
        let times = from.or(to).zip(to.or(from));
        times.is_none_or(|(from, to)| meets(self.range, from, to))
    }
}

/// Gives rows of an intake file that are in no table yet.
struct Unpublished<'a> {
    read: TableQuery<'a>,
    listed: &'a Listed,
    number: u64,
    /// Where the wanted columns are in a row, and its times.
    places: Vec<Option<usize>>,
    span: (Option<usize>, Option<usize>),
}

impl Sink for Unpublished<'_> {
    fn wants(&self, table: Table) -> bool {
        table == self.read.table
    }

    fn row<'v>(&mut self, placed: Placed, values: impl Iterator<Item = Value<'v>>) {
        let of_hour = self.listed.get(&placed.hour).map_or(&[][..], Vec::as_slice);
        let is_listed = of_hour.iter().any(|intakes| intakes.contains(self.number));
        if !self.wants(placed.table) || is_listed {
            return;
        }
        let row: Vec<Value<'v>> = values.collect();
        let time = |place: Option<usize>| match place.and_then(|place| row.get(place)) {
            Some(Value::Time(time)) => Some(*time),
            _ => None,
        };
        if !self.read.is_wanted(time(self.span.0), time(self.span.1)) {
            return;
        }
        let places = self.places.iter();
        let wanted = places.map(|place| match place.and_then(|place| row.get(place)) {
            Some(value) => value.clone(),
            None => Value::Null,
        });
        let wanted: Vec<Value<'v>> = wanted.collect();
        (self.read.each)(&wanted);
    }
}

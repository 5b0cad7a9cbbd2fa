// SPDX-License-Identifier: Apache-2.0
//! Single records as rows of the log's tables, for a store that holds the records of many hosts;
//! and such a store's files with the log's metadata and checksums.

use crate::cells::{CellValue, Flat};
use crate::checksum::{self, Body};
use crate::schema::{self, Origin, connection_number};
use crate::spool::{Encoder, Record};
use crate::table::{self, value};
use crate::{ConnectionNumber, StoreError, hops, layout, read_report, segment, traffic};
use slowpath_model::{ConnectionId, Coverage, Micros, Owner, ProblemInterval, WallMicros};
use slowpath_table::{Column, Reader, Settings, Statistics, Value};
use std::fs::File;
use std::io;
use std::path::Path;

/// A table of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogTable {
    /// Intervals with problems.
    Intervals,
    /// The problems in them.
    Problems,
    /// Connections, by their summaries.
    Connections,
    /// What was looked at.
    Coverage,
    /// Listeners' intervals.
    Listeners,
    /// Interactions.
    Interactions,
    /// What connections carried.
    Traffic,
    /// Routers on connections' paths.
    Hops,
}

impl LogTable {
    /// All of them.
    pub const ALL: [LogTable; 8] = [
        LogTable::Intervals,
        LogTable::Problems,
        LogTable::Connections,
        LogTable::Coverage,
        LogTable::Listeners,
        LogTable::Interactions,
        LogTable::Traffic,
        LogTable::Hops,
    ];

    /// The beginning of its files' names.
    pub fn name(self) -> &'static str {
        match self {
            LogTable::Intervals => layout::INTERVALS,
            LogTable::Problems => layout::PROBLEMS,
            LogTable::Connections => layout::CONNECTIONS,
            LogTable::Coverage => layout::COVERAGE,
            LogTable::Listeners => layout::LISTENERS,
            LogTable::Interactions => layout::INTERACTIONS,
            LogTable::Traffic => layout::TRAFFIC,
            LogTable::Hops => layout::HOPS,
        }
    }

    /// Its columns as files store them; the host has statistics, too, by which a reader finds the
    /// row groups of one.
    pub fn columns(self) -> Vec<Column> {
        let stored = schema::columns(self.name()).iter();
        let stored = stored.map(|column| table::stored(self.name(), column));
        let with_host = stored.map(|mut column| {
            if column.name == "host" {
                column.statistics = Statistics::Groups;
            }
            column
        });
        with_host.collect()
    }

    /// Whether its rows name their connection's owner.
    pub fn names_owner(self) -> bool {
        self == LogTable::Connections
    }
}

/// A row of a table, made of one record.
#[derive(Clone, Copy, Debug)]
pub struct LogRow<'a> {
    /// The table.
    pub table: LogTable,
    cells: &'a [CellValue],
}

impl<'a> LogRow<'a> {
    /// The row's values, in the order of [`LogTable::columns`].
    pub fn values(self) -> impl Iterator<Item = Value<'a>> {
        let columns = schema::columns(self.table.name()).iter();
        // Past its end a row is null.
        let cells = self.cells.iter().chain(std::iter::repeat(&CellValue::Null));
        columns.zip(cells).map(|(c, cell)| value(c.kind, cell))
    }
}

/// Makes rows of records; keeps its scratch space.
#[derive(Debug)]
pub struct RowMaker {
    row: Vec<CellValue>,
    head: usize,
}

impl RowMaker {
    /// Rows of one segment of a host.
    pub fn new(segment: &str, host: &str) -> Self {
        let origin = Origin {
            segment: segment.to_owned(),
            host: host.to_owned(),
        };
        let row = origin.row();
        RowMaker {
            head: row.len(),
            row,
        }
    }

    /// Gives the rows of a record to `each`: of an interval one and those of its problems.
    /// `number` is the interval's within its segment; any that is no other one's.
    pub fn each(&mut self, number: u64, record: &Record, mut each: impl FnMut(LogRow<'_>)) {
        self.row.truncate(self.head);
        let table = match record {
            Record::Problem(interval) => {
                return self.interval(number, interval, &mut each);
            }
            Record::Summary(summary) => {
                let id = &summary.connection;
                let connection = connection_number(id);
                schema::put_connection(connection, id, Some(summary), &mut self.row);
                LogTable::Connections
            }
            Record::Coverage(coverage) => {
                self.timed(coverage.end, coverage.duration);
                coverage.put(&mut self.row);
                LogTable::Coverage
            }
            Record::Listener(listener) => {
                self.timed(listener.end, listener.duration);
                listener.put(&mut self.row);
                LogTable::Listeners
            }
            Record::Interaction(interaction) => {
                self.timed(interaction.end, interaction.duration);
                connection_number(&interaction.connection).put(&mut self.row);
                connection_number(&interaction.cause).put(&mut self.row);
                interaction.put(&mut self.row);
                LogTable::Interactions
            }
            Record::Traffic(of) => {
                self.timed(of.end, of.duration);
                connection_number(&of.connection).put(&mut self.row);
                traffic::put(of, &mut self.row);
                LogTable::Traffic
            }
            Record::Hop(of) => {
                self.timed(of.end, of.duration);
                connection_number(&of.connection).put(&mut self.row);
                hops::put(of, &mut self.row);
                LogTable::Hops
            }
        };
        each(LogRow {
            table,
            cells: &self.row,
        });
    }

    fn interval(
        &mut self,
        number: u64,
        interval: &ProblemInterval,
        each: &mut impl FnMut(LogRow<'_>),
    ) {
        let connection = connection_number(&interval.connection);
        schema::put_single_interval(number, connection, interval, &mut self.row);
        each(LogRow {
            table: LogTable::Intervals,
            cells: &self.row,
        });
        for finding in &interval.findings {
            self.row.truncate(self.head);
            schema::put_problem(number, connection, interval, finding, &mut self.row);
            each(LogRow {
                table: LogTable::Problems,
                cells: &self.row,
            });
        }
    }

    fn timed(&mut self, end: WallMicros, duration: Micros) {
        (end - duration).put(&mut self.row);
    }
}

/// When what a record states began and ended.
pub fn span_of(record: &Record) -> (WallMicros, WallMicros) {
    let end = read_report::end_of(record);
    let start = match record {
        Record::Problem(interval) => end - interval.duration,
        Record::Summary(summary) => summary.first_observed,
        Record::Coverage(coverage) => end - coverage.duration,
        Record::Listener(listener) => end - listener.duration,
        Record::Interaction(interaction) => end - interaction.duration,
        Record::Traffic(traffic) => end - traffic.duration,
        Record::Hop(hop) => end - hop.duration,
    };
    (start, end)
}

/// The connection that a record is of.
pub fn connection_of(record: &Record) -> Option<ConnectionNumber> {
    let id: &ConnectionId = match record {
        Record::Problem(interval) => &interval.connection,
        Record::Summary(summary) => &summary.connection,
        Record::Interaction(interaction) => &interaction.connection,
        Record::Traffic(traffic) => &traffic.connection,
        Record::Hop(hop) => &hop.connection,
        Record::Coverage(_) | Record::Listener(_) => return None,
    };
    Some(id.into())
}

/// Joins a coverage record with the one after it, where it goes on and states no more than time
/// and polls, as in Parquet files of the log; false where it does not.
pub fn join_coverage(before: &mut Coverage, next: &Coverage) -> bool {
    let joins = segment::continues(before, next);
    if joins {
        segment::join(before, next);
    }
    joins
}

/// Appends a record as it stands in the spool of a host.
pub fn encode_record(record: &Record, boot_id: u128, out: &mut Vec<u8>) {
    let mut encoder = Encoder::new(boot_id);
    match record {
        Record::Problem(interval) => encoder.problem(interval, out),
        Record::Summary(summary) => encoder.summary(summary, out),
        Record::Coverage(coverage) => encoder.coverage(coverage, out),
        Record::Listener(listener) => encoder.listener(listener, out),
        Record::Interaction(interaction) => encoder.interaction(interaction, out),
        Record::Traffic(traffic) => encoder.traffic(traffic, out),
        Record::Hop(hop) => encoder.hop(hop, out),
    }
}

/// How a file is written: the log's metadata of a file of this table whose rows span these times,
/// and `more`.
pub fn settings(
    table: &str,
    span: (WallMicros, WallMicros),
    more: &[(&str, String)],
    zstd_level: i32,
) -> Settings {
    let mut settings = table::settings_of(table, span);
    let more = more.iter();
    let more = more.map(|(key, value)| ((*key).to_owned(), value.clone()));
    settings.metadata.extend(more);
    settings.zstd_level = zstd_level;
    settings
}

/// Rows that are encoded at once.
pub const SLICE: usize = table::SLICE;

/// A file with the log's metadata, opened for reading; its end is checked.
#[derive(Debug)]
pub struct OpenFile {
    reader: Reader,
    bytes: File,
    body: Option<Body>,
    span: (WallMicros, WallMicros),
}

impl OpenFile {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be read, is damaged, or is of a newer schema version.
    pub fn open(path: &Path) -> Result<OpenFile, StoreError> {
        let table = table::open(path)?;
        let span = table.span();
        let (reader, bytes, body) = table.into_parts();
        Ok(OpenFile {
            reader,
            bytes,
            body,
            span,
        })
    }

    /// Its metadata, and rows, which are to be read after [`OpenFile::check`].
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Its bytes.
    pub fn bytes(&self) -> &File {
        &self.bytes
    }

    /// Earliest beginning and latest end among the rows; everything, where not stated.
    pub fn span(&self) -> (WallMicros, WallMicros) {
        self.span
    }

    /// Checks all of it, if it has checksums.
    ///
    /// # Errors
    /// It cannot be read, or ([`io::ErrorKind::InvalidData`]) it is damaged.
    pub fn check(&self) -> io::Result<()> {
        self.body.map_or(Ok(()), |body| body.check(&self.bytes))
    }
}

/// Puts the log's checksums into a file that was written whole. One that begins with the row groups
/// of `old`, copied as bytes, has their checksum taken over: what was damaged stays known as damaged.
///
/// # Errors
/// The file cannot be read or written.
pub fn seal(file: &File, old: Option<&OpenFile>) -> io::Result<()> {
    checksum::seal_after(file, old.and_then(|old| old.body))
}

/// What owns a connection, as far as rows of other tables repeat it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerNames {
    /// The application, as the user's rules name it.
    pub application: Option<String>,
    /// Its systemd unit.
    pub unit: Option<String>,
    /// Its container's id.
    pub container: Option<String>,
    /// Its pod's uid.
    pub pod: Option<String>,
}

impl OwnerNames {
    /// The columns' names, in the order of the fields.
    pub const COLUMNS: [&'static str; 4] = ["application", "unit", "container", "pod"];
}

impl From<&Owner> for OwnerNames {
    fn from(owner: &Owner) -> Self {
        let text = |text: Option<&str>| text.map(str::to_owned);
        OwnerNames {
            application: text(owner.application.as_deref()),
            unit: text(owner.unit().map(AsRef::as_ref)),
            container: text(owner.container().map(|c| c.id.as_ref())),
            pod: text(owner.pod().map(AsRef::as_ref)),
        }
    }
}

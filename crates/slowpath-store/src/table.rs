// SPDX-License-Identifier: Apache-2.0
//! Tables of cells to and from Parquet files.

use crate::cells::CellValue;
use crate::checksum::{self, Body};
use crate::column::{Column, Kind, round};
use crate::layout::{CONNECTIONS, COVERAGE, INTERVALS, PROBLEMS, TRAFFIC};
use crate::schema::is_measured;
use crate::stop::Stop;
use crate::{SCHEMA_VERSION, StoreError};
use slowpath_model::{Problem, ProblemSet, WallMicros};
use slowpath_table::{
    self as file, Encoding, ParquetError, Reader, Settings, Statistics, Value, encode,
};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Key of the segment in a file's metadata, and of the schema version.
const KEY_SEGMENT: &str = "slowpath.segment";
const KEY_SCHEMA: &str = "slowpath.schema_version";
/// Keys of the earliest beginning and the latest end among a file's rows, microseconds
/// since 1970.
const KEY_FROM: &str = "slowpath.from";
const KEY_TO: &str = "slowpath.to";
/// Key of the problems that the rules of this version look for in connections, by name.
const KEY_LOOKED_FOR: &str = "slowpath.looked_for";
/// Key of what is missing from a file's segment, in words; absent where nothing is.
const KEY_MISSING: &str = "slowpath.missing";
/// zstd level; what higher ones cost and gain is in `docs/decisions/0034-log-schema-2.md`.
const ZSTD_LEVEL: i32 = 12;

/// What a file's metadata states of its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Provenance {
    pub table: &'static str,
    pub segment: String,
    pub host: String,
    pub boot_id: u128,
    /// What is missing from the segment, in words.
    pub missing: Option<String>,
}

fn type_of(kind: Kind) -> file::Kind {
    match kind {
        Kind::Exact | Kind::Rounded(_) => file::Kind::Int64,
        Kind::Time => file::Kind::Timestamp,
        Kind::Flag => file::Kind::Bool,
        Kind::Word(_) | Kind::Text => file::Kind::Text,
        Kind::Problems => file::Kind::TextList,
    }
}

/// A number as the column has it: no counter and no cookie reaches the limit.
fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// A cell as its column has it in a file.
pub(crate) fn value(kind: Kind, cell: &CellValue) -> Value<'_> {
    match (kind, cell) {
        (Kind::Exact, CellValue::Int(n)) => Value::Int(signed(*n)),
        (Kind::Rounded(bits), CellValue::Int(n)) => Value::Int(signed(round(*n, bits))),
        (Kind::Time, CellValue::Int(n)) => Value::Time(n.cast_signed()),
        (Kind::Flag, CellValue::Int(n)) => Value::Bool(*n != 0),
        (Kind::Word(names), CellValue::Int(n)) => {
            let name = usize::try_from(*n).ok().and_then(|n| names.get(n));
            name.map_or(Value::Null, |name| Value::Text(name))
        }
        (Kind::Word(_) | Kind::Text, CellValue::Text(text)) => Value::Text(text),
        (Kind::Problems, CellValue::Int(bits)) => {
            let problems = ProblemSet::from_bits(*bits as u32);
            Value::List(problems.iter().map(Problem::name).collect())
        }
        _ => Value::Null,
    }
}

/// Rows in the making.
pub(crate) struct Rows {
    columns: Vec<Column>,
    rows: file::Rows,
    /// Earliest beginning and latest end among them.
    pub span: (WallMicros, WallMicros),
}

impl Rows {
    /// No rows of a table with these columns.
    pub(crate) fn new(table: &str, columns: Vec<Column>) -> Self {
        let stored = columns.iter().map(|c| stored(table, c)).collect();
        Rows {
            rows: file::Rows::new(stored),
            columns,
            span: (WallMicros(i64::MAX), WallMicros(i64::MIN)),
        }
    }

    /// How many.
    pub(crate) fn count(&self) -> u64 {
        self.rows.count() as u64
    }

    /// Appends a row; cells that it lacks are null.
    pub(crate) fn push(&mut self, row: &[CellValue]) {
        let cells = self.columns.iter().zip(row);
        self.rows.push(cells.map(|(c, cell)| value(c.kind, cell)));
    }

    pub(crate) fn widen(&mut self, from: WallMicros, to: WallMicros) {
        self.span.0 = self.span.0.min(from);
        self.span.1 = self.span.1.max(to);
    }
}

/// How a column is encoded where a dictionary, the default, is not the smallest
/// (measured: `docs/decisions/0005-log.md`).
fn encoding(table: &str, column: &Column) -> Option<Encoding> {
    match (table, column.name) {
        // Runs of equal values, of which zstd makes less than of dictionary positions.
        (INTERVALS | PROBLEMS | TRAFFIC, "start_time" | "end_time" | "duration_us") => {
            Some(Encoding::Plain)
        }
        (PROBLEMS, "time_us") => Some(Encoding::Plain),
        (INTERVALS | PROBLEMS, "interval") => Some(Encoding::Delta),
        // Almost every row has a value of its own.
        (CONNECTIONS, "cookie" | "start_ns" | "first_observed") => Some(Encoding::Delta),
        (CONNECTIONS | TRAFFIC, "connection_id") => Some(Encoding::Plain),
        (CONNECTIONS, _) if is_measured(column) => Some(Encoding::Plain),
        (COVERAGE, "start_time" | "end_time") => Some(Encoding::Delta),
        _ => None,
    }
}

/// Largest dictionary of columns in which each row may have a value of its own. Past it they
/// go on without one: a dictionary is compressed at once, 0.15 s of CPU for 20,000 addresses,
/// and is no smaller than the values themselves (`docs/decisions/0017-polling.md`).
fn dictionary_bytes(table: &str, column: &str) -> Option<usize> {
    match (table, column) {
        (CONNECTIONS, "remote_address" | "local_port" | "remote_port") => Some(32 << 10),
        (INTERVALS | PROBLEMS, "connection_id") => Some(64 << 10),
        _ => None,
    }
}

/// A column as files store it.
pub(crate) fn stored(table: &str, column: &Column) -> file::Column {
    let mut stored = file::Column::new(column.name, type_of(column.kind));
    stored.statistics = match column.kind {
        Kind::Time => Statistics::Groups,
        _ => Statistics::None,
    };
    if let Some(encoding) = encoding(table, column) {
        stored.encoding = encoding;
        stored.page_rows = Some(SLICE);
    } else if let Some(bytes) = dictionary_bytes(table, column.name) {
        stored.encoding = Encoding::Dictionary(Some(bytes));
        stored.page_rows = Some(SLICE);
    }
    stored
}

fn settings(span: (WallMicros, WallMicros), provenance: &Provenance) -> Settings {
    let mut settings = settings_of(provenance.table, span);
    let own = [
        (KEY_SEGMENT, provenance.segment.clone()),
        ("slowpath.host", provenance.host.clone()),
        ("slowpath.boot_id", format!("{:032x}", provenance.boot_id)),
    ];
    let missing = provenance.missing.clone();
    let missing = missing.map(|text| (KEY_MISSING, text));
    let own = own.into_iter().chain(missing);
    let own = own.map(|(key, value)| (key.to_owned(), value));
    settings.metadata.extend(own);
    settings
}

/// Without what is of one segment.
pub(crate) fn settings_of(table: &str, span: (WallMicros, WallMicros)) -> Settings {
    let producer = format!("slowpath {}", env!("CARGO_PKG_VERSION"));
    let pairs = [
        (KEY_SCHEMA, SCHEMA_VERSION.to_string()),
        ("slowpath.producer", producer.clone()),
        ("slowpath.table", table.to_owned()),
        (KEY_LOOKED_FOR, looked_for()),
        (KEY_FROM, span.0.0.to_string()),
        (KEY_TO, span.1.0.to_string()),
        (checksum::KEY, checksum::KIND.to_owned()),
    ];
    let pairs = pairs.into_iter();
    Settings {
        producer,
        metadata: pairs.map(|(key, value)| (key.to_owned(), value)).collect(),
        zstd_level: ZSTD_LEVEL,
        without_page_index: true,
        page_rows: Some(1 << 20),
        page_bytes: Some(8 << 20),
        dictionary_bytes: Some(8 << 20),
    }
}

fn looked_for() -> String {
    let names: Vec<&str> = ProblemSet::of_connections()
        .iter()
        .map(Problem::name)
        .collect();
    names.join(",")
}

/// Rows of a column that are encoded at once, and of a page where there is no dictionary:
/// zstd takes 15 ms for a page of `end`, and took 0.2 s for all of a 16 MiB spool. Pages cost
/// 0.16 % of the intervals' volume.
pub(crate) const SLICE: usize = 4_096;

/// Writes rows to a new file with checksums and flushes it to the disk; `rest` is called between pieces of
/// the work.
///
/// The columns of a row group are encoded one after the other in slices, which makes the
/// same file as all at once.
pub(crate) fn write(
    path: &Path,
    rows: Rows,
    provenance: &Provenance,
    rest: &mut dyn FnMut(),
) -> Result<(), StoreError> {
    let settings = settings(rows.span, provenance);
    let mut new = File::options();
    new.read(true).write(true).create(true).truncate(true);
    let new = new.mode(crate::modes::FILE).open(path);
    let file = new.map_err(StoreError::io("create", path))?;
    let file = encode(file, rows.rows, &settings, SLICE, rest);
    let file = file.map_err(StoreError::parquet("write", path))?;
    checksum::seal(&file).map_err(StoreError::io("write the checksums of", path))?;
    file.sync_all().map_err(StoreError::io("flush", path))
}

/// A file opened for reading, its metadata read and checked.
pub(crate) struct Table {
    file: Reader,
    /// The same file, and what its body must be where it states that.
    bytes: File,
    body: Option<Body>,
    /// Set when no further row is wanted.
    pub stop: Stop,
    /// The schema version that it was written in.
    pub version: u16,
}

/// Opens a file.
pub(crate) fn open(path: &Path) -> Result<Table, StoreError> {
    let unreadable = |reason: &str| StoreError::Unreadable {
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    let bytes = File::open(path).map_err(StoreError::io("open", path))?;
    let body = checksum::check_end(&bytes).map_err(StoreError::io("read", path))?;
    let file = bytes.try_clone().map_err(StoreError::io("open", path))?;
    let file = Reader::new(file).map_err(StoreError::parquet("read", path))?;
    if body.is_none() && file.metadata(checksum::KEY).is_some() {
        return Err(unreadable("it is damaged, it lacks its checksums"));
    }
    let version: u16 = file
        .metadata(KEY_SCHEMA)
        .and_then(|v| v.parse().ok())
        .ok_or_else(|| unreadable("it carries no schema version of slowpath"))?;
    if version > SCHEMA_VERSION {
        return Err(unreadable(&format!(
            "it has schema version {version}, this slowpath reads up to {SCHEMA_VERSION}; read \
             it with the slowpath that wrote it"
        )));
    }
    Ok(Table {
        file,
        bytes,
        body,
        stop: Stop::default(),
        version,
    })
}

impl Table {
    /// Earliest beginning and latest end among the rows; everything, where not stated.
    pub(crate) fn span(&self) -> (WallMicros, WallMicros) {
        let time = |key| self.file.metadata(key).and_then(|v| v.parse().ok());
        (
            WallMicros(time(KEY_FROM).unwrap_or(i64::MIN)),
            WallMicros(time(KEY_TO).unwrap_or(i64::MAX)),
        )
    }

    /// Its reader, the file itself, and what its body must be.
    pub(crate) fn into_parts(self) -> (Reader, File, Option<Body>) {
        (self.file, self.bytes, self.body)
    }

    /// Problems of connections that the rules of the file's version do not look for.
    pub(crate) fn not_looked_for(&self) -> ProblemSet {
        let names = self.file.metadata(KEY_LOOKED_FOR).unwrap_or("");
        let looked_for: ProblemSet = names.split(',').filter_map(Problem::from_name).collect();
        ProblemSet::of_connections()
            .iter()
            .filter(|p| !looked_for.contains(*p))
            .collect()
    }

    /// What is missing from the file's segment, in words.
    pub(crate) fn missing(&self) -> Option<&str> {
        self.file.metadata(KEY_MISSING)
    }

    /// Whether its rows are checked before the first is given.
    pub(crate) fn has_checksums(&self) -> bool {
        self.body.is_some()
    }

    /// The segment that the file is of, as it states.
    pub(crate) fn segment(&self) -> Option<&str> {
        self.file.metadata(KEY_SEGMENT)
    }

    /// Gives every row to `each`, with the columns asked for; a column that the file lacks
    /// is null. Of a file whose checksum is wrong it gives none.
    pub(crate) fn rows(
        self,
        path: &Path,
        columns: &[Column],
        mut each: impl FnMut(&mut [CellValue]),
    ) -> Result<(), StoreError> {
        self.rows_if(
            path,
            (columns, columns.len()),
            |_| Some(()),
            |(), cells| each(cells),
        )
    }

    /// The same, where the first `head` cells of a row decide whether the others are wanted:
    /// those for which `wanted` gives something reach `each`, with it.
    pub(crate) fn rows_if<T>(
        self,
        path: &Path,
        (columns, head): (&[Column], usize),
        mut wanted: impl FnMut(&[CellValue]) -> Option<T>,
        mut each: impl FnMut(T, &mut [CellValue]),
    ) -> Result<(), StoreError> {
        if let Some(body) = self.body {
            body.check(&self.bytes)
                .map_err(StoreError::io("read", path))?;
        }
        let names: Vec<&str> = columns.iter().map(|c| c.name_in(self.version)).collect();
        let mut cells = Vec::with_capacity(columns.len());
        let mut read = || -> Result<(), ParquetError> {
            let mut rows = self.file.rows(&names)?;
            while !self.stop.is_set() && rows.advance()? {
                cells.clear();
                for (place, column) in columns.iter().enumerate().take(head) {
                    cells.push(cell(column.kind, rows.value(place)?));
                }
                let Some(found) = wanted(&cells) else {
                    continue;
                };
                for (place, column) in columns.iter().enumerate().skip(head) {
                    cells.push(cell(column.kind, rows.value(place)?));
                }
                each(found, &mut cells);
            }
            Ok(())
        };
        read().map_err(StoreError::parquet("read", path))
    }
}

/// A value of a column; null too if the file has it in another type than expected.
fn cell(kind: Kind, value: Value<'_>) -> CellValue {
    match (kind, value) {
        (Kind::Exact | Kind::Rounded(_), Value::Int(n)) | (Kind::Time, Value::Time(n)) => {
            CellValue::Int(n.cast_unsigned())
        }
        (Kind::Flag, Value::Bool(flag)) => CellValue::Int(u64::from(flag)),
        (Kind::Word(names), Value::Text(text)) => {
            let number = names.iter().position(|name| *name == text);
            number.map_or(CellValue::Null, |number| CellValue::Int(number as u64))
        }
        (Kind::Text, Value::Text(text)) => CellValue::Text(text.to_owned()),
        // A number in version 1.
        (Kind::Problems, Value::Int(bits)) => CellValue::Int(bits.cast_unsigned()),
        (Kind::Problems, Value::List(names)) => {
            let set: ProblemSet = names.into_iter().filter_map(Problem::from_name).collect();
            CellValue::Int(set.bits().into())
        }
        _ => CellValue::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::{flag, number, text, time};

    /// 20,000 rows are five slices of each column, which then are one chunk with the same
    /// pages as if the library had been given all rows at once.
    #[test]
    fn columns_in_slices_make_the_same_file_as_all_rows_at_once() {
        let columns = vec![
            time("end_time", ""),
            text("segment", ""),
            number("writes", "").rounded(5),
            flag("closed", ""),
        ];
        let rows = || {
            let mut rows = Rows::new(INTERVALS, columns.clone());
            for i in 0..20_000_u64 {
                let writes = if i % 7 == 0 {
                    CellValue::Null
                } else {
                    CellValue::Int(i * i)
                };
                let text = CellValue::Text(format!("{}", i % 300));
                rows.push(&[CellValue::Int(i / 3), text, writes, CellValue::Int(i % 2)]);
                rows.widen(WallMicros(i as i64), WallMicros(i as i64));
            }
            rows
        };
        let provenance = Provenance {
            table: INTERVALS,
            segment: "one".to_owned(),
            host: "here".to_owned(),
            boot_id: 1,
            missing: None,
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sliced");
        let mut rests = 0;
        write(&path, rows(), &provenance, &mut || rests += 1).unwrap();
        assert_eq!(rests, 4 * (5 + 1), "after each slice and chunk");

        let whole = rows();
        let settings = settings(whole.span, &provenance);
        let at_once = dir.path().join("whole");
        let mut new = File::options();
        new.read(true).write(true).create_new(true);
        let file = new.open(&at_once).unwrap();
        let file = encode(file, whole.rows, &settings, 20_000, &mut || ()).unwrap();
        checksum::seal(&file).unwrap();
        assert!(std::fs::read(&path).unwrap() == std::fs::read(&at_once).unwrap());
    }
}

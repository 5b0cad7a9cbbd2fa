// SPDX-License-Identifier: Apache-2.0
//! Result tables as Parquet files, and as CSV where that is wanted: columns of integers and of text, NULL for what is not known.
//!
//! The same rows give the same file, byte for byte.

use slowpath_files::OutputFile;
use slowpath_table::{Column, Kind, ParquetError, Settings, Writer};
use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The version of the columns and their meaning. Any change but a new column at the end raises it.
pub const SCHEMA_VERSION: u16 = 1;
/// Results are written once and read many times, but a run should not wait for them.
const ZSTD_LEVEL: i32 = 3;

/// Why a table could not be written.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file or directory cannot be created.
    #[error("cannot create {path}: {error}")]
    Create {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The rows cannot be encoded or written.
    #[error("cannot write {path}: {error}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: ParquetError,
    },
}

/// Metadata of every file.
#[derive(Clone, Copy, Debug)]
pub struct Metadata<'a> {
    /// The kind of results (`sim`, `queues`): begins the tables' names.
    pub family: &'a str,
    /// The scenario file's name.
    pub name: &'a str,
    /// The scenario's text, as it was run.
    pub text: &'a str,
    /// The seed.
    pub seed: u64,
    /// Picoseconds of the warm-up; 0: none, and no metadata of it.
    pub warm_up_ps: u64,
    /// Each table also as CSV.
    pub csv: bool,
}

/// A value of a row.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// Not known.
    Null,
    /// A number, below 2^63.
    Int(u64),
    /// Text.
    Text(&'a str),
}

impl From<Option<u64>> for Value<'_> {
    fn from(value: Option<u64>) -> Self {
        value.map_or(Value::Null, Value::Int)
    }
}

impl<'a> From<Value<'a>> for slowpath_table::Value<'a> {
    fn from(value: Value<'a>) -> Self {
        match value {
            Value::Null => slowpath_table::Value::Null,
            Value::Int(number) => slowpath_table::Value::Int(number.cast_signed()),
            Value::Text(text) => slowpath_table::Value::Text(text),
        }
    }
}

/// The columns of a table: name, and whether it holds numbers ([`NUMBER`], [`TEXT`]).
pub type Columns = &'static [(&'static str, bool)];
/// A column of numbers.
pub const NUMBER: bool = true;
/// A column of text.
pub const TEXT: bool = false;

/// A table being written.
#[derive(Debug)]
pub struct Table {
    rows: TableFiles,
}

impl Table {
    /// Writes `table`.parquet into `directory` with the rows that `fill` adds.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn create(
        directory: &Path,
        table: &str,
        columns: Columns,
        metadata: Metadata<'_>,
        fill: impl FnOnce(&mut Table) -> Result<(), ParquetError>,
    ) -> Result<(), TableError> {
        let column = |&(name, is_number): &(&str, bool)| {
            Column::new(name, if is_number { Kind::Int64 } else { Kind::Text })
        };
        let columns = columns.iter().map(column).collect();
        TableFiles::create(directory, [table, table], columns, metadata, |rows| {
            let mut table = Table { rows };
            fill(&mut table)?;
            Ok(table.rows)
        })
    }

    /// Adds a row, its values in the order of the columns.
    ///
    /// # Errors
    /// Rows cannot be encoded or written.
    pub fn row<const N: usize>(&mut self, values: [Value<'_>; N]) -> Result<(), ParquetError> {
        self.rows.row(values.map(Into::into))
    }
}

/// A table's Parquet file, and its CSV where that is wanted.
#[derive(Debug)]
pub(crate) struct TableFiles {
    parquet: Writer,
    csv: Option<csv::Writer<File>>,
}

impl TableFiles {
    /// Writes a table of that file name and that name in its metadata.
    pub fn create(
        directory: &Path,
        [name, kind]: [&str; 2],
        columns: Vec<Column>,
        metadata: Metadata<'_>,
        fill: impl FnOnce(TableFiles) -> Result<TableFiles, ParquetError>,
    ) -> Result<(), TableError> {
        let path = directory.join(format!("{name}.parquet"));
        let (handle, file) = created(&path)?;
        let beside = directory.join(format!("{name}.csv"));
        let beside = metadata.csv.then(|| created(&beside)).transpose()?;
        let (csv, csv_file) = beside.map_or((None, None), |(handle, file)| {
            (Some(csv::Writer::from_writer(handle)), Some(file))
        });
        let encode = || -> Result<(), ParquetError> {
            let mut csv = csv;
            if let Some(csv) = &mut csv {
                let names = columns.iter().map(|column| column.name.as_str());
                csv.write_record(names).map_err(io::Error::from)?;
            }
            let parquet = Writer::new(handle, columns, &settings(kind, metadata))?;
            let rows = fill(TableFiles { parquet, csv })?;
            rows.parquet.close()?;
            if let (Some(mut csv), Some(file)) = (rows.csv, csv_file) {
                csv.flush()?;
                file.commit()?;
            }
            Ok(file.commit()?)
        };
        encode().map_err(|error| TableError::Write { path, error })
    }

    /// Adds a row, its values in the order of the columns.
    pub fn row<'v>(
        &mut self,
        values: impl IntoIterator<Item = slowpath_table::Value<'v>>,
    ) -> Result<(), ParquetError> {
        let Some(csv) = &mut self.csv else {
            return self.parquet.row(values);
        };
        let values: Vec<_> = values.into_iter().collect();
        for value in &values {
            csv.write_field(&*field(value)).map_err(io::Error::from)?;
        }
        csv.write_record(None::<&[u8]>).map_err(io::Error::from)?;
        self.parquet.row(values)
    }
}

/// A value in CSV; what is not known is empty.
fn field<'v>(value: &slowpath_table::Value<'v>) -> Cow<'v, str> {
    match value {
        slowpath_table::Value::Null => Cow::Borrowed(""),
        slowpath_table::Value::Int(number) | slowpath_table::Value::Time(number) => {
            number.to_string().into()
        }
        slowpath_table::Value::UInt(number) => number.to_string().into(),
        slowpath_table::Value::Bool(value) => value.to_string().into(),
        slowpath_table::Value::Text(text) => Cow::Borrowed(text),
        slowpath_table::Value::List(texts) => texts.join(";").into(),
    }
}

/// A file that replaces another one when it is whole, and a handle to write into it.
fn created(path: &Path) -> Result<(File, OutputFile), TableError> {
    let created = OutputFile::create(path).and_then(|file| Ok((file.handle()?, file)));
    created.map_err(|error| TableError::Create {
        path: path.to_owned(),
        error,
    })
}

/// The key of a table's metadata: picoseconds of the warm-up, where there is one.
pub(crate) const WARM_UP: &str = "slowpath.warm_up_ps";

fn settings(table: &str, metadata: Metadata<'_>) -> Settings {
    let producer = format!("slowpath {}", env!("CARGO_PKG_VERSION"));
    let pairs = [
        ("slowpath.schema_version", SCHEMA_VERSION.to_string()),
        ("slowpath.producer", producer.clone()),
        ("slowpath.table", format!("{}.{table}", metadata.family)),
        ("slowpath.scenario_name", metadata.name.to_owned()),
        ("slowpath.scenario", metadata.text.to_owned()),
        ("slowpath.seed", metadata.seed.to_string()),
    ];
    let warm_up = (WARM_UP, metadata.warm_up_ps.to_string());
    let warm_up = Some(warm_up).filter(|_| metadata.warm_up_ps > 0);
    let pairs = pairs.into_iter().chain(warm_up);
    Settings {
        producer,
        metadata: pairs.map(|(key, value)| (key.to_owned(), value)).collect(),
        zstd_level: ZSTD_LEVEL,
        ..Settings::default()
    }
}

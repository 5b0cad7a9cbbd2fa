// SPDX-License-Identifier: Apache-2.0
//! Result tables as Parquet files: columns of integers and of text, NULL for what is not known.
//!
//! The same rows give the same file, byte for byte.

use slowpath_files::OutputFile;
use slowpath_table::{Column, Kind, ParquetError, Settings, Writer};
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
    writer: Writer,
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
        let path = directory.join(format!("{table}.parquet"));
        let created = OutputFile::create(&path).and_then(|file| Ok((file.handle()?, file)));
        let (handle, file) = created.map_err(|error| TableError::Create {
            path: path.clone(),
            error,
        })?;
        let column = |&(name, is_number): &(&str, bool)| {
            Column::new(name, if is_number { Kind::Int64 } else { Kind::Text })
        };
        let columns = columns.iter().map(column).collect();
        let encode = || -> Result<(), ParquetError> {
            let writer = Writer::new(handle, columns, &settings(table, metadata))?;
            let mut table = Table { writer };
            fill(&mut table)?;
            table.writer.close()?;
            Ok(file.commit()?)
        };
        encode().map_err(|error| TableError::Write { path, error })
    }

    /// Adds a row, its values in the order of the columns.
    ///
    /// # Errors
    /// Rows cannot be encoded or written.
    pub fn row<const N: usize>(&mut self, values: [Value<'_>; N]) -> Result<(), ParquetError> {
        self.writer.row(values.map(Into::into))
    }
}

pub(crate) fn settings(table: &str, metadata: Metadata<'_>) -> Settings {
    let producer = format!("slowpath {}", env!("CARGO_PKG_VERSION"));
    let pairs = [
        ("slowpath.schema_version", SCHEMA_VERSION.to_string()),
        ("slowpath.producer", producer.clone()),
        ("slowpath.table", format!("{}.{table}", metadata.family)),
        ("slowpath.scenario_name", metadata.name.to_owned()),
        ("slowpath.scenario", metadata.text.to_owned()),
        ("slowpath.seed", metadata.seed.to_string()),
    ];
    Settings {
        producer,
        metadata: pairs.map(|(key, value)| (key.to_owned(), value)).to_vec(),
        zstd_level: ZSTD_LEVEL,
        ..Settings::default()
    }
}

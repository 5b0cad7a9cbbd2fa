// SPDX-License-Identifier: Apache-2.0
//! Result tables as Parquet files: columns of integers and of text, NULL for what is not known.
//!
//! The same rows give the same file, byte for byte.

use arrow_array::builder::{Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The version of the columns and their meaning. Any change but a new column at the end raises it.
pub const SCHEMA_VERSION: u16 = 1;
/// Rows that are held in memory until they are encoded.
const BATCH: usize = 1 << 16;
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

/// A column of rows that are not encoded yet.
#[derive(Debug)]
enum Column {
    Int(Int64Builder),
    Text(StringBuilder),
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
    writer: ArrowWriter<File>,
    schema: Arc<Schema>,
    columns: Vec<Column>,
    rows: usize,
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
        let file = File::create(&path).map_err(|error| TableError::Create {
            path: path.clone(),
            error,
        })?;
        let encode = || -> Result<(), ParquetError> {
            let field = |&(name, is_number): &(&str, bool)| {
                let kind = if is_number {
                    DataType::Int64
                } else {
                    DataType::Utf8
                };
                Field::new(name, kind, true)
            };
            let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
            let options = ArrowWriterOptions::new()
                .with_properties(properties(table, metadata)?)
                .with_skip_arrow_metadata(true);
            let new = |&(_, is_number): &(&str, bool)| match is_number {
                true => Column::Int(Int64Builder::new()),
                false => Column::Text(StringBuilder::new()),
            };
            let mut table = Table {
                writer: ArrowWriter::try_new_with_options(file, schema.clone(), options)?,
                schema,
                columns: columns.iter().map(new).collect(),
                rows: 0,
            };
            fill(&mut table)?;
            table.flush()?;
            table.writer.close().map(|_| ())
        };
        encode().map_err(|error| TableError::Write { path, error })
    }

    /// Adds a row, its values in the order of the columns.
    ///
    /// # Errors
    /// Rows cannot be encoded or written.
    pub fn row<const N: usize>(&mut self, values: [Value<'_>; N]) -> Result<(), ParquetError> {
        for (column, value) in self.columns.iter_mut().zip(values) {
            match column {
                Column::Int(builder) => builder.append_option(match value {
                    Value::Int(number) => Some(number.cast_signed()),
                    _ => None,
                }),
                Column::Text(builder) => builder.append_option(match value {
                    Value::Text(text) => Some(text),
                    _ => None,
                }),
            }
        }
        self.rows += 1;
        if self.rows == BATCH {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ParquetError> {
        self.rows = 0;
        let finish = |column: &mut Column| -> ArrayRef {
            match column {
                Column::Int(builder) => Arc::new(builder.finish()),
                Column::Text(builder) => Arc::new(builder.finish()),
            }
        };
        let arrays = self.columns.iter_mut().map(finish).collect();
        let batch = RecordBatch::try_new(self.schema.clone(), arrays)?;
        self.writer.write(&batch)
    }
}

fn properties(table: &str, metadata: Metadata<'_>) -> Result<WriterProperties, ParquetError> {
    let producer = format!("slowpath {}", env!("CARGO_PKG_VERSION"));
    let pairs = [
        ("slowpath.schema_version", SCHEMA_VERSION.to_string()),
        ("slowpath.producer", producer.clone()),
        ("slowpath.table", format!("{}.{table}", metadata.family)),
        ("slowpath.scenario_name", metadata.name.to_owned()),
        ("slowpath.scenario", metadata.text.to_owned()),
        ("slowpath.seed", metadata.seed.to_string()),
    ];
    let pairs = pairs.map(|(key, value)| KeyValue::new(key.to_owned(), value));
    Ok(WriterProperties::builder()
        .set_created_by(producer)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_key_value_metadata(Some(pairs.to_vec()))
        .build())
}

// SPDX-License-Identifier: Apache-2.0
//! Tables of cells to and from Parquet files.

use crate::cells::Cell;
use crate::column::{Column, Kind, round};
use crate::layout::{CONNECTIONS, COVERAGE, INTERVALS, PROBLEMS};
use crate::schema::is_measured;
use crate::{SCHEMA_VERSION, StoreError};
use arrow_array::builder::{
    BooleanBuilder, Int64Builder, ListBuilder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions, compute_leaves};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use slowpath_model::{Problem, ProblemSet, WallMicros};
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Key of the schema version in a file's metadata.
const KEY_SCHEMA: &str = "slowpath.schema_version";
/// Keys of the earliest beginning and the latest end among a file's rows, microseconds
/// since 1970.
const KEY_FROM: &str = "slowpath.from";
const KEY_TO: &str = "slowpath.to";
/// Key of the problems that the rules of this version look for in connections, by name.
const KEY_LOOKED_FOR: &str = "slowpath.looked_for";
/// zstd level; what higher ones cost and gain is in `docs/decisions/0034-log-schema-2.md`.
const ZSTD_LEVEL: i32 = 12;

/// What a file says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct About {
    pub table: &'static str,
    pub segment: String,
    pub host: String,
    pub boot_id: u128,
}

fn arrow_type(kind: Kind) -> DataType {
    match kind {
        Kind::Exact | Kind::Rounded(_) => DataType::Int64,
        Kind::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Kind::Flag => DataType::Boolean,
        Kind::Word(_) | Kind::Text => DataType::Utf8,
        Kind::Problems => DataType::List(Arc::new(Field::new("element", DataType::Utf8, true))),
    }
}

/// A number as the column has it: no counter and no cookie reaches the limit.
fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// A column in the making.
enum Builder {
    Int(Int64Builder),
    Time(TimestampMicrosecondBuilder),
    Flag(BooleanBuilder),
    Text(StringBuilder),
    Problems(ListBuilder<StringBuilder>),
}

impl Builder {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Exact | Kind::Rounded(_) => Builder::Int(Int64Builder::new()),
            Kind::Time => Builder::Time(TimestampMicrosecondBuilder::new().with_timezone("UTC")),
            Kind::Flag => Builder::Flag(BooleanBuilder::new()),
            Kind::Word(_) | Kind::Text => Builder::Text(StringBuilder::new()),
            Kind::Problems => Builder::Problems(
                ListBuilder::new(StringBuilder::new()).with_field(Field::new(
                    "element",
                    DataType::Utf8,
                    true,
                )),
            ),
        }
    }

    fn append(&mut self, kind: Kind, cell: &Cell) {
        let number = match cell {
            Cell::Int(n) => Some(*n),
            _ => None,
        };
        match self {
            Builder::Int(builder) => builder.append_option(number.map(|n| match kind {
                Kind::Rounded(bits) => signed(round(n, bits)),
                _ => signed(n),
            })),
            Builder::Time(builder) => builder.append_option(number.map(u64::cast_signed)),
            Builder::Flag(builder) => builder.append_option(number.map(|n| n != 0)),
            Builder::Text(builder) => builder.append_option(match (cell, kind) {
                (Cell::Text(text), _) => Some(text.as_str()),
                (Cell::Int(n), Kind::Word(names)) => {
                    usize::try_from(*n).ok().and_then(|n| names.get(n).copied())
                }
                _ => None,
            }),
            Builder::Problems(builder) => {
                for problem in ProblemSet::from_bits(number.unwrap_or(0) as u32).iter() {
                    builder.values().append_value(problem.name());
                }
                builder.append(number.is_some());
            }
        }
    }

    fn finish(mut self) -> ArrayRef {
        match &mut self {
            Builder::Int(builder) => Arc::new(builder.finish()),
            Builder::Time(builder) => Arc::new(builder.finish()),
            Builder::Flag(builder) => Arc::new(builder.finish()),
            Builder::Text(builder) => Arc::new(builder.finish()),
            Builder::Problems(builder) => Arc::new(builder.finish()),
        }
    }
}

/// Rows in the making.
pub(crate) struct Rows {
    columns: Vec<Column>,
    builders: Vec<Builder>,
    /// How many.
    pub count: u64,
    /// Earliest beginning and latest end among them.
    pub span: (WallMicros, WallMicros),
}

impl Rows {
    pub(crate) fn new(columns: Vec<Column>) -> Self {
        Rows {
            builders: columns.iter().map(|c| Builder::new(c.kind)).collect(),
            columns,
            count: 0,
            span: (WallMicros(i64::MAX), WallMicros(i64::MIN)),
        }
    }

    /// Appends a row; cells that it lacks are null.
    pub(crate) fn push(&mut self, row: &[Cell]) {
        for (i, (builder, column)) in self.builders.iter_mut().zip(&self.columns).enumerate() {
            builder.append(column.kind, row.get(i).unwrap_or(&Cell::Null));
        }
        self.count += 1;
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
        (INTERVALS | PROBLEMS, "start_time" | "end_time" | "duration_us") => Some(Encoding::PLAIN),
        (PROBLEMS, "time_us") => Some(Encoding::PLAIN),
        (INTERVALS | PROBLEMS, "interval") => Some(Encoding::DELTA_BINARY_PACKED),
        // Almost every row has a value of its own.
        (CONNECTIONS, "cookie" | "start_ns" | "first_observed") => {
            Some(Encoding::DELTA_BINARY_PACKED)
        }
        (CONNECTIONS, "connection_id") => Some(Encoding::PLAIN),
        (CONNECTIONS, _) if is_measured(column) => Some(Encoding::PLAIN),
        (COVERAGE, "start_time" | "end_time") => Some(Encoding::DELTA_BINARY_PACKED),
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

fn properties(
    columns: &[Column],
    span: (WallMicros, WallMicros),
    about: &About,
) -> Result<WriterProperties, ParquetError> {
    let pair = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
    let mut properties = WriterProperties::builder()
        .set_created_by(format!("slowpath {}", env!("CARGO_PKG_VERSION")))
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_dictionary_page_size_limit(8 << 20)
        .set_data_page_row_count_limit(1 << 20)
        .set_data_page_size_limit(8 << 20)
        .set_key_value_metadata(Some(vec![
            pair(KEY_SCHEMA, SCHEMA_VERSION.to_string()),
            pair(
                "slowpath.producer",
                format!("slowpath {}", env!("CARGO_PKG_VERSION")),
            ),
            pair("slowpath.table", about.table.to_owned()),
            pair("slowpath.segment", about.segment.clone()),
            pair("slowpath.host", about.host.clone()),
            pair("slowpath.boot_id", format!("{:032x}", about.boot_id)),
            pair(KEY_LOOKED_FOR, looked_for()),
            pair(KEY_FROM, span.0.0.to_string()),
            pair(KEY_TO, span.1.0.to_string()),
        ]));
    for column in columns {
        let path = ColumnPath::from(column.name);
        if column.kind == Kind::Time {
            properties =
                properties.set_column_statistics_enabled(path.clone(), EnabledStatistics::Chunk);
        }
        if let Some(encoding) = encoding(about.table, column) {
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_data_page_row_count_limit(path.clone(), SLICE)
                .set_column_encoding(path, encoding);
        } else if let Some(bytes) = dictionary_bytes(about.table, column.name) {
            properties = properties
                .set_column_dictionary_page_size_limit(path.clone(), bytes)
                .set_column_data_page_row_count_limit(path, SLICE);
        }
    }
    Ok(properties.build())
}

fn looked_for() -> String {
    let names: Vec<&str> = ProblemSet::of_connections()
        .iter()
        .map(Problem::name)
        .collect();
    names.join(",")
}

/// Rows of a row group; a spool of the usual size has a tenth of them.
const GROUP: usize = 1 << 20;

/// Rows of a column that are encoded at once, and of a page where there is no dictionary:
/// zstd takes 15 ms for a page of `end`, and took 0.2 s for all of a 16 MiB spool. Pages cost
/// 0.16 % of the intervals' volume.
const SLICE: usize = 4_096;

/// Writes rows to a new file and flushes it to the disk; `rest` is called between pieces of
/// the work.
///
/// The columns of a row group are encoded one after the other in slices, which makes the
/// same file as all at once.
pub(crate) fn write(
    path: &Path,
    rows: Rows,
    about: &About,
    rest: &mut dyn FnMut(),
) -> Result<(), StoreError> {
    let Rows {
        columns,
        builders,
        span,
        count,
    } = rows;
    let file = File::create(path).map_err(StoreError::io("create", path))?;
    let encode = || -> Result<File, ParquetError> {
        let fields: Vec<Field> = columns
            .iter()
            .map(|c| Field::new(c.name, arrow_type(c.kind), true))
            .collect();
        let schema = Arc::new(Schema::new(fields));
        let options = ArrowWriterOptions::new()
            .with_properties(properties(&columns, span, about)?)
            .with_skip_arrow_metadata(true);
        let (mut writer, groups) =
            ArrowWriter::try_new_with_options(file, schema.clone(), options)?
                .into_serialized_writer()?;
        let mut arrays = Vec::with_capacity(builders.len());
        for builder in builders {
            arrays.push(builder.finish());
            rest();
        }
        for (number, from) in (0..count as usize).step_by(GROUP).enumerate() {
            let to = (count as usize).min(from + GROUP);
            let mut group = writer.next_row_group()?;
            let encoders = groups.create_column_writers(number)?;
            for ((field, array), mut encoder) in schema.fields().iter().zip(&arrays).zip(encoders) {
                for at in (from..to).step_by(SLICE) {
                    let slice = array.slice(at, SLICE.min(to - at));
                    for leaf in compute_leaves(field, &slice)? {
                        encoder.write(&leaf)?;
                    }
                    rest();
                }
                encoder.close()?.append_to_row_group(&mut group)?;
                rest();
            }
            group.close()?;
        }
        writer.into_inner()
    };
    let file = encode().map_err(StoreError::parquet("write", path))?;
    file.sync_all().map_err(StoreError::io("flush", path))
}

/// A file opened for reading, its metadata read.
pub(crate) struct Table {
    file: File,
    metadata: ArrowReaderMetadata,
    pairs: HashMap<String, String>,
    /// The schema version that it was written in.
    pub version: u16,
}

/// Opens a file.
pub(crate) fn open(path: &Path) -> Result<Table, StoreError> {
    let unreadable = |reason: String| StoreError::Unreadable {
        path: path.to_owned(),
        reason,
    };
    let file = File::open(path).map_err(StoreError::io("open", path))?;
    let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())
        .map_err(StoreError::parquet("read", path))?;
    let pairs: HashMap<String, String> = metadata
        .metadata()
        .file_metadata()
        .key_value_metadata()
        .into_iter()
        .flatten()
        .filter_map(|pair| Some((pair.key.clone(), pair.value.clone()?)))
        .collect();
    let version: u16 = pairs
        .get(KEY_SCHEMA)
        .and_then(|v| v.parse().ok())
        .ok_or_else(|| unreadable("it carries no schema version of slowpath".to_owned()))?;
    if version > SCHEMA_VERSION {
        return Err(unreadable(format!(
            "it has schema version {version}, this slowpath reads up to {SCHEMA_VERSION}; read \
             it with the slowpath that wrote it"
        )));
    }
    Ok(Table {
        file,
        metadata,
        pairs,
        version,
    })
}

impl Table {
    /// Earliest beginning and latest end among the rows; everything, where not stated.
    pub(crate) fn span(&self) -> (WallMicros, WallMicros) {
        let time = |key| self.pairs.get(key).and_then(|v| v.parse().ok());
        (
            WallMicros(time(KEY_FROM).unwrap_or(i64::MIN)),
            WallMicros(time(KEY_TO).unwrap_or(i64::MAX)),
        )
    }

    /// Problems of connections that the rules of the file's version do not look for.
    pub(crate) fn not_looked_for(&self) -> ProblemSet {
        let names = self.pairs.get(KEY_LOOKED_FOR).map_or("", String::as_str);
        let looked_for: ProblemSet = names.split(',').filter_map(Problem::from_name).collect();
        ProblemSet::of_connections()
            .iter()
            .filter(|p| !looked_for.contains(*p))
            .collect()
    }

    /// Gives every row to `each`, with the columns asked for; a column that the file lacks
    /// is null.
    pub(crate) fn rows(
        self,
        path: &Path,
        columns: &[Column],
        mut each: impl FnMut(&mut [Cell]),
    ) -> Result<(), StoreError> {
        let failed = |e| StoreError::parquet("read", path)(e);
        let version = self.version;
        let wanted = ProjectionMask::columns(
            self.metadata.parquet_schema(),
            columns.iter().map(|c| c.name_in(version)),
        );
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(self.file, self.metadata)
            .with_projection(wanted)
            .with_batch_size(4096)
            .build()
            .map_err(failed)?;
        let mut row = Vec::new();
        for batch in reader {
            let batch = batch.map_err(|e| failed(e.into()))?;
            let arrays: Vec<Option<&ArrayRef>> = columns
                .iter()
                .map(|c| batch.column_by_name(c.name_in(version)))
                .collect();
            for i in 0..batch.num_rows() {
                row.clear();
                row.extend(
                    arrays
                        .iter()
                        .zip(columns)
                        .map(|(array, column)| array.map_or(Cell::Null, |a| cell(a, column, i))),
                );
                each(&mut row);
            }
        }
        Ok(())
    }
}

/// One value; null too if the column is of another type than expected.
fn cell(array: &ArrayRef, column: &Column, i: usize) -> Cell {
    if array.is_null(i) {
        return Cell::Null;
    }
    let value = match column.kind {
        Kind::Exact | Kind::Rounded(_) => array
            .as_primitive_opt::<Int64Type>()
            .map(|a| Cell::Int(a.value(i).cast_unsigned())),
        Kind::Time => array
            .as_primitive_opt::<TimestampMicrosecondType>()
            .map(|a| Cell::Int(a.value(i).cast_unsigned())),
        Kind::Flag => array
            .as_boolean_opt()
            .map(|a| Cell::Int(u64::from(a.value(i)))),
        Kind::Word(names) => array.as_string_opt::<i32>().and_then(|a| {
            let n = names.iter().position(|name| *name == a.value(i))?;
            Some(Cell::Int(n as u64))
        }),
        Kind::Text => array
            .as_string_opt::<i32>()
            .map(|a| Cell::Text(a.value(i).to_owned())),
        Kind::Problems => problem_set(array, i),
    };
    value.unwrap_or(Cell::Null)
}

/// A set of problems: a list of names, or a number in version 1.
fn problem_set(array: &ArrayRef, i: usize) -> Option<Cell> {
    if let Some(bits) = array.as_primitive_opt::<Int64Type>() {
        return Some(Cell::Int(bits.value(i).cast_unsigned()));
    }
    let lists = array.as_list_opt::<i32>()?;
    let names = lists.values().as_string_opt::<i32>()?;
    let offsets = lists.value_offsets();
    let set: ProblemSet = (offsets[i]..offsets[i + 1])
        .filter_map(|at| Problem::from_name(names.value(usize::try_from(at).ok()?)))
        .collect();
    Some(Cell::Int(set.bits().into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::{flag, number, text, time};
    use arrow_array::RecordBatch;

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
            let mut rows = Rows::new(columns.clone());
            for i in 0..20_000_u64 {
                let writes = if i % 7 == 0 {
                    Cell::Null
                } else {
                    Cell::Int(i * i)
                };
                let text = Cell::Text(format!("{}", i % 300));
                rows.push(&[Cell::Int(i / 3), text, writes, Cell::Int(i % 2)]);
                rows.widen(WallMicros(i as i64), WallMicros(i as i64));
            }
            rows
        };
        let about = About {
            table: INTERVALS,
            segment: "one".to_owned(),
            host: "here".to_owned(),
            boot_id: 1,
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sliced");
        let mut rests = 0;
        write(&path, rows(), &about, &mut || rests += 1).unwrap();
        assert_eq!(rests, 4 + 4 * (5 + 1), "after each array, slice and chunk");

        let whole = rows();
        let fields: Vec<Field> = columns
            .iter()
            .map(|c| Field::new(c.name, arrow_type(c.kind), true))
            .collect();
        let schema = Arc::new(Schema::new(fields));
        let options = ArrowWriterOptions::new()
            .with_properties(properties(&columns, whole.span, &about).unwrap())
            .with_skip_arrow_metadata(true);
        let mut writer =
            ArrowWriter::try_new_with_options(Vec::new(), schema.clone(), options).unwrap();
        let arrays = whole.builders.into_iter().map(Builder::finish).collect();
        let batch = RecordBatch::try_new(schema, arrays).unwrap();
        writer.write(&batch).unwrap();
        assert!(std::fs::read(&path).unwrap() == writer.into_inner().unwrap());
    }
}

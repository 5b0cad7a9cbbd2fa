// SPDX-License-Identifier: Apache-2.0
//! Parquet files from rows.

use crate::column::{Column, Settings, damaged, schema};
use crate::packed::{NumbersRead, TextsRead};
use crate::rows::{Data, Rows, Value, Values};
use bytes::Bytes;
use parquet::column::page::{CompressedPage, PageWriteSpec, PageWriter};
use parquet::column::writer::{
    ColumnCloseResult, ColumnWriter, ColumnWriterImpl, get_column_writer,
};
use parquet::data_type::DataType;
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Rows of a row group.
const GROUP: usize = 1 << 20;
/// Rows that a [`Writer`] holds until it encodes them.
const BATCH: usize = 1 << 16;

/// Writes rows to a new file, which is left open for the caller to flush; `rest` is called
/// between pieces of the work.
///
/// The columns of a row group are encoded one after the other, `slice` rows at once.
///
/// # Errors
/// A row has no value for a column without nulls, or the rows cannot be encoded or written.
///
/// # Panics
/// If `slice` is 0.
pub fn encode(
    file: File,
    rows: Rows,
    settings: &Settings,
    slice: usize,
    rest: &mut dyn FnMut(),
) -> Result<File> {
    encode_groups(file, rows, settings, (GROUP, slice), rest)
}

/// The same with row groups of a number of rows.
pub(crate) fn encode_groups(
    file: File,
    rows: Rows,
    settings: &Settings,
    (group, slice): (usize, usize),
    rest: &mut dyn FnMut(),
) -> Result<File> {
    rows.check()?;
    let mut output = Output::new(file, &rows.columns, settings)?;
    write_groups(&mut output, rows, (group, slice), rest)?;
    output.file.into_inner()
}

/// Encodes rows as further row groups of a given number of rows; the columns of a row group one after the
/// other, `slice` rows at once.
pub(crate) fn write_groups<W: Write + Send>(
    output: &mut Output<W>,
    rows: Rows,
    (group, slice): (usize, usize),
    rest: &mut dyn FnMut(),
) -> Result<()> {
    let count = rows.count();
    let mut columns: Vec<Source> = rows.values.into_iter().map(Source::new).collect();
    for from in (0..count).step_by(group) {
        let to = count.min(from + group);
        let mut next = output.file.next_row_group()?;
        for (place, column) in columns.iter_mut().enumerate() {
            let descriptor = output.descriptors[place].clone();
            let mut encoder = Encoder::new(descriptor, output.properties.clone());
            for at in (from..to).step_by(slice) {
                encoder.write(column, at..to.min(at + slice))?;
                rest();
            }
            if to == count {
                // The next column's encoder has its place.
                *column = Source::default();
            }
            let (chunk, closed) = encoder.close()?;
            next.append_column(&chunk, closed)?;
            rest();
        }
        next.close()?;
    }
    Ok(())
}

/// Writes a file of rows that come one by one. Memory holds 65,536 rows, and one row group as
/// it is encoded with its texts.
pub struct Writer<W: Write = File> {
    output: Output<W>,
    rows: Rows,
    /// Of the row group that is open, and its rows.
    encoders: Vec<Encoder>,
    encoded: usize,
}

impl<W: Write> fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("columns", &self.rows.columns)
            .field("encoded", &self.encoded)
            .finish_non_exhaustive()
    }
}

impl Writer {
    /// A file with these columns and no rows.
    ///
    /// # Errors
    /// Its beginning cannot be written.
    pub fn new(file: File, columns: Vec<Column>, settings: &Settings) -> Result<Self> {
        Writer::over(file, columns, settings)
    }

    /// Writes what is left and the file's end.
    ///
    /// # Errors
    /// It cannot be encoded or written.
    pub fn close(self) -> Result<()> {
        self.into_output()?.file.close().map(|_| ())
    }
}

impl<W: Write + Send> Writer<W> {
    pub(crate) fn over(file: W, columns: Vec<Column>, settings: &Settings) -> Result<Self> {
        Ok(Writer {
            output: Output::new(file, &columns, settings)?,
            rows: Rows::new(columns),
            encoders: Vec::new(),
            encoded: 0,
        })
    }

    /// Adds a row, as [`Rows::push`] does.
    ///
    /// # Errors
    /// Rows cannot be encoded or written.
    pub fn row<'a>(&mut self, row: impl IntoIterator<Item = Value<'a>>) -> Result<()> {
        self.rows.push(row);
        if self.rows.count() == BATCH {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let count = self.rows.count();
        if count == 0 {
            return Ok(());
        }
        self.rows.check()?;
        if self.encoders.is_empty() {
            let properties = &self.output.properties;
            let descriptors = self.output.descriptors.iter();
            self.encoders = descriptors
                .map(|column| Encoder::new(column.clone(), properties.clone()))
                .collect();
        }
        let empty = Rows::new(self.rows.columns.clone());
        let rows = std::mem::replace(&mut self.rows, empty);
        for (encoder, values) in self.encoders.iter_mut().zip(rows.values) {
            encoder.write(&mut Source::new(values), 0..count)?;
        }
        self.encoded += count;
        if self.encoded >= GROUP {
            self.end_group()?;
        }
        Ok(())
    }

    fn end_group(&mut self) -> Result<()> {
        if self.encoders.is_empty() {
            return Ok(());
        }
        let mut group = self.output.file.next_row_group()?;
        for encoder in self.encoders.drain(..) {
            let (chunk, closed) = encoder.close()?;
            group.append_column(&chunk, closed)?;
        }
        group.close()?;
        self.encoded = 0;
        Ok(())
    }

    /// Writes what is left, and not yet the file's end.
    pub(crate) fn into_output(mut self) -> Result<Output<W>> {
        self.flush()?;
        self.end_group()?;
        Ok(self.output)
    }
}

/// A file being written.
pub(crate) struct Output<W: Write> {
    pub(crate) file: SerializedFileWriter<W>,
    descriptors: Vec<ColumnDescPtr>,
    properties: WriterPropertiesPtr,
}

impl<W: Write + Send> Output<W> {
    pub(crate) fn new(file: W, columns: &[Column], settings: &Settings) -> Result<Self> {
        let properties = settings.properties(columns)?;
        let file = SerializedFileWriter::new(file, schema(columns)?, properties.clone())?;
        Ok(Output {
            descriptors: file.schema_descr().columns().to_vec(),
            file,
            properties,
        })
    }
}

/// The pages of a column chunk, in memory.
type Chunk = Arc<Mutex<TrackedWrite<Vec<u8>>>>;

/// Puts pages into a [`Chunk`].
struct Pages(Chunk);

impl PageWriter for Pages {
    fn write_page(&mut self, page: CompressedPage) -> Result<PageWriteSpec> {
        let mut chunk = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        SerializedPageWriter::new(&mut chunk).write_page(page)
    }

    fn close(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Encodes a column of a row group.
struct Encoder {
    writer: ColumnWriter<'static>,
    chunk: Chunk,
    levels: Vec<i16>,
    repetitions: Vec<i16>,
}

impl Encoder {
    fn new(column: ColumnDescPtr, properties: WriterPropertiesPtr) -> Self {
        let chunk: Chunk = Arc::new(Mutex::new(TrackedWrite::new(Vec::new())));
        Encoder {
            writer: get_column_writer(column, properties, Box::new(Pages(chunk.clone()))),
            chunk,
            levels: Vec::new(),
            repetitions: Vec::new(),
        }
    }

    /// Encodes the next rows of the column.
    fn write(&mut self, column: &mut Source, rows: Range<usize>) -> Result<()> {
        let from = column.taken;
        if let Data::List(lengths, _) = &column.values.data {
            let (lists, count) = self.list_levels(&column.values, &lengths[from..], rows);
            column.taken += lists;
            let texts = column.texts.take(count);
            let levels = (self.levels.as_slice(), Some(self.repetitions.as_slice()));
            return match &mut self.writer {
                ColumnWriter::ByteArrayColumnWriter(writer) => put(writer, &texts, levels),
                _ => Err(not_its_type()),
            };
        }
        let known = column.values.levels(rows, &mut self.levels);
        column.taken += known;
        let taken = from..column.taken;
        let levels = (self.levels.as_slice(), None);
        match (&mut self.writer, &column.values.data) {
            (ColumnWriter::Int32ColumnWriter(writer), Data::Int32(numbers)) => {
                let numbers = column.numbers.take(numbers, known);
                // None was pushed that does not fit.
                let numbers: Vec<i32> = numbers.into_iter().map(|n| n as i32).collect();
                put(writer, &numbers, levels)
            }
            (ColumnWriter::Int64ColumnWriter(writer), Data::Int64(_, numbers)) => {
                put(writer, &column.numbers.take(numbers, known), levels)
            }
            (ColumnWriter::BoolColumnWriter(writer), Data::Bool(flags)) => {
                put(writer, &flags[taken], levels)
            }
            (ColumnWriter::ByteArrayColumnWriter(writer), Data::Text(_)) => {
                put(writer, &column.texts.take(known), levels)
            }
            _ => Err(not_its_type()),
        }
    }

    /// Writes the levels of rows of lists, whose lengths are given; returns how many lists and
    /// how many elements there are.
    fn list_levels(
        &mut self,
        values: &Values,
        lengths: &[u32],
        rows: Range<usize>,
    ) -> (usize, usize) {
        self.levels.clear();
        self.repetitions.clear();
        // Of a list that may be null: it, its repeated group and its element are there.
        let empty = i16::from(values.is_nullable());
        let (mut lists, mut elements) = (0, 0);
        for row in rows {
            self.repetitions.push(0);
            if !values.is_known(row) {
                self.levels.push(0);
                continue;
            }
            let length = lengths[lists] as usize;
            lists += 1;
            elements += length;
            if length == 0 {
                self.levels.push(empty);
                continue;
            }
            self.repetitions.extend((1..length).map(|_| 1));
            self.levels.extend((0..length).map(|_| empty + 2));
        }
        (lists, elements)
    }

    fn close(self) -> Result<(Bytes, ColumnCloseResult)> {
        let closed = self.writer.close()?;
        let mut chunk = self.chunk.lock().unwrap_or_else(PoisonError::into_inner);
        let chunk = std::mem::replace(&mut *chunk, TrackedWrite::new(Vec::new()));
        Ok((chunk.into_inner()?.into(), closed))
    }
}

fn not_its_type() -> ParquetError {
    damaged("a column's writer is not of the column's type")
}

/// Definition levels, and repetition levels of lists.
type Levels<'a> = (&'a [i16], Option<&'a [i16]>);

fn put<T: DataType>(
    writer: &mut ColumnWriterImpl<'_, T>,
    values: &[T::T],
    (levels, repetitions): Levels<'_>,
) -> Result<()> {
    // Only a column without nulls has no levels.
    let levels = (!levels.is_empty()).then_some(levels);
    writer.write_batch(values, levels, repetitions).map(|_| ())
}

/// A column, from which values are taken in the order of the rows.
#[derive(Default)]
struct Source {
    values: Values,
    /// Flags or lists taken.
    taken: usize,
    numbers: NumbersRead,
    texts: TextsRead,
}

impl Source {
    fn new(mut values: Values) -> Self {
        let texts = match &mut values.data {
            Data::Text(texts) | Data::List(_, texts) => texts.read(),
            _ => TextsRead::default(),
        };
        Source {
            values,
            taken: 0,
            numbers: NumbersRead::default(),
            texts,
        }
    }
}

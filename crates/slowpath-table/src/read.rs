// SPDX-License-Identifier: Apache-2.0
//! Rows of Parquet files.

use crate::Value;
use crate::column::{Kind, damaged, kind_of};
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Rows of a column that are decoded at once.
pub const BATCH: usize = 4_096;

/// A row group of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its rows.
    pub rows: u64,
    /// Its bytes, compressed.
    pub bytes: u64,
}

/// A Parquet file opened for reading, its metadata read.
pub struct Reader {
    file: SerializedFileReader<File>,
    metadata: HashMap<String, String>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("metadata", &self.metadata)
            .finish_non_exhaustive()
    }
}

impl Reader {
    /// Reads a file's metadata.
    ///
    /// # Errors
    /// It is no whole Parquet file, or damaged.
    pub fn new(file: File) -> Result<Self> {
        let file = guarded(|| SerializedFileReader::new(file))?;
        let pairs = file.metadata().file_metadata().key_value_metadata();
        let metadata = pairs
            .into_iter()
            .flatten()
            .filter_map(|pair| Some((pair.key.clone(), pair.value.clone()?)))
            .collect();
        Ok(Reader { file, metadata })
    }

    /// A value of the file's metadata.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata.get(key).map(String::as_str)
    }

    /// All of the file's metadata, by key.
    pub fn all_metadata(&self) -> &HashMap<String, String> {
        &self.metadata
    }

    /// The file's row groups, in its order; what is less than nothing counts as nothing.
    pub fn groups(&self) -> Vec<Group> {
        let groups = self.file.metadata().row_groups().iter();
        let groups = groups.map(|group| Group {
            rows: u64::try_from(group.num_rows()).unwrap_or(0),
            bytes: u64::try_from(group.compressed_size()).unwrap_or(0),
        });
        groups.collect()
    }

    /// The names of the file's columns, in its order.
    pub fn columns(&self) -> Vec<&str> {
        let schema = self.file.metadata().file_metadata().schema();
        schema
            .get_fields()
            .iter()
            .map(|field| field.name())
            .collect()
    }

    /// The rows, with the values of these columns. What the file lacks, or has in a type that
    /// is none of [`Kind`], is null.
    ///
    /// # Errors
    /// The file has none of the columns.
    pub fn rows(&self, columns: &[&str]) -> Result<RowReader<'_>> {
        let schema = self.file.metadata().file_metadata().schema_descr();
        let places = columns.iter().map(|name| {
            let of = |column: &parquet::schema::types::ColumnDescPtr| {
                column.path().parts().first().is_some_and(|n| n == name)
            };
            let place = schema.columns().iter().position(of)?;
            Some((place, kind_of(&schema.column(place))?))
        });
        let places: Vec<Option<(usize, Kind)>> = places.collect();
        // Nothing else would bound how many rows there are.
        if places.iter().all(Option::is_none) {
            return Err(damaged("it has none of the columns that are read"));
        }
        Ok(RowReader {
            file: &self.file,
            places,
            columns: Vec::new(),
            group: 0,
            undecoded: 0,
            decoded: 0,
        })
    }
}

/// Goes through the rows of a file.
pub struct RowReader<'a> {
    file: &'a SerializedFileReader<File>,
    /// Where each column is in the file.
    places: Vec<Option<(usize, Kind)>>,
    columns: Vec<Option<Decoder>>,
    /// The next row group.
    group: usize,
    /// Rows of this group that are not decoded yet, and decoded ones that are not read.
    undecoded: usize,
    decoded: usize,
}

impl fmt::Debug for RowReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowReader")
            .field("places", &self.places)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

impl RowReader<'_> {
    /// Goes to the next row, at first to the first; false after the last.
    ///
    /// # Errors
    /// The file is damaged or cannot be read.
    pub fn advance(&mut self) -> Result<bool> {
        while self.decoded == 0 {
            if self.undecoded == 0 && !guarded(|| self.next_group())? {
                return Ok(false);
            }
            let rows = self.undecoded.min(BATCH);
            for column in self.columns.iter_mut().flatten() {
                guarded(|| column.decode(rows))?;
            }
            self.undecoded -= rows;
            self.decoded = rows;
        }
        self.decoded -= 1;
        self.columns.iter_mut().flatten().for_each(Decoder::advance);
        Ok(true)
    }

    fn next_group(&mut self) -> Result<bool> {
        if self.group == self.file.num_row_groups() {
            return Ok(false);
        }
        let metadata = self.file.metadata().row_group(self.group);
        let rows = usize::try_from(metadata.num_rows());
        self.undecoded = rows.map_err(|_| damaged("a row group has less than no rows"))?;
        let group = self.file.get_row_group(self.group)?;
        self.columns.clear();
        for place in &self.places {
            self.columns.push(match place {
                Some((place, kind)) => {
                    checked(metadata, *place)?;
                    let defined = metadata.column(*place).column_descr().max_def_level();
                    let pages = Pages {
                        pages: group.get_column_page_reader(*place)?,
                        has_dictionary: false,
                    };
                    let column = metadata.column(*place).column_descr_ptr();
                    let reader = get_column_reader(column, Box::new(pages));
                    Decoder::new(reader, *kind, defined)
                }
                None => None,
            });
        }
        self.group += 1;
        Ok(true)
    }

    /// The value of a column, in the order asked for, in the present row.
    ///
    /// # Errors
    /// A text is not UTF-8.
    pub fn value(&self, column: usize) -> Result<Value<'_>> {
        match self.columns.get(column) {
            Some(Some(column)) => column.value(),
            _ => Ok(Value::Null),
        }
    }
}

/// Makes an error of a panic: parquet's decoders take much of a file for granted.
fn guarded<T>(decode: impl FnOnce() -> Result<T>) -> Result<T> {
    // After an error nothing that was decoded is used.
    catch_unwind(AssertUnwindSafe(decode))
        .unwrap_or_else(|_| Err(damaged("it cannot be decoded, it is damaged")))
}

/// Checks what parquet takes for granted of a column's place in the file.
fn checked(group: &RowGroupMetaData, place: usize) -> Result<()> {
    let lies_in_a_file = |chunk: &ColumnChunkMetaData| {
        let start = chunk
            .dictionary_page_offset()
            .unwrap_or_else(|| chunk.data_page_offset());
        start >= 0 && chunk.compressed_size() >= 0
    };
    if group.columns().get(place).is_some_and(lies_in_a_file) {
        return Ok(());
    }
    Err(damaged("a column lies outside of the file"))
}

/// The pages of a column chunk. A page whose values are positions in a dictionary comes after
/// the dictionary, which parquet's decoder takes for granted.
struct Pages {
    pages: Box<dyn PageReader>,
    has_dictionary: bool,
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        match &page {
            Some(Page::DictionaryPage { .. }) => self.has_dictionary = true,
            Some(page) if is_of_dictionary(page.encoding()) && !self.has_dictionary => {
                return Err(damaged("a column lacks its dictionary"));
            }
            _ => {}
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pages.at_record_boundary()
    }
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

fn is_of_dictionary(encoding: Encoding) -> bool {
    matches!(
        encoding,
        Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY
    )
}

/// Decodes a column of a row group.
struct Decoder {
    kind: Kind,
    /// The definition level of a value; 0 where nulls are not allowed.
    defined: i16,
    source: Source,
    levels: Vec<i16>,
    repetitions: Vec<i16>,
    /// Levels of the present row, and its values.
    row: Range<usize>,
    values: Range<usize>,
}

/// A reader and what it decoded.
enum Source {
    Int32(ColumnReaderImpl<Int32Type>, Vec<i32>),
    Int64(ColumnReaderImpl<Int64Type>, Vec<i64>),
    Bool(ColumnReaderImpl<BoolType>, Vec<bool>),
    Text(ColumnReaderImpl<ByteArrayType>, Vec<ByteArray>),
}

impl Decoder {
    fn new(reader: ColumnReader, kind: Kind, defined: i16) -> Option<Self> {
        let source = match reader {
            ColumnReader::Int32ColumnReader(reader) => Source::Int32(reader, Vec::new()),
            ColumnReader::Int64ColumnReader(reader) => Source::Int64(reader, Vec::new()),
            ColumnReader::BoolColumnReader(reader) => Source::Bool(reader, Vec::new()),
            ColumnReader::ByteArrayColumnReader(reader) => Source::Text(reader, Vec::new()),
            _ => return None,
        };
        Some(Decoder {
            kind,
            defined,
            source,
            levels: Vec::new(),
            repetitions: Vec::new(),
            row: 0..0,
            values: 0..0,
        })
    }

    /// Decodes the next rows, all of which must be there.
    fn decode(&mut self, rows: usize) -> Result<()> {
        let levels = (&mut self.levels, &mut self.repetitions);
        match &mut self.source {
            Source::Int32(reader, values) => take(reader, rows, values, levels),
            Source::Int64(reader, values) => take(reader, rows, values, levels),
            Source::Bool(reader, values) => take(reader, rows, values, levels),
            Source::Text(reader, values) => take(reader, rows, values, levels),
        }?;
        (self.row, self.values) = (0..0, 0..0);
        Ok(())
    }

    /// Goes to the next decoded row.
    fn advance(&mut self) {
        let from = self.row.end;
        let mut to = from + 1;
        if self.kind == Kind::TextList {
            while self.repetitions.get(to).is_some_and(|level| *level > 0) {
                to += 1;
            }
        }
        let known = match self.defined {
            0 => 1,
            defined => {
                let levels = self.levels.get(from..to).unwrap_or_default();
                levels.iter().filter(|level| **level == defined).count()
            }
        };
        self.row = from..to;
        self.values = self.values.end..self.values.end + known;
    }

    fn value(&self) -> Result<Value<'_>> {
        let at = self.values.start;
        let level = self.levels.get(self.row.start).copied();
        if self.kind == Kind::TextList {
            // A list that is there but empty has the level below its repeated group's.
            return match level {
                Some(level) if level >= self.defined - 2 => self.list(),
                _ => Ok(Value::Null),
            };
        }
        if self.values.is_empty() {
            return Ok(Value::Null);
        }
        let value = match &self.source {
            Source::Int32(_, numbers) => {
                let number = numbers.get(at).map(|n| u64::from(n.cast_unsigned()));
                number.map(Value::UInt)
            }
            Source::Int64(_, numbers) => numbers.get(at).map(|number| match self.kind {
                Kind::Timestamp => Value::Time(*number),
                Kind::UInt64 => Value::UInt(number.cast_unsigned()),
                _ => Value::Int(*number),
            }),
            Source::Bool(_, flags) => flags.get(at).map(|flag| Value::Bool(*flag)),
            Source::Text(_, texts) => match texts.get(at) {
                Some(text) => Some(Value::Text(text.as_utf8()?)),
                None => None,
            },
        };
        Ok(value.unwrap_or(Value::Null))
    }

    fn list(&self) -> Result<Value<'_>> {
        let Source::Text(_, texts) = &self.source else {
            return Ok(Value::Null);
        };
        let texts = texts.get(self.values.clone()).unwrap_or_default();
        let texts = texts.iter().map(ByteArray::as_utf8);
        texts.collect::<Result<_>>().map(Value::List)
    }
}

fn take<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    values: &mut Vec<T::T>,
    (levels, repetitions): (&mut Vec<i16>, &mut Vec<i16>),
) -> Result<()> {
    values.clear();
    levels.clear();
    repetitions.clear();
    let (read, _, _) = reader.read_records(rows, Some(levels), Some(repetitions), values)?;
    if read != rows {
        return Err(damaged("a column ends before its row group"));
    }
    Ok(())
}

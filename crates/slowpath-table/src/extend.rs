// SPDX-License-Identifier: Apache-2.0
//! Files that get further rows. A file's row groups are copied as bytes and keep their places, so
//! a reader that holds the footer of the file before finds in the new one what it looks for.

use crate::column::{Column, Settings, damaged, schema};
use crate::read::Reader;
use crate::rows::{Rows, Value};
use crate::write::{Output, Writer, write_groups};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{
    FileMetaData, ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::schema::types::SchemaDescriptor;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::ops::Range;

/// Rows of a row group that [`extend`] adds, at most.
const GROUP: usize = 1 << 20;
/// The format's magic, with which every file begins.
pub(crate) const MAGIC: &[u8; 4] = b"PAR1";

/// A file that gets a successor under its name.
#[derive(Clone, Copy, Debug)]
pub struct Old<'f> {
    /// The file.
    pub file: &'f File,
    /// Bytes up to there keep their places too, although its footer does not point to all of them: earlier footers do.
    pub keep: u64,
}

impl<'f> Old<'f> {
    /// One of whose bytes only those that its footer points to are needed.
    pub fn new(file: &'f File) -> Self {
        Old { file, keep: 0 }
    }

    /// Its metadata, and where what is kept of it ends.
    pub(crate) fn kept(&self, columns: &[Column]) -> Result<(ParquetMetaData, u64)> {
        let metadata = metadata_of(self.file)?;
        if !has_columns(&metadata, columns)? {
            return Err(damaged("it has other columns than its new rows"));
        }
        let places = places(metadata.row_groups())?;
        Ok((metadata, end_of(&places).max(self.keep)))
    }
}

/// Writes a new file: the row groups of `old` as they are, then the rows as further ones, then an
/// end with the metadata of `settings`. The new file is left open for the caller to flush.
///
/// # Errors
/// `old` is damaged, has other columns or more than row groups before its end
/// ([`is_extendable`]); a row has no value for a column without nulls; or a file cannot be read
/// or written.
///
/// # Panics
/// If `slice` is 0.
pub fn extend(
    old: Option<Old<'_>>,
    new: File,
    rows: Rows,
    settings: &Settings,
    slice: usize,
) -> Result<File> {
    rows.check()?;
    let columns = rows.columns.clone();
    let (groups, end) = match old {
        Some(old) => {
            let (metadata, end) = old.kept(&columns)?;
            copy(old.file, &new, end)?;
            (metadata.row_groups().to_vec(), end)
        }
        None => {
            (&new).write_all(MAGIC)?;
            (Vec::new(), MAGIC.len() as u64)
        }
    };
    let mut output = Output::new(Tail::new(new), &columns, settings)?;
    write_groups(&mut output, rows, (GROUP, slice), &mut || ())?;
    finish_after(output, groups, end, settings)
}

/// Room that [`join`] leaves behind the old row groups, so that the new ones fit in front of themselves even if they are
/// longer: this part of those, and [`MARGIN`].
const MARGIN_PART: u64 = 8;
/// Bytes of room in any case.
const MARGIN: u64 = 4 << 10;

/// Writes a new file: the bytes of `old` as they are, then all of its rows in as few row groups as they need; the new footer points
/// to these only. Between both is a hole, an eighth of the old row groups. The new file is left open for the caller to flush.
///
/// # Errors
/// As [`extend`].
pub fn join(
    old: Old<'_>,
    reader: &Reader,
    new: File,
    columns: Vec<Column>,
    settings: &Settings,
) -> Result<File> {
    let (metadata, end) = old.kept(&columns)?;
    copy(old.file, &new, end)?;
    let places = places(metadata.row_groups())?;
    let live: u64 = places.iter().map(|place| place.end - place.start).sum();
    let start = end + live / MARGIN_PART + MARGIN;
    (&new).seek(SeekFrom::Start(start))?;
    let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut writer = Writer::over(Tail::new(new), columns, settings)?;
    let mut rows = reader.rows(&names)?;
    while rows.advance()? {
        let values = (0..names.len()).map(|place| rows.value(place));
        let row: Vec<Value<'_>> = values.collect::<Result<_>>()?;
        writer.row(row)?;
    }
    finish_after(writer.into_output()?, Vec::new(), start, settings)
}

/// The end of a file that has `groups` before `end`, and behind it those that were written by a [`Tail`].
fn finish_after(
    mut output: Output<Tail>,
    mut groups: Vec<RowGroupMetaData>,
    end: u64,
    settings: &Settings,
) -> Result<File> {
    output.file.flush()?;
    let shift = end as i64 - MAGIC.len() as i64;
    for group in output.file.flushed_row_groups() {
        groups.push(moved(group, shift, groups.len())?);
    }
    let descriptor = output.file.schema_descr().clone();
    let new = output.file.inner().file.try_clone()?;
    drop(output);
    finish(new, groups, descriptor, settings)
}

/// Writes the footer of a file's row groups.
pub(crate) fn finish(
    new: File,
    groups: Vec<RowGroupMetaData>,
    descriptor: SchemaDescriptor,
    settings: &Settings,
) -> Result<File> {
    let count = groups.iter().map(RowGroupMetaData::num_rows).sum();
    let producer = Some(settings.producer.clone());
    let pairs = settings.pairs();
    let metadata = FileMetaData::new(1, count, producer, pairs, descriptor.into(), None);
    let metadata = ParquetMetaData::new(metadata, groups);
    ParquetMetaDataWriter::new(&new, &metadata).finish()?;
    Ok(new)
}

/// Whether [`extend`] can add rows of these columns to the file.
///
/// # Errors
/// Its metadata cannot be read.
pub fn is_extendable(file: &File, columns: &[Column]) -> Result<bool> {
    let metadata = metadata_of(file)?;
    Ok(has_columns(&metadata, columns)? && places(metadata.row_groups()).is_ok())
}

fn has_columns(metadata: &ParquetMetaData, columns: &[Column]) -> Result<bool> {
    Ok(*metadata.file_metadata().schema() == *schema(columns)?)
}

pub(crate) fn metadata_of(file: &File) -> Result<ParquetMetaData> {
    ParquetMetaDataReader::new().parse_and_finish(file)
}

/// Where each row group lies. Its columns must follow each other, no two groups may overlap, and the metadata may point to
/// nothing else.
pub(crate) fn places(groups: &[RowGroupMetaData]) -> Result<Vec<Range<u64>>> {
    let places: Vec<Range<u64>> = groups.iter().map(place).collect::<Result<_>>()?;
    let mut sorted = places.clone();
    sorted.sort_unstable_by_key(|place| place.start);
    let mut end = MAGIC.len() as u64;
    for place in sorted {
        if place.start < end {
            return Err(damaged("its row groups overlap"));
        }
        end = place.end;
    }
    Ok(places)
}

fn place(group: &RowGroupMetaData) -> Result<Range<u64>> {
    let mut place: Option<Range<u64>> = None;
    for column in group.columns() {
        let has_index = column.column_index_offset().is_some()
            || column.offset_index_offset().is_some()
            || column.bloom_filter_offset().is_some();
        let start = column
            .dictionary_page_offset()
            .unwrap_or_else(|| column.data_page_offset());
        let start = u64::try_from(start).map_err(|_| damaged("a column is before its file"))?;
        let length = u64::try_from(column.compressed_size())
            .map_err(|_| damaged("a column has less than no bytes"))?;
        let whole = place.get_or_insert(start..start);
        if has_index || start != whole.end {
            return Err(damaged("it has more than row groups before its end"));
        }
        whole.end = (start.checked_add(length)).ok_or_else(|| damaged("a column is too long"))?;
    }
    place.ok_or_else(|| damaged("a row group has no columns"))
}

/// Where the last of these ends, or what comes before the first.
pub(crate) fn end_of(places: &[Range<u64>]) -> u64 {
    let ends = places.iter().map(|place| place.end);
    ends.max().unwrap_or(MAGIC.len() as u64)
}

pub(crate) fn copy(old: &File, new: &File, length: u64) -> Result<()> {
    let mut from = old;
    from.seek(SeekFrom::Start(0))?;
    let mut to = new;
    // Within one file system the kernel copies, or shares the blocks.
    let copied = io::copy(&mut from.take(length), &mut to)?;
    if copied == length {
        return Ok(());
    }
    Err(ParquetError::EOF(
        "it ends within its row groups".to_owned(),
    ))
}

/// The same row group, moved on by this number of bytes.
pub(crate) fn moved(group: &RowGroupMetaData, by: i64, ordinal: usize) -> Result<RowGroupMetaData> {
    let start = group.file_offset().map(|at| at + by);
    let mut builder = group.clone().into_builder();
    let columns = builder.take_columns().into_iter().map(|column| {
        let dictionary = column.dictionary_page_offset().map(|at| at + by);
        let data = column.data_page_offset() + by;
        let moved = column.into_builder();
        let moved = moved.set_dictionary_page_offset(dictionary);
        moved.set_data_page_offset(data).build()
    });
    let columns = columns.collect::<Result<_>>()?;
    let ordinal = i32::try_from(ordinal).map_err(|_| damaged("it has too many row groups"))?;
    let builder = builder.set_column_metadata(columns).set_ordinal(ordinal);
    match start {
        Some(start) => builder.set_file_offset(start).build(),
        None => builder.build(),
    }
}

/// The end of a file, to which a writer appends that believes to begin it.
struct Tail {
    file: File,
    /// Bytes of the magic that are still to be left out.
    skip: usize,
}

impl Tail {
    fn new(file: File) -> Self {
        Tail {
            file,
            skip: MAGIC.len(),
        }
    }
}

impl Write for Tail {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        let rest = &bytes[skipped..];
        if rest.is_empty() {
            return Ok(skipped);
        }
        Ok(skipped + self.file.write(rest)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Reader, Statistics, Value};

    fn columns() -> Vec<Column> {
        let mut time = Column::new("end_time", Kind::Timestamp);
        time.statistics = Statistics::Groups;
        let mut names = Column::new("name", Kind::Text);
        names.statistics = Statistics::None;
        let mut lists = Column::new("lists", Kind::TextList);
        lists.statistics = Statistics::None;
        vec![time, names, lists]
    }

    fn settings(note: &str) -> Settings {
        Settings {
            producer: "test 1".to_owned(),
            metadata: vec![("note".to_owned(), note.to_owned())],
            zstd_level: 3,
            without_page_index: true,
            ..Settings::default()
        }
    }

    fn rows(range: std::ops::Range<i64>) -> Rows {
        let mut rows = Rows::new(columns());
        for n in range {
            let name = format!("row {n}");
            let name = if n % 3 == 0 {
                Value::Null
            } else {
                Value::Text(&name)
            };
            let list = Value::List(vec!["a", "b"][..(n % 3) as usize].to_vec());
            rows.push([Value::Time(n), name, list]);
        }
        rows
    }

    fn new_file() -> File {
        tempfile::tempfile().expect("a temporary file")
    }

    fn read(file: &File) -> (Vec<String>, Option<String>) {
        let reader = Reader::new(file.try_clone().expect("a clone")).expect("a Parquet file");
        let mut rows = reader.rows(&["end_time", "name", "lists"]).expect("rows");
        let mut found = Vec::new();
        while rows.advance().expect("a row") {
            let row = [0, 1, 2].map(|n| rows.value(n).expect("a value"));
            found.push(format!("{row:?}"));
        }
        (found, reader.metadata("note").map(str::to_owned))
    }

    #[test]
    fn rows_are_added_after_row_groups_that_stay_where_they_are() {
        let first = extend(None, new_file(), rows(0..5_000), &settings("one"), 512).expect("one");
        let (before, note) = read(&first);
        assert_eq!((before.len(), note.as_deref()), (5_000, Some("one")));
        let second = extend(
            Some(Old::new(&first)),
            new_file(),
            rows(5_000..5_010),
            &settings("two"),
            512,
        );
        let second = second.expect("two");
        let (after, note) = read(&second);
        assert_eq!((after.len(), note.as_deref()), (5_010, Some("two")));
        assert_eq!(before[..], after[..5_000]);
        let third = extend(
            Some(Old::new(&second)),
            new_file(),
            rows(0..1),
            &settings("three"),
            512,
        );
        let third = third.expect("three");
        let groups = Reader::new(third.try_clone().expect("a clone")).expect("a file");
        let counts: Vec<u64> = groups.groups().iter().map(|g| g.rows).collect();
        assert_eq!(counts, [5_000, 10, 1]);
        assert_eq!(read(&third).0[..5_010], after[..]);
        // The bytes up to the first file's footer are the same in all.
        let metadata = metadata_of(&first).expect("metadata");
        let end = end_of(&places(metadata.row_groups()).expect("places"));
        let bytes = |file: &File| {
            use std::os::unix::fs::FileExt as _;
            let mut bytes = vec![0; end as usize];
            file.read_exact_at(&mut bytes, 0).expect("its groups");
            bytes
        };
        assert!(bytes(&first) == bytes(&third));
    }

    #[test]
    fn a_file_of_other_columns_is_not_extended() {
        let old = extend(None, new_file(), rows(0..5), &settings(""), 512).expect("a file");
        assert!(is_extendable(&old, &columns()).expect("a file"));
        let fewer = &columns()[..2];
        assert!(!is_extendable(&old, fewer).expect("a file"));
        let rows = Rows::new(fewer.to_vec());
        assert!(extend(Some(Old::new(&old)), new_file(), rows, &settings(""), 512).is_err());
    }
}

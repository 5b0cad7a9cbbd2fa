// SPDX-License-Identifier: Apache-2.0
//! Rows to files and back, in slices and groups of several sizes; damaged files.

use crate::write::encode_groups;
use crate::{
    Column, Encoding, Kind, ParquetError, Reader, Rows, Settings, Statistics, Value, Writer,
};
use std::fs::File;
use std::path::{Path, PathBuf};

const KINDS: [(&str, Kind); 7] = [
    ("int", Kind::Int64),
    ("small", Kind::UInt32),
    ("large", Kind::UInt64),
    ("time", Kind::Timestamp),
    ("flag", Kind::Bool),
    ("text", Kind::Text),
    ("list", Kind::TextList),
];

/// Each type twice: nullable, and without nulls.
fn columns() -> Vec<Column> {
    let nullable = KINDS.map(|(name, kind)| Column::new(name, kind));
    let required = KINDS.map(|(name, kind)| Column::new(format!("{name}!"), kind).required());
    let mut columns = [nullable, required].concat();
    columns[0].encoding = Encoding::Delta;
    columns[2].encoding = Encoding::Plain;
    columns[5].encoding = Encoding::Dictionary(Some(300));
    columns[5].page_rows = Some(64);
    columns[6].statistics = Statistics::None;
    columns
}

const WORDS: [&str; 4] = ["one", "", "three", "vier µ"];

fn values(row: u64) -> [Value<'static>; 7] {
    let word = |n: u64| WORDS[(n % 4) as usize];
    [
        Value::Int(-(row as i64)),
        Value::UInt(u64::from(u32::MAX) - row),
        Value::UInt(u64::MAX - row),
        Value::Time(1_795_219_200_000_000 + row as i64),
        Value::Bool(row.is_multiple_of(3)),
        Value::Text(word(row / 5)),
        Value::List((0..row % 3).map(|n| word(row + n)).collect()),
    ]
}

/// A row in which each nullable column is null in its turn.
fn row(row: u64) -> Vec<Value<'static>> {
    let mut nullable = values(row);
    if let Some(value) = nullable.get_mut((row % 11) as usize) {
        *value = Value::Null;
    }
    [nullable, values(row)].concat()
}

fn settings() -> Settings {
    Settings {
        producer: "test 1".to_owned(),
        metadata: vec![("key".to_owned(), "value".to_owned())],
        zstd_level: 3,
        ..Settings::default()
    }
}

fn rows(count: u64) -> Rows {
    let mut rows = Rows::new(columns());
    (0..count).for_each(|n| rows.push(row(n)));
    rows
}

/// Writes rows in groups and slices of these sizes.
fn written(folder: &Path, count: u64, sizes: (usize, usize)) -> PathBuf {
    let path = folder.join(format!("{count}-{}-{}.parquet", sizes.0, sizes.1));
    let file = File::create(&path).unwrap();
    encode_groups(file, rows(count), &settings(), sizes, &mut || ()).unwrap();
    path
}

fn check(path: &Path, count: u64) {
    let reader = Reader::new(File::open(path).unwrap()).unwrap();
    assert_eq!(reader.metadata("key"), Some("value"));
    assert_eq!(reader.metadata("other"), None);
    let names = reader.columns();
    let expected = columns();
    assert_eq!(names, expected.iter().map(|c| &c.name).collect::<Vec<_>>());
    let mut read = reader.rows(&names).unwrap();
    for n in 0..count {
        assert!(read.advance().unwrap());
        let found: Vec<_> = (0..names.len()).map(|c| read.value(c).unwrap()).collect();
        assert_eq!(found, row(n), "row {n}");
    }
    assert!(!read.advance().unwrap());
}

#[test]
fn every_type_comes_back_from_every_division_into_groups_and_slices() {
    let folder = tempfile::tempdir().unwrap();
    for (count, sizes) in [
        (0, (100, 10)),
        (1, (100, 10)),
        (10_000, (1 << 20, 4_096)),
        (1_000, (300, 7)),
    ] {
        check(&written(folder.path(), count, sizes), count);
    }
}

#[test]
fn rows_one_by_one_make_the_file_of_all_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one by one");
    let mut writer = Writer::new(File::create(&path).unwrap(), columns(), &settings()).unwrap();
    for n in 0..70_000 {
        writer.row(row(n)).unwrap();
    }
    writer.close().unwrap();
    check(&path, 70_000);
    let at_once = written(folder.path(), 70_000, (1 << 20, 1 << 16));
    assert!(std::fs::read(path).unwrap() == std::fs::read(at_once).unwrap());
}

#[test]
fn columns_are_read_by_name_and_in_the_order_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let reader = Reader::new(File::open(written(folder.path(), 3, (9, 9))).unwrap()).unwrap();
    let mut read = reader.rows(&["text!", "missing", "int!"]).unwrap();
    assert_eq!(read.value(0).unwrap(), Value::Null, "before the first row");
    for n in 0..3 {
        assert!(read.advance().unwrap());
        assert_eq!(read.value(0).unwrap(), values(n)[5]);
        assert_eq!(read.value(1).unwrap(), Value::Null);
        assert_eq!(read.value(2).unwrap(), values(n)[0]);
    }
    assert!(reader.rows(&["missing"]).is_err());
}

#[test]
fn a_row_must_have_a_value_for_a_column_without_nulls() {
    let columns = || vec![Column::new("small", Kind::UInt32).required()];
    for value in [Value::Null, Value::Int(1), Value::UInt(1 << 32)] {
        let file = tempfile::tempfile().unwrap();
        let mut writer = Writer::new(file, columns(), &settings()).unwrap();
        writer.row([value]).unwrap();
        let error = writer.close().unwrap_err().to_string();
        assert!(error.contains("a row has no small"), "{error}");
    }
}

/// Reads all of a file.
fn read(path: &Path) -> Result<(), ParquetError> {
    let reader = Reader::new(File::open(path).unwrap())?;
    let columns = columns();
    let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
    let mut rows = reader.rows(&names)?;
    while rows.advance()? {
        for place in 0..names.len() {
            rows.value(place)?;
        }
    }
    Ok(())
}

/// Bytes are changed in turn, and the file is cut off: that gives an error or other rows, and
/// never a panic.
#[test]
fn damage_gives_an_error_or_rows() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    let few = 4..8;
    let mut rows = Rows::new(columns()[few.clone()].to_vec());
    (0..20).for_each(|n| rows.push(row(n).drain(few.clone())));
    let file = File::create(&whole).unwrap();
    encode_groups(file, rows, &settings(), (12, 10), &mut || ()).unwrap();
    let whole = std::fs::read(whole).unwrap();
    let path = folder.path().join("damaged");
    let mut errors = 0;
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= [0x01, 0x80, 0xff][at % 3];
        std::fs::write(&path, bytes).unwrap();
        errors += usize::from(read(&path).is_err());
    }
    assert!(
        errors > whole.len() / 3,
        "{errors} of {} bytes",
        whole.len()
    );
    for length in (0..whole.len()).step_by(97) {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert!(read(&path).is_err(), "{length} bytes");
    }
}

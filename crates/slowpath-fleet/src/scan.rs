// SPDX-License-Identifier: Apache-2.0
//! Rows of one file of a table.

use crate::FleetError;
use crate::files;
use slowpath_store::tables::OpenFile;
use slowpath_table::{ParquetError, RowReader, Value};
use std::path::Path;

/// Checks a file and gives its rows to `each`, with these columns.
pub(crate) fn each_row(
    path: &Path,
    columns: &[&str],
    each: impl FnMut(&RowReader<'_>) -> Result<(), ParquetError>,
) -> Result<(), FleetError> {
    let file = files::open(path)?;
    rows_of(&file, path, columns, each)
}

/// The same of a file that is open.
pub(crate) fn rows_of(
    file: &OpenFile,
    path: &Path,
    columns: &[&str],
    mut each: impl FnMut(&RowReader<'_>) -> Result<(), ParquetError>,
) -> Result<(), FleetError> {
    file.check().map_err(FleetError::io("read", path))?;
    let mut read = || -> Result<(), ParquetError> {
        let mut rows = file.reader().rows(columns)?;
        while rows.advance()? {
            each(&rows)?;
        }
        Ok(())
    };
    read().map_err(FleetError::parquet("read", path))
}

/// A text of the present row.
pub(crate) fn text<'a>(rows: &'a RowReader<'_>, column: usize) -> Option<&'a str> {
    match rows.value(column) {
        Ok(Value::Text(text)) => Some(text),
        _ => None,
    }
}

/// A number or a time of the present row.
pub(crate) fn number(rows: &RowReader<'_>, column: usize) -> Option<i64> {
    match rows.value(column) {
        Ok(Value::Int(number) | Value::Time(number)) => Some(number),
        _ => None,
    }
}

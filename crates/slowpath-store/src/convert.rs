// SPDX-License-Identifier: Apache-2.0
//! One spool into the Parquet files of its segment.
//!
//! The spool is what counts until it is removed: the files are written under temporary
//! names, flushed and renamed, and only when all have their names and the directory
//! is flushed does the spool go. Killed anywhere before, the next run converts the same
//! spool into files of the same names; readers ignore the files of a segment whose spool
//! is there. So nothing is lost and nothing counts twice.
//!
//! The work comes in pieces of a few milliseconds, and between them the caller may rest.

use crate::StoreError;
use crate::layout;
use crate::pieces::Pieces;
use crate::segment::tables;
use crate::spool::{self, HeaderError, Parsed};
use crate::table::{self, Provenance};
use slowpath_model::Micros;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

/// What a conversion did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Converted {
    /// Bytes of the Parquet files.
    pub parquet_bytes: u64,
    /// Rows of the intervals table.
    pub rows: u64,
    /// Places in the spool that could not be read, torn tail aside.
    pub unreadable: u64,
    /// Whether the spool had no usable header and was set aside.
    pub set_aside: bool,
}

/// A piece of a spool that is read at once: under a millisecond.
const READ: u64 = 1 << 20;

/// The whole file, read in pieces: at once, 16 MiB take 11 ms.
fn read(path: &Path, pieces: &mut Pieces<'_>) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(0);
    let mut bytes = Vec::with_capacity(length);
    while (&mut file).take(READ).read_to_end(&mut bytes)? > 0 {
        pieces.done();
    }
    Ok(bytes)
}

/// Converts a spool and removes it; contiguous intervals become rows of `merge_up_to` at
/// most. `rest` is called between pieces of the work.
pub(crate) fn convert(
    dir: &Path,
    spool: &Path,
    merge_up_to: Micros,
    rest: &mut dyn FnMut(),
) -> Result<Converted, StoreError> {
    let mut pieces = Pieces::new(rest);
    let bytes = read(spool, &mut pieces).map_err(StoreError::io("read the spool", spool))?;
    let parsed = match parse(&bytes, &mut pieces) {
        Ok(parsed) => parsed,
        Err(HeaderError::Torn) => {
            remove(spool)?;
            return Ok(Converted::default());
        }
        Err(_) => return set_aside(spool),
    };
    drop(bytes);
    let mut converted = Converted {
        unreadable: (parsed.corrupt + parsed.unknown + parsed.invalid) as u64,
        ..Converted::default()
    };
    let partition = layout::partition(dir, parsed.header.begun, &parsed.header.host.host);
    layout::make_dirs(dir, &partition)?;
    let tables = tables(&parsed, merge_up_to, &mut pieces);
    let header = parsed.header;
    drop(parsed.records);
    let mut renames = Vec::new();
    for (table, rows) in tables {
        if rows.count() == 0 {
            continue;
        }
        if table == layout::INTERVALS {
            converted.rows = rows.count();
        }
        let name = format!("{table}-{}.parquet", header.segment);
        let temporary = partition.join(format!(".{name}.tmp"));
        let provenance = Provenance {
            table,
            segment: header.segment.clone(),
            host: header.host.host.clone(),
            boot_id: header.host.boot_id,
        };
        if let Err(e) = table::write(&temporary, rows, &provenance, &mut || pieces.done()) {
            // Others need the space; the next attempt writes it anew.
            let _ = fs::remove_file(&temporary);
            return Err(e);
        }
        renames.push((temporary, partition.join(name)));
    }
    for (temporary, path) in &renames {
        fs::rename(temporary, path).map_err(StoreError::io("rename", temporary))?;
        converted.parquet_bytes += fs::metadata(path).map_or(0, |m| m.len());
    }
    layout::sync_dir(&partition)?;
    remove(spool)?;
    Ok(converted)
}

/// The spool's records, read in pieces.
fn parse(bytes: &[u8], pieces: &mut Pieces<'_>) -> Result<Parsed, HeaderError> {
    let mut records = Vec::new();
    let parsed = spool::parse_each(bytes, |record| {
        records.push(record);
        pieces.row();
    })?;
    Ok(Parsed { records, ..parsed })
}

/// Renames a spool without a usable header.
fn set_aside(spool: &Path) -> Result<Converted, StoreError> {
    let mut aside = spool.as_os_str().to_owned();
    aside.push(".unreadable");
    fs::rename(spool, aside).map_err(StoreError::io("set aside the spool", spool))?;
    Ok(Converted {
        set_aside: true,
        ..Converted::default()
    })
}

fn remove(spool: &Path) -> Result<(), StoreError> {
    fs::remove_file(spool).map_err(StoreError::io("remove the converted spool", spool))?;
    match spool.parent() {
        Some(parent) => layout::sync_dir(parent),
        None => Ok(()),
    }
}

/// Removes what a killed conversion left in one hour.
pub(crate) fn sweep(hour: &Path) -> Result<(), StoreError> {
    for host in layout::entries(hour)? {
        for path in layout::entries(&host)? {
            let temporary: bool = path
                .file_name()
                .and_then(|n| n.to_str())
                .is_some_and(|n| n.starts_with('.') && n.ends_with(".parquet.tmp"));
            if temporary {
                fs::remove_file(&path).map_err(StoreError::io("remove", &path))?;
            }
        }
    }
    Ok(())
}

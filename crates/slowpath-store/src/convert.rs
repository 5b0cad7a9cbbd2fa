// SPDX-License-Identifier: Apache-2.0
//! One spool into the Parquet files of its segment.
//!
//! The spool is what counts until it is removed: the files are written under temporary
//! names, flushed and renamed, and only when all have their names and the directory
//! is flushed does the spool go. Killed anywhere before, the next run converts the same
//! spool into files of the same names; readers ignore the files of a segment whose spool
//! is there. So nothing is lost and nothing counts twice. A log that is shipped keeps the spool:
//! it goes by a rename into `ship`, where no reader of the log looks.
//!
//! The work comes in pieces of a few milliseconds, and between them the caller may rest.
//!
//! Memory: the spool itself, at most as much again for the rows of its tables, which are kept
//! packed, and 24 bytes an interval; one column at a time is encoded.

use crate::StoreError;
use crate::layout;
use crate::pieces::Pieces;
use crate::read_report::{missing_from, unclosed};
use crate::segment::{Segment, tables};
use crate::spool::{HeaderError, Parsed};
use crate::table::{self, Provenance, Rows};
use slowpath_model::{Micros, WallMicros};
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

/// What a conversion did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Converted {
    /// Bytes of the Parquet files.
    pub parquet_bytes: u64,
    /// Rows of the intervals table.
    pub rows: u64,
    /// Places in the spool that could not be read, torn tail aside.
    pub unreadable: u64,
    /// Whether the spool was set aside: it had no usable header, or is a copy.
    pub set_aside: bool,
    /// What of the segment is missing, in words.
    pub missing: Option<String>,
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

/// A spool to convert.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub path: &'a Path,
    /// It is the last one of a run that did not close its log.
    pub unclosed: bool,
    /// It goes into `ship` instead of being removed.
    pub ship: bool,
}

/// Converts a spool and removes it or moves it into `ship`; contiguous intervals become rows of `merge_up_to` at
/// most. `rest` is called between pieces of the work.
pub(crate) fn convert(
    dir: &Path,
    source: Source<'_>,
    merge_up_to: Micros,
    rest: &mut dyn FnMut(),
) -> Result<Converted, StoreError> {
    let spool = source.path;
    let mut pieces = Pieces::new(rest);
    let bytes = read(spool, &mut pieces).map_err(StoreError::io("read the spool", spool))?;
    let Segment {
        parsed,
        last,
        mut tables,
    } = match tables(&bytes, merge_up_to, &mut pieces) {
        Ok(segment) => segment,
        Err(HeaderError::Torn) => {
            remove(spool)?;
            return Ok(Converted::default());
        }
        Err(reason) => return set_aside(spool, reason.to_string()),
    };
    drop(bytes);
    let partition = layout::partition(dir, parsed.header.begun, &parsed.header.host.host);
    let own = layout::spool_path(dir, &parsed.header.segment);
    let shipped = layout::ship_path(dir, &parsed.header.segment);
    let is_copy =
        spool != own && (own.exists() || layout::has_segment(&partition, &parsed.header.segment));
    if is_copy || source.ship && shipped.exists() {
        let reason = format!("it is a copy of segment {}", parsed.header.segment);
        return set_aside(spool, reason);
    }
    let mut converted = Converted {
        unreadable: (parsed.corrupt + parsed.unknown + parsed.invalid) as u64,
        missing: missing(&parsed, source.unclosed.then_some(last)),
        ..Converted::default()
    };
    layout::make_dirs(dir, &partition)?;
    if converted.missing.is_some() {
        widen(&mut tables, parsed.header.begun);
    }
    // A file without rows says so.
    let all_lost = converted.missing.is_some() && tables.iter().all(|(_, rows)| rows.count() == 0);
    let header = parsed.header;
    let mut renames = Vec::new();
    for (table, rows) in tables {
        let says_so = table == layout::COVERAGE && all_lost;
        if rows.count() == 0 && !says_so {
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
            missing: converted.missing.clone(),
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
    match source.ship {
        true => hand_over(dir, spool, &shipped)?,
        false => remove(spool)?,
    }
    Ok(converted)
}

/// What is missing from the segment, in words; `cut_off`: its run did not close the log, and this is the end of the
/// last record.
fn missing(parsed: &Parsed, cut_off: Option<Option<WallMicros>>) -> Option<String> {
    let mut missing = missing_from(parsed);
    missing.extend(cut_off.map(unclosed));
    (!missing.is_empty()).then(|| missing.join("; "))
}

/// Lets every table of a segment state the times of all: what is missing may lie anywhere there.
fn widen(tables: &mut [(&'static str, Rows)], begun: WallMicros) {
    let spans = tables.iter().map(|(_, rows)| rows.span);
    let (from, to) = spans.fold((begun, begun), |(from, to), span| {
        (from.min(span.0), to.max(span.1))
    });
    for (_, rows) in tables {
        rows.widen(from, to);
    }
}

/// Renames a spool without a usable header, or that another one replaces.
fn set_aside(spool: &Path, reason: String) -> Result<Converted, StoreError> {
    let mut aside = spool.as_os_str().to_owned();
    aside.push(".unreadable");
    fs::rename(spool, aside).map_err(StoreError::io("set aside the spool", spool))?;
    Ok(Converted {
        set_aside: true,
        missing: Some(format!(
            "all of it, set aside with the ending .unreadable: {reason}"
        )),
        ..Converted::default()
    })
}

/// Moves a converted spool to where it waits to be shipped.
fn hand_over(dir: &Path, spool: &Path, shipped: &Path) -> Result<(), StoreError> {
    let folder = layout::ship_dir(dir);
    layout::make_dirs(dir, &folder)?;
    fs::rename(spool, shipped).map_err(StoreError::io("move the converted spool", spool))?;
    layout::sync_dir(&folder)?;
    spool.parent().map_or(Ok(()), layout::sync_dir)
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

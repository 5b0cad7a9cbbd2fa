// SPDX-License-Identifier: Apache-2.0
//! Where things lie in a log's directory, and how they get there for good.
//!
//! ```text
//! lock                                     held by the writer
//! spool/SEGMENT.spool                      records not yet in Parquet
//! spool/SEGMENT.spool.unreadable           a spool without a usable header, kept aside
//! ship/SEGMENT.spool                       records in Parquet too, for a server; no reader looks here
//! date=2026-11-21/hour=09/host=NAME/intervals-SEGMENT.parquet
//!                                   problems-SEGMENT.parquet
//!                                   connections-SEGMENT.parquet
//!                                   coverage-SEGMENT.parquet
//!                                   listeners-SEGMENT.parquet
//!                                   interactions-SEGMENT.parquet
//!                                   traffic-SEGMENT.parquet
//!                                   hops-SEGMENT.parquet
//! ```

use crate::StoreError;
use crate::lock::LiveRun;
use crate::modes;
use slowpath_model::WallMicros;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The tables, by the beginning of their files' names.
pub(crate) const INTERVALS: &str = "intervals";
pub(crate) const PROBLEMS: &str = "problems";
pub(crate) const CONNECTIONS: &str = "connections";
pub(crate) const COVERAGE: &str = "coverage";
pub(crate) const LISTENERS: &str = "listeners";
pub(crate) const INTERACTIONS: &str = "interactions";
pub(crate) const TRAFFIC: &str = "traffic";
pub(crate) const HOPS: &str = "hops";

const TABLES: [&str; 8] = [
    INTERVALS,
    PROBLEMS,
    CONNECTIONS,
    COVERAGE,
    LISTENERS,
    INTERACTIONS,
    TRAFFIC,
    HOPS,
];

pub(crate) fn spool_dir(dir: &Path) -> PathBuf {
    dir.join("spool")
}

pub(crate) fn spool_path(dir: &Path, segment: &str) -> PathBuf {
    spool_dir(dir).join(format!("{segment}.spool"))
}

/// Where a log that is shipped keeps the spools that are in Parquet.
pub(crate) fn ship_dir(dir: &Path) -> PathBuf {
    dir.join("ship")
}

pub(crate) fn ship_path(dir: &Path, segment: &str) -> PathBuf {
    ship_dir(dir).join(format!("{segment}.spool"))
}

/// The directory of a segment that began then: `date=…/hour=…/host=…`, UTC.
pub(crate) fn partition(dir: &Path, begun: WallMicros, host: &str) -> PathBuf {
    let time = jiff::Timestamp::from_microsecond(begun.0)
        .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
        .to_zoned(jiff::tz::TimeZone::UTC);
    // A host's name is chosen by people; a directory's must stay in its place.
    let host: String = host
        .chars()
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' => c,
            '.' => c,
            _ => '_',
        })
        .collect();
    dir.join(time.strftime("date=%Y-%m-%d").to_string())
        .join(time.strftime("hour=%H").to_string())
        .join(format!("host={host}"))
}

/// One Parquet file of the log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TableFile {
    pub path: PathBuf,
    pub segment: String,
    pub table: &'static str,
}

impl TableFile {
    /// The path of the same segment's file of another table.
    pub(crate) fn beside(&self, table: &str) -> PathBuf {
        self.path
            .with_file_name(format!("{table}-{}.parquet", self.segment))
    }
}

/// Whether a partition has a file of the segment.
pub(crate) fn has_segment(partition: &Path, segment: &str) -> bool {
    let mut names = TABLES
        .iter()
        .map(|table| format!("{table}-{segment}.parquet"));
    names.any(|name| partition.join(name).exists())
}

/// The spools, by name.
pub(crate) fn spools(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    in_spool_dir(dir, "spool")
}

/// What was set aside, by name.
pub(crate) fn set_aside(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    in_spool_dir(dir, "unreadable")
}

fn in_spool_dir(dir: &Path, extension: &str) -> Result<Vec<PathBuf>, StoreError> {
    let mut found: Vec<PathBuf> = entries(&spool_dir(dir))?
        .into_iter()
        .filter(|p| p.extension() == Some(OsStr::new(extension)))
        .collect();
    found.sort();
    Ok(found)
}

/// Of spools, the last one of each run that no longer writes: it did not close its log, else its
/// spools would be in Parquet.
pub(crate) fn unclosed(spools: &[PathBuf], live: &LiveRun) -> BTreeSet<PathBuf> {
    let mut last: BTreeMap<&str, &PathBuf> = BTreeMap::new();
    for path in spools {
        let Some(segment) = path.file_stem().and_then(OsStr::to_str) else {
            continue;
        };
        let run = segment.rsplit_once('-').map_or(segment, |(run, _)| run);
        let latest = last.entry(run).or_insert(path);
        // Numbers grow past their four digits.
        if (latest.as_os_str().len(), *latest) < (path.as_os_str().len(), path) {
            *latest = path;
        }
    }
    match live {
        LiveRun::Unknown => last.clear(),
        LiveRun::Named(run) => drop(last.remove(run.as_str())),
        LiveRun::Absent => {}
    }
    last.into_values().cloned().collect()
}

/// The whole hours, oldest first.
pub(crate) fn hours(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut found = Vec::new();
    for date in entries(dir)? {
        if starts_with(&date, "date=") {
            found.extend(
                entries(&date)?
                    .into_iter()
                    .filter(|p| starts_with(p, "hour=")),
            );
        }
    }
    found.sort();
    Ok(found)
}

/// The Parquet files of one hour, all hosts.
pub(crate) fn tables(hour: &Path) -> Result<Vec<TableFile>, StoreError> {
    let mut found = Vec::new();
    for host in entries(hour)? {
        if !starts_with(&host, "host=") {
            continue;
        }
        for path in entries(&host)? {
            let Some(name) = path.file_name().and_then(OsStr::to_str) else {
                continue;
            };
            let Some(stem) = name.strip_suffix(".parquet") else {
                continue;
            };
            for table in TABLES {
                if let Some(segment) = stem.strip_prefix(table).and_then(|s| s.strip_prefix('-')) {
                    found.push(TableFile {
                        segment: segment.to_owned(),
                        table,
                        path: path.clone(),
                    });
                }
            }
        }
    }
    found.sort();
    Ok(found)
}

fn starts_with(path: &Path, prefix: &str) -> bool {
    path.file_name()
        .and_then(OsStr::to_str)
        .is_some_and(|name| name.starts_with(prefix))
}

/// What is in a directory; nothing if it does not exist (any more) or is a file.
pub(crate) fn entries(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let gone = |e: &io::Error| {
        matches!(
            e.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
        )
    };
    let listing = match fs::read_dir(dir) {
        Ok(listing) => listing,
        Err(e) if gone(&e) => return Ok(Vec::new()),
        Err(e) => return Err(StoreError::io("list", dir)(e)),
    };
    let mut found = Vec::new();
    for entry in listing {
        match entry {
            Ok(entry) => found.push(entry.path()),
            Err(e) if gone(&e) => {}
            Err(e) => return Err(StoreError::io("list", dir)(e)),
        }
    }
    Ok(found)
}

/// Makes `dir` and its parents below and including `root`; their names survive a power cut.
pub(crate) fn make_dirs(root: &Path, dir: &Path) -> Result<(), StoreError> {
    if dir.is_dir() {
        return Ok(());
    }
    if dir != root
        && let Some(parent) = dir.parent()
    {
        make_dirs(root, parent)?;
    }
    if dir == root {
        return new_dir()
            .recursive(true)
            .create(dir)
            .map_err(StoreError::io("create the directory", dir));
    }
    match new_dir().create(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists || !dir.is_dir() => {
            Err(StoreError::io("create the directory", dir)(e))
        }
        _ => sync_dir(dir.parent().unwrap_or(root)),
    }
}

fn new_dir() -> fs::DirBuilder {
    let mut builder = fs::DirBuilder::new();
    builder.mode(modes::DIRECTORY);
    builder
}

/// Makes renames in and removals from `dir` survive a power cut.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    File::open(dir)
        .and_then(|d| d.sync_all())
        .map_err(StoreError::io("flush the directory", dir))
}

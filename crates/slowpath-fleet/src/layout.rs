// SPDX-License-Identifier: Apache-2.0
//! Where the fleet's files lie, and how they get there for good.
//!
//! ```text
//! intake/N.intake                                        batches in order of arrival
//! intake/offsets, intake/ended                           what is taken of each segment
//! tables/date=2026-11-21/hour=09/TABLE-SERVER-NNNN.parquet
//! ```

use crate::FleetError;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The directory of the intake.
pub(crate) fn intake_dir(dir: &Path) -> PathBuf {
    dir.join("intake")
}

/// The directory of the tables.
pub(crate) fn tables_dir(dir: &Path) -> PathBuf {
    dir.join("tables")
}

pub(crate) fn intake_path(dir: &Path, number: u64) -> PathBuf {
    intake_dir(dir).join(format!("{number}.intake"))
}

/// The numbers of the intake files, ascending.
pub(crate) fn intakes(dir: &Path) -> Result<Vec<u64>, FleetError> {
    let mut found: Vec<u64> = entries(&intake_dir(dir))?
        .iter()
        .filter_map(|path| {
            path.file_name()?
                .to_str()?
                .strip_suffix(".intake")?
                .parse()
                .ok()
        })
        .collect();
    found.sort_unstable();
    Ok(found)
}

/// What is in a directory, by name; nothing if it does not exist (any more).
pub(crate) fn entries(dir: &Path) -> Result<Vec<PathBuf>, FleetError> {
    let list = || -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(dir)?;
        entries.map(|entry| entry.map(|e| e.path())).collect()
    };
    match list() {
        Ok(mut found) => {
            found.sort_unstable();
            Ok(found)
        }
        Err(e) if is_gone(&e) => Ok(Vec::new()),
        Err(e) => Err(FleetError::io("list", dir)(e)),
    }
}

/// Whether something is not there, or no longer.
pub(crate) fn is_gone(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// How files are opened: for their owner only.
pub(crate) fn options() -> OpenOptions {
    let mut options = File::options();
    options.mode(0o600);
    options
}

/// Makes a directory and its parents; their names survive a power cut.
pub(crate) fn make_dir(dir: &Path) -> Result<(), FleetError> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(parent) = dir.parent() {
        make_dir(parent)?;
    }
    let made = fs::DirBuilder::new().mode(0o700).create(dir);
    match made {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            Err(FleetError::io("create the directory", dir)(e))
        }
        _ => dir.parent().map_or(Ok(()), sync_dir),
    }
}

/// Makes renames in and removals from a directory survive a power cut.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), FleetError> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(FleetError::io("flush the directory", dir))
}

/// Writes a file as a draft, flushes it and puts it in the place of what has its name.
pub(crate) fn replace(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), FleetError> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".tmp");
    let draft = PathBuf::from(draft);
    let mut new = options();
    let file = new.write(true).create(true).truncate(true).open(&draft);
    let mut file = file.map_err(FleetError::io("create", &draft))?;
    let written = write(&mut file).and_then(|()| file.sync_all());
    let renamed = written.and_then(|()| fs::rename(&draft, path));
    if let Err(e) = renamed {
        // Others need the space.
        let _ = fs::remove_file(&draft);
        return Err(FleetError::io("write", path)(e));
    }
    path.parent().map_or(Ok(()), sync_dir)
}

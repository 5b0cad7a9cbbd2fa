// SPDX-License-Identifier: Apache-2.0
//! What lies where: `LOG/spool` and `LOG/ship`, and what files' names say.
//!
//! ```text
//! spool/S.spool                        live: grows, or waits to become Parquet
//! spool/S.spool.unreadable             set aside by the log: a gap, if its header is damaged
//! ship/S.spool                         ended
//! ship/S.LENGTH.thin                   some of its records gave way
//! ship/S.FROM.LENGTH.RECORDS.gone      all that was not acknowledged did; without bytes
//! ship/state                           what was acknowledged
//! ship/refused/                        what the server could not read
//! ```

use super::form::{Form, Remains, SpoolStart, start_of};
use crate::batch::{GapReason, is_segment_id};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// A log's folders.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    spool: PathBuf,
    ship: PathBuf,
}

/// What is in them.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub segments: BTreeMap<String, Form>,
    /// Bytes of the segments in `ship`.
    pub bytes: u64,
    /// Files that a kill left beside those that replaced them.
    pub superseded: Vec<PathBuf>,
    /// Files that only their name is left of, but for a kill.
    pub full_stubs: Vec<PathBuf>,
}

impl Folder {
    pub(super) fn of(log: &Path) -> Self {
        Folder {
            spool: log.join("spool"),
            ship: log.join("ship"),
        }
    }

    pub(super) fn ship(&self) -> &Path {
        &self.ship
    }

    pub(super) fn state(&self) -> PathBuf {
        self.ship.join("state")
    }

    pub(super) fn refused(&self) -> PathBuf {
        self.ship.join("refused")
    }

    pub(super) fn thinned(&self, segment: &str, length: u64) -> PathBuf {
        self.ship.join(format!("{segment}.{length}.thin"))
    }

    pub(super) fn gone(&self, segment: &str, remains: &Remains) -> PathBuf {
        let records = remains.records.map_or("x".to_owned(), |n| n.to_string());
        let Remains { from, length, .. } = remains;
        self.ship
            .join(format!("{segment}.{from}.{length}.{records}.gone"))
    }

    /// Looks into both folders. A segment moves from the first to the second only, so none is
    /// missed.
    pub(super) fn list(&self) -> io::Result<Listing> {
        let mut listing = Listing::default();
        let mut unreadable = Vec::new();
        for path in entries(&self.spool)? {
            let name = file_name(&path);
            if let Some(id) = name.strip_suffix(".spool").filter(|id| is_segment_id(id)) {
                listing.segments.insert(id.to_owned(), Form::Live(path));
            } else if let Some(id) = name.strip_suffix(".spool.unreadable") {
                unreadable.push((id.to_owned(), path));
            }
        }
        let mut forms = Vec::new();
        for path in entries(&self.ship)? {
            if let Some((id, form)) = form_of(&path).filter(|(id, _)| is_segment_id(id)) {
                let length = fs::metadata(&path).map_or(0, |m| m.len());
                listing.bytes += length;
                if matches!(form, Form::Gone(_)) && length > 0 {
                    listing.full_stubs.push(path.clone());
                }
                forms.push((id, path, form));
            }
        }
        // Of two forms of a segment, which a kill left, the one that has more: the other is not
        // shipped yet.
        forms.sort_by_key(|(_, _, form)| rank(form));
        for (id, path, form) in forms {
            if let Some(Form::Whole(_) | Form::Thinned(..)) = listing.segments.get(&id) {
                listing.superseded.push(path);
                continue;
            }
            listing.segments.insert(id, form);
        }
        for (id, path) in unreadable {
            if is_segment_id(&id) && !listing.segments.contains_key(&id) {
                listing
                    .segments
                    .extend(set_aside(&path)?.map(|form| (id, form)));
            }
        }
        Ok(listing)
    }
}

fn rank(form: &Form) -> u8 {
    match form {
        Form::Live(_) | Form::Whole(_) => 0,
        Form::Thinned(..) => 1,
        Form::Gone(_) => 2,
    }
}

/// A spool without a usable header, whose records no one can read. A copy of another segment, or
/// what a newer version wrote, is none.
fn set_aside(path: &Path) -> io::Result<Option<Form>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    Ok(match start_of(&mut file)? {
        SpoolStart::Damaged => Some(Form::Gone(Remains {
            from: 0,
            length: file.metadata()?.len(),
            records: None,
            reason: GapReason::Damaged,
        })),
        SpoolStart::Header(..) | SpoolStart::Newer | SpoolStart::Torn => None,
    })
}

/// The segment of a file in `ship`, and in which form it is there.
fn form_of(path: &Path) -> Option<(String, Form)> {
    let name = file_name(path);
    if let Some(id) = name.strip_suffix(".spool") {
        return Some((id.to_owned(), Form::Whole(path.to_owned())));
    }
    if let Some(stem) = name.strip_suffix(".thin") {
        let (id, length) = stem.rsplit_once('.')?;
        let form = Form::Thinned(path.to_owned(), length.parse().ok()?);
        return Some((id.to_owned(), form));
    }
    let mut parts = name.strip_suffix(".gone")?.rsplitn(4, '.');
    let records = parts.next()?.parse().ok();
    let length = parts.next()?.parse().ok()?;
    let from = parts.next()?.parse().ok()?;
    let remains = Remains {
        from,
        length,
        records,
        reason: GapReason::Dropped,
    };
    Some((parts.next()?.to_owned(), Form::Gone(remains)))
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or("")
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

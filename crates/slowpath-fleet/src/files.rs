// SPDX-License-Identifier: Apache-2.0
//! The files of a table and hour, and how one is put in the place of another.
//!
//! A file under a visible name is only ever replaced, by rename, by one that holds all its rows and
//! perhaps more. So whatever reads a name, at any moment, reads each row at most once.

use crate::FleetError;
use crate::hour::Hour;
use crate::intakes::Intakes;
use crate::layout;
use crate::tables::Table;
use slowpath_model::WallMicros;
use slowpath_store::tables::{OpenFile, SLICE, seal, settings};
use slowpath_table::{Group, Layout, Old, Rows, Settings, extend, is_extendable};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// A file below this takes further rows; from it on, it is full.
const SMALL_FULL: u64 = 64 << 20;
/// The same once its hour has [`MANY`] files of the table.
const LARGE_FULL: u64 = 256 << 20;
const MANY: usize = 4;
/// zstd's level of rows that are added; publication has a third of a core at most.
const LEVEL: i32 = 3;
/// Key of the intake files whose rows a file has.
pub(crate) const KEY_INTAKE: &str = "slowpath.intake";
pub(crate) const KEY_SERVER: &str = "slowpath.server";
/// Key of what keeps its place in a file although its footer does not point to it ([`Pinned`]).
const KEY_PINNED: &str = "slowpath.pinned";

/// Says before which step a test stops the work, as a kill would.
pub(crate) type StopBefore = Box<dyn FnMut(&'static str) -> bool + Send>;

/// Steps of the work, each of which may be the last before a kill.
#[derive(Default)]
pub(crate) struct Steps(pub Option<StopBefore>);

impl Steps {
    pub(crate) fn before(&mut self, step: &'static str) -> Result<(), FleetError> {
        let stops = self.0.as_mut().is_some_and(|stop| stop(step));
        match stops {
            true => Err(FleetError::Stopped(step)),
            false => Ok(()),
        }
    }
}

/// Bytes of a file that earlier footers point to and its own does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pinned {
    /// Where they end.
    pub until: u64,
    /// When the first footer was written that does not point to them.
    pub since: WallMicros,
}

impl Pinned {
    fn parse(text: &str) -> Option<Self> {
        let (until, since) = text.split_once(' ')?;
        Some(Pinned {
            until: until.parse().ok()?,
            since: WallMicros(since.parse().ok()?),
        })
    }
}

/// A file, by what its end states.
#[derive(Clone, Debug)]
pub(crate) struct TableFile {
    pub number: u32,
    pub path: PathBuf,
    pub bytes: u64,
    pub intakes: Intakes,
    pub groups: Vec<Group>,
    /// Where they lie; nothing, if it is not extendable.
    pub layout: Layout,
    pub pinned: Option<Pinned>,
    /// It can take rows: it is not damaged, and has this version's columns.
    pub extendable: bool,
}

/// The files of a table and hour, by their numbers.
#[derive(Clone, Debug)]
pub(crate) struct HourFiles {
    pub table: Table,
    dir: PathBuf,
    server: String,
    pub files: Vec<TableFile>,
}

/// Rows of a table and hour.
pub(crate) struct HourRows {
    pub rows: Rows,
    pub span: (WallMicros, WallMicros),
}

impl HourRows {
    pub(crate) fn new(table: Table) -> Self {
        HourRows {
            rows: Rows::new(table.columns()),
            span: (WallMicros(i64::MAX), WallMicros(i64::MIN)),
        }
    }

    pub(crate) fn widen(&mut self, (from, to): (WallMicros, WallMicros)) {
        self.span = (self.span.0.min(from), self.span.1.max(to));
    }
}

/// The table, server and number of a file's name.
pub(crate) fn parts(path: &Path) -> Option<(Table, &str, u32)> {
    let stem = path.file_name()?.to_str()?.strip_suffix(".parquet")?;
    let (table, rest) = stem.split_once('-')?;
    let (server, number) = rest.rsplit_once('-')?;
    Some((Table::from_name(table)?, server, number.parse().ok()?))
}

impl HourFiles {
    /// Lists the files that a server has of a table and hour.
    pub(crate) fn list(
        tables: &Path,
        (table, hour): (Table, Hour),
        server: &str,
    ) -> Result<Self, FleetError> {
        let dir = hour.dir(tables);
        let mut files = Vec::new();
        for path in layout::entries(&dir)? {
            if let Some((of, by, number)) = parts(&path)
                && of == table
                && by == server
            {
                files.push(look(path, table, number));
            }
        }
        files.sort_unstable_by_key(|file| file.number);
        Ok(HourFiles {
            table,
            dir,
            server: server.to_owned(),
            files,
        })
    }

    /// Whether an intake file's rows are there.
    pub(crate) fn has(&self, intake: u64) -> bool {
        self.files.iter().any(|file| file.intakes.contains(intake))
    }

    pub(crate) fn full(&self) -> u64 {
        match self.files.len() > MANY {
            true => LARGE_FULL,
            false => SMALL_FULL,
        }
    }

    /// Adds rows: to the last file while it is not full, else as a new one. `intake` is where they
    /// came from, if they came from one.
    pub(crate) fn add(
        &mut self,
        rows: HourRows,
        intake: Option<u64>,
        steps: &mut Steps,
    ) -> Result<(), FleetError> {
        layout::make_dir(&self.dir)?;
        let full = self.full();
        let last = self.files.last();
        let old = last.filter(|file| file.extendable && file.bytes < full);
        let number = last.map_or(1, |file| file.number + 1);
        let (number, path) = match old {
            Some(old) => (old.number, old.path.clone()),
            None => (number, self.path(number)),
        };
        let mut intakes = old.map(|old| old.intakes.clone()).unwrap_or_default();
        intake.into_iter().for_each(|intake| intakes.insert(intake));
        let open = match old {
            Some(old) => Some(open(&old.path)?),
            None => None,
        };
        let span = open.as_ref().map_or(rows.span, |open| {
            let old = open.span();
            (rows.span.0.min(old.0), rows.span.1.max(old.1))
        });
        let pinned = old.and_then(|old| old.pinned);
        let settings = self.settings(span, &intakes, pinned, LEVEL);
        let draft = Draft::new(&path)?;
        steps.before("write the draft of a table's file")?;
        let bytes = open.as_ref().map(|open| Old {
            file: open.bytes(),
            keep: pinned.map_or(0, |pinned| pinned.until),
        });
        let file = draft
            .file
            .try_clone()
            .map_err(FleetError::io("write", &path))?;
        let written = extend(bytes, file, rows.rows, &settings, SLICE);
        let written = written.map_err(FleetError::parquet("write", &path))?;
        seal(&written, open.as_ref()).map_err(FleetError::io("write the checksums of", &path))?;
        draft.commit(&path, steps)?;
        let new = look(path, self.table, number);
        match self.files.last_mut() {
            Some(last) if last.number == number => *last = new,
            _ => self.files.push(new),
        }
        Ok(())
    }

    fn path(&self, number: u32) -> PathBuf {
        let (table, server) = (self.table.name(), &self.server);
        self.dir
            .join(format!("{table}-{server}-{number:04}.parquet"))
    }

    pub(crate) fn settings(
        &self,
        span: (WallMicros, WallMicros),
        intakes: &Intakes,
        pinned: Option<Pinned>,
        level: i32,
    ) -> Settings {
        let mut more = vec![
            (KEY_SERVER, self.server.clone()),
            (KEY_INTAKE, intakes.to_string()),
        ];
        if let Some(Pinned { until, since }) = pinned {
            more.push((KEY_PINNED, format!("{until} {}", since.0)));
        }
        settings(self.table.name(), span, &more, level)
    }
}

pub(crate) fn open(path: &Path) -> Result<OpenFile, FleetError> {
    OpenFile::open(path).map_err(|e| FleetError::Unreadable {
        path: path.to_owned(),
        reason: e.to_string(),
    })
}

/// What a file's end states; one that cannot be read takes no further rows.
pub(crate) fn look(path: PathBuf, table: Table, number: u32) -> TableFile {
    let bytes = fs::metadata(&path).map_or(0, |metadata| metadata.len());
    let open = OpenFile::open(&path).ok();
    let reader = open.as_ref().map(OpenFile::reader);
    let intakes = reader.and_then(|reader| reader.metadata(KEY_INTAKE)?.parse().ok());
    let extendable = open.as_ref().is_some_and(|open| {
        intakes.is_some() && is_extendable(open.bytes(), &table.columns()).unwrap_or(false)
    });
    let layout = open.as_ref().filter(|_| extendable);
    let layout = layout.and_then(|open| Layout::of(open.bytes()).ok());
    let pinned = reader.and_then(|reader| Pinned::parse(reader.metadata(KEY_PINNED)?));
    TableFile {
        number,
        bytes,
        intakes: intakes.unwrap_or_default(),
        groups: reader.map(|reader| reader.groups()).unwrap_or_default(),
        layout: layout.unwrap_or_default(),
        pinned,
        extendable,
        path,
    }
}

/// A file that is to get a name. Dropped before, it leaves nothing.
pub(crate) struct Draft {
    path: PathBuf,
    pub file: File,
    /// Leave it, as a kill would.
    killed: bool,
}

impl Draft {
    pub(crate) fn new(path: &Path) -> Result<Self, FleetError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let path = path.with_file_name(format!(".{name}.tmp"));
        let mut new = layout::options();
        let new = new.read(true).write(true).create(true).truncate(true);
        let file = new.open(&path).map_err(FleetError::io("create", &path))?;
        Ok(Draft {
            path,
            file,
            killed: false,
        })
    }

    /// Flushes it and gives it its name.
    pub(crate) fn commit(mut self, path: &Path, steps: &mut Steps) -> Result<(), FleetError> {
        self.killed = true;
        steps.before("flush the draft")?;
        self.killed = false;
        self.file
            .sync_all()
            .map_err(FleetError::io("flush", &self.path))?;
        self.killed = true;
        steps.before("rename the draft")?;
        self.killed = false;
        fs::rename(&self.path, path).map_err(FleetError::io("rename to", path))?;
        self.killed = true;
        steps.before("go on after a rename")
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.killed {
            // After a rename it has another name; else others need the space.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes drafts that a kill left in an hour.
pub(crate) fn sweep(hour: &Path) -> Result<(), FleetError> {
    for path in layout::entries(hour)? {
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with('.') && name.ends_with(".parquet.tmp")) {
            fs::remove_file(&path).map_err(FleetError::io("remove", &path))?;
        }
    }
    Ok(())
}

/// The hours that there are, with their directories, oldest first.
pub(crate) fn hours(tables: &Path) -> Result<Vec<(Hour, PathBuf)>, FleetError> {
    let mut found = Vec::new();
    for date in layout::entries(tables)? {
        for dir in layout::entries(&date)? {
            found.extend(Hour::of_dir(&dir).map(|hour| (hour, dir)));
        }
    }
    found.sort_unstable();
    Ok(found)
}

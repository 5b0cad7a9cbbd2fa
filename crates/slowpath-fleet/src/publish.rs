// SPDX-License-Identifier: Apache-2.0
//! Intake files into tables.
//!
//! An intake file is decoded into rows by table and hour. Each table and hour takes its rows in one
//! rename, with the intake's number in the file's metadata; those that have the number already are
//! passed over. When all have it the intake file is removed. So a kill at any moment leaves work
//! that the next run does again, and no row twice.

use crate::FleetError;
use crate::compaction::Step;
use crate::copies::{Copies, ObjectStore};
use crate::decode::IntakeFile;
use crate::files::{self, HourFiles, HourRows, Steps};
use crate::hour::Hour;
use crate::intake::{Intake, Shared};
use crate::layout;
use crate::owners::Owners;
use crate::pending::Pending;
use crate::scan;
use crate::tables::Table;
use slowpath_model::{Micros, WallMicros};
use slowpath_store::tables::{LogTable, OwnerNames};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::UNIX_EPOCH;

/// Hours of which the files are remembered.
const REMEMBERED: usize = 1_000;
/// After an hour's last batch no segment of it goes on longer than this: what connections are, is
/// read again from as far back when a server starts.
const SEGMENT_TIME: Micros = Micros(2 * 3_600_000_000);

/// The tables of one server.
pub struct Tables {
    pub(crate) dir: PathBuf,
    pub(crate) server: String,
    shared: Arc<Shared>,
    owners: Owners,
    known: HashMap<(Table, Hour), HourFiles>,
    /// Hours that got connections since their ends were made.
    pub(crate) unjoined: BTreeSet<Hour>,
    /// Hours whose files may have small row groups.
    uncompacted: BTreeSet<Hour>,
    /// When hours were last closed.
    pub(crate) closed_at: BTreeMap<Hour, WallMicros>,
    pub(crate) steps: Steps,
    /// The object store that has the tables too.
    pub(crate) copies: Option<Copies>,
    /// Intake files whose rows the local tables have all.
    local: BTreeSet<u64>,
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables")
            .field("dir", &self.dir)
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// What a publication did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Intake files.
    pub intakes: u64,
    /// Their bytes.
    pub intake_bytes: u64,
    /// Records in them.
    pub records: u64,
    /// Rows of all tables.
    pub rows: u64,
    /// Files written.
    pub files: u64,
    /// Bytes of the intake that were no frame: what was taken there is lost.
    pub damaged_bytes: u64,
    /// Objects put into the object store.
    pub objects: u64,
    /// Why the object store has not all of it; the next calls try again.
    pub store_error: Option<String>,
}

impl Tables {
    /// Opens the tables in a server's directory. `server` is its id, which is part of files' names.
    ///
    /// # Errors
    /// A directory cannot be made, listed or cleaned, or `server` is no word.
    pub fn open(
        dir: &Path,
        server: &str,
        intake: &Intake,
        now: WallMicros,
    ) -> Result<Tables, FleetError> {
        let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        if server.is_empty() || !server.bytes().all(is_word) {
            return Err(FleetError::Unreadable {
                path: dir.to_owned(),
                reason: format!("{server:?} is no id of a server: letters and digits only"),
            });
        }
        let tables = layout::tables_dir(dir);
        layout::make_dir(&tables)?;
        let mut owners = Owners::default();
        let mut unjoined = BTreeSet::new();
        for (hour, path) in files::hours(&tables)? {
            files::sweep(&path)?;
            unjoined.insert(hour);
            for file in layout::entries(&path)? {
                let table = files::parts(&file).map(|(table, ..)| table);
                if table == Some(Table::Log(LogTable::Connections)) && is_recent(&file, now) {
                    // One that cannot be read is named when it is read as a table.
                    let _ = read_owners(&file, &mut owners);
                }
            }
        }
        Ok(Tables {
            dir: dir.to_owned(),
            server: server.to_owned(),
            shared: intake.shared(),
            owners,
            known: HashMap::new(),
            uncompacted: unjoined.clone(),
            unjoined,
            closed_at: BTreeMap::new(),
            steps: Steps::default(),
            copies: None,
            local: BTreeSet::new(),
        })
    }

    /// Puts what is published from now on into an object store as well. An intake file stays until the store has it.
    pub fn copy_to(&mut self, store: Box<dyn ObjectStore>) {
        let first = self.shared.current.load(Ordering::Acquire);
        self.copies = Some(Copies::new(store, first));
    }

    /// Stops the work before each step for which `stop` says so, with an error, as a kill would.
    /// For tests.
    pub fn stop_before(&mut self, stop: impl FnMut(&'static str) -> bool + Send + 'static) {
        self.steps.0 = Some(Box::new(stop));
    }

    /// Publishes the intake files that have ended.
    ///
    /// # Errors
    /// A file cannot be read or written. What is left is done by the next call.
    pub fn publish(&mut self) -> Result<Published, FleetError> {
        let mut published = Published::default();
        for number in layout::intakes(&self.dir)? {
            if number < self.shared.current.load(Ordering::Acquire) {
                let done = self.publish_one(number, &mut published);
                self.checked(done)?;
            }
        }
        Ok(published)
    }

    fn publish_one(&mut self, number: u64, published: &mut Published) -> Result<(), FleetError> {
        if !self.local.contains(&number) {
            self.publish_here(number, published)?;
            self.local.insert(number);
        }
        if !self.copied(number, published)? {
            return Ok(());
        }
        let path = layout::intake_path(&self.dir, number);
        self.steps.before("remove the intake file")?;
        let bytes = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        fs::remove_file(&path).map_err(FleetError::io("remove the published", &path))?;
        self.local.remove(&number);
        if let Some(copies) = &mut self.copies {
            copies.forget(number);
        }
        self.shared.published(bytes);
        published.intakes += 1;
        published.intake_bytes += bytes;
        Ok(())
    }

    /// Whether the object store, if there is one, has an intake file's rows. What it does not take holds up the local tables no
    /// longer than its answer takes.
    fn copied(&mut self, number: u64, published: &mut Published) -> Result<bool, FleetError> {
        let Some(copies) = &mut self.copies else {
            return Ok(true);
        };
        if copies.has(number) {
            return Ok(true);
        }
        let of = (self.dir.as_path(), self.server.as_str());
        match copies.copy(of, number, &mut self.owners, &mut self.steps) {
            Ok(objects) => published.objects += objects,
            Err(stopped @ FleetError::Stopped(_)) => return Err(stopped),
            Err(error) => published.store_error = Some(error.to_string()),
        }
        Ok(copies.has(number))
    }

    fn publish_here(&mut self, number: u64, published: &mut Published) -> Result<(), FleetError> {
        let path = layout::intake_path(&self.dir, number);
        let intake = IntakeFile::open(&path)?;
        let mut pending = Pending::default();
        published.records += intake.rows(&mut self.owners, &mut pending)?;
        published.damaged_bytes += intake.damaged();
        let mut dirs = BTreeSet::new();
        for ((table, hour), rows) in pending.0 {
            let files = self.files(table, hour)?;
            if files.has(number) {
                continue;
            }
            published.rows += rows.rows.count() as u64;
            published.files += 1;
            let mut files = files.clone();
            files.add(rows, Some(number), &mut self.steps)?;
            self.known.insert((table, hour), files);
            self.uncompacted.insert(hour);
            dirs.insert(hour.dir(&layout::tables_dir(&self.dir)));
            if table == Table::Log(LogTable::Connections) {
                self.unjoined.insert(hour);
            }
        }
        self.steps.before("flush the hours' directories")?;
        dirs.iter().try_for_each(|dir| layout::sync_dir(dir))
    }

    /// After an error it is not known what is on the disk: it is looked at again.
    fn checked<T>(&mut self, done: Result<T, FleetError>) -> Result<T, FleetError> {
        if done.is_err() {
            self.known.clear();
            self.local.clear();
        }
        done
    }

    /// The files of a table and hour.
    pub(crate) fn files(&mut self, table: Table, hour: Hour) -> Result<&HourFiles, FleetError> {
        if self.known.len() > REMEMBERED {
            self.known.clear();
        }
        let tables = layout::tables_dir(&self.dir);
        if !self.known.contains_key(&(table, hour)) {
            let files = HourFiles::list(&tables, (table, hour), &self.server)?;
            self.known.insert((table, hour), files);
        }
        Ok(&self.known[&(table, hour)])
    }

    /// Adds rows that come from no intake file.
    pub(crate) fn add(
        &mut self,
        table: Table,
        hour: Hour,
        rows: HourRows,
    ) -> Result<(), FleetError> {
        let mut files = self.files(table, hour)?.clone();
        let added = files.add(rows, None, &mut self.steps);
        self.checked(added)?;
        self.known.insert((table, hour), files);
        self.uncompacted.insert(hour);
        layout::sync_dir(&hour.dir(&layout::tables_dir(&self.dir)))
    }

    /// Takes the next step towards few large row groups (decision 0044) with files that are full, or whose hour ended 25 h
    /// ago, until some 64 MiB are written; returns how many files there were.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn compact(&mut self, now: WallMicros) -> Result<u64, FleetError> {
        /// Bytes of a call.
        const BYTES: u64 = 64 << 20;
        let (mut done, mut bytes) = (0, 0);
        for hour in self.uncompacted.clone() {
            let age = now.0.saturating_sub(hour.ends().0);
            let closed = age >= 25 * 3_600_000_000;
            let mut settled = closed;
            for table in Table::ALL {
                for due in self.files(table, hour)?.due(closed, now) {
                    bytes += self.compact_file((table, hour), due, now)?;
                    done += 1;
                    if bytes >= BYTES {
                        return Ok(done);
                    }
                }
                settled &= self.files(table, hour)?.is_settled(closed);
            }
            if settled {
                self.uncompacted.remove(&hour);
            }
        }
        Ok(done)
    }

    /// Takes a step with a file; returns how long it was. One that is damaged stays as it is: readers name it.
    fn compact_file(
        &mut self,
        of: (Table, Hour),
        (at, step): (usize, Step),
        now: WallMicros,
    ) -> Result<u64, FleetError> {
        let mut files = self.files(of.0, of.1)?.clone();
        let bytes = files.files[at].bytes;
        match files.take_step((at, step), now, &mut self.steps) {
            Err(e @ (FleetError::Io { .. } | FleetError::Stopped(_))) if !e.is_damage() => {
                return self.checked(Err(e));
            }
            compacted => files.files[at].extendable &= compacted.is_ok(),
        }
        self.known.insert(of, files);
        Ok(bytes)
    }

    /// An hour was removed.
    pub(crate) fn forget(&mut self, hour: Hour) {
        self.known.retain(|(_, of), _| *of != hour);
        self.unjoined.remove(&hour);
        self.uncompacted.remove(&hour);
    }
}

/// Whether a file was written within the time of a segment before now.
fn is_recent(path: &Path, now: WallMicros) -> bool {
    let written = fs::metadata(path).and_then(|metadata| metadata.modified());
    let since = written.map(|at| at.duration_since(UNIX_EPOCH).unwrap_or_default());
    since.is_ok_and(|since| WallMicros(since.as_micros() as i64) + SEGMENT_TIME > now)
}

fn read_owners(path: &Path, owners: &mut Owners) -> Result<(), FleetError> {
    let columns = ["host", "connection_id"].into_iter();
    let columns: Vec<&str> = columns.chain(OwnerNames::COLUMNS).collect();
    scan::each_row(path, &columns, |rows| {
        let name = |column| scan::text(rows, column).map(str::to_owned);
        let names = OwnerNames {
            application: name(2),
            unit: name(3),
            container: name(4),
            pod: name(5),
        };
        if let (Some(host), Some(connection)) = (scan::text(rows, 0), scan::number(rows, 1)) {
            owners.put(host, connection.cast_unsigned(), names);
        }
        Ok(())
    })
}

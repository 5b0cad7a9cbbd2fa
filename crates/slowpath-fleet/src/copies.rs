// SPDX-License-Identifier: Apache-2.0
//! Tables on an object store: several servers write there, and any engine reads.
//!
//! Each intake file gives one object a table and hour. Its name has the server's id and the intake file's number, so it is the
//! same however often it is written, and no two servers write one. Objects are written once and never joined: readers of such
//! stores read by ranges, and list names that must not change. The intake file stays until the local tables and
//! the store have all of it.

use crate::FleetError;
use crate::decode::IntakeFile;
use crate::files::{self, HourRows, Steps};
use crate::hour::Hour;
use crate::layout;
use crate::owners::Owners;
use crate::pending::Pending;
use crate::tables::Table;
use slowpath_model::{Micros, WallMicros};
use slowpath_store::tables::{SLICE, seal, settings};
use slowpath_table::encode;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// zstd's level: objects are never written anew.
const LEVEL: i32 = 6;
/// Waits between two tries of a store that does not take an object: doubled from the first to the last, half of it drawn.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LAST_WAIT: Duration = Duration::from_secs(120);
/// How often old objects are looked for.
const EXPIRE: Duration = Duration::from_secs(3_600);

/// A store of objects under names such as `tables/date=2026-11-21/hour=09/coverage-s1-0000000007.parquet`.
pub trait ObjectStore: Send {
    /// Stores a file's bytes under a name. Whoever reads the name then gets all of them, before either none or those that it had.
    ///
    /// # Errors
    /// The store does not answer, or refuses.
    fn put(&mut self, name: &str, bytes: Vec<u8>) -> io::Result<()>;

    /// The names below a prefix, which ends with `/`.
    ///
    /// # Errors
    /// As [`ObjectStore::put`].
    fn list(&mut self, prefix: &str) -> io::Result<Vec<String>>;

    /// Deletes objects; those that are not there are no error.
    ///
    /// # Errors
    /// As [`ObjectStore::put`].
    fn delete(&mut self, names: Vec<String>) -> io::Result<()>;
}

/// What an object store has of the intake, and when it is tried again.
pub(crate) struct Copies {
    store: Box<dyn ObjectStore>,
    /// The intake file that this process began, until the store has none of a later life of this server.
    first: Option<u64>,
    /// Intake files of which it has everything.
    done: BTreeSet<u64>,
    again: Option<Instant>,
    wait: Duration,
    expired: Option<Instant>,
}

impl Copies {
    pub(crate) fn new(store: Box<dyn ObjectStore>, first: u64) -> Self {
        Copies {
            store,
            first: Some(first),
            done: BTreeSet::new(),
            again: None,
            wait: FIRST_WAIT,
            expired: None,
        }
    }

    /// Whether the store has all of an intake file, and it can be removed.
    pub(crate) fn has(&self, intake: u64) -> bool {
        self.done.contains(&intake)
    }

    /// An intake file was removed.
    pub(crate) fn forget(&mut self, intake: u64) {
        self.done.remove(&intake);
    }

    /// Copies an intake file to the store, unless that failed just now; gives how many objects were written.
    pub(crate) fn copy(
        &mut self,
        (dir, server): (&Path, &str),
        number: u64,
        owners: &mut Owners,
        steps: &mut Steps,
    ) -> Result<u64, FleetError> {
        if self.again.is_some_and(|again| Instant::now() < again) {
            return Ok(0);
        }
        let copied = self.roll_back(server);
        let copied = copied.and_then(|()| self.copy_now((dir, server), number, owners, steps));
        match &copied {
            Ok(_) => {
                self.done.insert(number);
                (self.again, self.wait) = (None, FIRST_WAIT);
            }
            Err(_) => {
                // Servers that share a store do not try at the same moment.
                let drawn = self.wait.mul_f64(0.5 + 0.5 * fraction(number));
                self.again = Some(Instant::now() + drawn);
                self.wait = (2 * self.wait).min(LAST_WAIT);
            }
        }
        copied
    }

    /// Deletes the objects of intake files that are not there yet: a server that was restored from an older copy wrote them
    /// later than that copy, its hosts send their rows again, and these intake files' numbers are given once more.
    fn roll_back(&mut self, server: &str) -> Result<(), FleetError> {
        let Some(first) = self.first else {
            return Ok(());
        };
        self.delete(server, |_, number| number >= first)?;
        self.first = None;
        Ok(())
    }

    fn copy_now(
        &mut self,
        (dir, server): (&Path, &str),
        number: u64,
        owners: &mut Owners,
        steps: &mut Steps,
    ) -> Result<u64, FleetError> {
        let intake = IntakeFile::open(&layout::intake_path(dir, number))?;
        let mut pending = Pending::default();
        intake.rows(owners, &mut pending)?;
        let mut objects = 0;
        for ((table, hour), rows) in pending.0 {
            let path = name((table, hour), server, number);
            let bytes = object(dir, (table, server, number), rows)?;
            steps.before("put an object")?;
            let put = self.store.put(&path.to_string_lossy(), bytes);
            put.map_err(FleetError::io("put into the object store", &path))?;
            objects += 1;
        }
        Ok(objects)
    }

    /// Deletes this server's objects of hours that ended too long ago, once an hour; gives how many there were. What other
    /// servers wrote is theirs.
    pub(crate) fn expire(
        &mut self,
        server: &str,
        age: Micros,
        now: WallMicros,
    ) -> Result<u64, FleetError> {
        if self.expired.is_some_and(|at| at.elapsed() < EXPIRE) {
            return Ok(0);
        }
        self.expired = Some(Instant::now());
        let oldest = Hour::of(now - age);
        self.delete(server, |hour, _| hour < oldest)
    }

    /// Deletes those objects of a server that are meant, by their hours and intake files; gives how many there were.
    fn delete(
        &mut self,
        server: &str,
        is_meant: impl Fn(Hour, u64) -> bool,
    ) -> Result<u64, FleetError> {
        let folder = Path::new("tables/");
        let names = self.store.list("tables/");
        let names = names.map_err(FleetError::io("list the object store's", folder))?;
        let is_meant = |name: &String| {
            let path = Path::new(name);
            let hour = path.parent().and_then(Hour::of_dir);
            let (_, by, number) = files::parts(path)?;
            Some(by == server && is_meant(hour?, u64::from(number)))
        };
        let old = names.into_iter();
        let old: Vec<String> = old.filter(|name| is_meant(name) == Some(true)).collect();
        let count = old.len() as u64;
        if count > 0 {
            let deleted = self.store.delete(old);
            deleted.map_err(FleetError::io("delete from the object store's", folder))?;
        }
        Ok(count)
    }
}

fn name((table, hour): (Table, Hour), server: &str, number: u64) -> PathBuf {
    let file = format!("{}-{server}-{number:010}.parquet", table.name());
    hour.dir(Path::new("tables")).join(file)
}

/// Bytes of a whole file with its checksums.
fn object(
    dir: &Path,
    (table, server, number): (Table, &str, u64),
    rows: HourRows,
) -> Result<Vec<u8>, FleetError> {
    let more = [
        (files::KEY_SERVER, server.to_owned()),
        (files::KEY_INTAKE, number.to_string()),
    ];
    let settings = settings(table.name(), rows.span, &more, LEVEL);
    let path = layout::intake_dir(dir).join("object.tmp");
    let mut new = layout::options();
    let new = new.read(true).write(true).create(true).truncate(true);
    let file = new.open(&path).map_err(FleetError::io("create", &path))?;
    let written = write(file, rows, &settings, &path);
    let bytes = written.and_then(|()| fs::read(&path).map_err(FleetError::io("read", &path)));
    let _ = fs::remove_file(&path);
    bytes
}

fn write(
    file: File,
    rows: HourRows,
    settings: &slowpath_table::Settings,
    path: &Path,
) -> Result<(), FleetError> {
    let written = encode(file, rows.rows, settings, SLICE, &mut || ());
    let written = written.map_err(FleetError::parquet("write", path))?;
    seal(&written, None).map_err(FleetError::io("write the checksums of", path))
}

/// A number of 0..1 that differs from process to process and from try to try.
fn fraction(seed: u64) -> f64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(seed) as f64 / u64::MAX as f64
}

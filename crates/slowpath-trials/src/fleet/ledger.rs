// SPDX-License-Identifier: Apache-2.0
//! What a host's log accepted: copies of its spools, made while they grow and before they can go.

use slowpath_store::spool::{self, Payload, Record, Scan, Stretch};
use slowpath_store::tables::connection_of;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, SystemTime};

/// How often logs are looked at: a spool lasts longer than this by far.
const LOOK: Duration = Duration::from_millis(10);

/// A table of the log that rows are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Interval,
    Connection,
}

/// A row that a log accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accepted {
    /// Where its record begins in its segment.
    pub offset: u64,
    pub kind: Kind,
    pub connection: u64,
}

/// A spool as it was last met.
#[derive(Debug, Default)]
struct Copied {
    length: u64,
    modified: Option<SystemTime>,
    bytes: Vec<u8>,
}

/// Spools of one log, by segment.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    spools: BTreeMap<String, Copied>,
}

impl Ledger {
    /// Copies what is new in a log.
    fn look(&mut self, log: &Path) -> io::Result<()> {
        for folder in ["spool", "ship"] {
            let entries = match fs::read_dir(log.join(folder)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let path = entry?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                if let Some(segment) = name.strip_suffix(".spool") {
                    match self.copy(&path, segment) {
                        // It moved meanwhile.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        copied => copied?,
                    }
                }
            }
        }
        Ok(())
    }

    fn copy(&mut self, path: &Path, segment: &str) -> io::Result<()> {
        let metadata = fs::metadata(path)?;
        let copied = self.spools.entry(segment.to_owned()).or_default();
        let (length, modified) = (metadata.len(), metadata.modified().ok());
        if (copied.length, copied.modified) != (length, modified) {
            copied.bytes = fs::read(path)?;
            (copied.length, copied.modified) = (length, modified);
        }
        Ok(())
    }

    /// All rows, by segment.
    pub(super) fn rows(&self) -> Result<BTreeMap<String, Vec<Accepted>>, Box<dyn Error>> {
        let mut all = BTreeMap::new();
        for (segment, copied) in &self.spools {
            all.insert(segment.clone(), rows_of(&copied.bytes)?);
        }
        Ok(all)
    }
}

fn rows_of(bytes: &[u8]) -> Result<Vec<Accepted>, Box<dyn Error>> {
    let mut rows = Vec::new();
    // Killed before its first record.
    let Ok((header, length)) = spool::header_of(bytes) else {
        return Ok(rows);
    };
    let mut offset = length as u64;
    let mut scan = Scan::new(&bytes[length..]);
    while let Some(stretch) = scan.next()? {
        if let Stretch::Record(raw) = stretch {
            let Payload::Record(record) = raw.decode(header.host.boot_id) else {
                return Err(format!("a record at {offset} makes no sense").into());
            };
            let kind = match record {
                Record::Problem(_) => Some(Kind::Interval),
                Record::Summary(_) => Some(Kind::Connection),
                _ => None,
            };
            if let (Some(kind), Some(connection)) = (kind, connection_of(&record)) {
                rows.push(Accepted {
                    offset,
                    kind,
                    connection: connection.get(),
                });
            }
        }
        offset += stretch.length();
    }
    Ok(rows)
}

/// Ledgers by host.
pub(super) type Ledgers = BTreeMap<String, Ledger>;

/// Looks at logs all the time, until it is dropped.
pub(super) struct Clerk {
    shared: Arc<Mutex<Watched>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Watched {
    logs: BTreeMap<String, PathBuf>,
    ledgers: Ledgers,
    error: Option<String>,
}

impl Watched {
    fn look(&mut self) {
        for (host, log) in &self.logs {
            if let Err(error) = self.ledgers.entry(host.clone()).or_default().look(log) {
                self.error = Some(format!("{}: {error}", log.display()));
            }
        }
    }
}

impl Clerk {
    pub(super) fn start() -> Self {
        let shared = Arc::new(Mutex::new(Watched::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let of_thread = (shared.clone(), stop.clone());
        let thread = spawn(move || {
            while !of_thread.1.load(Ordering::Relaxed) {
                lock(&of_thread.0).look();
                sleep(LOOK);
            }
        });
        Clerk {
            shared,
            stop,
            thread: Some(thread),
        }
    }

    /// Also looks at this host's log from now on.
    pub(super) fn watch(&self, host: &str, log: &Path) {
        lock(&self.shared)
            .logs
            .insert(host.to_owned(), log.to_owned());
    }

    /// Looks once more, and gives what was accepted to `each`.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Ledgers) -> T) -> Result<T, Box<dyn Error>> {
        let mut watched = lock(&self.shared);
        watched.look();
        match watched.error.take() {
            Some(error) => Err(format!("cannot copy a log's spools: {error}").into()),
            None => Ok(read(&watched.ledgers)),
        }
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(watched: &Mutex<Watched>) -> std::sync::MutexGuard<'_, Watched> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

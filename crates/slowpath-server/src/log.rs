// SPDX-License-Identifier: Apache-2.0
//! The fleet's log as where batches go, and the thread that makes tables of them.

use crate::clock::{Clock, DAY_US};
use crate::intake::{Delivery, Intake, IntakeCounts, PositionsReply, Receipt, Reply, StoreStatus};
use crate::journal::Journal;
use crate::status;
use slowpath_fleet::{
    FleetError, IntakeOptions, KeepLimits, ObjectStore, Position, Published, Tables,
};
use slowpath_model::{Micros, WallMicros};
use slowpath_ship::identity::HostName;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often finished intake files are looked for.
const PUBLISH: Duration = Duration::from_secs(2);
/// How often objects are written at most, unless much comes: each is one a table and hour for good.
const OBJECTS: Micros = Micros(300_000_000);
/// How often hours are closed, compacted and deleted, in rounds of publication.
const ROUNDS: u32 = 30;

/// How much of the log is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retention {
    /// Hours that ended longer ago go, microseconds.
    pub age_us: u64,
    /// The tables may have this part of the file system, 0..=1.
    pub disk_share: f64,
}

impl Default for Retention {
    fn default() -> Self {
        Retention {
            age_us: 90 * DAY_US as u64,
            disk_share: 0.8,
        }
    }
}

/// The log of a state directory.
#[derive(Debug)]
pub struct FleetLog {
    intake: slowpath_fleet::Intake,
    /// Its end stops the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    store: Option<Arc<Mutex<StoreStatus>>>,
}

impl FleetLog {
    /// Opens it; the caller has the directory's lock. `server` is the server's id; tables go to `store` as well, if there is one.
    ///
    /// # Errors
    /// It cannot be read, or not be written.
    pub fn open(
        directory: &Path,
        server: &str,
        retention: Retention,
        store: Option<Box<dyn ObjectStore>>,
        (clock, journal): (Clock, Arc<dyn Journal>),
    ) -> Result<Self, FleetError> {
        let mut options = IntakeOptions::default();
        if store.is_some() {
            options.file_age = OBJECTS;
        }
        let intake = slowpath_fleet::Intake::open(directory, options)?;
        let mut tables = Tables::open(directory, server, &intake, clock.now())?;
        let status = store.map(|store| {
            tables.copy_to(store);
            Arc::default()
        });
        let mut keeper = Keeper {
            tables,
            directory: directory.to_owned(),
            retention,
            clock,
            journal,
            last_error: String::new(),
            store: status.clone(),
        };
        let (stop, stopped) = channel::<()>();
        let thread = thread::Builder::new()
            .name("tables".to_owned())
            .spawn(move || {
                let mut round = 0u32;
                while stopped.recv_timeout(PUBLISH) == Err(RecvTimeoutError::Timeout) {
                    let done = keeper.round(round);
                    keeper.report(done);
                    round = round.wrapping_add(1);
                }
            });
        let thread = thread.map_err(|source| FleetError::Io {
            operation: "start a thread for the tables in",
            path: directory.to_owned(),
            source,
        })?;
        Ok(FleetLog {
            intake,
            stop: Some(stop),
            thread: Some(thread),
            store: status,
        })
    }
}

impl Drop for FleetLog {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic of that thread has been printed.
            let _ = thread.join();
        }
    }
}

/// Who makes tables, and deletes the oldest.
struct Keeper {
    tables: Tables,
    directory: PathBuf,
    retention: Retention,
    clock: Clock,
    journal: Arc<dyn Journal>,
    last_error: String,
    store: Option<Arc<Mutex<StoreStatus>>>,
}

impl Keeper {
    fn round(&mut self, round: u32) -> Result<(), FleetError> {
        let published = self.tables.publish()?;
        if published.damaged_bytes > 0 {
            self.journal.warn(&format!(
                "{} of the intake were damaged on the disk and are lost",
                slowpath_text::bytes(published.damaged_bytes)
            ));
        }
        if let Some(store) = &self.store {
            let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(warning) = store.note(published, self.clock.now()) {
                self.journal.warn(&warning);
            }
        }
        if !round.is_multiple_of(ROUNDS) {
            return Ok(());
        }
        let now = self.clock.now();
        self.tables.close_hours(now)?;
        self.tables.compact(now)?;
        let total = status::disk(&self.directory).map_or(u64::MAX, |disk| disk.total_bytes);
        let limits = KeepLimits {
            age: Micros(self.retention.age_us),
            bytes: (total as f64 * self.retention.disk_share) as u64,
        };
        let kept = self.tables.retain(limits, now)?;
        if kept.hours_deleted > 0 {
            self.journal.say(&format!(
                "deleted the oldest {} of the log",
                slowpath_text::plural(kept.hours_deleted, "hour")
            ));
        }
        Ok(())
    }

    /// Once, and again when it is another error.
    fn report(&mut self, done: Result<(), FleetError>) {
        let error = done.map_or_else(|error| error.to_string(), |()| String::new());
        if error != self.last_error && !error.is_empty() {
            self.journal.warn(&error);
        }
        self.last_error = error;
    }
}

impl StoreStatus {
    /// Takes what a round of publication did; gives a line for the journal when the store begins to take nothing, or for
    /// another reason than before. Between two tries nothing is known.
    fn note(&mut self, published: Published, now: WallMicros) -> Option<String> {
        if published.objects > 0 {
            self.objects += published.objects;
            self.last_us = Some(now.0);
            self.error = None;
        }
        let reason = published.store_error?;
        let before = self.error.take();
        let is_new = before.as_ref().is_none_or(|(_, it)| *it != reason);
        let since = before.map_or(now.0, |(since, _)| since);
        let warning = format!("{reason}; the intake waits, and it is tried again");
        self.error = Some((since, reason));
        is_new.then_some(warning)
    }
}

impl Intake for FleetLog {
    fn submit(&self, delivery: Delivery, reply: Reply) {
        let Delivery {
            host,
            address,
            batch,
            received,
        } = delivery;
        let from = (host.as_str(), address.ip());
        let reply = move |receipt| reply(translated(receipt));
        self.intake.submit(from, batch, received, reply);
    }

    fn positions(&self, host: &HostName, ids: Vec<String>, reply: PositionsReply) {
        let reply = move |positions: Vec<Position>| {
            reply(positions.iter().map(|it| (it.offset, it.crc)).collect());
        };
        self.intake.positions(host.as_str(), ids, reply);
    }

    fn tick(&self, now: WallMicros) {
        self.intake.tick(now);
    }

    fn counts(&self) -> IntakeCounts {
        IntakeCounts {
            rows: self.intake.counters().records,
            unpublished_bytes: self.intake.unpublished(),
        }
    }

    fn store(&self) -> Option<StoreStatus> {
        let store = self.store.as_ref()?;
        let store = store.lock().unwrap_or_else(PoisonError::into_inner);
        Some(store.clone())
    }
}

fn translated(receipt: slowpath_fleet::Receipt) -> Receipt {
    use slowpath_fleet::Receipt as Taken;
    match receipt {
        Taken::Flushed(Position { offset, crc, .. }) => Receipt::Flushed { offset, crc },
        Taken::Behind(Position { offset, crc, .. }) => Receipt::Behind { offset, crc },
        Taken::OtherBytes(Position { offset, crc, .. }) => Receipt::OtherBytes { offset, crc },
        // Who was there first is on record, over restarts as well.
        Taken::Clone { .. } => Receipt::Clone,
        Taken::Busy => Receipt::Busy,
        Taken::Full => Receipt::Full,
        Taken::Failed(reason) => Receipt::Failed(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: WallMicros = WallMicros(1_795_000_000_000_000);

    fn round(objects: u64, error: Option<&str>) -> Published {
        Published {
            objects,
            store_error: error.map(str::to_owned),
            ..Published::default()
        }
    }

    #[test]
    fn a_store_that_takes_nothing_is_reported_once_a_reason() {
        let mut store = StoreStatus::default();
        assert_eq!(store.note(round(3, None), AT), None);
        assert_eq!((store.objects, store.last_us), (3, Some(AT.0)));
        let first = store.note(round(0, Some("refused")), AT + Micros(1));
        assert!(first.is_some_and(|text| text.starts_with("refused; ")));
        // A round without a try changes nothing, and what failed before is not reported again.
        assert_eq!(store.note(round(0, None), AT + Micros(2)), None);
        assert_eq!(store.note(round(0, Some("refused")), AT + Micros(3)), None);
        let other = store.note(round(0, Some("no such bucket")), AT + Micros(4));
        assert!(other.is_some());
        let error = Some((AT.0 + 1, "no such bucket".to_owned()));
        assert_eq!(store.error, error);
        assert_eq!(store.note(round(2, None), AT + Micros(5)), None);
        assert_eq!((store.objects, store.error), (5, None));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Several servers and one object store: whatever stops, and however often the store refuses, each row is there once.

mod agents;

use agents::{MIDNIGHT, Random, Segment};
use slowpath_fleet::{
    FleetError, Intake, IntakeOptions, KeepLimits, ObjectStore, Published, Receipt, Tables,
};
use slowpath_model::{Micros, WallMicros};
use slowpath_store::tables::OpenFile;
use slowpath_table::Value;
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

const HOUR: i64 = 3_600_000_000;

/// Objects by name, and how many of the next puts fail.
#[derive(Clone, Default)]
struct Memory {
    objects: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    refusals: Arc<Mutex<u32>>,
}

impl ObjectStore for Memory {
    fn put(&mut self, name: &str, bytes: Vec<u8>) -> io::Result<()> {
        let mut refusals = self.refusals.lock().unwrap();
        if *refusals > 0 {
            *refusals -= 1;
            return Err(io::Error::other("no answer"));
        }
        self.objects.lock().unwrap().insert(name.to_owned(), bytes);
        Ok(())
    }

    fn list(&mut self, prefix: &str) -> io::Result<Vec<String>> {
        let objects = self.objects.lock().unwrap();
        let names = objects.keys().filter(|name| name.starts_with(prefix));
        Ok(names.cloned().collect())
    }

    fn delete(&mut self, names: Vec<String>) -> io::Result<()> {
        let mut objects = self.objects.lock().unwrap();
        objects.retain(|name, _| !names.contains(name));
        Ok(())
    }
}

impl Memory {
    /// The numbers of coverage rows in all objects, as an engine's glob reads them; each file is whole.
    fn rows(&self) -> Vec<i64> {
        let mut rows = Vec::new();
        for (name, bytes) in self.objects.lock().unwrap().iter() {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(bytes).unwrap();
            let open = OpenFile::open(file.path()).expect("is whole");
            open.check().expect("its checksum is right");
            if !name.contains("/coverage-") {
                continue;
            }
            let mut reader = open.reader().rows(&["polls"]).expect("has rows");
            while reader.advance().expect("a row") {
                if let Value::Int(polls) = reader.value(0).expect("a value") {
                    rows.push(polls);
                }
            }
        }
        rows.sort_unstable();
        rows
    }
}

fn ship(random: &mut Random, next: &mut u64, intake: &Intake, host: &str) {
    let now = MIDNIGHT + 10 * HOUR;
    let mut segment = Segment::new(&format!("{host}-{next}"));
    for _ in 0..1 + random.below(30) {
        segment.push_numbered(*next, now - random.below(2 * HOUR as u64) as i64);
        *next += 1;
    }
    segment.ended = true;
    let (sender, receiver) = channel();
    let origin = (host, IpAddr::from([10, 0, 0, 1]));
    intake.submit(
        origin,
        segment.rest(1, 0),
        WallMicros(now),
        move |receipt| {
            drop(sender.send(receipt));
        },
    );
    assert!(matches!(receiver.recv(), Ok(Receipt::Flushed(_))));
    let (sender, receiver) = channel();
    intake.end_file(move || {
        let _ = sender.send(());
    });
    receiver.recv().expect("the file ends");
}

fn open(dir: &Path, server: &str, intake: &Intake, store: &Memory) -> Tables {
    let mut tables = Tables::open(dir, server, intake, WallMicros(MIDNIGHT)).expect("opens");
    tables.copy_to(Box::new(store.clone()));
    tables
}

/// Publishes until the store has everything.
fn publish_all(tables: &mut Tables, intake: &Intake) -> Published {
    let mut sum = Published::default();
    loop {
        let published = tables.publish().expect("is published");
        sum.objects += published.objects;
        sum.store_error = sum.store_error.or(published.store_error);
        if intake.unpublished() == 0 {
            return sum;
        }
        std::thread::yield_now();
    }
}

#[test]
fn two_servers_that_are_stopped_anywhere_write_each_row_once() {
    let store = Memory::default();
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let mut random = Random(7);
    let mut next = 0;
    let mut stops = 0;
    for _ in 0..4 {
        for (dir, server) in dirs.iter().zip(["s1", "s2"]) {
            let intake = Intake::open(dir.path(), IntakeOptions::default()).expect("opens");
            ship(&mut random, &mut next, &intake, &format!("web-{server}"));
            // Stopped before ever later steps, until all are done.
            for stop in 0.. {
                let mut tables = open(dir.path(), server, &intake, &store);
                let mut left = stop;
                tables.stop_before(move |_| {
                    left -= 1;
                    left < 0
                });
                match tables.publish() {
                    Ok(_) => break,
                    Err(FleetError::Stopped(_)) => stops += 1,
                    Err(e) => panic!("{e}"),
                }
            }
            assert!(store.rows().into_iter().eq(0..next as i64));
        }
    }
    assert!(stops > 40, "{stops}");
}

#[test]
fn what_a_store_refuses_waits_and_holds_up_no_local_table() {
    let store = Memory::default();
    let dir = tempfile::tempdir().expect("a directory");
    let intake = Intake::open(dir.path(), IntakeOptions::default()).expect("opens");
    let mut tables = open(dir.path(), "s1", &intake, &store);
    let (mut random, mut next) = (Random(1), 0);
    *store.refusals.lock().unwrap() = 1;
    for _ in 0..3 {
        ship(&mut random, &mut next, &intake, "web-1");
    }
    let first = tables.publish().expect("local tables are written");
    assert_eq!((first.intakes, first.objects), (0, 0));
    assert!(first.records >= next, "{first:?}");
    let error = first.store_error.expect("is stated");
    assert!(
        error.contains("object store") && error.contains("no answer"),
        "{error}"
    );
    assert!(store.rows().is_empty() && intake.unpublished() > 0);
    let rest = publish_all(&mut tables, &intake);
    assert!(rest.objects >= 3 && rest.store_error.is_none(), "{rest:?}");
    assert!(store.rows().into_iter().eq(0..next as i64));
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// What it wrote after that copy was made goes: its hosts send those rows again.
#[test]
fn a_server_restored_from_an_older_copy_has_no_row_twice() {
    let store = Memory::default();
    let [dir, older] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let (mut random, mut next) = (Random(5), 0);
    let round = |dir: &Path, random: &mut Random, next: &mut u64| {
        let intake = Intake::open(dir, IntakeOptions::default()).expect("opens");
        let mut tables = open(dir, "s1", &intake, &store);
        ship(random, next, &intake, "web-1");
        publish_all(&mut tables, &intake);
    };
    for _ in 0..3 {
        round(dir.path(), &mut random, &mut next);
    }
    copy(dir.path(), older.path());
    let known = next;
    for _ in 0..3 {
        round(dir.path(), &mut random, &mut next);
    }
    assert!(store.rows().into_iter().eq(0..next as i64));
    // Its hosts send the same rows, in other batches.
    let sent = next;
    let mut again = known;
    while again < sent {
        round(older.path(), &mut random, &mut again);
    }
    let rows = store.rows();
    assert!(rows.into_iter().eq(0..again as i64), "each once");
}

#[test]
fn old_objects_go_and_those_of_other_servers_stay() {
    let mut store = Memory::default();
    let dir = tempfile::tempdir().expect("a directory");
    let intake = Intake::open(dir.path(), IntakeOptions::default()).expect("opens");
    let mut tables = open(dir.path(), "s1", &intake, &store);
    ship(&mut Random(1), &mut 0, &intake, "web-1");
    publish_all(&mut tables, &intake);
    let theirs = "tables/date=2020-01-01/hour=05/coverage-s2-0000000001.parquet";
    let ours = "tables/date=2020-01-01/hour=05/coverage-s1-0000000001.parquet";
    let other = "tables/date=2020-01-01/notes.txt";
    let young = store.list("tables/").unwrap().len();
    for name in [theirs, ours, other] {
        store.put(name, Vec::new()).unwrap();
    }
    let limits = KeepLimits {
        age: Micros(90 * 24 * HOUR as u64),
        bytes: u64::MAX,
    };
    let now = WallMicros(MIDNIGHT + 11 * HOUR);
    tables.retain(limits, now).expect("old objects are deleted");
    let names = store.list("tables/").unwrap();
    assert!(!names.iter().any(|name| name == ours), "{names:?}");
    assert!(names.iter().any(|name| name == theirs));
    assert_eq!(names.len(), young + 2);
}

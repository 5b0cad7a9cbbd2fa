// SPDX-License-Identifier: Apache-2.0
//! Batches into tables, with stops before every step: each record is read exactly once at any
//! moment, by this crate's reader and from the files themselves.

mod agents;

use agents::{MIDNIGHT, Random, Segment};
use slowpath_fleet::{
    FleetError, FleetReader, Intake, IntakeOptions, KeepLimits, Receipt, Table, Tables,
};
use slowpath_model::{Micros, WallMicros};
use slowpath_store::TimeRange;
use slowpath_store::tables::{LogTable, OpenFile};
use slowpath_table::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

const HOUR: i64 = 3_600_000_000;
const COVERAGE: Table = Table::Log(LogTable::Coverage);
const SERVER: &str = "s1";

fn ship(intake: &Intake, host: &str, segment: &Segment, received: i64) {
    let (sender, receiver) = channel();
    let address = IpAddr::from([10, 0, 0, 1]);
    let batch = segment.rest(1, 0);
    intake.submit(
        (host, address),
        batch,
        WallMicros(received),
        move |receipt| {
            drop(sender.send(receipt));
        },
    );
    match receiver.recv().expect("an answer") {
        Receipt::Flushed(_) => {}
        other => panic!("{other:?}"),
    }
}

fn end_file(intake: &Intake) {
    let (sender, receiver) = channel();
    intake.end_file(move || {
        let _ = sender.send(());
    });
    receiver.recv().expect("the file ends");
}

/// The numbers of coverage records that the reader gives, sorted.
fn read(dir: &Path) -> Vec<i64> {
    let mut rows = Vec::new();
    let reader = FleetReader::new(dir, SERVER);
    let report = reader.each_row(COVERAGE, &["polls", "host"], TimeRange::ALL, |row| {
        if let [Value::Int(polls), Value::Text(_)] = row {
            rows.push(*polls);
        }
    });
    let report = report.expect("can be read");
    assert!(report.unreadable.is_empty(), "{:?}", report.unreadable);
    rows.sort_unstable();
    rows
}

/// All files with a visible name, as an engine's glob finds them.
fn visible(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(dir) else {
        return found;
    };
    for entry in entries {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            found.extend(visible(&path));
        } else if name.ends_with(".parquet") && !name.starts_with('.') {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The numbers in the files themselves, sorted.
fn glob(dir: &Path) -> Vec<i64> {
    let mut rows = Vec::new();
    for path in visible(&dir.join("tables")) {
        if !path.to_string_lossy().contains("/coverage-") {
            continue;
        }
        let file = OpenFile::open(&path).expect("is whole");
        file.check().expect("its checksum is right");
        let mut reader = file.reader().rows(&["polls"]).expect("has rows");
        while reader.advance().expect("a row") {
            if let Value::Int(polls) = reader.value(0).expect("a value") {
                rows.push(polls);
            }
        }
    }
    rows.sort_unstable();
    rows
}

fn distinct(rows: &[i64]) {
    assert!(
        rows.windows(2).all(|pair| pair[0] < pair[1]),
        "a row twice: {rows:?}"
    );
}

/// Draws segments of some hosts that end in several hours.
fn draw(random: &mut Random, next: &mut u64, intake: &Intake, now: i64) {
    for host in ["web-1", "web-2", "db-1"] {
        let mut segment = Segment::new(&format!("b-{next}"));
        for _ in 0..1 + random.below(20) {
            let end = now - random.below(3 * HOUR as u64) as i64;
            segment.push_numbered(*next, end);
            *next += 1;
        }
        if random.below(3) == 0 {
            segment.push_gap(100);
        }
        segment.ended = true;
        ship(intake, host, &segment, now);
    }
}

#[test]
fn a_kill_before_any_step_loses_no_row_and_doubles_none() {
    let mut stops = 0;
    for seed in 0..6 {
        let dir = tempfile::tempdir().expect("a directory");
        let mut random = Random(seed);
        let mut next = 0;
        let mut now = MIDNIGHT + 10 * HOUR;
        for round in 0..6u64 {
            let intake = Intake::open(dir.path(), IntakeOptions::default()).expect("opens");
            draw(&mut random, &mut next, &intake, now);
            let expected: Vec<i64> = (0..next as i64).collect();
            assert_eq!(read(dir.path()), expected);
            end_file(&intake);
            now += HOUR / 3;
            // Stopped before ever later steps, until all are done.
            for stop in 0.. {
                let mut tables =
                    Tables::open(dir.path(), SERVER, &intake, WallMicros(MIDNIGHT)).expect("opens");
                let mut step = 0;
                tables.stop_before(move |_| {
                    step += 1;
                    step > stop
                });
                let mut work = || -> Result<(), FleetError> {
                    tables.publish()?;
                    let later = if round % 2 == 0 { now } else { now + 30 * HOUR };
                    tables.compact(WallMicros(later))?;
                    tables.close_hours(WallMicros(now))?;
                    Ok(())
                };
                let done = work();
                assert_eq!(read(dir.path()), expected, "seed {seed}, stop {stop}");
                let rows = glob(dir.path());
                distinct(&rows);
                match done {
                    Ok(()) => {
                        assert_eq!(rows, expected);
                        break;
                    }
                    Err(FleetError::Stopped(_)) => stops += 1,
                    Err(e) => panic!("{e}"),
                }
            }
        }
    }
    assert!(stops > 100, "{stops}");
}

#[test]
fn rows_lie_in_the_hours_of_their_ends_and_hours_go_oldest_first() {
    let dir = tempfile::tempdir().expect("a directory");
    let intake = Intake::open(dir.path(), IntakeOptions::default()).expect("opens");
    let now = MIDNIGHT + 10 * HOUR + 5;
    let mut segment = Segment::new("b-1");
    let ends = [
        now,
        now - HOUR,
        now - 2 * HOUR,
        now + 3 * HOUR,
        now - 40 * HOUR,
    ];
    for (number, end) in (0..).zip(ends) {
        segment.push_numbered(number, end);
    }
    ship(&intake, "web-1", &segment, now);
    end_file(&intake);
    let mut tables =
        Tables::open(dir.path(), SERVER, &intake, WallMicros(MIDNIGHT)).expect("opens");
    let published = tables.publish().expect("is published");
    assert_eq!((published.intakes, published.records), (1, 5));
    let mut hours: BTreeMap<String, Vec<(i64, bool)>> = BTreeMap::new();
    for path in visible(&dir.path().join("tables")) {
        if !path.to_string_lossy().contains("/coverage-") {
            continue;
        }
        let file = OpenFile::open(&path).expect("is whole");
        let mut rows = file
            .reader()
            .rows(&["polls", "clock_suspect"])
            .expect("has rows");
        while rows.advance().expect("a row") {
            if let (Value::Int(polls), Value::Bool(suspect)) = (
                rows.value(0).expect("a value"),
                rows.value(1).expect("a value"),
            ) {
                let hour = path.parent().and_then(Path::file_name).expect("an hour");
                let hour = hour.to_string_lossy().into_owned();
                hours.entry(hour).or_default().push((polls, suspect));
            }
        }
    }
    let expected = [
        ("hour=08", vec![(2, false)]),
        ("hour=09", vec![(1, false)]),
        ("hour=10", vec![(0, false), (3, true), (4, true)]),
    ];
    let expected = expected.map(|(hour, rows)| (hour.to_owned(), rows));
    hours.values_mut().for_each(|rows| rows.sort_unstable());
    assert_eq!(hours, BTreeMap::from(expected));

    let limits = KeepLimits {
        age: Micros(HOUR as u64),
        bytes: u64::MAX,
    };
    let kept = tables.retain(limits, WallMicros(now)).expect("is retained");
    assert_eq!(kept.hours_deleted, 1);
    assert_eq!(read(dir.path()), [0, 1, 3, 4]);
    let none = KeepLimits { bytes: 0, ..limits };
    assert_eq!(
        tables
            .retain(none, WallMicros(now))
            .expect("is retained")
            .hours_deleted,
        1
    );
    assert_eq!(read(dir.path()), [0, 3, 4], "the newest hour stays");
}

#[test]
fn a_damaged_file_is_named_and_no_row_of_it_is_given() {
    let dir = tempfile::tempdir().expect("a directory");
    let intake = Intake::open(dir.path(), IntakeOptions::default()).expect("opens");
    let now = MIDNIGHT + 10 * HOUR;
    let mut tables =
        Tables::open(dir.path(), SERVER, &intake, WallMicros(MIDNIGHT)).expect("opens");
    for n in 0..2 {
        let mut segment = Segment::new(&format!("b-{n}"));
        segment.push_numbered(n, now - n as i64 * HOUR);
        ship(&intake, "web-1", &segment, now);
        end_file(&intake);
        tables.publish().expect("is published");
    }
    let files = visible(&dir.path().join("tables"));
    let mut coverage = files
        .iter()
        .filter(|path| path.to_string_lossy().contains("/coverage-"));
    let victim = coverage.next_back().expect("is there");
    let mut bytes = std::fs::read(victim).expect("can be read");
    bytes[100] ^= 4;
    std::fs::write(victim, bytes).expect("is written");
    let mut rows = 0;
    let reader = FleetReader::new(dir.path(), SERVER);
    let report = reader.each_row(COVERAGE, &["polls"], TimeRange::ALL, |_| rows += 1);
    let report = report.expect("can be read");
    assert_eq!((rows, report.unreadable.len()), (1, 1));
    assert_eq!(&report.unreadable[0].0, victim);
    // Rows that are added do not hide the damage.
    let mut segment = Segment::new("b-9");
    segment.push_numbered(9, now);
    ship(&intake, "web-1", &segment, now);
    end_file(&intake);
    tables.publish().expect("is published");
    let report = reader.each_row(COVERAGE, &["polls"], TimeRange::ALL, |_| {});
    assert_eq!(report.expect("can be read").unreadable.len(), 1);
}

// SPDX-License-Identifier: Apache-2.0
//! The writer and the reader beside each other, and what may go wrong around them.

mod checkpoints;
mod directory;
mod disk;
#[path = "../records/mod.rs"]
mod records;

use records::{BOOT, HOUR, MIDNIGHT, Random};
use slowpath_model::{Micros, Problem, ProblemInterval, ProblemSet, WallMicros};
use slowpath_store::{
    HostIdentity, IntervalFilter, LogReader, LogWriter, OpenError, Options, Retention, TimeRange,
    retain,
};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn host() -> HostIdentity {
    HostIdentity {
        host: "here".to_owned(),
        boot_id: BOOT,
    }
}

fn open(dir: &Path, options: Options) -> LogWriter {
    LogWriter::open(dir, host(), options).unwrap()
}

/// An interval that the next one is never merged with, distinguished by its cookie.
fn numbered(number: u64, end: i64) -> ProblemInterval {
    let mut interval = Random(number).interval(WallMicros(end));
    interval.connection.cookie = number;
    interval
}

fn cookies(dir: &Path) -> Vec<u64> {
    let read = LogReader::open(dir)
        .unwrap()
        .intervals(TimeRange::ALL, &IntervalFilter::default())
        .unwrap();
    let mut unreadable = read.report.unreadable.iter();
    assert!(unreadable.all(|(path, _)| path.extension() == Some("unreadable".as_ref())));
    let mut cookies: Vec<u64> = read.rows.iter().map(|i| i.connection.cookie).collect();
    cookies.sort_unstable();
    cookies
}

fn files(dir: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else if path.to_string_lossy().ends_with(suffix) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Waits for something that another thread does; the deadline is only for a hung test.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_reader_sees_records_while_the_writer_runs() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path(), Options::default());
    log.problem(&numbered(1, MIDNIGHT));
    // Without `tick` or `sync`: only the batch's age brings it to the disk.
    until("the record is readable", || cookies(dir.path()) == [1]);
    log.problem(&numbered(2, MIDNIGHT));
    assert!(log.sync());
    assert_eq!(cookies(dir.path()), [1, 2]);
    assert_eq!(log.status().records_written, 2);
    assert_eq!(log.close().segments_converted, 1);
    assert_eq!(cookies(dir.path()), [1, 2]);
    assert_eq!(files(dir.path(), ".spool"), [] as [PathBuf; 0]);
}

#[test]
fn hours_become_segments_and_partitions() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path(), Options::default());
    for hour in 0..3 {
        log.tick(WallMicros(MIDNIGHT + hour * HOUR + 5));
        log.problem(&numbered(hour as u64, MIDNIGHT + hour * HOUR + 10));
        log.tick(WallMicros(MIDNIGHT + hour * HOUR + 6));
    }
    let status = log.close();
    assert_eq!(status.segments_converted, 3);
    for hour in ["00", "01", "02"] {
        let partition = dir
            .path()
            .join(format!("date=2026-11-21/hour={hour}/host=here"));
        let names: Vec<String> = files(&partition, ".parquet")
            .iter()
            .map(|p| p.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        let tables: Vec<&str> = names.iter().map(|n| n.split_once('-').unwrap().0).collect();
        assert_eq!(tables, ["connections", "intervals", "problems"]);
    }
    let reader = LogReader::open(dir.path()).unwrap();
    let second = TimeRange {
        from: WallMicros(MIDNIGHT + HOUR + 10),
        to: WallMicros(MIDNIGHT + HOUR + 11),
    };
    // The interval that ends there has no part in what begins there; one microsecond
    // earlier it has.
    let read = reader
        .intervals(second, &IntervalFilter::default())
        .unwrap();
    assert_eq!(read.rows.len(), 0);
    let earlier = TimeRange {
        from: second.from - Micros(1_000),
        ..second
    };
    let read = reader
        .intervals(earlier, &IntervalFilter::default())
        .unwrap();
    assert_eq!(read.rows.len(), 1);
    assert_eq!(read.rows[0].connection.cookie, 1);
}

#[test]
fn filters_choose_by_problem_and_connection() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path(), Options::default());
    let written: Vec<_> = (0..60)
        .map(|i| numbered(i, MIDNIGHT + 1_000 * i as i64))
        .collect();
    for interval in &written[..30] {
        log.problem(interval);
    }
    log.tick(WallMicros(MIDNIGHT + HOUR));
    log.sync();
    for interval in &written[30..] {
        log.problem(interval);
    }
    log.sync();
    let wanted = ProblemSet::EMPTY
        .with(Problem::DelayedAck)
        .with(Problem::Timeout);
    let by_problem = IntervalFilter {
        problems: Some(wanted),
        connections: None,
    };
    let by_connection = IntervalFilter {
        problems: None,
        connections: Some(BTreeSet::from([
            written[3].connection,
            written[44].connection,
        ])),
    };
    let expected = written
        .iter()
        .filter(|i| i.findings.iter().any(|f| wanted.contains(f.problem)))
        .count();
    for _ in 0..2 {
        let reader = LogReader::open(dir.path()).unwrap();
        let read = reader.intervals(TimeRange::ALL, &by_problem).unwrap();
        assert_eq!(read.rows.len(), expected);
        let read = reader.intervals(TimeRange::ALL, &by_connection).unwrap();
        let found: Vec<u64> = read.rows.iter().map(|i| i.connection.cookie).collect();
        assert_eq!(found, [3, 44]);
        // Once from the spool, once from Parquet.
        if log.status().segments_converted == 0 {
            log.tick(WallMicros(MIDNIGHT + 2 * HOUR));
            until("conversion", || log.status().segments_converted > 0);
        }
    }
}

#[test]
fn a_clock_that_jumps_loses_and_overwrites_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path(), Options::default());
    let day = 24 * HOUR;
    // Ahead by a year, back to before 1970, back to the same hour as at first, twice.
    let times = [
        MIDNIGHT,
        MIDNIGHT + 365 * day,
        -day,
        MIDNIGHT,
        MIDNIGHT - 5 * HOUR,
        MIDNIGHT,
    ];
    for (i, now) in times.into_iter().enumerate() {
        log.tick(WallMicros(now));
        log.problem(&numbered(i as u64, now));
    }
    let status = log.close();
    assert_eq!((status.segments_converted, status.last_error), (6, None));
    assert_eq!(cookies(dir.path()), [0, 1, 2, 3, 4, 5]);
    let read = LogReader::open(dir.path())
        .unwrap()
        .intervals(TimeRange::ALL, &IntervalFilter::default())
        .unwrap();
    for interval in &read.rows {
        let stated = times[interval.connection.cookie as usize];
        assert_eq!(interval.end.0, stated, "rows keep the time they state");
    }
    // A second run in the same directory: other segments.
    let before = files(dir.path(), ".parquet").len();
    let mut log = open(dir.path(), Options::default());
    log.tick(WallMicros(MIDNIGHT));
    log.problem(&numbered(6, MIDNIGHT));
    log.close();
    assert_eq!(files(dir.path(), ".parquet").len(), before + 3);
    assert_eq!(cookies(dir.path()), [0, 1, 2, 3, 4, 5, 6]);
    // Rows found by the time they state although their partition has another.
    let mut log = open(dir.path(), Options::default());
    log.tick(WallMicros(MIDNIGHT + 100 * day));
    log.problem(&numbered(7, MIDNIGHT + 50 * day));
    log.close();
    let range = TimeRange {
        from: WallMicros(MIDNIGHT + 50 * day - 1_000),
        to: WallMicros(MIDNIGHT + 50 * day + 1),
    };
    let read = LogReader::open(dir.path())
        .unwrap()
        .intervals(range, &IntervalFilter::default())
        .unwrap();
    assert_eq!(read.rows.len(), 1);
}

#[test]
fn a_conversion_killed_before_the_spool_is_gone_doubles_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path(), Options::default());
    log.tick(WallMicros(MIDNIGHT));
    for i in 0..20 {
        log.problem(&numbered(i, MIDNIGHT + i as i64));
    }
    log.sync();
    let spool = files(dir.path(), ".spool").remove(0);
    let copy = fs::read(&spool).unwrap();
    log.close();
    let all: Vec<u64> = (0..20).collect();
    assert_eq!(cookies(dir.path()), all);
    // As a kill between the last rename and the removal leaves it.
    fs::write(&spool, &copy).unwrap();
    assert_eq!(cookies(dir.path()), all);
    // As one between the renames does, with a temporary file beside.
    let tables = files(dir.path(), ".parquet");
    fs::remove_file(&tables[1]).unwrap();
    let rest = tables[0].with_file_name(".intervals-x.parquet.tmp");
    fs::write(&rest, b"half").unwrap();
    assert_eq!(cookies(dir.path()), all);
    let log = open(dir.path(), Options::default());
    assert_eq!(log.close().segments_converted, 1);
    assert!(!spool.exists() && !rest.exists());
    assert_eq!(files(dir.path(), ".parquet"), tables);
    assert_eq!(cookies(dir.path()), all);
}

#[test]
fn spools_of_killed_writers_are_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path(), Options::default());
    log.problem(&numbered(1, MIDNIGHT));
    log.sync();
    let spool = files(dir.path(), ".spool").remove(0);
    let mut torn = fs::read(&spool).unwrap();
    log.close();
    fs::remove_dir_all(dir.path().join("date=2026-11-21")).ok();
    for path in files(dir.path(), ".parquet") {
        fs::remove_file(path).unwrap();
    }
    let header = torn.len() / 3;
    fs::write(spool.with_file_name("empty.spool"), b"").unwrap();
    fs::write(spool.with_file_name("header.spool"), &torn[..20]).unwrap();
    fs::write(
        spool.with_file_name("other.spool"),
        b"something else entirely",
    )
    .unwrap();
    torn.extend_from_within(header..header + 10);
    fs::write(&spool, &torn).unwrap();

    let log = open(dir.path(), Options::default());
    let status = log.close();
    assert_eq!((status.last_error, status.segments_waiting), (None, 0));
    assert_eq!(
        status.unreadable, 2,
        "a file that is no spool, and bytes after the record"
    );
    assert_eq!(cookies(dir.path()), [1]);
    assert_eq!(files(dir.path(), ".spool"), [] as [PathBuf; 0]);
    let aside = files(dir.path(), ".unreadable");
    assert_eq!(aside.len(), 1, "{aside:?}");
    assert_eq!(fs::read(&aside[0]).unwrap(), b"something else entirely");
}

#[test]
fn a_full_buffer_counts_what_it_drops() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        buffer_bytes: 4_000,
        batch_age: Duration::from_secs(3_600),
        ..Options::default()
    };
    let mut log = open(dir.path(), options);
    let written: Vec<_> = (0..200).map(|i| numbered(i, MIDNIGHT)).collect();
    for interval in &written {
        log.problem(interval);
    }
    let dropped = log.status().records_dropped;
    assert!(dropped > 0 && dropped < 200);
    let status = log.close();
    assert_eq!(status.records_dropped, dropped);
    assert_eq!(status.records_written, 200 - dropped);
    assert_eq!(cookies(dir.path()), (0..200 - dropped).collect::<Vec<_>>());
}

#[test]
fn large_spools_begin_a_new_segment_early() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        segment_bytes: 10_000,
        ..Options::default()
    };
    let mut log = open(dir.path(), options);
    log.tick(WallMicros(MIDNIGHT));
    for i in 0..500 {
        log.problem(&numbered(i, MIDNIGHT));
        if i % 20 == 0 {
            log.sync();
        }
    }
    let status = log.close();
    assert!(status.segments_converted >= 5, "{status:?}");
    assert_eq!(status.spool_bytes, 0);
    assert_eq!(cookies(dir.path()), (0..500).collect::<Vec<_>>());
}

#[test]
fn retention_deletes_the_oldest_whole_hours() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        retention: Retention {
            max_bytes: 400_000,
            max_age: None,
        },
        ..Options::default()
    };
    let mut log = open(dir.path(), options);
    for hour in 0..30 {
        log.tick(WallMicros(MIDNIGHT + hour * HOUR));
        for i in 0..20 {
            log.problem(&numbered(100 * hour as u64 + i, MIDNIGHT + hour * HOUR));
        }
    }
    let status = log.close();
    let bytes = |dir: &Path| -> u64 {
        files(dir, ".parquet")
            .iter()
            .map(|p| fs::metadata(p).unwrap().len())
            .sum()
    };
    assert!(
        status.hours_deleted > 0 && status.last_error.is_none(),
        "{status:?}"
    );
    assert!(bytes(dir.path()) <= 400_000);
    let left = cookies(dir.path());
    let hours: BTreeSet<u64> = left.iter().map(|c| c / 100).collect();
    assert_eq!(
        hours,
        (status.hours_deleted..30).collect(),
        "the newest are there, whole"
    );
    assert_eq!(left.len(), 20 * hours.len());
    assert!(status.hours_deleted < 24 || !dir.path().join("date=2026-11-21").exists());

    // By age: what began an hour before the last is out; never the last.
    let limits = Retention {
        max_bytes: u64::MAX,
        max_age: Some(Duration::from_secs(3_600)),
    };
    let now = WallMicros(MIDNIGHT + 29 * HOUR + 1);
    let done = retain(dir.path(), limits, now).unwrap();
    assert_eq!(done.hours_deleted, hours.len() as u64 - 2);
    assert_eq!(done.bytes_left, bytes(dir.path()));
    let much_later = WallMicros(MIDNIGHT + 3_000 * HOUR);
    retain(dir.path(), limits, much_later).unwrap();
    assert_eq!(cookies(dir.path()).len(), 20);
}

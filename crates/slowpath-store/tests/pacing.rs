// SPDX-License-Identifier: Apache-2.0
//! Conversions that may take but a share of a core.

mod records;

use records::{BOOT, HOUR, MIDNIGHT, Random};
use slowpath_model::WallMicros;
use slowpath_store::{
    CpuShare, HostIdentity, IntervalFilter, LogReader, LogWriter, Options, TimeRange,
};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Intervals in a segment: their conversion takes milliseconds.
const INTERVALS: u64 = 300;

/// A conversion with it would take hours: the first rest comes after a millisecond of CPU
/// time and lasts 1,000 seconds.
fn hardly_any() -> Options {
    Options {
        conversion: Some(CpuShare::of_core(1e-6)),
        ..Options::default()
    }
}

fn open(dir: &Path, options: Options) -> LogWriter {
    let host = HostIdentity {
        host: "here".to_owned(),
        boot_id: BOOT,
    };
    LogWriter::open(dir, host, options).unwrap()
}

/// Writes so many segments, each of an hour, and ends them.
fn write(log: &mut LogWriter, segments: u64) {
    for hour in 0..segments {
        let begins = MIDNIGHT + hour as i64 * HOUR;
        log.tick(WallMicros(begins));
        for i in 0..INTERVALS {
            let number = hour * INTERVALS + i;
            let mut interval = Random(number).interval(WallMicros(begins + 1));
            interval.connection.cookie = number;
            log.problem(&interval);
        }
        assert!(log.sync());
    }
    log.tick(WallMicros(MIDNIGHT + segments as i64 * HOUR));
}

/// The cookies of all intervals that a reader finds.
fn cookies(dir: &Path) -> Vec<u64> {
    let read = LogReader::open(dir)
        .unwrap()
        .intervals(TimeRange::ALL, &IntervalFilter::default())
        .unwrap();
    assert_eq!(read.report.unreadable, []);
    let mut cookies: Vec<u64> = read.rows.iter().map(|i| i.connection.cookie).collect();
    cookies.sort_unstable();
    cookies
}

fn all(segments: u64) -> Vec<u64> {
    (0..segments * INTERVALS).collect()
}

/// Waits for something that another thread does; the deadline is only for a hung test.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::yield_now();
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn closing_ends_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path(), hardly_any());
    write(&mut log, 3);
    until("three segments ended", || {
        log.status().segments_waiting == 3
    });
    // Were the rest not to end, this would not either.
    let status = log.close();
    assert_eq!((status.segments_converted, status.segments_waiting), (3, 0));
    assert_eq!((status.spool_bytes, status.last_error), (0, None));
    assert_eq!(cookies(dir.path()), all(3));
}

#[test]
fn a_kill_during_a_rest_loses_nothing_and_doubles_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path(), hardly_any());
    write(&mut log, 2);
    until("two segments ended", || log.status().segments_waiting == 2);
    assert_eq!(cookies(dir.path()), all(2), "beside the running writer");
    let killed = tempfile::tempdir().unwrap();
    copy(dir.path(), killed.path());
    assert_eq!(cookies(killed.path()), all(2), "after a kill");
    let status = open(killed.path(), Options::default()).close();
    assert_eq!(status.segments_converted, 2);
    assert_eq!(cookies(killed.path()), all(2), "after a recovery");
    assert_eq!(log.status().segments_converted, 0);
    log.close();
}

#[test]
fn too_many_waiting_segments_end_the_restraint() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path(), hardly_any());
    write(&mut log, 20);
    // From 16 waiting ones on: what stays is 15.
    until("five are converted", || {
        log.status().segments_converted >= 5
    });
    assert_eq!(cookies(dir.path()), all(20), "beside the running writer");
    let status = log.close();
    assert_eq!(status.segments_converted, 20);
    assert_eq!(cookies(dir.path()), all(20));
}

/// Paced or not, the same rows.
#[test]
fn a_share_that_is_enough_converts_while_the_writer_runs() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        conversion: Some(CpuShare::of_core(0.5)),
        ..Options::default()
    };
    let mut log = open(dir.path(), options);
    write(&mut log, 2);
    until("both are converted", || {
        log.status().segments_converted == 2
    });
    log.close();
    assert_eq!(cookies(dir.path()), all(2));
}

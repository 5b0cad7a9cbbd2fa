// SPDX-License-Identifier: Apache-2.0
//! A log's directory that goes away in mid-run, and limits that hold while a writer is open.

use crate::*;

fn write(log: &mut LogWriter, numbers: std::ops::Range<u64>) {
    for number in numbers {
        log.problem(&numbered(number, MIDNIGHT));
    }
    assert!(log.sync(), "{:?}", log.status());
}

/// What became of the records: those written first are lost, and the others are there.
fn check(log: LogWriter, dir: &Path) {
    let status = log.status();
    assert_eq!((status.records_dropped, status.records_written), (5, 3));
    assert_eq!(status.last_error, None);
    let [damage] = &status.damage[..] else {
        panic!("{status:?}");
    };
    let text = "records lost with it: 5";
    assert!(damage.contains(text), "{damage}");
    assert_eq!(cookies(dir), [5, 6, 7]);
    let second = LogWriter::open(dir, host(), Options::default());
    assert!(matches!(second.err(), Some(OpenError::Locked { .. })));
    assert_eq!(log.close().last_error, None);
    assert_eq!(cookies(dir), [5, 6, 7]);
}

#[test]
fn a_log_that_is_deleted_is_made_again_and_its_loss_counted() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("log");
    let mut log = open(&dir, Options::default());
    let segment = log.segment();
    write(&mut log, 0..5);
    fs::remove_dir_all(&dir).unwrap();
    write(&mut log, 5..8);
    // Who the connections are must be logged again.
    assert_ne!(log.segment(), segment);
    check(log, &dir);
}

#[test]
fn a_log_in_whose_place_another_directory_is_put_goes_on_there() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("log");
    let mut log = open(&dir, Options::default());
    write(&mut log, 0..5);
    let moved = parent.path().join("moved");
    fs::rename(&dir, &moved).unwrap();
    fs::create_dir(&dir).unwrap();
    write(&mut log, 5..8);
    check(log, &dir);
    assert_eq!(cookies(&moved), [0, 1, 2, 3, 4]);
}

#[test]
fn a_segment_deleted_before_its_conversion_is_no_trouble_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path(), Options::default());
    write(&mut log, 0..5);
    fs::remove_file(&files(dir.path(), ".spool")[0]).unwrap();
    let status = log.close();
    assert_eq!((status.last_error, status.segments_waiting), (None, 0));
    assert!(status.damage[0].contains("deleted"), "{:?}", status.damage);
}

#[test]
fn without_the_lock_file_a_second_writer_leaves_the_first_ones_spool() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path(), Options::default());
    write(&mut log, 0..5);
    fs::remove_file(dir.path().join("lock")).unwrap();
    let second = LogWriter::open(dir.path(), host(), Options::default());
    assert!(matches!(second.err(), Some(OpenError::Locked { .. })));
    fs::remove_file(dir.path().join("lock")).unwrap();
    // The first makes it again as it writes on.
    write(&mut log, 5..8);
    assert!(dir.path().join("lock").exists());
    assert_eq!(log.close().records_dropped, 0);
    assert_eq!(cookies(dir.path()), (0..8).collect::<Vec<_>>());
}

/// `slowpath up` on the log of an agent that ships.
#[test]
fn what_a_shipping_writer_left_waits_although_the_next_ships_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path(), Options::default());
    write(&mut log, 0..5);
    let left = files(dir.path(), ".spool").remove(0);
    let bytes = fs::read(&left).unwrap();
    log.close();
    for path in files(dir.path(), ".parquet") {
        fs::remove_file(path).unwrap();
    }
    // As a kill leaves it, with what was shipped before.
    fs::create_dir(dir.path().join("ship")).unwrap();
    fs::write(&left, &bytes).unwrap();
    let mut log = open(dir.path(), Options::default());
    until("it is converted", || log.status().segments_waiting == 0);
    write(&mut log, 5..8);
    log.close();
    assert_eq!(cookies(dir.path()), (0..8).collect::<Vec<_>>());
    let waiting = files(&dir.path().join("ship"), ".spool");
    assert_eq!(waiting.len(), 1, "only what was left: {waiting:?}");
    assert_eq!(waiting[0].file_name(), left.file_name());
}

fn size(dir: &Path) -> u64 {
    let files = [".parquet", ".spool"].map(|suffix| files(dir, suffix));
    let sizes = files.iter().flatten().map(fs::metadata);
    sizes.map(|m| m.map_or(0, |m| m.len())).sum()
}

/// All of it within one hour, of which only segments can be deleted.
#[test]
fn a_small_limit_holds_within_an_hour() {
    const LIMIT: u64 = 1_000_000;
    let dir = tempfile::tempdir().unwrap();
    let retention = Retention {
        max_bytes: LIMIT,
        max_age: None,
    };
    let options = Options {
        retention,
        ..Options::default()
    };
    let mut log = open(dir.path(), options);
    log.tick(WallMicros(MIDNIGHT));
    let mut written = 0;
    while log.status().parquet_bytes < 3 * LIMIT {
        write(&mut log, written..written + 1_000);
        written += 1_000;
        until("it is converted", || log.status().segments_waiting == 0);
        // Retention runs after the conversion. A spool of a quarter of the limit may have been
        // added since.
        until("what is too much is deleted", || {
            size(dir.path()) <= LIMIT + LIMIT / 4 + (64 << 10)
        });
    }
    log.close();
    assert!(size(dir.path()) <= LIMIT);
    let left = cookies(dir.path());
    assert_eq!(left.last(), Some(&(written - 1)), "the newest are there");
    assert!(left.len() > 100);
}

// SPDX-License-Identifier: Apache-2.0
//! Damage and gaps stay said, also after the next start; what is there twice is read once.

use crate::log::{files, killed_in_its_second_hour, open, read, write};
use crate::records::{MIDNIGHT, Random};
use slowpath_model::{Coverage, Micros, WallMicros};
use slowpath_store::{LogReader, TimeRange};
use std::fs;
use std::path::{Path, PathBuf};

fn only(mut found: Vec<PathBuf>) -> PathBuf {
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

fn table(dir: &Path, name: &str) -> PathBuf {
    let found = files(dir, ".parquet").into_iter();
    let named = |path: &PathBuf| {
        let file = path.file_name().unwrap().to_str().unwrap();
        file.starts_with(name)
    };
    only(found.filter(named).collect())
}

/// The places of the marks at which records begin.
fn records(spool: &[u8]) -> Vec<usize> {
    let pairs = spool.windows(2).enumerate();
    pairs
        .filter(|(_, pair)| *pair == [0xb7, 0x1e])
        .map(|(at, _)| at)
        .collect()
}

#[test]
fn a_spools_damage_is_said_after_every_restart() {
    let dir = tempfile::tempdir().unwrap();
    let spool = killed_in_its_second_hour(dir.path());
    let mut bytes = fs::read(&spool).unwrap();
    let records = records(&bytes);
    // In the middle of a record, with others before and after it.
    let at = (records[3] + records[4]) / 2;
    bytes[at] ^= 4;
    fs::write(&spool, bytes).unwrap();
    let said = read(dir.path());
    let of_spool = said.said_of(&spool);
    assert!(
        of_spool.iter().any(|l| l.contains("1 damaged stretch")),
        "{:?}",
        said.lines
    );
    let segment = spool.file_stem().unwrap().to_str().unwrap().to_owned();
    for restart in 0..3 {
        let status = open(dir.path()).close();
        assert!(!spool.exists());
        if restart == 0 {
            let found = &status.damage;
            assert!(found[0].contains("1 damaged stretch"), "{found:?}");
        }
        let after = read(dir.path());
        assert_eq!(after.count("coverage"), said.count("coverage"));
        let kept = after.lines.iter().filter(|line| line.contains(&segment));
        let kept: Vec<_> = kept.collect();
        assert_eq!(kept.len(), 1, "{:?}", after.lines);
        assert!(kept[0].contains("1 damaged stretch"), "{kept:?}");
    }
}

#[test]
fn a_segment_that_lost_all_its_records_is_said_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let spool = killed_in_its_second_hour(dir.path());
    let mut bytes = fs::read(&spool).unwrap();
    for at in records(&bytes) {
        bytes[at] = 0;
    }
    fs::write(&spool, bytes).unwrap();
    assert_eq!(open(dir.path()).close().last_error, None);
    let segment = spool.file_stem().unwrap().to_str().unwrap();
    let after = read(dir.path());
    let said = after.lines.iter().find(|line| line.contains(segment));
    assert!(said.unwrap().contains("damaged stretch"), "{said:?}");
}

#[test]
fn a_run_that_did_not_close_its_log_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    write(&mut log, 1, 0);
    assert!(log.sync());
    assert_eq!(read(dir.path()).lines, [] as [String; 0], "it is running");
    log.close();
    assert_eq!(
        read(dir.path()).lines,
        [] as [String; 0],
        "it closed the log"
    );

    let dir = tempfile::tempdir().unwrap();
    let spool = killed_in_its_second_hour(dir.path());
    let segment = spool.file_stem().unwrap().to_str().unwrap();
    // The twelfth interval ended 12 minutes after one o'clock.
    let gap = "slowpath ended after 2026-11-21T01:12:00Z without closing the log";
    let names_it = |lines: &[String]| {
        // A segment that is converted between the reading of two tables is named as both.
        assert!((1..=2).contains(&lines.len()), "{lines:?}");
        let names = |line: &String| line.contains(segment) && line.contains(gap);
        assert!(lines.iter().all(names), "{lines:?}");
    };
    names_it(&read(dir.path()).lines);
    // Beside the next run, which has a spool of its own, and after it.
    let mut next = open(dir.path());
    write(&mut next, 3, 2);
    assert!(next.sync());
    names_it(&read(dir.path()).lines);
    let status = next.close();
    names_it(&status.damage);
    names_it(&read(dir.path()).lines);
}

#[test]
fn what_was_set_aside_is_named_by_readers_and_at_each_start() {
    let dir = tempfile::tempdir().unwrap();
    let spool = killed_in_its_second_hour(dir.path());
    let mut bytes = fs::read(&spool).unwrap();
    bytes[30] ^= 1; // in the header
    fs::write(&spool, bytes).unwrap();
    for _ in 0..2 {
        let status = open(dir.path()).close();
        assert_eq!(status.damage.len(), 1, "{:?}", status.damage);
        assert!(status.damage[0].contains("its header is damaged"));
        let aside = only(files(dir.path(), ".spool.unreadable"));
        let said = read(dir.path());
        let said = said.said_of(&aside);
        assert!(said[0].contains("its header is damaged"), "{said:?}");
    }
}

/// A header whose length runs past the end of a short spool is not one that is being written.
#[test]
fn a_short_spool_with_a_damaged_length_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    log.coverage(&Random(1).coverage(WallMicros(MIDNIGHT)));
    assert!(log.sync());
    let spool = only(files(dir.path(), ".spool"));
    let mut bytes = fs::read(&spool).unwrap();
    log.close();
    fs::remove_file(table(dir.path(), "coverage-")).unwrap();
    assert!(bytes.len() < 512, "{}", bytes.len());
    // The length of the header's rest, 512 more.
    bytes[13] ^= 2;
    fs::write(&spool, &bytes).unwrap();
    assert!(!read(dir.path()).said_of(&spool).is_empty());
    open(dir.path()).close();
    let aside = only(files(dir.path(), ".spool.unreadable"));
    assert_eq!(fs::read(aside).unwrap(), bytes);
}

/// A copy that was made while the writer went on has fewer records: it must not replace them.
#[test]
fn a_copied_spool_replaces_nothing() {
    for name in ["0", "copy"] {
        let dir = tempfile::tempdir().unwrap();
        let spool = killed_in_its_second_hour(dir.path());
        let whole = read(dir.path());
        let bytes = fs::read(&spool).unwrap();
        let part = &bytes[..records(&bytes)[6]];
        let copy = spool.with_file_name(format!("{name}.spool"));
        fs::write(&copy, part).unwrap();
        assert_eq!(open(dir.path()).close().last_error, None);
        let after = read(dir.path());
        assert_eq!(after.count("coverage"), whole.count("coverage"));
        assert_eq!(after.count("intervals"), whole.count("intervals"));
        assert!(!after.said_of(&copy).is_empty(), "{:?}", after.lines);
    }
}

#[test]
fn a_missing_file_is_named_with_what_it_hides() {
    for (lost, table_hidden) in [
        ("connections-", "intervals"),
        ("problems-", "intervals"),
        ("intervals-", "intervals"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut log = open(dir.path());
        write(&mut log, 1, 0);
        log.close();
        let whole = read(dir.path());
        assert_eq!(whole.count(table_hidden), 12);
        let path = table(dir.path(), lost);
        fs::remove_file(&path).unwrap();
        let found = read(dir.path());
        assert_eq!(found.count(table_hidden), 0);
        assert!(!found.said_of(&path).is_empty(), "{:?}", found.lines);
        assert_eq!(found.count("coverage"), whole.count("coverage"));
    }
}

#[test]
fn a_copied_file_is_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let spool = killed_in_its_second_hour(dir.path());
    let whole = read(dir.path());
    let mut copies = Vec::new();
    for path in files(dir.path(), ".parquet") {
        let other_hour = dir.path().join("date=2026-11-21/hour=05/host=here");
        fs::create_dir_all(&other_hour).unwrap();
        let copy = other_hour.join(path.file_name().unwrap());
        fs::copy(&path, &copy).unwrap();
        copies.push(copy);
        let name = path.file_name().unwrap().to_str().unwrap();
        let copy = path.with_file_name(name.replace(".parquet", ".copy.parquet"));
        fs::copy(&path, &copy).unwrap();
        copies.push(copy);
    }
    let copy = spool.with_file_name("copy.spool");
    fs::copy(&spool, &copy).unwrap();
    let found = read(dir.path());
    assert_eq!(found.rows, whole.rows);
    let said = |line: &&String| line.contains("copy of");
    // The tables that are read, three times each, but problems, which belong to intervals.
    let expected = 2 * 5 + 1;
    assert_eq!(
        found.lines.iter().filter(said).count(),
        expected,
        "{found:?}"
    );
}

/// An intact copy stands in for a file that is damaged.
#[test]
fn of_a_damaged_file_and_its_copy_the_copy_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    write(&mut log, 1, 0);
    log.close();
    let whole = read(dir.path());
    let path = table(dir.path(), "coverage-");
    let name = path.file_name().unwrap().to_str().unwrap();
    let copy = path.with_file_name(name.replace(".parquet", "~.parquet"));
    fs::copy(&path, copy).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[40] ^= 1;
    fs::write(&path, bytes).unwrap();
    let found = read(dir.path());
    assert_eq!(found.rows, whole.rows);
    assert_eq!(found.said_of(&path).len(), 1);
}

/// As an agent logs it: five seconds each, and every minute a record that states the rest.
#[test]
fn stretches_of_coverage_are_one_row_a_minute_and_their_sum_in_the_spool() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    let at = |seconds: i64| WallMicros(MIDNIGHT + 1_000_000 * seconds);
    log.tick(at(0));
    // Two whole minutes, and 25 s of a third one, in which the agent is killed.
    for stretch in 1..=29 {
        let is_minute = stretch % 12 == 0;
        let record = Coverage {
            end: at(5 * stretch),
            duration: Micros(5_000_000),
            polls: 50,
            sockets: stretch as u64,
            missed: u64::from(is_minute),
            cpu: Micros(u64::from(is_minute)),
            ..Coverage::default()
        };
        log.coverage(&record);
    }
    assert!(log.sync());
    let sums = || {
        let log = LogReader::open(dir.path()).unwrap();
        let rows = log.coverage(TimeRange::ALL).unwrap().rows;
        let sum = |of: fn(&Coverage) -> u64| rows.iter().map(of).sum::<u64>();
        let sums = [
            sum(|c| c.duration.0),
            sum(|c| c.polls),
            sum(|c| c.missed),
            sum(|c| c.cpu.0),
        ];
        (rows, sums)
    };
    let expected = [145_000_000, 29 * 50, 2, 2];
    let (rows, spooled) = sums();
    assert_eq!((rows.len(), spooled), (29, expected));
    log.close();
    let (rows, archived) = sums();
    assert_eq!(archived, expected);
    let ends: Vec<_> = rows.iter().map(|c| (c.end, c.sockets)).collect();
    assert_eq!(ends, [(at(60), 12), (at(120), 24), (at(145), 29)]);
}

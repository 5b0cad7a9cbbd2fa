// SPDX-License-Identifier: Apache-2.0
//! Files and disks that do not do what they should.

use crate::*;

#[test]
fn unreadable_files_are_named_and_the_rest_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path(), Options::default());
    for hour in 0..3 {
        log.tick(WallMicros(MIDNIGHT + hour * HOUR));
        log.problem(&numbered(hour as u64, MIDNIGHT + hour * HOUR));
    }
    log.close();
    let tables = files(dir.path(), ".parquet");
    let broken = tables
        .iter()
        .find(|p| p.to_string_lossy().contains("hour=01/host=here/int"));
    let broken = broken.unwrap();
    let mut bytes = fs::read(broken).unwrap();
    bytes.truncate(bytes.len() / 2);
    fs::write(broken, bytes).unwrap();
    let read = LogReader::open(dir.path())
        .unwrap()
        .intervals(TimeRange::ALL, &IntervalFilter::default())
        .unwrap();
    let found: Vec<u64> = read.rows.iter().map(|i| i.connection.cookie).collect();
    assert_eq!(found, [0, 2]);
    assert_eq!(read.report.unreadable.len(), 1);
    assert_eq!(&read.report.unreadable[0].0, broken);
}

#[test]
fn a_second_writer_gets_the_holder_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path(), Options::default());
    let error = LogWriter::open(dir.path(), host(), Options::default())
        .err()
        .unwrap();
    assert!(
        matches!(error, OpenError::Locked { holder: Some(pid), .. } if pid == std::process::id())
    );
    let text = error.to_string();
    assert!(
        text.contains(&*dir.path().to_string_lossy()) && text.contains("another slowpath"),
        "{text}"
    );
    first.close();
    open(dir.path(), Options::default()).close();
}

#[test]
fn a_path_that_cannot_be_a_directory_is_named_with_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    let error = LogWriter::open(&file.join("log"), host(), Options::default())
        .err()
        .unwrap();
    let text = error.to_string();
    assert!(text.starts_with("cannot create the directory"), "{text}");
    assert!(
        text.contains("file/log") && text.contains("another directory"),
        "{text}"
    );
    let error = LogReader::open(&dir.path().join("none"))
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("cannot open the log in"), "{error}");
}

/// A file system of its own for one test; `None`, with the reason printed, where that
/// cannot be had.
fn mounted(test: &str, options: &str) -> Option<Mounted> {
    let dir = tempfile::tempdir().unwrap();
    let done = rustix::mount::mount(
        "sp-store-test",
        dir.path(),
        "tmpfs",
        rustix::mount::MountFlags::empty(),
        &*std::ffi::CString::new(options).unwrap(),
    );
    match done {
        Ok(()) => Some(Mounted(dir)),
        Err(e) => {
            println!("SKIPPED {test}: cannot mount a tmpfs: {e}");
            None
        }
    }
}

struct Mounted(tempfile::TempDir);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_disk_is_waited_for() {
    let Some(disk) = mounted("a_full_disk_is_waited_for", "size=256k") else {
        return;
    };
    let dir = disk.0.path().join("log");
    let mut log = open(&dir, Options::default());
    log.problem(&numbered(0, MIDNIGHT));
    assert!(log.sync());
    // Fill the disk.
    let filler = disk.0.path().join("filler");
    let mut size = 256 << 10;
    while size > 0 && fs::write(&filler, vec![1; size]).is_err() {
        size -= 4096;
    }
    let written: Vec<_> = (1..200).map(|i| numbered(i, MIDNIGHT)).collect();
    for interval in &written {
        log.problem(interval);
    }
    assert!(!log.sync(), "the disk is full");
    let status = log.status();
    let error = status.last_error.unwrap();
    assert!(
        error.contains("cannot write the spool") && error.contains("free space"),
        "{error}"
    );
    assert_eq!(status.records_dropped, 0, "they wait");
    fs::remove_file(&filler).unwrap();
    until("the disk takes them", || log.sync());
    assert_eq!(log.status().last_error, None);
    assert_eq!(cookies(&dir), (0..200).collect::<Vec<_>>());
    let status = log.close();
    assert_eq!((status.records_dropped, status.last_error), (0, None));
    assert_eq!(cookies(&dir), (0..200).collect::<Vec<_>>());
}

#[test]
fn a_disk_that_stays_full_costs_what_was_not_written() {
    let Some(disk) = mounted(
        "a_disk_that_stays_full_costs_what_was_not_written",
        "size=128k",
    ) else {
        return;
    };
    let dir = disk.0.path().to_owned();
    let options = Options {
        buffer_bytes: 100_000,
        ..Options::default()
    };
    let mut log = open(&dir, options);
    let mut full = false;
    for i in 0..5_000 {
        log.problem(&numbered(i, MIDNIGHT));
        if i % 100 == 0 && !full {
            full = !log.sync();
        }
    }
    let status = log.close();
    assert!(
        status.records_dropped > 0 && status.last_error.is_some(),
        "{status:?}"
    );
    assert_eq!(status.records_written + status.records_dropped, 5_000);
    let reader = LogReader::open(&dir).unwrap();
    let read = reader
        .intervals(TimeRange::ALL, &IntervalFilter::default())
        .unwrap();
    assert_eq!(read.report.unreadable, []);
    // What was written in part, at the end, is also readable.
    assert!(
        read.rows.len() as u64 >= status.records_written,
        "{status:?}"
    );
    let distinct: BTreeSet<u64> = read.rows.iter().map(|i| i.connection.cookie).collect();
    assert_eq!(distinct.len(), read.rows.len());
}

#[test]
fn a_read_only_disk_is_refused_at_once() {
    let Some(disk) = mounted("a_read_only_disk_is_refused_at_once", "size=64k,ro") else {
        return;
    };
    let error = LogWriter::open(&disk.0.path().join("log"), host(), Options::default())
        .err()
        .unwrap()
        .to_string();
    assert!(error.starts_with("cannot create the directory"), "{error}");
    assert!(error.contains("may write to"), "{error}");
}

#[test]
fn on_a_full_disk_retention_makes_space() {
    let Some(disk) = mounted("on_a_full_disk_retention_makes_space", "size=1m") else {
        return;
    };
    let dir = disk.0.path().join("log");
    let mut log = open(&dir, Options::default());
    for hour in 0..3 {
        log.tick(WallMicros(MIDNIGHT + hour * HOUR));
        log.problem(&numbered(hour as u64, MIDNIGHT + hour * HOUR));
    }
    log.close();
    let filler = disk.0.path().join("filler");
    let mut size = 1 << 20;
    while size > 0 && fs::write(&filler, vec![1; size]).is_err() {
        size -= 4096;
    }
    let options = Options {
        retention: Retention {
            max_bytes: 1,
            max_age: None,
        },
        ..Options::default()
    };
    let log = open(&dir, options);
    until("old hours are deleted", || log.status().hours_deleted == 2);
    log.close();
    assert_eq!(cookies(&dir), [2]);
}

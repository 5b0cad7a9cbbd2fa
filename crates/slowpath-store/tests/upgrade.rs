// SPDX-License-Identifier: Apache-2.0
//! docs/guide/upgrade.md: a log of every released version is continued by this one, and what a
//! downgrade set aside comes back.

mod records;

use records::{BOOT, Random};
use serde_json::Value;
use slowpath_model::WallMicros;
use slowpath_store::{
    HostIdentity, IntervalFilter, LogReader, LogWriter, Options, SCHEMA_VERSION, TimeRange,
};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Later than anything in a released log.
const LATER: i64 = 4_000_000_000_000_000;
/// A cookie that none of them has.
const NEW: u64 = 1 << 40;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn spools(log: &Path) -> Vec<PathBuf> {
    let spools = fs::read_dir(log.join("spool")).unwrap();
    let mut spools: Vec<PathBuf> = spools.map(|entry| entry.unwrap().path()).collect();
    spools.sort();
    spools
}

/// Continues the log with one interval and closes it.
fn write_on(log: &Path, cookie: u64) {
    let host = HostIdentity {
        host: "fixture".to_owned(),
        boot_id: BOOT,
    };
    let mut writer = LogWriter::open(log, host, Options::default()).unwrap();
    writer.tick(WallMicros(LATER));
    let mut interval = Random(cookie).interval(WallMicros(LATER));
    interval.connection.cookie = cookie;
    writer.problem(&interval);
    let status = writer.close();
    assert_eq!(
        (status.last_error, status.unreadable, status.records_dropped),
        (None, 0, 0)
    );
}

/// The cookies of all intervals, each of which was read whole, but for spools that are aside.
fn cookies(log: &Path) -> BTreeSet<u64> {
    let reader = LogReader::open(log).unwrap();
    let is_aside = |(path, _): &(PathBuf, String)| path.extension() == Some("unreadable".as_ref());
    let read = reader
        .intervals(TimeRange::ALL, &IntervalFilter::default())
        .unwrap();
    assert!(read.report.unreadable.iter().all(is_aside));
    assert_eq!((read.report.corrupt, read.report.not_understood), (0, 0));
    let connections = reader.connections(TimeRange::ALL).unwrap();
    assert!(connections.report.unreadable.iter().all(is_aside));
    read.rows.iter().map(|i| i.connection.cookie).collect()
}

/// Each released log, copied, and the cookies of its intervals.
fn released() -> Vec<(tempfile::TempDir, PathBuf, BTreeSet<u64>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/released");
    fs::read_dir(root)
        .unwrap()
        .map(|entry| {
            let from = entry.unwrap().path();
            let text = fs::read_to_string(from.join("expected.json")).unwrap();
            let expected: Value = serde_json::from_str(&text).unwrap();
            let cookies = expected["intervals"].as_array().unwrap().iter();
            let cookies = cookies.map(|i| i["cookie"].as_u64().unwrap()).collect();
            let dir = tempfile::tempdir().unwrap();
            let log = dir.path().join("log");
            copy(&from, &log);
            (dir, log, cookies)
        })
        .collect()
}

#[test]
fn a_released_log_is_continued() {
    for (_dir, log, mut expected) in released() {
        assert_eq!(cookies(&log), expected, "before: {}", log.display());
        write_on(&log, NEW);
        expected.insert(NEW);
        assert_eq!(cookies(&log), expected);
        assert_eq!(spools(&log), [] as [PathBuf; 0], "all of it is in Parquet");
    }
}

#[test]
fn what_an_older_version_set_aside_comes_back() {
    for (_dir, log, mut expected) in released() {
        let [spool] = spools(&log).try_into().expect("one spool");
        let mut aside = spool.clone().into_os_string();
        aside.push(".unreadable");
        fs::rename(&spool, aside).unwrap();
        assert!(
            cookies(&log).len() < expected.len(),
            "the older version read the rest"
        );
        write_on(&log, NEW);
        expected.insert(NEW);
        assert_eq!(cookies(&log), expected);
        assert_eq!(spools(&log), [] as [PathBuf; 0]);
    }
}

#[test]
fn a_newer_spool_is_kept_aside_whole() {
    for (_dir, log, mut expected) in released() {
        let [spool] = spools(&log).try_into().expect("one spool");
        let in_spool: BTreeSet<u64> = {
            let only = log.with_file_name("only");
            copy(&log.join("spool"), &only.join("spool"));
            cookies(&only)
        };
        let mut bytes = fs::read(&spool).unwrap();
        // The schema's version stands after the magic and the framing's version.
        bytes[10..12].copy_from_slice(&(SCHEMA_VERSION + 1).to_le_bytes());
        fs::write(&spool, &bytes).unwrap();
        let host = HostIdentity {
            host: "fixture".to_owned(),
            boot_id: BOOT,
        };
        let status = LogWriter::open(&log, host, Options::default())
            .unwrap()
            .close();
        assert_eq!((status.last_error, status.unreadable), (None, 1));
        expected.retain(|cookie| !in_spool.contains(cookie));
        assert_eq!(cookies(&log), expected, "the others are read");
        let [aside] = spools(&log).try_into().expect("one spool set aside");
        assert!(aside.to_str().unwrap().ends_with(".spool.unreadable"));
        assert_eq!(fs::read(aside).unwrap(), bytes);
        // Another start does not touch it either.
        write_on(&log, NEW);
        assert_eq!(spools(&log).len(), 1);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What connections carried comes back as it was written, from the spool and from Parquet.

mod records;

use records::{BOOT, HOUR, MIDNIGHT, Random};
use slowpath_model::{Micros, TrafficInterval, WallMicros};
use slowpath_store::{HostIdentity, LogReader, LogWriter, Options, TimeRange};
use std::fs;
use std::path::Path;

/// Two hours of traffic of some connections, one with unknown counts.
fn write(log: &mut LogWriter) -> Vec<TrafficInterval> {
    let mut random = Random(7);
    let mut written = Vec::new();
    for hour in 0..2 {
        let begun = WallMicros(MIDNIGHT + hour * HOUR);
        log.tick(begun);
        for cookie in 0..50 {
            let mut id = random.connection(10);
            id.cookie = cookie;
            let end = begun + Micros(1_000 * cookie);
            let traffic = TrafficInterval {
                connection: id,
                end,
                duration: Micros(random.below(HOUR as u64)),
                data_segments_out: (cookie != 3).then(|| random.below(1 << 40)),
                data_segments_in: Some(random.below(100)),
                retransmitted: Some(random.below(3)),
            };
            assert!(log.traffic_of(&random.summary(id, end), &traffic));
            written.push(traffic);
        }
    }
    written.sort_by_key(|t| (t.end, t.connection));
    written
}

fn open(dir: &Path) -> LogWriter {
    let host = HostIdentity {
        host: "test".into(),
        boot_id: BOOT,
    };
    LogWriter::open(dir, host, Options::default()).unwrap()
}

fn read(dir: &Path, range: TimeRange) -> Vec<TrafficInterval> {
    let read = LogReader::open(dir).unwrap().traffic(range).unwrap();
    assert_eq!(
        (&read.report.unreadable[..], read.report.corrupt),
        (&[][..], 0)
    );
    read.rows
}

#[test]
fn traffic_is_read_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    let written = write(&mut log);
    assert!(log.sync());
    // The second hour is in its spool.
    assert_eq!(read(dir.path(), TimeRange::ALL), written);
    assert_eq!(log.close().last_error, None);
    assert_eq!(read(dir.path(), TimeRange::ALL), written);
    let range = TimeRange {
        from: WallMicros(MIDNIGHT + HOUR + 40_000),
        to: WallMicros(i64::MAX),
    };
    let part: Vec<_> = written
        .iter()
        .filter(|t| t.end > range.from)
        .copied()
        .collect();
    assert!(!part.is_empty() && part.len() < 20);
    assert_eq!(read(dir.path(), range), part);
}

#[test]
fn traffic_without_its_connections_is_not_given_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    write(&mut log);
    log.close();
    let hour = dir.path().join("date=2026-11-21/hour=00/host=test");
    let mut files = fs::read_dir(&hour)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let of_connections =
        |path: &std::path::PathBuf| path.to_string_lossy().contains("/connections-");
    fs::remove_file(files.find(of_connections).unwrap()).unwrap();
    let reader = LogReader::open(dir.path()).unwrap();
    let traffic = reader.traffic(TimeRange::ALL).unwrap();
    assert_eq!(traffic.rows.len(), 50);
    assert_eq!(traffic.report.unreadable.len(), 1);
    let connections = reader.connections(TimeRange::ALL).unwrap();
    let [(path, reason)] = &connections.report.unreadable[..] else {
        panic!("{:?}", connections.report);
    };
    assert!(path.to_string_lossy().contains("connections-") && reason.contains("traffic"));
}

// SPDX-License-Identifier: Apache-2.0
//! Checkpoints of connections that live on.

use crate::*;

/// A copy of a log as a kill at this moment would leave it.
fn as_killed(dir: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for path in files(dir, "") {
        let to = copy.path().join(path.strip_prefix(dir).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(&path, &to).unwrap();
    }
    copy
}

#[test]
fn checkpoints_wait_for_their_turn_and_are_never_missing() {
    const CONNECTIONS: u64 = 40;
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(5);
    let mut log = open(dir.path(), Options::default());
    log.tick(WallMicros(MIDNIGHT));
    // Old connections that live and fall silent after this one checkpoint.
    let mut summaries = Vec::new();
    for cookie in 0..CONNECTIONS {
        let mut id = random.connection(1);
        id.cookie = cookie;
        let mut summary = random.summary(id, WallMicros(MIDNIGHT + cookie as i64));
        summary.closed = false;
        summary.first_observed = WallMicros(MIDNIGHT - 2 * HOUR);
        summary.polls = cookie + 1;
        log.summary(&summary);
        summaries.push(summary);
    }
    let all: Vec<u64> = (0..CONNECTIONS).collect();
    let found = |dir: &Path| -> Vec<u64> {
        let read = LogReader::open(dir)
            .unwrap()
            .connections(TimeRange::ALL)
            .unwrap();
        assert_eq!(read.report.unreadable, []);
        let mut cookies: Vec<u64> = read.rows.iter().map(|s| s.connection.cookie).collect();
        for summary in &read.rows {
            let written = &summaries[summary.connection.cookie as usize];
            assert_eq!(
                (summary.tuple, summary.polls),
                (written.tuple, written.polls)
            );
        }
        cookies.sort_unstable();
        cookies
    };
    let mut in_parquet = Vec::new();
    for hour in 1..=5 {
        log.tick(WallMicros(MIDNIGHT + hour * HOUR));
        log.problem(&numbered(hour as u64, MIDNIGHT + hour * HOUR));
        assert!(log.sync());
        until("the hour is converted", || {
            log.status().segments_converted == hour as u64
        });
        assert_eq!(found(dir.path()), all, "beside the running writer");
        let killed = as_killed(dir.path());
        assert_eq!(found(killed.path()), all, "after a kill");
        open(killed.path(), Options::default()).close();
        assert_eq!(found(killed.path()), all, "after a recovery");
        let parquet_only = as_killed(dir.path());
        fs::remove_dir_all(parquet_only.path().join("spool")).unwrap();
        in_parquet.push(found(parquet_only.path()).len() as u64);
    }
    let quarter = CONNECTIONS / 4;
    assert_eq!(
        in_parquet[..4],
        [quarter, 2 * quarter, 3 * quarter, CONNECTIONS]
    );
    let status = log.close();
    assert_eq!((status.last_error, status.records_dropped), (None, 0));
    assert_eq!(
        status.records_written,
        CONNECTIONS + 5,
        "carrying counts nothing twice"
    );
    assert_eq!(found(dir.path()), all);
}

#[test]
fn a_later_checkpoint_replaces_an_earlier_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(9);
    let id = random.connection(1 << 30);
    let mut first = random.summary(id, WallMicros(MIDNIGHT));
    first.closed = false;
    first.polls = 10;
    let mut second = first.clone();
    second.polls = 20;
    second.last_observed = WallMicros(MIDNIGHT + 5);
    let mut last = second.clone();
    last.closed = true;

    let mut log = open(dir.path(), Options::default());
    // Within one segment, over segments, and out of order.
    log.summary(&second);
    log.summary(&first);
    log.tick(WallMicros(MIDNIGHT + HOUR));
    log.summary(&first);
    log.sync();
    let polls = |expected: u64, closed: bool| {
        let read = LogReader::open(dir.path())
            .unwrap()
            .connections(TimeRange::ALL)
            .unwrap();
        assert_eq!(read.rows.len(), 1);
        assert_eq!(
            (read.rows[0].polls, read.rows[0].closed),
            (expected, closed)
        );
    };
    polls(20, false);
    log.tick(WallMicros(MIDNIGHT + 2 * HOUR));
    log.summary(&last);
    log.sync();
    polls(20, true);
    log.close();
    polls(20, true);
}

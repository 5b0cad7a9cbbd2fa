// SPDX-License-Identifier: Apache-2.0
//! Checkpoints of connections that live on, and who the connections of a segment are.

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
fn a_segment_says_who_its_connections_are() {
    const CONNECTIONS: u64 = 9;
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(5);
    // Segments end by their size too.
    let options = Options {
        segment_bytes: 4_000,
        ..Options::default()
    };
    let mut log = open(dir.path(), options);
    log.tick(WallMicros(MIDNIGHT));
    let summaries: Vec<_> = (0..CONNECTIONS)
        .map(|cookie| {
            let mut id = random.connection(1);
            id.cookie = cookie;
            random.summary(id, WallMicros(MIDNIGHT))
        })
        .collect();
    let mut summarised_in = [0; CONNECTIONS as usize];
    for number in 0..400 {
        let which = random.below(CONNECTIONS) as usize;
        let mut interval = random.interval(WallMicros(MIDNIGHT + number));
        interval.connection = summaries[which].connection;
        let segment = log.segment();
        if summarised_in[which] == segment {
            log.problem(&interval);
        } else {
            summarised_in[which] = segment;
            assert!(log.problem_of(&summaries[which], &interval));
        }
        log.sync();
    }
    let check = |dir: &Path| {
        let mut segments = 0;
        for intervals in files(dir, ".parquet") {
            let name = intervals
                .file_name()
                .unwrap()
                .to_string_lossy()
                .into_owned();
            let Some(segment) = name.strip_prefix("intervals-") else {
                continue;
            };
            // A log of this segment only.
            let one = tempfile::tempdir().unwrap();
            for path in files(dir, segment) {
                let to = one.path().join(path.strip_prefix(dir).unwrap());
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                fs::copy(&path, &to).unwrap();
            }
            let reader = LogReader::open(one.path()).unwrap();
            let read = reader.connections(TimeRange::ALL).unwrap();
            let who: BTreeSet<_> = read.rows.iter().map(|s| s.connection).collect();
            let read = reader
                .intervals(TimeRange::ALL, &IntervalFilter::default())
                .unwrap();
            assert!(read.rows.iter().all(|i| who.contains(&i.connection)));
            segments += 1;
        }
        segments
    };
    let killed = as_killed(dir.path());
    open(killed.path(), Options::default()).close();
    assert!(check(killed.path()) > 5);
    assert_eq!(log.close().last_error, None);
    assert!(check(dir.path()) > 5);
}

#[test]
fn a_checkpoint_is_in_parquet_with_its_segment() {
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
    let found = |dir: &Path| {
        let read = LogReader::open(dir)
            .unwrap()
            .connections(TimeRange::ALL)
            .unwrap();
        assert_eq!(read.report.unreadable, []);
        let mut rows = read.rows;
        rows.sort_by_key(|s| s.connection.cookie);
        rows
    };
    for hour in 1..=3 {
        log.tick(WallMicros(MIDNIGHT + hour * HOUR));
        log.problem(&numbered(1_000, MIDNIGHT + hour * HOUR));
        assert!(log.sync());
        until("the hour is converted", || {
            log.status().segments_converted == hour as u64
        });
        assert_eq!(found(dir.path()), summaries, "beside the running writer");
        let killed = as_killed(dir.path());
        assert_eq!(found(killed.path()), summaries, "after a kill");
        open(killed.path(), Options::default()).close();
        assert_eq!(found(killed.path()), summaries, "after a recovery");
        let parquet_only = as_killed(dir.path());
        fs::remove_dir_all(parquet_only.path().join("spool")).unwrap();
        assert_eq!(found(parquet_only.path()), summaries);
    }
    let status = log.close();
    assert_eq!((status.last_error, status.records_dropped), (None, 0));
    assert_eq!(status.records_written, CONNECTIONS + 3);
    assert_eq!(found(dir.path()), summaries);
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

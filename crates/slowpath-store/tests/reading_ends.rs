// SPDX-License-Identifier: Apache-2.0
//! A reader that is stopped gives no further row; identities are those of the summaries.

mod records;

use records::{BOOT, MIDNIGHT, Random};
use slowpath_model::{ConnectionSummary, WallMicros};
use slowpath_store::{
    ConnectionIdentity, ConnectionNumber, HostIdentity, IntervalFilter, LogReader, LogWriter,
    Options, TimeRange, summary_rank,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const RECORDS: u64 = 300;

/// Random intervals and summaries of 50 connections, in the spool as long as the writer lives.
fn written(dir: &Path) -> LogWriter {
    let host = HostIdentity {
        host: "here".to_owned(),
        boot_id: BOOT,
    };
    let mut log = LogWriter::open(dir, host, Options::default()).unwrap();
    log.tick(WallMicros(MIDNIGHT));
    let mut random = Random(7);
    for n in 0..RECORDS {
        let end = WallMicros(MIDNIGHT + 10_000_000 * n as i64);
        log.problem(&random.interval(end));
        let connection = random.connection(50);
        log.summary(&random.summary(connection, end));
    }
    assert!(log.sync());
    log
}

/// Checks a log in the spool, and then in Parquet.
fn both(check: impl Fn(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    let log = written(dir.path());
    check(dir.path());
    assert_eq!(log.close().last_error, None);
    check(dir.path());
}

#[test]
fn a_stopped_reader_gives_no_further_row() {
    both(|dir| {
        let reader = LogReader::open(dir).unwrap();
        let all = reader
            .intervals(TimeRange::ALL, &IntervalFilter::default())
            .unwrap();
        assert_eq!(all.rows.len() as u64, RECORDS);
        let stop = reader.stop();
        let mut rows = 0;
        let wanted = IntervalFilter::default();
        let report = reader.each_interval(TimeRange::ALL, &wanted, |_| {
            rows += 1;
            stop.set();
        });
        assert_eq!(report.unwrap().unreadable, []);
        assert_eq!(rows, 1);
    });
}

#[test]
fn identities_are_those_of_the_latest_summaries() {
    both(|dir| {
        let reader = LogReader::open(dir).unwrap();
        let range = TimeRange {
            from: WallMicros(MIDNIGHT + 400_000_000),
            to: WallMicros(MIDNIGHT + 900_000_000),
        };
        let mut expected = BTreeMap::new();
        let note = |summary: ConnectionSummary| {
            let rank = summary_rank(&summary);
            let old = expected.get(&summary.connection);
            if old.is_none_or(|old: &ConnectionIdentity| old.rank <= rank) {
                expected.insert(summary.connection, summary.into());
            }
        };
        reader.each_summary(range, note).unwrap();
        assert!(expected.len() > 10);
        let mut found = BTreeMap::<_, ConnectionIdentity>::new();
        let even = |id: &slowpath_model::ConnectionId| id.cookie.is_multiple_of(2);
        let note = |identity: ConnectionIdentity| {
            assert!(even(&identity.connection), "only those that are wanted");
            let old = found.get(&identity.connection);
            if old.is_none_or(|old| old.rank <= identity.rank) {
                found.insert(identity.connection, identity);
            }
        };
        reader.each_identity(range, |id, _| even(id), note).unwrap();
        expected.retain(|id, _| even(id));
        assert_eq!(found, expected);
    });
}

#[test]
fn connections_of_intervals_are_found_without_their_evidence() {
    both(|dir| {
        let reader = LogReader::open(dir).unwrap();
        let range = TimeRange {
            from: WallMicros(MIDNIGHT + 400_000_000),
            to: WallMicros(MIDNIGHT + 500_000_000),
        };
        let rows = reader.intervals(range, &IntervalFilter::default()).unwrap();
        let expected: BTreeSet<ConnectionNumber> =
            rows.rows.iter().map(|i| (&i.connection).into()).collect();
        assert!(!expected.is_empty());
        let mut found = BTreeSet::new();
        let report = reader.each_interval_connection(range, |number| {
            found.insert(number);
        });
        assert_eq!(report.unwrap().unreadable, []);
        assert_eq!(found, expected);
    });
}

// SPDX-License-Identifier: Apache-2.0
//! Rows of every kind of record, with what a server adds; and both ends of connections.

mod agents;
#[path = "../../slowpath-store/tests/records/mod.rs"]
mod records;

use agents::{MIDNIGHT, Segment};
use slowpath_fleet::{FleetReader, Intake, IntakeOptions, Receipt, Table, Tables};
use slowpath_model::{
    ConnectionSummary, FourTuple, Micros, Owner, Ownership, TrafficInterval, WallMicros,
};
use slowpath_store::spool::Record;
use slowpath_store::tables::LogTable;
use slowpath_store::{ConnectionNumber, TimeRange};
use slowpath_table::Value;
use std::net::IpAddr;
use std::path::Path;
use std::sync::mpsc::channel;

const HOUR: i64 = 3_600_000_000;

fn ship(intake: &Intake, host: &str, segment: &Segment, received: i64) {
    let (sender, receiver) = channel();
    let origin = (host, IpAddr::from([192, 0, 2, 9]));
    intake.submit(
        origin,
        segment.rest(1, 0),
        WallMicros(received),
        move |receipt| {
            drop(sender.send(receipt));
        },
    );
    assert!(matches!(receiver.recv(), Ok(Receipt::Flushed(_))));
}

fn end_file(intake: &Intake) {
    let (sender, receiver) = channel();
    intake.end_file(move || {
        let _ = sender.send(());
    });
    receiver.recv().expect("the file ends");
}

/// Rows of a table, as text.
fn rows(dir: &Path, table: Table, columns: &[&str]) -> Vec<String> {
    let mut rows = Vec::new();
    let reader = FleetReader::new(dir, "s1");
    let report = reader.each_row(table, columns, TimeRange::ALL, |row| {
        let row = row.iter().map(|value| match value {
            Value::Null => "-".to_owned(),
            Value::Int(n) | Value::Time(n) => n.to_string(),
            Value::Text(text) => (*text).to_owned(),
            other => format!("{other:?}"),
        });
        rows.push(row.collect::<Vec<_>>().join(" "));
    });
    assert!(report.expect("can be read").unreadable.is_empty());
    rows.sort_unstable();
    rows
}

fn owned(application: &str) -> Owner {
    let bare = Owner::named(17, "server");
    let ownership = Ownership {
        process: Ok(bare.process().expect("was named").clone()),
        cgroup: None,
        application: Some(application.into()),
        listener: None,
    };
    Owner::new(ownership)
}

#[test]
fn every_record_is_a_row_with_its_host_address_owner_and_receipt() {
    let dir = tempfile::tempdir().expect("a directory");
    let intake = Intake::open(dir.path(), IntakeOptions::default()).expect("opens");
    let mut tables = Tables::open(dir.path(), "s1", &intake, WallMicros(MIDNIGHT)).expect("opens");
    let now = MIDNIGHT + 10 * HOUR;
    let mut random = records::Random(3);
    let mut first = Segment::new("b-1");
    let connection = random.connection(50);
    let mut summary = random.summary(connection, WallMicros(now - 5));
    summary.owner = owned("shop");
    first.push(&Record::Summary(Box::new(summary)));
    ship(&intake, "web-1", &first, now);
    end_file(&intake);
    tables.publish().expect("is published");
    // The interval comes in a later file, and to a server that was started anew.
    let mut tables = Tables::open(dir.path(), "s1", &intake, WallMicros(MIDNIGHT)).expect("opens");
    let mut second = Segment::new("b-2");
    let mut interval = random.interval(WallMicros(now - 3));
    interval.connection = connection;
    let problems = interval.findings.len();
    second.push(&Record::Problem(Box::new(interval.clone())));
    second.push(&Record::Coverage(Box::new(
        random.coverage(WallMicros(now - 2)),
    )));
    second.push_gap(77);
    ship(&intake, "web-1", &second, now + 7);
    let number = ConnectionNumber::from(&connection).get().cast_signed();
    for is_published in [false, true] {
        if is_published {
            end_file(&intake);
            tables.publish().expect("is published");
        }
        let columns = [
            "host",
            "segment",
            "connection_id",
            "end_time",
            "address",
            "received",
        ];
        let intervals = Table::Log(LogTable::Intervals);
        let expected = format!("web-1 b-2 {number} {} 192.0.2.9 {}", now - 3, now + 7);
        assert_eq!(rows(dir.path(), intervals, &columns), [expected]);
        let coverage = Table::Log(LogTable::Coverage);
        assert_eq!(rows(dir.path(), coverage, &["host"]), ["web-1"]);
        let found = rows(
            dir.path(),
            Table::Log(LogTable::Problems),
            &["connection_id"],
        );
        assert_eq!(found, vec![number.to_string(); problems]);
        let gaps = ["host", "segment", "length", "reason", "records", "received"];
        let expected = format!("web-1 b-2 77 dropped 3 {}", now + 7);
        assert_eq!(rows(dir.path(), Table::Gaps, &gaps), [expected]);
        let hosts = rows(
            dir.path(),
            Table::Hosts,
            &["host", "batches", "records", "gap_bytes"],
        );
        assert_eq!(hosts, ["web-1 1 1 0", "web-1 1 2 77"]);
    }
    let intervals = Table::Log(LogTable::Intervals);
    let columns = ["application", "bytes_sent", "clock_suspect"];
    let sent = interval.deltas.bytes_sent.filter(|n| *n < 64);
    let found = rows(dir.path(), intervals, &columns);
    assert!(found[0].starts_with("shop "), "{found:?}");
    assert!(found[0].ends_with("Bool(false)"), "{found:?}");
    if let Some(sent) = sent {
        assert!(found[0].contains(&format!(" {sent} ")), "{found:?}");
    }
}

#[test]
fn what_a_connection_carried_is_a_row_with_its_owner() {
    let dir = tempfile::tempdir().expect("a directory");
    let intake = Intake::open(dir.path(), IntakeOptions::default()).expect("opens");
    let mut tables = Tables::open(dir.path(), "s1", &intake, WallMicros(MIDNIGHT)).expect("opens");
    let now = MIDNIGHT + 10 * HOUR;
    let mut random = records::Random(4);
    let mut segment = Segment::new("b-1");
    let connection = random.connection(50);
    let mut summary = random.summary(connection, WallMicros(now - 5));
    summary.owner = owned("shop");
    segment.push(&Record::Summary(Box::new(summary)));
    segment.push(&Record::Traffic(Box::new(TrafficInterval {
        connection,
        end: WallMicros(now - 1),
        duration: Micros(60_000_000),
        data_segments_out: Some(400),
        data_segments_in: None,
        retransmitted: Some(3),
    })));
    ship(&intake, "web-1", &segment, now);
    end_file(&intake);
    tables.publish().expect("is published");
    let columns = [
        "host",
        "application",
        "data_segments_out",
        "data_segments_in",
        "retransmitted",
    ];
    let traffic = Table::Log(LogTable::Traffic);
    assert_eq!(rows(dir.path(), traffic, &columns), ["web-1 shop 400 - 3"]);
    let understood = rows(dir.path(), Table::Gaps, &["reason"]);
    assert!(understood.is_empty(), "{understood:?}");
}

/// One end of a connection, as its host logs it.
fn end(
    random: &mut records::Random,
    cookie: u64,
    (local, remote): (&str, &str),
    at: i64,
) -> Record {
    let mut connection = random.connection(50);
    connection.cookie = cookie;
    let summary = ConnectionSummary {
        tuple: FourTuple::new(
            local.parse().expect("an address"),
            remote.parse().expect("an address"),
        ),
        real_peer: None,
        first_observed: WallMicros(at - 1_000_000),
        ..random.summary(connection, WallMicros(at))
    };
    Record::Summary(Box::new(summary))
}

#[test]
fn both_ends_are_joined_once_when_their_hour_has_closed() {
    let dir = tempfile::tempdir().expect("a directory");
    let intake = Intake::open(dir.path(), IntakeOptions::default()).expect("opens");
    let mut tables = Tables::open(dir.path(), "s1", &intake, WallMicros(MIDNIGHT)).expect("opens");
    let now = MIDNIGHT + 10 * HOUR;
    let mut random = records::Random(4);
    let (a, b) = ("10.0.0.1:40000", "10.0.0.2:443");
    let (behind, service) = ("10.0.0.3:40001", "10.9.9.9:80");
    let mut web = Segment::new("b-1");
    web.push(&end(&mut random, 1, (a, b), now + 60_000_000));
    // Its peer is known by address translation only.
    let mut hidden = end(&mut random, 2, (behind, service), now + 61_000_000);
    if let Record::Summary(summary) = &mut hidden {
        summary.real_peer = Some("10.0.0.2:8080".parse().expect("an address"));
    }
    web.push(&hidden);
    web.push(&end(
        &mut random,
        3,
        ("127.0.0.1:1", "127.0.0.1:2"),
        now + 62_000_000,
    ));
    let mut db = Segment::new("b-1");
    db.push(&end(&mut random, 4, (b, a), now + 60_500_000));
    db.push(&end(
        &mut random,
        5,
        ("10.0.0.2:8080", behind),
        now + 61_000_000,
    ));
    db.push(&end(
        &mut random,
        6,
        ("127.0.0.1:2", "127.0.0.1:1"),
        now + 62_000_000,
    ));
    ship(&intake, "web-1", &web, now + 90_000_000);
    ship(&intake, "db-1", &db, now + 90_000_000);
    end_file(&intake);
    tables.publish().expect("is published");
    let early = tables.close_hours(WallMicros(now + HOUR)).expect("closes");
    assert_eq!(early.hours, 0, "batches may be under way");
    let due = WallMicros(now + HOUR + 301_000_000);
    let closed = tables.close_hours(due).expect("closes");
    assert_eq!((closed.hours, closed.ends), (1, 2));
    let columns = [
        "a_host",
        "a_address",
        "a_port",
        "b_host",
        "b_address",
        "b_port",
    ];
    let expected = [
        "db-1 10.0.0.2 8080 web-1 10.0.0.3 40001",
        "web-1 10.0.0.1 40000 db-1 10.0.0.2 443",
    ];
    assert_eq!(rows(dir.path(), Table::Ends, &columns), expected);
    // A summary that came late adds its pair, and no other.
    let mut late = Segment::new("b-2");
    let (c, d) = ("10.0.0.1:40002", "10.0.0.2:443");
    late.push(&end(&mut random, 7, (c, d), now + 60_000_000));
    ship(&intake, "web-1", &late, due.0);
    let mut late = Segment::new("b-2");
    late.push(&end(&mut random, 8, (d, c), now + 60_000_000));
    ship(&intake, "db-1", &late, due.0);
    end_file(&intake);
    tables.publish().expect("is published");
    let again = WallMicros(due.0 + 600_000_000);
    assert_eq!(tables.close_hours(again).expect("closes").ends, 1);
    let mut anew = Tables::open(dir.path(), "s1", &intake, WallMicros(MIDNIGHT)).expect("opens");
    assert_eq!(anew.close_hours(again).expect("closes").ends, 0);
    assert_eq!(rows(dir.path(), Table::Ends, &columns).len(), 3);
}

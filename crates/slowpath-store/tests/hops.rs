// SPDX-License-Identifier: Apache-2.0
//! Traced paths come back as they were written, from the spool and from Parquet, with their
//! connection's summary or, where it has closed, without.

mod records;

use records::{BOOT, MIDNIGHT, Random};
use slowpath_model::{Micros, PathHop, WallMicros};
use slowpath_store::{HostIdentity, LogReader, LogWriter, Options, TimeRange};
use std::net::IpAddr;

#[test]
fn hops_are_read_as_they_were_written() {
    let dir = tempfile::tempdir().unwrap();
    let host = HostIdentity {
        host: "test".into(),
        boot_id: BOOT,
    };
    let mut log = LogWriter::open(dir.path(), host, Options::default()).unwrap();
    let mut random = Random(3);
    let routers = [
        Some("192.0.2.1"),
        None,
        Some("192.0.2.9"),
        Some("2001:db8::7"),
    ];
    let mut written = Vec::new();
    for cookie in 0..20 {
        let mut id = random.connection(10);
        id.cookie = cookie;
        let end = WallMicros(MIDNIGHT + 1_000_000 * cookie as i64);
        let hop = |(ttl, router): (u16, &Option<&str>)| PathHop {
            connection: id,
            end,
            duration: Micros(2_000_000),
            ttl,
            router: router.map(|router| router.parse::<IpAddr>().unwrap()),
        };
        let hops: Vec<PathHop> = (1..).zip(&routers).map(hop).collect();
        let summary = random.summary(id, end);
        let living = (cookie % 3 != 0).then_some(&summary);
        assert!(log.hops_of(living, &hops));
        written.extend(hops);
    }
    assert!(log.sync());
    let read = || {
        let reader = LogReader::open(dir.path()).unwrap();
        let read = reader.hops(TimeRange::ALL).unwrap();
        assert_eq!(read.report.unreadable, []);
        read.rows
    };
    assert_eq!(read(), written);
    assert_eq!(log.close().last_error, None);
    assert_eq!(read(), written);
}

// SPDX-License-Identifier: Apache-2.0
//! The spools of every released version are shipped as they stand.

use slowpath_ship::batch::{Content, Encoder, Reader};
use slowpath_ship::queue::{Class, Queue};
use slowpath_store::spool::{Payload, parse};
use std::fs;
use std::path::Path;
use std::time::Duration;

#[test]
fn the_spools_of_every_released_version_are_shipped() {
    let released = Path::new(env!("CARGO_MANIFEST_DIR")).join("../slowpath-store/tests/released");
    let mut versions = Vec::new();
    for version in fs::read_dir(released).unwrap() {
        let version = version.unwrap().path();
        let dir = tempfile::tempdir().unwrap();
        let (spool, ship) = (dir.path().join("spool"), dir.path().join("ship"));
        fs::create_dir_all(&spool).unwrap();
        fs::create_dir_all(&ship).unwrap();
        let mut files: Vec<_> = fs::read_dir(version.join("spool"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        let mut expected = Vec::new();
        for file in files {
            let parsed = parse(&fs::read(&file).unwrap()).unwrap();
            expected.extend(parsed.records);
            versions.push(parsed.header.schema_version);
            fs::copy(&file, ship.join(file.file_name().unwrap())).unwrap();
        }
        let mut queue = Queue::open(dir.path(), u64::MAX).unwrap();
        let mut found = Vec::new();
        while let Some(offer) = queue.offer(Class::Waiting, 1000, Duration::ZERO).unwrap() {
            let header = offer.header(1, 1, slowpath_ship::clock::sent_clock());
            let body = Encoder::new()
                .unwrap()
                .encode(&header, &offer.items)
                .unwrap();
            let batch = Reader::new().unwrap().read(&body).unwrap();
            for piece in batch.pieces() {
                match piece.content {
                    Content::Header(_) => {}
                    Content::Record(record) => match record.decode(batch.header.boot_id) {
                        Payload::Record(record) => found.push(record),
                        other => panic!("{other:?}"),
                    },
                    Content::Gap(gap) => panic!("{gap:?}"),
                }
            }
            let stands = (offer.end, offer.end_prefix);
            queue.flushed(&offer, stands, Duration::ZERO).unwrap();
        }
        assert_eq!(found, expected, "{}", version.display());
        assert!(!found.is_empty());
    }
    versions.sort_unstable();
    assert_eq!(versions.first(), Some(&1));
    assert_eq!(versions.last(), Some(&slowpath_store::SCHEMA_VERSION));
}

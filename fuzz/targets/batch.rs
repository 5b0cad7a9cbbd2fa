// SPDX-License-Identifier: Apache-2.0
//! The body of a batch as any client sends it. Built with `cfg(fuzzing)`, the reader takes checksums
//! for right, so that what lies behind them is reached. An input whose first byte is odd is items
//! without a header, because a fuzzer cannot make zstd frames well.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slowpath_model::WallMicros;
use slowpath_ship::batch::{Encoder, Header, Items, MAX_ITEMS, Prefix, Reader, SentClock};
use slowpath_store::HostIdentity;
use slowpath_store::spool::{self, RawRecord, encode_header, encode_raw};

fuzz_target!(
    init: slowpath_fuzz::write_seeds(seeds),
    |data: &[u8]| {
        let Some((first, rest)) = data.split_first() else { return };
        if first % 2 == 1 {
            for offset in [0, 1 << 40] {
                if let Ok(items) = Items::read(rest.to_vec(), offset) {
                    check(&items, offset);
                }
            }
            return;
        }
        let Ok(batch) = Reader::new().expect("memory").read(rest) else { return };
        assert!(batch.items.bytes().len() <= MAX_ITEMS);
        assert!(batch.header.segment.len() <= 255 && !batch.header.segment.contains('/'));
        assert!(batch.end() >= batch.header.offset);
        check(&batch.items, batch.header.offset);
    }
);

/// The pieces cover what the items say, without gaps or overlaps, and give the same items again.
fn check(items: &Items, offset: u64) {
    let mut again = Items::default();
    let mut at = offset;
    for piece in items.pieces(offset, Prefix::default()) {
        assert_eq!(piece.offset, at);
        assert!(piece.end > at);
        again.push(&piece);
        at = piece.end;
        let (prefix, rest) = items
            .from_offset(offset, Prefix::default(), at)
            .expect("a piece ends here");
        assert_eq!(prefix, piece.prefix);
        assert_eq!(rest.covered(), offset + items.covered() - at);
    }
    assert_eq!(at, offset + items.covered());
    assert_eq!(again.covered(), items.covered());
}

/// A batch from the start of a segment, one from its middle, and their items.
fn seeds() -> Vec<Vec<u8>> {
    let mut items = Items::default();
    items.push_header(&encode_header(&spool::Header {
        schema_version: slowpath_store::SCHEMA_VERSION,
        host: HostIdentity {
            host: "fuzz".to_owned(),
            boot_id: 7,
        },
        segment: "5f3c9a01-0000-0000".to_owned(),
        begun: WallMicros(1),
    }));
    let mut later = Items::default();
    for kind in 1..=6 {
        let mut record = Vec::new();
        encode_raw(kind, &[kind; 20], &mut record);
        let record = RawRecord::at_start(&record).expect("a record");
        items.push_record(record);
        later.push_record(record);
    }
    later.push_gap(slowpath_ship::batch::Gap {
        length: 99,
        reason: slowpath_ship::batch::GapReason::Dropped,
        records: Some(3),
    });
    let mut encoder = Encoder::new().expect("memory");
    let mut body = |offset, items: &Items| {
        let header = Header {
            framing: 1,
            schema: slowpath_store::SCHEMA_VERSION,
            last: offset > 0,
            run: 1,
            number: 2,
            boot_id: 7,
            clock: SentClock {
                sent: WallMicros(1),
                state: 0,
                max_error_us: None,
            },
            clock_offset: None,
            offset,
            prefix: Prefix(offset as u32),
            segment: "5f3c9a01-0000-0000".to_owned(),
            items_length: 0,
            items_crc: 0,
        };
        encoder.encode(&header, items).expect("memory")
    };
    let bodies = [body(0, &items), body(500, &later)];
    let bodies = bodies.iter().map(|body| [&[0], &body[..]].concat());
    let items = [&items, &later].map(|items| [&[1], items.bytes()].concat());
    bodies.chain(items).collect()
}

// SPDX-License-Identifier: Apache-2.0

use super::*;
use proptest::prelude::*;
use slowpath_store::HostIdentity;
use slowpath_store::spool::{self, RawRecord, encode_header, encode_raw};
use std::io::Write as _;

fn spool_header() -> Vec<u8> {
    encode_header(&spool::Header {
        schema_version: slowpath_store::SCHEMA_VERSION,
        host: HostIdentity {
            host: "web-17".to_owned(),
            boot_id: 7,
        },
        segment: "5f3c9a01-0000-0000".to_owned(),
        begun: WallMicros(-5),
    })
}

fn header(offset: u64, prefix: Prefix) -> Header {
    Header {
        framing: 1,
        schema: slowpath_store::SCHEMA_VERSION,
        last: false,
        run: 0x0102_0304,
        number: 5,
        boot_id: 7,
        clock: SentClock {
            sent: WallMicros(1_800_000_000_000_000),
            state: 0,
            max_error_us: Some(500),
        },
        clock_offset: None,
        offset,
        prefix,
        segment: "5f3c9a01-0000-0000".to_owned(),
        items_length: 0,
        items_crc: 0,
    }
}

/// What a batch is made of.
#[derive(Clone, Debug)]
enum Part {
    Record(u8, Vec<u8>),
    Gap(Gap),
}

fn part() -> impl Strategy<Value = Part> {
    let record = (1u8..=6, prop::collection::vec(any::<u8>(), 0..80));
    let reason = prop::sample::select(GapReason::ALL.to_vec());
    let gap = (1u64..1 << 40, reason, prop::option::of(0..u32::MAX - 1));
    prop_oneof![
        4 => record.prop_map(|(kind, payload)| Part::Record(kind, payload)),
        1 => gap.prop_map(|(length, reason, records)| Part::Gap(Gap {
            length,
            reason,
            records,
        })),
    ]
}

fn items(parts: &[Part], at_start: bool) -> Items {
    let mut items = Items::default();
    if at_start {
        items.push_header(&spool_header());
    }
    for part in parts {
        match part {
            Part::Record(kind, payload) => {
                let mut bytes = Vec::new();
                encode_raw(*kind, payload, &mut bytes);
                items.push_record(RawRecord::at_start(&bytes).unwrap());
            }
            Part::Gap(gap) => items.push_gap(*gap),
        }
    }
    items
}

fn encoded(header: &Header, items: &Items) -> Vec<u8> {
    Encoder::new().unwrap().encode(header, items).unwrap()
}

fn read(body: &[u8]) -> Result<Batch, ReadError> {
    Reader::new().unwrap().read(body)
}

fn field(result: Result<Batch, ReadError>) -> &'static str {
    match result {
        Err(ReadError::Malformed { field, .. }) => field,
        other => panic!("not malformed: {other:?}"),
    }
}

/// With the header's checksum made right after a change.
fn resealed(mut body: Vec<u8>, segment_length: usize) -> Vec<u8> {
    let end = FIXED + segment_length;
    let crc = crc32fast::hash(&body[..end]);
    body[end..end + 4].copy_from_slice(&crc.to_le_bytes());
    body
}

proptest! {
    #[test]
    fn what_is_encoded_is_read_back(
        parts in prop::collection::vec(part(), 0..30),
        offset in prop_oneof![Just(0u64), 1..1u64 << 50],
        prefix: u32,
        last: bool,
        clock: (i64, u8, Option<u16>),
        clock_offset in prop::option::of((any::<i64>(), any::<u16>())),
        ids: (u128, u64, u128),
    ) {
        let prefix = if offset == 0 { Prefix::default() } else { Prefix(prefix) };
        let items = items(&parts, offset == 0);
        let stated = Header {
            last,
            run: ids.0,
            number: ids.1,
            boot_id: ids.2,
            clock: SentClock {
                sent: WallMicros(clock.0),
                state: clock.1,
                max_error_us: clock.2.map(u32::from),
            },
            clock_offset: clock_offset.map(|(offset_us, error)| ClockOffset {
                offset_us,
                error_us: u32::from(error),
            }),
            ..header(offset, prefix)
        };
        let batch = read(&encoded(&stated, &items)).unwrap();
        prop_assert_eq!(&batch.header, &Header {
            items_length: items.bytes().len() as u32,
            items_crc: crc32fast::hash(items.bytes()),
            ..stated
        });
        prop_assert_eq!(batch.items.bytes(), items.bytes());
        prop_assert_eq!(batch.items.covered(), items.covered());
        prop_assert_eq!(batch.pieces().count(), parts.len() + usize::from(offset == 0));
    }

    #[test]
    fn every_beginning_of_a_batch_is_refused(parts in prop::collection::vec(part(), 0..8)) {
        let body = encoded(&header(9, Prefix(1)), &items(&parts, false));
        for length in 0..body.len() {
            prop_assert!(read(&body[..length]).is_err());
        }
    }

    #[test]
    fn every_flipped_bit_is_refused_or_changes_nothing(
        parts in prop::collection::vec(part(), 0..8),
    ) {
        let body = encoded(&header(9, Prefix(1)), &items(&parts, false));
        let whole = read(&body).unwrap();
        for bit in 0..body.len() * 8 {
            let mut flipped = body.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // zstd ignores one bit of a frame's descriptor (RFC 8878 section 3.1.1.1.1.3).
            if let Ok(batch) = read(&flipped) {
                prop_assert_eq!(&batch, &whole);
            }
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = read(&bytes);
        let _ = Items::read(bytes, 3);
    }

    #[test]
    fn the_running_crc_is_the_same_however_a_segment_is_cut(
        parts in prop::collection::vec(part(), 1..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let whole = items(&parts, true);
        let boundaries: Vec<(u64, Prefix)> = std::iter::once((0, Prefix::default()))
            .chain(whole.pieces(0, Prefix::default()).map(|p| (p.end, p.prefix)))
            .collect();
        let (at, prefix) = boundaries[cut.index(boundaries.len())];
        let (found, rest) = whole.from_offset(0, Prefix::default(), at).unwrap();
        prop_assert_eq!(found, prefix);
        prop_assert_eq!(rest.covered(), whole.covered() - at);
        let again = Items::read(rest.bytes().to_vec(), at).unwrap();
        let of_rest: Vec<_> = again.pieces(at, prefix).collect();
        let of_whole: Vec<_> = whole.pieces(0, Prefix::default()).collect();
        prop_assert_eq!(&of_rest[..], &of_whole[of_whole.len() - of_rest.len()..]);
    }

    #[test]
    fn only_where_a_piece_begins_or_ends_can_be_gone_on(
        parts in prop::collection::vec(part(), 1..10),
        at in 0u64..2000,
    ) {
        let whole = items(&parts, true);
        let boundary = at == 0 || whole.pieces(0, Prefix::default()).any(|p| p.end == at);
        prop_assert_eq!(whole.from_offset(0, Prefix::default(), at).is_some(), boundary);
    }
}

/// By hand: the running CRC is over a record's bytes and a gap's 13.
#[test]
fn the_running_crc_covers_data_and_the_thirteen_bytes_of_gaps() {
    let gap = Gap {
        length: 0x0102,
        reason: GapReason::Dropped,
        records: Some(3),
    };
    let items = items(&[Part::Record(1, vec![9]), Part::Gap(gap)], false);
    let mut data = Vec::new();
    encode_raw(1, &[9], &mut data);
    data.extend([2, 1, 0, 0, 0, 0, 0, 0, 2, 3, 0, 0, 0]);
    let last = items.pieces(50, Prefix::default()).last().unwrap();
    assert_eq!(last.prefix, Prefix(crc32fast::hash(&data)));
    assert_eq!(last.end, 50 + 10 + 0x0102);
}

#[test]
fn a_malformed_batch_names_its_field() {
    let parts = [Part::Record(1, vec![9])];
    let body = encoded(&header(9, Prefix(1)), &items(&parts, false));
    let id = header(0, Prefix::default()).segment.len();
    let with = |at: usize, bytes: &[u8]| {
        let mut body = body.clone();
        body[at..at + bytes.len()].copy_from_slice(bytes);
        field(read(&resealed(body, id)))
    };
    assert_eq!(with(0, b"slb2"), "magic");
    assert_eq!(with(4, &[0, 0]), "protocol version");
    assert_eq!(with(10, &[2, 0]), "flags");
    assert_eq!(with(77, &[0; 8]), "prefix");
    assert_eq!(with(89, &u32::MAX.to_le_bytes()), "length of the items");
    assert_eq!(with(93, &[0; 4]), "CRC of the items");
    assert_eq!(with(97, &[0, 2]), "segment id");
    assert_eq!(with(99, b"../"), "segment id");
    assert_eq!(with(99 + id + 4, &[0]), "items");
    let mut damaged = body.clone();
    damaged[20] ^= 1;
    assert_eq!(field(read(&damaged)), "CRC of the header");
    assert_eq!(
        read(&resealed([&body[..4], &[2, 0], &body[6..]].concat(), id)),
        Err(ReadError::Newer { protocol: 2 })
    );
}

#[test]
fn a_newer_schema_is_named_by_the_header_before_its_items_are_read() {
    let newer = Header {
        schema: slowpath_store::SCHEMA_VERSION + 1,
        ..header(9, Prefix(1))
    };
    let body = encoded(&newer, &items(&[], false));
    assert!(Header::read(&body).unwrap().0.is_newer());
    assert_eq!(field(read(&body)), "framing");
}

#[test]
fn items_that_are_not_whole_records_in_their_place_are_refused() {
    let item = |data: &[u8]| [&[0u8][..], &(data.len() as u32).to_le_bytes(), data].concat();
    let mut record = Vec::new();
    encode_raw(1, b"payload", &mut record);
    let refused = |bytes: Vec<u8>, offset| match Items::read(bytes, offset) {
        Err(ReadError::Malformed { field, .. }) => field,
        other => panic!("not malformed: {other:?}"),
    };
    assert_eq!(refused(item(&record), 0), "records");
    assert_eq!(refused(item(&spool_header()), 9), "records");
    assert_eq!(refused(item(&record[..12]), 9), "records");
    assert_eq!(refused(item(&[]), 9), "length of records");
    assert_eq!(refused(vec![2], 9), "items");
    let gap =
        |length: u64, reason: u8| [&[1u8][..], &length.to_le_bytes(), &[reason], &[0; 4]].concat();
    assert_eq!(refused(gap(0, 1), 9), "length of a gap");
    assert_eq!(refused(gap(5, 9), 9), "reason of a gap");
    assert_eq!(refused(gap(u64::MAX, 1), 9), "items");
    assert_eq!(refused(gap(5, 1)[..13].to_vec(), 9), "gap");
}

/// What stands after the header's checksum, replaced.
fn with_frame(frame: &[u8], length: u32) -> Vec<u8> {
    let stated = header(9, Prefix(1));
    let mut body = Vec::new();
    Header {
        items_length: length,
        ..stated
    }
    .write(&mut body);
    body.extend(frame);
    body
}

#[test]
fn decompression_bombs_are_refused_before_or_at_the_stated_length() {
    let zeros = vec![0; 64 << 20];
    let bomb = zstd::bulk::compress(&zeros, 3).unwrap();
    assert!(bomb.len() < 16 << 10);
    assert_eq!(field(read(&with_frame(&bomb, 1000))), "items");
    assert_eq!(
        field(read(&with_frame(&bomb, 64 << 20))),
        "length of the items"
    );
    // A frame that does not state its length.
    let stream = |window_log| {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 3).unwrap();
        encoder.window_log(window_log).unwrap();
        encoder.write_all(&zeros).unwrap();
        encoder.finish().unwrap()
    };
    assert_eq!(field(read(&with_frame(&stream(21), 1000))), "items");
    assert_eq!(
        read(&with_frame(&stream(22), 1000)),
        Err(malformed(
            "items",
            "the window of the zstd frame is over 2 MiB"
        ))
    );
    let small = zstd::bulk::compress(b"", 3).unwrap();
    assert!(read(&with_frame(&small, 0)).is_ok());
    assert_eq!(
        field(read(&with_frame(&[&small[..], &small].concat(), 0))),
        "items"
    );
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0][..], &small].concat();
    assert_eq!(field(read(&with_frame(&skippable, 0))), "items");
}

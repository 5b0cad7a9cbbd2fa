// SPDX-License-Identifier: Apache-2.0
//! Agents as a server knows them: segments of records, sent as batches.
#![allow(dead_code)]

use slowpath_model::{Coverage, Micros, WallMicros};
use slowpath_ship::batch::{
    Batch, ClockOffset, Content, Gap, GapReason, Header, Items, Prefix, SentClock,
};
use slowpath_store::spool::{self, RawRecord, Record, encode_header};
use slowpath_store::tables::encode_record;
use slowpath_store::{HostIdentity, SCHEMA_VERSION};

/// 2026-11-21T00:00:00Z.
pub const MIDNIGHT: i64 = 1_795_219_200_000_000;
pub const BOOT: u128 = 0x5f3c_9a01_77e2_4bd1_8c55_3e01_9f2b_6d70;

/// A segment as it stands in a spool, or what of it is left.
#[derive(Clone, Debug)]
pub struct Segment {
    pub id: String,
    pub items: Items,
    pub ended: bool,
}

impl Segment {
    pub fn new(id: &str) -> Self {
        let mut items = Items::default();
        items.push_header(&encode_header(&spool::Header {
            schema_version: SCHEMA_VERSION,
            host: HostIdentity {
                host: "its-own-name".to_owned(),
                boot_id: BOOT,
            },
            segment: id.to_owned(),
            begun: WallMicros(MIDNIGHT),
        }));
        Segment {
            id: id.to_owned(),
            items,
            ended: false,
        }
    }

    pub fn push(&mut self, record: &Record) {
        let mut bytes = Vec::new();
        encode_record(record, BOOT, &mut bytes);
        let raw = RawRecord::at_start(&bytes).expect("a record was encoded");
        self.items.push_record(raw);
    }

    /// A coverage record that carries a number.
    pub fn push_numbered(&mut self, number: u64, end: i64) {
        self.push(&numbered(number, end));
    }

    pub fn push_gap(&mut self, length: u64) {
        self.items.push_gap(Gap {
            length,
            reason: GapReason::Dropped,
            records: Some(3),
        });
    }

    /// Where its pieces begin and end, and the running CRC there.
    pub fn boundaries(&self) -> Vec<(u64, Prefix)> {
        let pieces = self.items.pieces(0, Prefix::default());
        let ends = pieces.map(|piece| (piece.end, piece.prefix));
        std::iter::once((0, Prefix::default()))
            .chain(ends)
            .collect()
    }

    /// The batch from one boundary to another; the last one ends the segment if it has ended.
    pub fn batch(&self, run: u128, from: u64, to: u64) -> Batch {
        let boundaries = self.boundaries();
        let prefix = boundaries.iter().find(|(at, _)| *at == from);
        let mut items = Items::default();
        for piece in self.items.pieces(0, Prefix::default()) {
            if piece.offset >= from && piece.end <= to {
                items.push(&piece);
            }
        }
        let end = boundaries.last().map(|(at, _)| *at);
        Batch {
            header: Header {
                framing: 1,
                schema: SCHEMA_VERSION,
                last: self.ended && end == Some(to),
                run,
                number: from,
                boot_id: BOOT,
                clock: SentClock {
                    sent: WallMicros(MIDNIGHT),
                    state: 0,
                    max_error_us: Some(500),
                },
                clock_offset: Some(ClockOffset {
                    offset_us: 0,
                    error_us: 100,
                }),
                offset: from,
                prefix: prefix.expect("a boundary").1,
                segment: self.id.clone(),
                items_length: items.bytes().len() as u32,
                items_crc: 0,
            },
            items,
        }
    }

    /// All of it from an offset on.
    pub fn rest(&self, run: u128, from: u64) -> Batch {
        self.batch(run, from, self.items.covered())
    }
}

/// A coverage record that carries a number.
pub fn numbered(number: u64, end: i64) -> Record {
    Record::Coverage(Box::new(Coverage {
        end: WallMicros(end),
        duration: Micros(1_000),
        polls: number,
        // With CPU time it is not joined with the one before.
        cpu: Micros(1),
        ..Coverage::default()
    }))
}

/// The numbers of the records in items.
pub fn numbers(items: &Items, offset: u64) -> Vec<u64> {
    let pieces = items.pieces(offset, Prefix::default());
    let numbers = pieces.filter_map(|piece| match piece.content {
        Content::Record(record) => match record.decode(BOOT) {
            spool::Payload::Record(Record::Coverage(coverage)) => Some(coverage.polls),
            _ => None,
        },
        Content::Header(_) | Content::Gap(_) => None,
    });
    numbers.collect()
}

/// Numbers from a seed: splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

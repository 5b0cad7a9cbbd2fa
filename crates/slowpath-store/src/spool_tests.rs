// SPDX-License-Identifier: Apache-2.0

#[path = "../tests/records/mod.rs"]
mod records;

use super::*;
use proptest::prelude::*;
use records::{BOOT, MIDNIGHT, Random};

fn header() -> Header {
    Header {
        schema_version: SCHEMA_VERSION,
        host: HostIdentity {
            host: "h\u{f6}st".to_owned(),
            boot_id: BOOT,
        },
        segment: "5f3c9a01-0000-0000".to_owned(),
        begun: WallMicros(-5),
    }
}

/// A spool of random records; also where each of them begins, and where the last ends.
fn spool(random: &mut Random, count: usize) -> (Vec<u8>, Vec<Record>, Vec<usize>) {
    let mut file = encode_header(&header());
    let mut encoder = Encoder::new(BOOT);
    let mut records = Vec::new();
    let mut at = vec![file.len()];
    for i in 0..count {
        let end = WallMicros(MIDNIGHT + i as i64);
        match random.below(3) {
            0 => {
                let interval = random.interval(end);
                encoder.problem(&interval, &mut file);
                records.push(Record::Problem(Box::new(interval)));
            }
            1 => {
                let id = random.connection(9);
                let summary = random.summary(id, end);
                encoder.summary(&summary, &mut file);
                records.push(Record::Summary(Box::new(summary)));
            }
            _ => {
                let coverage = random.coverage(end);
                encoder.coverage(&coverage, &mut file);
                records.push(Record::Coverage(Box::new(coverage)));
            }
        }
        at.push(file.len());
    }
    (file, records, at)
}

proptest! {
    #[test]
    fn what_is_written_is_read_exactly(seed: u64, count in 0usize..20) {
        let (file, records, _) = spool(&mut Random(seed), count);
        let parsed = parse(&file).unwrap();
        prop_assert_eq!(&parsed.header, &header());
        prop_assert_eq!(parsed.records, records);
        prop_assert_eq!((parsed.corrupt, parsed.torn_tail, parsed.unknown, parsed.invalid), (0, 0, 0, 0));
    }

    #[test]
    fn a_cut_off_file_keeps_every_whole_record(seed: u64, cut in any::<prop::sample::Index>()) {
        let (file, records, at) = spool(&mut Random(seed), 6);
        let length = cut.index(file.len() + 1);
        match parse(&file[..length]) {
            Err(e) => {
                prop_assert_eq!(e, HeaderError::Torn);
                prop_assert!(length < at[0]);
            }
            Ok(parsed) => {
                let whole = at[1..].iter().filter(|end| **end <= length).count();
                prop_assert_eq!(&parsed.records[..], &records[..whole]);
                prop_assert_eq!(parsed.torn_tail, length - at[whole]);
                prop_assert_eq!(parsed.corrupt, 0);
            }
        }
    }

    #[test]
    fn damage_costs_only_the_records_it_hits(
        seed: u64,
        hit in any::<prop::sample::Index>(),
        flip in 1u8..,
    ) {
        let (mut file, records, at) = spool(&mut Random(seed), 6);
        let place = at[0] + hit.index(file.len() - at[0]);
        file[place] ^= flip;
        let parsed = parse(&file).unwrap();
        let damaged = at[1..].iter().filter(|end| **end <= place).count();
        let mut expected = records;
        expected.remove(damaged);
        prop_assert_eq!(parsed.records, expected);
        prop_assert_eq!(parsed.corrupt_bytes + parsed.torn_tail, at[damaged + 1] - at[damaged]);
        prop_assert_eq!(parsed.corrupt + usize::from(parsed.torn_tail > 0), 1);
    }

    #[test]
    fn any_bytes_are_read_without_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
        seed: u64,
        with_header: bool,
    ) {
        let mut file = if with_header { encode_header(&header()) } else { Vec::new() };
        file.extend(&bytes);
        let _ = parse(&file);
        // Frames that are intact and hold nonsense.
        let mut random = Random(seed);
        let mut file = encode_header(&header());
        for part in bytes.chunks(37) {
            let kind = random.below(6) as u8;
            let length = (part.len() as u16).to_le_bytes();
            file.extend(MARK);
            file.extend(length);
            file.extend(checksum(kind, length, part).to_le_bytes());
            file.push(kind);
            file.extend(part);
        }
        let parsed = parse(&file).unwrap();
        prop_assert_eq!(parsed.corrupt, 0);
        prop_assert_eq!(
            parsed.records.len() + parsed.unknown + parsed.invalid,
            bytes.len().div_ceil(37)
        );
    }
}

#[test]
fn marks_without_records_cost_linear_work() {
    // Every second byte may begin a record of 64 KiB with a wrong checksum: without a
    // bound that is 4 GiB to checksum for each MiB.
    let mut file = encode_header(&header());
    let begin = file.len();
    for _ in 0..1 << 18 {
        file.extend([MARK[0], MARK[1], 0xff, 0x7f]);
    }
    let parsed = parse(&file).unwrap();
    assert_eq!(parsed.records, []);
    assert_eq!(parsed.corrupt, 1);
    assert_eq!(parsed.corrupt_bytes, file.len() - begin);
}

#[test]
fn columns_of_a_later_version_are_ignored_and_missing_ones_are_null() {
    let mut random = Random(7);
    let interval = random.interval(WallMicros(MIDNIGHT));
    let logged = Logged {
        interval: interval.clone(),
        polls: 1,
    };
    let mut row = Vec::new();
    interval.connection.put(&mut row);
    logged.put(&mut row);

    let mut columns = INTERVAL.clone();
    let mut longer = row.clone();
    for _ in 0..9 {
        columns.push(crate::column::number("added", "by a later version"));
        longer.push(CellValue::Int(u64::MAX));
    }
    let mut payload = Vec::new();
    encode_row(&columns, &longer, &mut payload);
    assert_eq!(decode_row(&INTERVAL, &payload), Some(row.clone()));

    let mut payload = Vec::new();
    encode_row(&INTERVAL[..10], &row[..10], &mut payload);
    let mut shorter = row[..10].to_vec();
    shorter.resize(INTERVAL.len(), CellValue::Null);
    assert_eq!(decode_row(&INTERVAL, &payload), Some(shorter));
}

#[test]
fn unusable_headers_say_why() {
    let whole = encode_header(&header());
    assert_eq!(parse(b"PAR1...."), Err(HeaderError::NotASpool));
    assert_eq!(parse(b""), Err(HeaderError::Torn));
    let mut damaged = whole.clone();
    damaged[20] ^= 1;
    assert_eq!(parse(&damaged), Err(HeaderError::Damaged));
    let mut newer = whole.clone();
    newer[10..12].copy_from_slice(&(SCHEMA_VERSION + 1).to_le_bytes());
    assert_eq!(
        parse(&newer),
        Err(HeaderError::Newer {
            framing: 1,
            schema: SCHEMA_VERSION + 1
        })
    );
    let mut endless = whole;
    endless[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(parse(&endless), Err(HeaderError::Damaged));
}

#[test]
fn long_names_are_cut_at_a_character() {
    let mut long = header();
    long.host.host = "\u{e9}".repeat(400);
    let parsed = parse(&encode_header(&long)).unwrap();
    assert_eq!(parsed.header.host.host, "\u{e9}".repeat(127));
}

/// Idle for 90 s of 100 s, 180 requests of half a second each, and reset.
#[test]
fn what_an_answer_needs_takes_few_bytes_of_a_summary() {
    use slowpath_model::{
        Ending, LifeAnswers, LifeFacts, LifeTurns, Micros, SocketFacts, TcpState,
    };
    let mut random = Random(1);
    let id = random.connection(9);
    let mut summary = random.summary(id, WallMicros(MIDNIGHT));
    let mut length = |life| {
        summary.life = life;
        let mut bytes = Vec::new();
        Encoder::new(BOOT).summary(&summary, &mut bytes);
        bytes.len()
    };
    let answers = LifeAnswers {
        count: 180,
        time: Micros(90_000_000),
        pending: None,
    };
    let without = length(LifeFacts::default());
    let with = length(LifeFacts {
        idle: Some(Micros(90_000_000)),
        socket: SocketFacts {
            ending: Some(Ending {
                state: Some(TcpState::Established),
                error: Some(104),
            }),
            ..SocketFacts::default()
        },
        turns: Some(LifeTurns {
            peer: answers,
            here: answers,
            overlapping: 0,
        }),
    });
    // Seven bits a byte: 4 of idle time, 1 each of state, error and overlapping exchanges, 2 and 4 of the turns of
    // each end.
    assert_eq!(with - without, 4 + 1 + 1 + 1 + 2 * (2 + 4));
}

/// A source that gives a few bytes at a time.
struct Trickle<'a>(&'a [u8], usize);

impl std::io::Read for Trickle<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let length = self.1.min(out.len()).min(self.0.len());
        out[..length].copy_from_slice(&self.0[..length]);
        self.0 = &self.0[length..];
        Ok(length)
    }
}

/// The stretches from `at` on, as (length, whether it is a record), and the tail.
fn stretches(file: &[u8], at: usize, piece: usize) -> (Vec<(u64, bool)>, u64) {
    let mut scan = Scan::new(Trickle(&file[at..], piece));
    let mut found = Vec::new();
    while let Some(stretch) = scan.next().unwrap() {
        found.push((stretch.length(), matches!(stretch, Stretch::Record(_))));
    }
    (found, scan.tail())
}

proptest! {
    #[test]
    fn a_scan_in_pieces_covers_every_byte_and_finds_what_the_reader_finds(
        seed: u64,
        hits in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 0..5),
        piece in 1usize..5000,
        cut in any::<prop::sample::Index>(),
    ) {
        let (mut file, _, at) = spool(&mut Random(seed), 12);
        for (hit, flip) in hits {
            let place = at[0] + hit.index(file.len() - at[0]);
            file[place] ^= flip;
        }
        file.truncate(at[0] + cut.index(file.len() - at[0] + 1));
        let (found, tail) = stretches(&file, at[0], piece);
        let covered: u64 = found.iter().map(|(length, _)| length).sum();
        prop_assert_eq!(covered + tail, (file.len() - at[0]) as u64);
        let parsed = parse(&file).unwrap();
        let records = found.iter().filter(|(_, record)| *record).count();
        prop_assert_eq!(records, parsed.records.len() + parsed.unknown + parsed.invalid);
        // Damage ends with a record, and none follows another.
        let ends = found.iter().chain([&(0, true)]);
        prop_assert!(found.iter().zip(ends.skip(1)).all(|(one, next)| one.1 || next.1));
    }

    #[test]
    fn a_file_that_grows_gives_the_same_stretches_again(
        seed: u64,
        hit in any::<prop::sample::Index>(),
        flip in 1u8..,
        cut in any::<prop::sample::Index>(),
    ) {
        let (mut file, _, at) = spool(&mut Random(seed), 8);
        let place = at[0] + hit.index(file.len() - at[0]);
        file[place] ^= flip;
        let (whole, _) = stretches(&file, at[0], 9999);
        let (young, _) = stretches(&file[..at[0] + cut.index(file.len() - at[0])], at[0], 9999);
        prop_assert_eq!(&young[..], &whole[..young.len()]);
    }
}

#[test]
fn a_scan_of_marks_without_records_takes_linear_work() {
    let mut bytes = Vec::new();
    for _ in 0..1 << 18 {
        bytes.extend([MARK[0], MARK[1], 0xff, 0x7f]);
    }
    assert_eq!(
        stretches(&bytes, 0, usize::MAX),
        (vec![], bytes.len() as u64)
    );
    // The record that follows all that is found.
    bytes.extend([0; 8 << 10]);
    encode_raw(3, b"payload", &mut bytes);
    let damage = bytes.len() as u64 - 16;
    assert_eq!(
        stretches(&bytes, 0, usize::MAX),
        (vec![(damage, false), (16, true)], 0)
    );
}

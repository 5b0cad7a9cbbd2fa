// SPDX-License-Identifier: Apache-2.0
//! Files that are not what was written: an error, or what is whole, and where it is not.

use crate::sample::bulk;
use proptest::prelude::*;
use slowpath_recording::{
    DecodeError, Decoded, Recording, Selection, VERSION, decode, decode_with, encode,
};
use std::ops::Range;

fn file(recording: &Recording) -> Vec<u8> {
    encode(recording).expect("nothing in it is too long")
}

/// Two connections, some runs each.
fn small() -> Recording {
    let mut recording = bulk(40);
    let mut second = recording.connections[0].clone();
    second.addresses.reverse();
    second.ends[1].runs.truncate(9);
    recording.connections.push(second);
    recording
}

/// Header and frames of a file, by the tables in docs/reference/recording-format.md.
fn parts(file: &[u8]) -> Vec<Range<usize>> {
    let origin = usize::from(u16::from_le_bytes([file[10], file[11]]));
    let header = 0..12 + origin + 4;
    let mut parts = Vec::from([header]);
    while let Some(last) = parts.last().filter(|part| part.end < file.len()) {
        let at = last.end;
        assert_eq!(file[at..at + 2], [0xb7, 0x2d]);
        let length = u32::from_le_bytes(file[at + 7..at + 11].try_into().expect("four"));
        parts.push(at..at + 15 + length as usize);
    }
    parts
}

fn joined(file: &[u8], parts: &[Range<usize>]) -> Vec<u8> {
    parts
        .iter()
        .flat_map(|part| file[part.clone()].to_vec())
        .collect()
}

/// What is decoded is the truth: up to each gap what was written, and without one all of it.
fn never_wrong(broken: &[u8], whole: &Recording, what: &str) {
    let Ok(Decoded { recording, damage }) = decode_with(broken, Selection::default()) else {
        return;
    };
    assert_eq!(recording.origin, whole.origin, "{what}");
    if damage.is_none() {
        assert!(recording == *whole, "{what}: nothing noticed");
    }
    for connection in &recording.connections {
        let was = whole
            .connections
            .iter()
            .find(|was| was.addresses == connection.addresses);
        let was = was.unwrap_or_else(|| panic!("{what}: an invented connection"));
        assert_eq!(connection.settings, was.settings, "{what}");
        for (end, was) in connection.ends.iter().zip(&was.ends) {
            match end.gap {
                None => assert!(end == was, "{what}"),
                Some(gap) => {
                    assert_eq!(end.runs[..gap as usize], was.runs[..gap as usize], "{what}")
                }
            }
        }
    }
}

#[test]
fn a_foreign_file_is_refused() {
    assert_eq!(decode(b"PAR1 and more"), Err(DecodeError::NotARecording));
    assert_eq!(decode(b""), Err(DecodeError::Torn));
    assert_eq!(decode(b"slow"), Err(DecodeError::Torn));
    let mut file = file(&bulk(10));
    file[8] = 9;
    assert_eq!(decode(&file), Err(DecodeError::Version { version: 9 }));
    assert_ne!(VERSION, 9);
}

/// A recorder that was killed: what is whole, marked as not whole.
#[test]
fn a_file_cut_anywhere_is_never_taken_for_a_whole_one() {
    let whole = small().kept();
    let file = file(&whole);
    let header = parts(&file)[0].end;
    for length in 0..file.len() {
        let decoded = decode_with(&file[..length], Selection::default());
        assert_eq!(decoded.is_ok(), length >= header, "cut at {length}");
        let Ok(decoded) = decoded else { continue };
        assert!(decoded.damage.cut, "cut at {length}");
        for end in decoded.recording.connections.iter().flat_map(|c| &c.ends) {
            assert_eq!(end.gap, Some(end.runs.len() as u64), "cut at {length}");
        }
        never_wrong(&file[..length], &whole, &format!("cut at {length}"));
    }
}

/// Each byte changed in each of its bits, left out, and written twice.
#[test]
fn one_wrong_byte_is_never_a_wrong_replay() {
    let whole = small().kept();
    let file = file(&whole);
    for at in 0..file.len() {
        for bit in 0..8 {
            let mut broken = file.clone();
            broken[at] ^= 1 << bit;
            let what = format!("bit {bit} of byte {at}");
            never_wrong(&broken, &whole, &what);
            let decoded = decode_with(&broken, Selection::default());
            assert!(
                decoded.map_or(true, |d| !d.damage.is_none()),
                "{what} unnoticed"
            );
        }
        let mut broken = file.clone();
        let byte = broken.remove(at);
        never_wrong(&broken, &whole, &format!("without byte {at}"));
        broken.splice(at..at, [byte, byte]);
        never_wrong(&broken, &whole, &format!("byte {at} twice"));
    }
}

/// A frame in the middle is lost: what is behind it is there, the gap says how much is not.
#[test]
fn a_lost_frame_is_a_gap_that_counts() {
    let recording = bulk(300_000);
    let whole = recording.kept();
    let file = file(&recording);
    let parts = parts(&file);
    assert!(parts.len() > 4, "{} parts", parts.len());
    for lost in 2..parts.len() - 1 {
        let mut fewer = parts.clone();
        fewer.remove(lost);
        let damaged = {
            let mut damaged = file.clone();
            damaged[parts[lost].end - 1] ^= 0x40;
            damaged
        };
        for (broken, stretches) in [(joined(&file, &fewer), 0), (damaged, 1)] {
            let decoded = decode_with(&broken, Selection::default()).expect("the header is whole");
            assert_eq!(
                (decoded.damage.missing, decoded.damage.stretches),
                (1, stretches)
            );
            assert!(!decoded.damage.cut);
            let ends = &decoded.recording.connections[0].ends;
            assert!(ends.iter().any(|end| end.gap.is_some()));
            for (end, was) in ends.iter().zip(&whole.connections[0].ends) {
                assert_eq!(end.runs.len() as u64 + end.lost, was.runs.len() as u64);
                let gap = end.gap.map_or(end.runs.len(), |gap| gap as usize);
                assert!(end.runs[..gap] == was.runs[..gap]);
                assert!(end.runs[gap..] == was.runs[gap + end.lost as usize..]);
            }
        }
    }
}

#[test]
fn a_frame_twice_or_late_changes_nothing_but_the_count() {
    let recording = bulk(150_000);
    let file = file(&recording);
    let mut parts = parts(&file);
    parts.insert(3, parts[2].clone());
    let decoded = decode_with(&joined(&file, &parts), Selection::default()).expect("a recording");
    assert_eq!(decoded.damage.repeated, 1);
    assert!(decoded.recording == recording.kept());
}

/// Frames are tied to their header: another recording's are damage.
#[test]
fn a_frame_of_another_recording_is_no_frame() {
    let (one, mut other) = (bulk(40), bulk(40));
    other.origin.epoch += 1;
    other.connections[0].ends[0].runs[5].jiffies += 1;
    let (one, other) = (file(&one), file(&other));
    let (ones, others) = (parts(&one), parts(&other));
    let mut mixed = one[..ones[1].end].to_vec();
    mixed.extend(&other[others[2].clone()]);
    mixed.extend(&one[ones[3].clone()]);
    let decoded = decode_with(&mixed, Selection::default()).expect("the header is whole");
    assert_eq!(decoded.damage.stretches, 1);
    for end in &decoded.recording.connections[0].ends {
        assert_eq!((end.gap, end.runs.len()), (Some(0), 0));
    }
}

/// A file with these frames, intact.
fn forged(frames: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let empty = file(&Recording::default());
    let header = parts(&empty)[0].clone();
    let mut file = empty[header.clone()].to_vec();
    let seed = file[header.end - 4..].to_vec();
    for (number, (kind, payload)) in (0u32..).zip(frames) {
        let mut fields = vec![*kind];
        fields.extend(number.to_le_bytes());
        fields.extend((payload.len() as u32).to_le_bytes());
        let sum = crc32fast::hash(&[&seed[..], &fields, payload].concat());
        file.extend([0xb7, 0x2d]);
        file.extend(fields);
        file.extend(sum.to_le_bytes());
        file.extend(payload);
    }
    file
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value > 127 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// Says that it is `length` bytes, which compress well.
fn bomb(said: u64, length: usize) -> Vec<u8> {
    let packed = zstd::bulk::compress(&vec![0; length], 3).expect("memory");
    let mut out = vec![1];
    out.extend(varint(said));
    out.extend(varint(packed.len() as u64));
    out.extend(packed);
    out
}

#[test]
fn bombs_do_not_go_off() {
    // More than a frame may have, another length than it says, and a length that no memory has.
    for (said, length) in [
        (1 << 26, 1 << 26),
        (1 << 20, 1 << 22),
        (1 << 22, 1 << 20),
        (1 << 60, 10),
    ] {
        for kind in 1..=3 {
            let file = forged(&[(kind, bomb(said, length))]);
            let refused = decode(&file);
            assert!(
                matches!(refused, Err(DecodeError::Nonsense { .. })),
                "{kind} {said}"
            );
        }
    }
    // One piece with more runs than there are numbers, of one pattern that repeats as often.
    let raw = |bytes: Vec<u8>| [vec![0], varint(bytes.len() as u64), bytes].concat();
    let pieces = [vec![1, 0, 0, 0], varint(1 << 62), vec![0]].concat();
    let mut columns = vec![
        raw(pieces),
        raw(vec![0, 0, 1, 0, 0]),
        raw(vec![0, 0, 0, 0, 0]),
    ];
    columns.extend([raw(vec![0]), raw(varint(1 << 62))]);
    columns.extend((5..9).map(|_| raw(vec![])));
    columns.push(bomb(1 << 24, 1 << 24));
    columns.push(bomb(1 << 24, 1 << 24));
    columns.resize(20, raw(vec![]));
    let refused = decode(&forged(&[(2, columns.concat())]));
    assert!(
        matches!(refused, Err(DecodeError::Nonsense { .. })),
        "{:?}",
        refused.err()
    );
}

#[test]
fn more_than_is_wanted_is_refused() {
    let file = file(&bulk(5_000));
    let wanted = |events| Selection {
        events,
        ..Selection::default()
    };
    assert_eq!(
        decode_with(&file, wanted(3_000)),
        Err(DecodeError::TooMany { limit: 3_000 })
    );
    assert!(decode_with(&file, wanted(20_000)).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn damage_of_any_kind_is_never_a_wrong_replay(
        at in any::<prop::sample::Index>(),
        length in 0usize..400,
        bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let whole = small().kept();
        let mut broken = file(&whole);
        let start = at.index(broken.len());
        let end = broken.len().min(start + length);
        broken.splice(start..end, bytes);
        never_wrong(&broken, &whole, "random damage");
    }

    #[test]
    fn an_intact_frame_of_anything_is_an_error_or_a_recording(
        kind in 0u8..5,
        payload in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let _ = decode(&forged(&[(kind, payload)]));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Files of every form say the same; what is wrong with one is skipped and counted.

mod frames;

use frames::{ACK, Form, Timed, USUAL, ethernet, ipv4, tcp, timed};
use slowpath_trace::decode::DecodeOptions;
use slowpath_trace::read::{
    Capture, Comment, CommentOn, Gap, Input, Inputs, Notes, ReadError, SkipReason,
};
use std::io::{Cursor, Read, Write};

fn sample(count: u32) -> Vec<Timed> {
    let ends = [[10, 0, 0, 1], [10, 0, 0, 2]];
    let segment = |n: u32| tcp(1, 2, n, ACK, &vec![0x55; n as usize % 50]);
    timed(
        (0..count)
            .map(|n| ethernet(0x0800, &ipv4(6, ends, &segment(n))))
            .collect(),
    )
}

fn stream(bytes: impl Read + Send + 'static) -> Input {
    Input::Stream("made".to_owned(), Box::new(bytes))
}

/// What a capture holds: time, frame, length on the wire.
fn read(inputs: Vec<Input>) -> Result<(Vec<Timed>, Notes), ReadError> {
    let mut capture = Capture::new(Inputs::new(inputs)?, DecodeOptions::default())?;
    let mut found = Vec::new();
    while let Some(p) = capture.next()? {
        found.push((p.time().0 as u64, p.data().to_vec(), p.wire_length()));
        assert_eq!(p.number(), found.len() as u64);
    }
    let notes = capture.notes().clone();
    Ok((found, notes))
}

fn read_one(bytes: Vec<u8>) -> (Vec<Timed>, Notes) {
    read(vec![stream(Cursor::new(bytes))]).expect("it reads")
}

const FORMS: [Form; 4] = [
    USUAL,
    Form {
        big_endian: false,
        nanoseconds: false,
    },
    Form {
        big_endian: true,
        nanoseconds: true,
    },
    Form {
        big_endian: true,
        nanoseconds: false,
    },
];

fn skipped(notes: &Notes) -> [(u64, u64); 4] {
    SkipReason::ALL.map(|reason| (notes.skipped(reason).times, notes.skipped(reason).bytes))
}

const NOTHING: [(u64, u64); 4] = [(0, 0); 4];

#[test]
fn pcap_of_every_byte_order_and_unit() {
    let mut frames = sample(100);
    frames[7].2 = 9000;
    for form in FORMS {
        let (found, notes) = read_one(form.pcap(1, &frames));
        assert_eq!(found, frames, "{form:?}");
        assert_eq!(skipped(&notes), NOTHING);
        assert_eq!(notes.capture_drops(), None);
    }
}

#[test]
fn compressed_in_several_members() {
    let frames = sample(3000);
    let whole = USUAL.pcap(1, &frames);
    let parts = [&whole[..1000], &whole[1000..1001], &whole[1001..]];
    let gzip = parts.map(|part| {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        writer
            .write_all(part)
            .and_then(|()| writer.finish())
            .expect("memory")
    });
    let zstd = parts.map(|part| zstd::encode_all(part, 1).expect("memory"));
    // A skippable frame, as pzstd writes one first.
    let skippable = [
        &[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..],
        &zstd.concat(),
    ]
    .concat();
    for bytes in [gzip.concat(), zstd.concat(), skippable] {
        let (found, notes) = read_one(bytes.clone());
        assert_eq!(found, frames);
        assert_eq!(skipped(&notes), NOTHING);
        // Cut short: what came before counts, and it is said.
        let (found, notes) = read_one(bytes[..bytes.len() - 20].to_vec());
        assert!(found.len() < 3000 && found[..] == frames[..found.len()]);
        assert_eq!(notes.skipped(SkipReason::Compressed).times, 1);
    }
}

#[test]
fn pcapng_with_everything() {
    let frames = sample(6);
    let (frame, wire) = (&frames[0].1, frames[0].2);
    let mut file = Vec::new();
    for form in [FORMS[0], FORMS[2]] {
        let comment = |text: &str| form.option(1, text.as_bytes());
        file.extend(form.section(&[comment("the whole"), form.option(2, b"machine")].concat()));
        let name = form.option(2, b"eth0");
        let filter = form.option(11, b"\0tcp");
        file.extend(form.interface(1, 65_535, &[name, filter, comment("a port")].concat()));
        // Nanoseconds, an hour behind; then 1/1024 s.
        let offset = form.option(14, &form.long(3600));
        file.extend(form.interface(1, 0, &[form.option(9, &[9]), offset].concat()));
        file.extend(form.interface(1, 60, &form.option(9, &[0x8a])));
        // Microseconds are the default.
        file.extend(form.packet(0, 1_700_000_000_000_001, frame, wire, &[]));
        let lost = form.option(4, &form.long(3));
        file.extend(form.packet(1, 5, frame, wire, &[comment("look"), lost].concat()));
        file.extend(form.packet(2, 1025, frame, wire + 7, &[]));
        // A name resolution block, one of a kind no one knows, and one of no known interface.
        file.extend(form.block(4, &[0; 4]));
        file.extend(form.block(0x8000_0bad, &[1, 2, 3]));
        file.extend(form.packet(9, 0, frame, wire, &[]));
        // Simple: no time, cut at the first interface's snap length, which does not cut it.
        file.extend(form.block(3, &[&form.word(wire)[..], frame].concat()));
        // Old: 4 frames lost before it.
        let old = [form.half(0), form.half(4)].concat();
        let words = [0, 0, 9, frame.len() as u32, wire]
            .map(|w| form.word(w))
            .concat();
        let words = [&old[..], &words[4..], frame].concat();
        file.extend(form.block(2, &words));
        let drops = [
            form.option(5, &form.long(20)),
            form.option(7, &form.long(1)),
        ]
        .concat();
        let statistics = [form.word(1), [0; 4], [0; 4]].concat();
        file.extend(form.block(5, &[statistics, drops].concat()));
    }
    let (found, notes) = read_one(file);
    let times: Vec<u64> = found.iter().map(|f| f.0).collect();
    let once = [
        1_700_000_000_000_001_000,
        3_600_000_000_005,
        1_000_976_562,
        1_000_976_562,
        9_000,
    ];
    assert_eq!(times, [once, once].concat());
    assert!(found.iter().all(|f| f.1 == *frame));
    assert_eq!(found[2].2, wire + 7);
    assert_eq!(notes.skipped(SkipReason::UnknownInterface).times, 2);
    assert_eq!(notes.skipped(SkipReason::Damaged).times, 0);
    assert_eq!(notes.without_time, 2);
    // Within each section three times: the second, third and last frame; and once between them.
    assert_eq!(notes.clock_went_back, 6);
    let gap = |before, lost| Gap { before, lost };
    assert_eq!(notes.gaps, [gap(2, 3), gap(5, 4), gap(7, 3), gap(10, 4)]);
    // The statistics say more than the gaps: 21 of each section.
    assert_eq!(notes.capture_drops(), Some(42));
    let on = |on, text: &str| Comment {
        on,
        text: text.to_owned(),
    };
    let comments = [
        on(CommentOn::Section, "the whole"),
        on(CommentOn::Interface(0), "a port"),
        on(CommentOn::Frame(2), "look"),
        on(CommentOn::Section, "the whole"),
        on(CommentOn::Interface(3), "a port"),
        on(CommentOn::Frame(7), "look"),
    ];
    assert_eq!(notes.comments, comments);
    assert_eq!(notes.interfaces.len(), 6);
    assert_eq!(notes.interfaces[3].name.as_deref(), Some("eth0"));
    assert_eq!(notes.interfaces[3].filter.as_deref(), Some("tcp"));
}

#[test]
fn files_come_in_the_order_of_their_first_frames() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let frames = sample(90);
    let mut inputs = Vec::new();
    for (name, part) in [("a", 60..90), ("b", 0..30), ("c", 30..60)] {
        let path = folder.path().join(name);
        let bytes = FORMS[name.len() % 4].pcap(1, &frames[part]);
        std::fs::write(&path, bytes).expect("it writes");
        inputs.push(Input::File(path));
    }
    let (found, notes) = read(inputs).expect("it reads");
    let micros = |f: &[Timed]| f.iter().map(|f| f.0 / 1000).collect::<Vec<_>>();
    assert_eq!(micros(&found), micros(&frames));
    assert_eq!(notes.clock_went_back, 0);
}

#[test]
fn a_cut_file_ends_where_it_is_cut() {
    let frames = sample(20);
    let whole = USUAL.pcap(1, &frames);
    let last = 16 + frames[19].1.len();
    for cut in 1..last {
        let (found, notes) = read_one(whole[..whole.len() - cut].to_vec());
        assert_eq!(found, frames[..19]);
        let cut = (1, (last - cut) as u64);
        assert_eq!(skipped(&notes), [cut, (0, 0), (0, 0), (0, 0)]);
    }
}

#[test]
fn after_damage_the_next_good_record_is_found() {
    let frames = sample(2000);
    let size = |n: usize| 24 + frames[..n].iter().map(|f| 16 + f.1.len()).sum::<usize>();
    let mut pcap = USUAL.pcap(1, &frames);
    // The captured length of one record becomes absurd.
    pcap[size(1000) + 8..size(1000) + 12].fill(0xff);
    let (found, notes) = read_one(pcap);
    assert_eq!(found, [&frames[..1000], &frames[1001..]].concat());
    let lost = (size(1001) - size(1000)) as u64;
    assert_eq!(skipped(&notes), [(0, 0), (1, lost), (0, 0), (0, 0)]);

    let head = [
        USUAL.section(&[]),
        USUAL.interface(1, 0, &USUAL.option(9, &[9])),
    ]
    .concat();
    let block = |f: &Timed| USUAL.packet(0, f.0, &f.1, f.2, &[]);
    let mut file = head.clone();
    file.extend(frames[..1000].iter().flat_map(block));
    let damaged = file.len();
    file.extend(frames[1000..].iter().flat_map(block));
    // A length that is no multiple of four.
    file[damaged + 4] ^= 1;
    let (found, notes) = read_one(file);
    assert_eq!(found, [&frames[..1000], &frames[1001..]].concat());
    let lost = block(&frames[1000]).len() as u64;
    assert_eq!(skipped(&notes), [(0, 0), (1, lost), (0, 0), (0, 0)]);
}

#[test]
fn what_is_no_capture_is_refused() {
    for bytes in [
        &b""[..],
        b"short",
        b"#!/bin/sh\necho this is no capture at all\n",
    ] {
        let result = read(vec![stream(Cursor::new(bytes))]);
        assert!(
            matches!(result, Err(ReadError::NotACapture { .. })),
            "{bytes:?}"
        );
    }
    let missing = Inputs::new(vec![Input::File("does/not/exist".into())]);
    assert!(matches!(missing, Err(ReadError::Open { .. })));
    assert!(matches!(Inputs::new(Vec::new()), Err(ReadError::Nothing)));
    // An empty capture is one.
    assert_eq!(read_one(USUAL.pcap(1, &[])).0, []);
}

/// The message names the format, and the tool that makes a pcapng of it.
#[test]
fn other_formats_are_named_with_their_converter() {
    let erf = |kind: u8| {
        // 2020-01-01, 64 bytes of record for 46 on the wire.
        let mut record = vec![0, 0, 0, 0];
        record.extend(1_577_836_800u32.to_le_bytes());
        record.extend([kind, 4, 0, 64, 0, 0, 0, 46]);
        record.resize(64, 0);
        record
    };
    let cases: [(Vec<u8>, &str, &str); 9] = [
        (
            b"snoop\0\0\0\0\0\0\x02\0\0\0\x04".to_vec(),
            "snoop",
            "editcap",
        ),
        (b"GMBU\0\x02\x01\0".to_vec(), "Network Monitor", "editcap"),
        (b"iptrace 2.0\0\0\0".to_vec(), "AIX iptrace", "editcap"),
        (erf(2), "ERF", "editcap"),
        (b"\x1c\0\x01\xac\0\x02\0\x04".to_vec(), "Ixia", "editcap"),
        (b"BZh91AY&SY".to_vec(), "bzip2", "bunzip2"),
        (b"\xfd7zXZ\0\0\x04".to_vec(), "xz", "unxz"),
        (b"\x04\x22\x4d\x18\x64\x40".to_vec(), "lz4", "unlz4"),
        (b"PK\x03\x04\x14\0".to_vec(), "zip", "unzip"),
    ];
    for (begins, format, tool) in cases {
        // Shorter than a pcap's header, and longer.
        for length in [begins.len(), 4_000.max(begins.len())] {
            let mut bytes = begins.clone();
            bytes.resize(length, 0);
            let error = read(vec![stream(Cursor::new(bytes))]).expect_err(format);
            assert!(matches!(error, ReadError::OtherFormat { .. }), "{format}");
            let message = error.to_string();
            assert!(
                message.contains(format) && message.contains(tool),
                "{message}"
            );
        }
    }
    let text = read(vec![stream(Cursor::new(erf(b'0')))]);
    assert!(matches!(text, Err(ReadError::NotACapture { .. })));
}

/// Whatever is wrong with the first record, those after it count.
#[test]
fn a_damaged_first_record_is_skipped() {
    let frames = sample(100);
    let header = USUAL.pcap(1, &[]).len();
    let second = USUAL.pcap(1, &frames[..1]).len();
    // The captured length: beyond any frame, and beyond the file.
    for length in [u32::MAX, 0x00f0_0000] {
        let mut file = USUAL.pcap(1, &frames);
        file[header + 8..header + 12].copy_from_slice(&length.to_le_bytes());
        let (found, notes) = read_one(file);
        assert_eq!(found, frames[1..]);
        let lost = (second - header) as u64;
        assert_eq!(skipped(&notes), [(0, 0), (1, lost), (0, 0), (0, 0)]);
    }
    let head = [
        USUAL.section(&[]),
        USUAL.interface(1, 0, &USUAL.option(9, &[9])),
    ]
    .concat();
    let block = |f: &Timed| USUAL.packet(0, f.0, &f.1, f.2, &[]);
    for at in [4, block(&frames[0]).len() - 4] {
        let mut file = head.clone();
        file.extend(frames.iter().flat_map(block));
        file[head.len() + at] ^= 1;
        let (found, notes) = read_one(file);
        assert_eq!(found, frames[1..]);
        let lost = block(&frames[0]).len() as u64;
        assert_eq!(skipped(&notes), [(0, 0), (1, lost), (0, 0), (0, 0)]);
    }
}

/// The second of two captures, taken two days later, begins with a damaged record.
#[test]
fn a_damaged_first_record_of_a_later_file_is_skipped() {
    let frames = sample(50);
    let mut later = frames.clone();
    for (time, ..) in &mut later {
        *time += 2 * 86_400_000_000_000;
    }
    let header = USUAL.pcap(1, &[]).len();
    let mut second = USUAL.pcap(1, &later);
    second[header + 8..header + 12].copy_from_slice(&u32::MAX.to_le_bytes());
    let inputs = [USUAL.pcap(1, &frames), second];
    let inputs = inputs.map(|bytes| stream(Cursor::new(bytes)));
    let (found, _) = read(inputs.into()).expect("both read");
    assert_eq!(found, [&frames[..], &later[1..]].concat());
}

/// Gives a byte at a time, as a slow pipe may.
struct Dripping(Cursor<Vec<u8>>);

impl Read for Dripping {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let one = buffer.len().min(1);
        self.0.read(&mut buffer[..one])
    }
}

#[test]
fn a_slow_pipe_gives_the_same() {
    let frames = sample(30);
    let whole = USUAL.pcap(1, &frames);
    let (found, _) = read(vec![stream(Dripping(Cursor::new(whole)))]).expect("it reads");
    assert_eq!(found, frames);
}

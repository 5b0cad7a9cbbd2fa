// SPDX-License-Identifier: Apache-2.0
//! `slowpath trace` on captures that are damaged, partial or odd: each ends with an exit code, a
//! count of what was left out, and no invented loss.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Nanoseconds of the epoch at which every capture begins.
const START: u64 = 1_700_000_000_000_000_000;
const MILLI: u64 = 1_000_000;
const MSS: u32 = 1_448;
const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;

/// One segment of a connection between 10.0.0.1:1000 and 10.0.0.2:80.
#[derive(Clone, Copy)]
struct Segment {
    /// Nanoseconds since the beginning.
    at: u64,
    from_client: bool,
    sequence: u32,
    acknowledgement: u32,
    flags: u8,
    length: u32,
}

impl Segment {
    /// Its frame, of which 54 bytes and none of the payload are captured, and its length on the wire.
    fn frame(&self) -> (Vec<u8>, u32) {
        let (mut from, mut to) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let (mut source, mut destination) = (1000u16, 80u16);
        if !self.from_client {
            std::mem::swap(&mut from, &mut to);
            std::mem::swap(&mut source, &mut destination);
        }
        // Longer than the field can say: 0, as segmentation offload leaves it.
        let total = u16::try_from(40 + self.length).unwrap_or(0);
        let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
        bytes.extend(total.to_be_bytes());
        bytes.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        bytes.extend(from.iter().chain(&to));
        bytes.extend([source.to_be_bytes(), destination.to_be_bytes()].concat());
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(self.acknowledgement.to_be_bytes());
        bytes.extend([0x50, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
        (bytes, 54 + self.length)
    }
}

/// A handshake, a number of segments of `length` from the client, each acknowledged 10 ms
/// later, both FINs.
fn transfer(segments: u32, length: u32) -> Vec<Segment> {
    let mut all = Vec::new();
    let mut put = |ms: u64, from_client, sequence, acknowledgement, flags, length| {
        all.push(Segment {
            at: ms * MILLI,
            from_client,
            sequence,
            acknowledgement,
            flags,
            length,
        });
    };
    put(0, true, 0, 0, SYN, 0);
    put(10, false, 5_000, 1, SYN | ACK, 0);
    put(10, true, 1, 5_001, ACK, 0);
    for n in 0..segments {
        let ms = 20 + u64::from(n) * 20;
        put(ms, true, 1 + n * length, 5_001, ACK, length);
        put(ms + 10, false, 5_001, 1 + (n + 1) * length, ACK, 0);
    }
    let (end, ms) = (1 + segments * length, 20 + u64::from(segments) * 20);
    put(ms, true, end, 5_001, FIN | ACK, 0);
    put(ms + 10, false, 5_001, end + 1, FIN | ACK, 0);
    put(ms + 10, true, end + 1, 5_002, ACK, 0);
    all
}

/// As a pcap with nanoseconds.
fn pcap(segments: &[Segment]) -> Vec<u8> {
    let words = [0xa1b2_3c4d, 4 << 16 | 2, 0, 0, 96, 1];
    let mut file: Vec<u8> = words.iter().flat_map(|w: &u32| w.to_le_bytes()).collect();
    for segment in segments {
        let (frame, wire) = segment.frame();
        let time = START + segment.at;
        let words = [
            (time / 1_000_000_000) as u32,
            (time % 1_000_000_000) as u32,
            frame.len() as u32,
            wire,
        ];
        file.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        file.extend(frame);
    }
    file
}

/// A pcapng with these packets and a count of those that the capture lost.
fn pcapng(segments: &[Segment], lost: u64) -> Vec<u8> {
    fn block(kind: u32, body: &[u8], file: &mut Vec<u8>) {
        let length = (12 + body.len()) as u32;
        file.extend(kind.to_le_bytes());
        file.extend(length.to_le_bytes());
        file.extend(body);
        file.extend(length.to_le_bytes());
    }
    let mut file = Vec::new();
    let section = [0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0];
    block(0x0a0d_0d0a, &[&section[..], &[0xff; 8]].concat(), &mut file);
    block(1, &[1, 0, 0, 0, 96, 0, 0, 0], &mut file);
    for segment in segments {
        let (mut frame, wire) = segment.frame();
        let micros = (START + segment.at) / 1000;
        let captured = frame.len() as u32;
        frame.resize(frame.len().next_multiple_of(4), 0);
        let words = [0, (micros >> 32) as u32, micros as u32, captured, wire];
        let words: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        block(6, &[words, frame].concat(), &mut file);
    }
    // Interface statistics: time, then isb_ifdrop (5) of 8 bytes.
    let mut body = vec![0; 12];
    body.extend([5, 0, 8, 0]);
    body.extend(lost.to_le_bytes());
    body.extend([0; 4]);
    block(5, &body, &mut file);
    file
}

fn run(file: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_slowpath"))
        .arg("trace")
        .arg(file)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("runs")
}

fn text(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).expect("is text");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    text
}

/// The capture's object, and the connections'.
fn objects(bytes: &[u8]) -> (Value, Vec<Value>) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("made.pcap");
    std::fs::write(&path, bytes).expect("is written");
    // What a person sees is made of the same bytes.
    text(&run(&path, &["--long"]));
    let said = text(&run(&path, &["--json"]));
    let mut all = said
        .lines()
        .map(|l| serde_json::from_str(l).expect("is JSON"));
    (all.next().expect("the capture"), all.collect())
}

/// The only connection.
fn one(bytes: &[u8]) -> (Value, Value) {
    let (capture, mut connections) = objects(bytes);
    assert_eq!(connections.len(), 1, "{capture}");
    (capture, connections.remove(0))
}

fn times_skipped(capture: &Value) -> u64 {
    let skipped = capture["skipped"].as_object().expect("an object");
    skipped.values().filter_map(|s| s["times"].as_u64()).sum()
}

/// A bit of a time flips: one packet lies 78 years behind its neighbours.
#[test]
fn a_packet_from_another_century_is_judged_without_a_panic() {
    const YEAR: u64 = 365 * 24 * 3_600 * 1_000 * MILLI;
    let segments = transfer(12, MSS);
    for late in 0..segments.len() {
        let mut segments = segments.clone();
        segments[late].at += 78 * YEAR;
        let (capture, _) = objects(&pcap(&segments));
        assert_eq!(capture["packets"], segments.len());
    }
}

/// Cut at every byte: whole records count, and one that is not whole is reported.
#[test]
fn files_cut_at_every_byte() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cut");
    let segments = &transfer(1, MSS)[..4];
    for (whole, name) in [(pcap(segments), "pcap"), (pcapng(segments, 0), "pcapng")] {
        let mut counted = Vec::new();
        for length in 0..=whole.len() {
            std::fs::write(&path, &whole[..length]).expect("is written");
            let output = run(&path, &["--json"]);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            match output.status.code() {
                Some(0) => {
                    let capture = text(&output);
                    let first = capture.lines().next().expect("the capture");
                    let first: Value = serde_json::from_str(first).expect("is JSON");
                    let packets = first["packets"].as_u64().expect("a number");
                    counted.push((packets, times_skipped(&first)));
                }
                // Too little to recognise its format.
                Some(1) => {
                    assert!(said.contains("cut"), "{name} at {length}: {said}");
                    assert!(length < 28, "{name} at {length}: {said}");
                }
                other => panic!("{name} at {length}: {other:?} {said}"),
            }
        }
        assert!(counted.is_sorted_by_key(|s| s.0), "{name}");
        assert_eq!(counted.last(), Some(&(4, 0)), "{name}");
        // Each cut is reported, but those between two records or blocks: 5 in a pcap; in a pcapng
        // the two headers, four packets and the statistics.
        let clean = counted.iter().filter(|s| s.1 == 0).count();
        assert_eq!(clean, if name == "pcap" { 5 } else { 7 }, "{name}");
    }
}

/// A record that claims to be as long as can be said, in the middle: what comes after it is
/// found again, and the damage counted.
#[test]
fn absurd_lengths() {
    let segments = transfer(20, MSS);
    for length in [u32::MAX, 1 << 31, 1 << 24] {
        let mut bytes = pcap(&segments);
        // The captured length of the 11th record.
        let at = 24 + 10 * (16 + 54) + 8;
        bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
        let (capture, connection) = one(&bytes);
        assert!(times_skipped(&capture) > 0, "{capture}");
        assert_eq!(
            connection["packets"],
            segments.len() - 1,
            "{length}: {capture}"
        );
        // An ACK or a segment is missing in the capture: no end sent anything again.
        assert_eq!(connection["from_client"]["retransmitted_packets"], 0);
    }
}

#[test]
fn a_clock_that_goes_back() {
    let mut segments = transfer(50, MSS);
    let whole = one(&pcap(&segments)).1;
    for segment in &mut segments[60..] {
        segment.at -= 500 * MILLI;
    }
    let (capture, connection) = one(&pcap(&segments));
    assert_eq!(capture["clock_went_back"], 1);
    assert_eq!(connection["clock_steps_back"], 1);
    for key in ["packets", "unique_bytes", "retransmitted_packets"] {
        assert_eq!(
            connection["from_client"][key], whole["from_client"][key],
            "{key}"
        );
    }
    let least = connection["duration_us"].as_f64().expect("a number");
    assert!(least > 0.0 && least < whole["duration_us"].as_f64().expect("a number"));
}

/// Only what one side sent passed here.
#[test]
fn one_direction_only() {
    for from_client in [true, false] {
        let mut segments = transfer(50, MSS);
        segments.retain(|s| s.from_client == from_client);
        let (_, connection) = one(&pcap(&segments));
        let (here, gone) = match from_client {
            true => ("from_client", "from_server"),
            false => ("from_server", "from_client"),
        };
        assert_eq!(connection[here]["packets"], segments.len());
        assert_eq!(connection[gone]["packets"], 0);
        for side in [here, gone] {
            assert_eq!(connection[side]["retransmitted_packets"], 0, "{connection}");
        }
        // Nothing is claimed of what the capture lacks.
        let said = connection.to_string();
        assert!(!said.contains("\"problem\":"), "{said}");
    }
}

/// Segments of 100,000 bytes, as offload hands them over: no loss, no damage, all bytes.
#[test]
fn segments_longer_than_64_kib() {
    let (capture, connection) = one(&pcap(&transfer(10, 100_000)));
    assert_eq!(times_skipped(&capture), 0);
    let sent = &connection["from_client"];
    assert_eq!(sent["unique_bytes"], 1_000_000);
    assert_eq!(sent["segment_max_bytes"], 100_000);
    assert_eq!(sent["retransmitted_packets"], 0);
    assert_eq!(sent["capture_lost_bytes"], 0);
}

/// What the capture lost is the capture's loss: the sender did not send it again, and it was acknowledged.
#[test]
fn what_the_capture_dropped_is_not_lost() {
    let mut segments = transfer(100, MSS);
    // Data segments 31 to 35, their ACKs stay.
    segments.retain(|s| {
        let number = s.sequence.saturating_sub(1) / MSS;
        s.length == 0 || !(30..35).contains(&number)
    });
    for (bytes, drops) in [(pcap(&segments), None), (pcapng(&segments, 5), Some(5))] {
        let (capture, connection) = one(&bytes);
        assert_eq!(capture["capture_drops"].as_u64(), drops, "{capture}");
        let sent = &connection["from_client"];
        assert_eq!(sent["capture_lost_bytes"], 5 * MSS, "{sent}");
        assert_eq!(sent["retransmitted_packets"], 0, "{sent}");
        assert_eq!(sent["timeouts"], 0, "{sent}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lossy.pcapng");
    std::fs::write(&path, pcapng(&segments, 5)).expect("is written");
    let said = text(&run(&path, &["--long"]));
    assert!(
        said.contains("the capture lost 5 packets by its own account"),
        "{said}"
    );
}

/// A packet that a finding names in a block that can have no comment: it is reported, and the
/// capture is written all the same.
#[test]
fn a_packet_without_room_for_a_comment_is_reported() {
    let mut segments = transfer(20, MSS);
    // A segment is lost and repaired by the retransmission timer, 400 ms later.
    let lost = segments[23];
    for segment in &mut segments[24..] {
        segment.at += 400 * MILLI;
    }
    let mut again = lost;
    again.at += 390 * MILLI;
    segments.insert(24, again);
    let bytes = pcapng(&segments, 0);
    let folder = tempfile::tempdir().expect("a folder");
    let (from, to) = (
        folder.path().join("simple"),
        folder.path().join("out.pcapng"),
    );
    // Options with a length past the block's end, in every packet: no room for another.
    let broken = with_damaged_options(&bytes);
    for (bytes, reported) in [(bytes, false), (broken, true)] {
        std::fs::write(&from, bytes).expect("is written");
        let output = run(&from, &["--annotate", to.to_str().expect("is text")]);
        text(&output);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            said.contains("could not be given a comment"),
            reported,
            "{said}"
        );
        let (written, _) = objects(&std::fs::read(&to).expect("is written"));
        assert_eq!(written["packets"], segments.len());
    }
}

/// The same file with an option in each packet that is longer than its block.
fn with_damaged_options(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
    while at < bytes.len() {
        let length = word(at + 4) as usize;
        let block = &bytes[at..at + length];
        if word(at) == 6 {
            let longer = (length as u32 + 4).to_le_bytes();
            out.extend(&block[..4]);
            out.extend(longer);
            out.extend(&block[8..length - 4]);
            out.extend([1, 0, 0xff, 0xff]);
            out.extend(longer);
        } else {
            out.extend(block);
        }
        at += length;
    }
    out
}

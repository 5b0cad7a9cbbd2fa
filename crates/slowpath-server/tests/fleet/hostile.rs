// SPDX-License-Identifier: Apache-2.0
//! Bytes that no agent sends, and another agent meanwhile.

use crate::client::{Client, head, refused};
use crate::setting::{Fleet, batch, header};
use slowpath_server::intake::Receipt;
use slowpath_server::refusals::Reason;
use slowpath_ship::batch::{Encoder, Header, Items, MAX_BATCH, Prefix};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Kilobytes that this process has, at most so far (proc(5)).
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.unwrap().split_whitespace().nth(1).unwrap();
    number.parse().unwrap()
}

/// The header of a batch with these items, and other bytes after it.
fn with_items(compressed: &[u8]) -> Vec<u8> {
    let whole = batch("a");
    let (_, length) = Header::read(&whole).unwrap();
    let mut body = whole[..length].to_vec();
    body.extend(compressed);
    body
}

#[test]
fn tls_1_2_is_refused() {
    let fleet = Fleet::new();
    let mine = fleet.join("web-1");
    let mut undisturbed = fleet.connect(&mine);
    // A ClientHello without supported_versions (RFC 8446 4.2.1): TLS 1.2 at most.
    let extensions: [u8; 22] = [
        0, 10, 0, 4, 0, 2, 0, 23, // supported_groups: secp256r1
        0, 13, 0, 4, 0, 2, 4, 3, // signature_algorithms: ecdsa_secp256r1_sha256
        0, 11, 0, 2, 1, 0, // ec_point_formats: uncompressed
    ];
    let mut hello = vec![3, 3];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0xc0, 0x2b, 1, 0, 0, extensions.len() as u8]);
    hello.extend(extensions);
    let mut record = vec![22, 3, 1, 0, (hello.len() + 4) as u8, 1, 0, 0];
    record.push(hello.len() as u8);
    record.extend(hello);
    let mut stream = TcpStream::connect(fleet.server().address()).unwrap();
    stream.write_all(&record).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    // A fatal alert, protocol_version (RFC 8446 6.2).
    assert_eq!(answer[0], 21, "{answer:?}");
    assert_eq!(answer[5..], [2, 70]);
    fleet.was_refused(Reason::Tls, 1);
    assert_eq!(undisturbed.ship(&batch("a")).status, 200);
}

#[test]
fn what_is_no_tls_is_refused() {
    let fleet = Fleet::new();
    let text = head("GET", "/v1/ca", "");
    for bytes in [text.as_bytes(), &[0; 64], &[0xff; 64]] {
        let mut stream = TcpStream::connect(fleet.server().address()).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP"));
    }
    fleet.was_refused(Reason::Tls, 3);
}

#[test]
fn decompression_bombs_are_refused_within_bounded_memory() {
    let fleet = Fleet::new();
    let mine = fleet.join("web-1");
    let other = fleet.join("web-2");
    let mut undisturbed = fleet.connect(&other);
    // 256 MiB of zeros in some 8 KiB, with and without its size in the frame.
    let zeros = vec![0; 256 << 20];
    let sized = zstd::bulk::compress(&zeros, 1).unwrap();
    let mut unsized_ = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    unsized_.write_all(&zeros[..64 << 20]).unwrap();
    let unsized_ = unsized_.finish().unwrap();
    drop(zeros);
    let before = peak_kib();
    let mut client = fleet.connect(&mine);
    for _ in 0..20 {
        for bomb in [&sized, &unsized_] {
            let answer = client.ship(&with_items(bomb));
            assert_eq!(answer.refusal(), refused(400, "malformed"));
            assert!(answer.text().contains("items"), "{}", answer.text());
        }
        assert_eq!(undisturbed.ship(&batch("a")).status, 200);
    }
    let grown = peak_kib() - before;
    assert!(grown < 32 << 10, "{grown} KiB");
}

#[test]
fn oversized_bodies_are_refused_and_read_to_their_end() {
    let fleet = Fleet::new();
    let mine = fleet.join("web-1");
    let mut client = fleet.connect(&mine);
    let answer = client.ship(&vec![0; MAX_BATCH + 1]);
    assert_eq!(answer.refusal(), refused(413, "too-large"));
    assert_eq!(answer.json()["limit"], MAX_BATCH);
    // Of an unknown length, too.
    let mut client = fleet.connect(&mine);
    let fields = "Content-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n";
    let mut body = format!("{:x}\r\n", MAX_BATCH + 1).into_bytes();
    body.resize(body.len() + MAX_BATCH + 1, 0);
    body.extend(b"\r\n0\r\n\r\n");
    if let Ok(answer) = client.try_ask(&head("POST", "/v1/batch", fields), &body) {
        assert_eq!(answer.refusal(), refused(413, "too-large"));
    }
    let mut client = Client::anonymous(fleet.server().address(), &mine.bundle, fleet.now());
    let long = vec![b' '; (16 << 10) + 1];
    let answer = client.post("/v1/join", "application/json", &long).unwrap();
    assert_eq!(answer.refusal(), refused(413, "too-large"));
    assert_eq!(fleet.taken(), 0);
}

#[test]
fn malformed_batches_are_refused_with_the_field() {
    let fleet = Fleet::new();
    let mut client = fleet.connect(&fleet.join("web-1"));
    let whole = batch("a");
    let mut bodies: Vec<Vec<u8>> = (0..whole.len()).map(|at| whole[..at].to_vec()).collect();
    let (_, length) = Header::read(&whole).unwrap();
    for at in 0..whole.len() {
        // Of the zstd frame's descriptor this bit is to be ignored (RFC 8878 3.1.1.1.1.4).
        if at == length + 4 {
            continue;
        }
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        bodies.push(flipped);
    }
    bodies.push([&whole[..], b"more"].concat());
    let mut malformed = 0;
    for body in &bodies {
        let (status, error) = client.ship(body).refusal();
        match status {
            400 => {
                assert_eq!(error, "malformed");
                malformed += 1;
            }
            // A newer version, before its checksum is looked at.
            _ => assert_eq!((status, &*error), (426, "newer")),
        }
    }
    assert!(
        malformed + 2 >= bodies.len(),
        "{malformed} of {}",
        bodies.len()
    );
    assert_eq!(fleet.taken(), 0);
    assert_eq!(client.ship(&whole).status, 200);
}

#[test]
fn newer_batches_are_answered_with_the_versions_that_are_read() {
    let fleet = Fleet::new();
    let mut client = fleet.connect(&fleet.join("web-1"));
    let newer = Header {
        schema: u16::MAX,
        ..header("a", 0)
    };
    let mut encoder = Encoder::new().unwrap();
    let body = encoder.encode(&newer, &Items::default()).unwrap();
    let answer = client.ship(&body);
    assert_eq!(answer.refusal(), refused(426, "newer"));
    assert!(answer.json()["versions"]["schema"].as_u64().unwrap() < 65_535);
}

#[test]
fn bodies_of_other_types_are_refused() {
    let fleet = Fleet::new();
    let mut client = fleet.connect(&fleet.join("web-1"));
    let answer = client.post("/v1/batch", "text/html", &batch("a")).unwrap();
    assert_eq!(answer.refusal(), refused(415, "media-type"));
    let fields = "Content-Encoding: gzip\r\nContent-Length: 0\r\n";
    let answer = client.try_ask(&head("POST", "/v1/batch", fields), b"");
    assert_eq!(answer.unwrap().refusal(), refused(415, "media-type"));
}

#[test]
fn what_the_intake_says_becomes_a_status() {
    let fleet = Fleet::new();
    let mut client = fleet.connect(&fleet.join("web-1"));
    let crc = Prefix(5);
    for (receipt, expected, retry) in [
        (Receipt::Behind { offset: 7, crc }, (409, "behind"), None),
        (
            Receipt::OtherBytes { offset: 7, crc },
            (409, "other-bytes"),
            None,
        ),
        (Receipt::Busy, (503, "busy"), Some("2")),
        (Receipt::Full, (507, "full"), Some("30")),
        (Receipt::Failed("torn".to_owned()), (503, "busy"), Some("2")),
    ] {
        fleet.intake.scripted.lock().unwrap().push(receipt);
        let answer = client.ship(&batch("a"));
        assert_eq!(answer.refusal(), refused(expected.0, expected.1));
        if expected.0 == 409 {
            assert_eq!(answer.json()["offset"], 7);
            assert_eq!(answer.json()["crc"], 5);
        }
        let again = answer
            .head
            .lines()
            .find_map(|it| it.strip_prefix("Retry-After: "));
        assert_eq!(again, retry);
    }
    let record = &fleet.server().status().hosts["web-1"].record;
    assert_eq!(record.conflicts, ["a"]);
    let lines = fleet.journal.0.lock().unwrap().join("\n");
    assert!(lines.contains("torn"), "{lines}");
}

#[test]
fn segments_are_answered_in_the_order_asked_for() {
    let fleet = Fleet::new();
    let mut client = fleet.connect(&fleet.join("web-1"));
    assert_eq!(client.ship(&batch("a")).status, 200);
    let segment = |id: &str| serde_json::json!({"id": id, "length": 9, "offset": 9, "crc": 9});
    let body = serde_json::json!({"segments": [segment("unknown"), segment("a")]});
    let answer = client.post_json("/v1/segments", &body).json();
    assert_eq!(answer["segments"][0]["id"], "unknown");
    assert_eq!(answer["segments"][0]["offset"], 0);
    assert_eq!(answer["segments"][1]["offset"], 100);
    let start = answer["start"].clone();
    assert!(start.is_string());
    for wrong in [
        serde_json::json!({"segments": [segment("../../etc")]}),
        serde_json::json!({"segments": vec![segment("a"); 10_001]}),
        serde_json::json!({"segments": 1}),
        serde_json::json!([[[[[[[[[[]]]]]]]]]]),
    ] {
        let answer = client.post_json("/v1/segments", &wrong);
        assert_eq!(answer.refusal(), refused(400, "malformed"));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Series written as M-Lab writes them: lines of M-Lab's own come back as they were, and what
//! is saved of a living connection is read again.

use serde_json::Value;
use slowpath_export::mlab::{Recorder, metadata_line, row_line};
use slowpath_observe::inet_diag::RawDump;
use slowpath_observe::mlab::read_series;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};

/// A number of base64, by hand: the decoder of the crate under test is the encoder's twin.
fn decoded(text: &str) -> Vec<u8> {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for c in text.bytes().filter(|c| *c != b'=') {
        let digit = digits.iter().position(|d| *d == c).unwrap();
        bits = bits << 6 | digit as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    out
}

#[test]
fn lines_of_m_lab_come_back_as_they_were() {
    let series = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data/tcp-info/app-limited.jsonl.zst");
    let Ok(file) = std::fs::File::open(&series) else {
        println!("SKIPPED lines_of_m_lab_come_back_as_they_were: no series of M-Lab's here");
        return;
    };
    let mut text = String::new();
    zstd::Decoder::new(file)
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    let mut rows = 0;
    for line in text.lines() {
        let theirs: Value = serde_json::from_str(line).unwrap();
        let ours = match theirs.get("Metadata") {
            Some(metadata) => metadata_line(
                metadata["UUID"].as_str().unwrap(),
                metadata["StartTime"].as_str().unwrap(),
            ),
            None => {
                rows += 1;
                let message = decoded(theirs["RawIDM"].as_str().unwrap());
                let attributes: Vec<(u16, Vec<u8>)> = (0..)
                    .zip(theirs["Attributes"].as_array().into_iter().flatten())
                    .filter_map(|(number, value)| Some((number, decoded(value.as_str()?))))
                    .collect();
                let borrowed: Vec<(u16, &[u8])> =
                    attributes.iter().map(|(n, v)| (*n, &v[..])).collect();
                row_line(theirs["Timestamp"].as_str().unwrap(), &message, &borrowed)
            }
        };
        let ours: Value = serde_json::from_str(&ours).unwrap();
        assert_eq!(ours, theirs);
    }
    assert!(rows > 50, "{rows}");
}

fn files(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, into);
        } else {
            into.push(path);
        }
    }
}

#[test]
fn a_living_connection_is_saved_and_read_again() {
    const TEST: &str = "a_living_connection_is_saved_and_read_again";
    let mut dump = match RawDump::open() {
        Ok(dump) => dump,
        Err(error) => {
            println!("SKIPPED {TEST}: {error}");
            return;
        }
    };
    let directory = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::new(directory.path(), "host", 1_700_000_000);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    let local = sender.local_addr().unwrap();
    let mut cookie = None;
    let mut look = |second: usize| {
        let time = format!("2026-01-31T12:00:0{second}.000000Z");
        dump.poll(|socket| {
            if socket.header.id.tuple().local == local {
                cookie = Some(socket.header.id.cookie());
                let cookie = socket.header.id.cookie();
                recorder
                    .see(&time, cookie, socket.message, &socket.attributes)
                    .unwrap();
            }
        })
        .unwrap();
        recorder.looked().unwrap();
    };
    for second in 0..4 {
        sender.write_all(&[1; 1000]).unwrap();
        receiver.read_exact(&mut [0; 1000]).unwrap();
        look(second);
    }
    // Nothing has happened since: no line.
    look(4);
    drop((sender, receiver));
    let cookie = cookie.unwrap();
    recorder.write_all().unwrap();

    let mut saved = Vec::new();
    files(directory.path(), &mut saved);
    let uuid = format!("host_1700000000_unsafe_{cookie:016X}");
    let wanted = directory
        .path()
        .join(format!("2026/01/31/{uuid}.00000.jsonl.zst"));
    assert_eq!(saved, [wanted]);
    let series = read_series(&saved[0]).unwrap();
    assert_eq!(series.uuid, uuid);
    assert_eq!(series.skipped_lines(), 0);
    assert!(series.cut.is_none());
    let received: Vec<u64> = series
        .snapshots
        .iter()
        .map(|(_, s)| s.stats.bytes_sent.unwrap_or(s.stats.bytes_acked))
        .collect();
    assert_eq!(received[..4], [1000, 2000, 3000, 4000]);
    let (_, last) = series.snapshots.last().unwrap();
    assert_eq!(last.tuple.local, local);
    assert_eq!(last.id.cookie, cookie);
}

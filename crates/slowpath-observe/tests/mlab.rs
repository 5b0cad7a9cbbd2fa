// SPDX-License-Identifier: Apache-2.0
//! Series that m-lab's tcp-info saved. Expectations on the published files are those of
//! their README, not of this reader's output.

use slowpath_model::{FourTuple, Micros, MonoNanos, TcpState, Tier, WallMicros};
use slowpath_observe::mlab::{MAX_LINE, Series, SeriesError, SkipReason, parse_line, read_series};
use std::io::Write;
use std::path::{Path, PathBuf};

fn published(test: &str, name: &str) -> Option<Series> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("../shared/data/tcp-info").join(name);
    if !path.exists() {
        println!("SKIPPED {test}: {name} is not in the shared data");
        return None;
    }
    Some(read_series(path).unwrap())
}

/// README: "network-limited: 150 rows, no rwnd- or sndbuf-limited time, 5 retransmissions,
/// cwnd 3, RTT ~126 ms."
#[test]
fn the_network_limited_series_says_so() {
    let Some(series) = published(
        "the_network_limited_series_says_so",
        "network-limited.jsonl.zst",
    ) else {
        return;
    };
    assert_eq!(series.snapshots.len(), 150);
    assert_eq!(series.skipped_lines(), 0);
    assert!(series.cut.is_none());
    assert!(series.snapshots.is_sorted_by_key(|(wall, _)| *wall));
    for (_, snapshot) in &series.snapshots {
        let stats = &snapshot.stats;
        assert_eq!(stats.rwnd_limited, Some(Micros::ZERO));
        assert_eq!(stats.sndbuf_limited, Some(Micros::ZERO));
        assert_eq!(stats.retransmitted, 5);
        assert_eq!(stats.cwnd, 3);
        let rtt = stats.srtt.unwrap().as_millis_f64();
        assert!((120.0..132.0).contains(&rtt), "RTT {rtt} ms");
        // Statistics that the kernel of 2019 did not have.
        assert_eq!((stats.rto_stats, stats.receive_window), (None, None));
        assert_eq!(snapshot.tier, Tier::Imported);
    }
}

/// README: "app-limited: 61 rows, busy 68 ms of 395 s."
#[test]
fn the_app_limited_series_says_so() {
    let Some(series) = published("the_app_limited_series_says_so", "app-limited.jsonl.zst") else {
        return;
    };
    assert_eq!(series.snapshots.len(), 61);
    let (_, last) = series.snapshots.last().unwrap();
    assert_eq!(last.stats.busy, Some(Micros::from_millis(68)));
    let seconds = last.at.since(MonoNanos(0)).as_secs_f64();
    assert_eq!(seconds.round(), 395.0);
    // The connection's last line is of TIME_WAIT, which has no tcp_info.
    assert_eq!(
        series.skipped.into_iter().collect::<Vec<_>>(),
        [(SkipReason::NoStatistics, 1)]
    );
}

const METADATA: &str = r#"{"Timestamp":"0001-01-01T00:00:00Z","Metadata":{"UUID":"host_12_unsafe_0A","Sequence":3,"StartTime":"1970-01-01T01:00:01+01:00"}}"#;

/// Base64 (RFC 4648 section 4), written anew so that the reader's is not its own oracle.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let mut bits = 0u32;
        for i in 0..3 {
            bits = bits << 8 | u32::from(*group.get(i).unwrap_or(&0));
        }
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit)) & 63;
            text.push(if digit <= group.len() {
                DIGITS[value as usize] as char
            } else {
                '='
            });
        }
    }
    text
}

fn header(cookie: u8) -> Vec<u8> {
    let mut bytes = vec![0; 72];
    bytes[..8].copy_from_slice(&[2, 1, 0, 0, 0x1f, 0x90, 0xc3, 0x50]);
    bytes[8..12].copy_from_slice(&[10, 0, 0, 1]);
    bytes[24..28].copy_from_slice(&[10, 0, 0, 2]);
    bytes[44] = cookie;
    bytes[60] = 33; // idiag_wqueue's low byte... on little-endian machines
    bytes
}

fn tcp_info(state: u8, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    bytes[0] = state;
    bytes
}

fn row(time: &str, header: &[u8], info: &[u8]) -> String {
    let memory: Vec<u8> = (50u32..59).flat_map(u32::to_ne_bytes).collect();
    format!(
        r#"{{"Timestamp":"{time}","RawIDM":"{}","Attributes":[null,"AAAA","{}",null,"Y3ViaWMA","AA==",null,"{}"]}}"#,
        base64(header),
        base64(info),
        base64(&memory)
    )
}

fn written(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn read(text: &str) -> Series {
    read_series(written(text.as_bytes()).path()).unwrap()
}

#[test]
fn a_row_becomes_a_snapshot() {
    let text = format!(
        "{METADATA}\n{}\n",
        row(
            "1970-01-01T00:00:02.500000001Z",
            &header(10),
            &tcp_info(1, 192)
        )
    );
    let series = read(&text);
    assert_eq!(series.uuid, "host_12_unsafe_0A");
    assert_eq!(series.sequence, 3);
    assert_eq!(series.start, WallMicros(1_000_000));
    let [(wall, snapshot)] = &series.snapshots[..] else {
        panic!("{series:?}");
    };
    assert_eq!(*wall, WallMicros(2_500_000));
    assert_eq!(snapshot.at, MonoNanos(1_500_000_001));
    assert_eq!(snapshot.id.cookie, 10);
    assert_eq!(
        snapshot.tuple,
        FourTuple::new(
            "10.0.0.1:8080".parse().unwrap(),
            "10.0.0.2:50000".parse().unwrap()
        )
    );
    let stats = snapshot.stats;
    assert_eq!(stats.state, TcpState::Established);
    assert_eq!(stats.sndbuf_limited, Some(Micros::ZERO));
    assert_eq!(stats.delivered, None, "its tcp_info ends before");
    assert_eq!(
        (stats.receive_buffer, stats.send_buffer, stats.send_memory),
        (Some(51), Some(53), Some(55))
    );
    if cfg!(target_endian = "little") {
        assert_eq!(stats.send_queue, 33);
    }
}

#[test]
fn lines_that_give_nothing_are_counted_by_reason() {
    let good = |second: u32| {
        row(
            &format!("1970-01-01T00:00:{second:02}Z"),
            &header(10),
            &tcp_info(1, 280),
        )
    };
    let at = "1970-01-01T00:00:30Z";
    let long = format!(r#"{{"Timestamp":"{}"}}"#, "x".repeat(MAX_LINE));
    let lines = [
        METADATA.to_owned(),
        good(10),
        "not json".to_owned(),
        long,
        String::new(),
        row("yesterday", &header(10), &tcp_info(1, 280)),
        row(at, &header(10)[..71], &tcp_info(1, 280)),
        format!(r#"{{"Timestamp":"{at}","Attributes":[]}}"#),
        format!(r#"{{"Timestamp":"{at}","RawIDM":"*","Attributes":[]}}"#),
        row(at, &header(10), &tcp_info(1, 100)),
        row(at, &header(10), &tcp_info(99, 280)),
        row(at, &header(10), &tcp_info(10, 280)),
        row(at, &header(11), &tcp_info(1, 280)),
        format!(
            r#"{{"Timestamp":"{at}","RawIDM":"{}","Attributes":[null]}}"#,
            base64(&header(10))
        ),
        format!(
            r#"{{"Timestamp":"{at}","RawIDM":"{}"}}"#,
            base64(&header(10))
        ),
        good(9),
        METADATA.to_owned(),
        good(11),
    ];
    let series = read(&lines.join("\n"));
    let seconds: Vec<_> = series
        .snapshots
        .iter()
        .map(|(wall, _)| wall.0 / 1_000_000)
        .collect();
    assert_eq!(seconds, [10, 11]);
    assert_eq!(
        series.skipped.into_iter().collect::<Vec<_>>(),
        [
            (SkipReason::TooLong, 1),
            (SkipReason::NotJson, 1),
            (SkipReason::BadTime, 1),
            (SkipReason::BadHeader, 3),
            (SkipReason::BadStatistics, 2),
            (SkipReason::NoStatistics, 2),
            (SkipReason::Listening, 1),
            (SkipReason::OtherConnection, 1),
            (SkipReason::OutOfOrder, 1),
            (SkipReason::Metadata, 1),
        ]
    );
}

#[test]
fn every_compression_gives_the_same() {
    let text = format!(
        "{METADATA}\n{}\n{}\n",
        row("1970-01-01T00:00:02Z", &header(1), &tcp_info(1, 280)),
        row("1970-01-01T00:00:03Z", &header(1), &tcp_info(8, 280))
    );
    let plain = read(&text).snapshots;
    assert_eq!(plain.len(), 2);
    let zstd = zstd::encode_all(text.as_bytes(), 0).unwrap();
    assert_eq!(read_series(written(&zstd).path()).unwrap().snapshots, plain);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(text.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    assert_eq!(read_series(written(&gzip).path()).unwrap().snapshots, plain);
}

#[test]
fn a_compressed_file_that_breaks_off_keeps_what_came_before() {
    let mut text = format!("{METADATA}\n");
    for second in 2..60 {
        let time = format!("1970-01-01T00:00:{second:02}Z");
        text += &row(&time, &header(1), &tcp_info(1, 280));
        text.push('\n');
    }
    // One block a line, so that a cut leaves whole ones.
    let mut encoder = zstd::Encoder::new(Vec::new(), 0).unwrap();
    for line in text.split_inclusive('\n') {
        encoder.write_all(line.as_bytes()).unwrap();
        encoder.flush().unwrap();
    }
    let whole = encoder.finish().unwrap();
    let series = read_series(written(&whole[..whole.len() / 2]).path()).unwrap();
    assert!(series.cut.is_some());
    assert!((1..58).contains(&series.snapshots.len()));
}

#[test]
fn what_is_no_series_is_a_named_error() {
    for (text, expected) in [
        ("", SkipReason::Missing),
        ("\n\n", SkipReason::Missing),
        ("hello\n", SkipReason::NotJson),
        ("{\"Timestamp\":\"\"}\n", SkipReason::BadHeader),
    ] {
        match read_series(written(text.as_bytes()).path()) {
            Err(SeriesError::NotASeries { reason, .. }) => assert_eq!(reason, expected, "{text:?}"),
            other => panic!("{text:?}: {other:?}"),
        }
    }
    let missing = PathBuf::from("/nonexistent/series.jsonl");
    match read_series(&missing) {
        Err(SeriesError::Read { path, .. }) => assert_eq!(path, missing),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_line_cut_anywhere_never_panics() {
    let line = row("1970-01-01T00:00:02Z", &header(1), &tcp_info(1, 280));
    assert!(parse_line(line.as_bytes()).is_ok());
    for length in 0..line.len() {
        assert_eq!(
            parse_line(&line.as_bytes()[..length]),
            Err(SkipReason::NotJson),
            "{length}"
        );
    }
}

#[test]
fn connections_of_one_boot_share_its_id() {
    let with = |uuid: &str| {
        let metadata = METADATA.replace("host_12_unsafe_0A", uuid);
        let row = row("1970-01-01T00:00:02Z", &header(1), &tcp_info(1, 280));
        read(&format!("{metadata}\n{row}\n")).snapshots[0]
            .1
            .id
            .boot_id
    };
    assert_eq!(with("host_12_unsafe_0A"), with("host_12_unsafe_0B"));
    assert_ne!(with("host_12_unsafe_0A"), with("host_13_unsafe_0A"));
}

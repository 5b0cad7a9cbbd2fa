// SPDX-License-Identifier: Apache-2.0
//! A line of a series that m-lab's tcp-info saved, and a whole file of such lines.
#![no_main]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use libfuzzer_sys::fuzz_target;
use slowpath_fuzz::{check_stats, diag_header, tcp_info};
use slowpath_model::{MonoNanos, TcpState};
use slowpath_observe::inet_diag::wire::DiagHeader;
use slowpath_observe::mlab::{Line, SeriesReader, SkipReason, parse_line};
use slowpath_observe::tcp_info::{SocketQueues, TcpInfo};

fuzz_target!(
    init: slowpath_fuzz::write_seeds(seeds),
    |data: &[u8]| {
        if let Ok(Line::Row(row)) = parse_line(data) {
            check_stats(&row.stats);
            assert_ne!(row.stats.state, TcpState::Listen);
            assert_eq!(DiagHeader::read(&row.header.encode()), Ok(row.header));
        }
        check_wrapped(data);
        let Ok(mut series) = SeriesReader::new(data) else {
            return;
        };
        let mut rows = 0;
        let mut last = MonoNanos(0);
        let mut cookie = None;
        for (_, snapshot) in &mut series {
            rows += 1;
            assert!(snapshot.at >= last, "time does not go backwards");
            last = snapshot.at;
            assert_eq!(*cookie.get_or_insert(snapshot.id.cookie), snapshot.id.cookie);
            check_stats(&snapshot.stats);
        }
        assert!(series.cut().is_none(), "a slice does not break off");
        let skipped: u64 = series.skipped().values().sum();
        let lines = data
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.trim_ascii().is_empty())
            .count() as u64;
        assert_eq!(1 + rows + skipped, lines, "every line is accounted for");
    }
);

/// The bytes as header and `tcp_info` of an otherwise valid line.
fn check_wrapped(data: &[u8]) {
    let (header, info) = data.split_at(data.len().min(72));
    let line = format!(
        r#"{{"Timestamp":"2019-08-26T23:56:00Z","RawIDM":"{}","Attributes":[null,null,"{}"]}}"#,
        STANDARD.encode(header),
        STANDARD.encode(info)
    );
    let line = parse_line(line.as_bytes());
    match (DiagHeader::read(header), TcpInfo::read(info)) {
        (Err(_), _) => assert_eq!(line, Err(SkipReason::BadHeader)),
        (Ok(_), Err(_)) => assert_eq!(line, Err(SkipReason::BadStatistics)),
        (Ok(_), Ok(info)) if info.state() == TcpState::Listen => {
            assert_eq!(line, Err(SkipReason::Listening));
        }
        (Ok(header), Ok(info)) => {
            let queues = SocketQueues {
                send: header.send_queue,
                receive: header.receive_queue,
                memory: None,
            };
            let Ok(Line::Row(row)) = line else {
                panic!("{line:?}");
            };
            assert_eq!((row.header, row.stats), (header, info.stats(queues)));
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let metadata = concat!(
        r#"{"Timestamp":"0001-01-01T00:00:00Z","Metadata":{"UUID":"host_1_unsafe_0A","#,
        r#""Sequence":0,"StartTime":"2019-08-26T19:55:42.754686952-04:00"}}"#
    );
    let memory: Vec<u8> = (4096u32..4105).flat_map(u32::to_ne_bytes).collect();
    let row = |second: u32, attributes: String| {
        format!(
            r#"{{"Timestamp":"2019-08-26T23:56:{second:02}.5Z","RawIDM":"{}","Attributes":{attributes}}}"#,
            STANDARD.encode(diag_header(10, 10)),
        )
    };
    let full = format!(
        r#"[null,"AA==","{}",null,"Y3ViaWMA","AA==",null,"{}"]"#,
        STANDARD.encode(tcp_info(224)),
        STANDARD.encode(memory)
    );
    let file = [
        metadata.to_owned(),
        row(1, full.clone()),
        row(2, full.clone()),
        row(3, "[null]".to_owned()),
    ];
    vec![
        metadata.as_bytes().to_vec(),
        row(1, full).into_bytes(),
        file.join("\n").into_bytes(),
        [diag_header(2, 3), tcp_info(280)].concat(),
    ]
}

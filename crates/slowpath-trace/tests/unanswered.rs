// SPDX-License-Identifier: Apache-2.0
//! Connections that were never answered, many of them: a list of all connections holds the worst,
//! and what it does not hold is counted, grouped and to be had by name.

mod flood;
mod frames;

use flood::syn;
use frames::{ACK, RST, SYN, Timed, USUAL, ethernet, ipv4, tcp};
use serde_json::Value;
use slowpath_trace::engine::Options;
use slowpath_trace::read::{Input, Inputs};
use slowpath_trace::report::analysis::{self, Analysis};
use slowpath_trace::report::selection::{Keep, UNANSWERED};
use slowpath_trace::report::{CaptureReport, json};
use slowpath_trace::verdict::TraceProblem;
use std::io::Cursor;
use std::ops::ControlFlow;

const START: u64 = 1_700_000_000_000_000_000;
const SYNS: u32 = 2_000;

fn of_one_port(port: u16, at: u64, flags: u8, out: bool) -> Timed {
    let (client, server) = ([172, 16, 0, 1], [192, 0, 2, 9]);
    let packet = if out {
        ipv4(6, [client, server], &tcp(port, 80, 76, flags, b""))
    } else {
        ipv4(6, [server, client], &tcp(80, port, 5, flags, b""))
    };
    let frame = ethernet(0x0800, &packet);
    let length = frame.len() as u32;
    (START + at, frame, length)
}

/// 2,000 SYNs from as many hosts, one each 10 us; behind the 1,000th a refused connection and one
/// whose SYN is sent three times; last, 3 s later, an ACK of no connection.
fn capture() -> Inputs {
    let mut frames = Vec::new();
    for n in 0..SYNS {
        if n == 1_000 {
            let at = u64::from(n) * 10_000;
            frames.push(of_one_port(1, at, SYN, true));
            frames.push(of_one_port(1, at + 10, RST | ACK, false));
            frames.push(of_one_port(2, at + 20, SYN, true));
        }
        let frame = syn(n);
        let length = frame.len() as u32;
        frames.push((START + u64::from(n) * 10_000 + 100, frame, length));
    }
    frames.push(of_one_port(2, 1_000_000_000, SYN, true));
    frames.push(of_one_port(2, 3_000_000_000, SYN, true));
    frames.push(of_one_port(3, 3_100_000_000, ACK, true));
    let bytes = Cursor::new(USUAL.pcap(1, &frames));
    let input = Input::Stream("made".to_owned(), Box::new(bytes));
    Inputs::new(vec![input]).expect("there is one")
}

fn go_on<T>(_: T) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn analyse(keep: &Keep) -> Analysis {
    analysis::analyse(capture(), &Options::default(), keep, go_on).expect("it reads")
}

fn numbers(analysis: &Analysis) -> Vec<u64> {
    analysis.connections.iter().map(|c| c.number).collect()
}

/// Connection n + 1 is the n-th SYN up to 1,000; then there are two others before it.
fn number_of(n: u32) -> u64 {
    u64::from(n) + 1 + if n < 1_000 { 0 } else { 2 }
}

#[test]
fn a_list_of_all_has_the_worst_and_counts_the_rest() {
    let analysis = analyse(&Keep::all());
    // All SYNs wait alike but the one that was sent again, which is the worst; the refused one and
    // the ACK's connection are not among those of which only some are listed.
    assert_eq!(analysis.summary.connections, u64::from(SYNS) + 3);
    let found = numbers(&analysis);
    assert_eq!(found[0], 1_002, "3 s of waiting are the most");
    assert_eq!(found.len(), UNANSWERED + 2);
    for listed in [1_001, 1_002, u64::from(SYNS) + 3] {
        assert!(found.contains(&listed), "{listed}");
    }
    // Of those that are alike the first.
    assert!((1..UNANSWERED as u64).all(|n| found.contains(&n)));
    assert_eq!(analysis.unlisted, u64::from(SYNS) + 1 - UNANSWERED as u64);
    let groups = analysis.overview.failures();
    let group = groups.first().expect("there are failures");
    assert_eq!(group.kind.problem, TraceProblem::Unanswered);
    assert_eq!((group.connections, group.number), (u64::from(SYNS), 1));
}

#[test]
fn json_says_how_many_are_not_listed() {
    let analysis = analyse(&Keep::all());
    let report = CaptureReport {
        name: "made".into(),
        count: analysis.summary.connections,
        summary: analysis.summary,
        live_drops: None,
        artefacts: analysis.artefacts,
        connections: analysis.connections,
        overview: analysis.overview,
        unlisted: analysis.unlisted,
        troubled: analysis.troubled,
    };
    let mut out = Vec::new();
    json::write(&report, None, &[], &mut out).expect("memory");
    // 5 MB, however long the flood is.
    assert!(out.len() < 8_000_000, "{} bytes", out.len());
    let text = String::from_utf8(out).expect("JSON is UTF-8");
    let lines: Vec<Value> = (text.lines())
        .map(|line| serde_json::from_str(line).expect("it is JSON"))
        .collect();
    let capture = &lines[0];
    assert_eq!(capture["connections"], SYNS + 3);
    let listed = lines.iter().filter(|l| l["type"] == "connection").count();
    let unlisted = capture["unanswered_not_listed"].as_u64();
    assert_eq!(unlisted, Some(u64::from(SYNS) + 3 - listed as u64));
    assert_eq!(capture["failures"][0]["connections"], SYNS);
}

#[test]
fn what_is_not_listed_is_had_by_its_ends_or_number() {
    // The SYN 7 * 256 + 8.
    let selector = "10.0.7.8:40000-192.0.2.1:443".parse().expect("ends");
    let analysis = analyse(&Keep::all().and(selector));
    let wanted = number_of(7 * 256 + 8);
    assert!(numbers(&analysis).contains(&wanted));
    assert_eq!(analysis.unlisted, u64::from(SYNS) - UNANSWERED as u64);

    let mut analysis = analyse(&Keep::all());
    let missing = analysis.missing(&[1, wanted, 1_001, 99_999]);
    assert_eq!(missing.len(), 1);
    (analysis.add(capture(), &Options::default(), &missing, go_on)).expect("it reads");
    let added = analysis.connections.iter().find(|c| c.number == wanted);
    let added = added.expect("it was added").report();
    assert_eq!(added.client.address.to_string(), "10.0.7.8");
    assert_eq!(added.from_client.control.syns, 1);
    assert_eq!(analysis.unlisted, u64::from(SYNS) - UNANSWERED as u64);
    assert!(analysis.missing(&[wanted]).is_empty());
}

#[test]
fn the_worst_few_are_the_same_as_those_of_all() {
    let all = numbers(&analyse(&Keep::all()));
    for count in [1, 3, 10, 300] {
        assert_eq!(numbers(&analyse(&Keep::worst(count))), all[..count]);
    }
}

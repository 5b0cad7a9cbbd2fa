// SPDX-License-Identifier: Apache-2.0
//! What is said first of a capture, and connections that failed alike.

mod frames;
mod segments;

use frames::{ACK, RST, SYN, USUAL, ethernet, ipv4, tcp, udp};
use segments::{FULL, Timeline};
use slowpath_model::Problem;
use slowpath_trace::engine;
use slowpath_trace::read::{Input, Inputs};
use slowpath_trace::report::analysis::{self, Analysis};
use slowpath_trace::report::overview::{Digest, Overview};
use slowpath_trace::report::selection::Keep;
use slowpath_trace::report::table::{self, ListOptions};
use slowpath_trace::report::{CaptureReport, headline};
use slowpath_trace::segment::Flags;
use slowpath_trace::tcp::Side::{Client, Server};
use slowpath_trace::verdict::{Judged, TraceProblem};
use std::io::Cursor;
use std::ops::ControlFlow;

const SECOND: i64 = 1_000_000;
const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SILENT: [u8; 4] = [10, 0, 0, 2];
const CLOSED: [u8; 4] = [10, 0, 0, 3];
const OPEN: [u8; 4] = [10, 0, 0, 4];

/// Frames with their times in milliseconds.
#[derive(Default)]
struct Capture(Vec<(u64, Vec<u8>)>);

impl Capture {
    fn segment(&mut self, at_ms: u64, ends: [[u8; 4]; 2], segment: &[u8]) {
        self.0
            .push((at_ms, ethernet(0x0800, &ipv4(6, ends, segment))));
    }

    fn unanswered(&mut self, at_ms: u64, from: u16, to: u16) {
        let syn = tcp(from, to, 76, SYN, b"");
        self.segment(at_ms, [CLIENT, SILENT], &syn);
    }

    fn refused(&mut self, at_ms: u64, from: u16) {
        self.segment(at_ms, [CLIENT, CLOSED], &tcp(from, 80, 76, SYN, b""));
        let reset = tcp(80, from, 0, RST | ACK, b"");
        self.segment(at_ms, [CLOSED, CLIENT], &reset);
    }

    fn opened(&mut self, at_ms: u64, from: u16) {
        self.segment(at_ms, [CLIENT, OPEN], &tcp(from, 80, 76, SYN, b""));
        let answer = tcp(80, from, 76, SYN | ACK, b"");
        self.segment(at_ms, [OPEN, CLIENT], &answer);
        self.segment(at_ms, [CLIENT, OPEN], &tcp(from, 80, 77, ACK, b""));
    }

    /// A router reports what a SYN was for as unreachable, and quotes its first bytes.
    fn unreachable(&mut self, at_ms: u64, from: u16, code: u8) {
        let syn = ipv4(6, [CLIENT, SILENT], &tcp(from, 80, 76, SYN, b""));
        let message = [&[3, code, 0, 0, 0, 0, 0, 0], &syn[..28]].concat();
        let packet = ipv4(1, [OPEN, CLIENT], &message);
        self.0.push((at_ms, ethernet(0x0800, &packet)));
    }

    /// Analysed with a packet after 30 s, with `keep` connections kept.
    fn analysed(mut self, keep: usize) -> CaptureReport {
        let last = ethernet(0x0800, &ipv4(17, [CLIENT, OPEN], &udp(9, 9, b"x")));
        self.0.push((30_000, last));
        self.analysed_as_it_is(keep)
    }

    fn analysed_as_it_is(mut self, keep: usize) -> CaptureReport {
        self.0.sort_by_key(|(at, _)| *at);
        let start = 1_700_000_000_000_000_000;
        let frames: Vec<_> = (self.0.into_iter())
            .map(|(at, frame)| {
                let length = frame.len() as u32;
                (start + at * 1_000_000, frame, length)
            })
            .collect();
        let bytes = USUAL.pcap(1, &frames);
        let input = Input::Stream("made".to_owned(), Box::new(Cursor::new(bytes)));
        let inputs = Inputs::new(vec![input]).expect("there is one");
        let Analysis {
            summary,
            connections,
            troubled,
            artefacts,
            overview,
            unlisted,
            ..
        } = analysis::analyse(
            inputs,
            &engine::Options::default(),
            &Keep::worst(keep),
            |_| ControlFlow::Continue(()),
        )
        .expect("it reads");
        CaptureReport {
            name: "made".into(),
            count: summary.connections,
            summary,
            live_drops: None,
            artefacts,
            connections,
            overview,
            troubled,
            unlisted,
        }
    }
}

fn text(report: &CaptureReport) -> String {
    let options = ListOptions {
        top: 3,
        long: false,
        selected: false,
    };
    let mut out = Vec::new();
    table::write(report, &options, slowpath_text::Paint::OFF, &mut out).expect("memory");
    String::from_utf8(out).expect("text")
}

#[test]
fn connections_that_fail_alike_are_one_line() {
    let mut capture = Capture::default();
    for port in 0..1_200 {
        capture.unanswered(10, 40_000, 1_000 + port);
    }
    for port in 0..5 {
        capture.refused(20, 50_000 + port);
    }
    // Only three are kept: the others count nevertheless.
    let report = capture.analysed(3);
    let said = headline::headline(&report);
    assert_eq!(said.problem, Some(TraceProblem::Unanswered));
    assert_eq!(said.connections, 1_200);
    let text = text(&report);
    let second = text.lines().nth(1).expect("a headline");
    assert!(
        second.starts_with("Unanswered: 1,200 connections to 10.0.0.2 were never answered"),
        "{text}"
    );
    assert!(
        text.contains("5 connections to 10.0.0.3:80 were refused, #1201 first"),
        "{text}"
    );
    assert!(report.troubled);
    let groups = report.overview.failures();
    assert_eq!(groups.len(), 2);
    assert_eq!((groups[0].connections, groups[0].port), (1_200, None));
    assert_eq!((groups[1].connections, groups[1].port), (5, Some(80)));
    assert_eq!(groups[1].number, 1_201);
}

#[test]
fn a_healthy_capture_says_so() {
    let mut capture = Capture::default();
    for port in 0..3 {
        capture.opened(10, 40_000 + port);
    }
    // A SYN in the last second: its answer may be on its way.
    capture.unanswered(29_500, 41_000, 80);
    let report = capture.analysed(10);
    assert_eq!(headline::headline(&report).problem, None);
    assert!(!report.troubled);
    let text = text(&report);
    let second = text.lines().nth(1).expect("a headline");
    assert!(
        second.starts_with("nothing to report: 4 connections"),
        "{text}"
    );
}

#[test]
fn one_failed_connection_among_healthy_ones_is_the_headline() {
    let mut capture = Capture::default();
    for port in 0..20 {
        capture.opened(10, 40_000 + port);
    }
    capture.refused(20, 50_000);
    let report = capture.analysed(10);
    let said = headline::headline(&report);
    assert_eq!(said.problem, Some(TraceProblem::Refused));
    assert_eq!(
        (said.connections, said.worst.map(|w| w.number)),
        (1, Some(21))
    );
    assert!(said.advice.is_some());
    // It is first in the list too.
    assert_eq!(report.connections[0].number, 21);
}

/// A transfer whose tail waits for its timer: a segment is lost and comes again after `wait_us`.
fn timeout(wait_us: i64) -> Judged {
    let mut t = Timeline::handshake(20_000, 20);
    for i in 0..4 {
        t.data(40_000 + i64::from(i), 1 + i * FULL, FULL);
    }
    t.ack(60_010, 1 + 3 * FULL);
    t.data(40_000 + wait_us, 1 + 3 * FULL, FULL);
    t.ack(60_000 + wait_us, 1 + 4 * FULL);
    t.judge()
}

/// SYNs for 21 s, as Linux sends them.
fn unanswered() -> Judged {
    let mut t = Timeline::default();
    for at in [0, 3, 9, 21] {
        t.bare(at * SECOND, Client, 0, 0, Flags::SYN);
    }
    t.judge()
}

fn healthy() -> Judged {
    let mut t = Timeline::handshake(20_000, 20);
    t.data(40_000, 1, 300);
    t.answer(60_000, 1, 900, 301);
    t.bare(60_100, Client, 301, 901, Flags::ACK);
    t.judge()
}

fn overview(judged: &[(&Judged, u64)]) -> Overview {
    let mut overview = Overview::default();
    let mut frame = 0;
    for (judged, times) in judged {
        for _ in 0..*times {
            frame += 1;
            overview.add(&Digest::of(judged, frame));
        }
    }
    overview
}

fn worst(judged: &[(&Judged, u64)]) -> Option<TraceProblem> {
    overview(judged).worst().map(|(problem, _)| problem)
}

#[test]
fn the_time_lost_decides() {
    let (short, long) = (timeout(SECOND), timeout(4 * SECOND));
    let found = overview(&[(&short, 5), (&long, 1), (&healthy(), 3)]);
    let (problem, summary) = found.worst().expect("something is wrong");
    assert_eq!(problem, TraceProblem::Timeout);
    // Of all that have it the worst is named: the sixth.
    assert_eq!((summary.connections, summary.worst.first_frame), (6, 6));
    assert_eq!(worst(&[(&healthy(), 3)]), None);
}

/// 21 s in one of 301 connections are 70 ms a connection; in one of three they are 7 s.
#[test]
fn one_failure_among_hundreds_does_not_hide_a_slow_transfer() {
    let (slow, failed, fine) = (timeout(4 * SECOND), unanswered(), healthy());
    assert_eq!(
        worst(&[(&slow, 1), (&failed, 1), (&fine, 299)]),
        Some(TraceProblem::Timeout)
    );
    assert_eq!(
        worst(&[(&slow, 1), (&failed, 1), (&fine, 1)]),
        Some(TraceProblem::Unanswered)
    );
    assert_eq!(
        worst(&[(&failed, 1), (&fine, 299)]),
        Some(TraceProblem::Unanswered)
    );
    // Where most connections fail, that is what is wrong.
    assert_eq!(
        worst(&[(&timeout(60 * SECOND), 1), (&failed, 2)]),
        Some(TraceProblem::Unanswered)
    );
}

/// What goes wrong in the direction with less data is in the list, with its side.
#[test]
fn the_worst_of_both_directions_is_first() {
    let mut t = Timeline::handshake(20_000, 20);
    for i in 0..40 {
        t.data(40_000 + i64::from(i) * 20_000, 1 + i * FULL, FULL);
        t.ack(60_000 + i64::from(i) * 20_000, 1 + (i + 1) * FULL);
    }
    // The server's only segment is lost twice.
    let end = 1 + 40 * FULL;
    for at in [SECOND, 2 * SECOND, 4 * SECOND] {
        t.answer(at, 1, 500, end);
    }
    t.bare(4 * SECOND + 100, Client, end, 501, Flags::ACK);
    let judged = t.judge();
    let first = judged
        .verdicts
        .findings
        .first()
        .expect("something is wrong");
    assert_eq!(
        (first.problem, first.from),
        (TraceProblem::Timeout, Some(Server))
    );
    assert_eq!(worst(&[(&judged, 1)]), Some(TraceProblem::Timeout));
}

/// Overtaken segments are a finding without time, and no headline.
#[test]
fn reordering_is_no_headline() {
    let mut t = Timeline::handshake(20_000, 20);
    for i in [0, 2, 1, 3] {
        t.data(40_000 + i64::from(i) * 10, 1 + i * FULL, FULL);
    }
    for (i, line) in t.lines.iter_mut().filter(|l| l.length > 0).enumerate() {
        // As they were sent; the third is captured before the second.
        let order = [0, 2, 1, 3];
        line.ip_id = Some(100 + order[i]);
        line.at_us = 40_000 + i as i64 * 10;
    }
    t.ack(60_040, 1 + 4 * FULL);
    let judged = t.judge();
    let found: Vec<TraceProblem> = judged.verdicts.findings.iter().map(|f| f.problem).collect();
    assert_eq!(found, [TraceProblem::Reordering]);
    assert_eq!(worst(&[(&judged, 1)]), None);
    assert!(!judged.verdicts.is_troubled());
}

/// A window of 4,000 bytes limits; later the receiver announces 60,000. Advice speaks of the 4,000.
#[test]
fn advice_is_about_the_window_that_limited() {
    let mut t = Timeline::handshake(20_000, 20);
    for line in &mut t.lines {
        line.window = 4_000;
    }
    let mut next = 1;
    for m in 0..10 {
        let at = 40_000 + m * 20_100;
        for i in 0..4 {
            t.data(at + i64::from(i) * 10, next + i * FULL, FULL);
        }
        next += 4 * FULL;
        t.ack(at + 20_040, next).window = 4_000;
    }
    t.data(300_000, next, FULL);
    t.ack(320_000, next + FULL).window = 60_000;
    let judged = t.judge();
    let verdict = &judged.verdicts.from_client;
    assert!(verdict.finding(Problem::ReceiverWindowLimited).is_some());
    assert_eq!(verdict.deltas.send_window, Some(4_000));
}

/// Only one side was captured: what its packets show is not among what could not be measured.
#[test]
fn what_was_found_was_measured() {
    let mut t = Timeline::handshake(20_000, 20);
    t.data(40_000, 1, FULL);
    t.data(40_000 + SECOND, 1, FULL);
    t.lines.retain(|line| line.side == Client);
    let verdict = t.judge().verdicts.from_client;
    assert!(verdict.finding(Problem::Timeout).is_some());
    assert!(!verdict.unmeasured.contains(Problem::Timeout));
    assert!(verdict.unmeasured.contains(Problem::DelayedAck));
}

/// RFC 792: code 1, host unreachable, is no refusal; 3, port unreachable, is one.
#[test]
fn icmp_answers_a_syn() {
    for (code, problem) in [(1, TraceProblem::Unanswered), (3, TraceProblem::Refused)] {
        let mut capture = Capture::default();
        capture.unanswered(0, 40_000, 80);
        // More than the batches in which segments wait.
        for port in 0..100 {
            capture.opened(1, 41_000 + port);
        }
        capture.unreachable(10, 40_000, code);
        // Of a connection that is not in the capture.
        capture.unreachable(10, 39_999, code);
        // Nothing after it: the report needs no second of silence.
        let report = capture.analysed_as_it_is(1);
        let said = headline::headline(&report);
        assert_eq!(said.problem, Some(problem));
        assert_eq!(said.connections, 1);
        let text = text(&report);
        assert!(
            text.contains("ICMP in packet 302: destination unreachable"),
            "{text}"
        );
    }
}

#[test]
fn icmp_about_an_open_connection_is_no_failure() {
    let mut capture = Capture::default();
    capture.segment(0, [CLIENT, SILENT], &tcp(40_000, 80, 76, SYN, b""));
    let answer = tcp(80, 40_000, 76, SYN | ACK, b"");
    capture.segment(1, [SILENT, CLIENT], &answer);
    capture.unreachable(10, 40_000, 1);
    let report = capture.analysed_as_it_is(1);
    assert_eq!(headline::headline(&report).problem, None);
}

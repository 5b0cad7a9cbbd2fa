// SPDX-License-Identifier: Apache-2.0
//! Connections that never opened, opened late or were cut; and endings that are no failure.

mod segments;

use segments::{FULL, Timeline};
use slowpath_trace::segment::Flags;
use slowpath_trace::tcp::Side::{Client, Server};
use slowpath_trace::tcp::{Data, Side};
use slowpath_trace::verdict::{Judged, TraceFinding, TraceProblem};
use std::time::Duration;

const SECOND: i64 = 1_000_000;
const RTT: i64 = 20_000;
const RST_ACK: u16 = Flags::RST | Flags::ACK;
const FIN_ACK: u16 = Flags::FIN | Flags::ACK;

/// What was found of the connection itself.
fn failures(judged: &Judged) -> Vec<&TraceFinding> {
    let found = judged.verdicts.findings.iter();
    found.filter(|f| f.problem.is_of_connection()).collect()
}

fn only(judged: &Judged, problem: TraceProblem, from: Option<Side>) -> TraceFinding {
    let found = failures(judged);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].problem, found[0].from), (problem, from));
    *found[0]
}

fn none(judged: &Judged) {
    assert_eq!(failures(judged), Vec::<&TraceFinding>::new());
}

fn frames(found: TraceFinding) -> Option<(u64, u64)> {
    found.frames.map(|(from, to)| (from.frame, to.frame))
}

fn undelivered(judged: &Judged) -> [u64; 2] {
    [Client, Server].map(|side| Data::undelivered(&judged.report.sent_by(side).data))
}

fn syns(at: &[i64]) -> Timeline {
    let mut t = Timeline::default();
    for at in at {
        t.bare(*at, Client, 0, 0, Flags::SYN);
    }
    t
}

/// A request of 300 bytes and its answer of 900, both acknowledged; 100 ms.
fn exchanged() -> Timeline {
    let mut t = Timeline::handshake(RTT, 20);
    t.data(40_000, 1, 300);
    t.answer(60_000, 1, 900, 301);
    t.bare(60_100, Client, 301, 901, Flags::ACK);
    t
}

#[test]
fn syns_without_an_answer() {
    let judged = syns(&[0, SECOND, 3 * SECOND]).judge();
    let found = only(&judged, TraceProblem::Unanswered, Some(Client));
    assert_eq!(found.time, Some(Duration::from_secs(3)));
    assert_eq!(found.events, Some(3));
    assert_eq!(frames(found), Some((1, 3)));
    assert!(judged.verdicts.is_troubled());
}

/// RFC 6298: the second SYN is due after 1 s.
#[test]
fn one_syn_is_unanswered_when_another_was_due() {
    let found = syns(&[0]).judge_until(SECOND);
    let found = only(&found, TraceProblem::Unanswered, Some(Client));
    assert_eq!(found.time, None);
    none(&syns(&[0]).judge_until(SECOND - 1));
    none(&syns(&[0]).judge());
}

/// The server's segments take another way: the client's ACK shows that they came.
#[test]
fn an_answer_that_was_not_captured_is_one() {
    let mut t = syns(&[0]);
    t.bare(RTT, Client, 1, 1, Flags::ACK);
    none(&t.judge_until(10 * SECOND));
}

#[test]
fn a_syn_answered_by_a_reset() {
    let mut t = syns(&[0]);
    t.bare(100, Server, 0, 1, RST_ACK);
    let judged = t.judge_until(10 * SECOND);
    let found = only(&judged, TraceProblem::Refused, Some(Server));
    assert_eq!((found.time, found.events), (None, Some(1)));
    assert_eq!(frames(found), Some((1, 2)));
}

/// Windows tries twice more, half a second after each RST.
#[test]
fn refused_three_times_is_refused() {
    let mut t = syns(&[0, 500_000, SECOND]);
    for at in [0, 500_000, SECOND] {
        t.bare(at + 300, Server, 0, 1, RST_ACK);
    }
    let found = only(&t.judge(), TraceProblem::Refused, Some(Server));
    assert_eq!(found.events, Some(3));
    assert_eq!(found.time, Some(Duration::from_micros(1_000_300)));
}

#[test]
fn accepted_after_a_refusal_is_no_refusal() {
    let mut t = syns(&[0, 500_000]);
    t.bare(300, Server, 0, 1, RST_ACK);
    t.bare(500_300, Server, 0, 1, Flags::SYN | Flags::ACK);
    t.bare(500_400, Client, 1, 1, Flags::ACK);
    let judged = t.judge();
    let found = failures(&judged);
    assert!(!found.iter().any(|f| f.problem.is_failure()), "{found:?}");
}

#[test]
fn a_syn_that_was_lost_costs_the_time_to_its_answer() {
    let mut t = syns(&[0, SECOND]);
    t.bare(SECOND + RTT, Server, 0, 1, Flags::SYN | Flags::ACK);
    t.bare(SECOND + RTT + 20, Client, 1, 1, Flags::ACK);
    let found = only(&t.judge(), TraceProblem::SynRetransmit, Some(Client));
    assert_eq!(found.time, Some(Duration::from_micros(1_020_000)));
    assert_eq!(frames(found), Some((1, 3)));
    assert_eq!(found.events, Some(1));
}

/// Nothing answers the SYN-ACK: the wait is from its first copy to its last.
#[test]
fn a_syn_ack_that_is_not_acknowledged() {
    let mut t = syns(&[0]);
    for at in [RTT, 3 * SECOND, 9 * SECOND] {
        t.bare(at, Server, 0, 1, Flags::SYN | Flags::ACK);
    }
    let found = only(&t.judge(), TraceProblem::SynRetransmit, Some(Server));
    assert_eq!(found.time, Some(Duration::from_micros(8_980_000)));
    assert_eq!(frames(found), Some((2, 4)));
}

/// The capture has each frame twice, without IP identifications.
#[test]
fn a_syn_captured_twice_was_not_sent_again() {
    let mut t = Timeline::handshake(RTT, 20);
    let copies = t.lines.clone();
    t.lines.extend(copies);
    for line in &mut t.lines {
        line.ip_id = None;
    }
    none(&t.judge());
}

#[test]
fn a_handshake_of_seconds_is_slow() {
    let found = Timeline::handshake(3 * SECOND, 20).judge();
    let found = only(&found, TraceProblem::SlowHandshake, None);
    assert_eq!(found.time, Some(Duration::from_micros(3_000_020)));
    assert_eq!(frames(found), Some((1, 3)));
    none(&Timeline::handshake(3 * SECOND - 21, 20).judge());
}

/// The server has restarted, or something between has forgotten the connection.
#[test]
fn segments_of_an_unknown_connection_are_reset() {
    let mut t = Timeline::default();
    t.data(0, 1, 100);
    t.bare(RTT, Server, 1, 0, Flags::RST);
    let found = only(&t.judge(), TraceProblem::Reset, Some(Server));
    assert_eq!(frames(found), Some((1, 2)));
    // The same of an ACK without data.
    let mut t = Timeline::default();
    t.bare(0, Client, 1, 1, Flags::ACK);
    t.bare(RTT, Server, 1, 0, Flags::RST);
    only(&t.judge(), TraceProblem::Reset, Some(Server));
    // It was only to be closed.
    let mut t = Timeline::default();
    t.bare(0, Client, 1, 1, FIN_ACK);
    t.bare(RTT, Server, 1, 0, Flags::RST);
    none(&t.judge());
}

#[test]
fn a_server_that_resets_what_it_accepted() {
    let mut t = Timeline::handshake(RTT, 20);
    t.bare(2 * RTT, Server, 1, 1, RST_ACK);
    only(&t.judge(), TraceProblem::Reset, Some(Server));
}

/// A probe of the port: opened, acknowledged, reset by the client.
#[test]
fn a_client_that_only_tries_the_port_resets_nothing() {
    let mut t = Timeline::handshake(RTT, 20);
    t.bare(2 * RTT, Client, 1, 1, RST_ACK);
    none(&t.judge());
    // Without the ACK the SYN-ACK itself was refused.
    let mut t = syns(&[0]);
    t.bare(RTT, Server, 0, 1, Flags::SYN | Flags::ACK);
    t.bare(RTT + 20, Client, 1, 0, Flags::RST);
    only(&t.judge(), TraceProblem::Reset, Some(Client));
}

/// The server's answer of three segments is on its way when the client leaves.
#[test]
fn a_client_that_leaves_while_the_server_sends() {
    let mut t = exchanged();
    t.data(100_000, 301, 300);
    for i in 0..3 {
        t.answer(120_000 + i64::from(i), 901 + i * FULL, FULL, 601);
    }
    t.bare(120_100, Client, 601, 901, RST_ACK);
    let judged = t.judge();
    let found = only(&judged, TraceProblem::Reset, Some(Client));
    assert_eq!(undelivered(&judged), [0, 3_000]);
    assert_eq!(
        frames(found).map(|(_, reset)| reset),
        Some(t.lines.len() as u64)
    );
}

/// A middlebox has forgotten the connection during the pause: the next request is reset.
#[test]
fn a_request_after_a_pause_that_is_reset() {
    let mut t = exchanged();
    t.data(600 * SECOND, 301, 300);
    t.bare(600 * SECOND + RTT, Server, 901, 0, Flags::RST);
    let judged = t.judge();
    only(&judged, TraceProblem::Reset, Some(Server));
    assert_eq!(undelivered(&judged), [300, 0]);
}

/// Acknowledged, and never answered.
#[test]
fn a_request_that_is_reset_instead_of_answered() {
    let mut t = exchanged();
    t.data(100_000, 301, 300);
    t.bare(120_000, Server, 901, 601, Flags::ACK);
    t.bare(140_000, Server, 901, 601, RST_ACK);
    let judged = t.judge();
    only(&judged, TraceProblem::Reset, Some(Server));
    assert_eq!(undelivered(&judged), [0, 0]);
}

/// A sender that gives up after its timer has run out again and again.
#[test]
fn a_sender_that_gives_up() {
    let mut t = exchanged();
    for at in [1, 2, 4, 8] {
        t.data(at * SECOND, 301, 300);
    }
    t.bare(16 * SECOND, Client, 601, 901, RST_ACK);
    let judged = t.judge();
    only(&judged, TraceProblem::Reset, Some(Client));
    assert_eq!(undelivered(&judged), [300, 0]);
}

/// Browsers and Windows: the peer has finished, RST instead of FIN.
#[test]
fn a_reset_after_the_peers_fin_is_an_ordinary_ending() {
    let mut t = exchanged();
    t.bare(10 * SECOND, Server, 901, 301, FIN_ACK);
    t.bare(10 * SECOND + 100, Client, 301, 902, Flags::ACK);
    t.bare(12 * SECOND, Client, 301, 902, RST_ACK);
    none(&t.judge());
}

#[test]
fn a_reset_after_both_fins_is_an_ordinary_ending() {
    let mut t = exchanged();
    t.bare(100_000, Client, 301, 901, FIN_ACK);
    t.bare(120_000, Server, 901, 302, FIN_ACK);
    t.bare(120_050, Client, 302, 0, Flags::RST);
    none(&t.judge());
}

/// The server says good-bye (an alert of TLS and FIN) to a client that has gone.
#[test]
fn a_farewell_to_a_client_that_has_gone_is_no_loss() {
    let mut t = exchanged();
    t.bare(100_000, Client, 301, 901, FIN_ACK);
    let farewell = t.answer(120_000, 901, 31, 302);
    farewell.flags |= Flags::FIN;
    t.bare(120_050, Client, 302, 0, Flags::RST);
    none(&t.judge());
}

/// The same of a client that says good-bye and does not wait.
#[test]
fn a_farewell_and_a_reset_are_an_ordinary_ending() {
    let mut t = exchanged();
    t.data(100_000, 301, 31);
    t.bare(100_050, Client, 332, 901, RST_ACK);
    none(&t.judge());
}

#[test]
fn a_client_that_has_its_answer_may_reset() {
    let mut t = exchanged();
    t.bare(5 * SECOND, Client, 301, 901, RST_ACK);
    none(&t.judge());
}

/// A RST that was not the server's: it goes on sending.
#[test]
fn a_reset_without_effect_is_none() {
    let mut t = exchanged();
    t.data(100_000, 301, 300);
    t.bare(110_000, Server, 901, 0, Flags::RST);
    t.answer(120_000, 901, 900, 601);
    t.bare(120_100, Client, 601, 1801, Flags::ACK);
    none(&t.judge());
}

/// Only the resetting side's segments were captured: what was under way is not known.
#[test]
fn a_reset_in_a_one_sided_capture_is_not_judged() {
    let mut t = exchanged();
    t.data(100_000, 301, 300);
    t.bare(120_000, Server, 901, 0, Flags::RST);
    t.lines.retain(|l| l.side == Server);
    none(&t.judge());
}

/// Cut after any number of segments, nothing is found that the whole does not show.
#[test]
fn a_capture_cut_anywhere_invents_no_failure() {
    let mut t = exchanged();
    t.bare(100_000, Client, 301, 901, FIN_ACK);
    t.bare(120_000, Server, 901, 302, FIN_ACK);
    t.bare(120_100, Client, 302, 902, Flags::ACK);
    for length in 1..=t.lines.len() {
        let mut cut = t.clone();
        cut.lines.truncate(length);
        none(&cut.judge());
        let mut late = t.clone();
        late.lines.drain(..length - 1);
        none(&late.judge());
    }
}

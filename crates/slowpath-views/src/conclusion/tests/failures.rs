// SPDX-License-Identifier: Apache-2.0
//! Connections that failed.
use super::*;
use crate::conclusion::failures::count;

/// A connection that ended in that state with that error (errno(3)).
fn ended(state: TcpState, error: Option<u16>) -> Scripted {
    let mut ended = Scripted::new("ab", CLIENT, SERVER, &[]);
    ended.facts.ending = Some(Ending {
        state: Some(state),
        error,
    });
    ended.stats.send_queue = 0;
    ended
}

#[test]
fn failed_connections_say_how_they_failed_and_who_acts() {
    let refused = ended(TcpState::SynSent, Some(111));
    let unanswered = ended(TcpState::SynSent, Some(110));
    let unreachable = ended(TcpState::SynSent, Some(113));
    let reset = ended(TcpState::Established, Some(104));
    for (connection, who, words) in [
        (&refused, Role::AcceptingApplication, "was refused"),
        (&unanswered, Role::Network, "was never answered"),
        (&unreachable, Role::Network, "unreachable"),
        (
            &reset,
            Role::ReceivingApplication,
            "was reset by the peer's application",
        ),
    ] {
        let answer = conclude([connection.one_sided()], &[]);
        assert_eq!((answer.limiter, answer.alarm), (Limiter::Failed, true));
        assert_eq!(answer.act.who, who, "{words}");
        assert!(answer.text.contains(words), "{}", answer.text);
    }
}

/// Of two attempts over two address families the slower one is given up (RFC 8305): that is no failure.
#[test]
fn attempts_that_were_given_up_are_failures_if_they_are_most() {
    let worked = Scripted::new("curl", CLIENT, SERVER, &[]);
    let gave_up = ended(TcpState::SynSent, None);
    let pair = [gave_up.one_sided(), worked.one_sided()];
    assert_eq!(conclude(pair, &[]).limiter, Limiter::Application);
    let answer = conclude(pair.into_iter().chain([gave_up.one_sided()]), &[]);
    assert_eq!(answer.limiter, Limiter::Failed);
    assert_eq!(answer.act.who, Role::SendingApplication);
    assert!(
        answer
            .text
            .contains("2 of 3 connections to 10.0.0.2:80 were given up by ab[7]"),
        "{}",
        answer.text
    );
}

#[test]
fn a_fin_that_was_not_acknowledged_is_no_data_that_was_lost() {
    let mut closing = ended(TcpState::LastAck, Some(104));
    closing.stats.bytes_received = 500;
    closing.stats.send_queue = 1;
    assert_ne!(
        conclude([closing.one_sided()], &[]).limiter,
        Limiter::Failed
    );
    closing.stats.send_queue = 2;
    assert_eq!(
        conclude([closing.one_sided()], &[]).limiter,
        Limiter::Failed
    );
}

/// ECONNRESET becomes EPIPE in CLOSE_WAIT (tcp_reset).
#[test]
fn a_client_that_closed_before_its_answer_came_is_no_failure() {
    let mut late = ended(TcpState::CloseWait, Some(32));
    late.stats.send_queue = 214;
    assert_eq!(conclude([late.one_sided()], &[]).limiter, Limiter::Failed);
    late.origin = Origin::Accepted;
    assert_ne!(conclude([late.one_sided()], &[]).limiter, Limiter::Failed);
}

#[test]
fn an_orderly_end_and_a_reset_after_the_answer_are_no_failures() {
    let closed = ended(TcpState::LastAck, None);
    let mut satisfied = ended(TcpState::Established, Some(104));
    satisfied.stats.bytes_received = 500;
    for connection in [closed, satisfied] {
        assert_ne!(
            conclude([connection.one_sided()], &[]).limiter,
            Limiter::Failed
        );
    }
}

#[test]
fn a_syn_that_waits_is_unanswered_and_no_timeout() {
    let mut waits = Scripted::new("curl", CLIENT, SERVER, &[(Problem::Timeout, 9)]);
    waits.stats.state = TcpState::SynSent;
    waits.stats.unanswered_timeouts = 2;
    let answer = conclude([waits.one_sided()], &[]);
    assert_eq!(
        (answer.limiter, answer.act.who),
        (Limiter::Failed, Role::Network)
    );
}

#[test]
fn a_syn_that_never_left_is_this_hosts_to_mend() {
    let mut dropped = Scripted::new("curl", CLIENT, SERVER, &[]);
    dropped.stats.state = TcpState::SynSent;
    dropped.stats.unanswered_timeouts = 1;
    dropped.facts.not_sent = true;
    let answer = conclude([dropped.one_sided()], &[]);
    assert_eq!(
        (answer.limiter, answer.act.who),
        (Limiter::Failed, Role::SendingHost)
    );
    assert_eq!(answer.act.address.as_deref(), Some(CLIENT));
    assert!(
        answer
            .text
            .contains("the connection to 10.0.0.2:80 was not sent"),
        "{}",
        answer.text
    );
}

#[test]
fn one_failure_among_many_is_not_the_answer() {
    let healthy = Scripted::new("ab", CLIENT, SERVER, &[]);
    let refused = ended(TcpState::SynSent, Some(111));
    let connections = || std::iter::repeat_n(healthy.one_sided(), 10);
    let answer = conclude(connections().chain([refused.one_sided()]), &[]);
    assert_eq!((answer.limiter, answer.others), (Limiter::Application, 1));
    let answer = conclude(
        connections().chain([refused.one_sided(), refused.one_sided()]),
        &[],
    );
    assert_eq!((answer.limiter, answer.connections), (Limiter::Failed, 2));
    assert!(
        answer.text.contains("2 of 12 connections"),
        "{}",
        answer.text
    );
}

#[test]
fn failures_are_counted_by_kind_peer_and_process() {
    let refused = || ended(TcpState::SynSent, Some(111));
    let mut other = ended(TcpState::SynSent, Some(111));
    other.owner = Owner::named(8, "curl");
    let mut elsewhere = ended(TcpState::SynSent, Some(110));
    elsewhere.owner = Owner::named(7, "curl");
    let orderly = ended(TcpState::LastAck, None);
    let all = [refused(), refused(), other, elsewhere, orderly];
    let counted = count(all.iter().map(Scripted::one_sided));
    let of = |entry: &FailureEntry| {
        let process = entry.process.clone().unwrap();
        let command = process.command.to_string();
        (entry.failure, entry.connections, command, process.pid)
    };
    let command = all[0].owner.command().unwrap().to_string();
    assert_eq!(of(&counted[0]), (Failure::Refused, 2, command, Some(7)));
    assert!(counted.iter().all(|entry| entry.peer == SERVER));
    let mut others: Vec<_> = counted[1..].iter().map(of).collect();
    others.sort();
    let curl = || "curl".to_owned();
    let expected = [
        (Failure::Refused, 1, curl(), Some(8)),
        (Failure::Unanswered, 1, curl(), Some(7)),
    ];
    assert_eq!(others, expected);
}

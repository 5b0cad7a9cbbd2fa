// SPDX-License-Identifier: Apache-2.0
//! A full window: the process that does not read, or a buffer that is small.
use super::*;

#[test]
fn whichever_end_is_asked_the_process_that_does_not_read_is_named() {
    let sends = sender(&[(Problem::ReceiverWindowLimited, 9)]);
    let reads = reader(&[(Problem::ReceiverAppSlow, 8)]);
    for observed in [sends.with(&reads), reads.with(&sends)] {
        let answer = conclude([observed], &[]);
        assert_eq!(answer.limiter, Limiter::Receiver);
        assert_eq!(answer.act.who, Role::ReceivingApplication);
        assert_eq!(answer.act.process.unwrap().command.as_ref(), "curl");
        assert!(answer.alarm);
    }
}

#[test]
fn a_reader_that_keeps_up_leaves_its_hosts_buffer_to_blame() {
    let sends = sender(&[(Problem::ReceiverWindowLimited, 9)]);
    let reads = reader(&[]);
    let answer = conclude([sends.with(&reads)], &[]);
    assert_eq!(answer.limiter, Limiter::Receiver);
    assert_eq!(answer.act.who, Role::ReceivingHost);
}

#[test]
fn without_the_other_end_only_a_closed_window_shows_that_it_does_not_read() {
    let closed = sender(&[
        (Problem::ReceiverWindowLimited, 9),
        (Problem::ZeroWindow, 8),
    ]);
    let full = sender(&[(Problem::ReceiverWindowLimited, 9)]);
    let who = |end: &Scripted| conclude([end.one_sided()], &[]).act.who;
    assert_eq!(who(&closed), Role::ReceivingApplication);
    assert_eq!(who(&full), Role::ReceivingHost);
}

/// Who acts where the window was full for 9 of 10 s and the RTT is 100 ms. `windows` full windows of 40,000 bytes
/// came; `unread` of 20 polls found data unread.
fn who_acts(windows: u64, unread: u32) -> Role {
    let mut sender = sender(&[(Problem::ReceiverWindowLimited, 9)]);
    sender.stats.min_rtt = Some(Micros(100_000));
    let mut reader = reader(&[]);
    reader.tally.deltas.bytes_received = Some(windows * 40_000);
    reader.largest_window = Some(40_000);
    reader.unread_polls = (unread, 20);
    conclude([sender.with(&reader)], &[]).act.who
}

#[test]
fn data_that_waits_for_a_reader_at_random_moments_is_the_readers() {
    // A fifth of what the round trips allow: the process reads seldom.
    assert_eq!(who_acts(20, 18), Role::ReceivingApplication);
    assert_eq!(who_acts(20, 12), Role::ReceivingApplication);
    // At most moments it waits for data.
    assert_eq!(who_acts(20, 8), Role::ReceivingHost);
    assert_eq!(who_acts(20, 0), Role::ReceivingHost);
}

#[test]
fn a_full_window_in_each_round_trip_is_too_small_although_data_waits() {
    // 9.5 s of round trips of 100 ms, 9 s with something unread.
    assert_eq!(who_acts(95, 18), Role::ReceivingHost);
    // Half as many: a larger buffer leaves the 9 s in which the process is busy, a quicker process 4.5 s.
    assert_eq!(who_acts(45, 18), Role::ReceivingApplication);
    // 8.5 s of round trips, 8 s with something unread.
    assert_eq!(who_acts(85, 16), Role::ReceivingHost);
}

#[test]
fn a_reader_that_pauses_once_is_behind_while_the_window_is_full() {
    // The window is full for 2 of 10 s; something is unread at a fifth of the polls.
    let mut sender = sender(&[(Problem::ReceiverWindowLimited, 2)]);
    sender.stats.min_rtt = Some(Micros(100));
    let mut reader = reader(&[]);
    reader.largest_window = Some(6_000_000);
    reader.unread_polls = (4, 20);
    let who = |reader: &Scripted| conclude([sender.with(reader)], &[]).act.who;
    assert_eq!(who(&reader), Role::ReceivingApplication);
    reader.unread_polls = (1, 20);
    assert_eq!(who(&reader), Role::ReceivingHost);
}

#[test]
fn few_polls_leave_it_to_what_the_kernel_counted() {
    let sender = sender(&[(Problem::ReceiverWindowLimited, 9)]);
    let who = |problems: &[(Problem, u64)], polls| {
        let mut reader = reader(problems);
        reader.unread_polls = polls;
        conclude([sender.with(&reader)], &[]).act.who
    };
    assert_eq!(who(&[], (4, 4)), Role::ReceivingHost);
    assert_eq!(who(&[], (5, 5)), Role::ReceivingApplication);
    let behind = [(Problem::ReceiverAppSlow, 2)];
    assert_eq!(who(&behind, (0, 4)), Role::ReceivingApplication);
    // The same with enough polls: 2 of 9 s are less than what remains.
    assert_eq!(who(&behind, (0, 5)), Role::ReceivingHost);
    // MPTCP's subflows hand on what they receive: their queues are empty.
    let behind = [(Problem::ReceiverAppSlow, 6)];
    assert_eq!(who(&behind, (0, 20)), Role::ReceivingApplication);
}

/// The path to a proxy is full for 6 of 10 s, while the proxy is held back by its client's path and has data unread at
/// some of 20 polls.
#[test]
fn a_path_that_only_fills_the_buffer_of_a_proxy_that_is_behind_does_not_limit() {
    let mut source = sender(&[(Problem::CongestionWindowLimited, 6)]);
    source.stats.srtt = Some(Micros(30_000));
    let mut proxy = reader(&[]);
    let downstream = Scripted {
        owner: proxy.owner.clone(),
        ..Scripted::new(
            "nginx",
            CLIENT,
            "10.0.0.3:80",
            &[(Problem::SendBufferLimited, 9)],
        )
    };
    let mut limiter = |unread| {
        proxy.unread_polls = (unread, 20);
        let observed = Observed {
            cause: Some((downstream.end(), None)),
            ..source.with(&proxy)
        };
        conclude([observed], &[]).limiter
    };
    assert_eq!(limiter(14), Limiter::SendBuffer);
    assert_eq!(limiter(10), Limiter::Network);
}

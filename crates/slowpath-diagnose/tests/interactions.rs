// SPDX-License-Identifier: Apache-2.0
//! Problems that explain each other: each found where all its conditions hold, and not
//! found in controls in which one does not.

mod timeline;

use slowpath_diagnose::{
    Actor, Interaction, InteractionEvidence, InteractionKind, Interactions, Observation, ProxyFlow,
    Thresholds, WINDOW, classify,
};
use slowpath_model::*;
use timeline::{Timeline, healthy, ms};

use InteractionKind::*;

/// A connection whose verdicts a test writes down, interval by interval of half a second.
#[derive(Clone)]
struct Connection {
    id: ConnectionId,
    tuple: FourTuple,
    pid: u32,
    origin: Origin,
    stats: TcpStats,
    intervals: Vec<(Vec<Finding>, Deltas)>,
}

fn connection(cookie: u64, pid: u32, local: &str, remote: &str) -> Connection {
    Connection {
        id: ConnectionId {
            boot_id: 1,
            netns: 2,
            cookie,
            start: MonoNanos(cookie),
        },
        tuple: FourTuple::new(local.parse().unwrap(), remote.parse().unwrap()),
        pid,
        origin: Origin::Opened,
        stats: healthy(Micros::ZERO).stats,
        intervals: Vec::new(),
    }
}

fn finding(problem: Problem, time: Micros, events: u64) -> Finding {
    Finding {
        problem,
        share: Share::Measured(time),
        events: Some(events),
    }
}

/// A healthy interval's evidence: some writes of 10,000 bytes.
fn deltas() -> Deltas {
    Deltas {
        bytes_sent: Some(100_000),
        bytes_received: Some(0),
        retransmitted: Some(0),
        fast_recoveries: Some(0),
        bytes_written: Some(100_000),
        writes: Some(10),
        cwnd: 10,
        send_mss: 1_000,
        ..Deltas::default()
    }
}

impl Connection {
    fn accepted(mut self) -> Self {
        self.origin = Origin::Accepted;
        self
    }

    fn stats(mut self, change: impl FnOnce(&mut TcpStats)) -> Self {
        change(&mut self.stats);
        self
    }

    fn interval(mut self, findings: Vec<Finding>, change: impl FnOnce(&mut Deltas)) -> Self {
        let mut deltas = deltas();
        change(&mut deltas);
        self.intervals.push((findings, deltas));
        self
    }
}

fn at(interval: usize) -> MonoNanos {
    MonoNanos(10_000_000_000) + Micros(500_000 * interval as u64)
}

fn find(connections: &[Connection]) -> Vec<Interaction> {
    let mut interactions = Interactions::default();
    for c in connections {
        for (i, (findings, deltas)) in c.intervals.iter().enumerate() {
            let verdict = IntervalVerdict {
                connection: c.id,
                from: at(i),
                to: at(i + 1),
                dominating: findings
                    .first()
                    .map_or(Problem::SenderAppLimited, |f| f.problem),
                findings: findings.clone(),
                unmeasured: ProblemSet::EMPTY,
                deltas: *deltas,
            };
            interactions.observe(&Observation {
                tuple: c.tuple,
                pid: Some(c.pid),
                origin: c.origin,
                stats: &c.stats,
                verdict: &verdict,
            });
        }
    }
    interactions.find()
}

fn kinds(found: &[Interaction]) -> Vec<InteractionKind> {
    found.iter().map(|i| i.kind).collect()
}

/// SNAP's Figure 6 as the counters show it: a timeout, some segments sent again, and `late`
/// delayed ACKs of what the timer had sent by itself.
fn figure_6(late: u64, again: u64) -> Vec<Interaction> {
    let lost = Timeline::new()
        .then(|s| {
            let rto = s.rto_stats.as_mut().unwrap();
            (rto.timeouts, rto.recoveries) = (5, 4);
            rto.time += ms(41);
            s.recovery.as_mut().unwrap().rto_wait = ms(800);
            s.retransmitted += again;
        })
        .waited(|w| w.episodes.acks_after_timeout = late);
    let verdict = classify(&lost.before, &lost.after, None, &Thresholds::default());
    let mut interactions = Interactions::default();
    interactions.observe(&Observation {
        tuple: lost.after.tuple,
        pid: Some(7),
        origin: Origin::Opened,
        stats: &lost.after.stats,
        verdict: &verdict,
    });
    interactions.find()
}

#[test]
fn a_delayed_ack_after_a_timeout_is_figure_6() {
    // One segment was lost, or a message of several: the timer sends one of them.
    for again in [1, 3] {
        let found = figure_6(1, again);
        assert_eq!(kinds(&found), [TimeoutThenDelayedAck]);
        assert_eq!(
            found[0].evidence,
            InteractionEvidence::TimeoutThenDelayedAck {
                timeouts: 1,
                delayed_acks: 1,
                retransmitted_segments: again
            }
        );
        assert_eq!(found[0].advice.who, Actor::ReceiverSide);
    }
    assert!(figure_6(0, 1).is_empty());
}

#[test]
fn only_the_ack_of_what_the_timer_sent_counts() {
    use Problem::{DelayedAck, Timeout};
    let timeout = || vec![finding(Timeout, ms(300), 1)];
    let late = || vec![finding(DelayedAck, ms(40), 1)];
    let c = || connection(1, 7, "10.0.0.1:4000", "10.0.0.2:80");
    // Delayed ACKs that come anyway.
    let beside = c().interval(timeout(), |_| {}).interval(late(), |_| {});
    assert!(find(&[beside]).is_empty());
    // Reported by the poll after the timeout's.
    let next = c()
        .interval(timeout(), |_| {})
        .interval(late(), |d| d.acks_after_timeout = Some(1));
    assert_eq!(kinds(&find(&[next])), [TimeoutThenDelayedAck]);
}

/// A connection that lost single segments of writes of that many bytes.
fn losing(cookie: u64, pid: u32, write: u64, thin: u64) -> Connection {
    connection(
        cookie,
        pid,
        &format!("10.0.0.1:{}", 4000 + cookie),
        "10.0.0.2:80",
    )
    .interval(vec![finding(Problem::Timeout, ms(300), 2)], |d| {
        d.retransmitted = Some(2);
        d.thin_timeouts = Some(thin);
        d.bytes_written = Some(10 * write);
    })
}

#[test]
fn small_writes_that_wait_for_the_timer_had_too_few_in_flight() {
    let found = find(&[losing(1, 7, 2_000, 2)]);
    assert_eq!(kinds(&found), [TooFewForFastRetransmit]);
    assert_eq!(
        found[0].evidence,
        InteractionEvidence::TooFewForFastRetransmit {
            timeouts: 2,
            average_write_bytes: 2_000,
            send_mss_bytes: 1_000,
            spread_over_connections: 1
        }
    );
    // Four segments and more raise duplicate ACKs; as many were in flight, or more to send.
    assert!(find(&[losing(1, 7, 4_000, 2)]).is_empty());
    assert!(find(&[losing(1, 7, 2_000, 0)]).is_empty());
}

#[test]
fn writes_spread_over_connections_are_found_once() {
    let mut spread = vec![losing(1, 7, 2_000, 2), losing(2, 7, 2_000, 2)];
    // A third without losses, one of another process, one with large writes.
    spread.push(
        connection(3, 7, "10.0.0.1:4003", "10.0.0.2:80")
            .interval(vec![], |d| d.bytes_written = Some(5_000)),
    );
    spread.push(
        connection(4, 8, "10.0.0.1:4004", "10.0.0.2:80")
            .interval(vec![], |d| d.bytes_written = Some(5_000)),
    );
    spread.push(connection(5, 7, "10.0.0.1:4005", "10.0.0.2:80").interval(vec![], |_| {}));
    let found = find(&spread);
    assert_eq!(kinds(&found), [TooFewForFastRetransmit]);
    assert_eq!(found[0].connections.len(), 3);
    assert!(
        found[0].advice.what.contains("over 3 connections"),
        "{}",
        found[0].advice.what
    );
}

/// A connection limited by a send buffer of `send_buffer` bytes of memory, RTT 10 ms.
fn buffered(send_buffer: u32, cwnd: u32, rate: u64, write: u64) -> Connection {
    connection(1, 7, "10.0.0.1:4000", "10.0.0.2:80")
        .stats(|s| {
            s.send_buffer = Some(send_buffer);
            s.min_rtt = Some(ms(10));
            s.delivery_rate = Some(rate);
        })
        .interval(
            vec![Finding {
                events: None,
                ..finding(Problem::SendBufferLimited, ms(400), 0)
            }],
            |d| {
                d.cwnd = cwnd;
                d.send_buffer = Some(send_buffer);
                d.send_queue = send_buffer / 2;
                d.bytes_written = Some(10 * write);
            },
        )
}

#[test]
fn a_buffer_below_the_product_is_found_with_its_numbers() {
    // 2 MB/s over 10 ms: 20,000 bytes, of which 16,384 / 2 fit.
    let found = find(&[buffered(16_384, 30, 2_000_000, 1_000)]);
    assert_eq!(kinds(&found), [SendBufferBelowBdp]);
    assert_eq!(
        found[0].evidence,
        InteractionEvidence::SendBufferBelowBdp {
            capacity_bytes: 8_192,
            send_buffer_bytes: 16_384,
            bandwidth_low: 2_000_000,
            bandwidth_high: 3_000_000,
            min_rtt_us: 10_000,
            product_low_bytes: 20_000,
            product_high_bytes: 30_000,
            average_write_bytes: Some(1_000),
        }
    );
    // The rate is the buffer's own, 8,192 bytes an RTT: only the window says that more fits.
    let found = find(&[buffered(16_384, 30, 819_200, 1_000)]);
    assert_eq!(kinds(&found), [SendBufferBelowBdp]);
    assert!(
        found[0].advice.what.contains("between 8192 and 30000"),
        "{}",
        found[0].advice.what
    );
    // Another connection of the host knows more of the path.
    let mut faster = connection(2, 9, "10.0.0.1:4002", "10.0.0.2:81").interval(vec![], |_| {});
    faster.stats.delivery_rate = Some(10_000_000);
    let found = find(&[buffered(16_384, 30, 819_200, 1_000), faster]);
    assert!(matches!(
        found[0].evidence,
        InteractionEvidence::SendBufferBelowBdp {
            bandwidth_low: 10_000_000,
            product_low_bytes: 100_000,
            ..
        }
    ));
}

#[test]
fn a_buffer_that_holds_a_window_and_a_write_is_not_too_small() {
    assert!(find(&[buffered(65_536, 30, 2_000_000, 1_000)]).is_empty());
    // A write that does not fit.
    let found = find(&[buffered(65_536, 30, 2_000_000, 40_000)]);
    assert_eq!(kinds(&found), [SendBufferBelowBdp]);
    assert!(found[0].advice.what.contains("one write of 40000"));
    // A small buffer that limits nothing.
    let mut fine = buffered(16_384, 30, 2_000_000, 1_000);
    fine.intervals[0].0.clear();
    assert!(find(&[fine]).is_empty());
}

const UPLOAD: u64 = 500_000;

/// The side of a proxy where data comes in, so much of it unread at each interval's end.
fn coming_in(cookie: u64, pid: u32, local: &str, remote: &str, unread: u32) -> Connection {
    let interval = |d: &mut Deltas| {
        d.bytes_sent = Some(0);
        d.bytes_received = Some(UPLOAD);
        d.receive_queue = unread;
    };
    connection(cookie, pid, local, remote)
        .accepted()
        .interval(vec![], interval)
        .interval(vec![], interval)
}

/// The side where data goes out, limited by `problem` all the time.
fn going_out(
    cookie: u64,
    pid: u32,
    local: &str,
    remote: &str,
    problem: Option<Problem>,
) -> Connection {
    let found: Vec<Finding> = problem
        .map(|p| finding(p, ms(450), 1))
        .into_iter()
        .collect();
    let interval = |d: &mut Deltas| d.bytes_sent = Some(UPLOAD);
    connection(cookie, pid, local, remote)
        .interval(found.clone(), interval)
        .interval(found, interval)
}

const UNREAD: u32 = 60_000;

#[test]
fn a_proxy_that_is_backed_up_names_its_outgoing_side() {
    let from = coming_in(1, 7, "10.0.0.1:80", "10.0.0.9:5000", UNREAD);
    let to = going_out(
        2,
        7,
        "10.0.0.1:4000",
        "10.0.0.2:81",
        Some(Problem::ReceiverWindowLimited),
    );
    let found = find(&[from.clone(), to.clone()]);
    assert_eq!(kinds(&found), [PipelinedProxy]);
    assert_eq!(found[0].connections, [from.id, to.id]);
    assert_eq!(
        found[0].evidence,
        InteractionEvidence::PipelinedProxy {
            pid: 7,
            flow: ProxyFlow::BackedUp,
            problem: Problem::ReceiverWindowLimited,
            share: 0.9,
            cause: to.tuple,
            bytes_in: 2 * UPLOAD,
            bytes_out: 2 * UPLOAD,
            processes: 1,
        }
    );
}

#[test]
fn what_is_no_proxy_or_not_backed_up_is_not_found() {
    let window = Some(Problem::ReceiverWindowLimited);
    let from = |unread| coming_in(1, 7, "10.0.0.1:80", "10.0.0.9:5000", unread);
    let to = |pid, problem| going_out(2, pid, "10.0.0.1:4000", "10.0.0.2:81", problem);
    let none = |connections: &[Connection]| {
        let found = find(connections);
        assert!(found.is_empty(), "{found:?}");
    };
    // Nothing waits; another process; nothing limits.
    none(&[from(0), to(7, window)]);
    none(&[from(UNREAD), to(8, window)]);
    none(&[from(UNREAD), to(7, None)]);
    // A server with two clients.
    none(&[from(UNREAD), to(7, window).accepted()]);
    // Volumes that have nothing to do with each other.
    let mut more = to(7, window);
    for (_, deltas) in &mut more.intervals {
        deltas.bytes_sent = Some(5 * UPLOAD);
    }
    none(&[from(UNREAD), more]);
}

#[test]
fn a_chain_of_proxies_ends_at_its_cause() {
    let window = Some(Problem::ReceiverWindowLimited);
    // client -> A -> B -> server; the server's path loses.
    let client_a = coming_in(1, 7, "10.0.0.1:80", "10.0.0.9:5000", UNREAD);
    let a_b = going_out(2, 7, "10.0.0.1:4000", "10.0.0.1:81", window);
    let b_a = coming_in(3, 8, "10.0.0.1:81", "10.0.0.1:4000", UNREAD);
    let b_server = going_out(4, 8, "10.0.0.1:4001", "10.0.0.2:82", Some(Problem::Timeout));
    let found = find(&[client_a.clone(), a_b.clone(), b_a.clone(), b_server.clone()]);
    assert_eq!(kinds(&found), [PipelinedProxy, PipelinedProxy]);
    assert_eq!(found[0].connections, [client_a.id, a_b.id, b_server.id]);
    assert_eq!(found[1].connections, [b_a.id, b_server.id]);
    for interaction in &found {
        let InteractionEvidence::PipelinedProxy { problem, cause, .. } = &interaction.evidence
        else {
            panic!("{interaction:?}");
        };
        assert_eq!((*problem, *cause), (Problem::Timeout, b_server.tuple));
    }
    assert_eq!(found[0].advice.who, Actor::NetworkOperator);
}

/// A process that talks to itself, over loopback, and passes on what it receives.
#[test]
fn data_that_comes_back_to_a_process_goes_through_it_once() {
    let window = Some(Problem::ReceiverWindowLimited);
    let accepted = coming_in(1, 7, "127.0.0.1:80", "127.0.0.1:5000", UNREAD);
    let opened = going_out(2, 7, "127.0.0.1:4000", "127.0.0.1:81", window);
    let returns = coming_in(3, 7, "127.0.0.1:81", "127.0.0.1:4000", UNREAD);
    let other = going_out(4, 8, "127.0.0.1:5000", "127.0.0.1:80", window);
    let found = find(&[accepted, opened, returns, other]);
    assert!(!found.is_empty());
    for interaction in &found {
        let InteractionEvidence::PipelinedProxy { processes, .. } = &interaction.evidence else {
            panic!("{interaction:?}");
        };
        assert_eq!(*processes, 1, "{interaction:?}");
    }
    // Two processes that pass on to each other are two, however often the data comes round.
    let a_in = coming_in(1, 7, "10.0.0.1:80", "10.0.0.1:5001", UNREAD);
    let a_out = going_out(2, 7, "10.0.0.1:4000", "10.0.0.1:81", window);
    let b_in = coming_in(3, 8, "10.0.0.1:81", "10.0.0.1:4000", UNREAD);
    let b_out = going_out(4, 8, "10.0.0.1:5001", "10.0.0.1:80", window);
    for interaction in find(&[a_in, a_out, b_in, b_out]) {
        let InteractionEvidence::PipelinedProxy { processes, .. } = &interaction.evidence else {
            panic!("{interaction:?}");
        };
        assert_eq!(*processes, 2, "{interaction:?}");
    }
}

#[test]
fn a_proxy_that_is_starved_names_the_sender_behind_it() {
    // A on this host sends to B, which passes on to a client; A's connection loses.
    let a_b = going_out(1, 7, "10.0.0.1:4000", "10.0.0.1:81", Some(Problem::Timeout));
    let b_a = coming_in(2, 8, "10.0.0.1:81", "10.0.0.1:4000", 0);
    let b_client = going_out(3, 8, "10.0.0.1:4001", "10.0.0.2:82", None);
    let found = find(&[a_b.clone(), b_a.clone(), b_client.clone()]);
    assert_eq!(kinds(&found), [PipelinedProxy]);
    assert_eq!(found[0].connections, [b_client.id, a_b.id]);
    assert!(matches!(
        found[0].evidence,
        InteractionEvidence::PipelinedProxy {
            flow: ProxyFlow::Starved,
            problem: Problem::Timeout,
            ..
        }
    ));
    // Control: the sender is fine.
    let fine = going_out(1, 7, "10.0.0.1:4000", "10.0.0.1:81", None);
    assert!(find(&[fine, b_a, b_client]).is_empty());
}

#[test]
fn what_is_past_is_forgotten() {
    let mut interactions = Interactions::default();
    let c = losing(1, 7, 2_000, 2);
    let verdict = IntervalVerdict {
        connection: c.id,
        from: at(0),
        to: at(1),
        dominating: Problem::Timeout,
        findings: c.intervals[0].0.clone(),
        unmeasured: ProblemSet::EMPTY,
        deltas: c.intervals[0].1,
    };
    let observation = Observation {
        tuple: c.tuple,
        pid: None,
        origin: c.origin,
        stats: &c.stats,
        verdict: &verdict,
    };
    interactions.observe(&observation);
    // The same verdict again changes nothing.
    interactions.observe(&observation);
    assert_eq!(interactions.find()[0].evidence, find(&[c])[0].evidence);
    interactions.forget(at(1) + WINDOW);
    assert_eq!(interactions.find().len(), 1);
    interactions.forget(at(2) + WINDOW);
    assert!(interactions.find().is_empty());
}

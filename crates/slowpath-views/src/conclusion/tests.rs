// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::scripted::{finding, stats, verdict};
use crate::tally::Tally;
use slowpath_model::{
    Ending, Failure, FourTuple, Origin, Share, SocketFacts, TcpState, TcpStats, TurnTimes,
};

const SECOND: Micros = Micros(1_000_000);

/// An end that was observed for ten seconds.
struct Scripted {
    owner: Owner,
    tuple: FourTuple,
    origin: Origin,
    stats: TcpStats,
    tally: Tally,
    idle: Micros,
    facts: SocketFacts,
    turns: TurnTimes,
}

impl Scripted {
    /// With each problem for that many tenths of the time.
    fn new(command: &str, local: &str, remote: &str, problems: &[(Problem, u64)]) -> Self {
        let findings = problems
            .iter()
            .map(|(problem, tenths)| finding(*problem, Share::Measured(Micros(tenths * SECOND.0))));
        let mut judged = verdict(1, Micros(10 * SECOND.0), findings.collect());
        judged.deltas.bytes_sent = Some(4_000_000);
        let mut tally = Tally::default();
        tally.add(&judged);
        Scripted {
            owner: Owner::named(7, command),
            tuple: FourTuple::new(local.parse().unwrap(), remote.parse().unwrap()),
            origin: Origin::Opened,
            stats: TcpStats {
                bytes_received: 0,
                srtt: Some(Micros(1_000)),
                min_rtt: Some(Micros(900)),
                ..stats()
            },
            tally,
            idle: Micros::ZERO,
            facts: SocketFacts::default(),
            turns: TurnTimes::default(),
        }
    }

    fn end(&self) -> End<'_> {
        End {
            owner: &self.owner,
            tuple: self.tuple,
            origin: self.origin,
            stats: &self.stats,
            tally: &self.tally,
            idle: self.idle,
            facts: self.facts,
            turns: &self.turns,
            stopped: false,
        }
    }

    fn one_sided(&self) -> Observed<'_> {
        Observed {
            near: self.end(),
            far: None,
            peer: self.tuple.remote,
            listener: None,
            cause: None,
        }
    }

    fn with<'a>(&'a self, far: &'a Scripted) -> Observed<'a> {
        Observed {
            far: Some(far.end()),
            ..self.one_sided()
        }
    }
}

const CLIENT: &str = "10.0.0.1:4000";
const SERVER: &str = "10.0.0.2:80";

fn sender(problems: &[(Problem, u64)]) -> Scripted {
    Scripted::new("nginx", SERVER, CLIENT, problems)
}

fn reader(problems: &[(Problem, u64)]) -> Scripted {
    let mut reader = Scripted::new("curl", CLIENT, SERVER, problems);
    reader.stats.bytes_acked = 1;
    reader.stats.bytes_received = 4_000_000;
    reader.tally.deltas.bytes_acked = Some(0);
    reader.tally.deltas.bytes_sent = Some(0);
    reader.tally.deltas.bytes_received = Some(4_000_000);
    reader
}

#[test]
fn the_share_is_the_stages_sum_and_the_problems_qualify_it() {
    let mut lossy = sender(&[
        (Problem::FastRetransmit, 1),
        (Problem::CongestionWindowLimited, 8),
    ]);
    lossy.tally.deltas.retransmitted = Some(6);
    lossy.tally.deltas.srtt = Some(Micros(80_000));
    lossy.stats.srtt = Some(Micros(80_000));
    lossy.stats.min_rtt = Some(Micros(20_000));
    let answer = conclude([lossy.one_sided()], &[]);
    assert_eq!(answer.limiter, Limiter::Network);
    assert_eq!((answer.act.who, answer.alarm), (Role::Network, true));
    assert_eq!(answer.share, Some(0.9));
    let because: Vec<_> = answer.because.iter().map(|b| b.problem).collect();
    assert_eq!(because, ["CongestionWindowLimited", "FastRetransmit"]);
    assert!(
        answer
            .text
            .starts_with("the network, 90%: the path is full ("),
        "{}",
        answer.text
    );
    assert!(
        answer.text.contains("60.0ms of queue); 6 retransmissions"),
        "{}",
        answer.text
    );
}

#[test]
fn the_share_is_of_the_time_in_which_there_was_something_to_send() {
    let mut seldom = sender(&[(Problem::Timeout, 2)]);
    seldom.tally.deltas.busy = Some(Micros(4 * SECOND.0));
    assert_eq!(conclude([seldom.one_sided()], &[]).share, Some(0.5));
}

#[test]
fn a_path_that_is_merely_used_is_no_alarm() {
    let bulk = sender(&[(Problem::CongestionWindowLimited, 9)]);
    let answer = conclude([bulk.one_sided()], &[]);
    assert_eq!((answer.limiter, answer.alarm), (Limiter::Network, false));
    assert_eq!(answer.act.who, Role::SendingHost);
}

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

#[test]
fn healthy_and_idle_connections_do_not_dilute_the_share() {
    let slow = sender(&[(Problem::SendBufferLimited, 9)]);
    let mut idle = sender(&[]);
    idle.idle = Micros(10 * SECOND.0);
    let healthy = Scripted::new("nginx", SERVER, "10.0.0.1:4001", &[]);
    let all = [
        healthy.one_sided(),
        slow.one_sided(),
        idle.one_sided(),
        healthy.one_sided(),
    ];
    let answer = conclude(all, &[]);
    assert_eq!(answer.limiter, Limiter::SendBuffer);
    assert_eq!(answer.share, Some(0.9));
    assert_eq!((answer.connections, answer.others, answer.idle), (1, 2, 1));
}

#[test]
fn nothing_to_do_is_said_so() {
    let mut idle = sender(&[]);
    idle.idle = Micros(10 * SECOND.0);
    let answer = conclude([idle.one_sided()], &[]);
    assert_eq!(answer.limiter, Limiter::Nothing);
    assert_eq!((answer.share, answer.alarm), (None, false));
}

#[test]
fn one_exchange_after_another_is_round_trips() {
    // 66 exchanges of 150 ms in 10 s.
    let mut asks = Scripted::new("python3", CLIENT, SERVER, &[]);
    asks.stats.min_rtt = Some(Micros(150_000));
    asks.stats.bytes_received = 6_600;
    asks.tally.deltas.writes = Some(66);
    asks.tally.deltas.reads = Some(66);
    let answer = conclude([asks.one_sided()], &[]);
    assert_eq!(answer.limiter, Limiter::RoundTrips);
    assert!(answer.alarm);
    assert!((answer.share.unwrap() - 0.99).abs() < 1e-9);
    assert_eq!(answer.act.who, Role::SendingApplication);
    assert!(
        answer.text.contains("at most 7 a second"),
        "{}",
        answer.text
    );
    // Ten at a time are no sequence, and a near server is no alarm.
    asks.tally.deltas.writes = Some(660);
    asks.tally.deltas.reads = Some(660);
    assert_eq!(
        conclude([asks.one_sided()], &[]).limiter,
        Limiter::Application
    );
    asks.stats.min_rtt = Some(Micros(12_000));
    assert!(conclude([asks.one_sided()], &[]).alarm);
    asks.stats.min_rtt = Some(Micros(1_200));
    assert!(!conclude([asks.one_sided()], &[]).alarm);
}

#[test]
fn late_acks_count_in_an_exchange_only_and_are_the_writers() {
    let mut stream = sender(&[(Problem::DelayedAck, 9)]);
    let answer = conclude([stream.one_sided()], &[]);
    assert_eq!(
        (answer.limiter, answer.alarm),
        (Limiter::Application, false)
    );
    stream.stats.bytes_received = 1_000;
    let answer = conclude([stream.one_sided()], &[]);
    assert_eq!((answer.limiter, answer.alarm), (Limiter::Application, true));
    assert_eq!(answer.act.who, Role::SendingApplication);
    assert_eq!(answer.because[0].problem, "DelayedAck");
}

#[test]
fn a_listener_that_overflows_comes_before_the_network() {
    let mut opening = Scripted::new("wrk", CLIENT, SERVER, &[(Problem::SynRetransmit, 9)]);
    opening.stats.bytes_acked = 0;
    let node = Owner::named(9, "node");
    let refusing = [Refusing {
        owner: &node,
        local: SERVER.parse().unwrap(),
        problem: Problem::AcceptQueueOverflow,
        time: SECOND,
        events: 12,
    }];
    let answer = conclude([opening.one_sided()], &refusing);
    assert_eq!(answer.act.who, Role::AcceptingApplication);
    assert_eq!(answer.act.process.unwrap().command.as_ref(), "node");
    assert!(
        answer.text.contains("12 connection attempts"),
        "{}",
        answer.text
    );
    // The same for one that waits still.
    let mut waits = Scripted::new("wrk", CLIENT, SERVER, &[]);
    waits.stats.state = TcpState::SynSent;
    waits.stats.bytes_acked = 0;
    waits.stats.unanswered_timeouts = 2;
    let answer = conclude([waits.one_sided()], &refusing);
    assert_eq!(answer.act.who, Role::AcceptingApplication);
    let answer = conclude([opening.one_sided()], &[]);
    assert_eq!(
        (answer.limiter, answer.act.who),
        (Limiter::Network, Role::Network)
    );
}

#[test]
fn a_full_accept_queue_explains_a_full_queue_of_half_open_connections() {
    let node = Owner::named(9, "node");
    let refusing = |problem, seconds, events| Refusing {
        owner: &node,
        local: SERVER.parse().unwrap(),
        problem,
        time: Micros(seconds * SECOND.0),
        events,
    };
    let half_open = refusing(Problem::SynQueueOverflow, 4, 26);
    let both = |seconds| {
        [
            half_open,
            refusing(Problem::AcceptQueueOverflow, seconds, 3),
        ]
    };
    let answer = conclude([], &both(3));
    assert_eq!(answer.act.who, Role::AcceptingApplication);
    // What waited for its last ACK came at once.
    assert_eq!(conclude([], &both(1)).act.who, Role::ReceivingHost);
    assert_eq!(conclude([], &[half_open]).act.who, Role::ReceivingHost);
}

/// backend -> nginx -> curl, of which curl does not read: the backend's end, and both of nginx.
fn backed_up_proxy() -> [Scripted; 3] {
    let backend = Scripted::new(
        "backend",
        "10.0.0.2:8090",
        "10.0.0.2:50000",
        &[(Problem::ReceiverWindowLimited, 9)],
    );
    let mut proxy = Scripted::new(
        "nginx",
        "10.0.0.2:50000",
        "10.0.0.2:8090",
        &[(Problem::ReceiverAppSlow, 9)],
    );
    proxy.owner = Owner::named(8, "nginx");
    let mut downstream = sender(&[(Problem::ReceiverWindowLimited, 9)]);
    downstream.owner = Owner::named(8, "nginx");
    [backend, proxy, downstream]
}

#[test]
fn a_proxy_that_does_not_read_is_not_to_blame_for_its_client() {
    let [backend, proxy, downstream] = backed_up_proxy();
    let client = reader(&[(Problem::ReceiverAppSlow, 9)]);
    let mut observed = backend.with(&proxy);
    let blamed = |observed| conclude([observed], &[]).act.process.unwrap().command;
    assert_eq!(blamed(observed).as_ref(), "nginx");
    observed.cause = Some((downstream.end(), Some(client.end())));
    assert_eq!(blamed(observed).as_ref(), "curl");
}

/// The same without an interaction: nothing flows any more.
#[test]
fn a_proxy_whose_client_does_not_read_does_not_read_itself() {
    let [backend, mut proxy, mut downstream] = backed_up_proxy();
    downstream.origin = Origin::Accepted;
    let mut client = reader(&[(Problem::ReceiverAppSlow, 9)]);
    client.owner = Owner::named(9, "curl");
    let both = [proxy.with(&backend), downstream.with(&client)];
    let blamed = |answer: Conclusion| answer.act.process.unwrap().command;
    assert_eq!(blamed(conclude(both, &[])).as_ref(), "curl");
    // Older than the look: the higher port is the one that was opened.
    downstream.origin = Origin::Unknown;
    proxy.origin = Origin::Unknown;
    let both = [proxy.with(&backend), downstream.with(&client)];
    assert_eq!(blamed(conclude(both, &[])).as_ref(), "curl");
    // What it opened twice is no way through it.
    proxy.origin = Origin::Opened;
    downstream.origin = Origin::Opened;
    let both = [proxy.with(&backend), downstream.with(&client)];
    let answer = conclude(both, &[]);
    assert_eq!((answer.connections, answer.others), (1, 1));
}

/// Twenty connections that are answered at once, and one whose path is dead.
#[test]
fn what_has_less_than_a_tenth_of_the_time_is_named_behind_the_answer() {
    let busy = Scripted::new("wrk", CLIENT, SERVER, &[]);
    let dead = sender(&[(Problem::Timeout, 10)]);
    let many = std::iter::repeat_n(busy.one_sided(), 20);
    let answer = conclude(many.chain([dead.one_sided()]), &[]);
    assert_eq!(
        (answer.limiter, answer.alarm),
        (Limiter::Application, false)
    );
    assert!(
        answer.text.contains("; 1 of 21: the network, 100%"),
        "{}",
        answer.text
    );
    let few = std::iter::repeat_n(busy.one_sided(), 8);
    let answer = conclude(few.chain([dead.one_sided()]), &[]);
    assert_eq!((answer.limiter, answer.alarm), (Limiter::Network, true));
}

/// 50 ms in all is too short to be felt; the connection is named all the same.
#[test]
fn what_is_too_short_to_be_felt_is_no_alarm() {
    let mut short = sender(&[]);
    let lossy = finding(Problem::FastRetransmit, Share::Measured(Micros(50_000)));
    short.tally = Tally::default();
    short.tally.add(&verdict(1, Micros(60_000), vec![lossy]));
    let answer = conclude([short.one_sided()], &[]);
    assert_eq!((answer.limiter, answer.alarm), (Limiter::Network, false));
    assert_eq!((answer.connections, answer.others, answer.idle), (1, 0, 0));
}

/// RFC 1122 section 4.2.3.5: 200 ms doubled nine times have waited 102.2 s.
#[test]
fn what_has_been_unanswered_for_100_s_is_the_answer_only_by_itself() {
    let mut dead = sender(&[(Problem::Timeout, 10)]);
    dead.stats.unanswered_timeouts = 9;
    dead.stats.backoff = 9;
    dead.stats.rto = Micros(200_000 << 9);
    let busy = Scripted::new("wrk", CLIENT, SERVER, &[]);
    let answer = |dead: &Scripted| conclude([busy.one_sided(), dead.one_sided()], &[]);
    assert_eq!(answer(&dead).limiter, Limiter::Application);
    assert_eq!(answer(&dead).others, 1);
    assert!(
        answer(&dead)
            .text
            .contains("; 1 connection more had no answer")
    );
    assert!(conclude([dead.one_sided()], &[]).alarm);
    dead.stats.backoff = 8;
    dead.stats.rto = Micros(200_000 << 8);
    assert_eq!(answer(&dead).limiter, Limiter::Network);
    // Nothing but its FIN is under way.
    dead.stats.state = TcpState::FinWait1;
    dead.stats.send_queue = 1;
    assert_eq!(answer(&dead).limiter, Limiter::Application);
}

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
fn a_path_that_marks_is_full_without_a_queue() {
    let problems = [
        (Problem::CongestionWindowLimited, 9),
        (Problem::EcnMarked, 1),
    ];
    let marked = sender(&problems);
    let answer = conclude([marked.one_sided()], &[]);
    assert_eq!((answer.act.who, answer.alarm), (Role::Network, true));
    assert!(answer.text.contains("marked by ECN"), "{}", answer.text);
}

#[test]
fn an_application_that_paces_itself_is_its_own_limit() {
    // 4 MB in 10 s of at most 0.5 MB/s.
    let mut paced = sender(&[(Problem::CongestionWindowLimited, 9)]);
    paced.facts.max_pacing_rate = Some(500_000);
    let answer = conclude([paced.one_sided()], &[]);
    assert_eq!(
        (answer.limiter, answer.alarm),
        (Limiter::Application, false)
    );
    assert_eq!(answer.act.who, Role::SendingApplication);
    assert!(
        answer.text.contains("4.00Mbit/s (SO_MAX_PACING_RATE)"),
        "{}",
        answer.text
    );
    // Far below its cap something else limits.
    paced.facts.max_pacing_rate = Some(5_000_000);
    assert_eq!(conclude([paced.one_sided()], &[]).limiter, Limiter::Network);
}

#[test]
fn a_queue_in_this_hosts_own_device_is_its_operators() {
    let mut shaped = sender(&[(Problem::CongestionWindowLimited, 9)]);
    shaped.stats.srtt = Some(Micros(30_000));
    shaped.stats.in_flight = 40;
    shaped.facts.device_queue = Some(60_000);
    let answer = conclude([shaped.one_sided()], &[]);
    assert_eq!((answer.limiter, answer.alarm), (Limiter::Network, true));
    assert_eq!(answer.act.who, Role::SendingHost);
    shaped.facts.device_queue = Some(6_000);
    assert_eq!(conclude([shaped.one_sided()], &[]).act.who, Role::Network);
}

/// Turns of each end: how many ended, and how long each took in microseconds.
fn turns(peer: (u64, u64), here: (u64, u64)) -> TurnTimes {
    let mut turns = TurnTimes::default();
    turns.observed = true;
    for (times, (count, each)) in [(&mut turns.peer, peer), (&mut turns.here, here)] {
        times.count = count;
        times.time = Micros(count * each);
        times.longest = Micros(each);
        times.turn_time = Micros(count * each);
    }
    turns
}

/// A client that asks 30 times in ten seconds; postgres takes 300 ms to answer.
fn slow_query() -> (Scripted, Scripted) {
    let mut client = Scripted::new("pgbench", CLIENT, "10.0.0.2:5432", &[]);
    client.stats.bytes_received = 6_600;
    client.turns = turns((30, 301_000), (30, 20_000));
    let mut server = Scripted::new("postgres", "10.0.0.2:5432", CLIENT, &[]);
    server.origin = Origin::Accepted;
    server.stats.bytes_received = 6_600;
    server.turns = turns((30, 21_000), (30, 300_000));
    (client, server)
}

#[test]
fn a_server_that_takes_long_to_answer_is_the_limit_whichever_end_is_asked() {
    let (client, server) = slow_query();
    for observed in [
        client.with(&server),
        server.with(&client),
        server.one_sided(),
    ] {
        let answer = conclude([observed], &[]);
        assert_eq!((answer.limiter, answer.alarm), (Limiter::Application, true));
        assert_eq!(answer.act.process.unwrap().command.as_ref(), "postgres");
        assert_eq!(answer.share, Some(0.9));
        assert!(
            answer.text.contains("postgres[7] took 300ms to answer"),
            "{}",
            answer.text
        );
    }
    // Without the server's socket, by its address, and without the round trip.
    let answer = conclude([client.one_sided()], &[]);
    assert_eq!(answer.act.address.as_deref(), Some("10.0.0.2:5432"));
    assert!(
        answer.text.contains("10.0.0.2:5432 took 300ms to answer"),
        "{}",
        answer.text
    );
}

#[test]
fn a_client_that_asks_seldom_is_no_alarm() {
    let (mut client, _) = slow_query();
    client.turns = turns((30, 1_000), (30, 300_000));
    let answer = conclude([client.one_sided()], &[]);
    assert_eq!(
        (answer.limiter, answer.alarm),
        (Limiter::Application, false)
    );
    assert_eq!(answer.act.process.unwrap().command.as_ref(), "pgbench");
}

#[test]
fn waits_that_are_round_trips_are_the_askers_to_mend() {
    let (mut client, mut server) = slow_query();
    client.stats.min_rtt = Some(Micros(150_000));
    client.turns = turns((60, 150_100), (60, 100));
    server.turns = turns((60, 150_100), (60, 100));
    for observed in [
        client.with(&server),
        client.one_sided(),
        server.with(&client),
    ] {
        let answer = conclude([observed], &[]);
        assert_eq!((answer.limiter, answer.alarm), (Limiter::RoundTrips, true));
        assert_eq!(answer.act.process.unwrap().command.as_ref(), "pgbench");
    }
}

#[test]
fn a_proxy_that_waits_for_its_backend_is_not_the_answer() {
    let (client, _) = slow_query();
    let mut proxy = Scripted::new("haproxy", "10.0.0.2:5432", CLIENT, &[]);
    proxy.owner = Owner::named(8, "haproxy");
    proxy.origin = Origin::Accepted;
    proxy.turns = turns((30, 21_000), (30, 300_000));
    let mut backend_side = Scripted::new("haproxy", "10.0.0.2:6000", "10.0.0.3:80", &[]);
    backend_side.owner = Owner::named(8, "haproxy");
    backend_side.stats.bytes_received = 6_600;
    backend_side.turns = turns((30, 299_000), (30, 20_000));
    let mut backend = Scripted::new("python3", "10.0.0.3:80", "10.0.0.2:6000", &[]);
    backend.owner = Owner::named(9, "python3");
    backend.origin = Origin::Accepted;
    backend.turns = turns((30, 21_000), (30, 298_000));
    let connections = [proxy.with(&client), backend_side.with(&backend)];
    let answer = conclude(connections, &[]);
    assert_eq!(answer.act.process.unwrap().command.as_ref(), "python3");
}

#[test]
fn an_end_whose_traffic_overlaps_has_no_turns() {
    let (client, mut server) = slow_query();
    // It writes before it has read all.
    server.turns = turns((0, 0), (2, 1_000));
    server.turns.overlapping = 28;
    let answer = conclude([client.with(&server)], &[]);
    assert_eq!(answer.act.process.unwrap().command.as_ref(), "postgres");
    // 30 waits of 301 ms, less the least RTT of 0.9 ms each, of 10 s.
    assert!((answer.share.unwrap() - 0.9003).abs() < 1e-9);
}

#[test]
fn a_stream_that_nothing_ever_answered_asks_for_nothing() {
    let (mut client, mut server) = slow_query();
    for end in [&mut client, &mut server] {
        end.turns = turns((0, 0), (0, 0));
    }
    server.turns.here.pending = Some(Micros(5 * SECOND.0));
    server.turns.here.turn_time = Micros(9 * SECOND.0);
    client.turns.peer = server.turns.here.clone();
    client.stats.bytes_received = 0;
    let of = |client: &Scripted, server: &Scripted| {
        let answer = conclude([client.with(server)], &[]);
        (answer.act.process.unwrap().command, answer.alarm)
    };
    // It has asked once: the server keeps it waiting.
    client.tally.deltas.writes = Some(2);
    assert_eq!(of(&client, &server), ("postgres".into(), true));
    client.tally.deltas.writes = Some(9);
    assert_eq!(of(&client, &server), ("pgbench".into(), false));
    // Before it was observed: one request of 40 kB, or 40 messages of 100 bytes.
    client.tally.deltas.writes = Some(0);
    client.stats.send_mss = 1_000;
    client.stats.data_segments_out = 40;
    client.stats.bytes_acked = 40_000;
    assert!(of(&client, &server).1);
    client.stats.bytes_acked = 4_000;
    assert!(!of(&client, &server).1);
    // It wrote again 0.4 s ago, after 8.6 s without an answer.
    client.stats.bytes_acked = 40_000;
    server.turns.here.pending = Some(Micros(400_000));
    client.turns.peer = server.turns.here.clone();
    assert!(!of(&client, &server).1);
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
    let counted = failures::count(all.iter().map(Scripted::one_sided));
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

// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::scripted::{finding, stats, verdict};
use crate::tally::Tally;
use slowpath_model::{
    Ending, Failure, FourTuple, Origin, Share, SocketFacts, TcpState, TcpStats, TurnTimes,
};

mod failures;
mod receiver;
mod turns;

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
    starved: Micros,
    unread_polls: (u32, u32),
    largest_window: Option<u32>,
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
            starved: Micros::ZERO,
            unread_polls: (0, 0),
            largest_window: None,
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
            starved: self.starved,
            unread_polls: self.unread_polls,
            largest_window: self.largest_window,
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
fn a_full_send_buffer_is_the_receivers_while_that_is_behind() {
    // 5 s full; the receiver has most of its window unread for 4 s, in 1 s of which the window is full.
    let sends = sender(&[
        (Problem::SendBufferLimited, 5),
        (Problem::ReceiverWindowLimited, 1),
    ]);
    let behind = reader(&[(Problem::ReceiverAppSlow, 4)]);
    let answer = conclude([sends.with(&behind)], &[]);
    assert_eq!(answer.limiter, Limiter::Receiver);
    assert_eq!(answer.share, Some(0.4));
    // For 1 s: the send buffer had been full for 5 s anyway.
    let seldom = reader(&[(Problem::ReceiverAppSlow, 1)]);
    let answer = conclude([sends.with(&seldom)], &[]);
    assert_eq!(answer.limiter, Limiter::SendBuffer);
    assert_eq!(answer.share, Some(0.5));
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
fn a_receiver_that_waits_for_a_processor_comes_before_a_full_send_buffer() {
    let sender = sender(&[(Problem::SendBufferLimited, 5)]);
    let mut reader = reader(&[(Problem::ReceiverAppSlow, 1)]);
    assert_eq!(
        conclude([sender.with(&reader)], &[]).limiter,
        Limiter::SendBuffer
    );
    reader.starved = Micros(9 * SECOND.0);
    let answer = conclude([sender.with(&reader)], &[]);
    assert_eq!(
        (answer.limiter, answer.act.who),
        (Limiter::Receiver, Role::ReceivingHost)
    );
    assert_eq!(answer.share, Some(0.5));
    assert_eq!(
        answer.act.process.as_ref().unwrap().command.as_ref(),
        "curl"
    );
    assert_eq!(answer.because[0].problem, "ReceiverAppSlow");
    assert!(
        answer
            .text
            .contains("curl[7] waited for a processor for 9.00s of 10.0s"),
        "{}",
        answer.text
    );
    // No advice to enlarge the buffer, also where nothing but that is measured.
    let mut unmeasured = self::reader(&[]);
    unmeasured.starved = Micros(9 * SECOND.0);
    let answer = conclude([sender.with(&unmeasured)], &[]);
    assert_eq!((answer.limiter, answer.evidence), (Limiter::Receiver, None));
}

#[test]
fn a_receiver_that_waits_for_a_processor_is_no_limit_by_itself() {
    let sender = sender(&[]);
    let mut reader = reader(&[]);
    reader.starved = Micros(9 * SECOND.0);
    let answer = conclude([sender.with(&reader)], &[]);
    assert_eq!(
        (answer.limiter, answer.alarm),
        (Limiter::Application, false)
    );
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
fn nor_is_the_buffer_of_a_proxy_whose_path_is_full() {
    // Its window has no room for a segment of the loopback device, long before three quarters are unread.
    let [backend, proxy, mut downstream] = backed_up_proxy();
    let reads = Scripted {
        owner: proxy.owner.clone(),
        ..Scripted::new("nginx", "10.0.0.2:50000", "10.0.0.2:8090", &[])
    };
    let host = conclude([backend.with(&reads)], &[]);
    assert_eq!(host.act.who, Role::ReceivingHost);
    downstream.tally = sender(&[(Problem::FastRetransmit, 9)]).tally;
    let observed = Observed {
        cause: Some((downstream.end(), None)),
        ..backend.with(&reads)
    };
    let answer = conclude([observed], &[]);
    assert_eq!(
        (answer.limiter, answer.act.who),
        (Limiter::Network, Role::Network)
    );
}

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

/// A device of 100 Mbit/s and 40 ms: 345 segments are under way, of a window of 900.
#[test]
fn a_device_that_takes_no_more_is_named_instead_of_a_window_that_is_not_full() {
    let mut device = sender(&[(Problem::CongestionWindowLimited, 9)]);
    device.stats.cwnd = 900;
    device.stats.in_flight = 345;
    device.stats.unsent = 100_000;
    let of = |device: &Scripted| conclude([device.one_sided()], &[]);
    let answer = of(&device);
    assert_eq!((answer.limiter, answer.alarm), (Limiter::Network, false));
    assert_eq!(answer.act.who, Role::SendingHost);
    assert!(answer.text.contains("device"), "{}", answer.text);
    // Nothing waits, or the window is full.
    device.stats.unsent = 0;
    assert!(of(&device).text.contains("is the limit"));
    device.stats.unsent = 100_000;
    device.stats.in_flight = 900;
    assert!(of(&device).text.contains("is the limit"));
}

// SPDX-License-Identifier: Apache-2.0
//! Verdicts on timelines with a known cause, observed from the sender, from the middle and from
//! the receiver. Times are closed forms of what is written down.

mod losses;
#[path = "../segments/mod.rs"]
mod segments;
mod send_buffer;

use proptest::prelude::*;
use segments::{FULL, Line, Timeline, endpoint, initial};
use slowpath_model::{
    ConnectionId, Deltas, Finding, FourTuple, Micros, MonoNanos, Problem, ProblemInterval,
    ProblemSet, Share, WallMicros,
};
use slowpath_trace::engine::Follow;
use slowpath_trace::message::Category;
use slowpath_trace::segment::{Flags, Segment, Timestamp};
use slowpath_trace::tcp::{self, Side};
use slowpath_trace::verdict::{
    Basis, DirectionVerdict, Judged, Limit, Observation, Options, Origin, Trial, VantagePoint, join,
};
use std::time::Duration;

/// One way, in microseconds: half of the round trip in all timelines here.
const WAY: i64 = 10_000;
const RTT: i64 = 2 * WAY;

/// The handshake as the client sees it.
fn opened() -> Timeline {
    Timeline::handshake(RTT, 20)
}

fn ms(of: Duration) -> f64 {
    of.as_secs_f64() * 1e3
}

/// From the sender, from half way and from the receiver.
fn everywhere(at_sender: &Timeline) -> [(&'static str, Judged); 3] {
    [
        ("sender", at_sender.judge()),
        ("middle", at_sender.captured_at(WAY / 2, WAY / 2).judge()),
        ("receiver", at_sender.captured_at(WAY, WAY).judge()),
    ]
}

fn time(judged: &Judged, limit: Limit) -> f64 {
    ms(judged.verdicts.from_client.line.shares().of(limit))
}

fn is_about(what: &str, found: f64, expected: f64) {
    assert!(
        (found - expected).abs() <= 1.5,
        "{what}: {found} ms, not {expected} ms"
    );
}

fn verdict(judged: &Judged) -> &DirectionVerdict {
    &judged.verdicts.from_client
}

#[test]
fn the_place_of_capture_is_inferred() {
    let mut t = opened();
    t.data(40_000, 1, 200);
    t.ack(40_000 + RTT, 201);
    let [sender, middle, receiver] = everywhere(&t).map(|(_, j)| j.verdicts.vantage);
    assert_eq!(sender.place, VantagePoint::At(Side::Client));
    assert_eq!(middle.place, VantagePoint::Between);
    assert_eq!(receiver.place, VantagePoint::At(Side::Server));
    assert_eq!(middle.basis, Basis::Halves);
    // Half way both halves are 10 ms; the handshake's 20 µs are the client's own.
    assert_eq!(middle.to_server, Some(Duration::from_millis(10)));
    assert_eq!(middle.to_client, Some(Duration::from_micros(10_020)));
}

#[test]
fn checksums_left_to_the_card_report_the_host() {
    let mut t = Timeline::handshake(100, 50);
    for i in 0..4 {
        let at = 1_000 + i64::from(i) * 1_000;
        t.data(at, 1 + i * FULL, FULL).checksum_ok = Some(false);
        t.answer(at + 100, 1 + i * 10, 10, 1 + (i + 1) * FULL)
            .checksum_ok = Some(true);
    }
    let vantage = t.judge().verdicts.vantage;
    assert_eq!(vantage.place, VantagePoint::At(Side::Client));
    assert_eq!(vantage.basis, Basis::Checksums);
    assert_eq!(vantage.checksums, [(4, 4), (4, 0)]);
}

#[test]
fn a_short_path_does_not_report_the_place() {
    let mut t = Timeline::handshake(60, 30);
    t.data(1_000, 1, 200);
    t.ack(1_060, 201);
    assert_eq!(t.judge().verdicts.vantage.place, VantagePoint::Unknown);
}

/// Ten messages of three segments, one every 100 ms: the network is needed for one round trip each.
#[test]
fn an_application_that_writes_seldom_limits_itself() {
    let mut t = opened();
    for m in 0..10 {
        let (at, first) = (100_000 * i64::from(m + 1), 1 + m * 3 * FULL);
        for i in 0..3 {
            t.data(at + i64::from(i) * 10, first + i * FULL, FULL);
        }
        t.ack(at + 20 + RTT, first + 3 * FULL);
    }
    for (place, judged) in everywhere(&t) {
        let verdict = verdict(&judged);
        assert_eq!(verdict.dominating, Problem::SenderAppLimited, "{place}");
        assert!(
            verdict.findings.is_empty(),
            "{place}: {:?}",
            verdict.findings
        );
        assert_eq!(verdict.messages.count, 10, "{place}");
        assert_eq!(verdict.messages.bytes, 30 * u64::from(FULL), "{place}");
        assert!(time(&judged, Limit::SenderApp) > 960.0, "{place}");
    }
}

/// A window of 4,000 bytes that is full, emptied and announced again 50 ms later.
#[test]
fn a_full_window_limits() {
    let mut t = opened();
    for line in &mut t.lines {
        line.window = 4_000;
    }
    for m in 0..10 {
        let (at, first) = (100_000 + 50_000 * i64::from(m), 1 + m * 4 * FULL);
        for i in 0..4 {
            t.data(at + i64::from(i) * 10, first + i * FULL, FULL);
        }
        // Acknowledged at once, the window opened when the application has read.
        t.ack(at + 30 + RTT, first + 4 * FULL).window = 0;
        t.ack(at + 50_000 - 5, first + 4 * FULL).window = 4_000;
    }
    for (place, judged) in everywhere(&t) {
        let verdict = verdict(&judged);
        assert_eq!(
            verdict.dominating,
            Problem::ReceiverWindowLimited,
            "{place}"
        );
        // Of each 50 ms: full for the 20 ms of the round trip, then closed for 30. The last
        // opening was followed by nothing.
        is_about(place, time(&judged, Limit::ReceiverWindow), 9.0 * 20.0);
        is_about(place, time(&judged, Limit::ZeroWindow), 9.0 * 30.0);
        // In one message, for the application had it all written.
        assert_eq!(verdict.messages.count, 1, "{place}");
        assert_eq!(verdict.messages.with(Category::ZeroWindow), 1, "{place}");
        let zero = verdict
            .observed
            .iter()
            .find(|o| o.observation == Observation::ZeroWindow);
        assert_eq!(zero.and_then(|o| o.events), Some(10), "{place}");
    }
}

/// 200 bytes, then 200 more that Nagle's rule holds until the ACK, which the receiver keeps
/// back for 40 ms; ten times in a row without an answer.
fn kept_back(answered: bool) -> Timeline {
    let mut t = opened();
    let (mut next, mut answers) = (1, 1);
    for m in 0..10 {
        let at = 200_000 * i64::from(m + 1);
        t.data(at, next, 200);
        t.ack(at + RTT + 40_000, next + 200);
        t.data(at + RTT + 40_050, next + 200, 200);
        next += 400;
        let acked = at + RTT + 40_050 + RTT;
        if answered {
            t.answer(acked, answers, 100, next);
            answers += 100;
        } else {
            t.ack(acked, next);
        }
    }
    t
}

#[test]
fn a_delayed_ack_that_held_something_back_limits() {
    for (place, judged) in everywhere(&kept_back(true)) {
        let verdict = verdict(&judged);
        assert_eq!(verdict.dominating, Problem::DelayedAck, "{place}");
        is_about(place, time(&judged, Limit::DelayedAck), 10.0 * 40.0);
        let events = verdict.finding(Problem::DelayedAck).and_then(|f| f.events);
        assert_eq!(events, Some(10), "{place}");
        assert_eq!(verdict.messages.count, 10, "{place}");
    }
}

#[test]
fn the_oracle_counts_delayed_acks() {
    for (place, judged) in everywhere(&kept_back(false)) {
        let acks = &verdict(&judged).delayed_acks;
        assert_eq!(acks.waits.len(), 20, "{place}");
        assert_eq!(acks.share(), Some(0.5), "{place}");
        let whole = acks.within(Timestamp(i64::MIN), Timestamp(i64::MAX));
        assert_eq!(whole, (10, 20), "{place}");
    }
}

/// A request acknowledged after 40 ms and answered after 60: no one waited for the ACK.
#[test]
fn a_delayed_ack_in_an_exchange_is_harmless() {
    let mut t = opened();
    for m in 0..10 {
        let at = 200_000 * i64::from(m + 1);
        t.data(at, 1 + m * 200, 200);
        t.ack(at + RTT + 40_000, 201 + m * 200);
        t.answer(at + RTT + 60_000, 1 + m * 10, 10, 201 + m * 200);
    }
    for (place, judged) in everywhere(&t) {
        let verdict = verdict(&judged);
        assert_eq!(verdict.dominating, Problem::SenderAppLimited, "{place}");
        // The oracle sees them all the same.
        assert_eq!(verdict.delayed_acks.share(), Some(1.0), "{place}");
    }
}

/// Small writes, each held until the ACK of the one before, which comes in time.
#[test]
fn small_writes_wait_for_acks_in_time() {
    let mut t = opened();
    for i in 0..20 {
        let at = 100_000 + i64::from(i) * (RTT + 50);
        t.data(at, 1 + i * 100, 100);
        t.ack(at + RTT, 101 + i * 100);
    }
    for (place, judged) in everywhere(&t) {
        is_about(place, time(&judged, Limit::SmallWrites), 19.0 * 20.0);
        assert_eq!(verdict(&judged).messages.count, 1, "{place}");
    }
}

/// A window that doubles each round trip, then grows by one segment.
#[test]
fn a_growing_flight_is_the_congestion_window() {
    let mut t = opened();
    let (mut at, mut next) = (100_000, 1);
    for round in 0..20 {
        let count = if round < 4 { 2 << round } else { 28 + round };
        for i in 0..count {
            t.data(at + i64::from(i), next + i * FULL, FULL);
        }
        next += count * FULL;
        t.ack(at + 50 + RTT, next);
        at += RTT + 70;
    }
    for (place, judged) in everywhere(&t) {
        is_about(place, time(&judged, Limit::CongestionWindow), 19.0 * 20.07);
        assert_eq!(
            verdict(&judged).dominating,
            Problem::SenderAppLimited,
            "{place}"
        );
    }
}

/// Write, write, read: the ACK of each first write comes 42 ms late and lets the second go, which
/// the answer acknowledges in time. The late ACKs are no measure of how much the path varies.
#[test]
fn late_acks_from_the_first_on_do_not_hide_each_other() {
    let mut t = opened();
    let (mut at, mut next, mut back) = (100_000, 1, 1);
    for _ in 0..20 {
        t.data(at, next, 350).ack = back;
        t.ack(at + RTT + 42_000, next + 350).sequence = back;
        t.data(at + RTT + 42_020, next + 350, 200).ack = back;
        next += 550;
        t.answer(at + 2 * RTT + 42_100, back, 700, next);
        back += 700;
        at += 2 * RTT + 45_000;
    }
    let judged = t.judge();
    // The first may be the path's.
    let late = time(&judged, Limit::DelayedAck);
    assert!((15.0 * 40.0..=20.0 * 42.0).contains(&late), "{late} ms");
}

/// Bursts that are acknowledged 40 ms late: of three segments while nothing is read, so that the window
/// shrinks (DETER section 5.1), and of two.
#[test]
fn a_shrinking_receive_buffer_delays_acks() {
    for (still, segments, category) in [
        (true, 3, Category::BufferShrink),
        (false, 2, Category::DelayedAcks),
    ] {
        let mut t = opened();
        // One ACK in time shows the path.
        t.data(40_000, 1, FULL);
        t.ack(40_000 + RTT, 1 + FULL).window = 50_000;
        for burst in 0..5u32 {
            let at = 100_000 + i64::from(burst) * (RTT + 40_060);
            let first = 1 + FULL + burst * segments * FULL;
            for i in 0..segments {
                t.data(at + i64::from(i), first + i * FULL, FULL);
            }
            let unread = if still {
                (burst + 1) * segments * FULL
            } else {
                0
            };
            t.ack(at + RTT + 40_010, first + segments * FULL).window =
                u16::try_from(50_000 - unread).expect("fits");
        }
        t.lines[1].window = 50_000;
        for (place, judged) in everywhere(&t) {
            let verdict = verdict(&judged);
            assert_eq!(verdict.dominating, Problem::DelayedAck, "{place}");
            assert_eq!(verdict.messages.count, 2, "{place}");
            let mut messages = verdict.messages.slowest.iter();
            let message = messages.find(|m| !m.causes.is_empty()).expect("one has");
            assert_eq!(message.causes[0].category, category, "{place}: {message:?}");
            assert_eq!(message.causes[0].events, 4, "{place}");
        }
    }
}

/// The same with three segments and a window that stays as large: no timer keeps that back, it is the receiver's host.
#[test]
fn an_ack_of_three_segments_was_not_kept_back() {
    let mut t = opened();
    for burst in 0..5u32 {
        let at = 100_000 + i64::from(burst) * (RTT + 40_060);
        let first = 1 + burst * 3 * FULL;
        for i in 0..3 {
            t.data(at + i64::from(i), first + i * FULL, FULL);
        }
        t.ack(at + RTT + 40_010, first + 3 * FULL);
    }
    for (place, judged) in everywhere(&t) {
        is_about(place, time(&judged, Limit::DelayedAck), 0.0);
    }
}

/// Losses, and RTTs that vary by `variation_percent` of the least.
fn lossy(variation_percent: i64) -> Origin {
    let mut t = opened();
    let (mut at, mut next) = (100_000, 1);
    for round in 0..60 {
        for i in 0..4 {
            t.data(at + i64::from(i), next + i * FULL, FULL);
        }
        let rtt = RTT + RTT * variation_percent / 100 * (round % 10) / 9;
        if round % 15 == 14 {
            for i in 2..=4 {
                let sacked = (next + FULL, next + i * FULL);
                t.ack(at + rtt + i64::from(i), next).sack = vec![sacked];
            }
            t.data(at + rtt + 50, next, FULL);
            t.ack(at + 2 * rtt + 50, next + 4 * FULL);
            at += rtt;
        } else {
            for i in 1..=4 {
                t.ack(at + rtt + i64::from(i), next + i * FULL);
            }
        }
        next += 4 * FULL;
        at += rtt + 100;
    }
    t.judge().verdicts.from_client.losses.origin
}

#[test]
fn losses_are_congestion_if_the_round_trip_varies() {
    assert_eq!(lossy(100), Origin::Congestion);
    assert_eq!(lossy(5), Origin::Fault);
    assert_eq!(lossy(35), Origin::Unclear);
}

#[test]
fn a_syn_sent_again_is_reported() {
    let mut t = Timeline::handshake(RTT, 20);
    let mut first: Line = t.lines[0].clone();
    first.at_us = -1_000_000;
    first.ip_id = Some(60_001);
    t.lines.insert(0, first);
    t.data(40_000, 1, 100);
    t.ack(40_000 + RTT, 101);
    let judged = t.judge();
    let observed = verdict(&judged)
        .observed
        .iter()
        .find(|o| o.observation == Observation::SynRetransmit)
        .copied()
        .expect("observed");
    assert_eq!(observed.events, Some(1));
    assert_eq!(observed.time, Some(Duration::from_secs(1)));
    is_about("opening", time(&judged, Limit::Opening), 1_020.02);
}

#[test]
fn one_direction_by_itself_shows_no_problem() {
    let mut t = opened();
    for i in 0..10 {
        t.data(100_000 + i64::from(i) * 1_000, 1 + i * FULL, FULL);
    }
    t.lines.retain(|l| l.side == Side::Client);
    let judged = t.judge();
    assert!(verdict(&judged).findings.is_empty());
    assert!(verdict(&judged).unmeasured.contains(Problem::Timeout));
}

#[test]
fn counters_and_packets_stand_side_by_side() {
    let judged = kept_back(true).judge();
    let start = judged.report.first.time.0 / 1_000;
    let interval = |end_ms: i64, length_ms: u64, problem| ProblemInterval {
        connection: ConnectionId {
            boot_id: 0,
            netns: 0,
            cookie: 1,
            start: MonoNanos(0),
        },
        end: WallMicros(start + end_ms * 1_000),
        duration: Micros::from_millis(length_ms),
        findings: vec![Finding {
            problem,
            share: Share::Measured(Micros::from_millis(40)),
            events: Some(1),
        }],
        unmeasured: ProblemSet::EMPTY,
        deltas: Deltas::default(),
    };
    // Messages at 200, 400, ...: each has 40 ms of delayed ACK after 20 ms.
    let log = [
        interval(500, 150, Problem::DelayedAck),
        interval(900, 200, Problem::Timeout),
    ];
    let joined = join::join(&log, None, verdict(&judged), 0);
    let rows: Vec<_> = joined
        .rows
        .iter()
        .map(|r| (r.by_counters(), r.by_packets()))
        .collect();
    let (app, late, timer) = (
        Problem::SenderAppLimited,
        Problem::DelayedAck,
        Problem::Timeout,
    );
    // 0-350, 350-500, 500-700, 700-900, the rest.
    assert_eq!(
        rows,
        [
            (app, late),
            (late, late),
            (app, late),
            (timer, late),
            (app, late)
        ]
    );
    assert_eq!(joined.rows[1].agrees(), Some(true));
    assert_eq!(
        joined.rows[1].packets.of(Limit::DelayedAck),
        Duration::from_millis(40)
    );
    assert_eq!(joined.rows[1].delayed_acks, (1, 1));
    let covered: Duration = joined.rows.iter().map(|r| r.covered).sum();
    assert_eq!(covered, judged.report.duration());

    let socket = |e: slowpath_trace::segment::Endpoint| (e.address, e.port).into();
    let (client, server) = (endpoint(Side::Client), endpoint(Side::Server));
    let tuple = FourTuple::new(socket(client), socket(server));
    assert!(join::is_same(tuple, client, server));
    assert!(!join::is_same(tuple, server, client));
}

/// Any segment of a connection, at any time.
fn any_line() -> impl Strategy<Value = (i64, bool, u32, u32, u32, u16, u16)> {
    let flags = prop_oneof![
        20 => Just(Flags::ACK),
        5 => Just(Flags::ACK | Flags::PSH),
        1 => Just(Flags::SYN),
        1 => Just(Flags::SYN | Flags::ACK),
        1 => Just(Flags::FIN | Flags::ACK),
        1 => Just(Flags::RST),
        1 => any::<u16>().prop_map(|f| f & 0x1ff),
    ];
    let window = prop_oneof![3 => Just(60_000u16), 1 => Just(0u16), 1 => any::<u16>()];
    let time = prop_oneof![8 => 0i64..400_000, 1 => -1_000_000i64..0];
    let near = prop_oneof![9 => 0u32..20_000, 1 => any::<u32>()];
    let length = prop_oneof![2 => Just(0u32), 3 => Just(FULL), 1 => 0u32..70_000];
    (
        time,
        any::<bool>(),
        near.clone(),
        length,
        near,
        flags,
        window,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Times are exclusive: they sum to the connection's. Intervals follow each other.
    #[test]
    fn the_line_has_no_gaps(lines in prop::collection::vec(any_line(), 1..80), opens: bool) {
        let mut trial: Option<Trial> = None;
        let mut now = 0;
        let mut take = |s: &Segment<'_>| {
            trial
                .get_or_insert_with(|| Trial::new(s, &tcp::Options::default(), &Options::default()))
                .segment(s);
        };
        if opens {
            opened().feed(&mut take);
        }
        for (index, (step, client, sequence, length, ack, flags, window)) in lines.into_iter().enumerate() {
            now += step;
            let side = if client { Side::Client } else { Side::Server };
            take(&Segment {
                time: Timestamp(1_700_000_000_000_000_000 + now * 1_000),
                frame: index as u64 + 10,
                source: endpoint(side),
                destination: endpoint(side.peer()),
                sequence: initial(side).wrapping_add(sequence),
                acknowledgement: initial(side.peer()).wrapping_add(ack),
                flags: Flags(flags),
                window,
                urgent: 0,
                length,
                captured: 0,
                options: &[],
                checksum_ok: None,
                ecn: 0,
                ttl: 64,
                ip_id: None,
                wire_length: 60,
            });
        }
        let judged = trial.expect("there are segments").finish();
        for side in [Side::Client, Side::Server] {
            let verdict = judged.verdicts.sent_by(side);
            let line = &verdict.line;
            prop_assert_eq!(line.shares().total(), judged.report.duration());
            let mut reached = judged.report.first.time;
            for interval in line.intervals() {
                prop_assert_eq!(interval.from.time, reached);
                prop_assert!(interval.to.time > reached);
                reached = interval.to.time;
            }
            prop_assert_eq!(line.within(judged.report.first.time, reached), *line.shares());
            let messages = &verdict.messages;
            prop_assert!(messages.slowest.len() as u64 <= messages.count);
            for message in &messages.slowest {
                prop_assert!(message.limits.total() <= message.duration());
            }
        }
    }

    /// Any times at all: nothing overflows.
    #[test]
    fn any_clock_is_taken(times in prop::collection::vec(any::<i64>(), 1..40)) {
        let mut trial: Option<Trial> = None;
        let mut next = 0;
        for time in times {
            opened().feed(|s| {
                let mut s = *s;
                s.time = Timestamp(time);
                next += 1;
                s.frame = next;
                trial
                    .get_or_insert_with(|| Trial::new(&s, &tcp::Options::default(), &Options::default()))
                    .segment(&s);
            });
        }
        trial.expect("there are segments").finish();
    }
}

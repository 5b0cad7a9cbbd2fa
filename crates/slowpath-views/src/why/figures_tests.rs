// SPDX-License-Identifier: Apache-2.0
//! Every figure that stands beside a share is of the connection, the time and the source of that share.
//!
//! Drawn rounds of several connections: each gauge has a value that no other connection and no other interval
//! has, so that a figure shows where it comes from. The answer is read as a user reads it, and each figure in
//! it is compared with what was drawn.

use super::*;
use crate::scripted::{INTERVAL, ScriptedSource, finding, live, verdict};
use crate::source::OwnedConnection;
use proptest::prelude::*;
use slowpath_model::{Deltas, Owner, Problem, Share, Tier};
use slowpath_text::percent;

const PID: u32 = 77;
const MSS: u32 = 1_024;

/// Problems whose time the evidence shows, and others.
const PROBLEMS: [Problem; 10] = [
    Problem::SendBufferLimited,
    Problem::ReceiverWindowLimited,
    Problem::CongestionWindowLimited,
    Problem::FastRetransmit,
    Problem::Timeout,
    Problem::DelayedAck,
    Problem::ZeroWindow,
    Problem::SynRetransmit,
    Problem::ReceiverAppSlow,
    Problem::SmallWrites,
];

/// One polling interval.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// Which problems, and tenths of the interval; `None` where only that is known.
    found: Vec<(Problem, Option<u64>)>,
    /// Part of the interval that the kernel's own clocks show, in tenths: another than the verdict's.
    clocks: u64,
    large_buffer: bool,
    pub(crate) polled: bool,
}

fn round() -> impl Strategy<Value = Round> {
    let problem = prop::sample::select(PROBLEMS.to_vec());
    let found = (problem, prop::option::weighted(0.8, 1..=10u64));
    let found = prop::collection::vec(found, 0..=3);
    (found, 0..=10u64, any::<bool>(), prop::bool::weighted(0.9)).prop_map(
        |(mut found, clocks, large_buffer, polled)| {
            let mut met = Vec::new();
            found.retain(|(problem, _)| {
                let first = !met.contains(problem);
                met.push(*problem);
                first
            });
            Round {
                found,
                clocks,
                large_buffer,
                polled,
            }
        },
    )
}

/// Gauges that only this connection has, in this interval only: at most 4 connections and 6 intervals.
fn gauges(connection: usize, interval: usize, round: &Round) -> Deltas {
    let number = (10 * (connection + 1) + interval) as u32;
    let part = Micros(INTERVAL.0 * round.clocks / 10);
    Deltas {
        cwnd: 100 + number,
        send_mss: MSS,
        send_window: Some((1_000 + number) * 1_024),
        send_queue: number * 1_024,
        receive_queue: (300 + number) * 1_024,
        srtt: Some(Micros::from_millis(u64::from(400 + number))),
        send_buffer: Some(match round.large_buffer {
            true => (20_000 + number) * 1_024,
            false => (50 + number) * 1_024,
        }),
        bytes_sent: Some(100_000),
        bytes_acked: Some(100_000),
        bytes_written: Some(100_000),
        writes: Some(10),
        busy: Some(INTERVAL),
        rwnd_limited: Some(part),
        sndbuf_limited: Some(part),
        delayed_acks: Some(1),
        ..Deltas::default()
    }
}

fn local(connection: usize) -> String {
    format!("10.0.0.1:{}", 4_000 + connection)
}

pub(crate) fn observed(connection: usize, interval: usize, round: &Round) -> OwnedConnection {
    let cookie = connection as u64 + 1;
    let mut observed = live(cookie, "backup", &local(connection), "10.0.0.2:873");
    observed.owner = Owner::named(PID, "backup");
    let deltas = gauges(connection, interval, round);
    let share = |tenths: Option<u64>| match tenths {
        Some(tenths) => Share::Measured(Micros(INTERVAL.0 * tenths / 10)),
        None => Share::Coarse,
    };
    let found = round.found.iter();
    let found = found.map(|(problem, tenths)| finding(*problem, share(*tenths)));
    let mut latest = verdict(cookie, INTERVAL, found.collect());
    latest.deltas = deltas;
    let stats = &mut observed.snapshot.stats;
    stats.cwnd = deltas.cwnd;
    stats.send_mss = MSS;
    stats.send_window = deltas.send_window;
    stats.send_buffer = deltas.send_buffer;
    stats.send_queue = deltas.send_queue;
    stats.srtt = deltas.srtt;
    stats.min_rtt = Some(Micros::from_millis(10));
    stats.delivery_rate = Some(1_000_000);
    observed.snapshot.tier = if round.clocks.is_multiple_of(2) {
        Tier::Bpf
    } else {
        Tier::InetDiag
    };
    observed.latest = round.polled.then_some(latest);
    observed
}

/// The same with something unread, which the process that waits for a processor would read.
fn unread(connection: usize, interval: usize, round: &Round) -> OwnedConnection {
    let mut observed = observed(connection, interval, round);
    observed.snapshot.stats.receive_queue = gauges(connection, interval, round).receive_queue;
    observed
}

/// So many connections over as many intervals each.
pub(crate) fn rounds() -> impl Strategy<Value = Vec<Vec<Round>>> {
    (1..=4usize, 1..=6usize).prop_flat_map(|(connections, intervals)| {
        let one = prop::collection::vec(round(), intervals);
        prop::collection::vec(one, connections)
    })
}

/// The answer about them; the log knows nothing of what is unread between two rounds.
pub(crate) fn answer(drawn: &[Vec<Round>]) -> Answer {
    answer_about(drawn, observed)
}

fn answer_about(
    drawn: &[Vec<Round>],
    observed: fn(usize, usize, &Round) -> OwnedConnection,
) -> Answer {
    let intervals = drawn[0].len();
    let step = |i: usize| {
        let connections = drawn.iter().enumerate();
        connections
            .map(|(c, rounds)| observed(c, i, &rounds[i]))
            .collect()
    };
    // The first poll's interval ended before observation began.
    let steps: Vec<Vec<OwnedConnection>> =
        std::iter::once(0).chain(0..intervals).map(step).collect();
    let mut source = ScriptedSource::new(steps);
    source.processor_wait = Micros(INTERVAL.0 * drawn[0][0].clocks / 10);
    let target = Target::Pid(PID);
    let mut collector = Collector::at(&target);
    for _ in 0..=intervals {
        let report = source.poll().unwrap();
        collector.polled(&source, &report, WallMicros(0));
    }
    collector
        .answer(Micros(INTERVAL.0 * intervals as u64))
        .unwrap()
}

/// What stands after `lead` in the text, up to a comma, a semicolon or a bracket; each time.
fn after<'t>(text: &'t str, lead: &str) -> Vec<&'t str> {
    let rest = text
        .match_indices(lead)
        .map(|(at, _)| &text[at + lead.len()..]);
    rest.map(|rest| {
        rest.split([',', ';', ')', '('])
            .next()
            .unwrap_or(rest)
            .trim()
    })
    .collect()
}

/// `850us`, `12.3ms` or `4.20s`, in microseconds.
fn duration(text: &str) -> f64 {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    let read = |(unit, each): &(&str, f64)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(number * each)
    };
    units
        .iter()
        .find_map(read)
        .unwrap_or_else(|| panic!("{text} is no duration"))
}

/// A percentage as the text has it: its least and its most.
fn percentage(text: &str) -> (f64, f64) {
    match text.trim_end_matches('%') {
        "<1" => (0.0, 1.0),
        ">99" => (99.0, 100.0),
        number => {
            let number: f64 = number
                .parse()
                .unwrap_or_else(|_| panic!("{text} is no share"));
            (number - 0.51, number + 0.51)
        }
    }
}

/// What was drawn of a connection.
struct Drawn<'a> {
    connection: usize,
    rounds: &'a [Round],
}

impl Drawn<'_> {
    /// Time of a problem, and whether all of it was measured.
    fn time(&self, problem: Problem) -> (Micros, bool) {
        let rounds = self.rounds.iter().filter(|r| r.polled);
        let found = rounds.flat_map(|r| &r.found).filter(|(p, _)| *p == problem);
        found.fold((Micros::ZERO, true), |(sum, measured), (_, tenths)| {
            let time = Micros(INTERVAL.0 * tenths.unwrap_or(10) / 10);
            (sum + time, measured && tenths.is_some())
        })
    }

    /// Time with verdicts: those of which anything is known.
    fn observed(&self) -> Micros {
        let rounds = self.rounds.iter().filter(|r| r.polled).count();
        Micros(INTERVAL.0 * rounds as u64)
    }

    /// The gauges of the last interval that has the problem; of SenderAppLimited, of the last one.
    fn gauges(&self, problem: Problem) -> Option<Deltas> {
        let has = |r: &Round| {
            r.polled
                && (problem == Problem::SenderAppLimited
                    || r.found.iter().any(|(p, _)| *p == problem))
        };
        let last = self.rounds.iter().rposition(has)?;
        Some(gauges(self.connection, last, &self.rounds[last]))
    }
}

fn same(shown: &[&str], drawn: &str, text: &str) -> Result<(), TestCaseError> {
    for shown in shown {
        prop_assert_eq!(*shown, drawn, "in {}", text);
    }
    Ok(())
}

/// Every figure in the numbers of one problem.
fn check_numbers(
    numbers: &str,
    problem: Problem,
    share: Option<&str>,
    drawn: &Drawn<'_>,
) -> Result<(), TestCaseError> {
    prop_assert!(!numbers.trim().is_empty());
    let Some(gauges) = drawn.gauges(problem) else {
        return Err(TestCaseError::fail(format!(
            "{problem} was not drawn: {numbers}"
        )));
    };
    let kib = |bytes: u32| slowpath_text::bytes(bytes.into());
    let windows = after(numbers, "congestion window ");
    let windows: Vec<&str> = windows
        .into_iter()
        .filter(|w| !w.starts_with("full"))
        .collect();
    same(&windows, &format!("{} segments", gauges.cwnd), numbers)?;
    same(
        &after(numbers, "peer announces "),
        &kib(gauges.send_window.unwrap()),
        numbers,
    )?;
    same(
        &after(numbers, ", RTT "),
        &gauges.srtt.unwrap().to_string(),
        numbers,
    )?;
    let buffer = format!("{} of memory", kib(gauges.send_buffer.unwrap()));
    same(&after(numbers, "send buffer limit "), &buffer, numbers)?;
    for part in numbers
        .split(", ")
        .filter(|part| part.ends_with("not read"))
    {
        prop_assert_eq!(part, format!("{} not read", kib(gauges.receive_queue)));
    }
    let (time, measured) = drawn.time(problem);
    for lasted in after(numbers, " full for ") {
        prop_assert!(measured, "{problem} was not measured: {numbers}");
        let (lasted, within) = lasted.split_once(" of ").expect("X of Y");
        let within_us = duration(within);
        prop_assert!(
            within_us <= drawn.observed().0 as f64 * 1.005,
            "{}",
            numbers
        );
        // Three significant digits.
        let error = (duration(lasted) - time.0 as f64).abs();
        prop_assert!(
            error <= time.0 as f64 * 0.005,
            "{lasted} is not {time}: {numbers}"
        );
        if let Some(share) = share {
            let (least, most) = percentage(share);
            let part = 100.0 * duration(lasted) / within_us;
            let slack = part * 0.01;
            prop_assert!(
                part >= least - slack && part <= most + slack,
                "{share} beside {lasted} of {within}"
            );
        }
    }
    for outstanding in after(numbers, "data outstanding for ") {
        let (lasted, within) = outstanding.split_once(" of ").expect("X of Y");
        prop_assert!(duration(lasted) <= duration(within));
        // Without a limit, the time in which nothing changed counts too.
        let whole = INTERVAL.0 * drawn.rounds.len() as u64;
        prop_assert!(duration(within) <= whole as f64 * 1.005, "{}", numbers);
    }
    Ok(())
}

/// The connection that a point is of: the only one, or the one that it names.
fn origin<'a>(text: &str, drawn: &'a [Vec<Round>]) -> Result<Drawn<'a>, TestCaseError> {
    let named = (0..drawn.len()).filter(|c| text.contains(&format!("(of {} ->", local(*c))));
    let named: Vec<usize> = named.collect();
    let connection = match (named.as_slice(), drawn.len()) {
        ([one], _) => *one,
        ([], 1) => 0,
        _ => return Err(TestCaseError::fail(format!("which connection? {text}"))),
    };
    Ok(Drawn {
        connection,
        rounds: &drawn[connection],
    })
}

/// One size is asked for, and not beside the statement that the size is not the reason.
fn check_sizes(text: &str) -> Result<(), TestCaseError> {
    let mut sizes: Vec<&str> = after(text, "set SO_SNDBUF to ");
    sizes.extend(after(text, "set it to "));
    let mut sizes: Vec<&str> = sizes
        .into_iter()
        .filter_map(|size| size.split([' ', ';']).next())
        .collect();
    sizes.dedup();
    prop_assert!(sizes.len() <= 1, "{sizes:?} in {text}");
    prop_assert!(
        sizes.is_empty() || !text.contains("not its size"),
        "{}",
        text
    );
    Ok(())
}

fn check_points(answer: &Answer, drawn: &[Vec<Round>]) -> Result<(), TestCaseError> {
    let source = ScriptedSource::new(vec![]);
    let conclusion = answer.conclusion();
    let points = answer.points(&conclusion, &source);
    let because = conclusion.because.first();
    for (heading, text) in &points {
        prop_assert!(!text.is_empty(), "{heading} is empty: {points:?}");
        match *heading {
            "evidence" => {
                let problem = conclusion.evidence.as_ref().expect("some").problem();
                let share = because
                    .filter(|_| conclusion.connections == 1)
                    .map(|b| percent(b.share));
                check_numbers(text, problem, share.as_deref(), &origin(text, drawn)?)?;
            }
            "also" => {
                let (problem, rest) = text.split_once(", ").expect("PROBLEM, SHARE of the time");
                let (share, numbers) = rest.split_once(" of the time").expect("a share");
                let problem = Problem::from_name(problem).expect("a problem");
                let numbers = numbers.trim_start_matches(": ");
                check_numbers(numbers, problem, Some(share), &origin(numbers, drawn)?)?;
            }
            "advice" => {
                let evidence = conclusion.evidence.as_ref().expect("some");
                let at = (0..drawn.len())
                    .find(|c| evidence.tuple().local.to_string() == local(*c))
                    .expect("a drawn one");
                let gauges = Drawn {
                    connection: at,
                    rounds: &drawn[at],
                }
                .gauges(evidence.problem());
                let window = slowpath_text::bytes(gauges.unwrap().send_window.unwrap().into());
                same(&after(text, "announces a window of "), &window, text)?;
            }
            _ => {}
        }
    }
    let headline = &conclusion.text;
    for (lead, problem, of) in [
        (
            "the receive window of 10.0.0.2 (",
            Problem::ReceiverWindowLimited,
            0,
        ),
        ("the send buffer (", Problem::SendBufferLimited, 1),
        (
            "the congestion window (",
            Problem::CongestionWindowLimited,
            2,
        ),
    ] {
        for shown in after(headline, lead) {
            let any = (0..drawn.len()).any(|connection| {
                let one = Drawn {
                    connection,
                    rounds: &drawn[connection],
                };
                one.gauges(problem).is_some_and(|g| {
                    let text = [
                        slowpath_text::bytes(g.send_window.unwrap().into()),
                        format!(
                            "{} of memory",
                            slowpath_text::bytes(g.send_buffer.unwrap().into())
                        ),
                        format!("{} segments", g.cwnd),
                    ];
                    text[of] == shown
                })
            });
            prop_assert!(any, "{}", headline);
        }
    }
    Ok(())
}

fn check_json(answer: &Answer, drawn: &[Vec<Round>]) -> Result<(), TestCaseError> {
    let source = ScriptedSource::new(vec![]);
    let json = crate::json::value(&answer.output(&source, WallMicros(0)));
    crate::schema::conforms("why", &json);
    let whole = INTERVAL.0 * drawn[0].len() as u64;
    for connection in json["connections"].as_array().unwrap() {
        let observed = connection["observed_us"].as_u64().unwrap();
        prop_assert!(observed <= whole, "{}", connection);
        for (_, problem) in connection["problems"].as_object().unwrap() {
            prop_assert!(problem["time_us"].as_u64().unwrap() <= observed);
        }
    }
    let share = json["answer"]["share"].as_f64().unwrap_or(0.0);
    prop_assert!((0.0..=1.0).contains(&share));
    let evidence = &json["evidence"];
    let cwnd = evidence["cwnd_segments"].as_u64().unwrap();
    let window = evidence["send_window_bytes"].as_u64();
    if let Some(window) = window {
        // Of one connection and one interval.
        prop_assert_eq!(cwnd - 100, window / 1_024 - 1_000);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_figure_is_of_the_shares_connection_time_and_source(drawn in rounds()) {
        let answer = answer_about(&drawn, unread);
        check_points(&answer, &drawn)?;
        check_json(&answer, &drawn)?;
        if drawn.len() == 1 {
            let text = answer.lines(&ScriptedSource::new(vec![]), slowpath_text::Paint::OFF);
            let text = text.join(" ");
            let words: Vec<&str> = text.split_whitespace().collect();
            check_sizes(&words.join(" "))?;
        }
    }
}

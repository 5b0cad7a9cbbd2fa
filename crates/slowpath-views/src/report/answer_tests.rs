// SPDX-License-Identifier: Apache-2.0
use crate::conclusion::{Conclusion, Limiter, Role};
use crate::json;
use crate::report::{Options, Records, Report, ReportRange};
use crate::scripted::{INTERVAL, at, id, interval, seconds, summary};
use crate::why::figures_tests::{Round, answer, observed, rounds};
use proptest::prelude::*;
use slowpath_diagnose::Totals;
use slowpath_model::{
    ConnectionSummary, Ending, LifeAnswers, LifeTurns, Micros, MonoNanos, Origin, Owner, Problem,
};

fn options() -> Options {
    Options {
        range: ReportRange {
            from: at(0),
            to: at(100),
        },
        filter: Default::default(),
        by: None,
    }
}

fn answered(summaries: Vec<ConnectionSummary>) -> Conclusion {
    let records = Records {
        summaries,
        ..Records::default()
    };
    let options = options();
    Report::of(records, &options).answer.clone()
}

/// What the log has of the connection that these rounds are of: sums of the verdicts, time without changes.
fn logged(connection: usize, rounds: &[Round]) -> ConnectionSummary {
    let polled = || rounds.iter().enumerate().filter(|(_, round)| round.polled);
    let mut totals = Totals::default();
    for (i, round) in polled() {
        let live = observed(connection, i, round);
        totals.add(&live.latest.expect("it was polled"));
    }
    let idle = Micros(INTERVAL.0 * (rounds.len() - polled().count()) as u64);
    totals.idle(idle);
    let last = observed(connection, rounds.len() - 1, &rounds[rounds.len() - 1]);
    let mut life = summary(connection as u64 + 1, "backup", Problem::Timeout, 0);
    life.connection.start = MonoNanos(1);
    life.tuple = last.snapshot.tuple;
    life.origin = last.snapshot.origin;
    life.owner = last.owner;
    life.stats = last.snapshot.stats;
    totals.fill(&mut life);
    let changes = polled().count() as u64;
    life.stats.busy = Some(Micros(INTERVAL.0 * changes));
    life.stats.bytes_acked = 1 + 100_000 * changes;
    life.stats.bytes_sent = Some(100_000 * changes);
    life.writes = Some(10 * changes);
    life.life.idle = Some(idle);
    life
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_reports_answer_is_that_of_why_over_the_same_rounds(drawn in rounds()) {
        let why = answer(&drawn).conclusion();
        let lives = drawn.iter().enumerate();
        let report = answered(lives.map(|(c, rounds)| logged(c, rounds)).collect());
        prop_assert_eq!(report.limiter, why.limiter, "{} / {}", report.text, why.text);
        prop_assert_eq!((report.act, report.alarm), (why.act, why.alarm));
        prop_assert_eq!(report.share, why.share);
        prop_assert_eq!(report.because, why.because);
        let counts = |c: &(usize, usize, usize)| *c;
        prop_assert_eq!(
            counts(&(report.connections, report.others, report.idle)),
            counts(&(why.connections, why.others, why.idle))
        );
    }
}

/// A connection of 100 s, 10 s of them active, of which the receiver's window was full for 8 s.
fn seldom() -> ConnectionSummary {
    let mut life = summary(1, "backup", Problem::ReceiverWindowLimited, 8);
    life.connection.start = MonoNanos(1);
    life.stats.busy = Some(seconds(10));
    life.life.idle = Some(seconds(90));
    life
}

#[test]
fn idle_time_does_not_dilute_and_a_log_without_it_says_so() {
    let answer = answered(vec![seldom()]);
    assert_eq!(answer.limiter, Limiter::Receiver);
    assert_eq!(answer.share, Some(0.8));
    let mut old = seldom();
    old.life = Default::default();
    old.stats.busy = None;
    let records = Records {
        summaries: vec![old],
        ..Records::default()
    };
    let options = options();
    let report = Report::of(records, &options);
    // 8 s of 100 s are no limit.
    assert_eq!(report.answer.limiter, Limiter::Application);
    let json = json::value(&report.output());
    crate::schema::conforms("report", &json);
    assert_eq!(json["answer"]["limiter"], "application");
    assert_eq!(
        json["answer_lacks"],
        serde_json::json!(["idle_time", "turns"])
    );
    let lines = report.lines(slowpath_text::Paint::OFF).join(" ");
    let text = lines.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("shares are of all the time observed"),
        "{text}"
    );
}

#[test]
fn the_end_that_does_not_read_is_found_by_its_addresses_and_its_time() {
    let mut sends = seldom();
    sends.owner = Owner::named(7, "backup");
    let mut reads = sends.clone();
    reads.connection = id(2);
    reads.tuple = sends.tuple.reversed();
    reads.origin = Origin::Accepted;
    reads.owner = Owner::named(8, "store");
    reads.problem_time = Default::default();
    reads.problem_time[Problem::ReceiverAppSlow as usize] = seconds(8);
    let answer = answered(vec![sends.clone(), reads.clone()]);
    assert_eq!(answer.act.who, Role::ReceivingApplication);
    assert_eq!(answer.act.process.unwrap().command.as_ref(), "store");
    // One connection, though both ends are in the log.
    assert_eq!((answer.connections, answer.others), (1, 0));
    // The same port at another time is another connection.
    reads.first_observed = at(-300);
    reads.last_observed = at(-200);
    assert_eq!(answered(vec![sends, reads]).act.who, Role::ReceivingHost);
}

#[test]
fn how_it_ended_and_whose_turn_it_was_are_in_the_log() {
    let mut refused = summary(1, "curl", Problem::Timeout, 0);
    refused.stats.bytes_acked = 0;
    refused.closed = true;
    refused.life.socket.ending = Some(Ending {
        state: None,
        error: Some(111),
    });
    let answer = answered(vec![refused]);
    assert_eq!(answer.limiter, Limiter::Failed);
    assert_eq!(answer.act.who, Role::AcceptingApplication);

    let mut asks = summary(1, "psql", Problem::Timeout, 0);
    asks.connection.start = MonoNanos(1);
    asks.stats.busy = Some(Micros::ZERO);
    asks.life.idle = Some(Micros::ZERO);
    asks.life.turns = Some(LifeTurns {
        peer: LifeAnswers {
            count: 180,
            time: seconds(90),
            pending: None,
        },
        ..LifeTurns::default()
    });
    let answer = answered(vec![asks]);
    assert_eq!(answer.limiter, Limiter::Application);
    assert!(
        answer.alarm && answer.text.contains("to answer (180 answers)"),
        "{}",
        answer.text
    );
}

/// Of a life of 100 s with 90 s idle, the first 50 s: idle for no more than the problems leave.
#[test]
fn a_life_partly_in_the_range_counts_its_problems_in_it() {
    let records = Records {
        summaries: vec![seldom()],
        problems: vec![interval(1, 40, Problem::ReceiverWindowLimited, 8)],
        ..Records::default()
    };
    let mut options = options();
    options.range.to = at(50);
    let mut records = records;
    records.problems[0].connection = records.summaries[0].connection;
    let answer = Report::of(records, &options).answer.clone();
    assert_eq!(answer.limiter, Limiter::Receiver);
    // 45 s of 50 s would be idle, 42 s are left.
    assert_eq!(answer.share, Some(1.0));
}

#[test]
fn each_group_has_the_answer_about_its_connections() {
    let mut lossy = summary(3, "sync", Problem::Timeout, 60);
    lossy.problem_events[Problem::Timeout as usize] = 12;
    lossy.life.idle = Some(Micros::ZERO);
    let records = Records {
        summaries: vec![seldom(), lossy],
        ..Records::default()
    };
    let options = Options {
        by: Some(crate::report::GroupBy::Application),
        ..options()
    };
    let report = Report::of(records, &options);
    let json = json::value(&report.output());
    crate::schema::conforms("report", &json);
    let groups = json["by"]["groups"].as_array().unwrap();
    let of = |name: &str| {
        let group = groups.iter().find(|group| group["name"] == name);
        group.unwrap()["answer"]["limiter"].clone()
    };
    assert_eq!(
        (of("backup"), of("sync")),
        ("receiver".into(), "network".into())
    );
    // In all it is the one that cost most: 60 s.
    assert_eq!(json["answer"]["limiter"], "network");
    let lines = report.lines(slowpath_text::Paint::OFF).join(" ");
    assert!(lines.contains("the receiver, 80%"), "{lines}");
}

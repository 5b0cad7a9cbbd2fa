// SPDX-License-Identifier: Apache-2.0
//! Wrong clocks: nothing impossible is printed as true, each is named, and the variation stays right.

mod line;

use line::{Fate, Line, Toward, address, open_server};
use slowpath_path::report::{Note, PathReport, Reading, Way, of_one_way, text};
use slowpath_path::serve::Serving;
use slowpath_path::session::{Measured, OneWayOutcome, TestOptions, measure};
use slowpath_path::socket::{ClockError, WallClock};
use slowpath_path::time::{Span, Timestamp};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

const MS: i64 = 1_000_000;

/// 12 s of 100 packets a second each way; the client's clock is wrong.
fn session(clock: WallClock) -> OneWayOutcome {
    let line = Line::new(Box::new(|_, _| Fate::PASS));
    let bind = SocketAddr::new(address(Line::B4), 861);
    let _serving = line.at(Toward::B, || Serving::start(open_server()).expect("ports"));
    let test = TestOptions {
        packets: 1_200,
        slots: "0.01f".parse().expect("a schedule"),
        timeout: Span::from_seconds(2.0).expect("a span"),
        clock,
        ..TestOptions::to(bind)
    };
    line.at(Toward::A, || measure(&test, &AtomicBool::new(false)))
        .expect("a measurement")
}

/// When the wrong clock showed this, by the right one.
fn right(clock: &WallClock, shown: Timestamp) -> i64 {
    let shown = shown.unix_nanos();
    let mut time = shown;
    for _ in 0..4 {
        time = shown - (clock.showing(time) - time);
    }
    time
}

/// P95 − P50 of the true delays: the kernel's stamps with the client's error taken off.
fn true_jitter(measured: &Measured, clock: &WallClock, way: Way) -> i64 {
    let left: HashMap<u32, Timestamp> = measured
        .stamps
        .iter()
        .map(|s| (s.sequence, s.sent))
        .collect();
    let arrived = measured.records.iter().filter(|record| !record.lost());
    let mut delays: Vec<i64> = arrived
        .map(|record| {
            let sent = left.get(&record.sequence).copied().unwrap_or(record.sent);
            match way {
                Way::There => record.received.unix_nanos() - right(clock, sent),
                _ => right(clock, record.received) - sent.unix_nanos(),
            }
        })
        .collect();
    delays.sort_unstable();
    let at = |percent: usize| delays[(delays.len() * percent).div_ceil(100) - 1];
    at(95) - at(50)
}

fn check(name: &str, error: ClockError) -> PathReport {
    let clock = WallClock::wrong(error);
    let outcome = session(clock);
    let reading = Reading {
        timeout: Duration::from_secs(2),
        ..Reading::default()
    };
    let report = of_one_way(&outcome, &reading);
    let printed = text::report(&report);
    for direction in &report.directions {
        let measured = match direction.way {
            Way::There => outcome.there.as_ref(),
            _ => outcome.back.as_ref(),
        };
        let summary = &direction.summary;
        assert_eq!(
            (summary.sent, summary.lost, summary.duplicates),
            (1_200, 0, 0),
            "{name}:\n{printed}"
        );
        let truth = true_jitter(measured.expect("measured"), &clock, direction.way);
        let reported = summary.delay.as_ref().expect("packets came").jitter_ns;
        assert!(
            (reported - truth).abs() < MS / 5,
            "{name}: {reported} ns, really {truth} ns\n{printed}"
        );
    }
    report
}

#[test]
fn wrong_clocks_are_named_and_the_variation_stays_right() {
    if let Some(reason) = line::missing() {
        println!("SKIPPED wrong_clocks_are_named_and_the_variation_stays_right: {reason}");
        return;
    }
    let offset = |offset: i64| ClockError {
        offset,
        ..ClockError::default()
    };
    let cases = [
        ("right", ClockError::default()),
        ("+50 ms", offset(50 * MS)),
        ("-50 ms", offset(-50 * MS)),
        ("-10 s", offset(-10_000 * MS)),
        (
            "50 ppm",
            ClockError {
                skew_ppm: 50.0,
                ..ClockError::default()
            },
        ),
        (
            "step",
            ClockError {
                step: Some((6_000 * MS, 20 * MS)),
                ..ClockError::default()
            },
        ),
    ];
    let reports: Vec<(&str, PathReport)> = thread::scope(|scope| {
        let threads: Vec<_> = cases
            .into_iter()
            .map(|(name, error)| (name, scope.spawn(move || check(name, error))))
            .collect();
        threads
            .into_iter()
            .map(|(name, thread)| (name, thread.join().expect("it holds")))
            .collect()
    });
    for (name, report) in reports {
        let printed = text::report(&report);
        let has = |wanted: fn(&Note) -> bool| report.notes.iter().any(wanted);
        let impossible = has(|note| matches!(note, Note::Impossible { .. }));
        match name {
            "right" => assert!(!impossible, "{printed}"),
            "+50 ms" | "-50 ms" | "-10 s" => {
                assert!(impossible, "{name}:\n{printed}");
                assert!(
                    report
                        .directions
                        .iter()
                        .all(|d| d.error.expect("delays").error_ns.is_none())
                );
                assert!(!printed.contains("(err="), "{name}:\n{printed}");
                assert_eq!(
                    has(|note| matches!(note, Note::ClocksTooFar { .. })),
                    name == "-10 s",
                    "{printed}"
                );
            }
            "50 ppm" => {
                // The peer's clock is the right one: ours runs ahead.
                let clock = report.clock.as_ref().expect("both directions");
                assert!((clock.skew_ppm + 50.0).abs() < 15.0, "{printed}");
                assert!(has(|note| matches!(note, Note::Skew { .. })), "{printed}");
            }
            _ => {
                let clock = report.clock.as_ref().expect("both directions");
                assert_eq!(clock.steps.len(), 1, "{printed}");
                assert!(
                    (clock.steps[0].size_ns + 20 * MS).abs() < 2 * MS,
                    "{printed}"
                );
                assert!(has(|note| matches!(note, Note::Step { .. })), "{printed}");
            }
        }
    }
}

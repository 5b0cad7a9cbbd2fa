// SPDX-License-Identifier: Apache-2.0
//! Records through the spool into Parquet and back: equal within the stated rounding.

mod records;

use proptest::prelude::*;
use records::{BOOT, MIDNIGHT, Random};
use slowpath_model::{
    ConnectionSummary, Deltas, Micros, Problem, ProblemInterval, ProblemSet, Share, WallMicros,
};
use slowpath_store::{
    Evidence, HostIdentity, IntervalFilter, LogReader, LogWriter, Options, ReadReport, TimeRange,
};
use std::collections::BTreeMap;
use std::path::Path;

fn host() -> HostIdentity {
    HostIdentity {
        host: "here".to_owned(),
        boot_id: BOOT,
    }
}

/// Writes and converts; without merging, whatever `options` say.
fn write(dir: &Path, options: Options, fill: impl FnOnce(&mut LogWriter)) {
    let options = Options {
        merge_up_to: Micros::ZERO,
        ..options
    };
    let mut log = LogWriter::open(dir, host(), options).unwrap();
    log.tick(WallMicros(MIDNIGHT));
    fill(&mut log);
    let status = log.close();
    assert_eq!(status.last_error, None);
    assert_eq!((status.records_dropped, status.segments_waiting), (0, 0));
    assert_eq!(spools(dir), 0, "everything is in Parquet");
}

fn spools(dir: &Path) -> usize {
    std::fs::read_dir(dir.join("spool")).unwrap().count()
}

fn clean(report: &ReadReport) {
    assert_eq!(
        (&report.unreadable, report.corrupt, report.not_understood),
        (&Vec::new(), 0, 0)
    );
}

/// Whether `got` is `want` within a relative error.
fn near(got: u64, want: u64, error: f64) -> bool {
    got.abs_diff(want) as f64 <= want as f64 * error + 1e-9
}

fn near_or_none(got: Option<u64>, want: Option<u64>, error: f64) -> bool {
    match (got, want) {
        (Some(got), Some(want)) => near(got, want, error),
        (got, want) => got == want,
    }
}

const FOUR_BITS: f64 = 1.0 / 16.0;
const FIVE_BITS: f64 = 1.0 / 32.0;
const EIGHT_BITS: f64 = 1.0 / 256.0;

/// The evidence that is always kept, by name: value read, value written, error allowed.
fn kept(got: &Deltas, want: &Deltas) -> Vec<(&'static str, Option<u64>, Option<u64>, f64)> {
    let us = |t: Option<Micros>| t.map(|t| t.0);
    let n = |v: u32| Some(u64::from(v));
    vec![
        ("bytes_sent", got.bytes_sent, want.bytes_sent, FOUR_BITS),
        ("retransmitted", got.retransmitted, want.retransmitted, 0.0),
        ("recoveries", got.fast_recoveries, want.fast_recoveries, 0.0),
        ("timeouts", got.timeouts, want.timeouts, 0.0),
        ("rtt_sum", us(got.rtt_sum), us(want.rtt_sum), FOUR_BITS),
        ("rtt_count", got.rtt_count, want.rtt_count, FIVE_BITS),
        ("delayed_acks", got.delayed_acks, want.delayed_acks, 0.0),
        // 256 us where it is told by an interval's length, which lies on a grid.
        ("busy", us(got.busy), us(want.busy), FOUR_BITS + 0.004),
        (
            "rwnd",
            us(got.rwnd_limited),
            us(want.rwnd_limited),
            FOUR_BITS + 0.004,
        ),
        (
            "sndbuf",
            us(got.sndbuf_limited),
            us(want.sndbuf_limited),
            FOUR_BITS + 0.004,
        ),
        // Told by bytes_sent as rounded: within its own error of that.
        (
            "bytes_written",
            got.bytes_written,
            want.bytes_written,
            FOUR_BITS,
        ),
        ("cwnd", n(got.cwnd), n(want.cwnd), FOUR_BITS),
        (
            "window",
            got.send_window.map(u64::from),
            want.send_window.map(u64::from),
            FOUR_BITS,
        ),
        ("queue", n(got.send_queue), n(want.send_queue), FOUR_BITS),
        (
            "receive_queue",
            n(got.receive_queue),
            n(want.receive_queue),
            FOUR_BITS,
        ),
        ("mss", n(got.send_mss), n(want.send_mss), 0.0),
    ]
}

fn optional(got: &Deltas, want: &Deltas) -> Vec<(&'static str, Option<u64>, Option<u64>, f64)> {
    let us = |t: Option<Micros>| t.map(|t| t.0);
    let n = |v: Option<u32>| v.map(u64::from);
    vec![
        ("bytes_acked", got.bytes_acked, want.bytes_acked, FOUR_BITS),
        (
            "bytes_received",
            got.bytes_received,
            want.bytes_received,
            FOUR_BITS,
        ),
        ("writes", got.writes, want.writes, FOUR_BITS),
        ("bytes_read", got.bytes_read, want.bytes_read, FOUR_BITS),
        ("reads", got.reads, want.reads, FOUR_BITS),
        ("srtt", us(got.srtt), us(want.srtt), FOUR_BITS),
        (
            "baseline",
            us(got.baseline_rtt),
            us(want.baseline_rtt),
            FOUR_BITS,
        ),
        ("send_buffer", n(got.send_buffer), n(want.send_buffer), 0.0),
    ]
}

fn check_interval(got: &ProblemInterval, want: &ProblemInterval, evidence: Evidence) {
    assert_eq!(got.connection, want.connection);
    assert_eq!(got.unmeasured, want.unmeasured);
    let (start, wanted_start) = (got.end - got.duration, want.end - want.duration);
    let grid = if want.duration.0 < 65_536 { 0 } else { 128 };
    assert!(got.end.0.abs_diff(want.end.0) <= grid, "{got:?} {want:?}");
    assert!(start.0.abs_diff(wanted_start.0) <= grid, "{got:?} {want:?}");

    let problems =
        |i: &ProblemInterval| i.findings.iter().map(|f| f.problem).collect::<ProblemSet>();
    assert_eq!(problems(got), problems(want));
    let time = |i: &ProblemInterval| -> u64 {
        let measured = i.findings.iter().filter(|f| f.share != Share::Coarse);
        measured.map(|f| f.share.time_of(i.duration).0).sum()
    };
    if time(want) <= want.duration.0 {
        assert!(time(got) <= got.duration.0, "{got:?} {want:?}");
    }
    let mut last = Micros(u64::MAX);
    for found in &got.findings {
        let wanted = want.finding_of(found.problem);
        assert_eq!(found.events, wanted.events, "{got:?} {want:?}");
        match (found.share, wanted.share) {
            (Share::Coarse, Share::Coarse) => {}
            (Share::Measured(got_time), Share::Measured(time)) if time >= want.duration => {
                assert_eq!(got_time, got.duration, "the whole interval stays whole");
            }
            (Share::Measured(got_time), Share::Measured(time)) => {
                // Rounded to the nearest, or down where the sum would not fit.
                assert!(
                    near(got_time.0, time.0, 2.0 * FIVE_BITS),
                    "{got:?} {want:?}"
                );
            }
            other => panic!("{other:?}"),
        }
        let time = found.share.time_of(got.duration);
        assert!(time <= last, "largest share first: {got:?}");
        last = time;
    }
    for (name, got_value, value, error) in kept(&got.deltas, &want.deltas) {
        assert!(
            near_or_none(got_value, value, error),
            "{name}: read {got_value:?}, written {value:?}: {got:?} {want:?}"
        );
    }
    for (name, got_value, value, error) in optional(&got.deltas, &want.deltas) {
        match evidence {
            Evidence::All => assert!(near_or_none(got_value, value, error), "{name}"),
            Evidence::OfFindings => assert_eq!(got_value, None, "{name}"),
        }
    }
}

trait FindingOf {
    fn finding_of(&self, problem: Problem) -> &slowpath_model::Finding;
}

impl FindingOf for ProblemInterval {
    fn finding_of(&self, problem: Problem) -> &slowpath_model::Finding {
        self.findings.iter().find(|f| f.problem == problem).unwrap()
    }
}

/// A summary's numbers, by serde's names, flattened.
fn numbers(summary: &ConnectionSummary) -> BTreeMap<String, serde_json::Value> {
    fn flatten(
        name: &str,
        value: serde_json::Value,
        into: &mut BTreeMap<String, serde_json::Value>,
    ) {
        match value {
            serde_json::Value::Object(map) => {
                for (key, value) in map {
                    flatten(&format!("{name}.{key}"), value, into);
                }
            }
            value => {
                into.insert(name.to_owned(), value);
            }
        }
    }
    let mut flat = BTreeMap::new();
    let value = serde_json::json!({
        "times": summary.problem_time.map(|t| t.0),
        "events": summary.problem_events,
        "observed": summary.observed.0,
        "polls": summary.polls,
        "stats": serde_json::to_value(summary.stats).unwrap(),
        "calls": [summary.bytes_written, summary.bytes_read],
        "writes": summary.writes,
        "reads": summary.reads,
    });
    flatten("", value, &mut flat);
    flat
}

fn check_summary(got: &ConnectionSummary, want: &ConnectionSummary) {
    let whole = |s: &ConnectionSummary| {
        (
            (s.connection, s.tuple, s.origin, s.owner.clone(), s.tier),
            (s.first_observed, s.last_observed, s.closed, s.unmeasured),
            (s.observed, s.polls, s.problem_time, s.problem_events),
            (s.stats.send_mss, s.stats.send_buffer, s.stats.retransmitted),
        )
    };
    assert_eq!(whole(got), whole(want));
    let (got, want) = (numbers(got), numbers(want));
    assert_eq!(
        got.keys().collect::<Vec<_>>(),
        want.keys().collect::<Vec<_>>()
    );
    for (name, value) in &want {
        let error = match name.as_str() {
            ".stats.bytes_sent" | ".stats.bytes_acked" | ".stats.bytes_received" => EIGHT_BITS,
            ".calls" => {
                for (got, want) in got[name]
                    .as_array()
                    .unwrap()
                    .iter()
                    .zip(value.as_array().unwrap())
                {
                    assert!(
                        near_or_none(got.as_u64(), want.as_u64(), EIGHT_BITS),
                        "{name}"
                    );
                }
                continue;
            }
            _ => FIVE_BITS,
        };
        if value.is_number() {
            assert!(
                near(got[name].as_u64().unwrap(), value.as_u64().unwrap(), error),
                "{name}: {} {value}",
                got[name]
            );
        } else {
            assert_eq!(&got[name], value, "{name}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn intervals_come_back_within_their_rounding(seed: u64, count in 1usize..120, all: bool) {
        let dir = tempfile::tempdir().unwrap();
        let mut random = Random(seed);
        // 10 ms apart: the order by end survives the grid.
        let written: Vec<_> = (0..count)
            .map(|i| random.interval(WallMicros(MIDNIGHT + 10_000 * i as i64)))
            .collect();
        let evidence = if all { Evidence::All } else { Evidence::OfFindings };
        write(dir.path(), Options { evidence, ..Options::default() }, |log| {
            for interval in &written {
                log.problem(interval);
            }
        });
        let read = LogReader::open(dir.path()).unwrap()
            .intervals(TimeRange::ALL, &IntervalFilter::default()).unwrap();
        clean(&read.report);
        prop_assert_eq!(read.rows.len(), written.len());
        for (got, want) in read.rows.iter().zip(&written) {
            check_interval(got, want, evidence);
        }
    }

    #[test]
    fn summaries_come_back_within_their_rounding(seed: u64, count in 1u64..30) {
        let dir = tempfile::tempdir().unwrap();
        let mut random = Random(seed);
        let mut written = BTreeMap::new();
        for _ in 0..count {
            let id = random.connection(1 << 40);
            let summary = random.summary(id, WallMicros(MIDNIGHT));
            written.insert(id, summary);
        }
        write(dir.path(), Options::default(), |log| {
            for summary in written.values() {
                log.summary(summary);
            }
        });
        let read = LogReader::open(dir.path()).unwrap().connections(TimeRange::ALL).unwrap();
        clean(&read.report);
        prop_assert_eq!(read.rows.len(), written.len());
        for got in &read.rows {
            check_summary(got, &written[&got.connection]);
        }
    }

    #[test]
    fn coverage_comes_back_exactly(seed: u64, count in 1i64..30) {
        let dir = tempfile::tempdir().unwrap();
        let mut random = Random(seed);
        let written: Vec<_> = (0..count)
            .map(|i| random.coverage(WallMicros(MIDNIGHT + i)))
            .collect();
        write(dir.path(), Options::default(), |log| {
            for record in &written {
                log.coverage(record);
            }
        });
        let read = LogReader::open(dir.path()).unwrap().coverage(TimeRange::ALL).unwrap();
        clean(&read.report);
        prop_assert_eq!(read.rows, written);
    }

    #[test]
    fn merging_keeps_every_sum(seed: u64, count in 2usize..200) {
        let dir = tempfile::tempdir().unwrap();
        let mut random = Random(seed);
        let limit = Micros(2_000_000);
        // Few connections, contiguous intervals, and mostly the same problem: much to merge.
        let mut ends = [WallMicros(MIDNIGHT); 3];
        let written: Vec<_> = (0..count).map(|_| {
            let mut interval = random.interval(WallMicros(MIDNIGHT));
            let which = random.below(3) as usize;
            interval.connection.cookie = which as u64;
            interval.duration = Micros(1 + random.below(600_000));
            interval.end = ends[which] + interval.duration;
            ends[which] = interval.end;
            interval.findings.truncate(1);
            interval.findings[0].problem = if random.below(4) == 0 { Problem::DelayedAck } else { Problem::Timeout };
            interval.findings[0].share = Share::Measured(Micros(random.below(interval.duration.0 + 1)));
            interval.findings[0].events = Some(1);
            interval.unmeasured = ProblemSet::EMPTY;
            interval.deltas = Deltas { timeouts: Some(2), send_mss: 536, ..Deltas::default() };
            interval
        }).collect();
        let mut log = LogWriter::open(dir.path(), host(), Options { merge_up_to: limit, ..Options::default() }).unwrap();
        for interval in &written {
            log.problem(interval);
        }
        prop_assert_eq!(log.close().last_error, None);
        let read = LogReader::open(dir.path()).unwrap()
            .intervals(TimeRange::ALL, &IntervalFilter::default()).unwrap();
        clean(&read.report);
        prop_assert!(read.rows.len() <= written.len());
        for which in 0..3u64 {
            for problem in [Problem::DelayedAck, Problem::Timeout] {
                let of = |rows: &[ProblemInterval]| -> (u64, u64, u64, u64) {
                    rows.iter()
                        .filter(|i| i.connection.cookie == which && i.findings[0].problem == problem)
                        .fold((0, 0, 0, 0), |sum, i| (
                            sum.0 + i.duration.0,
                            sum.1 + i.findings[0].share.time_of(i.duration).0,
                            sum.2 + i.findings[0].events.unwrap(),
                            sum.3 + i.deltas.timeouts.unwrap(),
                        ))
                };
                let (got, want) = (of(&read.rows), of(&written));
                prop_assert!(near(got.0, want.0, 0.0) || got.0.abs_diff(want.0) <= 256 * read.rows.len() as u64);
                prop_assert!(near(got.1, want.1, 2.0 * FIVE_BITS) || got.1.abs_diff(want.1) <= 256 * read.rows.len() as u64);
                prop_assert_eq!((got.2, got.3), (want.2, want.3), "events are exact");
            }
        }
        for row in &read.rows {
            prop_assert!(row.duration.0 <= limit.0 + 256);
            prop_assert!(row.findings[0].share.time_of(row.duration) <= row.duration);
        }
    }
}

#[test]
fn contiguous_intervals_become_one_row() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(3);
    let mut first = random.interval(WallMicros(MIDNIGHT + 512_000));
    first.duration = Micros(512_000);
    first.findings = vec![slowpath_model::Finding {
        problem: Problem::Timeout,
        share: Share::Measured(Micros(131_072)),
        events: Some(1),
    }];
    first.unmeasured = ProblemSet::EMPTY;
    first.deltas = Deltas {
        timeouts: Some(1),
        bytes_sent: Some(1_000),
        cwnd: 10,
        ..Deltas::default()
    };
    let mut second = first.clone();
    second.end = first.end + Micros(256_000);
    second.duration = Micros(256_000);
    second.deltas.cwnd = 1;
    let mut after_a_gap = second.clone();
    after_a_gap.end = second.end + Micros(256_000 + 2_000);

    let mut log = LogWriter::open(dir.path(), host(), Options::default()).unwrap();
    for interval in [&first, &second, &after_a_gap] {
        log.problem(interval);
    }
    assert_eq!(log.close().rows_converted, 2);
    let read = LogReader::open(dir.path())
        .unwrap()
        .intervals(TimeRange::ALL, &IntervalFilter::default())
        .unwrap();
    let merged = &read.rows[0];
    assert_eq!((merged.end, merged.duration), (second.end, Micros(768_000)));
    assert_eq!(merged.findings[0].share, Share::Measured(Micros(262_144)));
    assert_eq!(merged.findings[0].events, Some(2));
    assert_eq!(merged.deltas.bytes_sent, Some(2_048), "2,000 in four bits");
    assert_eq!(merged.deltas.cwnd, 1, "a gauge is that at the end");
    assert_eq!(
        read.rows[1].end.0,
        after_a_gap.end.0 / 256 * 256 + 256 * i64::from(after_a_gap.end.0 % 256 >= 128)
    );
}

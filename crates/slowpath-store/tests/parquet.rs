// SPDX-License-Identifier: Apache-2.0
//! Records through the spool into Parquet and back: equal within the stated rounding.

mod records;

use proptest::prelude::*;
use records::{BOOT, MIDNIGHT, Random};
use slowpath_model::{Deltas, Micros, Problem, ProblemInterval, ProblemSet, Share, WallMicros};
use slowpath_store::{
    HostIdentity, IntervalFilter, LogReader, LogWriter, Options, ReadReport, TimeRange,
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

const SIX_BITS: f64 = 1.0 / 64.0;

/// An interval's evidence, by name: value read, value written, error allowed.
fn evidence(got: &Deltas, want: &Deltas) -> Vec<(String, Option<u64>, Option<u64>, f64)> {
    let exact = [
        "retransmitted",
        "fast_recoveries",
        "timeouts",
        "delayed_acks",
        "busy",
        "rwnd_limited",
        "sndbuf_limited",
        "send_mss",
        "send_buffer",
    ];
    let fields = |deltas: &Deltas| serde_json::to_value(deltas).unwrap();
    let (got, want) = (fields(got), fields(want));
    let want = want.as_object().unwrap();
    want.iter()
        .map(|(name, value)| {
            let error = if exact.contains(&name.as_str()) {
                0.0
            } else {
                SIX_BITS
            };
            assert!(value.is_u64() || value.is_null(), "{name}");
            (name.clone(), got[name].as_u64(), value.as_u64(), error)
        })
        .collect()
}

fn check_interval(got: &ProblemInterval, want: &ProblemInterval) {
    let stated = |i: &ProblemInterval| (i.connection, i.end, i.duration, i.unmeasured);
    assert_eq!(stated(got), stated(want));
    let problems =
        |i: &ProblemInterval| i.findings.iter().map(|f| f.problem).collect::<ProblemSet>();
    assert_eq!(problems(got), problems(want));
    let mut last = Micros(u64::MAX);
    for found in &got.findings {
        assert_eq!(found, want.finding_of(found.problem), "{got:?} {want:?}");
        let time = found.share.time_of(got.duration);
        assert!(time <= last, "largest share first: {got:?}");
        last = time;
    }
    for (name, got_value, value, error) in evidence(&got.deltas, &want.deltas) {
        assert!(
            near_or_none(got_value, value, error),
            "{name}: read {got_value:?}, written {value:?}: {got:?} {want:?}"
        );
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn intervals_come_back_within_their_rounding(seed: u64, count in 1usize..120) {
        let dir = tempfile::tempdir().unwrap();
        let mut random = Random(seed);
        let written: Vec<_> = (0..count)
            .map(|i| random.interval(WallMicros(MIDNIGHT + i as i64)))
            .collect();
        write(dir.path(), Options::default(), |log| {
            for interval in &written {
                log.problem(interval);
            }
        });
        let read = LogReader::open(dir.path()).unwrap()
            .intervals(TimeRange::ALL, &IntervalFilter::default()).unwrap();
        clean(&read.report);
        prop_assert_eq!(read.rows.len(), written.len());
        for (got, want) in read.rows.iter().zip(&written) {
            check_interval(got, want);
        }
    }

    #[test]
    fn summaries_come_back_exactly(seed: u64, count in 1u64..30) {
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
            prop_assert_eq!(got, &written[&got.connection]);
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
                prop_assert_eq!(got, want);
            }
        }
        for row in &read.rows {
            prop_assert!(row.duration <= limit);
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
    assert_eq!(merged.deltas.bytes_sent, Some(2_016), "2,000 in six bits");
    assert_eq!(merged.deltas.cwnd, 1, "a gauge is that at the end");
    assert_eq!(read.rows[1].end, after_a_gap.end);
}

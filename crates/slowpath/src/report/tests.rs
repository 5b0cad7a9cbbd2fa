// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::options::ExitOn;
use slowpath_model::{Coverage, Problem, ProblemSet};
use slowpath_views::filter::Filter;
use slowpath_views::scripted::{at, interval, seconds, summary};

#[test]
fn problems_found_show_in_the_exit_status() {
    let records = Records {
        summaries: vec![summary(1, "a", Problem::Timeout, 1)],
        ..Records::default()
    };
    let options = Options {
        range: ReportRange {
            from: at(0),
            to: at(100),
        },
        filter: Filter::default(),
        by: None,
    };
    let answering = Answering {
        json: false,
        exit: ExitOn {
            exit_code: true,
            ..ExitOn::default()
        },
    };
    let mut out = Vec::new();
    let with = write(records.clone(), &options, answering, Paint::OFF, &mut out).unwrap();
    assert_eq!(with, Outcome::ProblemsFound);
    // A problem that the connection does not have, and more than its share.
    let only = |problem: Problem, min_share: f64| {
        let exit = ExitOn {
            exit_code: true,
            min_share: Some(min_share),
            problems: Some(ProblemSet::EMPTY.with(problem)),
        };
        let answering = Answering { exit, ..answering };
        write(
            records.clone(),
            &options,
            answering,
            Paint::OFF,
            &mut Vec::new(),
        )
        .unwrap()
    };
    assert_eq!(only(Problem::DelayedAck, 0.0), Outcome::Done);
    assert_eq!(only(Problem::Timeout, 0.01), Outcome::ProblemsFound);
    assert_eq!(only(Problem::Timeout, 0.011), Outcome::Done);
    let nothing = Records::default();
    let without = write(nothing, &options, answering, Paint::OFF, &mut out).unwrap();
    assert_eq!(without, Outcome::Done);
}

fn writer(directory: &std::path::Path) -> slowpath_store::LogWriter {
    let host = slowpath_store::HostIdentity {
        host: "test".to_owned(),
        boot_id: 1,
    };
    slowpath_store::LogWriter::open(directory, host, Default::default()).unwrap()
}

#[test]
fn a_log_is_read_within_its_range() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = writer(directory.path());
    writer.tick(at(0));
    writer.summary(&summary(1, "a", Problem::Timeout, 50));
    writer.problem(&interval(1, 20, Problem::Timeout, 20));
    writer.problem(&interval(1, 95, Problem::Timeout, 1));
    writer.coverage(&Coverage {
        end: at(100),
        duration: seconds(100),
        polls: 200,
        ..Coverage::default()
    });
    assert!(writer.sync());
    for json in from_spool_and_parquet(directory.path(), writer, [at(90), at(100)]) {
        assert_eq!(json["unread"], serde_json::json!([]));
        let connection = &json["problem_connections"][0];
        assert_eq!(connection["observed_us"], 10_000_000);
        // Parquet keeps six significant bits of an interval's times (docs/reference/log-format.md).
        let time = connection["problems"]["Timeout"]["time_us"].as_u64();
        let time = time.expect("a time in microseconds");
        assert!(time.abs_diff(1_000_000) <= 1_000_000 / 64, "{time}");
        assert_eq!(json["coverage"]["polls"], 200);
    }
}

/// The report over a range, as JSON: of the spool, and of the Parquet files that the writer makes of it at its end.
fn from_spool_and_parquet(
    log: &std::path::Path,
    writer: slowpath_store::LogWriter,
    [from, to]: [slowpath_model::WallMicros; 2],
) -> [serde_json::Value; 2] {
    let options = Options {
        range: ReportRange { from, to },
        filter: Filter::default(),
        by: None,
    };
    let from_spool = read(log, options.range).unwrap();
    assert_eq!(writer.close().last_error, None);
    let from_parquet = read(log, options.range).unwrap();
    [from_spool, from_parquet].map(|records| json::value(&Report::of(records, &options).output()))
}

/// A log of a connection whose peer's window was full for 80 s of the 84 s with data outstanding.
#[test]
fn a_reports_answer_is_the_same_from_spool_and_parquet() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = writer(directory.path());
    writer.tick(at(0));
    let mut life = summary(1, "backup", Problem::ReceiverWindowLimited, 80);
    life.connection.start = slowpath_model::MonoNanos(1);
    life.stats.busy = Some(seconds(84));
    life.stats.send_queue = 0;
    life.life.idle = Some(seconds(15));
    life.life.socket.max_pacing_rate = Some(1_000_000_000);
    writer.summary(&life);
    assert!(writer.sync());
    for json in from_spool_and_parquet(directory.path(), writer, [at(0), at(100)]) {
        let answer = &json["answer"];
        assert_eq!(answer["limiter"], "receiver");
        assert_eq!(answer["act"]["who"], "receiving_host");
        assert_eq!(answer["act"]["address"], "10.0.0.3:80");
        let share = answer["share"].as_f64().unwrap();
        assert!((share - 80.0 / 84.0).abs() < 1e-9, "{share}");
        assert_eq!(json["answer_lacks"], serde_json::json!(["turns"]));
    }
}

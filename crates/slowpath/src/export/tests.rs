// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::report::tests::{at, interval, summary};
use slowpath_model::Problem;
use slowpath_store::{HostIdentity, LogWriter, Options};
use std::collections::BTreeSet;

const CONNECTIONS: u64 = 40;

/// A log in which each connection has two summaries, the later one of another owner, and
/// two intervals; and one more interval of a connection without any summary.
fn log(directory: &Path) {
    let host = HostIdentity {
        host: "here".to_owned(),
        boot_id: 1,
    };
    let mut log = LogWriter::open(directory, host, Options::default()).unwrap();
    log.tick(at(0));
    for polls in [100, 200] {
        for cookie in 0..CONNECTIONS {
            let command = format!("program-{cookie}-{polls}");
            let mut summary = summary(cookie, &command, Problem::Timeout, 10);
            summary.polls = polls;
            log.summary(&summary);
            log.problem(&interval(cookie, polls as i64, Problem::Timeout, 1));
        }
    }
    log.problem(&interval(CONNECTIONS, 300, Problem::Timeout, 1));
    log.close();
}

/// The lines of a table, without the first, in any order; `at_once` connections are kept.
fn lines(directory: &Path, table: TableArg, at_once: usize) -> BTreeSet<String> {
    let args = Export {
        filter: Vec::new(),
        table,
        format: FormArg::Csv,
        since: Since::Ago(Duration::from_secs(1)),
        log: None,
        redact: false,
        anonymise: false,
        key_file: None,
        mlab: None,
        interval: Duration::from_secs(1),
        length: None,
    };
    let job = Job {
        reader: LogReader::open(directory).unwrap(),
        range: TimeRange::ALL,
        filter: &Filter::default(),
        redaction: redaction(&args).unwrap(),
        form: Form::Csv,
        at_once,
    };
    let mut out = Vec::new();
    let done = match table {
        TableArg::Intervals => job.intervals(&mut out),
        _ => job.connections(&mut out),
    };
    let (report, wrote) = done.unwrap();
    wrote.unwrap();
    assert_eq!(report.unreadable, []);
    let text = String::from_utf8(out).unwrap();
    let all: Vec<String> = text.lines().skip(1).map(str::to_owned).collect();
    let lines: BTreeSet<String> = all.iter().cloned().collect();
    assert_eq!(lines.len(), all.len(), "no line comes twice");
    lines
}

#[test]
fn in_parts_it_says_the_same() {
    let directory = tempfile::tempdir().unwrap();
    log(directory.path());
    for (table, rows) in [
        (TableArg::Intervals, 2 * CONNECTIONS + 1),
        (TableArg::Connections, CONNECTIONS),
    ] {
        let whole = lines(directory.path(), table, AT_ONCE);
        assert_eq!(whole.len() as u64, rows);
        let known = whole.iter().filter(|line| line.contains("program-"));
        let mut of_latest = whole.iter().filter(|line| line.contains("-200"));
        assert_eq!(known.count(), of_latest.by_ref().count());
        for at_once in [1, 7] {
            assert_eq!(lines(directory.path(), table, at_once), whole);
        }
    }
}

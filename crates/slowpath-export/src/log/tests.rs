// SPDX-License-Identifier: Apache-2.0
use super::*;

use slowpath_model::Problem;
use slowpath_store::{HostIdentity, LogWriter, Options};
use slowpath_views::scripted::{at, interval, summary};
use std::collections::BTreeSet;
use std::path::Path;

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
fn lines(directory: &Path, table: LogTable, at_once: usize) -> BTreeSet<String> {
    let all = in_order(directory, table, at_once);
    let lines: BTreeSet<String> = all.iter().cloned().collect();
    assert_eq!(lines.len(), all.len(), "no line comes twice");
    lines
}

/// The same in the order of the table.
fn in_order(directory: &Path, table: LogTable, at_once: usize) -> Vec<String> {
    let log = LogExport {
        reader: LogReader::open(directory).unwrap(),
        range: TimeRange::ALL,
        filter: &Filter::default(),
        redaction: Redaction::new(false, None),
        form: Form::Csv,
        at_once,
    };
    let mut out = Vec::new();
    let (report, wrote) = log.write(table, &mut out).unwrap();
    wrote.unwrap();
    assert_eq!(report.unreadable, []);
    let text = String::from_utf8(out).unwrap();
    text.lines().skip(1).map(str::to_owned).collect()
}

/// An output whose reader goes after a number of bytes.
struct Gone {
    takes: usize,
}

impl Write for Gone {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.takes == 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let taken = bytes.len().min(self.takes);
        self.takes -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Each row's connection and end are found by reading the log itself, each cell of the others
/// where the log has it.
#[test]
fn rows_come_in_the_order_of_the_log_and_with_its_values() {
    let directory = tempfile::tempdir().unwrap();
    log(directory.path());
    let rows = in_order(directory.path(), LogTable::Intervals, AT_ONCE);
    let columns = rows::interval_columns();
    let at = |name: &str| columns.iter().position(|c| *c == name).unwrap();
    let reader = LogReader::open(directory.path()).unwrap();
    let mut rest = rows.iter();
    let wanted = IntervalFilter::default();
    let read = reader.each_interval(TimeRange::ALL, &wanted, |interval| {
        let cells: Vec<&str> = rest.next().unwrap().split(',').collect();
        assert_eq!(
            cells.len(),
            columns.len(),
            "no cell of this log holds a comma"
        );
        assert_eq!(cells[at("cookie")], interval.connection.cookie.to_string());
        assert_eq!(cells[at("end")], slowpath_text::wall(interval.end));
        assert_eq!(cells[at("duration_us")], interval.duration.0.to_string());
        assert_eq!(cells[at("problems")], "Timeout");
        assert_eq!(cells[at("cwnd_segments")], interval.deltas.cwnd.to_string());
        let known = interval.connection.cookie < CONNECTIONS;
        assert_eq!(cells[at("local_port")].is_empty(), !known);
    });
    assert_eq!(read.unwrap().unreadable, []);
    assert_eq!(rest.next(), None);
}

#[test]
fn when_the_outputs_reader_goes_nothing_more_is_read() {
    let directory = tempfile::tempdir().unwrap();
    log(directory.path());
    for table in [LogTable::Intervals, LogTable::Connections] {
        let header = match table {
            LogTable::Intervals => rows::interval_columns(),
            _ => rows::summary_columns(),
        };
        // In the header, after it, and in a row.
        let header = header.join(",").len() + 1;
        for takes in [0, header, header + 10] {
            let log = LogExport {
                reader: LogReader::open(directory.path()).unwrap(),
                range: TimeRange::ALL,
                filter: &Filter::default(),
                redaction: Redaction::new(false, None),
                form: Form::Csv,
                at_once: AT_ONCE,
            };
            let stop = log.reader.stop();
            let out = Gone { takes };
            let (_, wrote) = log.write(table, out).unwrap();
            assert_eq!(wrote.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
            assert!(stop.is_set());
        }
    }
}

#[test]
fn in_parts_it_says_the_same() {
    let directory = tempfile::tempdir().unwrap();
    log(directory.path());
    for (table, rows) in [
        (LogTable::Intervals, 2 * CONNECTIONS + 1),
        (LogTable::Connections, CONNECTIONS),
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

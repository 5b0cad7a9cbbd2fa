// SPDX-License-Identifier: Apache-2.0
//! The rows of a segment's tables, from its records.

use crate::cells::{CellValue, Flat};
use crate::interval::Logged;
use crate::layout::{CONNECTIONS, COVERAGE, INTERACTIONS, INTERVALS, LISTENERS, PROBLEMS};
use crate::pieces::Pieces;
use crate::schema::{self, Origin, columns, connection_number};
use crate::spool::{Parsed, Record};
use crate::summary_rank::supersedes;
use crate::table::Rows;
use slowpath_model::{ConnectionId, ConnectionSummary, Micros, ProblemInterval, WallMicros};
use std::collections::BTreeMap;

/// Every connection of a segment that had a problem or a summary, with its latest summary.
type Connections<'a> = BTreeMap<ConnectionId, Option<&'a ConnectionSummary>>;

/// The tables of a segment, by name. Contiguous intervals of a connection that found the same
/// become one of at most `merge_up_to`.
pub(crate) fn tables(
    parsed: &Parsed,
    merge_up_to: Micros,
    pieces: &mut Pieces<'_>,
) -> Vec<(&'static str, Rows)> {
    let origin = Origin {
        segment: parsed.header.segment.clone(),
        host: parsed.header.host.host.clone(),
    };
    let mut connections = Connections::new();
    let mut coverage = Rows::new(COVERAGE, columns(COVERAGE).to_vec());
    let mut listeners = Rows::new(LISTENERS, columns(LISTENERS).to_vec());
    let mut interactions = Rows::new(INTERACTIONS, columns(INTERACTIONS).to_vec());
    for record in &parsed.records {
        pieces.row();
        match record {
            Record::Problem(interval) => {
                connections.entry(interval.connection).or_default();
            }
            Record::Summary(summary) => {
                let known = connections.entry(summary.connection).or_default();
                if known.is_none_or(|s| supersedes(summary, s)) {
                    *known = Some(summary);
                }
            }
            Record::Coverage(c) => {
                let row = timed(&mut coverage, &origin, c.end, c.duration);
                push(&mut coverage, row, |row| c.put(row));
            }
            Record::Listener(l) => {
                let row = timed(&mut listeners, &origin, l.end, l.duration);
                push(&mut listeners, row, |row| l.put(row));
            }
            Record::Interaction(i) => {
                let row = timed(&mut interactions, &origin, i.end, i.duration);
                push(&mut interactions, row, |row| {
                    connection_number(&i.connection).put(row);
                    connection_number(&i.cause).put(row);
                    i.put(row);
                });
            }
        }
    }
    let logged = merge(parsed, merge_up_to, pieces);
    let (intervals, problems) = problem_rows(logged, &origin, pieces);
    vec![
        (CONNECTIONS, connection_rows(&connections, &origin, pieces)),
        (COVERAGE, coverage),
        (LISTENERS, listeners),
        (INTERACTIONS, interactions),
        (PROBLEMS, problems),
        (INTERVALS, intervals),
    ]
}

/// The beginning of a row about a stretch of time.
fn timed(rows: &mut Rows, origin: &Origin, end: WallMicros, duration: Micros) -> Vec<CellValue> {
    let start = end - duration;
    rows.widen(start, end);
    let mut row = origin.row();
    start.put(&mut row);
    row
}

fn push(rows: &mut Rows, mut row: Vec<CellValue>, rest: impl FnOnce(&mut Vec<CellValue>)) {
    rest(&mut row);
    rows.push(&row);
}

/// The intervals, contiguous ones of a connection that found the same as one.
fn merge(parsed: &Parsed, limit: Micros, pieces: &mut Pieces<'_>) -> Vec<Logged> {
    let mut merged: Vec<Logged> = Vec::new();
    let mut latest: BTreeMap<ConnectionId, usize> = BTreeMap::new();
    for record in &parsed.records {
        let Record::Problem(interval) = record else {
            continue;
        };
        pieces.row();
        let logged = Logged {
            interval: ProblemInterval::clone(interval),
            polls: 1,
        };
        if let Some(at) = latest.get(&interval.connection)
            && merged[*at].absorb(&logged, limit)
        {
            continue;
        }
        latest.insert(interval.connection, merged.len());
        merged.push(logged);
    }
    merged
}

/// The intervals and their problems, in the same order.
fn problem_rows(mut logged: Vec<Logged>, origin: &Origin, pieces: &mut Pieces<'_>) -> (Rows, Rows) {
    // All rows of one poll have the same end; like findings next to each other pack best.
    logged.sort_by_cached_key(|l| (l.interval.end, l.problems().bits(), l.interval.connection));
    let mut intervals = Rows::new(INTERVALS, columns(INTERVALS).to_vec());
    let mut problems = Rows::new(PROBLEMS, columns(PROBLEMS).to_vec());
    let mut row = origin.row();
    let head = row.len();
    for (number, logged) in (0..).zip(&logged) {
        pieces.row();
        let interval = &logged.interval;
        let connection = connection_number(&interval.connection);
        let start = interval.end - interval.duration;
        intervals.widen(start, interval.end);
        row.truncate(head);
        schema::put_interval(number, connection, logged, &mut row);
        intervals.push(&row);
        for finding in &interval.findings {
            problems.widen(start, interval.end);
            row.truncate(head);
            schema::put_problem(number, connection, interval, finding, &mut row);
            problems.push(&row);
        }
    }
    (intervals, problems)
}

fn connection_rows(
    connections: &Connections<'_>,
    origin: &Origin,
    pieces: &mut Pieces<'_>,
) -> Rows {
    let mut rows = Rows::new(CONNECTIONS, columns(CONNECTIONS).to_vec());
    let mut row = origin.row();
    let head = row.len();
    for (id, summary) in connections {
        pieces.row();
        row.truncate(head);
        if let Some(summary) = summary {
            rows.widen(summary.first_observed, summary.last_observed);
        }
        schema::put_connection(connection_number(id), id, *summary, &mut row);
        rows.push(&row);
    }
    rows
}

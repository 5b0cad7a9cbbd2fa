// SPDX-License-Identifier: Apache-2.0
//! The rows of a segment's tables, from its records.

use crate::cells::{CellValue, Flat};
use crate::layout::{
    CONNECTIONS, COVERAGE, HOPS, INTERACTIONS, INTERVALS, LISTENERS, PROBLEMS, TRAFFIC,
};
use crate::merging::{Merged, Merging};
use crate::pieces::Pieces;
use crate::read_report::end_of;
use crate::schema::{self, Origin, columns, connection_number};
use crate::spool::{Frames, Header, HeaderError, Parsed, Record, record_again};
use crate::summary_rank::{Rank, summary_rank};
use crate::table::Rows;
use crate::{hops, traffic};
use slowpath_model::{
    ConnectionId, Coverage, InteractionInterval, ListenerInterval, Micros, PathHop,
    TrafficInterval, WallMicros,
};
use std::collections::BTreeMap;

/// Every connection of a segment that had a problem, traffic, a traced path or a summary, with the rank of its latest
/// summary and where in the spool that is.
type Connections = BTreeMap<ConnectionId, Option<(Rank, usize)>>;

/// What a spool holds.
pub(crate) struct Segment {
    /// Whose it is, and what could not be read of it; no records.
    pub parsed: Parsed,
    /// When what its last record states ended.
    pub last: Option<WallMicros>,
    /// The tables, by name.
    pub tables: Vec<(&'static str, Rows)>,
}

/// The tables of a spool's segment. Contiguous intervals of a connection that found the same
/// become one of at most `merge_up_to`.
///
/// Of intervals and summaries, nearly all of a spool, only places are kept; they are decoded
/// again for their row.
pub(crate) fn tables(
    file: &[u8],
    merge_up_to: Micros,
    pieces: &mut Pieces<'_>,
) -> Result<Segment, HeaderError> {
    let mut frames = Frames::new(file)?;
    let origin = Origin {
        segment: frames.header().segment.clone(),
        host: frames.header().host.host.clone(),
    };
    let mut connections = Connections::new();
    let mut last = None;
    let mut merging = Merging::new(merge_up_to);
    let mut stretches = Stretches::new(&origin);
    while let Some(frame) = frames.next() {
        pieces.row();
        let record = frames.decode(&frame);
        last = last.max(record.as_ref().map(end_of));
        match record {
            Some(Record::Problem(interval)) => {
                connections.entry(interval.connection).or_default();
                merging.add(frame.at, *interval);
            }
            Some(Record::Summary(summary)) => {
                let known = connections.entry(summary.connection).or_default();
                let rank = summary_rank(&summary);
                if known.is_none_or(|(old, _)| rank >= old) {
                    *known = Some((rank, frame.at));
                }
            }
            Some(Record::Coverage(coverage)) => stretches.cover(*coverage),
            Some(Record::Listener(listener)) => stretches.listener(&listener),
            Some(Record::Interaction(interaction)) => stretches.interaction(&interaction),
            Some(Record::Traffic(traffic)) => {
                connections.entry(traffic.connection).or_default();
                stretches.traffic(&traffic);
            }
            Some(Record::Hop(hop)) => {
                connections.entry(hop.connection).or_default();
                stretches.hop(&hop);
            }
            None => {}
        }
    }
    let parsed = frames.end();
    let spool = (file, &parsed.header);
    let connections = connection_rows(&connections, spool, &origin, pieces);
    let merged = merging.end(file, &parsed.header);
    let (intervals, problems) = problem_rows(merged, &origin, pieces);
    let mut tables = vec![(CONNECTIONS, connections)];
    tables.extend(stretches.end());
    tables.extend([(PROBLEMS, problems), (INTERVALS, intervals)]);
    Ok(Segment {
        parsed,
        last,
        tables,
    })
}

/// The tables whose rows are records about a stretch of time.
struct Stretches<'a> {
    origin: &'a Origin,
    coverage: Vec<Coverage>,
    listeners: Rows,
    interactions: Rows,
    traffic: Rows,
    hops: Rows,
}

impl<'a> Stretches<'a> {
    fn new(origin: &'a Origin) -> Self {
        let rows = |table| Rows::new(table, columns(table).to_vec());
        Stretches {
            origin,
            coverage: Vec::new(),
            listeners: rows(LISTENERS),
            interactions: rows(INTERACTIONS),
            traffic: rows(TRAFFIC),
            hops: rows(HOPS),
        }
    }

    fn cover(&mut self, coverage: Coverage) {
        match self.coverage.last_mut() {
            Some(before) if continues(before, &coverage) => join(before, &coverage),
            _ => self.coverage.push(coverage),
        }
    }

    fn listener(&mut self, of: &ListenerInterval) {
        let row = timed(&mut self.listeners, self.origin, of.end, of.duration);
        push(&mut self.listeners, row, |row| of.put(row));
    }

    fn interaction(&mut self, of: &InteractionInterval) {
        let row = timed(&mut self.interactions, self.origin, of.end, of.duration);
        push(&mut self.interactions, row, |row| {
            connection_number(&of.connection).put(row);
            connection_number(&of.cause).put(row);
            of.put(row);
        });
    }

    fn traffic(&mut self, of: &TrafficInterval) {
        let row = timed(&mut self.traffic, self.origin, of.end, of.duration);
        push(&mut self.traffic, row, |row| {
            connection_number(&of.connection).put(row);
            traffic::put(of, row);
        });
    }

    fn hop(&mut self, of: &PathHop) {
        let row = timed(&mut self.hops, self.origin, of.end, of.duration);
        push(&mut self.hops, row, |row| {
            connection_number(&of.connection).put(row);
            hops::put(of, row);
        });
    }

    fn end(self) -> [(&'static str, Rows); 5] {
        let mut coverage = Rows::new(COVERAGE, columns(COVERAGE).to_vec());
        for of in &self.coverage {
            let row = timed(&mut coverage, self.origin, of.end, of.duration);
            push(&mut coverage, row, |row| of.put(row));
        }
        [
            (COVERAGE, coverage),
            (LISTENERS, self.listeners),
            (INTERACTIONS, self.interactions),
            (TRAFFIC, self.traffic),
            (HOPS, self.hops),
        ]
    }
}

/// Longest row made of coverage records: the agent's minute, and a stretch that came late.
const JOINED: Micros = Micros(65_000_000);
/// Longest time between the end of one and the beginning of the next. Beginnings are computed from
/// two clocks, and polls take some time; a suspended host or a clock that was set is no such gap.
const BETWEEN: Micros = Micros(1_000_000);

/// Whether a coverage record goes on where one ended that states no more than time and polls, as
/// the agent logs them every few seconds for when it is killed.
pub(crate) fn continues(before: &Coverage, next: &Coverage) -> bool {
    let stretch = Coverage {
        end: before.end,
        duration: before.duration,
        polls: before.polls,
        sockets: before.sockets,
        losses: before.losses,
        unmeasured: before.unmeasured,
        ..Coverage::default()
    };
    let between = (next.end - next.duration).0.abs_diff(before.end.0);
    let joined = before.duration.0.saturating_add(next.duration.0);
    *before == stretch && between <= BETWEEN.0 && joined <= JOINED.0
}

pub(crate) fn join(before: &mut Coverage, next: &Coverage) {
    let mut unmeasured = before.unmeasured;
    for problem in next.unmeasured.iter() {
        unmeasured.insert(problem);
    }
    *before = Coverage {
        duration: Micros(before.duration.0 + next.duration.0),
        polls: before.polls + next.polls,
        unmeasured,
        ..next.clone()
    };
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

/// The intervals and their problems, in the same order.
fn problem_rows(merged: Merged<'_>, origin: &Origin, pieces: &mut Pieces<'_>) -> (Rows, Rows) {
    let mut intervals = Rows::new(INTERVALS, columns(INTERVALS).to_vec());
    let mut problems = Rows::new(PROBLEMS, columns(PROBLEMS).to_vec());
    let mut row = origin.row();
    let head = row.len();
    for (number, logged) in (0..).zip(merged) {
        pieces.row();
        let interval = &logged.interval;
        let connection = connection_number(&interval.connection);
        let start = interval.end - interval.duration;
        intervals.widen(start, interval.end);
        row.truncate(head);
        schema::put_interval(number, connection, &logged, &mut row);
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
    connections: &Connections,
    (file, header): (&[u8], &Header),
    origin: &Origin,
    pieces: &mut Pieces<'_>,
) -> Rows {
    let mut rows = Rows::new(CONNECTIONS, columns(CONNECTIONS).to_vec());
    let mut row = origin.row();
    let head = row.len();
    for (id, latest) in connections {
        pieces.row();
        row.truncate(head);
        let summary = latest.and_then(|(_, at)| match record_again(file, at, header)? {
            Record::Summary(summary) => Some(summary),
            _ => None,
        });
        if let Some(summary) = &summary {
            rows.widen(summary.first_observed, summary.last_observed);
        }
        schema::put_connection(connection_number(id), id, summary.as_deref(), &mut row);
        rows.push(&row);
    }
    rows
}

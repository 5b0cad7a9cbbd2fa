// SPDX-License-Identifier: Apache-2.0
//! Reading Parquet files of schema version 1.
//!
//! That version left out what other columns of a row imply, and stored -1 where the implied
//! value would be wrong and the true one was not known. Its rows have the columns of the
//! spool's records.

use crate::StoreError;
use crate::cells::{CellValue, Flat, Row};
use crate::column::{Column, number};
use crate::interval::{self, Logged};
use crate::layout::{CONNECTIONS, TableFile};
use crate::rows::{IDENTITY, PROBLEM_TIME, SummaryBody};
use crate::table;
use slowpath_model::{ConnectionId, ConnectionSummary, Precedence, Problem, ProblemSet};
use std::collections::HashMap;

/// A connection's number within its segment.
const KEY: Column = number("connection", "number within the segment");

/// Stored where the value is not known although other columns imply one; read as -1.
const NOT_KNOWN: CellValue = CellValue::Int(u64::MAX);

/// The connections of an intervals file's segment and their MSS, by their number.
type Connections = HashMap<u64, (ConnectionId, CellValue)>;

/// Gives the intervals of a file to `each`, `None` for a row that makes no sense.
pub(crate) fn intervals(
    file: &TableFile,
    table: table::Table,
    mut each: impl FnMut(Option<Logged>),
) -> Result<(), StoreError> {
    let connections = connections(file)?;
    let columns = [vec![KEY], interval::columns()].concat();
    let inferred = Inferred::of_intervals(&columns[1..]);
    table.rows(&file.path, &columns, |cells| {
        let connection = match cells[0] {
            CellValue::Int(key) => connections.get(&key),
            _ => None,
        };
        each(connection.and_then(|(id, mss)| {
            inferred.fill_in(&mut cells[1..], mss);
            Logged::take(*id, &mut Row::new(&cells[1..]))
        }));
    })
}

/// Gives the summaries of a file to `each`, `None` for a row that makes no sense.
pub(crate) fn summaries(
    file: &TableFile,
    table: table::Table,
    mut each: impl FnMut(Option<ConnectionSummary>),
) -> Result<(), StoreError> {
    let columns = [IDENTITY.to_vec(), SummaryBody::columns()].concat();
    let body = IDENTITY.len();
    let inferred = Inferred::of_connections(&columns[body..]);
    table.rows(&file.path, &columns, |cells| {
        // A connection that had problems and no summary in this segment.
        if cells[body] == CellValue::Null {
            return;
        }
        inferred.fill_in(&mut cells[body..], &CellValue::Null);
        let mut row = Row::new(cells);
        let id = ConnectionId::take(&mut row);
        each(id.and_then(|id| SummaryBody::take(id, &mut row)));
    })
}

fn connections(file: &TableFile) -> Result<Connections, StoreError> {
    let path = file.beside(CONNECTIONS);
    let mut columns = vec![KEY];
    columns.extend(IDENTITY);
    columns.push(number("send_mss", "MSS of the intervals"));
    let mut found = HashMap::new();
    table::open(&path)?.rows(&path, &columns, |cells| {
        let mut row = Row::new(cells);
        if let Some(key) = u64::take(&mut row)
            && let Some(id) = ConnectionId::take(&mut row)
        {
            found.insert(key, (id, row.next().clone()));
        }
    })?;
    Ok(found)
}

/// How other columns imply a value. Columns are by their position.
enum Rule {
    /// It is that of another column.
    Same(usize),
    /// It is the sum of two others.
    Sum(usize, usize),
    /// It is the time of that problem, at most the interval; without the problem 0, or
    /// unknown if the problem could not be measured.
    TimeOf(Problem),
    /// It is 1 with that problem and 0 without, or unknown if that could not be measured.
    OnceWith(Problem),
    /// It is what the times of the other problems leave of the time observed.
    Rest(usize),
    /// It is that of the connection's row.
    OfConnection,
}

/// The rules of a table.
struct Inferred {
    rules: Vec<(usize, Rule)>,
    duration: usize,
    /// Where each problem's time is, by its number.
    times: [usize; Problem::ALL.len()],
    unmeasured: usize,
}

impl Inferred {
    /// The rules of the intervals table, whose columns are given.
    fn of_intervals(columns: &[Column]) -> Self {
        use Problem::*;
        use Rule::*;
        let at = |name| position(columns, name);
        let rules = vec![
            ("rwnd_limited_us", TimeOf(ReceiverWindowLimited)),
            ("sndbuf_limited_us", TimeOf(SendBufferLimited)),
            ("fast_recoveries", OnceWith(FastRetransmit)),
            ("timeouts", OnceWith(Timeout)),
            ("delayed_acks", OnceWith(DelayedAck)),
            // After the two that imply it.
            ("retransmitted", Sum(at("fast_recoveries"), at("timeouts"))),
            ("busy_us", Same(at("duration_us"))),
            ("bytes_written", Same(at("bytes_sent"))),
            ("send_mss", OfConnection),
        ];
        Inferred::new(columns, rules)
    }

    /// The rules of the connections table, whose columns are given.
    fn of_connections(columns: &[Column]) -> Self {
        use Rule::*;
        let at = |name| position(columns, name);
        let rules = vec![
            (PROBLEM_TIME[0], Rest(at("observed_us"))),
            ("bytes_acked", Same(at("bytes_sent"))),
            ("bytes_written", Same(at("bytes_sent"))),
            ("bytes_read", Same(at("bytes_received"))),
            ("delivered", Same(at("data_segments_out"))),
            ("lifetime_min_rtt_us", Same(at("min_rtt_us"))),
            ("fast_recoveries", Same(at("fast_retransmit_events"))),
            ("timeouts", Same(at("timeout_events"))),
            ("timeout_episodes", Same(at("timeout_events"))),
            ("loss_entries", Same(at("timeout_events"))),
        ];
        Inferred::new(columns, rules)
    }

    fn new(columns: &[Column], rules: Vec<(&str, Rule)>) -> Self {
        let rules = rules.into_iter();
        Inferred {
            rules: rules
                .map(|(name, rule)| (position(columns, name), rule))
                .collect(),
            duration: position(columns, "duration_us"),
            times: PROBLEM_TIME.map(|name| position(columns, name)),
            unmeasured: position(columns, "unmeasured"),
        }
    }

    fn infer(&self, rule: &Rule, row: &[CellValue], of_connection: &CellValue) -> CellValue {
        let time = |problem: Problem| &row[self.times[problem as usize]];
        let unmeasured = |problem| match row[self.unmeasured] {
            CellValue::Int(bits) => ProblemSet::from_bits(bits as u32).contains(problem),
            _ => false,
        };
        match rule {
            Rule::Same(other) => row[*other].clone(),
            Rule::Sum(a, b) => match (&row[*a], &row[*b]) {
                (CellValue::Int(a), CellValue::Int(b)) => CellValue::Int(a.saturating_add(*b)),
                _ => CellValue::Null,
            },
            Rule::TimeOf(problem) => match (time(*problem), &row[self.duration]) {
                (CellValue::Int(time), CellValue::Int(duration)) => {
                    CellValue::Int(*time.min(duration))
                }
                _ if unmeasured(*problem) => CellValue::Null,
                _ => CellValue::Int(0),
            },
            Rule::OnceWith(problem) => match time(*problem) {
                CellValue::Int(_) => CellValue::Int(1),
                _ if unmeasured(*problem) => CellValue::Null,
                _ => CellValue::Int(0),
            },
            Rule::Rest(observed) => {
                let number = |cell: &CellValue| match cell {
                    CellValue::Int(n) => *n,
                    _ => 0,
                };
                let others = Problem::ALL[1..]
                    .iter()
                    .filter(|p| p.precedence() != Precedence::Detail)
                    .map(|p| number(time(*p)))
                    .fold(0, u64::saturating_add);
                CellValue::Int(number(&row[*observed]).saturating_sub(others))
            }
            Rule::OfConnection => of_connection.clone(),
        }
    }

    /// Puts in what the other columns imply.
    fn fill_in(&self, row: &mut [CellValue], of_connection: &CellValue) {
        for (column, rule) in &self.rules {
            if row[*column] == CellValue::Null {
                row[*column] = self.infer(rule, row, of_connection);
            } else if row[*column] == NOT_KNOWN {
                row[*column] = CellValue::Null;
            }
        }
    }
}

/// Where a column is. The names are this crate's own; one that is missing is a slip that
/// every test of a round trip shows.
fn position(columns: &[Column], name: &str) -> usize {
    columns
        .iter()
        .position(|c| c.name == name)
        .unwrap_or(columns.len())
}

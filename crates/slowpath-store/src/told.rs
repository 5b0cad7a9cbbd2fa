// SPDX-License-Identifier: Apache-2.0
//! Values that other columns of the same row tell: null in Parquet, and put back when read.
//!
//! What a healthy kernel counts is often told twice: a problem's time is its evidence, a
//! lone loss is one recovery and one segment, what was written is what was sent. Leaving
//! the second telling out halves the log; `docs/reference/log-format.md` has the rules as a view for
//! other engines. A value that is unknown where the rule would tell one is stored as -1.

use crate::cells::{Cell, Column, Kind, round};
use crate::rows::PROBLEM_TIME;
use slowpath_model::{Problem, ProblemSet, Standing};

/// Stored where the value is not known although other columns would tell one; read as -1.
const NOT_KNOWN: Cell = Cell::Int(u64::MAX);

/// How other columns tell a value. Columns are by their position.
enum Rule {
    /// It is that of another column, as rounded there.
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
pub(crate) struct Told {
    /// Column, rule, and how far from the rule a value may be: `value >> bits`, the error
    /// of the column's own rounding.
    rules: Vec<(usize, Rule, u8)>,
    kinds: Vec<Kind>,
    duration: usize,
    /// Where each problem's time is, by its number.
    times: [usize; Problem::ALL.len()],
    unmeasured: usize,
}

impl Told {
    /// The rules of the intervals table, whose columns are given.
    pub(crate) fn of_intervals(columns: &[Column]) -> Self {
        use Problem::*;
        use Rule::*;
        let at = |name| position(columns, name);
        let rules = vec![
            ("rwnd_limited_us", TimeOf(ReceiverWindowLimited)),
            ("sndbuf_limited_us", TimeOf(SendBufferLimited)),
            ("fast_recoveries", OnceWith(FastRetransmit)),
            ("timeouts", OnceWith(Timeout)),
            ("delayed_acks", OnceWith(DelayedAck)),
            // After the two it is told by.
            ("retransmitted", Sum(at("fast_recoveries"), at("timeouts"))),
            ("busy_us", Same(at("duration_us"))),
            ("bytes_written", Same(at("bytes_sent"))),
            ("send_mss", OfConnection),
        ];
        Told::new(columns, rules)
    }

    /// The rules of the connections table, whose columns are given.
    pub(crate) fn of_connections(columns: &[Column]) -> Self {
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
        Told::new(columns, rules)
    }

    fn new(columns: &[Column], rules: Vec<(&str, Rule)>) -> Self {
        Told {
            rules: rules
                .into_iter()
                .map(|(name, rule)| {
                    let column = position(columns, name);
                    let bits = match columns[column].kind {
                        Kind::Rounded(bits) => bits,
                        _ => 64,
                    };
                    (column, rule, bits)
                })
                .collect(),
            kinds: columns.iter().map(|c| c.kind).collect(),
            duration: position(columns, "duration_us"),
            times: PROBLEM_TIME.map(|name| position(columns, name)),
            unmeasured: position(columns, "unmeasured"),
        }
    }

    fn tell(&self, rule: &Rule, row: &[Cell], of_connection: &Cell) -> Cell {
        let time = |problem: Problem| &row[self.times[problem as usize]];
        let unmeasured = |problem| match row[self.unmeasured] {
            Cell::Int(bits) => ProblemSet::from_bits(bits as u32).contains(problem),
            _ => false,
        };
        match rule {
            Rule::Same(other) => match (&row[*other], self.kinds[*other]) {
                (Cell::Int(value), Kind::Rounded(bits)) => Cell::Int(round(*value, bits)),
                (cell, _) => cell.clone(),
            },
            Rule::Sum(a, b) => match (&row[*a], &row[*b]) {
                (Cell::Int(a), Cell::Int(b)) => Cell::Int(a.saturating_add(*b)),
                _ => Cell::Null,
            },
            Rule::TimeOf(problem) => match (time(*problem), &row[self.duration]) {
                (Cell::Int(time), Cell::Int(duration)) => Cell::Int(*time.min(duration)),
                _ if unmeasured(*problem) => Cell::Null,
                _ => Cell::Int(0),
            },
            Rule::OnceWith(problem) => match time(*problem) {
                Cell::Int(_) => Cell::Int(1),
                _ if unmeasured(*problem) => Cell::Null,
                _ => Cell::Int(0),
            },
            Rule::Rest(observed) => {
                let number = |cell: &Cell| match cell {
                    Cell::Int(n) => *n,
                    _ => 0,
                };
                let others = Problem::ALL[1..]
                    .iter()
                    .filter(|p| p.standing() != Standing::Detail)
                    .map(|p| number(time(*p)))
                    .fold(0, u64::saturating_add);
                Cell::Int(number(&row[*observed]).saturating_sub(others))
            }
            Rule::OfConnection => of_connection.clone(),
        }
    }

    /// Makes null what the other columns tell.
    pub(crate) fn leave_out(&self, row: &mut [Cell], of_connection: &Cell) {
        // Against the whole row: rules may follow others.
        let whole = row.to_vec();
        for (column, rule, bits) in &self.rules {
            let told = self.tell(rule, &whole, of_connection);
            let same = match (&row[*column], &told) {
                (Cell::Int(own), Cell::Int(told)) => {
                    own.abs_diff(*told) <= own.checked_shr(u32::from(*bits)).unwrap_or(0)
                }
                (own, told) => own == told,
            };
            if same {
                row[*column] = Cell::Null;
            } else if row[*column] == Cell::Null {
                row[*column] = NOT_KNOWN;
            }
        }
    }

    /// Puts back what [`Told::leave_out`] left out.
    pub(crate) fn fill_in(&self, row: &mut [Cell], of_connection: &Cell) {
        for (column, rule, _) in &self.rules {
            if row[*column] == Cell::Null {
                row[*column] = self.tell(rule, row, of_connection);
            } else if row[*column] == NOT_KNOWN {
                row[*column] = Cell::Null;
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

// SPDX-License-Identifier: Apache-2.0
//! Which of a spool's intervals become which rows: contiguous intervals of a connection that
//! found the same are one.
//!
//! A row is kept as the places of its intervals in the spool and what it is sorted by. The
//! intervals themselves are decoded again when the row is made: those of a 16 MiB spool take 85
//! MB, their places 4.

use crate::interval::Logged;
use crate::spool::{Header, Record, record_again};
use slowpath_model::{ConnectionId, Micros, ProblemInterval, WallMicros};
use std::collections::{BTreeMap, HashMap};

/// A row in the making.
struct Pending {
    end: WallMicros,
    /// Where its first interval is in the spool.
    first: usize,
    problems: u32,
    /// The connection's number in the order of its first interval.
    connection: u32,
}

/// A row that may still become longer.
struct Open {
    logged: Logged,
    /// Its place among the rows.
    row: usize,
}

/// Intervals after which open rows are looked through for those that no interval can follow.
const LOOK_EVERY: usize = 4_096;

/// Finds rows while a spool is read.
pub(crate) struct Merging {
    /// The longest row of more than one interval.
    limit: Micros,
    connections: HashMap<ConnectionId, u32>,
    open: HashMap<u32, Open>,
    rows: Vec<Pending>,
    /// Intervals after the first one of their row: where that is, and where they are.
    followers: Vec<(usize, usize)>,
    latest: WallMicros,
}

impl Merging {
    pub(crate) fn new(limit: Micros) -> Self {
        Merging {
            limit,
            connections: HashMap::new(),
            open: HashMap::new(),
            rows: Vec::new(),
            followers: Vec::new(),
            latest: WallMicros(i64::MIN),
        }
    }

    /// Adds the interval that is at this place of the spool.
    pub(crate) fn add(&mut self, at: usize, interval: ProblemInterval) {
        let next = self.connections.len() as u32;
        let id = interval.connection;
        let connection = *self.connections.entry(id).or_insert(next);
        let end = interval.end;
        let logged = single(interval);
        self.latest = self.latest.max(end);
        if let Some(open) = self.open.get_mut(&connection)
            && open.logged.absorb(&logged, self.limit)
        {
            let row = &mut self.rows[open.row];
            row.end = end;
            self.followers.push((row.first, at));
            return;
        }
        let row = self.rows.len();
        self.rows.push(Pending {
            end,
            first: at,
            problems: logged.problems().bits(),
            connection,
        });
        self.open.insert(connection, Open { logged, row });
        if self.rows.len().is_multiple_of(LOOK_EVERY) {
            self.close_old();
        }
    }

    /// What follows a row begins where it ends and ends before the limit is over: once the
    /// spool, which is in the order of time, is past that, the row stays as it is.
    fn close_old(&mut self) {
        let (limit, latest) = (self.limit, self.latest);
        self.open
            .retain(|_, open| open.logged.interval.end + limit >= latest);
    }

    /// The rows of the spool, in the order of their ends, problems and connections. All rows
    /// of one poll have the same end; like findings next to each other pack best.
    pub(crate) fn end<'a>(mut self, file: &'a [u8], header: &'a Header) -> Merged<'a> {
        self.open = HashMap::new();
        let numbers: BTreeMap<ConnectionId, u32> = self.connections.drain().collect();
        let mut order = vec![0_u32; numbers.len()];
        for (place, number) in (0..).zip(numbers.into_values()) {
            order[number as usize] = place;
        }
        self.rows.sort_unstable_by_key(|row| {
            let connection = order[row.connection as usize];
            (row.end, row.problems, connection, row.first)
        });
        self.followers.sort_unstable();
        Merged {
            file,
            header,
            limit: self.limit,
            rows: self.rows.into_iter(),
            followers: self.followers,
        }
    }
}

fn single(interval: ProblemInterval) -> Logged {
    Logged { interval, polls: 1 }
}

/// The rows, each decoded when it is asked for.
pub(crate) struct Merged<'a> {
    file: &'a [u8],
    header: &'a Header,
    limit: Micros,
    rows: std::vec::IntoIter<Pending>,
    followers: Vec<(usize, usize)>,
}

impl Iterator for Merged<'_> {
    type Item = Logged;

    fn next(&mut self) -> Option<Logged> {
        // Every place is one where an interval was decoded before.
        while let Some(row) = self.rows.next() {
            if let Some(logged) = self.row(row.first) {
                return Some(logged);
            }
        }
        None
    }
}

impl Merged<'_> {
    fn row(&self, first: usize) -> Option<Logged> {
        let mut logged = self.at(first)?;
        let from = self.followers.partition_point(|(of, _)| *of < first);
        for (_, at) in self.followers[from..].iter().take_while(|f| f.0 == first) {
            logged.absorb(&self.at(*at)?, self.limit);
        }
        Some(logged)
    }

    fn at(&self, place: usize) -> Option<Logged> {
        match record_again(self.file, place, self.header)? {
            Record::Problem(interval) => Some(single(*interval)),
            _ => None,
        }
    }
}

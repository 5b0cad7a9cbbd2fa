// SPDX-License-Identifier: Apache-2.0
//! What is made when an hour closes: both ends of its connections.
//!
//! They follow from the tables: an hour is closed again when connections of it came late, and gets
//! the rows that it lacks. So a kill costs nothing, and no row is there twice.

use crate::FleetError;
use crate::ends::{Addresses, End, Pair, join};
use crate::files::HourRows;
use crate::hour::Hour;
use crate::publish::Tables;
use crate::scan::{self, number, text};
use crate::tables::Table;
use slowpath_model::{FourTuple, Micros, WallMicros};
use slowpath_store::tables::LogTable;
use slowpath_table::{RowReader, Value};
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::path::PathBuf;

const CONNECTIONS: Table = Table::Log(LogTable::Connections);
/// An hour closes so long after its end: agents ship every few seconds.
const SETTLED: Micros = Micros(300_000_000);
/// One that got late rows closes again so long after it was closed.
const AGAIN: Micros = Micros(600_000_000);
/// Hours of which nothing can come any more.
const OVER: Micros = Micros(26 * 3_600_000_000);
/// Rows of connections that are held at once; of more, a part at a time.
const HELD: u64 = 1 << 20;

/// What closing hours did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// Hours.
    pub hours: u64,
    /// Pairs of ends found.
    pub ends: u64,
    /// Files that could not be read; readers name them.
    pub unreadable: u64,
}

/// Numbers of hosts, and how far the server's clock is ahead of each.
#[derive(Default)]
struct Hosts {
    numbers: HashMap<String, u32>,
    names: Vec<String>,
    offsets: HashMap<String, i64>,
}

impl Hosts {
    fn number(&mut self, host: &str) -> u32 {
        if let Some(number) = self.numbers.get(host) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push(host.to_owned());
        self.numbers.insert(host.to_owned(), number);
        number
    }

    fn corrected(&self, host: &str, time: i64) -> WallMicros {
        let offset = self.offsets.get(host).copied().unwrap_or(0);
        WallMicros(time.saturating_add(offset))
    }
}

/// The part of connections that is looked at in one pass.
#[derive(Clone, Copy)]
struct Part {
    number: u64,
    of: u64,
}

impl Part {
    fn has(self, hash: u64) -> bool {
        hash % self.of == self.number
    }
}

impl Tables {
    /// Makes `ends` of the hours that ended five minutes ago or more and got
    /// connections since they were last made.
    ///
    /// # Errors
    /// A directory cannot be listed, or a file not be written. Files that cannot be read are left
    /// out.
    pub fn close_hours(&mut self, now: WallMicros) -> Result<Closed, FleetError> {
        let mut closed = Closed::default();
        self.unjoined.retain(|hour| hour.ends() + OVER > now);
        self.closed_at.retain(|hour, _| hour.ends() + OVER > now);
        let due = self.unjoined.iter().filter(|hour| {
            let last = self.closed_at.get(hour);
            hour.ends() + SETTLED <= now && last.is_none_or(|last| *last + AGAIN <= now)
        });
        let due: Vec<Hour> = due.copied().collect();
        for hour in due {
            self.close(hour, &mut closed)?;
            self.unjoined.remove(&hour);
            self.closed_at.insert(hour, now);
            closed.hours += 1;
        }
        Ok(closed)
    }

    fn close(&mut self, hour: Hour, closed: &mut Closed) -> Result<(), FleetError> {
        let mut hosts = Hosts::default();
        let mut addresses = Addresses::default();
        let before = Hour(hour.0 - 1);
        let mut rows = 0;
        for of in [before, hour] {
            for path in self.paths(Table::Hosts, of)? {
                let columns = ["host", "clock_offset_us"];
                let read = scan::each_row(&path, &columns, |row| {
                    if let (Some(host), Some(offset)) = (text(row, 0), number(row, 1)) {
                        hosts.offsets.insert(host.to_owned(), offset);
                    }
                    Ok(())
                });
                closed.unreadable += u64::from(read.is_err());
            }
            rows += self.rows_of(CONNECTIONS, of)?;
        }
        for of in [before, hour] {
            for path in self.paths(CONNECTIONS, of)? {
                let read = scan::each_row(&path, &END, |row| {
                    if let Some(end) = end_of(row, &mut hosts, true) {
                        let local = end.tuple.local.ip();
                        addresses.observe(local, end.host, end.from, end.to);
                    }
                    Ok(())
                });
                closed.unreadable += u64::from(read.is_err());
            }
        }
        let of = rows.div_ceil(HELD).max(1);
        for number in 0..of {
            let part = Part { number, of };
            closed.ends += self.close_ends(hour, part, (&mut hosts, &addresses))?;
        }
        Ok(())
    }

    fn close_ends(
        &mut self,
        hour: Hour,
        part: Part,
        (hosts, addresses): (&mut Hosts, &Addresses),
    ) -> Result<u64, FleetError> {
        let mut ends = Vec::new();
        for of in [Hour(hour.0 - 1), hour] {
            for path in self.paths(CONNECTIONS, of)? {
                let before = ends.len();
                let read = scan::each_row(&path, &END, |row| {
                    let end = end_of(row, hosts, of == hour);
                    ends.extend(end.filter(|end| part.has(pair_hash(&end.tuple))));
                    Ok(())
                });
                if read.is_err() {
                    ends.truncate(before);
                }
            }
        }
        let mut pairs = join(ends, addresses, part.of == 1);
        let mut stated: HashSet<(u32, u64, u32, u64)> = HashSet::new();
        for path in self.paths(Table::Ends, hour)? {
            let columns = ["a_host", "a_connection_id", "b_host", "b_connection_id"];
            scan::each_row(&path, &columns, |row| {
                let a = text(row, 0).map(|host| hosts.number(host));
                let b = text(row, 2).map(|host| hosts.number(host));
                let ids = number(row, 1).zip(number(row, 3));
                if let (Some(a), Some(b), Some((a_id, b_id))) = (a, b, ids) {
                    stated.insert((a, a_id.cast_unsigned(), b, b_id.cast_unsigned()));
                }
                Ok(())
            })?;
        }
        pairs.retain(|Pair { a, b, .. }| {
            !stated.contains(&(a.host, a.connection, b.host, b.connection))
        });
        pairs.sort_unstable_by_key(|Pair { a, b, .. }| (a.host, a.connection, b.connection));
        if pairs.is_empty() {
            return Ok(0);
        }
        let mut rows = HourRows::new(Table::Ends);
        for pair in &pairs {
            push_pair(pair, hosts, &mut rows);
        }
        self.add(Table::Ends, hour, rows)?;
        Ok(pairs.len() as u64)
    }

    fn paths(&mut self, table: Table, hour: Hour) -> Result<Vec<PathBuf>, FleetError> {
        let files = self.files(table, hour)?.files.iter();
        Ok(files.map(|file| file.path.clone()).collect())
    }

    fn rows_of(&mut self, table: Table, hour: Hour) -> Result<u64, FleetError> {
        let files = self.files(table, hour)?.files.iter();
        let groups = files.flat_map(|file| &file.groups);
        Ok(groups.map(|group| group.rows).sum())
    }
}

/// Columns that say what [`End`] a connection is.
const END: [&str; 11] = [
    "host",
    "connection_id",
    "local_address",
    "local_port",
    "remote_address",
    "remote_port",
    "real_peer_address",
    "real_peer_port",
    "first_observed",
    "last_observed",
    "origin",
];

fn end_of(row: &RowReader<'_>, hosts: &mut Hosts, in_hour: bool) -> Option<End> {
    let host = text(row, 0)?;
    let remote = address(row, 4)?;
    Some(End {
        host: hosts.number(host),
        connection: number(row, 1)?.cast_unsigned(),
        tuple: FourTuple {
            local: address(row, 2)?,
            remote: address(row, 6).unwrap_or(remote),
        },
        opened: match text(row, 10) {
            Some("opened") => Some(true),
            Some("accepted") => Some(false),
            _ => None,
        },
        from: hosts.corrected(host, number(row, 8)?),
        to: hosts.corrected(host, number(row, 9)?),
        in_hour,
    })
}

/// An address and the port behind it.
fn address(row: &RowReader<'_>, column: usize) -> Option<SocketAddr> {
    let ip = text(row, column)?.parse().ok()?;
    let port = u16::try_from(number(row, column + 1)?).ok()?;
    Some(SocketAddr::new(ip, port))
}

fn pair_hash(tuple: &FourTuple) -> u64 {
    let mut hasher = DefaultHasher::new();
    tuple.pair_key().hash(&mut hasher);
    hasher.finish()
}

fn push_pair(pair: &Pair, hosts: &Hosts, rows: &mut HourRows) {
    let span = pair.span();
    let address = |end: &End| end.tuple.local.ip().to_string();
    let (a, b) = (address(&pair.a), address(&pair.b));
    let end = |end: &End| {
        let name = hosts.names.get(end.host as usize);
        (
            name.cloned().unwrap_or_default(),
            Value::Int(end.connection.cast_signed()),
            Value::Int(end.tuple.local.port().into()),
        )
    };
    let ((a_host, a_id, a_port), (b_host, b_id, b_port)) = (end(&pair.a), end(&pair.b));
    rows.widen(span);
    rows.rows.push([
        Value::Text(&a_host),
        a_id,
        Value::Text(&a),
        a_port,
        Value::Text(&b_host),
        b_id,
        Value::Text(&b),
        b_port,
        Value::Time(span.0.0),
        Value::Time(span.1.0),
        Value::Bool(pair.translated),
    ]);
}

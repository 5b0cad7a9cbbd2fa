// SPDX-License-Identifier: Apache-2.0
//! The log as tables for other tools.
//!
//! What enters: the log's records, one after the other. What leaves: CSV or JSON lines. Records are
//! streamed; for a bounded number of connections at a time, addresses and owner are kept in memory, to
//! put them beside intervals and to give only the latest summary. Where there are more connections,
//! the log is read once for each part of them ([`partition`](crate::partition)). Connections without
//! an interval are not kept.

#[cfg(test)]
mod tests;

use crate::partition::{Partition, Partitions};
use crate::redaction::Redaction;
use crate::rows;
use crate::table::{Form, Row, Table};
use slowpath_model::{ConnectionId, FourTuple, Owner, TcpState};
use slowpath_store::{
    ConnectionIdentity, ConnectionNumber, IntervalFilter, LogReader, Rank, ReadReport, Stop,
    StoreError, TimeRange, summary_rank,
};
use slowpath_views::filter::{Filter, Subject};
use slowpath_views::selection::selects_summary;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::net::SocketAddr;

/// Connections whose texts are kept at once: about 100 MB.
pub const AT_ONCE: usize = 1 << 17;

/// A table of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogTable {
    /// Intervals, with their connections' addresses and owners.
    Intervals,
    /// The latest summary of each connection.
    Connections,
    /// What was observed, and what not.
    Coverage,
    /// Listening sockets.
    Listeners,
}

/// What the rows of a connection's intervals repeat of the connection.
#[derive(Clone, Debug)]
struct KnownConnection {
    rank: Rank,
    /// Nothing where only the latest summary is looked for.
    texts: Option<Texts>,
    /// The filter selects it.
    selected: bool,
}

/// Addresses and owner.
#[derive(Clone, Debug)]
struct Texts {
    tuple: FourTuple,
    owner: Owner,
    real_peer: Option<SocketAddr>,
}

impl From<ConnectionIdentity> for Texts {
    fn from(identity: ConnectionIdentity) -> Self {
        Texts {
            tuple: identity.tuple,
            owner: identity.owner,
            real_peer: identity.real_peer,
        }
    }
}

/// Which connections are looked for, and what is kept of them.
#[derive(Clone, Copy)]
enum Looked<'a> {
    /// Texts of those that intervals are of.
    For(&'a HashSet<ConnectionNumber>),
    /// Ranks of all.
    Ranks,
}

impl Looked<'_> {
    fn has(self, id: &ConnectionId) -> bool {
        match self {
            Looked::For(numbers) => numbers.contains(&id.into()),
            Looked::Ranks => true,
        }
    }
}

/// What of a log is written, and how.
pub struct LogExport<'a> {
    /// The log.
    pub reader: LogReader,
    /// Records of this time.
    pub range: TimeRange,
    /// Of these connections and listeners.
    pub filter: &'a Filter,
    /// What is hidden.
    pub redaction: Redaction,
    /// CSV or JSON lines.
    pub form: Form,
    /// Connections whose texts are kept at once: [`AT_ONCE`].
    pub at_once: usize,
}

/// What was read, and whether the output took it.
pub type Done = (ReadReport, io::Result<()>);

/// A table whose output may have refused: then nothing more is written.
struct Sink<W> {
    table: io::Result<Table<W>>,
    stop: Stop,
}

impl<W: Write> Sink<W> {
    fn new(out: W, form: Form, columns: &[&'static str], stop: Stop) -> Self {
        let table = Table::new(out, form, columns);
        if table.is_err() {
            stop.set();
        }
        Sink { table, stop }
    }

    fn give<'a>(&mut self, row: impl FnOnce() -> Row<'a>) {
        if let Ok(table) = &mut self.table
            && let Err(error) = table.row(&row())
        {
            self.table = Err(error);
            self.stop.set();
        }
    }

    fn finish(self) -> io::Result<()> {
        self.table?.finish()
    }
}

impl LogExport<'_> {
    /// Writes a table.
    ///
    /// # Errors
    /// The log cannot be read. Whether the output took all of it is in the answer.
    pub fn write(&self, table: LogTable, out: impl Write) -> Result<Done, StoreError> {
        match table {
            LogTable::Intervals => self.intervals(out),
            LogTable::Connections => self.connections(out),
            LogTable::Coverage => self.coverage(out),
            LogTable::Listeners => self.listeners(out),
        }
    }

    /// The connections of the range that are of the part, which becomes smaller when it has
    /// too many; `problem` in a filter is about a connection's whole life.
    fn known(
        &self,
        looked: Looked<'_>,
        part: &mut Partition,
        left: &mut Partitions,
        report: &mut ReadReport,
    ) -> Result<HashMap<ConnectionId, KnownConnection>, StoreError> {
        let state = RefCell::new((HashMap::<ConnectionId, KnownConnection>::new(), part));
        let wanted = |id: &ConnectionId, rank: Rank| {
            let (known, part) = &*state.borrow();
            looked.has(id) && part.has(id) && known.get(id).is_none_or(|k| k.rank <= rank)
        };
        let mut note = |identity: ConnectionIdentity, selected: bool| {
            let (known, part) = &mut *state.borrow_mut();
            let (id, rank) = (identity.connection, identity.rank);
            let latest = KnownConnection {
                rank,
                selected,
                texts: matches!(looked, Looked::For(_)).then(|| identity.into()),
            };
            known.insert(id, latest);
            while known.len() > self.at_once && left.split(part) {
                known.retain(|id, _| part.has(id));
            }
        };
        let read = if self.filter.is_empty() {
            let reader = &self.reader;
            reader.each_identity(self.range, wanted, |identity| note(identity, true))?
        } else {
            self.reader.each_summary(self.range, |summary| {
                if wanted(&summary.connection, summary_rank(&summary)) {
                    let selected = selects_summary(self.filter, &summary);
                    note(summary.into(), selected);
                }
            })?
        };
        report.absorb(read);
        Ok(state.into_inner().0)
    }

    fn intervals(&self, out: impl Write) -> Result<Done, StoreError> {
        let stop = self.reader.stop();
        let mut sink = Sink::new(out, self.form, &rows::interval_columns(), stop);
        let wanted = IntervalFilter::default();
        let mut numbers = HashSet::new();
        self.reader.each_interval_connection(self.range, |number| {
            numbers.insert(number);
        })?;
        let mut report = ReadReport::default();
        let mut left = Partitions::default();
        let unknown = Owner::default();
        while let Some(mut part) = left.next() {
            let known = self.known(Looked::For(&numbers), &mut part, &mut left, &mut report)?;
            let read = self.reader.each_interval(self.range, &wanted, |interval| {
                let id = &interval.connection;
                let (ends, owner) = match known.get(id) {
                    Some(KnownConnection {
                        texts: Some(texts),
                        selected: true,
                        ..
                    }) => (Some((texts.tuple, texts.real_peer)), &texts.owner),
                    // Nothing is known of it but this; what was logged since is left out.
                    None if self.filter.is_empty()
                        && part.has(id)
                        && numbers.contains(&id.into()) =>
                    {
                        (None, &unknown)
                    }
                    _ => return,
                };
                sink.give(|| rows::interval(&interval, ends, owner, &self.redaction));
            })?;
            report.absorb(read);
        }
        Ok((report, sink.finish()))
    }

    fn connections(&self, out: impl Write) -> Result<Done, StoreError> {
        let stop = self.reader.stop();
        let mut sink = Sink::new(out, self.form, &rows::summary_columns(), stop);
        let mut report = ReadReport::default();
        let mut left = Partitions::default();
        while let Some(mut part) = left.next() {
            let mut known = self.known(Looked::Ranks, &mut part, &mut left, &mut report)?;
            let read = self.reader.each_summary(self.range, |summary| {
                let id = summary.connection;
                let latest = |k: &KnownConnection| k.selected && k.rank == summary_rank(&summary);
                if known.get(&id).is_some_and(latest) {
                    known.remove(&id);
                    sink.give(|| rows::summary(&summary, &self.redaction));
                }
            })?;
            report.absorb(read);
        }
        Ok((report, sink.finish()))
    }

    fn coverage(&self, out: impl Write) -> Result<Done, StoreError> {
        let mut sink = Sink::new(
            out,
            self.form,
            &rows::coverage_columns(),
            self.reader.stop(),
        );
        let read = self.reader.coverage(self.range)?;
        for record in &read.rows {
            sink.give(|| rows::coverage(record));
        }
        Ok((read.report, sink.finish()))
    }

    fn listeners(&self, out: impl Write) -> Result<Done, StoreError> {
        let stop = self.reader.stop();
        let mut sink = Sink::new(out, self.form, &rows::listener_columns(), stop);
        let report = self.reader.each_listener(self.range, |interval| {
            let subject = Subject {
                local: interval.local,
                remote: SocketAddr::new(interval.local.ip(), 0),
                state: TcpState::Listen,
                owner: &interval.owner,
                problems: interval.findings.iter().map(|f| f.problem).collect(),
            };
            if self.filter.is_empty() || self.filter.selects(&subject) {
                sink.give(|| rows::listener(&interval, &self.redaction));
            }
        })?;
        Ok((report, sink.finish()))
    }
}

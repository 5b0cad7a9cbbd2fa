// SPDX-License-Identifier: Apache-2.0
//! `slowpath export`: the log as tables for other tools.
//!
//! What enters: the log's records, one after the other. What leaves: CSV or JSON lines on
//! standard output. Records are streamed; for a bounded number of connections at a time,
//! addresses and owner are kept in memory, to put them beside intervals and to give only the
//! latest summary. Where there are more connections, the log is read once for each part
//! of them ([`slowpath_export::partition`]). Connections without an interval are not kept, and
//! when the reader of the output goes, reading ends.

mod live;
#[cfg(test)]
mod tests;

use crate::failure::{Failure, Outcome};
use crate::message;
use crate::options::Since;
use clap::{Args, ValueEnum};
use slowpath_export::anonymise::Anonymiser;
use slowpath_export::partition::{Partition, Partitions};
use slowpath_export::redaction::Redaction;
use slowpath_export::table::{Form, Row, Table};
use slowpath_export::{reader_gone, rows};
use slowpath_model::{ConnectionId, FourTuple, Owner, TcpState, WallMicros};
use slowpath_store::{
    ConnectionIdentity, ConnectionNumber, IntervalFilter, LogReader, Rank, ReadReport, Stop,
    StoreError, TimeRange, summary_rank,
};
use slowpath_views::filter::{Filter, Subject};
use slowpath_views::selection::selects_summary;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `slowpath export`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  slowpath export --since 1h > intervals.csv
  slowpath export --table connections --format jsonl dport = :443
  slowpath export --anonymise --key-file key --since 1d > to-share.csv
The filter is that of slowpath report. docs/reference/export.md lists the columns.")]
pub struct Export {
    /// Which connections, as a filter of ss(8)
    #[arg(value_name = "FILTER", conflicts_with = "mlab")]
    pub filter: Vec<String>,
    /// Which table to print
    #[arg(long, value_enum, default_value_t = TableArg::Intervals)]
    pub table: TableArg,
    /// The format of rows
    #[arg(long, value_enum, default_value_t = FormArg::Csv)]
    pub format: FormArg,
    /// How far back: a duration (10m, 2h, 1d) or a moment (2026-01-31T12:00:00Z)
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = crate::options::since)]
    pub since: Since,
    /// Where the log is
    #[arg(long, value_name = "DIR")]
    pub log: Option<PathBuf>,
    /// Leave out command lines and paths of executables
    #[arg(long)]
    pub redact: bool,
    /// Replace addresses, keeping common prefixes, and names of units and containers; leave
    /// out what --redact leaves out
    #[arg(long)]
    pub anonymise: bool,
    /// A file of 16 bytes: exports with the same key can be joined; by default each has its own key
    #[arg(long, value_name = "FILE", requires = "anonymise")]
    pub key_file: Option<PathBuf>,
    /// Instead of reading the log, save what the kernel reports of each connection of this
    /// network namespace from now on: one file per connection, as M-Lab's tcp-info does
    #[arg(long, value_name = "DIR", conflicts_with_all = ["log", "anonymise", "redact"])]
    pub mlab: Option<PathBuf>,
    /// Time between two polls, with --mlab
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = crate::options::interval)]
    pub interval: Duration,
    /// Stop after this time, with --mlab
    #[arg(long = "for", value_name = "DURATION", value_parser = crate::options::duration)]
    pub length: Option<Duration>,
}

/// `--table`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TableArg {
    /// Intervals in which a connection had a problem
    Intervals,
    /// The latest summary of each connection
    Connections,
    /// What was observed, and what was missed
    Coverage,
    /// Intervals in which a listener turned connections away
    Listeners,
}

/// `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormArg {
    /// Comma-separated values
    Csv,
    /// One JSON object per line
    Jsonl,
}

pub use live::mlab;

/// Connections whose texts are kept at once: about 100 MB.
const AT_ONCE: usize = 1 << 17;

/// What one write to the output takes: a pipe's size.
const BUFFER: usize = 1 << 16;

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

/// Writes a table of the log in `directory`.
///
/// # Errors
/// When there is no log, the key cannot be read, or the output refuses.
pub fn run(
    args: &Export,
    directory: &Path,
    filter: &Filter,
    now: WallMicros,
    out: &mut dyn Write,
) -> Result<Outcome, Failure> {
    let failed = |reason: String| Failure::Log {
        directory: directory.to_owned(),
        reason,
    };
    if !directory.exists() {
        let reason = "there is none; `slowpath up` keeps one, and --log names another";
        return Err(failed(reason.to_owned()));
    }
    let store = |error: StoreError| failed(error.to_string());
    let reader = LogReader::open(directory).map_err(store)?;
    let range = crate::report::range(args.since, now);
    let job = Job {
        reader,
        range: TimeRange {
            from: range.from,
            to: WallMicros(range.to.0.saturating_add(1)),
        },
        filter,
        redaction: redaction(args)?,
        form: match args.format {
            FormArg::Csv => Form::Csv,
            FormArg::Jsonl => Form::Jsonl,
        },
        at_once: AT_ONCE,
    };
    let stop = job.reader.stop();
    reader_gone::watch(move || stop.set());
    let out = io::BufWriter::with_capacity(BUFFER, out);
    let (report, wrote) = match args.table {
        TableArg::Intervals => job.intervals(out),
        TableArg::Connections => job.connections(out),
        TableArg::Coverage => job.coverage(out),
        TableArg::Listeners => job.listeners(out),
    }
    .map_err(store)?;
    wrote?;
    for line in report.lines() {
        message::say(format_args!("could not read: {line}"));
    }
    Ok(Outcome::Done)
}

fn redaction(args: &Export) -> Result<Redaction, Failure> {
    let file = args.key_file.as_deref();
    let key = || key(file.unwrap_or(Path::new("/dev/urandom")));
    let names = args.anonymise.then(key).transpose()?.map(Anonymiser::new);
    Ok(Redaction::new(args.redact || args.anonymise, names))
}

fn key(file: &Path) -> Result<[u8; 16], Failure> {
    let mut key = [0; 16];
    let read = File::open(file).and_then(|mut f| f.read_exact(&mut key));
    read.map_err(|error| {
        let text = "cannot read 16 bytes of a key from";
        let way = "make one with: head -c 16 /dev/urandom > FILE";
        Failure::Usage(format!("{text} {}: {error}; {way}", file.display()))
    })?;
    Ok(key)
}

struct Job<'a> {
    reader: LogReader,
    range: TimeRange,
    filter: &'a Filter,
    redaction: Redaction,
    form: Form,
    at_once: usize,
}

/// What was read, and whether the output took it.
type Done = (ReadReport, io::Result<()>);

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

impl Job<'_> {
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

// SPDX-License-Identifier: Apache-2.0
//! `slowpath export`: the log as tables for other tools.
//!
//! What enters: arguments. What leaves: what [`slowpath_export::log`] writes, on standard output. When the reader of the output
//! goes, reading ends.

mod live;

use crate::failure::{Failure, Outcome};
use crate::message;
use crate::options::Since;
use clap::{Args, ValueEnum};
use slowpath_export::anonymise::Anonymiser;
use slowpath_export::log::{AT_ONCE, LogExport, LogTable};
use slowpath_export::reader_gone;
use slowpath_export::redaction::Redaction;
use slowpath_export::table::Form;
use slowpath_model::WallMicros;
use slowpath_store::{LogReader, StoreError, TimeRange};
use slowpath_views::filter::Filter;
use std::fs::File;
use std::io::{self, Read, Write};
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

/// What one write to the output takes: a pipe's size.
const BUFFER: usize = 1 << 16;

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
    let log = LogExport {
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
    let stop = log.reader.stop();
    reader_gone::watch(move || stop.set());
    let out = io::BufWriter::with_capacity(BUFFER, out);
    let table = match args.table {
        TableArg::Intervals => LogTable::Intervals,
        TableArg::Connections => LogTable::Connections,
        TableArg::Coverage => LogTable::Coverage,
        TableArg::Listeners => LogTable::Listeners,
    };
    let (report, wrote) = log.write(table, out).map_err(store)?;
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

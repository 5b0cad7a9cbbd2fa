// SPDX-License-Identifier: Apache-2.0
//! One spool into the Parquet files of its segment.
//!
//! The spool is what counts until it is removed: the files are written under temporary
//! names, flushed and renamed, and only when all have their names and the directory
//! is flushed does the spool go. Killed anywhere before, the next run converts the same
//! spool into files of the same names; readers ignore the files of a segment whose spool
//! is there. So nothing is lost and nothing counts twice.
//!
//! The work comes in pieces of a few milliseconds, and between them the caller may rest.

use crate::StoreError;
use crate::cells::{Cell, Column, Flat, Kind, columns_of};
use crate::interval::{self, Logged};
use crate::layout::{self, CONNECTIONS, COVERAGE, INTERACTIONS, INTERVALS, LISTENERS};
use crate::options::Evidence;
use crate::rows::{IDENTITY, SummaryBody};
use crate::spool::{self, HeaderError, Parsed, Record};
use crate::table::{self, About, Rows};
use crate::told::Told;
use crate::{interaction, listener};
use slowpath_model::{
    ConnectionId, ConnectionSummary, Coverage, InteractionInterval, ListenerInterval, Micros,
    ProblemInterval,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

const SEGMENT: Column = Column {
    name: "segment",
    kind: Kind::Text,
};
const KEY: Column = Column {
    name: "connection",
    kind: Kind::Exact,
};

/// The column of the connections table that tells the intervals' MSS.
pub(crate) const SEND_MSS: &str = "send_mss";

/// Columns of the intervals table.
pub(crate) fn interval_columns() -> Vec<Column> {
    [vec![SEGMENT, KEY], interval::columns()].concat()
}

/// Columns of the connections table.
pub(crate) fn connection_columns() -> Vec<Column> {
    [
        vec![SEGMENT, KEY],
        IDENTITY.to_vec(),
        SummaryBody::columns(),
    ]
    .concat()
}

/// Columns of the coverage table.
pub(crate) fn coverage_columns() -> Vec<Column> {
    [vec![SEGMENT], columns_of::<Coverage>()].concat()
}

/// Columns of the interactions table.
pub(crate) fn interaction_columns() -> Vec<Column> {
    [vec![SEGMENT], interaction::COLUMNS.to_vec()].concat()
}

/// Columns of the listeners table.
pub(crate) fn listener_columns() -> Vec<Column> {
    [vec![SEGMENT], listener::COLUMNS.to_vec()].concat()
}

/// How to convert.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub merge_up_to: Micros,
    pub evidence: Evidence,
}

/// Takes checkpoints over into a spool that stays; returns whether they are there for good.
pub(crate) type Carry<'a> = dyn Fn(&[&ConnectionSummary]) -> bool + 'a;

/// Counts rows of work, and lets the caller rest after each piece.
pub(crate) struct Pieces<'a> {
    rest: &'a mut dyn FnMut(),
    rows: u32,
}

impl Pieces<'_> {
    /// Rows of a piece: with 150 columns half a millisecond.
    const ROWS: u32 = 256;

    /// A row was dealt with.
    fn row(&mut self) {
        self.rows += 1;
        if self.rows >= Self::ROWS {
            self.done();
        }
    }

    /// A piece was dealt with.
    pub(crate) fn done(&mut self) {
        self.rows = 0;
        (self.rest)();
    }
}

/// What a conversion did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Converted {
    /// Bytes of the Parquet files.
    pub parquet_bytes: u64,
    /// Rows of the intervals table.
    pub rows: u64,
    /// Places in the spool that could not be read, torn tail aside.
    pub unreadable: u64,
    /// Whether the spool had no usable header and was set aside.
    pub set_aside: bool,
}

/// A piece of a spool that is read at once: under a millisecond.
const READ: u64 = 1 << 20;

/// The whole file, read in pieces: at once, 16 MiB take 11 ms.
fn read(path: &Path, pieces: &mut Pieces<'_>) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(0);
    let mut bytes = Vec::with_capacity(length);
    while (&mut file).take(READ).read_to_end(&mut bytes)? > 0 {
        pieces.done();
    }
    Ok(bytes)
}

/// Converts a spool and removes it. With `carry`, most checkpoints of living connections go
/// on to a later spool instead of into Parquet. `rest` is called between pieces of the work.
pub(crate) fn convert(
    dir: &Path,
    spool: &Path,
    settings: Settings,
    carry: Option<&Carry<'_>>,
    rest: &mut dyn FnMut(),
) -> Result<Converted, StoreError> {
    let mut pieces = Pieces { rest, rows: 0 };
    let bytes = read(spool, &mut pieces).map_err(StoreError::io("read the spool", spool))?;
    let mut records = Vec::new();
    let parsed = spool::parse_each(&bytes, |record| {
        records.push(record);
        pieces.row();
    });
    let parsed = match parsed {
        Ok(parsed) => Parsed { records, ..parsed },
        Err(HeaderError::Torn) => {
            remove(spool)?;
            return Ok(Converted::default());
        }
        Err(_) => {
            let mut aside = spool.as_os_str().to_owned();
            aside.push(".unreadable");
            fs::rename(spool, aside).map_err(StoreError::io("set aside the spool", spool))?;
            return Ok(Converted {
                set_aside: true,
                ..Converted::default()
            });
        }
    };
    drop(bytes);
    let mut converted = Converted {
        unreadable: (parsed.corrupt + parsed.unknown + parsed.invalid) as u64,
        ..Converted::default()
    };
    let partition = layout::partition(dir, parsed.header.begun, &parsed.header.host.host);
    layout::make_dirs(dir, &partition)?;
    let mut renames = Vec::new();
    let tables = tables(&parsed, settings, carry, &mut pieces);
    let header = parsed.header;
    drop(parsed.records);
    for (table, rows) in tables {
        if rows.count == 0 {
            continue;
        }
        if table == INTERVALS {
            converted.rows = rows.count;
        }
        let name = format!("{table}-{}.parquet", header.segment);
        let temporary = partition.join(format!(".{name}.tmp"));
        let about = About {
            table,
            segment: header.segment.clone(),
            host: header.host.host.clone(),
            boot_id: header.host.boot_id,
        };
        if let Err(e) = table::write(&temporary, rows, &about, &mut || pieces.done()) {
            // The room is needed by others; the next attempt writes it anew.
            let _ = fs::remove_file(&temporary);
            return Err(e);
        }
        renames.push((temporary, partition.join(name)));
    }
    for (temporary, path) in &renames {
        fs::rename(temporary, path).map_err(StoreError::io("rename", temporary))?;
        converted.parquet_bytes += fs::metadata(path).map_or(0, |m| m.len());
    }
    layout::sync_dir(&partition)?;
    remove(spool)?;
    Ok(converted)
}

fn remove(spool: &Path) -> Result<(), StoreError> {
    fs::remove_file(spool).map_err(StoreError::io("remove the converted spool", spool))?;
    match spool.parent() {
        Some(parent) => layout::sync_dir(parent),
        None => Ok(()),
    }
}

/// Removes what a killed conversion left in one hour.
pub(crate) fn sweep(hour: &Path) -> Result<(), StoreError> {
    for host in layout::entries(hour)? {
        for path in layout::entries(&host)? {
            let temporary: bool = path
                .file_name()
                .and_then(|n| n.to_str())
                .is_some_and(|n| n.starts_with('.') && n.ends_with(".parquet.tmp"));
            if temporary {
                fs::remove_file(&path).map_err(StoreError::io("remove", &path))?;
            }
        }
    }
    Ok(())
}

/// What a segment knows of a connection.
#[derive(Default)]
struct Known<'a> {
    summary: Option<&'a ConnectionSummary>,
    /// The MSS in its last interval.
    mss: u32,
}

impl Known<'_> {
    fn mss(&self) -> Cell {
        Cell::Int(self.summary.map_or(self.mss, |s| s.stats.send_mss).into())
    }
}

type Connections<'a> = BTreeMap<ConnectionId, Known<'a>>;

fn tables(
    parsed: &Parsed,
    settings: Settings,
    carry: Option<&Carry<'_>>,
    pieces: &mut Pieces<'_>,
) -> [(&'static str, Rows); 5] {
    let mut connections = Connections::new();
    let mut coverage = Vec::new();
    let mut listeners = Vec::new();
    let mut interactions = Vec::new();
    for record in &parsed.records {
        pieces.row();
        match record {
            Record::Problem(interval) => {
                let known = connections.entry(interval.connection).or_default();
                known.mss = interval.deltas.send_mss;
            }
            Record::Summary(summary) => {
                let known = connections.entry(summary.connection).or_default();
                if known.summary.is_none_or(|s| supersedes(summary, s)) {
                    known.summary = Some(summary);
                }
            }
            Record::Coverage(record) => coverage.push(&**record),
            Record::Listener(interval) => listeners.push(&**interval),
            Record::Interaction(interval) => interactions.push(&**interval),
        }
    }
    if let Some(carry) = carry {
        thin(&mut connections, parsed, carry);
    }
    let keys: BTreeMap<ConnectionId, u64> = connections.keys().copied().zip(0..).collect();
    let segment = &parsed.header.segment;
    let logged = merge(parsed, settings.merge_up_to, pieces);
    [
        (CONNECTIONS, summaries(&connections, &keys, segment, pieces)),
        (COVERAGE, coverages(&coverage, segment)),
        (LISTENERS, listener_intervals(&listeners, segment)),
        (INTERACTIONS, interaction_intervals(&interactions, segment)),
        (
            INTERVALS,
            intervals(
                logged,
                &connections,
                &keys,
                segment,
                settings.evidence,
                pieces,
            ),
        ),
    ]
}

/// Hours between two checkpoints of a living connection that reach Parquet.
const CHECKPOINT_HOURS: i64 = 4;

/// Leaves most checkpoints of living connections to a later segment. Kept are the
/// connections that closed, those younger than an hour, and of the others a part each
/// hour, in turns; so an old connection has a row every four hours. The others are carried
/// on before anything of this segment is removed: a reader finds them in the spool, and so
/// does the next run if this one is killed.
fn thin(connections: &mut Connections<'_>, parsed: &Parsed, carry: &Carry<'_>) {
    const HOUR: i64 = 3_600_000_000;
    let turn = parsed
        .header
        .begun
        .0
        .div_euclid(HOUR)
        .rem_euclid(CHECKPOINT_HOURS) as u64;
    let is_carried = |summary: &ConnectionSummary| {
        !summary.closed
            && summary
                .last_observed
                .0
                .saturating_sub(summary.first_observed.0)
                >= HOUR
            && summary.connection.cookie % CHECKPOINT_HOURS as u64 != turn
    };
    let carried: Vec<&ConnectionSummary> = connections
        .values()
        .filter_map(|known| known.summary)
        .filter(|summary| is_carried(summary))
        .collect();
    if carried.is_empty() || !carry(&carried) {
        return;
    }
    let mut troubled = BTreeSet::new();
    for record in &parsed.records {
        if let Record::Problem(interval) = record {
            troubled.insert(interval.connection);
        }
    }
    connections.retain(|id, known| {
        let Some(summary) = known.summary.filter(|s| is_carried(s)) else {
            return true;
        };
        known.mss = summary.stats.send_mss;
        known.summary = None;
        troubled.contains(id)
    });
}

/// Whether `new` replaces `old`, a summary of the same connection.
pub(crate) fn supersedes(new: &ConnectionSummary, old: &ConnectionSummary) -> bool {
    standing(new) >= standing(old)
}

/// Of several summaries of a connection the one with the greatest standing holds.
pub fn standing(summary: &ConnectionSummary) -> (bool, u64, slowpath_model::WallMicros) {
    (summary.closed, summary.polls, summary.last_observed)
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

fn intervals(
    mut logged: Vec<Logged>,
    connections: &Connections<'_>,
    keys: &BTreeMap<ConnectionId, u64>,
    segment: &str,
    evidence: Evidence,
    pieces: &mut Pieces<'_>,
) -> Rows {
    for one in &mut logged {
        pieces.row();
        one.round_to_grid();
    }
    // All rows of one poll end together; like findings next to each other pack best.
    logged.sort_by_cached_key(|l| {
        (
            l.interval.end,
            l.problems().bits(),
            keys[&l.interval.connection],
        )
    });
    let mut rows = Rows::new(interval_columns());
    let told = Told::of_intervals(&rows.columns()[2..]);
    let left_out: Vec<bool> = rows
        .columns()
        .iter()
        .map(|c| evidence == Evidence::OfFindings && interval::is_optional(c.name))
        .collect();
    let mut row = vec![Cell::Text(segment.to_owned())];
    for mut logged in logged {
        pieces.row();
        let ProblemInterval { end, duration, .. } = logged.interval;
        rows.widen(end - duration, end);
        let id = logged.interval.connection;
        logged.round_times();
        row.truncate(1);
        row.push(Cell::Int(keys[&id]));
        logged.put(&mut row);
        told.leave_out(&mut row[2..], &connections[&id].mss());
        for (cell, left_out) in row.iter_mut().zip(&left_out) {
            if *left_out {
                *cell = Cell::Null;
            }
        }
        rows.push(&row);
    }
    rows
}

fn summaries(
    connections: &Connections<'_>,
    keys: &BTreeMap<ConnectionId, u64>,
    segment: &str,
    pieces: &mut Pieces<'_>,
) -> Rows {
    let mut rows = Rows::new(connection_columns());
    let body = 2 + IDENTITY.len();
    let told = Told::of_connections(&rows.columns()[body..]);
    let mss = rows.columns().iter().position(|c| c.name == SEND_MSS);
    let mut row = vec![Cell::Text(segment.to_owned())];
    for (id, known) in connections {
        pieces.row();
        row.truncate(1);
        row.push(Cell::Int(keys[id]));
        id.put(&mut row);
        if let Some(summary) = known.summary {
            rows.widen(summary.first_observed, summary.last_observed);
            SummaryBody::put(summary, &mut row);
            told.leave_out(&mut row[body..], &Cell::Null);
        } else if let Some(mss) = mss {
            row.resize(mss, Cell::Null);
            row.push(known.mss());
        }
        rows.push(&row);
    }
    rows
}

fn coverages(records: &[&Coverage], segment: &str) -> Rows {
    let mut rows = Rows::new(coverage_columns());
    let mut row = vec![Cell::Text(segment.to_owned())];
    for record in records {
        rows.widen(record.end - record.duration, record.end);
        row.truncate(1);
        record.put(&mut row);
        rows.push(&row);
    }
    rows
}

fn interaction_intervals(records: &[&InteractionInterval], segment: &str) -> Rows {
    let mut rows = Rows::new(interaction_columns());
    for interval in records {
        rows.widen(interval.end - interval.duration, interval.end);
        let mut row = vec![Cell::Text(segment.to_owned())];
        interval.put(&mut row);
        rows.push(&row);
    }
    rows
}

fn listener_intervals(records: &[&ListenerInterval], segment: &str) -> Rows {
    let mut rows = Rows::new(listener_columns());
    let mut row = vec![Cell::Text(segment.to_owned())];
    for interval in records {
        rows.widen(interval.end - interval.duration, interval.end);
        row.truncate(1);
        interval.put(&mut row);
        rows.push(&row);
    }
    rows
}

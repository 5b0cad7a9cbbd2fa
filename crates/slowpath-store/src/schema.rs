// SPDX-License-Identifier: Apache-2.0
//! The tables of schema version 2: their columns, and records as their rows.
//!
//! A row states every value that is known; NULL means that one is not known. Coverage,
//! listeners and interactions have the columns of their record; intervals, problems and
//! connections are described here.

use crate::cells::{CellValue, Flat, Row, columns_of};
use crate::column::{Column, Kind, flag, number, problems, text, time, us, word};
use crate::interval::{Logged, order};
use crate::layout::{
    CONNECTIONS, COVERAGE, HOPS, INTERACTIONS, INTERVALS, LISTENERS, PROBLEMS, TRAFFIC,
};
use crate::rows::{FIRST, IDENTITY, PROBLEM_EVENTS, PROBLEM_TIME, SummaryBody};
use crate::summary_rank::{ConnectionIdentity, Ranked};
use crate::{hops, interaction, life_rows, listener, owner_rows, traffic};
use slowpath_model::{
    ConnectionId, ConnectionSummary, Coverage, Deltas, Finding, Micros, Problem, ProblemInterval,
    ProblemSet, Share, WallMicros,
};
use std::sync::LazyLock;

/// A table of the log.
pub(crate) struct Table {
    /// The beginning of its files' names.
    pub name: &'static str,
    /// What a row is; a test looks for it in the document.
    #[cfg_attr(not(test), expect(dead_code))]
    pub meaning: &'static str,
    /// Its columns.
    pub columns: Vec<Column>,
}

/// Every table of the log.
pub(crate) static TABLES: LazyLock<[Table; 8]> = LazyLock::new(|| {
    let table = |name, meaning, columns| Table {
        name,
        meaning,
        columns,
    };
    [
        table(
            INTERVALS,
            "an interval in which a connection had at least one problem",
            interval_columns(),
        ),
        table(
            PROBLEMS,
            "a problem found in such an interval",
            problem_columns(),
        ),
        table(
            CONNECTIONS,
            "a connection: who it is, and its statistics up to `last_observed`",
            connection_columns(),
        ),
        table(
            COVERAGE,
            "a stretch of time: what the agent observed and what it missed",
            timed(&columns_of::<Coverage>()),
        ),
        table(
            LISTENERS,
            "a round in which a listening socket turned connections away",
            timed(&listener::COLUMNS),
        ),
        table(
            INTERACTIONS,
            "problems that explain each other, as long as they were found",
            timed(&interaction_columns()),
        ),
        table(
            TRAFFIC,
            "what a connection carried over a stretch of about an hour at most",
            timed(&[&[CONNECTION][..], &traffic::COLUMNS].concat()),
        ),
        table(
            HOPS,
            "a router on the path of a connection that lost segments",
            timed(&[&[CONNECTION][..], &hops::COLUMNS].concat()),
        ),
    ]
});

/// The columns of a table.
pub(crate) fn columns(table: &str) -> &'static [Column] {
    TABLES
        .iter()
        .find(|t| t.name == table)
        .map_or(&[], |t| &t.columns)
}

const SEGMENT: Column = text("segment", "what one writer logged in one hour or less");
const HOST: Column = text("host", "the host's name");
const CONNECTION: Column = number(
    "connection_id",
    "the connection, the same in all tables, segments and hours",
)
.of("ConnectionId");
const CAUSE: Column = number(
    "cause_connection_id",
    "the connection that is the cause: of a proxy another, of the other kinds the same",
)
.of("InteractionInterval::cause");
const INTERVAL: Column = number("interval", "the interval's number within its segment");
const START: Column = time("start_time", "beginning: `duration_us` before `end_time`");
const END: Column = time("end_time", "end of the interval").of("ProblemInterval::end");
const DURATION: Column = us("duration_us", "its length").of("ProblemInterval::duration");
const POLLS: Column = number("polls", "polling intervals in it");

/// Cells before those of the record, in tables whose rows have an end and a duration.
pub(crate) const TIMED: usize = 3;
/// Cells before those of an interaction.
pub(crate) const INTERACTION: usize = TIMED + 2;

fn timed(columns: &[Column]) -> Vec<Column> {
    [&[SEGMENT, HOST, START], columns].concat()
}

fn interaction_columns() -> Vec<Column> {
    [&[CONNECTION, CAUSE][..], &interaction::COLUMNS].concat()
}

fn interval_columns() -> Vec<Column> {
    let head = [
        SEGMENT, HOST, INTERVAL, CONNECTION, START, END, DURATION, POLLS,
    ];
    let unmeasured = problems("unmeasured", "problems that could not be measured in it")
        .of("ProblemInterval::unmeasured");
    [&head[..], &[unmeasured], &columns_of::<Deltas>()].concat()
}

const ROLES: &[&str] = &["sender", "receiver"];
/// Names of the problems, by their number.
pub(crate) const PROBLEM_NAMES: [&str; Problem::ALL.len()] = {
    let mut names = [""; Problem::ALL.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = Problem::ALL[i].name();
        i += 1;
    }
    names
};

fn problem_columns() -> Vec<Column> {
    vec![
        SEGMENT,
        HOST,
        INTERVAL,
        CONNECTION,
        START,
        END,
        DURATION,
        word("problem", &PROBLEM_NAMES, "which problem").of("Finding::problem"),
        word(
            "role",
            ROLES,
            "the end of the slow data that this host is: `receiver` with ReceiverAppSlow, else `sender`",
        ),
        us("time_us", "how long it lasted, at most `duration_us`").of("Finding::share"),
        flag(
            "time_measured",
            "false: it is known that it occurred, not how long; `time_us` is the whole interval",
        )
        .of("Finding::share"),
        number(
            "events",
            "how often it occurred; NULL for problems that have a duration only",
        )
        .of("Finding::events"),
    ]
}

/// Where each column of the table is among the cells of [`SummaryBody`].
static SUMMARY_ORDER: LazyLock<Vec<usize>> = LazyLock::new(|| {
    let body = SummaryBody::columns();
    let at = |name: &str| body.iter().position(|c| c.name == name).unwrap_or(0);
    let (command, calls) = (at("command"), at("reads"));
    let owner = at("owner_unknown");
    let life = body.len() - life_rows::COLUMNS.len();
    let polls = at("polls");
    let times = PROBLEM_TIME.iter().map(|name| at(name));
    let counted = Problem::ALL.into_iter().filter(|p| p.has_events());
    let events = counted.map(|p| at(PROBLEM_EVENTS[p as usize]));
    (0..=command)
        .chain(owner..life)
        .chain(command + 1..=polls)
        .chain(times)
        .chain(events)
        .chain(polls + 1 + 2 * FIRST..=calls)
        .chain(life..body.len())
        .collect()
});

fn connection_columns() -> Vec<Column> {
    let body = SummaryBody::columns();
    let mut columns = vec![SEGMENT, HOST, CONNECTION];
    columns.extend(IDENTITY);
    columns.extend(SUMMARY_ORDER.iter().map(|i| body[*i]));
    columns
}

/// The number that names a connection in every table: a 63-bit hash of its identity.
///
/// It is 0 mixed in turn with the higher and the lower half of `boot_id`, `netns`, `cookie`
/// and `start_ns` (exclusive or, then splitmix64's finalizer), without the sign bit.
pub(crate) fn connection_number(id: &ConnectionId) -> u64 {
    let words = [
        (id.boot_id >> 64) as u64,
        id.boot_id as u64,
        u64::from(id.netns),
        id.cookie,
        id.start.0,
    ];
    let mix = |hash: u64, word: u64| {
        let mut z = (hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    words.into_iter().fold(0, mix) >> 1
}

/// What every row of a segment begins with.
pub(crate) struct Origin {
    pub segment: String,
    pub host: String,
}

impl Origin {
    /// An empty row of this segment.
    pub(crate) fn row(&self) -> Vec<CellValue> {
        vec![
            CellValue::Text(self.segment.clone()),
            CellValue::Text(self.host.clone()),
        ]
    }
}

/// Appends the cells of an interval's row after the origin's.
pub(crate) fn put_interval(
    number: u64,
    connection: u64,
    logged: &Logged,
    row: &mut Vec<CellValue>,
) {
    put_key(number, connection, &logged.interval, row);
    logged.polls.put(row);
    logged.interval.unmeasured.put(row);
    logged.interval.deltas.put(row);
}

/// The same of an interval that is one polling interval.
pub(crate) fn put_single_interval(
    number: u64,
    connection: u64,
    interval: &ProblemInterval,
    row: &mut Vec<CellValue>,
) {
    put_key(number, connection, interval, row);
    1_u64.put(row);
    interval.unmeasured.put(row);
    interval.deltas.put(row);
}

/// Appends the cells of a finding's row after the origin's.
pub(crate) fn put_problem(
    number: u64,
    connection: u64,
    interval: &ProblemInterval,
    finding: &Finding,
    row: &mut Vec<CellValue>,
) {
    put_key(number, connection, interval, row);
    row.push(CellValue::Int(finding.problem as u64));
    let receives = finding.problem == Problem::ReceiverAppSlow;
    row.push(CellValue::Int(u64::from(receives)));
    finding.share.time_of(interval.duration).put(row);
    matches!(finding.share, Share::Measured(_)).put(row);
    finding.events.put(row);
}

fn put_key(number: u64, connection: u64, interval: &ProblemInterval, row: &mut Vec<CellValue>) {
    number.put(row);
    connection.put(row);
    (interval.end - interval.duration).put(row);
    interval.end.put(row);
    interval.duration.put(row);
}

/// What a reader asks of the intervals table: its columns from the interval's number on,
/// `start_time` excepted.
pub(crate) fn interval_cells() -> Vec<Column> {
    let mut columns = columns(INTERVALS)[2..].to_vec();
    columns.retain(|c| c.name != START.name);
    columns
}

/// What of an interval says whose it is and when.
pub(crate) fn interval_key_cells() -> Vec<Column> {
    vec![CONNECTION, END, DURATION]
}

/// Takes the cells of [`interval_key_cells`].
pub(crate) fn take_interval_key(cells: &[CellValue]) -> Option<(u64, WallMicros, Micros)> {
    let row = &mut Row::new(cells);
    Some((Flat::take(row)?, Flat::take(row)?, Flat::take(row)?))
}

/// Takes the cells after the interval's number and its connection.
pub(crate) fn take_interval(
    connection: ConnectionId,
    mut findings: Vec<Finding>,
    row: &mut Row<'_>,
) -> Option<Logged> {
    let end = WallMicros::take(row)?;
    let duration = Micros::take(row)?;
    let polls = u64::take(row)?;
    order(&mut findings, duration);
    Some(Logged {
        interval: ProblemInterval {
            connection,
            end,
            duration,
            findings,
            unmeasured: ProblemSet::take(row)?,
            deltas: Deltas::take(row)?,
        },
        polls,
    })
}

/// What a reader asks of the problems table.
pub(crate) fn problem_cells() -> Vec<Column> {
    let wanted = ["interval", "problem", "time_us", "time_measured", "events"];
    let mut columns = columns(PROBLEMS).to_vec();
    columns.retain(|c| wanted.contains(&c.name));
    columns
}

/// Takes the cells of [`problem_cells`].
pub(crate) fn take_problem(row: &mut Row<'_>) -> Option<(u64, Finding)> {
    let interval = u64::take(row)?;
    let problem = *Problem::ALL.get(usize::try_from(u64::take(row)?).ok()?)?;
    let time = Micros::take(row)?;
    let measured = bool::take(row)?;
    let share = if measured {
        Share::Measured(time)
    } else {
        Share::Coarse
    };
    let events = Flat::take(row)?;
    Some((
        interval,
        Finding {
            problem,
            share,
            events,
        },
    ))
}

/// Appends the cells of a connection's row after the origin's; without a summary only who it
/// is by its identity is known.
pub(crate) fn put_connection(
    number: u64,
    id: &ConnectionId,
    summary: Option<&ConnectionSummary>,
    row: &mut Vec<CellValue>,
) {
    number.put(row);
    id.put(row);
    let Some(summary) = summary else { return };
    let mut body = Vec::new();
    SummaryBody::put(summary, &mut body);
    hide_unmeasured(summary, &mut body);
    row.extend(SUMMARY_ORDER.iter().map(|i| body[*i].clone()));
}

/// A problem that was never measured has no known time: the zero is none.
fn hide_unmeasured(summary: &ConnectionSummary, body: &mut [CellValue]) {
    for problem in summary.unmeasured.iter() {
        let i = problem as usize;
        if summary.problem_time[i] == Micros::ZERO && summary.problem_events[i] == 0 {
            for at in [TIME_AT[i], EVENTS_AT[i]] {
                body[at] = CellValue::Null;
            }
        }
    }
}

static SUMMARY_WIDTH: LazyLock<usize> = LazyLock::new(|| SummaryBody::columns().len());
static TIME_AT: LazyLock<Vec<usize>> = LazyLock::new(|| positions(&PROBLEM_TIME));
static EVENTS_AT: LazyLock<Vec<usize>> = LazyLock::new(|| positions(&PROBLEM_EVENTS));

fn positions(names: &[&str]) -> Vec<usize> {
    let body = SummaryBody::columns();
    let at = |name: &&str| body.iter().position(|c| c.name == *name).unwrap_or(0);
    names.iter().map(at).collect()
}

/// What a reader asks of the connections table: the identity and the summary.
pub(crate) fn connection_cells() -> &'static [Column] {
    &columns(CONNECTIONS)[3..]
}

/// Cells of [`identity_cells`] from which the rank of a row follows.
pub(crate) const RANK: usize = IDENTITY.len() + 4;

/// What a reader asks of the connections table that wants to know who they are: identity,
/// rank, 4-tuple, owner and real peer.
pub(crate) fn identity_cells() -> Vec<Column> {
    let all = connection_cells();
    let of = |names: &[&str]| -> Vec<Column> {
        let named = |name: &&str| all.iter().find(|c| c.name == *name).copied();
        names.iter().filter_map(named).collect()
    };
    let rank = of(&["first_observed", "last_observed", "closed", "polls"]);
    let (ends, process) = all[IDENTITY.len()..].split_at(4);
    let process = process
        .iter()
        .filter(|c| c.name == "pid" || c.name == "command");
    let mut columns = [&IDENTITY[..], &rank, ends].concat();
    columns.extend(process.copied());
    owner_rows::columns(&mut columns);
    columns.extend(of(&["real_peer_address", "real_peer_port"]));
    columns
}

/// Takes the first [`RANK`] of these cells; nothing if the row states the identity only.
pub(crate) fn take_ranked(cells: &[CellValue]) -> Option<Option<Ranked>> {
    let row = &mut Row::new(cells);
    let connection = ConnectionId::take(row)?;
    if row.skip_nulls(1) {
        return Some(None);
    }
    Some(Some(Ranked {
        connection,
        first_observed: Flat::take(row)?,
        last_observed: Flat::take(row)?,
        closed: Flat::take(row)?,
        polls: Flat::take(row)?,
    }))
}

/// Takes the rest of them.
pub(crate) fn take_identity(ranked: &Ranked, cells: &[CellValue]) -> Option<ConnectionIdentity> {
    let row = &mut Row::new(&cells[RANK..]);
    let tuple = Flat::take(row)?;
    let head = owner_rows::take_head(row)?;
    Some(ConnectionIdentity {
        connection: ranked.connection,
        rank: ranked.rank(),
        tuple,
        owner: owner_rows::take_rest(head, row)?,
        real_peer: Flat::take(row)?,
    })
}

/// Takes the cells of [`connection_cells`]; nothing if the row states the identity only.
pub(crate) fn take_connection(cells: &[CellValue]) -> Option<Option<ConnectionSummary>> {
    let id = ConnectionId::take(&mut Row::new(cells))?;
    let stated = &cells[IDENTITY.len()..];
    if stated[0] == CellValue::Null {
        return Some(None);
    }
    let mut body = vec![CellValue::Null; *SUMMARY_WIDTH];
    for (i, cell) in SUMMARY_ORDER.iter().zip(stated) {
        body[*i] = cell.clone();
    }
    // Not measured, or not counted. The others may be missing: a later version added them.
    for at in TIME_AT[..FIRST].iter().chain(&EVENTS_AT[..FIRST]) {
        if body[*at] == CellValue::Null {
            body[*at] = CellValue::Int(0);
        }
    }
    SummaryBody::take(id, &mut Row::new(&body)).map(Some)
}

/// The columns of every table as Markdown, by the table's name.
pub fn describe() -> Vec<(&'static str, String)> {
    let table = |table: &Table| {
        let mut text =
            "| column | type | unit | meaning | record field |\n|---|---|---|---|---|\n".to_owned();
        for column in &table.columns {
            text += &column.markdown();
            text.push('\n');
        }
        (table.name, text)
    };
    TABLES.iter().map(table).collect()
}

/// Whether a column's values are measured numbers, of which hardly two are equal.
pub(crate) fn is_measured(column: &Column) -> bool {
    column.kind == Kind::Exact && !column.unit.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn column_names_are_distinct() {
        for table in TABLES.iter() {
            let names: BTreeSet<_> = table.columns.iter().map(|c| c.name).collect();
            assert_eq!(names.len(), table.columns.len(), "{}", table.name);
        }
    }

    #[test]
    fn a_connections_row_has_every_cell_of_its_summary() {
        let body = SummaryBody::columns();
        let mut listed: Vec<usize> = SUMMARY_ORDER.clone();
        listed.sort_unstable();
        let events = PROBLEM_EVENTS.iter().zip(Problem::ALL);
        let uncounted = events.filter(|(_, p)| !p.has_events());
        let uncounted: BTreeSet<_> = uncounted.map(|(name, _)| *name).collect();
        let expected: Vec<usize> = (0..body.len())
            .filter(|i| !uncounted.contains(body[*i].name))
            .collect();
        assert_eq!(listed, expected);
    }

    /// Computed by another program from the definition: the numbers join files of all versions to come.
    #[test]
    fn connection_numbers_stay() {
        let id = ConnectionId {
            boot_id: 0,
            netns: 0,
            cookie: 0,
            start: slowpath_model::MonoNanos(0),
        };
        assert_eq!(connection_number(&id), 4_347_993_774_885_956_143);
        let id = ConnectionId {
            boot_id: 0x5f3c_9a01_77e2_4bd1_8c55_3e01_9f2b_6d70,
            netns: 4_026_531_840,
            cookie: 81_234,
            start: slowpath_model::MonoNanos(86_400_123_456_789),
        };
        assert_eq!(connection_number(&id), 3_076_574_248_729_169_123);
    }

    #[test]
    fn the_document_lists_every_table_and_column() {
        let document = include_str!("../../../docs/reference/log-format.md");
        for (name, text) in describe() {
            let title = format!("\n## {name}\n");
            let from = document.find(&title);
            let section = &document[from.expect("the table has a section") + title.len()..];
            let section = &section[..section.find("\n## ").unwrap_or(section.len())];
            let table = TABLES.iter().find(|t| t.name == name).expect("is listed");
            let sentence = format!("One row is {}", table.meaning);
            assert!(section.contains(&sentence), "{name}: {sentence}");
            assert!(
                section.contains(&text),
                "{name}: the table differs from the declarations; run `cargo run -p slowpath-store --example columns`"
            );
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Rows of each table of the log. Column names carry their units. A column keeps its name and
//! meaning; later versions may add columns, so readers must select by name.

use crate::redaction::Redaction;
use crate::table::{Field, Row};
use serde_json::{Value, json};
use slowpath_model::{
    ConnectionId, ConnectionSummary, Coverage, Deltas, Finding, FourTuple, ListenerDeltas,
    ListenerId, ListenerInterval, LossCounters, Micros, MonoNanos, Owner, Problem, ProblemInterval,
    ProblemSet, Tier, UnknownOwner, WallMicros,
};
use slowpath_text::{evidence, wall};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

/// A row being built.
struct Cells<'a>(Row<'a>);

impl<'a> Cells<'a> {
    /// Room for the cells of every table.
    const ROOM: usize = 96;

    fn new() -> Self {
        Cells(Vec::with_capacity(Self::ROOM))
    }

    fn put(&mut self, name: &'static str, value: impl Into<Field<'a>>) {
        self.0.push((name, value.into()));
    }

    fn id(&mut self, id: &ConnectionId, redaction: &Redaction) {
        self.put("boot_id", redaction.name(&format!("{:032x}", id.boot_id)));
        self.put("netns", id.netns);
        self.put("cookie", id.cookie);
        self.put("start_ns", id.start.0);
    }

    fn end(&mut self, names: [&'static str; 2], end: Option<SocketAddr>, redaction: &Redaction) {
        self.put(names[0], end.map(|e| redaction.address(e.ip())));
        self.put(names[1], end.map(|e| e.port()));
    }

    fn ends(&mut self, tuple: Option<FourTuple>, real: Option<SocketAddr>, redaction: &Redaction) {
        self.end(LOCAL, tuple.map(|t| t.local), redaction);
        let remote = ["remote_address", "remote_port"];
        self.end(remote, tuple.map(|t| t.remote), redaction);
        self.end(["real_peer_address", "real_peer_port"], real, redaction);
    }

    fn owner(&mut self, owner: &'a Owner, redaction: &Redaction) {
        let process = owner.process();
        let text = |text: Option<&Arc<str>>| text.and_then(|t| redaction.text(t));
        let name = |name: Option<&Arc<str>>| name.map(|n| redaction.name(n));
        self.put("pid", owner.pid());
        self.put("command", owner.command().map(|c| &**c));
        self.put("application", owner.application.as_deref());
        let executable = process.and_then(|p| p.executable.as_ref());
        self.put("executable", text(executable));
        let line = process.and_then(|p| p.command_line.as_ref());
        self.put("command_line", text(line));
        self.put("unit", name(owner.unit()));
        self.put("container", name(owner.container().map(|c| &c.id)));
        self.put("pod", name(owner.pod()));
        let unknown = owner.why_unknown().map(UnknownOwner::name);
        self.put("owner_unknown", unknown);
    }

    fn findings(&mut self, findings: &[Finding], unmeasured: ProblemSet, interval: Micros) {
        let found = || findings.iter().map(|f| f.problem);
        let times = findings
            .iter()
            .map(|f| (f.problem, f.share.time_of(interval)));
        self.put("dominating", Problem::dominating(times).name());
        self.put("problems", names(found()));
        self.put("unmeasured", names(unmeasured.iter()));
    }

    /// Time and events of each problem; the last columns, because later versions may know more
    /// problems.
    fn problems(&mut self, of: impl Fn(Problem) -> (Option<Micros>, Option<u64>)) {
        for problem in Problem::ALL.into_iter().filter(|p| !p.is_of_listener()) {
            let (time, events) = of(problem);
            self.problem(problem, time, events);
        }
    }

    fn problem(&mut self, problem: Problem, time: Option<Micros>, events: Option<u64>) {
        let [time_name, events_name] = &PROBLEM_COLUMNS[problem as usize];
        self.put(time_name, micros(time));
        if problem.has_events() {
            self.put(events_name, events);
        }
    }
}

const LOCAL: [&str; 2] = ["local_address", "local_port"];

/// The columns of each problem's time and events, by its number.
static PROBLEM_COLUMNS: LazyLock<Vec<[String; 2]>> = LazyLock::new(|| {
    let columns = |problem: Problem| {
        let name = snake(problem.name());
        [format!("{name}_time_us"), format!("{name}_events")]
    };
    Problem::ALL.into_iter().map(columns).collect()
});

fn names(problems: impl Iterator<Item = Problem>) -> String {
    let mut names = String::new();
    for problem in problems {
        if !names.is_empty() {
            names.push(' ');
        }
        names.push_str(problem.name());
    }
    names
}

/// A word as JSON has it.
fn word(value: Value) -> Field<'static> {
    match value {
        Value::String(word) => word.into(),
        _ => Field::Null,
    }
}

fn column_names(row: Row<'_>) -> Vec<&'static str> {
    row.into_iter().map(|(name, _)| name).collect()
}

/// `SendBufferLimited` as `send_buffer_limited`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for (i, c) in name.char_indices() {
        if c.is_ascii_uppercase() && i > 0 {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// Time and events of a problem: zero if it was not found, nothing if it was not measured.
fn found(
    findings: &[Finding],
    unmeasured: ProblemSet,
    interval: Micros,
    problem: Problem,
) -> (Option<Micros>, Option<u64>) {
    // The rest of the interval.
    if problem == Problem::SenderAppLimited {
        let others = findings.iter().map(|f| f.share.time_of(interval));
        let taken = others.fold(Micros::ZERO, |sum, time| sum + time);
        return (Some(interval.saturating_sub(taken)), None);
    }
    match findings.iter().find(|f| f.problem == problem) {
        Some(f) => (Some(f.share.time_of(interval)), f.events),
        None if unmeasured.contains(problem) => (None, None),
        None => (Some(Micros::ZERO), Some(0)),
    }
}

/// A row of the table of intervals.
pub fn interval<'a>(
    interval: &'a ProblemInterval,
    ends: Option<(FourTuple, Option<SocketAddr>)>,
    owner: &'a Owner,
    redaction: &Redaction,
) -> Row<'a> {
    let ProblemInterval {
        connection,
        end,
        duration,
        findings,
        unmeasured,
        deltas,
    } = interval;
    let mut cells = Cells::new();
    cells.put("end", wall(*end));
    cells.put("duration_us", duration.0);
    cells.id(connection, redaction);
    cells.ends(ends.map(|e| e.0), ends.and_then(|e| e.1), redaction);
    cells.owner(owner, redaction);
    cells.findings(findings, *unmeasured, *duration);
    for (name, value) in evidence::cells(deltas) {
        cells.put(name, value);
    }
    cells.problems(|p| found(findings, *unmeasured, *duration, p));
    cells.0
}

/// The columns of the table of intervals.
pub fn interval_columns() -> Vec<&'static str> {
    let nothing = ProblemInterval {
        connection: NO_CONNECTION,
        end: WallMicros(0),
        duration: Micros::ZERO,
        findings: Vec::new(),
        unmeasured: ProblemSet::EMPTY,
        deltas: Deltas::default(),
    };
    column_names(interval(&nothing, None, &NO_OWNER, &Redaction::NOTHING))
}

const NO_CONNECTION: ConnectionId = ConnectionId {
    boot_id: 0,
    netns: 0,
    cookie: 0,
    start: MonoNanos(0),
};

static NO_OWNER: LazyLock<Owner> = LazyLock::new(Owner::default);

/// A row of the table of connections.
pub fn summary<'a>(summary: &'a ConnectionSummary, redaction: &Redaction) -> Row<'a> {
    summary_or_names(Some(summary), redaction)
}

/// The columns of the table of connections.
pub fn summary_columns() -> Vec<&'static str> {
    column_names(summary_or_names(None, &Redaction::NOTHING))
}

/// Makes a cell of a record.
type FieldOf<T> = fn(&T) -> Field<'_>;

fn summary_or_names<'a>(summary: Option<&'a ConnectionSummary>, redaction: &Redaction) -> Row<'a> {
    let mut cells = Cells::new();
    let put_all = |cells: &mut Cells<'a>,
                   columns: &[(&'static str, FieldOf<ConnectionSummary>)]| {
        for (name, of) in columns {
            cells.put(name, summary.map_or(Field::Null, of));
        }
    };
    put_all(
        &mut cells,
        &[
            ("first_seen", |s| wall(s.first_observed).into()),
            ("last_seen", |s| wall(s.last_observed).into()),
            ("closed", |s| s.closed.into()),
            ("observed_us", |s| s.observed.0.into()),
            ("polls", |s| s.polls.into()),
        ],
    );
    cells.id(summary.map_or(&NO_CONNECTION, |s| &s.connection), redaction);
    cells.ends(
        summary.map(|s| s.tuple),
        summary.and_then(|s| s.real_peer),
        redaction,
    );
    cells.owner(summary.map_or(&NO_OWNER, |s| &s.owner), redaction);
    put_all(
        &mut cells,
        &[
            ("origin", |s| word(json!(s.origin))),
            ("tier", |s| word(json!(s.tier))),
            ("state", |s| word(json!(s.stats.state))),
            ("unmeasured", |s| names(s.unmeasured.iter()).into()),
            ("bytes_sent", |s| s.stats.bytes_sent.into()),
            ("bytes_acked", |s| s.stats.bytes_acked.into()),
            ("bytes_received", |s| s.stats.bytes_received.into()),
            ("bytes_written", |s| s.bytes_written.into()),
            ("writes", |s| s.writes.into()),
            ("bytes_read", |s| s.bytes_read.into()),
            ("reads", |s| s.reads.into()),
            ("data_segments_out", |s| s.stats.data_segments_out.into()),
            ("data_segments_in", |s| s.stats.data_segments_in.into()),
            ("retransmitted_segments", |s| s.stats.retransmitted.into()),
            ("cwnd_segments", |s| s.stats.cwnd.into()),
            ("send_mss_bytes", |s| s.stats.send_mss.into()),
            ("srtt_us", |s| micros(s.stats.srtt).into()),
            ("min_rtt_us", |s| micros(s.stats.min_rtt).into()),
            ("busy_us", |s| micros(s.stats.busy).into()),
            ("rwnd_limited_us", |s| micros(s.stats.rwnd_limited).into()),
            ("sndbuf_limited_us", |s| {
                micros(s.stats.sndbuf_limited).into()
            }),
        ],
    );
    cells.problems(|p| {
        let Some(s) = summary else {
            return (None, None);
        };
        let (time, events) = (s.problem_time[p as usize], s.problem_events[p as usize]);
        // What could not be measured in some interval and was found in none is not known.
        let known = !s.unmeasured.contains(p) || time > Micros::ZERO || events > 0;
        (known.then_some(time), known.then_some(events))
    });
    cells.0
}

fn micros(time: Option<Micros>) -> Option<u64> {
    time.map(|t| t.0)
}

/// The columns of the table of coverage.
pub fn coverage_columns() -> Vec<&'static str> {
    column_names(coverage(&Coverage::default()))
}

/// A row of the table of coverage.
pub fn coverage(c: &Coverage) -> Row<'static> {
    let LossCounters {
        storage_failed,
        snapshots_dropped,
        closes_dropped,
        calls_dropped,
        records_dropped,
    } = c.losses;
    let mut cells = Cells::new();
    cells.put("end", wall(c.end));
    for (name, value) in [
        ("duration_us", c.duration.0),
        ("polls", c.polls),
        ("sockets", c.sockets),
        ("missed", c.missed),
        ("repeats", c.repeats),
        ("emitted", c.emitted),
        ("opened", c.opened),
        ("closed", c.closed),
        ("cpu_us", c.cpu.0),
        ("lost_storage_failed", storage_failed),
        ("lost_snapshots_dropped", snapshots_dropped),
        ("lost_closes_dropped", closes_dropped),
        ("lost_calls_dropped", calls_dropped),
        ("lost_records_dropped", records_dropped),
        ("owners_unknown", c.owners_unknown),
    ] {
        cells.put(name, value);
    }
    cells.put("unmeasured", names(c.unmeasured.iter()));
    for (reason, name) in UnknownOwner::ALL.into_iter().zip(&*UNKNOWN_COLUMNS) {
        cells.put(name, c.unknown_owners.of(reason));
    }
    cells.0
}

/// The columns that count unknown owners, in the order of their reasons.
static UNKNOWN_COLUMNS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let column = |reason: UnknownOwner| format!("owners_unknown_{}", reason.name());
    UnknownOwner::ALL.into_iter().map(column).collect()
});

/// A row of the table of listeners.
pub fn listener<'a>(interval: &'a ListenerInterval, redaction: &Redaction) -> Row<'a> {
    let mut cells = Cells::new();
    cells.put("end", wall(interval.end));
    cells.put("duration_us", interval.duration.0);
    let ListenerId {
        boot_id,
        netns,
        cookie,
    } = interval.listener;
    cells.put("boot_id", redaction.name(&format!("{boot_id:032x}")));
    cells.put("netns", netns);
    cells.put("cookie", cookie);
    cells.end(LOCAL, Some(interval.local), redaction);
    cells.owner(&interval.owner, redaction);
    cells.findings(&interval.findings, interval.unmeasured, interval.duration);
    for p in Problem::ALL.into_iter().filter(|p| p.is_of_listener()) {
        let (findings, unmeasured) = (&interval.findings, interval.unmeasured);
        let (time, events) = found(findings, unmeasured, interval.duration, p);
        cells.problem(p, time, events);
    }
    cells.0
}

/// The columns of the table of listeners.
pub fn listener_columns() -> Vec<&'static str> {
    let nothing = ListenerInterval {
        listener: ListenerId {
            boot_id: 0,
            netns: 0,
            cookie: 0,
        },
        local: SocketAddr::from(([0, 0, 0, 0], 0)),
        owner: Owner::default(),
        tier: Tier::Bpf,
        end: WallMicros(0),
        duration: Micros::ZERO,
        findings: Vec::new(),
        unmeasured: ProblemSet::EMPTY,
        deltas: ListenerDeltas::default(),
    };
    column_names(listener(&nothing, &Redaction::NOTHING))
}

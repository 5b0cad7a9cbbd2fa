// SPDX-License-Identifier: Apache-2.0
//! Rows of each table of the log. Column names carry their units. A column keeps its name and
//! meaning; later versions may add columns, so readers must select by name.

use crate::redaction::Redaction;
use crate::table::Row;
use serde_json::{Value, json};
use slowpath_model::{
    ConnectionId, ConnectionSummary, Coverage, Deltas, Finding, FourTuple, ListenerDeltas,
    ListenerId, ListenerInterval, LossCounters, Micros, MonoNanos, Owner, Problem, ProblemInterval,
    ProblemSet, Tier, UnknownOwner, WallMicros,
};
use slowpath_text::{evidence, wall};
use std::net::SocketAddr;

/// A row being built.
#[derive(Default)]
struct Cells(Row);

impl Cells {
    fn put(&mut self, name: &str, value: Value) {
        self.0.push((name.to_owned(), value));
    }

    fn id(&mut self, id: &ConnectionId, redaction: &Redaction) {
        self.put(
            "boot_id",
            json!(redaction.name(&format!("{:032x}", id.boot_id))),
        );
        self.put("netns", json!(id.netns));
        self.put("cookie", json!(id.cookie));
        self.put("start_ns", json!(id.start.0));
    }

    fn end(&mut self, which: &str, end: Option<SocketAddr>, redaction: &Redaction) {
        let address = end.map(|e| redaction.address(e.ip()));
        self.put(&format!("{which}_address"), json!(address));
        self.put(&format!("{which}_port"), json!(end.map(|e| e.port())));
    }

    fn ends(&mut self, tuple: Option<FourTuple>, real: Option<SocketAddr>, redaction: &Redaction) {
        self.end("local", tuple.map(|t| t.local), redaction);
        self.end("remote", tuple.map(|t| t.remote), redaction);
        self.end("real_peer", real, redaction);
    }

    fn owner(&mut self, owner: &Owner, redaction: &Redaction) {
        let process = owner.process();
        let text = |text: Option<&std::sync::Arc<str>>| text.and_then(|t| redaction.text(t));
        let name = |name: Option<&std::sync::Arc<str>>| name.map(|n| redaction.name(n));
        self.put("pid", json!(owner.pid()));
        self.put("command", json!(owner.command()));
        self.put("application", json!(owner.application));
        let executable = process.and_then(|p| p.executable.as_ref());
        self.put("executable", json!(text(executable)));
        let line = process.and_then(|p| p.command_line.as_ref());
        self.put("command_line", json!(text(line)));
        self.put("unit", json!(name(owner.unit())));
        self.put("container", json!(name(owner.container().map(|c| &c.id))));
        self.put("pod", json!(name(owner.pod())));
        let unknown = owner.why_unknown().map(UnknownOwner::name);
        self.put("owner_unknown", json!(unknown));
    }

    fn findings(&mut self, findings: &[Finding], unmeasured: ProblemSet, interval: Micros) {
        let found = || findings.iter().map(|f| f.problem);
        let times = findings
            .iter()
            .map(|f| (f.problem, f.share.time_of(interval)));
        self.put("dominating", json!(Problem::dominating(times).name()));
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
        let name = snake(problem.name());
        self.put(&format!("{name}_time_us"), micros(time));
        if problem.has_events() {
            self.put(&format!("{name}_events"), json!(events));
        }
    }

    /// The keys of a JSON object, alphabetically.
    fn object(&mut self, object: Value) {
        if let Value::Object(map) = object {
            self.0.extend(map);
        }
    }
}

fn names(problems: impl Iterator<Item = Problem>) -> Value {
    let names: Vec<&str> = problems.map(Problem::name).collect();
    json!(names.join(" "))
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
pub fn interval(
    interval: &ProblemInterval,
    ends: Option<(FourTuple, Option<SocketAddr>)>,
    owner: &Owner,
    redaction: &Redaction,
) -> Row {
    let ProblemInterval {
        connection,
        end,
        duration,
        findings,
        unmeasured,
        deltas,
    } = interval;
    let mut cells = Cells::default();
    cells.put("end", json!(wall(*end)));
    cells.put("duration_us", json!(duration.0));
    cells.id(connection, redaction);
    cells.ends(ends.map(|e| e.0), ends.and_then(|e| e.1), redaction);
    cells.owner(owner, redaction);
    cells.findings(findings, *unmeasured, *duration);
    cells.object(evidence::json(deltas));
    cells.problems(|p| found(findings, *unmeasured, *duration, p));
    cells.0
}

/// The columns of the table of intervals.
pub fn interval_columns() -> Row {
    let nothing = ProblemInterval {
        connection: NO_CONNECTION,
        end: WallMicros(0),
        duration: Micros::ZERO,
        findings: Vec::new(),
        unmeasured: ProblemSet::EMPTY,
        deltas: Deltas::default(),
    };
    interval(&nothing, None, &Owner::default(), &Redaction::NOTHING)
}

const NO_CONNECTION: ConnectionId = ConnectionId {
    boot_id: 0,
    netns: 0,
    cookie: 0,
    start: MonoNanos(0),
};

/// A row of the table of connections.
pub fn summary(summary: &ConnectionSummary, redaction: &Redaction) -> Row {
    summary_or_names(Some(summary), redaction)
}

/// The columns of the table of connections.
pub fn summary_columns() -> Row {
    summary_or_names(None, &Redaction::NOTHING)
}

/// Makes a cell of a record.
type CellOf<T> = fn(&T) -> Value;

fn summary_or_names(summary: Option<&ConnectionSummary>, redaction: &Redaction) -> Row {
    let mut cells = Cells::default();
    let put_all = |cells: &mut Cells, columns: &[(&str, CellOf<ConnectionSummary>)]| {
        for (name, of) in columns {
            cells.put(name, summary.map_or(Value::Null, of));
        }
    };
    put_all(
        &mut cells,
        &[
            ("first_seen", |s| json!(wall(s.first_observed))),
            ("last_seen", |s| json!(wall(s.last_observed))),
            ("closed", |s| json!(s.closed)),
            ("observed_us", |s| json!(s.observed.0)),
            ("polls", |s| json!(s.polls)),
        ],
    );
    cells.id(summary.map_or(&NO_CONNECTION, |s| &s.connection), redaction);
    cells.ends(
        summary.map(|s| s.tuple),
        summary.and_then(|s| s.real_peer),
        redaction,
    );
    let owner = summary.map_or_else(Owner::default, |s| s.owner.clone());
    cells.owner(&owner, redaction);
    put_all(
        &mut cells,
        &[
            ("origin", |s| json!(s.origin)),
            ("tier", |s| json!(s.tier)),
            ("state", |s| json!(s.stats.state)),
            ("unmeasured", |s| names(s.unmeasured.iter())),
            ("bytes_sent", |s| json!(s.stats.bytes_sent)),
            ("bytes_acked", |s| json!(s.stats.bytes_acked)),
            ("bytes_received", |s| json!(s.stats.bytes_received)),
            ("bytes_written", |s| json!(s.bytes_written)),
            ("writes", |s| json!(s.writes)),
            ("bytes_read", |s| json!(s.bytes_read)),
            ("reads", |s| json!(s.reads)),
            ("data_segments_out", |s| json!(s.stats.data_segments_out)),
            ("data_segments_in", |s| json!(s.stats.data_segments_in)),
            ("retransmitted_segments", |s| json!(s.stats.retransmitted)),
            ("cwnd_segments", |s| json!(s.stats.cwnd)),
            ("send_mss_bytes", |s| json!(s.stats.send_mss)),
            ("srtt_us", |s| micros(s.stats.srtt)),
            ("min_rtt_us", |s| micros(s.stats.min_rtt)),
            ("busy_us", |s| micros(s.stats.busy)),
            ("rwnd_limited_us", |s| micros(s.stats.rwnd_limited)),
            ("sndbuf_limited_us", |s| micros(s.stats.sndbuf_limited)),
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

fn micros(time: Option<Micros>) -> Value {
    json!(time.map(|t| t.0))
}

/// A row of the table of coverage.
pub fn coverage(c: &Coverage) -> Row {
    let LossCounters {
        storage_failed,
        snapshots_dropped,
        closes_dropped,
        calls_dropped,
        records_dropped,
    } = c.losses;
    let mut cells = Cells::default();
    cells.put("end", json!(wall(c.end)));
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
        cells.put(name, json!(value));
    }
    cells.put("unmeasured", names(c.unmeasured.iter()));
    for reason in UnknownOwner::ALL {
        let name = format!("owners_unknown_{}", reason.name());
        cells.put(&name, json!(c.unknown_owners.of(reason)));
    }
    cells.0
}

/// A row of the table of listeners.
pub fn listener(interval: &ListenerInterval, redaction: &Redaction) -> Row {
    let mut cells = Cells::default();
    cells.put("end", json!(wall(interval.end)));
    cells.put("duration_us", json!(interval.duration.0));
    let ListenerId {
        boot_id,
        netns,
        cookie,
    } = interval.listener;
    cells.put("boot_id", json!(redaction.name(&format!("{boot_id:032x}"))));
    cells.put("netns", json!(netns));
    cells.put("cookie", json!(cookie));
    cells.end("local", Some(interval.local), redaction);
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
pub fn listener_columns() -> Row {
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
    listener(&nothing, &Redaction::NOTHING)
}

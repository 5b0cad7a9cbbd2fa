// SPDX-License-Identifier: Apache-2.0
//! Every metric that is exported, made of a [`State`].
//!
//! Names follow OpenTelemetry; the Prometheus name is what OpenTelemetry's translation
//! ("Prometheus and OpenMetrics Compatibility") makes of them, dots to underscores, then
//! unit, then `_total`: a query fits both ways. The `process` metrics alone have in each
//! world the name that this world gives them.

use crate::family::{Family, Kind, Label, Unit, Value};
use crate::http::HttpCounters;
use crate::push::PushCounters;
use crate::state::{LogState, State};
use slowpath_agent::{BudgetState, Charges, OTHER};
use slowpath_model::{LossCounters, Micros, Problem, Tier, UnknownOwner};

/// All metrics, in a fixed order; their points in a fixed order.
pub fn families(state: &State, http: &HttpCounters, push: &PushCounters) -> Vec<Family> {
    let mut all = vec![build(state)];
    connections(state, &mut all);
    problems(state, &mut all);
    applications(state, &mut all);
    traffic(state, &mut all);
    cost(state, &mut all);
    if let Some(budget) = &state.budget {
        budget_state(budget, &mut all);
    }
    knowledge(state, &mut all);
    if let Some(log) = &state.log {
        log_state(log, &mut all);
    }
    exporters(http, push, &mut all);
    process(state, &mut all);
    all
}

const CONNECTION: Unit = Unit::Count("{connection}");

/// Yes or no.
const FLAG: Unit = Unit::Count("{flag}");

/// A metric without points yet. The arguments are in the order of what is written.
fn family(
    kind: Kind,
    unit: Unit,
    name: &'static str,
    prometheus: &'static str,
    help: &'static str,
) -> Family {
    Family {
        name,
        prometheus,
        kind,
        unit,
        help,
        points: Vec::new(),
    }
}

fn seconds(time: Micros) -> Value {
    Value::Number(time.as_secs_f64())
}

fn flag(yes: bool) -> Value {
    Value::Count(u64::from(yes))
}

fn tier(tier: Tier) -> &'static str {
    match tier {
        Tier::Bpf => "bpf",
        Tier::InetDiag => "inet_diag",
        Tier::Imported => "imported",
    }
}

fn build(state: &State) -> Family {
    let labels = vec![
        Label::new("version", state.version),
        Label::new("tier", tier(state.tier)),
    ];
    family(
        Kind::Info,
        FLAG,
        "slowpath.build",
        "slowpath_build_info",
        "Version of the agent and the kernel tier it uses.",
    )
    .with_all([(labels, Value::Count(1))])
}

fn connections(state: &State, all: &mut Vec<Family>) {
    all.push(
        family(
            Kind::UpDown,
            CONNECTION,
            "slowpath.connections",
            "slowpath_connections",
            "TCP connections that live, by the last poll.",
        )
        .with(Value::Count(state.polls.sockets)),
    );
    let opened = state.turnover.opened.map(|n| (vec![], Value::Count(n)));
    all.push(
        family(
            Kind::Counter,
            CONNECTION,
            "slowpath.connections.opened",
            "slowpath_connections_opened_total",
            "TCP connections opened; absent where the tier cannot tell.",
        )
        .with_all(opened),
    );
    all.push(
        family(
            Kind::Counter,
            CONNECTION,
            "slowpath.connections.closed",
            "slowpath_connections_closed_total",
            "TCP connections closed.",
        )
        .with(Value::Count(state.turnover.closed)),
    );
    all.push(
        family(
            Kind::Counter,
            Unit::Seconds,
            "slowpath.connections.observed",
            "slowpath_connections_observed_seconds_total",
            "Time that connections were observed, summed over them.",
        )
        .with(seconds(state.accounts.totals.observed)),
    );
}

fn problem(problem: Problem) -> Label {
    Label::new("problem", problem.name())
}

fn problems(state: &State, all: &mut Vec<Family>) {
    let totals = &state.accounts.totals;
    let time = |p: Problem| totals.problem_time[p as usize];
    let events = |p: Problem| totals.problem_events[p as usize];
    // What cannot be measured has no sample, unless it was seen all the same.
    let known =
        |p: &Problem| !state.unmeasured.contains(*p) || time(*p) > Micros::ZERO || events(*p) > 0;
    all.push(
        family(
            Kind::Counter,
            Unit::Seconds,
            "slowpath.problem.time",
            "slowpath_problem_time_seconds_total",
            "Time that connections had the problem, summed over them.",
        )
        .with_all(
            Problem::ALL
                .into_iter()
                .filter(known)
                .map(|p| (vec![problem(p)], seconds(time(p)))),
        ),
    );
    all.push(
        family(
            Kind::Counter,
            Unit::Count("{event}"),
            "slowpath.problem.events",
            "slowpath_problem_events_total",
            "Events of the problem: recoveries, timer expirations, delayed ACKs and the like.",
        )
        .with_all(
            Problem::ALL
                .into_iter()
                .filter(known)
                .filter(|p| p.has_events())
                .map(|p| (vec![problem(p)], Value::Count(events(p)))),
        ),
    );
    all.push(
        family(
            Kind::Gauge,
            FLAG,
            "slowpath.problem.unmeasured",
            "slowpath_problem_unmeasured",
            "1 for a problem that this tier on this kernel cannot measure.",
        )
        .with_all(
            Problem::ALL
                .into_iter()
                .map(|p| (vec![problem(p)], flag(state.unmeasured.contains(p)))),
        ),
    );
}

fn applications(state: &State, all: &mut Vec<Family>) {
    let applications = &state.accounts.applications;
    let mut named: Vec<(&str, &Charges)> = applications.named().collect();
    named.sort_unstable_by_key(|(name, _)| *name);
    named.push((OTHER, applications.other()));
    let each = |wanted: &dyn Fn(&Charges, Problem) -> Option<Value>| {
        let mut points = Vec::new();
        for (name, charges) in &named {
            for p in Problem::ALL {
                if let Some(value) = wanted(charges, p) {
                    points.push((vec![Label::new("application", *name), problem(p)], value));
                }
            }
        }
        points
    };
    all.push(
        family(
            Kind::Counter,
            Unit::Seconds,
            "slowpath.application.problem.time",
            "slowpath_application_problem_time_seconds_total",
            "Time that connections of the application had the problem.",
        )
        .with_all(each(&|charges, p| {
            let time = charges.time[p as usize];
            (time > Micros::ZERO).then(|| seconds(time))
        })),
    );
    all.push(
        family(
            Kind::Counter,
            Unit::Count("{event}"),
            "slowpath.application.problem.events",
            "slowpath_application_problem_events_total",
            "Events of the problem in connections of the application.",
        )
        .with_all(each(&|charges, p| {
            let events = charges.events[p as usize];
            (events > 0).then_some(Value::Count(events))
        })),
    );
    let label = Unit::Count("{label}");
    all.push(
        family(
            Kind::Gauge,
            label,
            "slowpath.application.labels",
            "slowpath_application_labels",
            "Applications that have a label of their own.",
        )
        .with(Value::Count(applications.named().len() as u64)),
    );
    all.push(
        family(
            Kind::Gauge,
            label,
            "slowpath.application.labels.limit",
            "slowpath_application_labels_limit",
            "Applications that can have a label of their own.",
        )
        .with(Value::Count(applications.limit() as u64)),
    );
    all.push(
        family(
            Kind::Counter,
            label,
            "slowpath.application.labels.dropped",
            "slowpath_application_labels_dropped_total",
            "Times that a problem went to the application other for want of a label.",
        )
        .with(Value::Count(applications.folded())),
    );
}

fn traffic(state: &State, all: &mut Vec<Family>) {
    let traffic = &state.accounts.traffic;
    let segment = Unit::Count("{segment}");
    for (unit, name, prometheus, help, value) in [
        (
            Unit::Bytes,
            "slowpath.acknowledged",
            "slowpath_acknowledged_bytes_total",
            "Payload that peers acknowledged.",
            traffic.bytes_acked,
        ),
        (
            Unit::Bytes,
            "slowpath.received",
            "slowpath_received_bytes_total",
            "Payload received.",
            traffic.bytes_received,
        ),
        (
            segment,
            "slowpath.segments.sent",
            "slowpath_segments_sent_total",
            "Segments with payload sent, those sent again included.",
            traffic.segments_sent,
        ),
        (
            segment,
            "slowpath.segments.retransmitted",
            "slowpath_segments_retransmitted_total",
            "Segments sent again.",
            traffic.segments_retransmitted,
        ),
    ] {
        all.push(family(Kind::Counter, unit, name, prometheus, help).with(Value::Count(value)));
    }
    all.push(
        family(
            Kind::Histogram,
            Unit::Seconds,
            "slowpath.rtt",
            "slowpath_rtt_seconds",
            "Smoothed RTT of each connection at each poll that found it changed.",
        )
        .with(Value::Histogram(state.accounts.rtt.clone())),
    );
}

fn cost(state: &State, all: &mut Vec<Family>) {
    let polls = &state.polls;
    let (poll, snapshot) = (Unit::Count("{poll}"), Unit::Count("{snapshot}"));
    for (unit, name, prometheus, help, value) in [
        (
            poll,
            "slowpath.polls",
            "slowpath_polls_total",
            "Polls that succeeded.",
            polls.done,
        ),
        (
            poll,
            "slowpath.polls.failed",
            "slowpath_polls_failed_total",
            "Polls that failed.",
            polls.failed,
        ),
        (
            snapshot,
            "slowpath.snapshots",
            "slowpath_snapshots_total",
            "Connections that polls handed over because something had changed.",
            polls.emitted,
        ),
        (
            snapshot,
            "slowpath.snapshots.repeated",
            "slowpath_snapshots_repeated_total",
            "Connections that polls met twice and counted once.",
            polls.repeats,
        ),
    ] {
        all.push(family(Kind::Counter, unit, name, prometheus, help).with(Value::Count(value)));
    }
    all.push(
        family(
            Kind::Counter,
            Unit::Seconds,
            "slowpath.poll.cpu.time",
            "slowpath_poll_cpu_time_seconds_total",
            "CPU time of the polls, user and system.",
        )
        .with(seconds(polls.cpu)),
    );
    all.push(
        family(
            Kind::Histogram,
            Unit::Seconds,
            "slowpath.poll.duration",
            "slowpath_poll_duration_seconds",
            "Wall time of a poll.",
        )
        .with(Value::Histogram(polls.duration.clone())),
    );
}

fn budget_state(budget: &BudgetState, all: &mut Vec<Family>) {
    let gauge = |unit, name, prometheus, help| family(Kind::Gauge, unit, name, prometheus, help);
    let bounds = [("low", budget.budget.low()), ("high", budget.budget.high())];
    all.push(
        gauge(
            Unit::One,
            "slowpath.cpu.budget",
            "slowpath_cpu_budget_ratio",
            "CPU that the agent may use, as a share of one core.",
        )
        .with_all(bounds.map(|(b, share)| (vec![Label::new("bound", b)], Value::Number(share)))),
    );
    let used = [("process", Some(budget.used)), ("programs", budget.events)];
    let used = used
        .into_iter()
        .filter_map(|(by, share)| Some((vec![Label::new("by", by)], Value::Number(share?))));
    all.push(
        gauge(
            Unit::One,
            "slowpath.cpu.used",
            "slowpath_cpu_used_ratio",
            "CPU used in the past seconds, by this process and by its BPF programs elsewhere.",
        )
        .with_all(used),
    );
    all.push(
        gauge(
            FLAG,
            "slowpath.cpu.budget.exceeded",
            "slowpath_cpu_budget_exceeded",
            "1 while the budget cannot be met.",
        )
        .with(flag(budget.exceeded)),
    );
    let rates = [
        ("polls", budget.polls),
        ("quiet", budget.quiet_rate),
        ("problem", budget.problem_rate),
        ("worst", budget.worst_rate),
    ];
    all.push(
        gauge(
            Unit::Hertz,
            "slowpath.polling.rate",
            "slowpath_polling_rate_hertz",
            "Polls a second, and looks a second at a connection of each kind.",
        )
        .with_all(rates.map(|(of, rate)| (vec![Label::new("of", of)], Value::Number(rate)))),
    );
    all.push(
        family(
            Kind::Counter,
            Unit::Count("{poll}"),
            "slowpath.polls.left_out",
            "slowpath_polls_left_out_total",
            "Polls left out because they would have passed the budget.",
        )
        .with(Value::Count(budget.left_out)),
    );
}

/// What is not known: losses, what was missed, what cannot be seen here.
fn knowledge(state: &State, all: &mut Vec<Family>) {
    // Every field: a new one must get its name here.
    let LossCounters {
        storage_failed,
        snapshots_dropped,
        closes_dropped,
        calls_dropped,
        records_dropped,
    } = state.losses;
    let losses = [
        ("storage_failed", storage_failed),
        ("snapshots_dropped", snapshots_dropped),
        ("closes_dropped", closes_dropped),
        ("calls_dropped", calls_dropped),
        ("records_dropped", records_dropped),
    ];
    all.push(
        family(
            Kind::Counter,
            Unit::Count("{record}"),
            "slowpath.lost",
            "slowpath_lost_total",
            "What was lost on the way from the kernel to the log, by kind.",
        )
        .with_all(
            losses.map(|(kind, count)| (vec![Label::new("kind", kind)], Value::Count(count))),
        ),
    );
    let coverage = state.coverage.as_ref();
    all.push(
        family(
            Kind::UpDown,
            CONNECTION,
            "slowpath.connections.missed",
            "slowpath_connections_missed",
            "Connections alive that polls of the last minute did not meet.",
        )
        .with_all(coverage.map(|c| (vec![], Value::Count(c.missed)))),
    );
    all.push(
        family(
            Kind::UpDown,
            CONNECTION,
            "slowpath.owners.unknown",
            "slowpath_owners_unknown",
            "Connections whose owner is not known, by reason; those that closed in the last minute too.",
        )
        .with_all(coverage.into_iter().flat_map(|c| {
            UnknownOwner::ALL.map(|reason| {
                let count = c.unknown_owners.of(reason);
                (vec![Label::new("reason", reason.name())], Value::Count(count))
            })
        })),
    );
    all.push(
        family(
            Kind::Gauge,
            FLAG,
            "slowpath.feature.active",
            "slowpath_feature_active",
            "1 for a feature of the kernel that is in use, 0 for one that cannot be had.",
        )
        .with_all(
            state
                .features
                .iter()
                .map(|(name, active)| (vec![Label::new("feature", *name)], flag(*active))),
        ),
    );
}

fn log_state(log: &LogState, all: &mut Vec<Family>) {
    let status = &log.status;
    let (record, segment) = (Unit::Count("{record}"), Unit::Count("{segment}"));
    for (kind, unit, name, prometheus, help, value) in [
        (
            Kind::Counter,
            record,
            "slowpath.log.records",
            "slowpath_log_records_total",
            "Records handed to the operating system.",
            status.records_written,
        ),
        (
            Kind::UpDown,
            Unit::Bytes,
            "slowpath.log.spool",
            "slowpath_log_spool_bytes",
            "Records that are not in Parquet yet.",
            status.spool_bytes,
        ),
        (
            Kind::Counter,
            Unit::Bytes,
            "slowpath.log.parquet",
            "slowpath_log_parquet_bytes_total",
            "Parquet written.",
            status.parquet_bytes,
        ),
        (
            Kind::UpDown,
            segment,
            "slowpath.log.segments.waiting",
            "slowpath_log_segments_waiting",
            "Segments whose conversion failed and is tried again.",
            status.segments_waiting,
        ),
        (
            Kind::Counter,
            Unit::Count("{place}"),
            "slowpath.log.unreadable",
            "slowpath_log_unreadable_total",
            "Spools set aside and damaged places in others.",
            status.unreadable,
        ),
        (
            Kind::Counter,
            Unit::Count("{partition}"),
            "slowpath.log.partitions.deleted",
            "slowpath_log_partitions_deleted_total",
            "Hours of the log that retention deleted.",
            status.hours_deleted,
        ),
    ] {
        all.push(family(kind, unit, name, prometheus, help).with(Value::Count(value)));
    }
    all.push(
        family(
            Kind::Gauge,
            FLAG,
            "slowpath.log.failing",
            "slowpath_log_failing",
            "1 while the disk refuses the log.",
        )
        .with(flag(status.last_error.is_some())),
    );
}

fn exporters(http: &HttpCounters, push: &PushCounters, all: &mut Vec<Family>) {
    let answers = http.answers();
    all.push(
        family(
            Kind::Counter,
            Unit::Count("{request}"),
            "slowpath.http.requests",
            "slowpath_http_requests_total",
            "Requests answered by the agent's own server, by status.",
        )
        .with_all(answers.map(|(status, count)| {
            (
                vec![Label::new("code", status.to_string())],
                Value::Count(count),
            )
        })),
    );
    all.push(
        family(
            Kind::Counter,
            Unit::Count("{client}"),
            "slowpath.http.clients.dropped",
            "slowpath_http_clients_dropped_total",
            "Clients sent away without an answer: too slow, or too many.",
        )
        .with(Value::Count(http.dropped())),
    );
    let pushes = push.outcomes();
    all.push(
        family(
            Kind::Counter,
            Unit::Count("{push}"),
            "slowpath.otlp.pushes",
            "slowpath_otlp_pushes_total",
            "Attempts to push metrics to a collector, by outcome.",
        )
        .with_all(
            pushes.map(|(outcome, count)| {
                (vec![Label::new("outcome", outcome)], Value::Count(count))
            }),
        ),
    );
    all.push(
        family(
            Kind::Counter,
            Unit::Count("{point}"),
            "slowpath.otlp.points.dropped",
            "slowpath_otlp_points_dropped_total",
            "Data points that no collector took.",
        )
        .with(Value::Count(push.points_dropped())),
    );
}

fn process(state: &State, all: &mut Vec<Family>) {
    let process = &state.process;
    all.push(
        family(
            Kind::Counter,
            Unit::Seconds,
            "process.cpu.time",
            "process_cpu_seconds_total",
            "CPU time of this process, user and system.",
        )
        .with(seconds(process.cpu)),
    );
    for (unit, name, prometheus, help, value) in [
        (
            Unit::Bytes,
            "process.memory.usage",
            "process_resident_memory_bytes",
            "Resident memory of this process.",
            process.resident,
        ),
        (
            Unit::Bytes,
            "process.memory.virtual",
            "process_virtual_memory_bytes",
            "Address space of this process.",
            process.virtual_memory,
        ),
        (
            Unit::Count("{file_descriptor}"),
            "process.unix.file_descriptor.count",
            "process_open_fds",
            "Files that this process has open.",
            process.open_files,
        ),
    ] {
        all.push(
            family(Kind::UpDown, unit, name, prometheus, help)
                .with_all(value.map(|v| (vec![], Value::Count(v)))),
        );
    }
    all.push(
        family(
            Kind::Gauge,
            Unit::Seconds,
            "process.start.time",
            "process_start_time_seconds",
            "When the agent started, in seconds since 1970.",
        )
        .with(Value::Number(state.started.0 as f64 / 1e6)),
    );
}

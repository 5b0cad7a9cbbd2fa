// SPDX-License-Identifier: Apache-2.0
//! What slowpath itself costs: polls, its CPU budget, its process.

use super::{FLAG, family, flag, seconds};
use crate::family::{Family, Kind, Label, Unit, Value};
use crate::state::State;
use slowpath_agent::BudgetState;

pub(super) fn cost(state: &State, all: &mut Vec<Family>) {
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

pub(super) fn budget_state(budget: &BudgetState, all: &mut Vec<Family>) {
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

pub(super) fn process(state: &State, all: &mut Vec<Family>) {
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

// SPDX-License-Identifier: Apache-2.0
//! Every metric that is exported, made of a [`State`].
//!
//! Names follow OpenTelemetry; the Prometheus name is what OpenTelemetry's translation
//! ("Prometheus and OpenMetrics Compatibility") makes of them, dots to underscores, then
//! unit, then `_total`: one query fits both. Only the `process` metrics have in each system
//! the name that its conventions give them.

mod applications;
mod cost;
mod losses;
mod recorder;
mod ship;

use crate::counters::{HttpCounters, PushCounters};
use crate::family::{Family, Kind, Label, Unit, Value};
use crate::state::State;
use slowpath_model::{Micros, Problem, Tier};

/// All metrics, in a fixed order; their points in a fixed order.
pub fn families(state: &State, http: &HttpCounters, push: &PushCounters) -> Vec<Family> {
    let mut all = vec![build(state)];
    connections(state, &mut all);
    problems(state, &mut all);
    applications::applications(state, &mut all);
    traffic(state, &mut all);
    cost::cost(state, &mut all);
    if let Some(budget) = &state.budget {
        cost::budget_state(budget, &mut all);
    }
    losses::knowledge(state, &mut all);
    if let Some(log) = &state.log {
        losses::log_state(log, &mut all);
    }
    if let Some(state) = &state.recorder {
        recorder::recorder(state, &mut all);
    }
    if let Some(status) = &state.ship {
        ship::ship(status, &mut all);
    }
    losses::exporters(http, push, &mut all);
    cost::process(state, &mut all);
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
            "TCP connections opened; absent where the tier does not report them.",
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
        .with(seconds(state.host_totals.totals.observed)),
    );
}

fn problem(problem: Problem) -> Label {
    Label::new("problem", problem.name())
}

fn problems(state: &State, all: &mut Vec<Family>) {
    let totals = &state.host_totals.totals;
    let time = |p: Problem| totals.problem_time[p as usize];
    let events = |p: Problem| totals.problem_events[p as usize];
    // What cannot be measured has no sample, unless it was observed all the same.
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
    let stage = |p: Problem| Label::new("stage", p.stage().name());
    all.push(
        family(
            Kind::Info,
            FLAG,
            "slowpath.problem",
            "slowpath_problem_info",
            "Where each problem lies, and by that who has to act.",
        )
        .with_all(Problem::ALL.map(|p| (vec![problem(p), stage(p)], Value::Count(1)))),
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

fn traffic(state: &State, all: &mut Vec<Family>) {
    let traffic = &state.host_totals.traffic;
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
        .with(Value::Histogram(state.host_totals.rtt.clone())),
    );
}

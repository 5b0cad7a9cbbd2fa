// SPDX-License-Identifier: Apache-2.0
//! What the agent does not know, how the log is written, and the exporters themselves.

use super::{CONNECTION, FLAG, family, flag};
use crate::counters::{HttpCounters, PushCounters};
use crate::family::{Family, Kind, Label, Unit, Value};
use crate::state::{LogState, State};
use slowpath_model::{LossCounters, UnknownOwner};

/// What is not known: losses, what was missed, what cannot be observed here.
pub(super) fn knowledge(state: &State, all: &mut Vec<Family>) {
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

pub(super) fn log_state(log: &LogState, all: &mut Vec<Family>) {
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

pub(super) fn exporters(http: &HttpCounters, push: &PushCounters, all: &mut Vec<Family>) {
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

// SPDX-License-Identifier: Apache-2.0
//! Shipping the log to a server: what waits, what is lost, until when the certificate is valid.

use super::{FLAG, family, flag, seconds};
use crate::family::{Family, Kind, Label, Unit, Value};
use slowpath_model::Micros;
use slowpath_ship::batch::GapReason;
use slowpath_ship::shipper::ShipStatus;

pub(super) fn ship(status: &ShipStatus, all: &mut Vec<Family>) {
    let (batch, segment) = (Unit::Count("{batch}"), Unit::Count("{segment}"));
    let queue = &status.queue;
    for (kind, unit, name, prometheus, help, value) in [
        (
            Kind::UpDown,
            Unit::Bytes,
            "slowpath.ship.waiting",
            "slowpath_ship_waiting_bytes",
            "Bytes of the log that the server does not have yet.",
            queue.waiting_bytes,
        ),
        (
            Kind::UpDown,
            Unit::Bytes,
            "slowpath.ship.kept",
            "slowpath_ship_kept_bytes",
            "Bytes of ended segments kept for the server, those that it has included.",
            queue.ship_bytes,
        ),
        (
            Kind::UpDown,
            segment,
            "slowpath.ship.conflicts",
            "slowpath_ship_conflicts",
            "Segments of which the server has other bytes; 8 stand for more.",
            queue.conflicts.len() as u64,
        ),
        (
            Kind::UpDown,
            segment,
            "slowpath.ship.newer",
            "slowpath_ship_newer",
            "Segments that the server is too old for.",
            queue.newer,
        ),
        (
            Kind::Counter,
            batch,
            "slowpath.ship.batches",
            "slowpath_ship_batches_total",
            "Batches that the server has flushed.",
            status.batches,
        ),
        (
            Kind::Counter,
            Unit::Bytes,
            "slowpath.ship.sent",
            "slowpath_ship_sent_bytes_total",
            "Bytes of them as they travelled.",
            status.sent_bytes,
        ),
        (
            Kind::Counter,
            Unit::Count("{request}"),
            "slowpath.ship.failures",
            "slowpath_ship_failures_total",
            "Requests that failed or were refused.",
            status.failures,
        ),
    ] {
        all.push(family(kind, unit, name, prometheus, help).with(Value::Count(value)));
    }
    losses(status, all);
    times(status, all);
}

fn losses(status: &ShipStatus, all: &mut Vec<Family>) {
    all.push(
        family(
            Kind::Counter,
            Unit::Bytes,
            "slowpath.ship.lost",
            "slowpath_ship_lost_bytes_total",
            "Bytes of the log that the server will never get, by reason; since this host joined.",
        )
        .with_all(GapReason::ALL.map(|reason| {
            let lost = status
                .queue
                .lost_bytes
                .get(&reason)
                .copied()
                .unwrap_or_default();
            let labels = vec![Label::new("reason", reason.as_str())];
            (labels, Value::Count(lost))
        })),
    );
    all.push(
        family(
            Kind::Gauge,
            FLAG,
            "slowpath.ship.stopped",
            "slowpath_ship_stopped",
            "1 while the server refuses this host: revoked, expired, a clone.",
        )
        .with(flag(status.stopped.is_some())),
    );
}

fn times(status: &ShipStatus, all: &mut Vec<Family>) {
    let offset = status.clock_offset;
    let microseconds = |us: i64| Value::Number(us as f64 / 1e6);
    for (name, prometheus, help, value) in [
        (
            "slowpath.ship.lag",
            "slowpath_ship_lag_seconds",
            "Age of the oldest data that the server does not have.",
            Some(seconds(Micros(status.lag_us))),
        ),
        (
            "slowpath.ship.certificate.left",
            "slowpath_ship_certificate_left_seconds",
            "Time until this host's certificate expires, negative afterwards.",
            Some(Value::Number(status.certificate_days * 86_400.0)),
        ),
        (
            "slowpath.ship.clock.offset",
            "slowpath_ship_clock_offset_seconds",
            "The server's clock less this host's.",
            offset.map(|offset| microseconds(offset.offset_us)),
        ),
        (
            "slowpath.ship.clock.error",
            "slowpath_ship_clock_error_seconds",
            "The most by which that offset is wrong.",
            offset.map(|offset| microseconds(offset.error_us.into())),
        ),
    ] {
        all.push(
            family(Kind::Gauge, Unit::Seconds, name, prometheus, help)
                .with_all(value.map(|value| (vec![], value))),
        );
    }
}

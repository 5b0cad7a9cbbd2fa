// SPDX-License-Identifier: Apache-2.0
//! The recorder inside the agent: its ring, what was kept, what was not.

use super::{CONNECTION, FLAG, family, flag, seconds};
use crate::family::{Family, Kind, Label, Unit, Value};
use slowpath_agent::RecorderState;
use slowpath_agent::ring::Counts;

pub(super) fn recorder(state: &RecorderState, all: &mut Vec<Family>) {
    // Every field: a new one must get its name here.
    let Counts {
        opened,
        one_sided,
        ended: _,
        forgotten,
        dropped_ended,
        dropped_living,
        dropped_large,
        cut_short,
        nonsense,
        unreplayable,
        asked,
        missing,
        saved,
        halves,
        refused,
        events,
        runs,
        encoded_bytes,
        encoded_runs,
    } = state.counts;
    let (event, run, file) = (
        Unit::Count("{event}"),
        Unit::Count("{run}"),
        Unit::Count("{file}"),
    );
    for (kind, unit, name, prometheus, help, value) in [
        (
            Kind::UpDown,
            Unit::Bytes,
            "slowpath.recorder.ring",
            "slowpath_recorder_ring_bytes",
            "Bytes of recorded connections held in memory.",
            state.ring_bytes,
        ),
        (
            Kind::UpDown,
            Unit::Bytes,
            "slowpath.recorder.ring.limit",
            "slowpath_recorder_ring_limit_bytes",
            "Bytes that may be held in memory.",
            state.ring_limit,
        ),
        (
            Kind::UpDown,
            CONNECTION,
            "slowpath.recorder.ring.connections",
            "slowpath_recorder_ring_connections",
            "Recorded connections held in memory.",
            state.ring_connections,
        ),
        (
            Kind::Counter,
            CONNECTION,
            "slowpath.recorder.connections",
            "slowpath_recorder_connections_total",
            "Connections recorded.",
            opened,
        ),
        (
            Kind::Counter,
            CONNECTION,
            "slowpath.recorder.alone",
            "slowpath_recorder_alone_total",
            "Connections recorded whose other end is on another machine.",
            one_sided,
        ),
        (
            Kind::Counter,
            CONNECTION,
            "slowpath.recorder.asked",
            "slowpath_recorder_asked_total",
            "Recorded connections that were asked for.",
            asked,
        ),
        (
            Kind::Counter,
            event,
            "slowpath.recorder.events",
            "slowpath_recorder_events_total",
            "Events of the kernel's recorder.",
            events,
        ),
        (
            Kind::Counter,
            event,
            "slowpath.recorder.events.lost",
            "slowpath_recorder_events_lost_total",
            "Events that the kernel could not hand over.",
            state.lost_events,
        ),
        (
            Kind::Counter,
            run,
            "slowpath.recorder.runs",
            "slowpath_recorder_runs_total",
            "Runs of TCP's handlers that were recorded.",
            runs,
        ),
        (
            Kind::Counter,
            run,
            "slowpath.recorder.runs.encoded",
            "slowpath_recorder_runs_encoded_total",
            "Runs and what they decided that were encoded.",
            encoded_runs,
        ),
        (
            Kind::Counter,
            Unit::Bytes,
            "slowpath.recorder.encoded",
            "slowpath_recorder_encoded_bytes_total",
            "Bytes of those.",
            encoded_bytes,
        ),
        (
            Kind::Counter,
            file,
            "slowpath.recorder.saved",
            "slowpath_recorder_saved_total",
            "Recordings kept as files; a connection that lives on may be kept again.",
            saved,
        ),
        (
            Kind::UpDown,
            file,
            "slowpath.recorder.files",
            "slowpath_recorder_files",
            "Recordings in the folder.",
            state.files,
        ),
        (
            Kind::UpDown,
            Unit::Bytes,
            "slowpath.recorder.files.size",
            "slowpath_recorder_files_size_bytes",
            "Bytes of the recordings in the folder.",
            state.file_bytes,
        ),
        (
            Kind::Counter,
            file,
            "slowpath.recorder.files.deleted",
            "slowpath_recorder_files_deleted_total",
            "Recordings deleted for newer ones.",
            state.files_deleted,
        ),
        (
            Kind::Counter,
            file,
            "slowpath.recorder.files.failed",
            "slowpath_recorder_files_failed_total",
            "Recordings that could not be written.",
            state.files_failed,
        ),
    ] {
        all.push(family(kind, unit, name, prometheus, help).with(Value::Count(value)));
    }
    let went = [
        ("forgotten", forgotten),
        ("dropped_ended", dropped_ended),
        ("dropped_living", dropped_living),
        ("dropped_large", dropped_large),
        ("cut_short", cut_short),
        ("nonsense", nonsense),
        ("unreplayable", unreplayable),
        ("missing", missing),
        ("one_end_only", halves),
        ("too_many", state.excess_sockets),
        ("ipv6", state.ipv6_sockets),
        ("refused", refused),
    ];
    all.push(
        family(
            Kind::Counter,
            CONNECTION,
            "slowpath.recorder.unkept",
            "slowpath_recorder_unkept_total",
            "Connections that were not kept, or not to their end, by reason.",
        )
        .with_all(
            went.map(|(reason, count)| (vec![Label::new("reason", reason)], Value::Count(count))),
        ),
    );
    all.push(
        family(
            Kind::Counter,
            Unit::Seconds,
            "slowpath.recorder.cpu.time",
            "slowpath_recorder_cpu_time_seconds_total",
            "CPU time of the thread that joins, encodes and writes; without the programs in the kernel.",
        )
        .with(seconds(state.cpu)),
    );
    all.push(
        family(
            Kind::Gauge,
            FLAG,
            "slowpath.recorder.running",
            "slowpath_recorder_running",
            "1 while connections are recorded.",
        )
        .with(flag(state.ended.is_none())),
    );
}

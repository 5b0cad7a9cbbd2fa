// SPDX-License-Identifier: Apache-2.0
//! A recording as the script that a laboratory kernel replays: twin of `lab/kernel/driver/script.h`, which says what each field means.

use super::settings::Unknown;
use slowpath_lab::virtual_time::script::{MAGIC, Record, UNCHECKED, kind};
use slowpath_lab::virtual_time::wire::{FORMAT, RawScript, RawScriptEnd, Writer};
use slowpath_recording::{Connection, Decision, Handler, Outcome, Run};
use std::ops::Range;

/// Of an option that only a replay with something changed has; its name is of `enum lab_change`.
pub(crate) const CHANGE: u16 = u16::MAX;

/// `LAB_END_UNNUMBERED`.
const UNNUMBERED: u32 = 1;

/// Some runs of one end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// The connection's place in what is replayed.
    pub place: usize,
    /// 0: the end that connected.
    pub end: u8,
    /// Which.
    pub runs: Range<u64>,
}

/// The script of some connections, in the order of the plan.
///
/// # Errors
/// Something was recorded that a laboratory kernel cannot do.
pub(crate) fn script(
    connections: &[&Connection],
    reported: Option<&Stretch>,
    stop: Option<&Stretch>,
    follow: bool,
    checked: bool,
) -> Result<Vec<u8>, Unknown> {
    let mut ends = Writer::default();
    let mut records = Writer::default();
    let mut count = 0u64;
    for (number, connection) in connections.iter().enumerate() {
        for (side, end) in connection.ends.iter().enumerate() {
            let first = count;
            let mut packets = 0;
            for run in &end.runs {
                let mut record = record(run, number as u32, side as u8, follow)?;
                if !checked {
                    record.decision = UNCHECKED;
                }
                if record.kind == kind::PACKET {
                    packets = packets.max(needed(run, &record));
                }
                record.write(&mut records);
                for outcome in decided(run) {
                    let [value, result] = outcome.numbers();
                    Record {
                        kind: kind::DECISION,
                        decision: outcome.decision().number() as u8,
                        value,
                        result,
                        ..record
                    }
                    .write(&mut records);
                }
                count += 1 + decided(run).count() as u64;
            }
            let clock = connection
                .joint
                .map_or(0, |joint| joint.clocks[side].offset);
            let flags = if connection.joint.is_some() {
                UNNUMBERED
            } else {
                0
            };
            ends.put(&RawScriptEnd {
                first,
                records: count - first,
                packets,
                digest: end.digest,
                clock: clock as u64,
                flags,
                reserved: 0,
            });
        }
    }
    let mut out = Writer::default();
    let nothing = Stretch::default();
    let of = |stretch: Option<&Stretch>| match stretch {
        Some(stretch) => [stretch.place as u32, u32::from(stretch.end)],
        None => [u32::MAX; 2],
    };
    let runs = &reported.unwrap_or(&nothing).runs;
    let ([traced_connection, traced_side], [stop_connection, stop_side]) = (of(reported), of(stop));
    out.put(&RawScript {
        magic: MAGIC,
        version: FORMAT,
        connections: connections.len() as u32,
        records: count,
        traced_connection,
        traced_side,
        traced_first: runs.start,
        traced_end: runs.end,
        stop_connection,
        stop_side,
        stop_run: stop.unwrap_or(&nothing).runs.start,
    });
    out.u8s(&ends.0);
    out.u8s(&records.0);
    Ok(out.0)
}

/// Packets of the other end up to the last one that the run needs.
fn needed(run: &Run, record: &Record) -> u32 {
    let merged = run.outcomes.iter().filter_map(|it| match it {
        Outcome::Merged { further, .. } => Some(record.value.wrapping_add(*further)),
        _ => None,
    });
    let heads: Vec<u32> = std::iter::once(record.value).chain(merged).collect();
    let further = run.outcomes.iter().filter_map(|it| match it {
        Outcome::Joined { packet, stretch } => {
            let head = *heads.get(*packet as usize)?;
            Some(head.saturating_add(stretch.further()))
        }
        _ => None,
    });
    let in_order = record.value.saturating_add(record.more.max(1) - 1);
    let all = heads.iter().copied().chain(further).chain([in_order]);
    all.max().unwrap_or(in_order).saturating_add(1)
}

/// What the kernel is given; what was observed is compared afterwards.
fn decided(run: &Run) -> impl Iterator<Item = &Outcome> {
    let all = run.outcomes.iter();
    all.filter(|outcome| outcome.decision() != Decision::Observed)
}

fn record(run: &Run, connection: u32, end: u8, follow: bool) -> Result<Record, Unknown> {
    let mut record = Record {
        at: run.at.0,
        jiffies: run.jiffies,
        connection,
        end,
        check: run.check.unwrap_or(0),
        decision: if run.check.is_none() { UNCHECKED } else { 0 },
        decisions: decided(run).count() as u32,
        ..Record::default()
    };
    let known = match run.handler {
        Handler::Option { level, .. } => follow || level == CHANGE,
        Handler::Receive { flags, .. } => follow || flags == 0,
        _ => true,
    };
    if !known {
        return Err(Unknown {
            name: "handler".to_owned(),
            value: format!("{:?}", run.handler),
        });
    }
    let [kind, value, result, more] = run.handler.words();
    record.kind = kind as u8;
    record.flags = (kind >> 8) as u8;
    record.value = value;
    record.result = result;
    record.more = more;
    Ok(record)
}

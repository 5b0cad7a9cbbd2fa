// SPDX-License-Identifier: Apache-2.0
//! The report of OWAMP's sessions.

use super::{DirectionReport, PathReport, Reading, Sample, Way, judge_errors, note, text};
use crate::control::SendStamp;
use crate::record::Record;
use crate::results::{Corrections, OneWayError, judge};
use crate::session::{Measured, OneWayOutcome};
use crate::time::Timestamp;
use std::collections::HashMap;

/// A kernel's stamp further than this behind the packet's own is of another packet, ns.
const MOST_QUEUEING: i64 = 10_000_000_000;

/// Makes the report.
#[must_use]
pub fn of_one_way(outcome: &OneWayOutcome, reading: &Reading) -> PathReport {
    let start = [&outcome.there, &outcome.back]
        .into_iter()
        .flatten()
        .map(|measured| measured.request.start)
        .next()
        .unwrap_or(Timestamp::NONE);
    let sample = |measured: &Measured, arrives_here: bool| Sample {
        records: with_stamps(&measured.records, &measured.stamps),
        arrives_here,
        sign: if arrives_here { -1 } else { 1 },
    };
    let there = outcome
        .there
        .as_ref()
        .map(|measured| (measured, sample(measured, false)));
    let back = outcome
        .back
        .as_ref()
        .map(|measured| (measured, sample(measured, true)));
    let finding = there
        .as_ref()
        .zip(back.as_ref())
        .and_then(|(there, back)| judge(&there.1.points(start), &back.1.points(start)));
    let direction = |way: Way, (measured, sample): &(&Measured, Sample)| {
        let ends = (measured.packets, measured.next_sequence);
        let dropped = measured.dropped.unwrap_or(0).into();
        let how = (reading, finding.as_ref());
        let summary = sample.summary(ends, &measured.skips, dropped, start, how);
        report(way, measured, summary)
    };
    let mut directions = Vec::new();
    match (&there, &back) {
        (Some(there), Some(back)) => {
            let mut reports = (direction(Way::There, there), direction(Way::Back, back));
            judge_errors(
                &mut reports.0,
                &mut reports.1,
                [there.1.clocks(), back.1.clocks()],
            );
            directions.extend([reports.0, reports.1]);
        }
        (Some(one), None) | (None, Some(one)) => {
            let way = if there.is_some() {
                Way::There
            } else {
                Way::Back
            };
            let mut report = direction(way, one);
            let delays = report.summary.delay.as_ref();
            report.error = delays.map(|delays| OneWayError::of(delays, None, one.1.clocks()));
            directions.push(report);
        }
        (None, None) => {}
    }
    let mut report = PathReport {
        protocol: "owamp",
        mode: outcome.mode.to_string(),
        start: text::moment(start),
        directions,
        corrected: if finding.is_some() {
            reading.corrections
        } else {
            Corrections::default()
        },
        clock: finding,
        notes: Vec::new(),
        interrupted: outcome.interrupted,
    };
    report.notes = note::notes(&report, reading.timeout);
    report
}

fn report(way: Way, measured: &Measured, summary: crate::results::Summary) -> DirectionReport {
    let hex: String = measured
        .request
        .session
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    DirectionReport {
        way,
        from: measured.request.sender.to_string(),
        to: measured.request.receiver.to_string(),
        session: hex,
        summary,
        losses_known: true,
        error: None,
        kernel_send_times: !measured.stamps.is_empty(),
        sent_late: measured.sender.as_ref().map(|sender| sender.late),
        send_refused: measured.sender.as_ref().map(|sender| sender.refused),
        strangers: (way == Way::Back).then_some(measured.strangers),
    }
}

/// Records with the times at which packets really left, where those are known. The kernel stamps a packet after it was
/// written, so an earlier stamp is of another packet.
pub(crate) fn with_stamps(records: &[Record], stamps: &[SendStamp]) -> Vec<Record> {
    let left: HashMap<u32, Timestamp> = stamps
        .iter()
        .map(|stamp| (stamp.sequence, stamp.sent))
        .collect();
    let corrected = |record: &Record| {
        let sent = left.get(&record.sequence).filter(|sent| {
            let later = sent.nanos_since(record.sent);
            !record.lost() && (0..MOST_QUEUEING).contains(&later)
        });
        Record {
            sent: sent.copied().unwrap_or(record.sent),
            ..*record
        }
    };
    records.iter().map(corrected).collect()
}

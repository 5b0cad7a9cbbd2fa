// SPDX-License-Identifier: Apache-2.0
//! The report of reflected sessions: of each reply four times, so each direction and the round trip.

use super::{DirectionReport, PathReport, Reading, Sample, Way, judge_errors, note, text};
use crate::record::Record;
use crate::results::{Corrections, judge};
use crate::session::{TwoWayKind, TwoWayOutcome};
use crate::time::Timestamp;
use std::collections::HashMap;

/// Makes the report.
#[must_use]
pub fn of_two_way(outcome: &TwoWayOutcome, kind: TwoWayKind, reading: &Reading) -> PathReport {
    let start = outcome.start;
    let samples = samples(outcome);
    let finding = judge(&samples.there.points(start), &samples.back.points(start));
    let how = (reading, finding.as_ref());
    let sent = (outcome.packets, outcome.next_sequence);
    let dropped = u64::from(outcome.dropped);
    let counted = counts_its_replies(outcome, kind);
    let replies = samples
        .back
        .records
        .iter()
        .map(|r| r.sequence.saturating_add(1))
        .max()
        .unwrap_or(0);
    let round = samples
        .round
        .summary(sent, &outcome.skips, dropped, start, (reading, None));
    let mut back = samples
        .back
        .summary((replies, replies), &[], dropped, start, how);
    let mut there = samples.there.summary(sent, &outcome.skips, 0, start, how);
    if counted {
        // Of what did not come back, the reflector had sent what its count says. The last replies may be
        // missing in it: they count as lost on the way there.
        let missing = round.lost + round.lost_here;
        there.lost = missing.saturating_sub(back.lost + back.lost_here);
        there.lost_here = 0;
    } else {
        (there.lost, back.lost, back.lost_here) = (0, 0, 0);
    }
    let round = direction(Way::RoundTrip, outcome, round);
    let mut there = direction(Way::There, outcome, there);
    let mut back = direction(Way::Back, outcome, back);
    let known = counted || round.summary.lost + round.summary.lost_here == 0;
    (there.losses_known, back.losses_known) = (known, known);
    judge_errors(
        &mut there,
        &mut back,
        [samples.there.clocks(), samples.back.clocks()],
    );
    let mut report = PathReport {
        protocol: match kind {
            TwoWayKind::Twamp => "twamp",
            TwoWayKind::TwampLight => "twamp-light",
            TwoWayKind::Stamp => "stamp",
        },
        mode: outcome.mode.to_string(),
        start: text::moment(start),
        directions: vec![there, back, round],
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

/// Whether the reflector's numbers are its own: in TWAMP they are (RFC 5357 section 4.2.1); a STAMP reflector may
/// return the sender's (RFC 8762 section 4), which shows as soon as a packet was lost on the way there.
fn counts_its_replies(outcome: &TwoWayOutcome, kind: TwoWayKind) -> bool {
    let differs = outcome
        .replies
        .iter()
        .any(|r| r.reply.sequence != r.reply.request.sequence);
    kind == TwoWayKind::Twamp || differs
}

struct Samples {
    there: Sample,
    back: Sample,
    round: Sample,
}

fn samples(outcome: &TwoWayOutcome) -> Samples {
    let left: HashMap<u32, Timestamp> = outcome
        .sender
        .stamps
        .iter()
        .map(|s| (s.sequence, s.sent))
        .collect();
    let replied: HashMap<u32, Timestamp> = outcome
        .follow_ups
        .iter()
        .map(|f| (f.sequence, f.sent))
        .collect();
    let later = |stamp: Option<&Timestamp>, carried: Timestamp| {
        let stamp = stamp.filter(|stamp| (0..1_000_000_000).contains(&stamp.nanos_since(carried)));
        stamp.copied().unwrap_or(carried)
    };
    let (mut there, mut back, mut round) = (Vec::new(), Vec::new(), Vec::new());
    for reflected in &outcome.replies {
        let reply = &reflected.reply;
        let sent = later(left.get(&reply.request.sequence), reply.request.sent);
        let replied = later(replied.get(&reply.sequence), reply.sent);
        let inside = replied.nanos_since(reply.received);
        there.push((
            reply.sequence,
            Record {
                sequence: reply.request.sequence,
                sent,
                sent_error: reply.request.error,
                received: reply.received,
                received_error: reply.error,
                ttl: reply.ttl,
            },
        ));
        back.push(Record {
            sequence: reply.sequence,
            sent: replied,
            sent_error: reply.error,
            received: reflected.received,
            received_error: reflected.error,
            ttl: reflected.ttl,
        });
        round.push(Record {
            sequence: reply.request.sequence,
            sent,
            sent_error: reply.request.error,
            received: reflected.received.moved(-inside),
            received_error: reflected.error,
            ttl: reflected.ttl,
        });
    }
    // In the order in which the reflector had them.
    there.sort_by_key(|(number, _)| *number);
    Samples {
        there: Sample {
            records: there.into_iter().map(|(_, record)| record).collect(),
            arrives_here: false,
            sign: 1,
        },
        back: Sample {
            records: back,
            arrives_here: true,
            sign: -1,
        },
        round: Sample {
            records: round,
            arrives_here: true,
            sign: 0,
        },
    }
}

fn direction(
    way: Way,
    outcome: &TwoWayOutcome,
    summary: crate::results::Summary,
) -> DirectionReport {
    let (ours, theirs) = (outcome.ends.0.to_string(), outcome.ends.1.to_string());
    let (from, to) = match way {
        Way::Back => (theirs, ours),
        _ => (ours, theirs),
    };
    let sends_here = way == Way::There;
    DirectionReport {
        way,
        from,
        to,
        session: String::new(),
        summary,
        losses_known: true,
        error: None,
        kernel_send_times: match way {
            Way::Back => !outcome.follow_ups.is_empty(),
            _ => !outcome.sender.stamps.is_empty(),
        },
        sent_late: sends_here.then_some(outcome.sender.late),
        send_refused: sends_here.then_some(outcome.sender.refused),
        strangers: (way == Way::Back).then_some(outcome.strangers),
    }
}

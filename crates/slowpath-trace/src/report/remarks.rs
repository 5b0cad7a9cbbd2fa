// SPDX-License-Identifier: Apache-2.0
//! Remarks on a connection for graphs and annotated captures: each finding with the packets
//! that show it.

use super::phrases::{self, evidence, observed};
use super::{CaptureReport, RankedConnection};
use crate::message::Message;
use crate::picture::{Recording, Remark};
use crate::segment::Timestamp;
use crate::tcp::{Kind, Marks, Side};
use crate::verdict::{
    DirectionVerdict, Interval, Limit, Observation, Observed, TraceFinding, TraceProblem,
};
use crate::write::Comments;
use slowpath_model::Micros;
use slowpath_text::percent;

/// Stretches of time remarked on for one finding.
const STRETCHES: usize = 5;

/// The longest stretches of some limits, longest first.
fn longest_stretches(verdict: &DirectionVerdict, limits: impl Fn(Limit) -> bool) -> Vec<Interval> {
    let mut found: Vec<Interval> = (verdict.line.intervals())
        .filter(|i| limits(i.limit))
        .collect();
    // The time line may have dropped the longest.
    let longest = Limit::ALL.into_iter().filter(|l| limits(*l));
    for interval in longest.filter_map(|l| verdict.line.longest(l)) {
        if !found.iter().any(|i| i.from == interval.from) {
            found.push(interval);
        }
    }
    found.sort_by_key(|i| (std::cmp::Reverse(i.duration()), i.from.frame));
    found.truncate(STRETCHES);
    found
}

/// The remarks on a connection, those on the worse direction first. With a `recording` of its
/// packets, observations without a time refer to the first packet that shows them.
pub fn remarks(ranked: &RankedConnection, recording: Option<&Recording>) -> Vec<Remark> {
    let mut remarks = Vec::new();
    for finding in ranked.findings() {
        on_finding(ranked, finding, &mut remarks);
    }
    let main = phrases::worst(ranked).side;
    for side in [main, main.peer()] {
        let found = |o: &&Observed| {
            let findings = ranked.findings().iter().filter(|f| f.from == Some(side));
            !findings
                .into_iter()
                .any(|f| f.problem.name() == o.observation.name())
        };
        for other in ranked.verdict(side).observed.iter().filter(found) {
            on_observation(ranked, side, other, recording, &mut remarks);
        }
        on_messages(ranked.verdict(side), side, &mut remarks);
    }
    remarks
}

fn on_finding(ranked: &RankedConnection, finding: &TraceFinding, remarks: &mut Vec<Remark>) {
    let problem = finding.problem;
    let time = finding.time.map_or(String::new(), |time| {
        format!(" {} ({})", percent(finding.share), Micros::from(time))
    });
    let text = format!("{problem}{time}: {}", evidence(ranked, finding));
    let limits = |limit: Limit| match problem {
        TraceProblem::ZeroWindow => limit == Limit::ZeroWindow,
        TraceProblem::TailLossProbe => limit == Limit::TailLossProbe,
        // Their times are not on the line.
        _ if problem.is_of_connection() => false,
        TraceProblem::Reordering | TraceProblem::SenderAppLimited => false,
        _ => limit.problem().is_some() && limit.problem() == problem.live(),
    };
    let side = finding.from.unwrap_or(Side::Client);
    let stretches = longest_stretches(ranked.verdict(side), limits);
    if !stretches.is_empty() {
        return on_stretches(remarks, side, problem.name(), &text, &stretches);
    }
    if let Some((from, to)) = finding.frames {
        let mut frames = vec![to.frame, from.frame];
        frames.dedup();
        remarks.push(Remark {
            text,
            side: finding.from,
            from: from.time.min(to.time),
            to: from.time.max(to.time),
            frames,
        });
    }
}

fn on_observation(
    ranked: &RankedConnection,
    side: Side,
    other: &Observed,
    recording: Option<&Recording>,
    remarks: &mut Vec<Remark>,
) {
    let verdict = ranked.verdict(side);
    let text = observed(verdict, other);
    let limit = match other.observation {
        Observation::CongestionWindowLimited => Limit::CongestionWindow,
        Observation::ZeroWindow => Limit::ZeroWindow,
        Observation::SmallWrites => Limit::SmallWrites,
        Observation::TailLossProbe => Limit::TailLossProbe,
        observation => {
            let first = ranked.report().first.time;
            remarks.push(on_packet(side, observation, text, recording, first));
            return;
        }
    };
    let mut stretches = longest_stretches(verdict, |l| l == limit);
    stretches.truncate(1);
    let name = other.observation.name();
    on_stretches(remarks, side, name, &text, &stretches);
}

fn on_messages(verdict: &DirectionVerdict, side: Side, remarks: &mut Vec<Remark>) {
    for message in slowest(verdict) {
        let Some(cause) = message.causes.first() else {
            continue;
        };
        remarks.push(Remark {
            text: format!(
                "slow message of {} bytes, {}: {} {}",
                message.bytes,
                Micros::from(message.duration()),
                cause.category.name(),
                Micros::from(cause.time)
            ),
            side: Some(side),
            from: message.start.time,
            to: message.end.time,
            frames: vec![cause.first.frame, cause.last.frame],
        });
    }
}

/// The slowest messages with a cause, slowest first.
fn slowest(verdict: &DirectionVerdict) -> Vec<&Message> {
    let slowest = verdict.messages.slowest.iter();
    let mut slowest: Vec<&Message> = slowest.filter(|m| !m.causes.is_empty()).collect();
    slowest.sort_by_key(|m| std::cmp::Reverse(m.duration()));
    slowest.truncate(STRETCHES);
    slowest
}

/// A remark for each stretch of time; the first has the whole text.
fn on_stretches(
    remarks: &mut Vec<Remark>,
    side: Side,
    name: &str,
    text: &str,
    stretches: &[Interval],
) {
    for (number, stretch) in stretches.iter().enumerate() {
        let text = match number {
            0 => text.to_owned(),
            _ => format!("{name} for {}", Micros::from(stretch.duration())),
        };
        remarks.push(Remark {
            text,
            side: Some(side),
            from: stretch.from.time,
            to: stretch.to.time,
            frames: vec![stretch.to.frame, stretch.from.frame],
        });
    }
}

/// A remark on an observation that is a segment and not a stretch of time: the first segment
/// that shows it.
fn on_packet(
    side: Side,
    observation: Observation,
    text: String,
    recording: Option<&Recording>,
    otherwise: Timestamp,
) -> Remark {
    let shows = |kind: Kind, marks: Marks| match observation {
        Observation::Reordering => kind == Kind::OutOfOrder,
        Observation::SynRetransmit => kind == Kind::Retransmission(crate::tcp::Cause::Handshake),
        Observation::EcnMarked => marks.any(Marks::CE | Marks::ECE),
        Observation::IdleBurst => marks.any(Marks::AFTER_IDLE),
        _ => false,
    };
    let mut points = recording.map_or(&[][..], |r| &r.points).iter();
    let point = points.find(|p| {
        let echo = observation == Observation::EcnMarked && p.marks.any(Marks::ECE);
        shows(p.kind, p.marks) && (p.side == side) != echo
    });
    let time = point.map_or(otherwise, |p| p.time);
    Remark {
        text,
        side: Some(side),
        from: time,
        to: time,
        frames: point.map(|p| p.frame).into_iter().collect(),
    }
}

/// What limits a connection, in a few words.
pub fn title(ranked: &RankedConnection) -> String {
    let worst = phrases::worst(ranked);
    match worst.time {
        Some(_) => format!("{} {}", worst.name, percent(worst.share)),
        None => worst.name.to_owned(),
    }
}

/// The remarks as comments on packets.
pub fn comments(report: &CaptureReport) -> Comments {
    let mut comments = Comments::new();
    for ranked in &report.connections {
        for remark in remarks(ranked, None) {
            let length = remark.to.0.saturating_sub(remark.from.0).max(0) as u64 / 1000;
            for (place, frame) in remark.frames.iter().enumerate() {
                let text = match place {
                    0 => format!("slowpath #{}: {}", ranked.number, remark.text),
                    _ => format!(
                        "slowpath #{}: here begins, for {}: {}",
                        ranked.number,
                        Micros(length),
                        remark.text
                    ),
                };
                comments.entry(*frame).or_default().push(text);
            }
        }
    }
    comments
}

// SPDX-License-Identifier: Apache-2.0
//! What was found in both directions of a connection, worst first.
//!
//! 1. The problems of the live classifier that a direction has (`findings.rs`).
//! 2. *ZeroWindow* from 1 % of the time, as `ReceiverWindowLimited`, which includes it; first
//!    if the window was closed for half of the time that it was full.
//! 3. *TailLossProbe* if one cost time: it repairs a loss, and losses count whenever they
//!    happen.
//! 4. *SmallWrites* from 1 % of the time.
//! 5. *Reordering* if segments overtook each other. Nothing waited for it. Not of what may have been
//!    sent again: segments from before the capture began.
//! 6. *SenderAppLimited* of the server if its application kept the client waiting for a
//!    second or more (`think.rs`).
//! 7. What was wrong with the connection itself (`failure.rs`).

use super::failure::{self, Resets};
use super::limit::Limit;
use super::opening::Opening;
use super::problem::{TraceFinding, TraceProblem};
use super::{DirectionVerdict, Observation, Think, Verdicts};
use crate::segment::Timestamp;
use crate::tcp::{ConnectionReport, Event, Kind, Marks, Moment, Side};
use slowpath_diagnose::Thresholds;
use std::time::Duration;

/// What the line of a direction does not show.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Evidence {
    pub(super) opening: Opening,
    pub(super) resets: Resets,
    /// ICMP reported a destination as unreachable, and whether the host itself did, of the port.
    pub(super) unreachable: Option<(Moment, bool)>,
    /// The first and the last segment of each side that were overtaken.
    pub(super) overtaken: [Option<(Moment, Moment)>; 2],
}

impl Evidence {
    /// A segment of the connection.
    #[inline]
    pub(super) fn segment(&mut self, event: &Event<'_>, now: Moment) {
        self.opening.segment(event, now);
        self.resets.segment(event, now);
        // What was sent before the capture began may have been sent again as well.
        let unknown = event.sequence < 1 && event.marks.any(Marks::AMBIGUOUS);
        if event.kind == Kind::OutOfOrder && !unknown {
            let overtaken = &mut self.overtaken[event.side as usize];
            *overtaken = Some((overtaken.map_or(now, |(first, _)| first), now));
        }
    }
}

/// All findings of a connection. `silent_until`: up to when nothing more of it was captured.
pub(super) fn findings(
    report: &ConnectionReport,
    verdicts: &Verdicts,
    evidence: &Evidence,
    silent_until: Timestamp,
) -> Vec<TraceFinding> {
    let mut found = Vec::new();
    for side in [Side::Client, Side::Server] {
        let verdict = verdicts.sent_by(side);
        of_live(verdict, side, &mut found);
        of_line(verdict, side, &mut found);
        if server(report) == Some(side) && !report.is_one_sided() {
            found.extend(think(verdict, side));
        }
        let events = report.sent_by(side).order.out_of_order;
        if events > 0 {
            found.push(TraceFinding {
                problem: TraceProblem::Reordering,
                from: Some(side),
                time: None,
                share: 0.0,
                events: Some(events),
                frames: evidence.overtaken[side as usize],
            });
        }
    }
    found.extend(failure::failures(report, evidence, silent_until));
    found.sort_by_key(TraceFinding::rank);
    closed_first(&mut found);
    found
}

/// Where a window was closed for most of the time that it was full, that is what to say first.
fn closed_first(found: &mut [TraceFinding]) {
    for side in [Side::Client, Side::Server] {
        let of_side = |problem| {
            let is = move |f: &TraceFinding| f.problem == problem && f.from == Some(side);
            found.iter().position(is)
        };
        let full = of_side(TraceProblem::ReceiverWindowLimited);
        let closed = of_side(TraceProblem::ZeroWindow);
        if let (Some(full), Some(closed)) = (full, closed)
            && full < closed
            && found[full].time <= found[closed].time.map(|time| time * 2)
        {
            found[full..=closed].rotate_right(1);
        }
    }
}

fn of_live(verdict: &DirectionVerdict, side: Side, found: &mut Vec<TraceFinding>) {
    let shares = verdict.line.shares();
    for finding in &verdict.findings {
        let Some(problem) = TraceProblem::of_live(finding.problem) else {
            continue;
        };
        let time = shares.of_problem(finding.problem);
        found.push(TraceFinding {
            problem,
            from: Some(side),
            time: Some(time),
            share: part(time, shares.total()),
            events: finding.events,
            frames: verdict.proof(finding.problem),
        });
    }
}

fn of_line(verdict: &DirectionVerdict, side: Side, found: &mut Vec<TraceFinding>) {
    let shares = verdict.line.shares();
    let least = Thresholds::default().min_share;
    for (problem, limit, least) in [
        (TraceProblem::ZeroWindow, Limit::ZeroWindow, least),
        (TraceProblem::TailLossProbe, Limit::TailLossProbe, 0.0),
        (TraceProblem::SmallWrites, Limit::SmallWrites, least),
    ] {
        let time = shares.of(limit);
        let share = part(time, shares.total());
        if time > Duration::ZERO && share >= least {
            found.push(TraceFinding {
                problem,
                from: Some(side),
                time: Some(time),
                share,
                events: match problem {
                    TraceProblem::SmallWrites => observed(verdict, Observation::SmallWrites),
                    _ => None,
                },
                frames: verdict.proof_of(|l| l == limit),
            });
        }
    }
}

/// Ports of services (RFC 6335 section 6).
const SYSTEM_PORTS: u16 = 1024;

/// Which side serves: the one that was sent the SYN; without one, the one with a system port.
fn server(report: &ConnectionReport) -> Option<Side> {
    if report.from_client.control.syns + report.from_server.control.syns > 0 {
        return Some(Side::Server);
    }
    let is_service = |side: &Side| report.endpoint(*side).port < SYSTEM_PORTS;
    let mut services = [Side::Client, Side::Server].into_iter().filter(is_service);
    services.next().filter(|_| services.next().is_none())
}

fn think(verdict: &DirectionVerdict, side: Side) -> Option<TraceFinding> {
    let think = Some(verdict.think).filter(Think::is_long)?;
    Some(TraceFinding {
        problem: TraceProblem::SenderAppLimited,
        from: Some(side),
        time: Some(think.time),
        share: part(think.time, verdict.line.shares().total()),
        events: Some(think.waits),
        frames: think.longest.map(|(_, from, to)| (from, to)),
    })
}

/// How often that was observed.
fn observed(verdict: &DirectionVerdict, observation: Observation) -> Option<u64> {
    let mut observed = verdict.observed.iter();
    observed.find(|o| o.observation == observation)?.events
}

/// A time's part of another, in 0..=1.
pub(super) fn part(time: Duration, of: Duration) -> f64 {
    if of.is_zero() {
        return 0.0;
    }
    (time.as_secs_f64() / of.as_secs_f64()).min(1.0)
}

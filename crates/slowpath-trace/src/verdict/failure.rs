// SPDX-License-Identifier: Apache-2.0
//! Connections that never opened, opened late, or were cut.
//!
//! 1. *Unanswered*: the client sent nothing but SYNs, nothing of the other side was captured,
//!    and the capture goes on for [`INITIAL_RTO`] after the first: until then an answer may
//!    still be on its way, and no host would have sent another. A client that sent an ACK got
//!    its answer on a way that the capture does not have. If ICMP reported the destination as
//!    unreachable, there is nothing to wait for.
//! 2. *Refused*: nothing but RSTs came back to the SYN, or ICMP that the port is unreachable.
//! 3. *SynRetransmit*: a SYN or SYN-ACK was sent again; its time is from the first copy to the
//!    answer, or to the last copy. Not of a SYN that 1 or 2 holds for.
//! 4. *SlowHandshake*: none was sent again, and SYN to ACK took [`SLOW_HANDSHAKE`] or more.
//! 5. *Reset*: a side sent a RST before both had sent FIN, it sent no data after that (then
//!    the RST was not its own, or was of no effect), both directions were captured, and one of
//!    these holds:
//!    1. It sent nothing but RSTs and no SYN is in the capture: segments of a connection that it
//!       does not know. Unless the other side only wanted to close it (FIN, and not more than a segment).
//!    2. No data was exchanged, and the server reset it, or the client did in answer to the
//!       SYN-ACK, which it never acknowledged. A client that opens, acknowledges and leaves
//!       only wanted to know whether the port is open.
//!    3. Data of the other side was not acknowledged, if that side had not sent FIN, or if it is more than
//!       a segment: it was still sending. The last alert of TLS and a FIN that meet a client that
//!       is gone are no loss.
//!    4. Its own data was not acknowledged: a segment or more, or for as long as
//!       [`INITIAL_RTO`]. Less is a farewell that it did not wait for.
//!    5. The server reset it, and the last data was a request (of the client, acknowledged)
//!       without FIN: it was never answered.
//!
//!    Everything else is how applications close: RST after both FINs, or after the peer's FIN;
//!    a client that has its answer.

use super::limit::between;
use super::opening::{Attempt, Opening};
use super::problem::{TraceFinding, TraceProblem};
use super::ranking::{Evidence, part};
use crate::segment::Timestamp;
use crate::tcp::{ConnectionReport, Ending, Event, Kind, Moment, Side};
use std::time::Duration;

/// RTO of a SYN before any measurement (RFC 6298 section 2.1).
const INITIAL_RTO: Duration = Duration::from_secs(1);

/// The initial RTO before RFC 6298, 3 s (RFC 1122 section 4.2.3.1): no host waits longer without
/// sending its SYN again.
const SLOW_HANDSHAKE: Duration = Duration::from_secs(3);

/// A full segment while no MSS is known: RFC 9293 section 3.7.1.
const DEFAULT_MSS: u64 = 536;

/// The RSTs of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Resets {
    /// The latest segment of each side.
    latest: [Option<Moment>; 2],
    /// Of each side that sent RSTs: the other side's segment before the first, and the RST.
    first: [Option<(Option<Moment>, Moment)>; 2],
    /// How many each side sent.
    count: [u64; 2],
}

impl Resets {
    /// A segment of the connection.
    #[inline]
    pub(super) fn segment(&mut self, event: &Event<'_>, now: Moment) {
        self.latest[event.side as usize] = Some(now);
        if event.kind == Kind::Reset {
            self.count[event.side as usize] += 1;
            let before = self.latest[event.side.peer() as usize];
            let first = &mut self.first[event.side as usize];
            *first = first.or(Some((before, now)));
        }
    }

    fn frames(&self, side: Side) -> Option<(Moment, Moment)> {
        let (before, reset) = self.first[side as usize]?;
        Some((before.unwrap_or(reset), reset))
    }
}

/// What was wrong with a connection itself. `silent_until`: up to when nothing more of it was
/// captured.
pub(super) fn failures(
    report: &ConnectionReport,
    evidence: &Evidence,
    silent_until: Timestamp,
) -> Vec<TraceFinding> {
    let Evidence {
        opening, resets, ..
    } = evidence;
    let client = opening.of(Side::Client);
    if let Some(attempt) = client {
        if attempt.is_refused() {
            return vec![refused(report, &attempt)];
        }
        if attempt.answer.is_none() && is_unanswered(report) {
            if let Some((at, refused)) = evidence.unreachable {
                return vec![unreachable(report, &attempt, at, refused)];
            }
            let waited = elapsed(attempt.first, silent_until);
            let found = (waited >= INITIAL_RTO).then(|| unanswered(report, &attempt));
            return found.into_iter().collect();
        }
    }
    let sides = [Side::Client, Side::Server];
    let mut found: Vec<TraceFinding> = (sides.into_iter())
        .filter_map(|side| syn_retransmit(report, opening, side))
        .collect();
    if found.is_empty() {
        found.extend(slow_handshake(report));
    }
    if let Ending::Reset(side) = report.ending
        && is_cut(report, opening, resets, side)
    {
        found.push(TraceFinding {
            problem: TraceProblem::Reset,
            from: Some(side),
            time: None,
            share: 0.0,
            events: Some(resets.count[side as usize]),
            frames: resets.frames(side),
        });
    }
    found
}

fn elapsed(from: Moment, to: Timestamp) -> Duration {
    Duration::from_nanos(between(from.time, to))
}

/// Rule 1, but for the time.
fn is_unanswered(report: &ConnectionReport) -> bool {
    let client = &report.from_client;
    report.from_server.packets == 0 && client.packets == client.control.syns
}

fn unanswered(report: &ConnectionReport, attempt: &Attempt) -> TraceFinding {
    let waited = elapsed(attempt.first, attempt.last.time);
    TraceFinding {
        problem: TraceProblem::Unanswered,
        from: Some(Side::Client),
        // How long it waited after the last is not known: the client may have given up.
        time: (attempt.copies > 0).then_some(waited),
        share: part(waited, report.duration()),
        events: Some(attempt.copies + 1),
        frames: Some((attempt.first, attempt.last)),
    }
}

/// ICMP answered: for the application a refusal if the host says so of its port (Linux: ECONNREFUSED).
fn unreachable(
    report: &ConnectionReport,
    attempt: &Attempt,
    at: Moment,
    refused: bool,
) -> TraceFinding {
    let found = unanswered(report, attempt);
    TraceFinding {
        problem: match refused {
            true => TraceProblem::Refused,
            false => TraceProblem::Unanswered,
        },
        frames: found
            .frames
            .map(|(first, last)| match at.frame > last.frame {
                true => (first, at),
                false => (first, last),
            }),
        ..found
    }
}

fn refused(report: &ConnectionReport, attempt: &Attempt) -> TraceFinding {
    let end = attempt.end();
    let tried = elapsed(attempt.first, end.time);
    TraceFinding {
        problem: TraceProblem::Refused,
        from: Some(Side::Server),
        time: (attempt.refusals > 1).then_some(tried),
        share: part(tried, report.duration()),
        events: Some(attempt.refusals),
        frames: Some((attempt.first, end)),
    }
}

fn syn_retransmit(
    report: &ConnectionReport,
    opening: &Opening,
    side: Side,
) -> Option<TraceFinding> {
    let attempt = opening.of(side).filter(|a| a.copies > 0)?;
    let time = elapsed(attempt.first, attempt.end().time);
    Some(TraceFinding {
        problem: TraceProblem::SynRetransmit,
        from: Some(side),
        time: Some(time),
        share: part(time, report.duration()),
        events: Some(attempt.copies),
        frames: Some((attempt.first, attempt.end())),
    })
}

fn slow_handshake(report: &ConnectionReport) -> Option<TraceFinding> {
    let (syn, ack) = (report.handshake.syn?, report.handshake.ack?);
    let time = report.handshake.rtt().filter(|t| *t >= SLOW_HANDSHAKE)?;
    Some(TraceFinding {
        problem: TraceProblem::SlowHandshake,
        from: None,
        time: Some(time),
        share: part(time, report.duration()),
        events: None,
        frames: Some((syn, ack)),
    })
}

/// Rule 5, of the side that sent the RST.
fn is_cut(report: &ConnectionReport, opening: &Opening, resets: &Resets, side: Side) -> bool {
    let (mine, theirs) = (report.sent_by(side), report.sent_by(side.peer()));
    let Some((_, reset)) = resets.first[side as usize] else {
        return false;
    };
    let sent_on = mine.timing.last_data.is_some_and(|last| last > reset.time);
    if sent_on || report.is_one_sided() {
        return false;
    }
    let exchanged = mine.data.bytes + theirs.data.bytes > 0;
    let closing = theirs.control.fins > 0;
    let syns = mine.control.syns + theirs.control.syns;
    let segment = |offered: Option<u16>| offered.map_or(DEFAULT_MSS, u64::from);
    let lost = theirs.data.undelivered();
    let farewell = closing && lost <= segment(mine.offered.mss);
    if mine.packets == mine.control.resets && syns == 0 {
        return !farewell;
    }
    if !exchanged {
        let answer = opening.of(Side::Server).and_then(|a| a.answer);
        return match side {
            Side::Server => !closing,
            Side::Client => answer.is_some_and(|answer| answer.frame == reset.frame),
        };
    }
    if lost > 0 && !farewell {
        return true;
    }
    let unsent = mine.data.undelivered();
    let waited = (mine.timing.last_data).map_or(0, |last| between(last, reset.time));
    let waited = Duration::from_nanos(waited);
    if unsent >= segment(theirs.offered.mss) || unsent > 0 && waited >= INITIAL_RTO {
        return true;
    }
    side == Side::Server && !closing && theirs.timing.last_data > mine.timing.last_data
}

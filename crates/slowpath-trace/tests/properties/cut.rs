// SPDX-License-Identifier: Apache-2.0
//! A capture that begins later or ends earlier.

use crate::capture::{Capture, Connected, Frame, judged};
use crate::claims::{Claim, claims};
use slowpath_model::Problem;
use slowpath_trace::segment::Endpoint;
use slowpath_trace::tcp::Side;
use slowpath_trace::verdict::{Limit, TraceProblem};
use std::ops::Range;
use std::time::Duration;

/// Limits that are that problem.
fn limits(problem: TraceProblem) -> &'static [Limit] {
    match problem {
        TraceProblem::ReceiverWindowLimited => &[Limit::ReceiverWindow, Limit::ZeroWindow],
        TraceProblem::ZeroWindow => &[Limit::ZeroWindow],
        // Which of them it was, SACK and the RTT say.
        TraceProblem::Timeout | TraceProblem::TailLossProbe | TraceProblem::FastRetransmit => {
            &[Limit::Timeout, Limit::TailLossProbe, Limit::Recovery]
        }
        TraceProblem::DelayedAck => &[Limit::DelayedAck],
        TraceProblem::SendBufferLimited => &[Limit::SendBuffer],
        // That the ACKs that they waited for were late, shorter RTTs before show.
        TraceProblem::SmallWrites => &[Limit::SmallWrites, Limit::DelayedAck],
        _ => &[],
    }
}

/// Milliseconds that the whole had of a problem, of data from that end, while the part lasted.
fn meanwhile(whole: &[&Connected], part: &Connected, claim: &Claim) -> f64 {
    let (first, last) = (part.report.report.first.time, part.report.report.last.time);
    let mut sum = 0.0;
    for connection in whole {
        let report = &connection.report.report;
        for side in [Side::Client, Side::Server] {
            if claim.from.is_none_or(|from| report.endpoint(side) == from) {
                let shares = connection
                    .report
                    .verdicts
                    .sent_by(side)
                    .line
                    .within(first, last);
                let times = limits(claim.problem)
                    .iter()
                    .map(|l| shares.of(*l).as_secs_f64());
                sum += 1e3 * times.sum::<f64>();
            }
        }
    }
    sum
}

fn ends(c: &Connected) -> (Endpoint, Endpoint) {
    let (a, b) = (c.report.report.client, c.report.report.server);
    (a.min(b), a.max(b))
}

fn is_unmeasured(part: &Connected, claim: &Claim) -> bool {
    let report = &part.report.report;
    let Some(problem) = claim.problem.live() else {
        return false;
    };
    [Side::Client, Side::Server].into_iter().any(|side| {
        Some(report.endpoint(side)) == claim.from
            && part
                .report
                .verdicts
                .sent_by(side)
                .unmeasured
                .contains(problem)
    })
}

/// Losses: which of them it was, SACK and RTTs before the cut say.
const LOSSES: [TraceProblem; 3] = [
    TraceProblem::Timeout,
    TraceProblem::TailLossProbe,
    TraceProblem::FastRetransmit,
];

fn is_about_same(a: &Claim, b: &Claim) -> bool {
    let loss = |c: &Claim| LOSSES.contains(&c.problem);
    a.is_like(b) || loss(a) && loss(b) && a.from == b.from
}

/// Shortest time from the capture to that end and back.
fn turn(c: &Connected, from: Option<Endpoint>) -> Option<Duration> {
    let mut sides = [Side::Client, Side::Server].into_iter();
    let side = sides.find(|side| from == Some(c.report.report.endpoint(*side)))?;
    c.report.verdicts.vantage.half(side)
}

/// Frames in a row whose IP identifications are one more than the one before show that these count
/// (`tcp/frames.rs`).
const COUNTING: usize = 9;

/// A piece of a capture, and what is known of the whole of one of its connections.
struct Piece<'a> {
    capture: &'a Capture,
    same: Vec<&'a Connected>,
    before: Vec<Claim>,
    part: &'a Connected,
    after: Vec<Claim>,
    frames: Range<u64>,
}

impl Piece<'_> {
    fn has_syn(&self) -> bool {
        let report = &self.part.report.report;
        report.from_client.control.syns + report.from_server.control.syns > 0
    }

    /// Milliseconds that the sender seems farther away than it is: an ACK counts from when its effect can be
    /// observed, the shortest turn after it passed, and that turn may be cut off.
    fn farther(&self, from: Option<Endpoint>) -> f64 {
        let shortest = self.same.iter().filter_map(|c| turn(c, from)).min();
        let farther = self
            .turn(from)
            .zip(shortest)
            .map(|(part, whole)| part.saturating_sub(whole));
        farther.map_or(0.0, |t| t.as_secs_f64() * 1e3)
    }

    fn turn(&self, from: Option<Endpoint>) -> Option<Duration> {
        turn(self.part, from)
    }

    /// What is claimed and is not so.
    fn is_false(&self, claim: &Claim) -> Option<String> {
        let known = self.before.iter().any(|b| is_about_same(b, claim));
        let there = |problem| self.before.iter().any(|b| b.problem == problem);
        let report = &self.part.report.report;
        let excused = match claim.problem {
            // A second without an answer; what came then is cut off.
            TraceProblem::Unanswered => there(TraceProblem::SynRetransmit),
            // Its RSTs are all that is left of that end: it does not know the connection.
            TraceProblem::Reset => [Side::Client, Side::Server].into_iter().any(|side| {
                let sent = report.sent_by(side);
                Some(report.endpoint(side)) == claim.from && sent.packets == sent.control.resets
            }),
            _ => false,
        };
        if limits(claim.problem).is_empty() || claim.time.is_none() {
            return (!known && !excused).then(|| format!("new: {claim}"));
        }
        let time = meanwhile(&self.same, self.part, claim);
        let claimed = claim.time.unwrap_or(0.0);
        let farther = match time > 0.0 {
            true => claim.events.unwrap_or(1).max(1) as f64 * self.farther(claim.from),
            false => 0.0,
        };
        (claimed > 1.25 * time + 5.0 + farther).then(|| format!("{claim} instead of {time:.3} ms"))
    }

    /// Frames of its sender that have to be there before those that show it: of what was sent again, one
    /// that was sent before; where IP identifications show it, enough to know that these
    /// count.
    fn needed(&self, claim: &Claim) -> usize {
        let of_sender = |c: &Connected, problem| {
            let report = &c.report.report;
            [Side::Client, Side::Server].into_iter().any(|side| {
                let verdict = c.report.verdicts.sent_by(side);
                Some(report.endpoint(side)) == claim.from && verdict.inferred.contains(problem)
            })
        };
        let inferred = || self.same.iter().any(|c| of_sender(c, Problem::Timeout));
        match claim.problem {
            TraceProblem::Timeout | TraceProblem::TailLossProbe if inferred() => COUNTING,
            TraceProblem::Reordering => COUNTING,
            problem => usize::from(LOSSES.contains(&problem)),
        }
    }

    /// What a sender waited for, its next segment shows.
    fn needs_next(claim: &Claim) -> bool {
        !limits(claim.problem).is_empty() && !LOSSES.contains(&claim.problem)
    }

    /// Whether all frames that show it are there, and what its rule needs before, so that it is to be
    /// claimed still.
    fn is_due(&self, claim: &Claim) -> bool {
        let there = |(first, last): (u64, u64)| {
            let Range { start, end } = self.frames;
            let sent = |from: u64, to: u64| {
                let frames = &self.capture.frames[from as usize - 1..to as usize - 1];
                let sent = |f: &&Frame| f.tcp.is_some_and(|t| Some(t.source) == claim.from);
                frames.iter().filter(sent).count()
            };
            start < first
                && last < end
                && sent(start + 1, first) >= self.needed(claim)
                && (!Self::needs_next(claim) || sent(last + 1, end) > 0)
        };
        let excused = match claim.problem {
            // Who serves, the SYN said. How long it was silent, what is cut off said.
            TraceProblem::SenderAppLimited => !self.has_syn(),
            TraceProblem::Unanswered => true,
            // Sooner than the sender can have heard of a loss: how far away it is, is not known.
            TraceProblem::Reordering => !self.has_syn() && self.turn(claim.from).is_none(),
            _ => is_unmeasured(self.part, claim),
        };
        claim.frames.is_some_and(there) && !excused
    }
}

/// What pieces of captures claim.
#[derive(Default)]
struct Tally {
    /// What is not so.
    wrong: Vec<String>,
    /// What is there and no longer claimed.
    missing: Vec<String>,
    due: usize,
}

impl Tally {
    fn add(&mut self, capture: &str, piece: &Piece<'_>) {
        for claim in &piece.after {
            let wrong = piece.is_false(claim);
            self.wrong
                .extend(wrong.map(|w| format!("{capture} {:?}: {w}", piece.frames)));
        }
        for claim in piece.before.iter().filter(|c| piece.is_due(c)) {
            self.due += 1;
            if !piece.after.iter().any(|a| is_about_same(a, claim)) {
                let frames = &piece.frames;
                self.missing
                    .push(format!("{capture} {frames:?}: no longer {claim}"));
            }
        }
    }
}

fn tally(tally: &mut Tally, capture: &Capture, whole: &[Connected], cut: &Range<usize>) {
    let shift = cut.start as u64;
    for part in &capture.with(capture.frames[cut.clone()].to_vec()).judge() {
        let same = whole.iter().filter(|w| ends(w) == ends(part));
        let same: Vec<&Connected> = same.collect();
        let mut after = claims(part);
        for claim in &mut after {
            claim.frames = claim.frames.map(|(a, b)| (a + shift, b + shift));
        }
        let piece = Piece {
            capture,
            before: same.iter().flat_map(|c| claims(c)).collect(),
            same,
            part,
            after,
            frames: shift..cut.end as u64 + 1,
        };
        tally.add(&capture.name, &piece);
    }
}

/// Where a capture of `frames` is cut: everywhere if it is short.
fn cuts(frames: usize) -> Vec<usize> {
    let most = (1_500 / frames.max(1)).clamp(3, 12);
    if frames <= most {
        return (1..frames).collect();
    }
    // Spread evenly, and moved by a generator with a fixed seed (Knuth's MMIX).
    let mut seed = frames as u64;
    let mut random = |below: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let step = frames / most;
    let spread = (0..most).map(|n| 1 + n * step + random(step));
    spread.filter(|at| *at < frames).collect()
}

/// Nothing false is claimed of any piece; of what is due, all but one in `part` is.
fn check(part: usize, pieces: impl Fn(usize) -> Vec<Range<usize>>) {
    let mut found = Tally::default();
    for (capture, whole) in judged() {
        for cut in pieces(capture.frames.len()) {
            tally(&mut found, capture, whole, &cut);
        }
    }
    let Tally {
        wrong,
        missing,
        due,
    } = found;
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
    println!("{} of {due}:\n{}", missing.len(), missing.join("\n"));
    assert!(
        missing.len() * part <= due,
        "{} of {due}:\n{}",
        missing.len(),
        missing.join("\n")
    );
}

#[test]
fn ends_earlier() {
    check(100, |frames| {
        cuts(frames).into_iter().map(|at| 0..at).collect()
    });
}

#[test]
fn begins_later() {
    check(20, |frames| {
        cuts(frames).into_iter().map(|at| at..frames).collect()
    });
}

#[test]
fn a_middle_piece() {
    check(25, |frames| {
        let at = cuts(frames);
        let pairs = at.iter().zip(at.iter().skip(at.len() / 2));
        pairs.map(|(from, to)| *from..*to).collect()
    });
}

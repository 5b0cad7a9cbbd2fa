// SPDX-License-Identifier: Apache-2.0
//! One side of each connection: what needs both is not claimed, and nothing new is.

use crate::capture::{Connected, Frame, judged};
use crate::claims::{Claim, claims};
use slowpath_model::Problem;
use slowpath_trace::segment::Endpoint;
use slowpath_trace::tcp::Side;
use slowpath_trace::verdict::TraceProblem;

/// Losses that retransmissions show; which of them, only the other side's ACKs say.
const LOSSES: [TraceProblem; 3] = [
    TraceProblem::Timeout,
    TraceProblem::FastRetransmit,
    TraceProblem::TailLossProbe,
];

/// Findings of the whole connection, and the ends that sent something again, needlessly too:
/// that it was needless, the other side's ACKs show.
struct BothSides {
    claims: Vec<Claim>,
    resenders: Vec<Endpoint>,
}

impl BothSides {
    fn of(connections: &[Connected], part: &Connected) -> Self {
        let ends = |c: &Connected| {
            let (a, b) = (c.report.report.client, c.report.report.server);
            (a.min(b), a.max(b))
        };
        let same = |c: &&Connected| ends(c) == ends(part);
        let same: Vec<&Connected> = connections.iter().filter(same).collect();
        let reports = same.iter().map(|c| &c.report.report);
        let resenders = reports.flat_map(|r| {
            let resent = |side: &Side| r.sent_by(*side).retransmitted.packets > 0;
            let sides = [Side::Client, Side::Server].into_iter().filter(resent);
            sides.map(|side| r.endpoint(side))
        });
        BothSides {
            resenders: resenders.collect(),
            claims: same.iter().flat_map(|c| claims(c)).collect(),
        }
    }

    /// Whether one side can show this.
    fn shows(&self, claim: &Claim, only_syns: bool) -> bool {
        match claim.problem {
            TraceProblem::SynRetransmit | TraceProblem::Reordering => {
                self.claims.iter().any(|c| c.is_like(claim))
            }
            // It looks the same.
            TraceProblem::Unanswered => only_syns,
            problem if LOSSES.contains(&problem) => {
                let is_loss = |c: &&Claim| LOSSES.contains(&c.problem) && c.from == claim.from;
                let known: Vec<f64> = (self.claims.iter().filter(is_loss))
                    .map(|c| c.time.unwrap_or(0.0))
                    .collect();
                // Until something new was sent: up to a round trip longer.
                let most = 1.5 * known.iter().sum::<f64>() + 10.0;
                match known.is_empty() {
                    true => claim
                        .from
                        .is_some_and(|from| self.resenders.contains(&from)),
                    false => claim.time.unwrap_or(0.0) <= most,
                }
            }
            _ => false,
        }
    }
}

fn differences(whole: &[Connected], part: &Connected) -> Vec<String> {
    let mut wrong = Vec::new();
    let client = &part.report.report.from_client;
    let only_syns = client.packets == client.control.syns;
    let both = BothSides::of(whole, part);
    for claim in claims(part) {
        if !both.shows(&claim, only_syns) {
            wrong.push(format!("{claim}"));
            wrong.extend(both.claims.iter().map(|b| format!("   known: {b}")));
        }
    }
    for side in [Side::Client, Side::Server] {
        let verdict = part.report.verdicts.sent_by(side);
        for problem in &Problem::ALL[1..Problem::OF_SNAP] {
            if !verdict.unmeasured.contains(*problem) && verdict.finding(*problem).is_none() {
                wrong.push(format!("{problem} is measured of the {side:?}"));
            }
        }
    }
    wrong
}

fn check(kept: Side) {
    let mut wrong = Vec::new();
    for (capture, whole) in judged() {
        let is_kept = |from: Endpoint, to: Endpoint| {
            let mut reports = whole.iter().map(|c| &c.report.report);
            reports.any(|r| r.endpoint(kept) == from && r.endpoint(kept.peer()) == to)
        };
        let kept = |f: &&Frame| f.tcp.is_some_and(|t| is_kept(t.source, t.destination));
        let frames = capture.frames.iter().filter(kept).cloned();
        for part in capture.with(frames.collect()).judge() {
            let differ = differences(whole, &part);
            wrong.extend(differ.iter().map(|d| format!("{}: {d}", capture.name)));
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn client_only() {
    check(Side::Client);
}

#[test]
fn server_only() {
    check(Side::Server);
}

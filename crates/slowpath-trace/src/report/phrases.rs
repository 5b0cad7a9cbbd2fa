// SPDX-License-Identifier: Apache-2.0
//! Phrases about the verdict on one direction: the headline, its evidence, losses, vantage
//! point, advice.

use super::RankedConnection;
use crate::segment::Endpoint;
use crate::tcp::Side;
use crate::verdict::{
    Basis, DirectionVerdict, Limit, Losses, Observed, Origin, TraceFinding, Vantage, VantagePoint,
};
use slowpath_diagnose::{Actor, Advice, AdviceContext};
use slowpath_model::{ConnectionId, FourTuple, IntervalVerdict, Micros, MonoNanos, Problem};
use slowpath_text::{evidence, percent, plural};
use std::net::SocketAddr;
use std::time::Duration;

/// What limited a direction.
pub struct Headline {
    /// The problem's name, or the limit's where none of the six problems was found.
    pub name: &'static str,
    /// The problem, if one was found.
    pub problem: Option<Problem>,
    /// Its part of the connection's time.
    pub share: f64,
    /// Its time.
    pub time: Duration,
    /// How often, for what can be counted.
    pub events: Option<u64>,
}

/// A direction's whole time.
pub fn total(verdict: &DirectionVerdict) -> Duration {
    verdict.line.shares().total()
}

/// A time's part of a direction's.
pub fn part(verdict: &DirectionVerdict, time: Duration) -> f64 {
    let total = total(verdict).as_secs_f64();
    if total > 0.0 {
        (time.as_secs_f64() / total).min(1.0)
    } else {
        0.0
    }
}

/// What limited a direction most.
pub fn headline(verdict: &DirectionVerdict) -> Headline {
    let shares = verdict.line.shares();
    if let Some(worst) = verdict.findings.first() {
        let time = shares.of_problem(worst.problem);
        return Headline {
            name: worst.problem.name(),
            problem: Some(worst.problem),
            share: part(verdict, time),
            time,
            events: worst.events,
        };
    }
    let idle = [Limit::Opening, Limit::Closed];
    let limits = Limit::ALL.into_iter().filter(|l| !idle.contains(l));
    let largest = limits.max_by_key(|l| (shares.of(*l), std::cmp::Reverse(*l)));
    let largest = largest.unwrap_or(Limit::SenderApp);
    let time = shares.of(largest);
    Headline {
        name: largest.name(),
        problem: None,
        share: part(verdict, time),
        time,
        events: None,
    }
}

/// The numbers behind a problem.
pub fn numbers(verdict: &DirectionVerdict, problem: Problem) -> String {
    let interval = Micros::from(total(verdict));
    let mut phrases = evidence::of(problem, &verdict.deltas, interval);
    for text in &mut phrases {
        // Packets show what was under way; the congestion window was at least that.
        if let Some(rest) = text.strip_prefix("congestion window ") {
            *text = format!("in flight at most {rest}");
        }
    }
    if verdict.inferred.contains(problem) {
        phrases.push("inferred: packets do not show the buffer".to_owned());
    }
    phrases.join(", ")
}

/// The origin of the losses of what `side` sent, if there were any; RTTs are those of the path.
pub fn losses(losses: &Losses, vantage: &Vantage, side: Side) -> Option<String> {
    let judged = match losses.origin {
        Origin::NoLoss => return None,
        Origin::Congestion => "the RTT varies much: congestion",
        Origin::Fault => "the RTT varies little: suspect a fault (a link, a card, a policer)",
        Origin::Unclear => "the RTT's variation shows neither congestion nor a fault",
        Origin::TooFewLosses => "too few to distinguish congestion from a fault",
        Origin::TooFewSamples => "too few RTT samples to distinguish congestion from a fault",
    };
    let range = match [losses.least_rtt, losses.high_rtt].map(|t| vantage.of_path(side, t)) {
        [Some(least), Some(high)] => {
            let [least, high] = [least, high].map(Micros::from);
            format!(", RTT {least} to {high} (95th percentile)")
        }
        _ => String::new(),
    };
    let place = match (losses.before, losses.after) {
        (0, _) if vantage.is_sender(side) => String::new(),
        (before, after) => {
            format!(", {before} before this capture point, {after} after it (or their ACKs)")
        }
    };
    Some(format!(
        "{} of {} lost ({:.2} %){place}{range}; {judged}",
        losses.lost,
        plural(losses.sent, "segment"),
        losses.rate() * 100.0
    ))
}

/// Where the capture was made.
pub fn vantage(vantage: &Vantage, client: Endpoint, server: Endpoint) -> String {
    let ends = |side: Side| match side {
        Side::Client => ("client", client.address),
        Side::Server => ("server", server.address),
    };
    if let Some(side) = vantage.one_sided {
        let (name, address) = ends(side);
        return format!(
            "only what the {name}, {address}, sent was captured: when data arrived there and ACKs came back is not known"
        );
    }
    let mut text = match vantage.place {
        VantagePoint::At(side) => {
            let (name, address) = ends(side);
            format!("captured at the {name}, {address}")
        }
        VantagePoint::Between => "captured between the ends".to_owned(),
        VantagePoint::Unknown => "the packets do not show where they were captured".to_owned(),
    };
    text += match vantage.basis {
        Basis::Checksums => ", whose network card computes its checksums later",
        Basis::Unpadded => ", whose short frames are not padded yet",
        Basis::SuperSegments => ", whose segments are not cut yet, or joined already",
        Basis::Halves | Basis::Nothing => "",
    };
    if let Some(side) = vantage.private {
        text += &format!(", in the private network of the {}", ends(side).0);
    }
    let halves = [vantage.to_client, vantage.to_server, vantage.path()];
    if let [Some(client), Some(server), Some(path)] = halves.map(|t| t.map(Micros::from)) {
        text += &format!(
            "; path RTT {path} at least: {client} to the client and back, {server} to the server and back"
        );
    }
    text
}

/// Another observation, in a few words.
pub fn observed(verdict: &DirectionVerdict, other: &Observed) -> String {
    let mut text = other.observation.name().to_owned();
    if let Some(time) = other.time {
        text += &format!(" {} ({})", percent(part(verdict, time)), Micros::from(time));
    }
    if let Some(events) = other.events.filter(|e| *e > 0) {
        text += &format!(" {}", plural(events, "time"));
    }
    text
}

fn socket(end: Endpoint) -> SocketAddr {
    SocketAddr::new(end.address, end.port)
}

/// What to do about a finding, and who should.
pub fn advise(ranked: &RankedConnection, found: &TraceFinding) -> Option<(String, Advice)> {
    let report = ranked.report();
    let (problem, side) = (found.problem.live()?, found.from?);
    let verdict = ranked.verdict(side);
    let finding = verdict.finding(problem)?;
    let length = u64::try_from(total(verdict).as_nanos()).unwrap_or(u64::MAX);
    let interval = IntervalVerdict {
        connection: ConnectionId {
            boot_id: 0,
            netns: 0,
            cookie: ranked.number,
            start: MonoNanos(0),
        },
        from: MonoNanos(0),
        to: MonoNanos(length),
        dominating: verdict.dominating,
        findings: verdict.findings.clone(),
        unmeasured: verdict.unmeasured,
        deltas: verdict.deltas,
    };
    let context = AdviceContext {
        min_rtt: verdict.deltas.baseline_rtt,
        ..AdviceContext::default()
    };
    let advice = slowpath_diagnose::advise(finding, &interval, &context);
    let ends = [side, side.peer()].map(|s| socket(report.endpoint(s)));
    let who = match advice.who {
        Actor::HostOperator => format!("the operator of {}", ends[0].ip()),
        who => slowpath_text::who(who, None, Some(FourTuple::new(ends[0], ends[1]))),
    };
    Some((who, advice))
}

// SPDX-License-Identifier: Apache-2.0
//! Phrases about the verdict on one direction: the headline, its evidence, losses, vantage
//! point, advice.

use super::RankedConnection;
use super::selector::end;
use crate::segment::Endpoint;
use crate::tcp::Side;
use crate::verdict::{
    Basis, DirectionVerdict, Limit, Losses, Observed, Origin, PathRate, TraceFinding, TraceProblem,
    Vantage, VantagePoint,
};
use slowpath_model::{Finding, Micros, Problem, Share};
use slowpath_text::{bit_rate, bytes, percent, plural};
use std::time::Duration;

/// What is wrong with a connection, or what limited it.
pub struct Worst {
    /// The problem's name, or the limit's where none was found.
    pub name: &'static str,
    /// The problem, if one was found.
    pub problem: Option<TraceProblem>,
    /// Whose data it is about.
    pub side: Side,
    /// Its part of the connection's time.
    pub share: f64,
    /// Its time; `None`: it has none.
    pub time: Option<Duration>,
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

/// The worst finding of both directions, or what limited the direction with more data most.
pub fn worst(ranked: &RankedConnection) -> Worst {
    let side = ranked.worst_side();
    if let Some(worst) = ranked
        .findings()
        .first()
        .filter(|f| !f.problem.is_harmless())
    {
        return Worst {
            name: worst.problem.name(),
            problem: Some(worst.problem),
            side: match worst.problem {
                problem if problem.is_failure() => Side::Client,
                _ => worst.from.unwrap_or(side),
            },
            share: worst.share,
            time: worst.time,
            events: worst.events,
        };
    }
    let verdict = ranked.verdict(side);
    let shares = verdict.line.shares();
    let idle = [Limit::Opening, Limit::Closed];
    let limits = Limit::ALL.into_iter().filter(|l| !idle.contains(l));
    let largest = limits.max_by_key(|l| (shares.of(*l), std::cmp::Reverse(*l)));
    let largest = largest.unwrap_or(Limit::SenderApp);
    let time = shares.of(largest);
    Worst {
        name: largest.name(),
        problem: None,
        side,
        share: part(verdict, time),
        time: Some(time),
        events: None,
    }
}

/// What is wrong with a connection, as a sentence.
pub fn limited(worst: &Worst) -> String {
    let Worst { name, share, .. } = worst;
    let share = percent(*share);
    let Some(problem) = worst.problem else {
        return format!("{name}, {share} of the time; no problem found");
    };
    match (problem.live(), worst.time) {
        _ if problem.is_failure() => format!("Failed: {name}"),
        (Some(live), Some(_)) if !problem.is_of_connection() => {
            let stage = slowpath_text::evidence::stage(live);
            format!("Limited by {stage}: {name}, {share} of the time")
        }
        (_, Some(_)) => format!("Limited by the network: {name}, {share} of the time"),
        (_, None) => name.to_string(),
    }
}

/// The numbers behind a finding.
pub fn evidence(ranked: &RankedConnection, finding: &TraceFinding) -> String {
    let r = ranked.report();
    let time = finding.time.map(Micros::from);
    let during = time.map_or(String::new(), |t| format!(" in {t}"));
    let times = |noun: &str| plural(finding.events.unwrap_or(0), noun);
    let icmp = ranked.finished.report.verdicts.unreachable;
    let unopened = [TraceProblem::Unanswered, TraceProblem::Refused];
    if let Some(icmp) = icmp.filter(|_| unopened.contains(&finding.problem)) {
        return format!(
            "{}{during}; ICMP in packet {}: destination unreachable",
            plural(r.from_client.control.syns, "SYN"),
            icmp.frame
        );
    }
    match finding.problem {
        TraceProblem::Unanswered => format!("{}{during}, nothing came back", times("SYN")),
        TraceProblem::Refused => format!("{} in answer to the SYN{during}", times("RST")),
        TraceProblem::Reset => {
            let by = finding.from.map_or(r.server, |side| r.endpoint(side));
            let lost = [Side::Client, Side::Server].map(|s| r.sent_by(s).data.undelivered());
            format!(
                "RST from {}; not acknowledged: {} of the client's data, {} of the server's",
                end(by),
                bytes(lost[0]),
                bytes(lost[1])
            )
        }
        TraceProblem::SynRetransmit => format!("sent again {}{during}", times("time")),
        TraceProblem::SlowHandshake => match time {
            Some(time) => format!("{time} from SYN to ACK, nothing sent again"),
            None => "nothing sent again".to_owned(),
        },
        TraceProblem::Reordering => {
            format!(
                "{} overtaken by later ones, nothing waited for it",
                times("segment")
            )
        }
        TraceProblem::TailLossProbe => {
            let side = finding.from.unwrap_or(Side::Client);
            let probes = r.sent_by(side).retransmitted.tail_loss_probes;
            plural(probes.max(1), "tail loss probe")
        }
        TraceProblem::ZeroWindow => {
            let side = finding.from.unwrap_or(Side::Client).peer();
            let closed = r.sent_by(side).window.closed;
            format!(
                "{} closed its window {}",
                end(r.endpoint(side)),
                plural(closed, "time")
            )
        }
        problem => match (problem.live(), finding.from) {
            (Some(live), Some(side)) => numbers(ranked.verdict(side), live),
            _ => String::new(),
        },
    }
}

/// The packets that show a finding, and the time between them.
pub fn frames(finding: &TraceFinding) -> Option<String> {
    let (from, to) = finding.frames?;
    if from.frame == to.frame {
        return Some(format!("packet {}", from.frame));
    }
    // The frame that shows the beginning may have come after the one that shows the end.
    let between = from.time.0.abs_diff(to.time.0) / 1000;
    let (from, to) = (from.frame, to.frame);
    Some(format!("packets {from} to {to}, {}", Micros(between)))
}

/// The numbers behind a problem.
pub fn numbers(verdict: &DirectionVerdict, problem: Problem) -> String {
    let interval = Micros::from(total(verdict));
    // A capture's times of these are sums over its packets; the other problems' are not shown here.
    let time = match problem {
        Problem::SendBufferLimited => verdict.deltas.sndbuf_limited,
        Problem::ReceiverWindowLimited => verdict.deltas.rwnd_limited,
        _ => None,
    };
    let finding = Finding {
        problem,
        share: time.map_or(Share::Coarse, Share::Measured),
        events: None,
    };
    let mut phrases = slowpath_text::evidence::of(&finding, &verdict.deltas, interval);
    for text in &mut phrases {
        // Packets show what was under way; the congestion window was at least that.
        if let Some(rest) = text.strip_prefix("congestion window ") {
            *text = format!("in flight at most {rest}");
        }
    }
    // What packets do not show, or what is nothing, is no evidence.
    phrases.retain(|text| text != "0 B in it" && !text.starts_with("in flight at most 0 "));
    if verdict.inferred.contains(problem) {
        phrases.push(match problem {
            Problem::Timeout => {
                "inferred: frames are missing by their IP identification".to_owned()
            }
            _ => "inferred: packets do not show the buffer".to_owned(),
        });
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

/// A queue shorter than this is a host's own.
const SHORTEST_QUEUE: Duration = Duration::from_millis(1);

/// What the path delivered, if that is known.
pub fn path(path: &PathRate) -> Option<String> {
    let mut text = format!(
        "delivered at most {}",
        bit_rate(path.bytes_per_second? as f64)
    );
    if let (Some(least), Some(high)) = (path.least_rtt, path.high_rtt) {
        let [least, high] = [least, high].map(Micros::from);
        text += &format!(" over a round trip, RTT {least} to {high} (95th percentile)");
    }
    if let (Some(queue), Some(queued)) = (path.queue(), path.queued_bytes())
        && queue >= path.least_rtt.unwrap_or_default()
        && queue >= SHORTEST_QUEUE
    {
        let queue = Micros::from(queue);
        text += &format!(": up to {queue}, {}, in queues", bytes(queued));
    }
    Some(text)
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

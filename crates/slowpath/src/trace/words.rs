// SPDX-License-Identifier: Apache-2.0
//! What a verdict on a connection says, in words: the headline, its evidence, advice, and the
//! places that show it.

use super::Numbered;
use crate::advice;
use crate::evidence;
use crate::render::{percent, plural};
use slowpath_diagnose::{Actor, Advice, AdviceContext};
use slowpath_model::{ConnectionId, FourTuple, IntervalVerdict, Micros, MonoNanos, Problem};
use slowpath_trace::message::Message;
use slowpath_trace::picture::{Recording, Remark};
use slowpath_trace::segment::{Endpoint, Timestamp};
use slowpath_trace::tcp::{Kind, Marks, Side};
use slowpath_trace::verdict::{
    DirectionVerdict, Interval, Limit, Losses, Observation, Observed, Origin, Place, Vantage,
};
use std::net::SocketAddr;
use std::time::Duration;

/// Places listed for one finding.
const PLACES: usize = 5;

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

/// The whole of a direction's time.
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

/// The worst of a direction.
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
    let mut said = evidence::of(problem, &verdict.deltas, interval);
    for text in &mut said {
        // Packets show what was under way; the congestion window was at least that.
        if let Some(rest) = text.strip_prefix("congestion window ") {
            *text = format!("in flight at most {rest}");
        }
    }
    if verdict.inferred.contains(problem) {
        said.push("inferred: packets do not show the buffer".to_owned());
    }
    said.join(", ")
}

/// Where losses come from, if there were any.
pub fn losses(losses: &Losses) -> Option<String> {
    let judged = match losses.origin {
        Origin::NoLoss => return None,
        Origin::Congestion => "the RTT varies much: congestion",
        Origin::Fault => "the RTT varies little: suspect a fault (a link, a card, a policer)",
        Origin::Unclear => "the RTT's variation tells neither congestion nor a fault",
        Origin::TooFewLosses => "too few to tell congestion from a fault",
        Origin::TooFewSamples => "too few RTT samples to tell congestion from a fault",
    };
    let micros = |t: Option<Duration>| t.map(Micros::from);
    let range = match (micros(losses.least_rtt), micros(losses.high_rtt)) {
        (Some(least), Some(high)) => format!(", RTT {least} to {high} (95th percentile)"),
        _ => String::new(),
    };
    Some(format!(
        "{} of {} lost ({:.2} %){range}; {judged}",
        losses.lost,
        plural(losses.sent, "segment"),
        losses.rate() * 100.0
    ))
}

/// Where the capture was made.
pub fn vantage(vantage: &Vantage, client: Endpoint, server: Endpoint) -> String {
    let ways = [vantage.to_client, vantage.to_server].map(|t| t.map(Micros::from));
    let ways = match ways {
        [Some(client), Some(server)] => {
            format!(" ({client} to the client and back, {server} to the server and back)")
        }
        _ => String::new(),
    };
    let at = |end: Endpoint, name: &str| format!("captured at the {name}, {}{ways}", end.address);
    match vantage.place {
        Place::At(Side::Client) => at(client, "client"),
        Place::At(Side::Server) => at(server, "server"),
        Place::Between => format!("captured between the ends{ways}"),
        Place::Unknown => format!("the packets do not tell where they were captured{ways}"),
    }
}

/// What else was observed, in a few words.
pub fn observed(verdict: &DirectionVerdict, seen: &Observed) -> String {
    let mut text = seen.observation.name().to_owned();
    if let Some(time) = seen.time {
        text += &format!(" {} ({})", percent(part(verdict, time)), Micros::from(time));
    }
    if let Some(events) = seen.events.filter(|e| *e > 0) {
        text += &format!(" {}", plural(events, "time"));
    }
    text
}

fn socket(end: Endpoint) -> SocketAddr {
    SocketAddr::new(end.address, end.port)
}

/// What to do about a problem, and who should.
pub fn advise(numbered: &Numbered, side: Side, problem: Problem) -> Option<(String, Advice)> {
    let report = numbered.report();
    let verdict = numbered.verdict(side);
    let finding = verdict.finding(problem)?;
    let length = u64::try_from(total(verdict).as_nanos()).unwrap_or(u64::MAX);
    let interval = IntervalVerdict {
        connection: ConnectionId {
            boot_id: 0,
            netns: 0,
            cookie: numbered.number,
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
        who => advice::who(who, None, Some(FourTuple::new(ends[0], ends[1]))),
    };
    Some((who, advice))
}

/// The longest stretches of some limits, longest first.
fn places(verdict: &DirectionVerdict, limits: impl Fn(Limit) -> bool) -> Vec<Interval> {
    let mut found: Vec<Interval> = (verdict.line.intervals())
        .filter(|i| limits(i.limit))
        .collect();
    // What the line has forgotten may have been the longest.
    let longest = Limit::ALL.into_iter().filter(|l| limits(*l));
    for interval in longest.filter_map(|l| verdict.line.longest(l)) {
        if !found.iter().any(|i| i.from == interval.from) {
            found.push(interval);
        }
    }
    found.sort_by_key(|i| (std::cmp::Reverse(i.duration()), i.from.frame));
    found.truncate(PLACES);
    found
}

/// What there is to say about a connection, and where to look.
pub fn remarks(numbered: &Numbered, recording: Option<&Recording>) -> Vec<Remark> {
    let report = numbered.report();
    let mut remarks = Vec::new();
    let main = numbered.worst_side();
    for side in [main, main.peer()] {
        let verdict = numbered.verdict(side);
        let shares = verdict.line.shares();
        for finding in &verdict.findings {
            let problem = finding.problem;
            let time = shares.of_problem(problem);
            let text = format!(
                "{problem} {} ({}): {}",
                percent(part(verdict, time)),
                Micros::from(time),
                numbers(verdict, problem)
            );
            let limits = |l: Limit| l.problem() == Some(problem);
            say(
                &mut remarks,
                side,
                problem.name(),
                &text,
                places(verdict, limits),
            );
        }
        for seen in &verdict.observed {
            let text = observed(verdict, seen);
            let name = seen.observation.name();
            let limit = match seen.observation {
                Observation::CongestionWindowLimited => Some(Limit::CongestionWindow),
                Observation::ZeroWindow => Some(Limit::ZeroWindow),
                Observation::SmallWrites => Some(Limit::SmallWrites),
                Observation::TailLossProbe => Some(Limit::TailLossProbe),
                _ => None,
            };
            match limit {
                Some(limit) => {
                    let mut places = places(verdict, |l| l == limit);
                    places.truncate(1);
                    say(&mut remarks, side, name, &text, places);
                }
                None => remarks.push(shown(
                    side,
                    seen.observation,
                    text,
                    recording,
                    report.first.time,
                )),
            }
        }
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
    remarks
}

/// The slowest messages with a cause, slowest first.
fn slowest(verdict: &DirectionVerdict) -> Vec<&Message> {
    let slowest = verdict.messages.slowest.iter();
    let mut slowest: Vec<&Message> = slowest.filter(|m| !m.causes.is_empty()).collect();
    slowest.sort_by_key(|m| std::cmp::Reverse(m.duration()));
    slowest.truncate(PLACES);
    slowest
}

/// A remark for each place; the first says all.
fn say(remarks: &mut Vec<Remark>, side: Side, name: &str, text: &str, places: Vec<Interval>) {
    for (number, place) in places.iter().enumerate() {
        let text = match number {
            0 => text.to_owned(),
            _ => format!("{name} for {}", Micros::from(place.duration())),
        };
        remarks.push(Remark {
            text,
            side: Some(side),
            from: place.from.time,
            to: place.to.time,
            frames: vec![place.to.frame, place.from.frame],
        });
    }
}

/// A remark on what is a segment and not a stretch of time: the first that shows it.
fn shown(
    side: Side,
    observation: Observation,
    text: String,
    recording: Option<&Recording>,
    otherwise: Timestamp,
) -> Remark {
    let shows = |kind: Kind, marks: Marks| match observation {
        Observation::Reordering => kind == Kind::OutOfOrder,
        Observation::SynRetransmit => {
            kind == Kind::Retransmission(slowpath_trace::tcp::Cause::Handshake)
        }
        Observation::EcnMarked => marks.any(Marks::CE | Marks::ECE),
        Observation::IdleBurst => marks.any(Marks::AFTER_IDLE),
        _ => false,
    };
    let mut places = recording.map_or(&[][..], |r| &r.points).iter();
    let place = places.find(|p| {
        let echo = observation == Observation::EcnMarked && p.marks.any(Marks::ECE);
        shows(p.kind, p.marks) && (p.side == side) != echo
    });
    let time = place.map_or(otherwise, |p| p.time);
    Remark {
        text,
        side: Some(side),
        from: time,
        to: time,
        frames: place.map(|p| p.frame).into_iter().collect(),
    }
}

/// What limits a connection, in a few words.
pub fn title(numbered: &Numbered) -> String {
    let headline = headline(numbered.verdict(numbered.worst_side()));
    format!("{} {}", headline.name, percent(headline.share))
}

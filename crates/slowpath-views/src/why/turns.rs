// SPDX-License-Identifier: Apache-2.0
//! How long each end's turns took: requests and answers, as text and as JSON.

use crate::conclusion::{Member, OtherEnds};
use crate::source::{Capabilities, FeatureState};
use crate::tally::share;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use slowpath_model::{AnswerTimes, Micros, TurnTimes};
use slowpath_text::{percent, plural, process};
use std::collections::BTreeMap;

/// An answer that has not come within this is worth a line of its own where none came before: a first
/// retransmission would have repaired a loss by then (RFC 6298 section 2.1).
const AWAITED: Micros = Micros(1_000_000);

/// The probes that turns need.
const PROBES: [&str; 2] = ["segment", "calls"];

/// Who answers on a connection, and how.
struct Answering<'a> {
    name: String,
    times: &'a AnswerTimes,
    round_trip: Option<Micros>,
}

impl<'a> Answering<'a> {
    /// The end that accepted the connection answers; where that is not known, the one with the lower port.
    fn of(member: &'a Member, other_ends: &'a OtherEnds) -> Self {
        let accepted = member.tuple.serves(member.origin);
        let (owner, address, times) = if accepted {
            (Some(&member.owner), member.tuple.local, &member.turns.here)
        } else {
            let address = member.real_peer.unwrap_or(member.tuple.remote);
            let owner = other_ends.of(member).map(|far| &far.owner);
            (owner, address, &member.turns.peer)
        };
        Answering {
            name: match owner.filter(|owner| owner.process().is_some()) {
                Some(owner) => process(owner),
                None => address.to_string(),
            },
            times,
            round_trip: least_rtt(member).filter(|_| !accepted),
        }
    }
}

fn least_rtt(member: &Member) -> Option<Micros> {
    let sums = member.stats.rtt_sums.and_then(|sums| sums.lifetime_min);
    sums.or(member.stats.min_rtt)
}

/// Those who answer under one name, over all their connections.
#[derive(Default)]
struct Group {
    answers: AnswerTimes,
    turns: TurnTimes,
    round_trip: Option<Micros>,
    observed: Micros,
}

impl Group {
    fn text(&self, name: &str) -> Option<String> {
        let answers = &self.answers;
        let all = self.turns.overlapping + self.turns.peer.count;
        if self.turns.duplex() {
            return Some(format!(
                "data passes both ways at once, in {} of {} with {name}: answers are not timed",
                self.turns.overlapping,
                plural(all, "exchange")
            ));
        }
        let Some((mean, within)) = answers.mean().zip(answers.quantile(0.95)) else {
            let pending = answers.pending.filter(|pending| *pending >= AWAITED)?;
            return Some(format!("no answer from {name} for {pending}"));
        };
        let mut text = format!(
            "{name} took {mean} to answer, {} of the time ({}, 95% within {within})",
            percent(share(answers.turn_time, self.observed)),
            plural(answers.count, "answer"),
        );
        if let Some(rtt) = self.round_trip.filter(|rtt| rtt.0 * 50 > mean.0) {
            text.push_str(&format!("; {} of it is the round trip", rtt.min(mean)));
        }
        if let Some(pending) = answers.pending.filter(|p| *p > answers.longest) {
            text.push_str(&format!("; one has been awaited for {pending}"));
        }
        Some(text)
    }
}

/// Who took most time to answer, in a line; `None` without answers.
pub(super) fn line(members: &[Member], other_ends: &OtherEnds) -> Option<String> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for member in members.iter().filter(|m| m.turns.observed) {
        let answering = Answering::of(member, other_ends);
        let group = groups.entry(answering.name).or_default();
        group.answers.merge(answering.times);
        group.turns.merge(&member.turns);
        group.observed += member.tally.totals.observed;
        group.round_trip = match (group.round_trip, answering.round_trip) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    let texts = groups.iter().filter_map(|(name, group)| {
        let text = group.text(name)?;
        Some(((group.answers.count > 0, group.answers.turn_time), text))
    });
    texts.max_by_key(|(time, _)| *time).map(|(_, text)| text)
}

/// Why turns could not be measured, if they could not.
pub(super) fn unmeasured(members: &[Member], capabilities: &Capabilities) -> Option<String> {
    if members.is_empty() || members.iter().any(|m| m.turns.observed) {
        return None;
    }
    let features = &capabilities.features;
    let reason = features.iter().find_map(|feature| match &feature.state {
        FeatureState::Missing { reason } if PROBES.contains(&feature.name) => Some(reason),
        _ => None,
    })?;
    Some(format!("could not measure: whose turn it is ({reason})"))
}

/// Turns of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct TurnEntry {
    /// Turns that ended.
    pub answers: u64,
    /// How long they took in the mean, in microseconds; null without any.
    pub mean_us: Option<u64>,
    /// How long half of them took at most.
    pub p50_us: Option<u64>,
    /// How long 95 % of them took at most.
    pub p95_us: Option<u64>,
    /// How long the longest took.
    pub max_us: Option<u64>,
    /// How much of the time observed was this end's turn, in microseconds, the present one included.
    pub time_us: u64,
    /// How long the present turn has lasted, in microseconds; null if it is not this end's.
    pub pending_us: Option<u64>,
}

impl From<&AnswerTimes> for TurnEntry {
    fn from(times: &AnswerTimes) -> Self {
        let us = |time: Option<Micros>| time.map(|t| t.0);
        TurnEntry {
            answers: times.count,
            mean_us: us(times.mean()),
            p50_us: us(times.quantile(0.5)),
            p95_us: us(times.quantile(0.95)),
            max_us: (times.count > 0).then_some(times.longest.0),
            time_us: times.turn_time.0,
            pending_us: us(times.pending),
        }
    }
}

/// The peer's turns less the least RTT: what the peer itself took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct TurnWithoutRtt {
    /// The least RTT, in microseconds.
    pub least_rtt_us: u64,
    /// How long a turn took in the mean without it.
    pub mean_us: Option<u64>,
    /// How long half of them took at most.
    pub p50_us: Option<u64>,
    /// How long 95 % of them took at most.
    pub p95_us: Option<u64>,
}

/// Whose turn it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct TurnsEntry {
    /// The peer's turns: from the last write here to the first byte of its answer, the round trip included.
    pub peer: TurnEntry,
    /// The same without the round trip; null where the RTT is not known.
    pub peer_without_rtt: Option<TurnWithoutRtt>,
    /// This end's turns: from the last byte that arrived to the application's next write.
    pub here: TurnEntry,
    /// Exchanges in which one end sent before it had what the other had sent.
    pub overlapping: u64,
    /// More than a twentieth of the exchanges overlap: the traffic is no sequence of requests and answers.
    pub duplex: bool,
}

impl TurnsEntry {
    /// Of a connection; `None` if turns could not be measured.
    pub(super) fn of(member: &Member) -> Option<Self> {
        let turns = &member.turns;
        let peer = TurnEntry::from(&turns.peer);
        turns.observed.then(|| TurnsEntry {
            peer,
            peer_without_rtt: least_rtt(member).map(|rtt| {
                let less = |us: Option<u64>| us.map(|us| us.saturating_sub(rtt.0));
                TurnWithoutRtt {
                    least_rtt_us: rtt.0,
                    mean_us: less(peer.mean_us),
                    p50_us: less(peer.p50_us),
                    p95_us: less(peer.p95_us),
                }
            }),
            here: (&turns.here).into(),
            overlapping: turns.overlapping,
            duplex: turns.duplex(),
        })
    }
}

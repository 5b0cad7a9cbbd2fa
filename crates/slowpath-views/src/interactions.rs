// SPDX-License-Identifier: Apache-2.0
//! Interactions of live connections: found poll by poll, as text, as JSON.

use crate::json::{self, AdviceEntry, Process};
use crate::source::{LiveConnection, PollReport, Source};
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use slowpath_diagnose::{
    Interaction, InteractionEvidence, InteractionKind, Interactions, Observation, ProxyFlow,
};
use slowpath_model::{ConnectionId, FourTuple, Micros, MonoNanos, Owner, WallMicros};
use slowpath_text::{Paint, bit_rate, bytes, percent, process, who};
use std::collections::{BTreeMap, HashMap};

/// Interactions kept for the closing summary; further ones are not kept.
const MOST: usize = 1_000;

/// What names an interaction over several polls.
type Key = (InteractionKind, Vec<ConnectionId>);

/// An interaction, and who its connections are.
#[derive(Clone, Debug)]
pub struct FoundInteraction {
    /// What was found.
    pub interaction: Interaction,
    /// Its connections, in the same order.
    pub members: Vec<(ConnectionId, FourTuple, Owner)>,
    /// Polls that found it.
    pub polls: u64,
}

/// Finds interactions in verdicts, poll by poll.
#[derive(Clone, Debug, Default)]
pub struct InteractionFinder {
    recent: Interactions,
    until: MonoNanos,
    /// Those of the latest poll.
    now: Vec<Key>,
    all: BTreeMap<Key, FoundInteraction>,
}

impl InteractionFinder {
    /// Takes a poll in and returns the interactions that the poll before did not have.
    pub fn polled(&mut self, source: &dyn Source, report: &PollReport) -> Vec<FoundInteraction> {
        let mut latest = self.until;
        for live in source.recently_closed().chain(source.connections()) {
            if let Some(verdict) = live.latest.filter(|v| v.to > self.until) {
                latest = latest.max(verdict.to);
                self.recent.observe(&Observation {
                    tuple: live.snapshot.tuple,
                    pid: live.owner.pid(),
                    origin: live.snapshot.origin,
                    stats: &live.snapshot.stats,
                    verdict,
                });
            }
        }
        // Verdicts of one poll end within it: the next one's end later than it began.
        self.until = report.at.max(self.until);
        self.recent.forget(latest.max(report.at));
        let found = self.recent.find();
        if found.is_empty() {
            self.now.clear();
            return Vec::new();
        }
        let who: HashMap<ConnectionId, LiveConnection<'_>> = source
            .connections()
            .chain(source.recently_closed())
            .map(|live| (live.snapshot.id, live))
            .collect();
        let before = std::mem::take(&mut self.now);
        let mut fresh = Vec::new();
        for interaction in found {
            let key = (interaction.kind, interaction.connections.clone());
            let members = interaction
                .connections
                .iter()
                .filter_map(|id| {
                    let live = who.get(id)?;
                    Some((*id, live.snapshot.tuple, live.owner.clone()))
                })
                .collect();
            let polls = self.all.get(&key).map_or(0, |t| t.polls) + 1;
            let found = FoundInteraction {
                interaction,
                members,
                polls,
            };
            if !before.contains(&key) {
                fresh.push(found.clone());
            }
            if self.all.len() < MOST || self.all.contains_key(&key) {
                self.all.insert(key.clone(), found);
            }
            self.now.push(key);
        }
        fresh
    }

    /// The interactions of the latest poll that a connection is part of.
    pub fn of(&self, id: ConnectionId) -> impl Iterator<Item = &FoundInteraction> {
        self.now
            .iter()
            .filter(move |(_, ids)| ids.contains(&id))
            .filter_map(|key| self.all.get(key))
    }

    /// All that were found, with those connections among theirs.
    pub fn all(&self, wanted: impl Fn(&ConnectionId) -> bool) -> Vec<&FoundInteraction> {
        self.all
            .values()
            .filter(|t| t.interaction.connections.iter().any(&wanted))
            .collect()
    }
}

/// The numbers of an interaction, in words.
pub fn evidence(evidence: &InteractionEvidence) -> Vec<String> {
    match evidence {
        InteractionEvidence::TimeoutThenDelayedAck {
            timeouts,
            delayed_acks,
            retransmitted_segments,
        } => vec![
            format!("{timeouts} timeouts"),
            format!("{delayed_acks} delayed ACKs after them"),
            format!("{retransmitted_segments} segments sent again"),
        ],
        InteractionEvidence::TooFewForFastRetransmit {
            timeouts,
            average_write_bytes,
            send_mss_bytes,
            spread_over_connections,
        } => vec![
            format!("{timeouts} losses found by the timer"),
            format!(
                "{} a write, MSS {}",
                bytes(*average_write_bytes),
                bytes((*send_mss_bytes).into())
            ),
            format!("{spread_over_connections} such connections to that peer"),
        ],
        InteractionEvidence::SendBufferBelowBdp { .. } => below_bdp(evidence),
        InteractionEvidence::PipelinedProxy { .. } => proxy(evidence),
    }
}

fn below_bdp(evidence: &InteractionEvidence) -> Vec<String> {
    let InteractionEvidence::SendBufferBelowBdp {
        capacity_bytes,
        bandwidth_low,
        bandwidth_high,
        min_rtt_us,
        product_low_bytes,
        product_high_bytes,
        average_write_bytes,
        send_buffer_bytes: _,
    } = evidence
    else {
        return Vec::new();
    };
    let mut words = vec![
        format!("{} fit into the send buffer", bytes(*capacity_bytes)),
        format!(
            "bandwidth between {} and {}, minimum RTT {}",
            bit_rate(*bandwidth_low as f64),
            bit_rate(*bandwidth_high as f64),
            Micros(*min_rtt_us)
        ),
        format!(
            "product between {} and {}",
            bytes(*product_low_bytes),
            bytes(*product_high_bytes)
        ),
    ];
    words.extend(average_write_bytes.map(|w| format!("{} a write", bytes(w))));
    words
}

fn proxy(evidence: &InteractionEvidence) -> Vec<String> {
    let InteractionEvidence::PipelinedProxy {
        flow,
        problem,
        share,
        cause,
        bytes_in,
        bytes_out,
        processes,
        pid: _,
    } = evidence
    else {
        return Vec::new();
    };
    let flow = match flow {
        ProxyFlow::BackedUp => "what comes in waits",
        ProxyFlow::Starved => "what goes out waits",
    };
    let mut words = vec![
        format!(
            "{flow}: {cause} has {problem}, {} of the time",
            percent(*share)
        ),
        format!(
            "{} came in, {} went out",
            bytes(*bytes_in),
            bytes(*bytes_out)
        ),
    ];
    if *processes > 1 {
        words.push(format!("through {processes} processes of this host"));
    }
    words
}

/// `PipelinedProxy  nginx[12]  10.0.0.1:80 -> 10.0.0.9:5000  what comes in waits: ...`
pub fn line(found: &FoundInteraction, paint: Paint) -> String {
    let first = found.members.first();
    format!(
        "{}  {}  {}  {}",
        paint.bold(&format!("{:<26}", found.interaction.kind.name())),
        first.map_or_else(|| "?".to_owned(), |(_, _, owner)| process(owner)),
        first.map_or_else(String::new, |(_, tuple, _)| tuple.to_string()),
        evidence(&found.interaction.evidence).join(", "),
    )
}

/// Head and text of each point that an answer makes of an interaction.
pub fn points(found: &FoundInteraction) -> Vec<(&'static str, String)> {
    let advice = &found.interaction.advice;
    // Who can act is known best at the cause.
    let cause = found.members.last();
    let acts = who(
        advice.who,
        cause.map(|(_, _, owner)| owner),
        cause.map(|(_, tuple, _)| *tuple),
    );
    vec![
        ("evidence", evidence(&found.interaction.evidence).join(", ")),
        ("act", acts),
        ("advice", advice.what.clone()),
        ("after", advice.source.to_owned()),
    ]
}

/// Each with evidence and advice.
pub fn answers(
    found: &[&FoundInteraction],
    most: usize,
    width: usize,
    paint: Paint,
) -> Vec<String> {
    let mut lines = Vec::new();
    for found in found.iter().take(most) {
        lines.push(paint.bold(&format!("interaction: {}", found.interaction.kind)));
        lines.extend(crate::points::lines(points(found), width));
    }
    lines
}

/// A connection of an interaction.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct InteractionConnection {
    /// Inode number of the network namespace.
    pub netns: u32,
    /// The socket cookie.
    pub cookie: u64,
    /// When the socket was made, in nanoseconds of the monotonic clock.
    pub start_ns: u64,
    /// This host's address and port.
    pub local: String,
    /// The peer's address and port.
    pub remote: String,
    /// The process that owns it.
    pub process: Option<Process>,
}

/// Problems of several connections that explain each other: `{"type": "interaction"}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct InteractionOutput {
    /// `interaction`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// When it was given, RFC 3339 in UTC.
    pub time: String,
    /// Its name.
    pub interaction: &'static str,
    /// The connection that suffers first, the one that causes it last.
    pub connections: Vec<InteractionConnection>,
    /// Polls that found it.
    pub polls: u64,
    /// The numbers behind it; their keys depend on the interaction.
    #[cfg_attr(
        test,
        schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")
    )]
    pub evidence: InteractionEvidence,
    /// What to do.
    pub advice: AdviceEntry,
}

impl FoundInteraction {
    /// What serialises, given at `now`.
    pub fn output(&self, now: WallMicros) -> InteractionOutput {
        let connection =
            |(id, tuple, owner): &(ConnectionId, FourTuple, Owner)| InteractionConnection {
                netns: id.netns,
                cookie: id.cookie,
                start_ns: id.start.0,
                local: tuple.local.to_string(),
                remote: tuple.remote.to_string(),
                process: json::process(owner),
            };
        InteractionOutput {
            kind: "interaction",
            time: json::wall(now),
            interaction: self.interaction.kind.name(),
            connections: self.members.iter().map(connection).collect(),
            polls: self.polls,
            evidence: self.interaction.evidence.clone(),
            advice: (&self.interaction.advice).into(),
        }
    }
}

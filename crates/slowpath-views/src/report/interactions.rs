// SPDX-License-Identifier: Apache-2.0
//! Interactions in the log, summed: one line for each pair of connections.

use crate::filter::{Filter, Subject};
use crate::interactions::evidence;
use crate::json::{self, Process};
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use slowpath_model::{
    ConnectionId, InteractionEvidence, InteractionInterval, InteractionKind, ProblemSet, TcpState,
};
use slowpath_text::{Columns, Paint, process};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Pairs of connections with sums of their own; those beyond are counted.
const MOST: usize = 10_000;

type Key = (InteractionKind, ConnectionId, ConnectionId);

/// Sums of interactions.
#[derive(Clone, Debug, Default)]
pub struct InteractionTotals {
    /// The latest of each, with the time and the rounds of all.
    pairs: BTreeMap<Key, InteractionInterval>,
    overflowed: u64,
}

impl InteractionTotals {
    /// Adds one, if the filter selects the connection that suffers.
    pub fn add(&mut self, found: InteractionInterval, filter: &Filter) {
        let selected = filter.selects(&Subject {
            local: found.tuple.local,
            remote: found.tuple.remote,
            state: TcpState::Established,
            owner: &found.owner,
            problems: ProblemSet::EMPTY,
        });
        if !selected {
            return;
        }
        let key = (found.kind, found.connection, found.cause);
        let full = self.pairs.len() >= MOST;
        match self.pairs.get_mut(&key) {
            Some(known) => {
                let (duration, rounds) = (known.duration, known.rounds);
                if found.end >= known.end {
                    *known = found;
                    (known.duration, known.rounds) =
                        (known.duration + duration, known.rounds + rounds);
                } else {
                    known.duration += found.duration;
                    known.rounds += found.rounds;
                }
            }
            None if full => self.overflowed += 1,
            None => {
                self.pairs.insert(key, found);
            }
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Longest first.
    fn worst(&self) -> Vec<&InteractionInterval> {
        let mut worst: Vec<_> = self.pairs.values().collect();
        worst.sort_by_key(|i| (Reverse(i.duration), i.kind, i.connection));
        worst
    }

    /// The longest `most`, in lines.
    pub fn lines(&self, most: usize, paint: Paint) -> Vec<String> {
        let mut columns = Columns::new(&["interaction", ">time", "process", "connection", ""]);
        for found in self.worst().into_iter().take(most) {
            columns.row([
                found.kind.name().to_owned(),
                found.duration.to_string(),
                process(&found.owner),
                found.tuple.to_string(),
                evidence(&found.evidence).join(", "),
            ]);
        }
        let mut lines = vec!["problems that explain each other".to_owned()];
        lines.extend(columns.lines(2, paint));
        if self.overflowed > 0 {
            lines.push(format!(
                "  not listed separately: {} records beyond {MOST}",
                self.overflowed
            ));
        }
        lines
    }

    /// What serialises.
    pub fn output(&self) -> Vec<InteractionRecord> {
        let record = |found: &InteractionInterval| InteractionRecord {
            interaction: found.kind.name(),
            process: json::process(&found.owner),
            local: found.tuple.local.to_string(),
            remote: found.tuple.remote.to_string(),
            cause: Cause {
                local: found.cause_tuple.local.to_string(),
                remote: found.cause_tuple.remote.to_string(),
            },
            connections: found.connections,
            last: json::wall(found.end),
            time_us: found.duration.0,
            rounds: found.rounds,
            evidence: found.evidence.clone(),
        };
        self.worst().into_iter().map(record).collect()
    }
}

/// The connection that causes an interaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Cause {
    /// This host's address and port.
    pub local: String,
    /// The peer's address and port.
    pub remote: String,
}

/// An interaction of a pair of connections in the log, summed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct InteractionRecord {
    /// Its name.
    pub interaction: &'static str,
    /// The process that owns the connection that suffers.
    pub process: Option<Process>,
    /// This host's address and port of the connection that suffers.
    pub local: String,
    /// The peer's.
    pub remote: String,
    /// The connection that causes it.
    pub cause: Cause,
    /// Connections that take part.
    pub connections: u32,
    /// The end of its last interval, RFC 3339 in UTC.
    pub last: String,
    /// Its time in microseconds.
    pub time_us: u64,
    /// Polls that found it.
    pub rounds: u64,
    /// The numbers of its latest interval; their keys depend on the interaction.
    #[cfg_attr(test, schemars(with = "BTreeMap<String, serde_json::Value>"))]
    pub evidence: InteractionEvidence,
}

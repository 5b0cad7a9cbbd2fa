// SPDX-License-Identifier: Apache-2.0
//! Interactions in the log, summed: one line for each pair of connections.

use super::lives::ReportRange;
use crate::filter::{Filter, Subject};
use crate::interactions::evidence;
use crate::json::{self, LimitReached, Process};
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use slowpath_model::{
    ConnectionId, InteractionEvidence, InteractionInterval, InteractionKind, Micros, ProblemSet,
    TcpState,
};
use slowpath_text::{Columns, Paint, process};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Pairs of connections with sums of their own; those beyond are counted.
const MOST: usize = 10_000;

type Key = (InteractionKind, ConnectionId, ConnectionId);

/// One pair of connections.
#[derive(Clone, Debug)]
struct Pair {
    /// The latest, with the rounds of all.
    latest: InteractionInterval,
    /// When it was found, as far as in the range: in order, without overlap.
    spans: Vec<ReportRange>,
}

impl Pair {
    fn add(&mut self, found: InteractionInterval, span: ReportRange) {
        let rounds = self.latest.rounds + found.rounds;
        if found.end >= self.latest.end {
            self.latest = found;
        }
        self.latest.rounds = rounds;
        // A pair may be part of several chains at a time: what they share counts once.
        let from = self.spans.partition_point(|s| s.to < span.from);
        let to = self.spans.partition_point(|s| s.from <= span.to);
        let join = |sum: ReportRange, next: &ReportRange| ReportRange {
            from: sum.from.min(next.from),
            to: sum.to.max(next.to),
        };
        let joined = self.spans[from..to].iter().fold(span, join);
        self.spans.splice(from..to, [joined]);
    }

    fn time(&self) -> Micros {
        let lengths = self.spans.iter().map(|span| span.length());
        lengths.fold(Micros::ZERO, |sum, length| sum + length)
    }
}

/// Sums of interactions.
#[derive(Clone, Debug, Default)]
pub struct InteractionTotals {
    pairs: BTreeMap<Key, Pair>,
    overflowed: u64,
}

impl InteractionTotals {
    /// Adds one as far as it is in the range, if the filter selects the connection that suffers.
    pub fn add(&mut self, found: InteractionInterval, range: ReportRange, filter: &Filter) {
        let selected = filter.selects(&Subject {
            local: found.tuple.local,
            remote: found.tuple.remote,
            state: TcpState::Established,
            owner: &found.owner,
            problems: ProblemSet::EMPTY,
        });
        let span = ReportRange {
            from: range.from.max(found.end - found.duration),
            to: range.to.min(found.end),
        };
        if !selected || span.from > span.to {
            return;
        }
        let key = (found.kind, found.connection, found.cause);
        let full = self.pairs.len() >= MOST;
        match self.pairs.get_mut(&key) {
            Some(pair) => pair.add(found, span),
            None if full => self.overflowed += 1,
            None => {
                let pair = Pair {
                    latest: found,
                    spans: vec![span],
                };
                self.pairs.insert(key, pair);
            }
        }
    }

    /// The bound on their number, if it was reached.
    pub fn limit_reached(&self) -> Option<LimitReached> {
        LimitReached::of("interactions", MOST, self.overflowed)
    }

    /// The latest of each pair.
    pub(super) fn latest(&self) -> impl Iterator<Item = &InteractionInterval> {
        self.pairs.values().map(|pair| &pair.latest)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Longest first.
    fn worst(&self) -> Vec<(Micros, &InteractionInterval)> {
        let pairs = self.pairs.values();
        let mut worst: Vec<_> = pairs.map(|pair| (pair.time(), &pair.latest)).collect();
        worst.sort_by_key(|(time, i)| (Reverse(*time), i.kind, i.connection));
        worst
    }

    /// The longest `most`, in lines.
    pub fn lines(&self, most: usize, paint: Paint) -> Vec<String> {
        let mut columns = Columns::new(&["interaction", ">time", "process", "connection", ""]);
        for (time, found) in self.worst().into_iter().take(most) {
            columns.row([
                found.kind.name().to_owned(),
                time.to_string(),
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
        let record = |(time, found): (Micros, &InteractionInterval)| InteractionRecord {
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
            time_us: time.0,
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
    /// Its time within the range in microseconds.
    pub time_us: u64,
    /// Polls that found it.
    pub rounds: u64,
    /// The numbers of its latest interval; their keys depend on the interaction.
    #[cfg_attr(test, schemars(with = "BTreeMap<String, serde_json::Value>"))]
    pub evidence: InteractionEvidence,
}

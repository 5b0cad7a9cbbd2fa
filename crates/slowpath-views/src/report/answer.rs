// SPDX-License-Identifier: Apache-2.0
//! The one answer about connections in the log, by the same rules as that of `why`.
//!
//! 1. Two lives are the ends of one connection if their addresses are each other's reversed and they overlap;
//!    where both are selected the connection is judged once, from the end that opened it.
//! 2. Counters in a summary are those of the whole life. Of a connection that is older than the agent, or whose
//!    life is only partly in the range, they say nothing about the time observed, and neither does how often
//!    whose turn it was: they are not known then. Its idle time is taken in proportion.
//! 3. A log from before idle time was kept has shares of all the time observed.

use super::lives::ReportRange;
use crate::conclusion::{Conclusion, Ends, Member, Observed, Refusing, conclude};
use crate::tally::Tally;
use slowpath_diagnose::{InteractionEvidence, ProxyFlow, Totals};
use slowpath_model::{
    ConnectionId, ConnectionSummary, Deltas, InteractionInterval, LifeFacts, Micros, MonoNanos,
    Origin, SocketFacts, TurnTimes,
};
use std::collections::{HashMap, HashSet};

/// What an answer from the log does not rest on, by the names that `answer_lacks` has.
const IDLE_TIME: &str = "idle_time";
const ENDINGS: &str = "endings";
const TURNS: &str = "turns";

/// Connections of the log as ends.
pub(super) struct LoggedEnds<'a> {
    lives: Vec<&'a ConnectionSummary>,
    members: Vec<Member>,
    /// So many of them, the first ones, are selected.
    selected: usize,
    by_ends: HashMap<Ends, Vec<usize>>,
    /// Of the process that does not read there, the connection because of which it does not.
    causes: HashMap<ConnectionId, usize>,
}

impl<'a> LoggedEnds<'a> {
    /// Those that are selected, and the others, all within the range.
    pub(super) fn new<'i>(
        selected: &'a [ConnectionSummary],
        others: &'a [ConnectionSummary],
        range: ReportRange,
        interactions: impl Iterator<Item = &'i InteractionInterval>,
    ) -> Self {
        let lives: Vec<_> = selected.iter().chain(others).collect();
        let members: Vec<Member> = lives.iter().map(|life| member(life, range)).collect();
        let mut by_ends: HashMap<Ends, Vec<usize>> = HashMap::new();
        for (i, member) in members.iter().enumerate() {
            by_ends.entry(member.ends()).or_default().push(i);
        }
        let ids = lives.iter().enumerate();
        let by_id: HashMap<_, _> = ids.map(|(i, life)| (life.connection, i)).collect();
        let causes = interactions
            .filter(|found| is_backed_up(found))
            .filter_map(|found| Some((found.connection, *by_id.get(&found.cause)?)));
        LoggedEnds {
            causes: causes.collect(),
            lives,
            members,
            selected: selected.len(),
            by_ends,
        }
    }

    /// The other end of the same connection: of several that had its port, the one that overlaps most.
    fn far(&self, near: usize) -> Option<usize> {
        let common = |far: &usize| {
            let (a, b) = (self.lives[near], self.lives[*far]);
            let from = a.first_observed.max(b.first_observed);
            let to = a.last_observed.min(b.last_observed);
            (to >= from).then(|| to.0.saturating_sub(from.0))
        };
        let ends = self.by_ends.get(&self.members[near].ends().reversed())?;
        let overlapping = ends.iter().filter(|far| common(far).is_some());
        overlapping.max_by_key(|far| common(far)).copied()
    }

    /// Whether its connection is judged from another of these ends.
    fn is_far(&self, end: usize, among: &HashSet<usize>) -> bool {
        let Some(other) = self.far(end).filter(|other| among.contains(other)) else {
            return false;
        };
        let opened = |i: usize| self.lives[i].origin == Origin::Opened;
        self.far(other) == Some(end) && (!opened(end), end) > (!opened(other), other)
    }

    /// The answer about all that are selected.
    pub(super) fn answer(&self, refusing: &[Refusing<'_>]) -> Conclusion {
        self.conclude(&Vec::from_iter(0..self.selected), refusing)
    }

    /// The answer about some of those that are selected, by their places.
    pub(super) fn conclude(&self, among: &[usize], refusing: &[Refusing<'_>]) -> Conclusion {
        let all = among.iter().copied().collect();
        let ends = among.iter().filter(|i| !self.is_far(**i, &all));
        let observed = ends.map(|near| {
            let far = self.far(*near);
            let ids = [Some(*near), far].into_iter().flatten();
            let mut ids = ids.map(|i| self.lives[i].connection);
            let cause = ids.find_map(|id| self.causes.get(&id));
            let cause = cause.filter(|i| *i != near);
            let end = |i: usize| self.members[i].end();
            let member = &self.members[*near];
            Observed {
                near: member.end(),
                far: far.map(end),
                peer: member.real_peer.unwrap_or(member.tuple.remote),
                listener: None,
                cause: cause.map(|i| (end(*i), self.far(*i).map(end))),
            }
        });
        conclude(observed, refusing)
    }

    /// What the records do not hold of those that are selected.
    pub(super) fn lacks(&self) -> Vec<&'static str> {
        let lives = || self.lives[..self.selected].iter();
        let mut lacks = Vec::new();
        if lives().any(|life| life.life.idle.is_none()) {
            lacks.push(IDLE_TIME);
        }
        let ended = |life: &&&ConnectionSummary| life.closed;
        if lives()
            .filter(ended)
            .any(|life| life.life.socket.ending.is_none())
        {
            lacks.push(ENDINGS);
        }
        if lives().next().is_some() && lives().all(|life| life.life.turns.is_none()) {
            lacks.push(TURNS);
        }
        lacks
    }
}

/// The same in words.
pub(super) fn lacks_lines(lacks: &[&'static str]) -> Option<String> {
    let words = |lack: &&'static str| match *lack {
        IDLE_TIME => "how long connections were idle, so that shares are of all the time observed",
        ENDINGS => "how connections ended",
        _ => "whose turn it was",
    };
    let words: Vec<&str> = lacks.iter().map(words).collect();
    (!words.is_empty()).then(|| format!("not in these records: {}", words.join("; ")))
}

/// A process that passes data on did not read, since what it sends was limited.
fn is_backed_up(found: &InteractionInterval) -> bool {
    matches!(
        found.evidence,
        InteractionEvidence::PipelinedProxy {
            flow: ProxyFlow::BackedUp,
            ..
        }
    )
}

/// What the log knows of an end, of its time in the range.
fn member(life: &ConnectionSummary, range: ReportRange) -> Member {
    let whole = range.contains(life.first_observed) && range.contains(life.last_observed);
    let from_birth = life.connection.start > MonoNanos(0);
    let LifeFacts {
        idle,
        socket,
        turns,
    } = &life.life;
    let totals = Totals {
        observed: life.observed,
        polls: life.polls,
        unmeasured: life.unmeasured,
        problem_time: life.problem_time,
        problem_events: life.problem_events,
    };
    Member {
        id: life.connection,
        tuple: life.tuple,
        real_peer: life.real_peer,
        owner: life.owner.clone(),
        stats: life.stats,
        tally: Tally::new(totals, deltas(life, whole && from_birth)),
        origin: life.origin,
        idle: idle.unwrap_or(Micros::ZERO).min(life.observed),
        facts: SocketFacts {
            ending: socket.ending.filter(|_| range.contains(life.last_observed)),
            ..*socket
        },
        turns: TurnTimes::from(turns.as_ref().filter(|_| whole)),
        // Processes of the past are not looked at.
        stopped: false,
        starved: Micros::ZERO,
        unread_polls: (0, 0),
        largest_window: None,
    }
}

/// The evidence of a life; counters only where they are of the time observed. TCP counts a SYN as a byte
/// acknowledged and a FIN as one received.
fn deltas(life: &ConnectionSummary, counted: bool) -> Deltas {
    let stats = &life.stats;
    let gauges = Deltas {
        busy: stats.busy,
        cwnd: stats.cwnd,
        send_window: stats.send_window,
        send_queue: stats.send_queue,
        receive_queue: stats.receive_queue,
        srtt: stats.srtt,
        baseline_rtt: stats.min_rtt,
        send_mss: stats.send_mss,
        send_buffer: stats.send_buffer,
        ..Deltas::default()
    };
    if !counted {
        // Whether anything moved is known by its time with changes.
        return Deltas {
            bytes_sent: Some(stats.bytes_acked.saturating_sub(1)),
            bytes_received: Some(stats.bytes_received.saturating_sub(1)),
            ..gauges
        };
    }
    Deltas {
        bytes_sent: stats.bytes_sent,
        bytes_acked: Some(stats.bytes_acked.saturating_sub(1)),
        bytes_received: Some(stats.bytes_received.saturating_sub(1)),
        retransmitted: Some(stats.retransmitted),
        fast_recoveries: stats.recovery.map(|r| r.fast_recoveries),
        timeouts: stats.rto_stats.map(|r| r.timeouts),
        rtt_sum: stats.rtt_sums.map(|r| r.sum),
        rtt_count: stats.rtt_sums.map(|r| r.count),
        rwnd_limited: stats.rwnd_limited,
        sndbuf_limited: stats.sndbuf_limited,
        bytes_written: life.bytes_written,
        writes: life.writes,
        bytes_read: life.bytes_read,
        reads: life.reads,
        ..gauges
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;

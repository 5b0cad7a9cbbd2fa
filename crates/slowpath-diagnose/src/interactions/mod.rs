// SPDX-License-Identifier: Apache-2.0
//! Interactions: problems that explain each other, of one connection over adjacent
//! intervals, or of several connections of one host.
//!
//! What enters: verdicts as they come, with the connection's owner and statistics
//! ([`Interactions::observe`]). What leaves: the interactions of the last seconds
//! ([`Interactions::find`]), each with evidence and advice.
//!
//! What is promised: no clock, no I/O; the same observations give the same answer,
//! whatever their order within an interval's time; memory is bounded by [`MOST`]
//! connections and [`PIECES`] intervals of each, and what did not fit is counted.

mod buffer;
mod proxy;
mod recovery;

use crate::Advice;
pub use proxy::may_flow;
use rustc_hash::FxHashMap;
use slowpath_model::{
    ConnectionId, FourTuple, IntervalVerdict, Micros, MonoNanos, Origin, Problem, TcpStats,
};
pub use slowpath_model::{InteractionEvidence, InteractionKind, ProxyFlow};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Connections followed; further ones are left out and counted.
pub const MOST: usize = 20_000;
/// Intervals kept of each connection.
pub const PIECES: usize = 6;
/// How long an interval counts after its end. Several polls of half a second, so that a
/// cause and its effect, each observed at its own connection's poll, are both there.
pub const WINDOW: Micros = Micros(5_000_000);
/// A problem limits a connection if it takes this share of the window.
const LIMITS: f64 = 0.3;

/// Something found.
#[derive(Clone, Debug, PartialEq)]
pub struct Interaction {
    /// Which.
    pub kind: InteractionKind,
    /// The connections it is about: first the one that suffers, last the cause.
    pub connections: Vec<ConnectionId>,
    /// The numbers.
    pub evidence: InteractionEvidence,
    /// What to do, and who should.
    pub advice: Advice,
}

/// One verdict, with what the rules need beside it.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// The connection's addresses.
    pub tuple: FourTuple,
    /// Its owner's process id, if known.
    pub pid: Option<u32>,
    /// Which end opened it.
    pub origin: Origin,
    /// Its statistics at the interval's end.
    pub stats: &'a TcpStats,
    /// The verdict.
    pub verdict: &'a IntervalVerdict,
}

/// What is kept of one interval.
#[derive(Clone, Debug)]
struct Piece {
    from: MonoNanos,
    to: MonoNanos,
    /// Problems and their times.
    found: Vec<(Problem, Micros)>,
    timeouts: u64,
    thin_timeouts: Option<u64>,
    acks_after_timeout: Option<u64>,
    retransmitted: Option<u64>,
    bytes_sent: u64,
    bytes_received: u64,
    bytes_written: Option<u64>,
    writes: Option<u64>,
    receive_queue: u32,
    send_queue: u32,
    cwnd: u32,
}

impl Piece {
    fn of(verdict: &IntervalVerdict) -> Self {
        let d = &verdict.deltas;
        let interval = verdict.interval();
        let events = |problem| verdict.finding(problem).and_then(|f| f.events).unwrap_or(0);
        Piece {
            from: verdict.from,
            to: verdict.to,
            found: verdict
                .findings
                .iter()
                .map(|f| (f.problem, f.share.time_of(interval)))
                .collect(),
            timeouts: events(Problem::Timeout),
            thin_timeouts: d.thin_timeouts,
            acks_after_timeout: d.acks_after_timeout,
            retransmitted: d.retransmitted,
            bytes_sent: d.bytes_sent.or(d.bytes_acked).unwrap_or(0),
            bytes_received: d.bytes_received.unwrap_or(0),
            bytes_written: d.bytes_written,
            writes: d.writes,
            receive_queue: d.receive_queue,
            send_queue: d.send_queue,
            cwnd: d.cwnd,
        }
    }
}

/// One connection's recent intervals, oldest first.
#[derive(Clone, Debug)]
struct Recent {
    id: ConnectionId,
    tuple: FourTuple,
    pid: Option<u32>,
    origin: Origin,
    send_mss: u32,
    send_buffer: Option<u32>,
    receive_buffer: Option<u32>,
    min_rtt: Option<Micros>,
    delivery_rate: Option<u64>,
    pieces: VecDeque<Piece>,
}

impl Recent {
    fn sum(&self, of: impl Fn(&Piece) -> u64) -> u64 {
        self.pieces.iter().map(of).sum()
    }

    /// The sum of something that every interval has; `None` if one lacks it.
    fn sum_known(&self, of: impl Fn(&Piece) -> Option<u64>) -> Option<u64> {
        self.pieces.iter().map(of).sum()
    }

    fn observed(&self) -> Micros {
        Micros(self.sum(|p| p.to.since(p.from).0))
    }

    /// Share of the window's intervals that a problem took.
    fn share(&self, problem: Problem) -> f64 {
        let time = |p: &Piece| {
            let found = p.found.iter().find(|(found, _)| *found == problem);
            found.map_or(0, |(_, time)| time.0)
        };
        match self.observed() {
            Micros(0) => 0.0,
            Micros(observed) => self.sum(time) as f64 / observed as f64,
        }
    }

    /// Mean bytes of a write; `None` where calls are not observed or there were none.
    fn average_write(&self) -> Option<u64> {
        let bytes = self.sum_known(|p| p.bytes_written)?;
        bytes.checked_div(self.sum_known(|p| p.writes)?)
    }
}

/// What the connections to one peer say of each other.
#[derive(Default)]
struct Peers {
    /// The fastest delivery rate to each address.
    rates: FxHashMap<IpAddr, u64>,
    /// Connections of one process to one peer whose writes are small.
    small: FxHashMap<(u32, u32, SocketAddr), Vec<ConnectionId>>,
}

/// The recent past of a host's connections.
#[derive(Clone, Debug, Default)]
pub struct Interactions {
    connections: BTreeMap<ConnectionId, Recent>,
    left_out: u64,
}

impl Interactions {
    /// Takes a verdict in. One that was taken before is passed over.
    pub fn observe(&mut self, observation: &Observation<'_>) {
        let id = observation.verdict.connection;
        if self.connections.len() >= MOST && !self.connections.contains_key(&id) {
            self.left_out += 1;
            return;
        }
        let recent = self.connections.entry(id).or_insert_with(|| Recent {
            id,
            tuple: observation.tuple,
            pid: None,
            origin: observation.origin,
            send_mss: 0,
            send_buffer: None,
            receive_buffer: None,
            min_rtt: None,
            delivery_rate: None,
            pieces: VecDeque::new(),
        });
        if recent
            .pieces
            .back()
            .is_some_and(|p| p.to >= observation.verdict.to)
        {
            return;
        }
        recent.pid = observation.pid.or(recent.pid);
        recent.send_mss = observation.stats.send_mss;
        recent.send_buffer = observation.stats.send_buffer;
        recent.receive_buffer = observation.stats.receive_buffer;
        recent.min_rtt = observation
            .stats
            .min_rtt
            .or(observation.verdict.deltas.baseline_rtt)
            .or(recent.min_rtt);
        recent.delivery_rate = observation.stats.delivery_rate.max(recent.delivery_rate);
        if recent.pieces.len() == PIECES {
            recent.pieces.pop_front();
        }
        recent.pieces.push_back(Piece::of(observation.verdict));
    }

    /// Forgets what ended longer ago than [`WINDOW`]; gives the connections of which nothing is
    /// left.
    pub fn forget(&mut self, now: MonoNanos) -> Vec<ConnectionId> {
        let mut gone = Vec::new();
        self.connections.retain(|id, recent| {
            while (recent.pieces.front()).is_some_and(|p| now.since(p.to) > WINDOW) {
                recent.pieces.pop_front();
            }
            if recent.pieces.is_empty() {
                gone.push(*id);
            }
            !recent.pieces.is_empty()
        });
        gone
    }

    /// The interactions among what is remembered, by kind and connection.
    pub fn find(&self) -> Vec<Interaction> {
        let mut found = Vec::new();
        let limited = |r: &&Recent| r.pieces.iter().any(|p| !p.found.is_empty());
        let limited: Vec<&Recent> = self.connections.values().filter(limited).collect();
        let compared = limited
            .iter()
            .any(|r| buffer::is_limit(r) || recovery::thin_timeouts(r) > 0);
        let peers = if compared {
            self.peers()
        } else {
            Peers::default()
        };
        for recent in limited {
            found.extend(recovery::timeout_then_delayed_ack(recent));
            found.extend(recovery::too_few(recent, &peers));
            found.extend(buffer::below_bdp(recent, &peers));
        }
        // Each member of a group names the whole group: the one with most timeouts names it.
        let mut groups = std::collections::BTreeSet::new();
        found.sort_by_key(|i| std::cmp::Reverse(i.evidence.timeouts()));
        found.retain(|i| {
            let mut members = i.connections.clone();
            members.sort_unstable();
            groups.insert((i.kind, members))
        });
        found.extend(proxy::proxies(self));
        found.sort_by(|a, b| (a.kind, &a.connections).cmp(&(b.kind, &b.connections)));
        found
    }

    fn peers(&self) -> Peers {
        let mut peers = Peers::default();
        for recent in self.connections.values() {
            let rate = recent.delivery_rate.unwrap_or(0);
            let fastest = peers.rates.entry(recent.tuple.remote.ip()).or_default();
            *fastest = rate.max(*fastest);
            if let Some(pid) = recent.pid
                && recovery::small_writes(recent).is_some()
            {
                let key = (pid, recent.id.netns, recent.tuple.remote);
                peers.small.entry(key).or_default().push(recent.id);
            }
        }
        peers
    }

    /// Whether it is remembered, and its addresses.
    pub fn tuple(&self, id: ConnectionId) -> Option<FourTuple> {
        Some(self.connections.get(&id)?.tuple)
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Verdicts that found no room.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

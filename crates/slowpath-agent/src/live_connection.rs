// SPDX-License-Identifier: Apache-2.0
//! A connection that lives, and what is known of it.

use crate::host_totals::{Charge, HostTotals, Labelled};
use crate::traffic::TrafficMark;
use slowpath_diagnose::Totals;
use slowpath_model::{
    ConnectionSummary, HistoryPoint, IntervalVerdict, LifeFacts, LifeTurns, Micros, Owner,
    ProblemSet, Snapshot, TcpState, WallMicros,
};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// A connection as it is now.
///
/// The fields lie in this order: what every poll touches comes before what few do.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct LiveConnection {
    /// Its statistics when something last changed.
    pub snapshot: Snapshot,
    /// The verdict on the latest interval in which something changed; `None` before the
    /// second snapshot of a connection older than the agent and, in an agent that only logs,
    /// without a problem.
    pub latest: Option<Box<IntervalVerdict>>,
    /// The poll that met it last.
    pub(crate) poll: u64,
    /// Changed since its last summary in the log.
    pub(crate) unsaved: bool,
    /// The last segment of the log that has a summary of it, and so its addresses; 0 for none.
    pub(crate) summarised_in: u32,
    /// Its priority under a CPU budget: more problems, more samples.
    pub(crate) priority: u8,
    /// Whether a scan of descriptors has found the owner, or why there is none.
    pub(crate) scanned: bool,
    /// The recorder has been asked to keep it.
    pub(crate) keep_requested: bool,
    /// And because of these problems.
    pub(crate) keep_reasons: ProblemSet,
    /// Whether conntrack has been asked for the real peer.
    pub(crate) peer_asked: bool,
    /// Where its sums go.
    pub(crate) charge: Charge,
    /// Time and events of each problem since it was first observed.
    pub totals: Totals,
    /// The part of that time in which nothing changed.
    pub(crate) idle: Micros,
    /// Its owner, or why it is unknown.
    pub owner: Owner,
    /// The peer behind address translation on this host, where it is another one.
    pub real_peer: Option<SocketAddr>,
    /// When it was first observed.
    pub first_observed: WallMicros,
    /// Its recent past, oldest first; empty unless asked for.
    pub history: VecDeque<HistoryPoint>,
    /// Until when what it carried is in the log.
    pub(crate) traffic: TrafficMark,
}

impl LiveConnection {
    /// The problems of its latest verdict.
    pub fn problems(&self) -> ProblemSet {
        let latest = self.latest.iter();
        latest
            .flat_map(|verdict| verdict.findings.iter().map(|finding| finding.problem))
            .collect()
    }

    /// A connection that poll number `poll` met first, as it was before.
    pub(crate) fn new(
        before: Snapshot,
        owner: Owner,
        first_observed: WallMicros,
        poll: u64,
    ) -> Self {
        LiveConnection {
            traffic: TrafficMark::new(&before, before.at, first_observed),
            owner,
            real_peer: None,
            snapshot: before,
            latest: None,
            totals: Totals::default(),
            idle: Micros::ZERO,
            first_observed,
            history: VecDeque::new(),
            unsaved: true,
            summarised_in: 0,
            charge: Charge::default(),
            priority: 0,
            scanned: false,
            keep_requested: false,
            keep_reasons: ProblemSet::EMPTY,
            peer_asked: false,
            poll,
        }
    }

    /// Takes over a later snapshot; what does not change in a connection's life is kept.
    pub(crate) fn update(&mut self, later: &Snapshot) {
        let s = &mut self.snapshot;
        s.at = later.at;
        s.closed = later.closed;
        if later.stats.state != TcpState::Established {
            // Only whoever closes or shuts it down changes what is known of its opener.
            s.owner = later.owner;
        }
        s.stats = later.stats;
        s.sends = later.sends;
        s.receives = later.receives;
        if s.waits != later.waits {
            s.waits.clone_from(&later.waits);
        }
        s.facts = later.facts;
        s.turns.update(&later.turns);
    }

    /// Takes over the addresses, if it was met while `connect` had not chosen its port yet
    /// (`tcp_v4_connect` sets the destination first).
    pub(crate) fn name_port(&mut self, later: &Snapshot) {
        if self.snapshot.tuple.local.port() == 0 {
            self.snapshot.tuple = later.tuple;
        }
    }

    /// Charges its problems to its owner, if that has not been done.
    pub(crate) fn settle(&mut self, host_totals: &mut HostTotals) {
        let whose = Labelled {
            owner: &self.owner,
            port: self.snapshot.tuple.service_port(self.snapshot.origin),
        };
        host_totals.settle(&self.totals, whose, &mut self.charge);
    }

    /// The connection's row for the log, last observed at `last_observed`.
    pub fn summary(&self, last_observed: WallMicros) -> ConnectionSummary {
        let s = &self.snapshot;
        ConnectionSummary {
            connection: s.id,
            tuple: s.tuple,
            origin: s.origin,
            owner: self.owner.clone(),
            real_peer: self.real_peer,
            tier: s.tier,
            first_observed: self.first_observed,
            last_observed,
            closed: s.closed,
            observed: self.totals.observed,
            polls: self.totals.polls,
            problem_time: self.totals.problem_time,
            problem_events: self.totals.problem_events,
            unmeasured: self.totals.unmeasured,
            stats: s.stats,
            bytes_written: s.sends.map(|c| c.bytes),
            writes: s.sends.map(|c| c.count),
            bytes_read: s.receives.map(|c| c.bytes),
            reads: s.receives.map(|c| c.count),
            life: LifeFacts {
                idle: Some(self.idle),
                socket: s.facts,
                turns: LifeTurns::of(&s.turns, s.at),
            },
        }
    }
}

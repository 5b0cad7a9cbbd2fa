// SPDX-License-Identifier: Apache-2.0
//! The book of connections: takes snapshots in, judges intervals, writes the log.

use crate::baselines::Baselines;
use crate::budget::priority::Priorities;
use crate::connection_table::{ConnectionTable, LiveConnection};
use crate::host_totals::HostTotals;
use crate::interactions::InteractionTracker;
use crate::observer::{Observer, PollError};
use crate::owners::{self, Owners};
use crate::real_peers::RealPeers;
use crate::recorder::KeepRequests;
use crate::summaries::SummaryRotation;
use rustc_hash::FxHashMap;
use slowpath_diagnose::{Thresholds, Totals, measure, opened};
use slowpath_model::{
    ConnectionSummary, Coverage, HistoryPoint, ListenerInterval, Micros, MonoNanos, Owner,
    ProblemInterval, ProblemSet, Snapshot, UnknownOwners, WallMicros,
};
use slowpath_observe::Sink;
use slowpath_store::LogWriter;
use std::collections::VecDeque;

/// Closed connections that one poll keeps for display.
const MAX_CLOSED: usize = 65_536;

/// Connections whose calls are logged one by one.
const MAX_SUSPECTS: usize = 4_096;

pub(crate) struct AgentCore {
    connections: ConnectionTable,
    closed: Vec<LiveConnection>,
    /// The lowest RTT to each peer.
    baselines: Baselines,
    thresholds: Thresholds,
    history: usize,
    /// Keep verdicts without findings.
    verdicts: bool,
    log: Option<LogWriter>,
    /// Problems that explain each other, for the log.
    interactions: InteractionTracker,
    /// Sums for an exporter, if there is one.
    host_totals: Option<Box<HostTotals>>,
    /// When the poll before this one began.
    previous: MonoNanos,
    now: MonoNanos,
    wall: WallMicros,
    poll: u64,
    problems: u64,
    suspects: Vec<u64>,
    /// Which connections the recorder is asked for.
    pub(crate) keep_requests: KeepRequests,
    /// Which connections had problems, under a CPU budget.
    pub(crate) priorities: Option<Priorities>,
    /// Until when the connection that comes next had not changed, where the eyes know.
    unchanged: Option<MonoNanos>,
    /// The namespace of the next snapshot's connection, 0 if that is not known.
    namespace: u64,
    owners_wanted: bool,
    pub(crate) owners: Owners,
    /// Who asks for the peers behind address translation.
    pub(crate) peers: RealPeers,
    /// Connections that closed without a known owner since they were last counted.
    closed_unknown: UnknownOwners,
}

impl Sink for AgentCore {
    fn announce(&mut self, netns: u32, cookie: u64) {
        self.connections.announce(netns, cookie);
    }

    fn expect(&mut self, netns: u32, cookie: u64) {
        self.connections.expect(netns, cookie);
    }

    fn unchanged_until(&mut self, at: MonoNanos) {
        self.unchanged = Some(at);
    }

    fn namespace(&mut self, cookie: u64) {
        self.namespace = cookie;
    }

    fn see(&mut self, snapshot: &Snapshot) {
        self.note(snapshot);
    }
}

impl AgentCore {
    pub(crate) fn new(
        thresholds: Thresholds,
        history: usize,
        verdicts: bool,
        log: Option<LogWriter>,
        owners: Owners,
        now: MonoNanos,
    ) -> Self {
        AgentCore {
            connections: ConnectionTable::default(),
            closed: Vec::new(),
            baselines: Baselines::default(),
            thresholds,
            history,
            verdicts: verdicts || history > 0,
            log,
            interactions: InteractionTracker::default(),
            host_totals: None,
            previous: now,
            now,
            wall: WallMicros::default(),
            poll: 0,
            problems: 0,
            suspects: Vec::new(),
            keep_requests: KeepRequests::default(),
            priorities: None,
            unchanged: None,
            namespace: 0,
            owners_wanted: false,
            owners,
            peers: RealPeers::default(),
            closed_unknown: UnknownOwners::default(),
        }
    }

    /// A poll begins; the views have seen what closed until now, or not.
    pub(crate) fn begin(&mut self, now: MonoNanos, wall: WallMicros, seen: bool) {
        self.now = now;
        self.wall = wall;
        self.poll += 1;
        self.problems = 0;
        if seen {
            self.closed.clear();
        }
        self.unchanged = None;
        self.suspects.clear();
        self.connections.rewind();
        self.owners.begin_poll();
        self.peers.begin(now);
    }

    fn note(&mut self, snapshot: &Snapshot) {
        let slot = match self.connections.find(&snapshot.id) {
            Some(slot) => {
                let known = self.connections.get_mut(slot).map(|c| c.snapshot.id.start);
                if known != Some(snapshot.id.start) {
                    // A socket that was disconnected and connected again keeps its cookie.
                    self.vanish(slot);
                    self.meet(snapshot)
                } else {
                    self.follow(slot, snapshot);
                    slot
                }
            }
            None => self.meet(snapshot),
        };
        if snapshot.closed {
            if let Some(connection) = self.connections.get_mut(slot) {
                connection.name_port(snapshot);
            }
            self.depart(slot);
        }
    }

    fn wall_of(&self, at: MonoNanos) -> WallMicros {
        if at > self.now {
            self.wall + at.since(self.now)
        } else {
            self.wall - self.now.since(at)
        }
    }

    /// A connection that was not known.
    fn meet(&mut self, snapshot: &Snapshot) -> u32 {
        let started = snapshot.id.start;
        let observed_from_birth = started.0 != 0;
        let first_observed = self.wall_of(if observed_from_birth {
            started
        } else {
            snapshot.at
        });
        let before = if observed_from_birth {
            opened(snapshot)
        } else {
            snapshot.clone()
        };
        self.baselines.learn(self.namespace, snapshot);
        self.owners_wanted = true;
        let owner = self.owners.claimed(snapshot);
        if let Some(host_totals) = &mut self.host_totals {
            host_totals.meet(observed_from_birth);
        }
        let slot = self.connections.insert(LiveConnection {
            owner,
            real_peer: None,
            snapshot: before,
            latest: None,
            totals: Totals::default(),
            first_observed,
            history: VecDeque::new(),
            unsaved: true,
            summarised_in: 0,
            charged: false,
            priority: 0,
            looked: false,
            chosen: false,
            asked: ProblemSet::EMPTY,
            peer_asked: false,
            poll: self.poll,
        });
        self.peers.met(slot);
        if observed_from_birth {
            self.judge(slot, snapshot);
        }
        slot
    }

    /// A connection that was known. Nothing had changed until the poll before its first
    /// event, if the eyes tell; else until the previous poll, or that would have emitted it.
    fn follow(&mut self, slot: u32, snapshot: &Snapshot) {
        let unchanged = self.unchanged.take().unwrap_or(self.previous);
        if let Some(connection) = self.connections.get_mut(slot) {
            let idle = unchanged.since(connection.snapshot.at);
            if idle > Micros::ZERO {
                connection.totals.idle(idle);
                if let Some(host_totals) = &mut self.host_totals {
                    host_totals.totals.idle(idle);
                }
                connection.snapshot.at = unchanged;
            }
            let lower = |s: &Snapshot| s.stats.rtt_sums.and_then(|r| r.lifetime_min);
            if lower(snapshot) != lower(&connection.snapshot) {
                self.baselines.learn(self.namespace, snapshot);
            }
            self.judge(slot, snapshot);
        }
    }

    fn judge(&mut self, slot: u32, snapshot: &Snapshot) {
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        let lone = |s: &Snapshot| s.stats.rtt_sums.map(|r| r.lone_count);
        let baseline = if lone(snapshot) == lone(&connection.snapshot) {
            None
        } else {
            self.baselines.of(self.namespace, snapshot)
        };
        connection.poll = self.poll;
        if snapshot.at <= connection.snapshot.at {
            // No time has passed: the next snapshot shows what changed.
            connection.snapshot.closed = snapshot.closed;
            return;
        }
        connection.unsaved = true;
        if let Some(host_totals) = &mut self.host_totals {
            host_totals.follow(&connection.snapshot, snapshot);
        }
        let measures = measure(&connection.snapshot, snapshot, baseline, &self.thresholds);
        let logs = self.log.is_some();
        if !self.verdicts && !measures.any(&self.thresholds) {
            let owner = &connection.owner;
            if logs
                && self
                    .interactions
                    .wants(&connection.snapshot, snapshot, owner)
            {
                let verdict = measures.verdict(&connection.snapshot, snapshot, &self.thresholds);
                self.interactions
                    .observe(snapshot, &connection.owner, &verdict);
            }
            connection.totals.quiet(&measures);
            if let Some(host_totals) = &mut self.host_totals {
                host_totals.totals.quiet(&measures);
            }
            attend(&mut self.priorities, connection, snapshot, None);
            connection.latest = None;
            connection.update(snapshot);
            self.keep_requests.look(connection);
            return;
        }
        let verdict = measures.verdict(&connection.snapshot, snapshot, &self.thresholds);
        connection.totals.add(&verdict);
        let wanted = |interactions: &InteractionTracker| {
            interactions.wants(&connection.snapshot, snapshot, &connection.owner)
        };
        if logs && (!verdict.findings.is_empty() || wanted(&self.interactions)) {
            self.interactions
                .observe(snapshot, &connection.owner, &verdict);
        }
        if let Some(host_totals) = &mut self.host_totals {
            host_totals.judge(
                &verdict,
                &connection.totals,
                &connection.owner,
                &mut connection.charged,
            );
        }
        if self.history > 0 {
            if connection.history.len() >= self.history {
                connection.history.pop_front();
            }
            connection
                .history
                .push_back(HistoryPoint::of(snapshot, &verdict));
        }
        let problem = (!verdict.findings.is_empty()).then(|| verdict.interval());
        attend(&mut self.priorities, connection, snapshot, problem);
        if problem.is_some() {
            self.problems += 1;
            if self.suspects.len() < MAX_SUSPECTS && self.priorities.is_none() {
                self.suspects.push(snapshot.id.cookie);
            }
        }
        connection.name_port(snapshot);
        connection.update(snapshot);
        if let Some(log) = &mut self.log
            && !verdict.findings.is_empty()
        {
            let end = if snapshot.at > self.now {
                self.wall + snapshot.at.since(self.now)
            } else {
                self.wall - self.now.since(snapshot.at)
            };
            let interval = ProblemInterval {
                connection: snapshot.id,
                end,
                duration: verdict.interval(),
                findings: verdict.findings.clone(),
                unmeasured: verdict.unmeasured,
                deltas: verdict.deltas,
            };
            let segment = log.segment();
            if connection.summarised_in == segment {
                log.problem(&interval);
            } else if log.problem_of(&for_log(&self.owners, connection, end), &interval) {
                connection.summarised_in = segment;
            }
        }
        match &mut connection.latest {
            Some(latest) => **latest = verdict,
            none => *none = Some(Box::new(verdict)),
        }
        self.keep_requests.look(connection);
    }

    /// A connection that closed: its summary goes to the log.
    fn depart(&mut self, slot: u32) {
        let Some(mut connection) = self.connections.remove(slot) else {
            return;
        };
        self.peers.ask(&mut connection);
        self.owners.closed(&mut connection);
        self.keep_requests.look(&mut connection);
        if let Some(reason) = connection.owner.why_unknown() {
            self.closed_unknown.count(reason);
        }
        if let Some(host_totals) = &mut self.host_totals {
            host_totals.closed += 1;
            connection.settle(host_totals);
        }
        if let Some(priorities) = &mut self.priorities {
            priorities.gone(connection.snapshot.id.cookie, connection.priority);
        }
        let last_observed = self.wall_of(connection.snapshot.at);
        if let Some(log) = &mut self.log {
            log.summary(&for_log(&self.owners, &connection, last_observed));
        }
        if self.closed.len() < MAX_CLOSED {
            self.closed.push(connection);
        }
    }

    /// A connection that closed without a final snapshot.
    fn vanish(&mut self, slot: u32) {
        if let Some(connection) = self.connections.get_mut(slot) {
            connection.snapshot.closed = true;
        }
        self.depart(slot);
    }

    /// After a poll that met every living connection: the others have closed. Gives their
    /// number.
    pub(crate) fn sweep(&mut self) -> u64 {
        let mut gone = 0;
        for slot in self.connections.slots() {
            let poll = self.connections.get_mut(slot).map(|c| c.poll);
            if poll.is_some_and(|p| p != self.poll) {
                self.vanish(slot);
                gone += 1;
            }
        }
        gone
    }

    /// Connections that are taken to live.
    pub(crate) fn living(&self) -> u64 {
        self.connections.len() as u64
    }

    /// The poll ends; gives the number of problem intervals, and the connections that had
    /// one in `suspects`.
    pub(crate) fn end(&mut self, suspects: &mut Vec<u64>) -> u64 {
        self.previous = self.now;
        suspects.clone_from(&self.suspects);
        self.problems
    }

    /// Asks for the real peers of new connections, so many at most.
    pub(crate) fn ask_peers(&mut self, most: usize) {
        self.peers.ask_new(&mut self.connections, most);
    }

    pub(crate) fn owners_wanted(&self) -> bool {
        self.owners_wanted
    }

    /// Looks at who holds which connection.
    pub(crate) fn look(&mut self, observer: &mut Observer) -> Result<(), PollError> {
        self.owners_wanted = owners::scan::scan(observer, &mut self.connections, &mut self.owners)?;
        Ok(())
    }

    /// Keeps sums from now on, with at most so many names of applications.
    pub(crate) fn keep_host_totals(&mut self, applications: usize) {
        match &mut self.host_totals {
            Some(host_totals) => host_totals.set_applications(applications),
            none => *none = Some(Box::new(HostTotals::new(applications))),
        }
    }

    pub(crate) fn host_totals(&self) -> Option<&HostTotals> {
        self.host_totals.as_deref()
    }

    /// Charges what connections had to their owners, as far as those will be known.
    pub(crate) fn settle_host_totals(&mut self) {
        let Some(host_totals) = &mut self.host_totals else {
            return;
        };
        for connection in self.connections.iter_mut() {
            if connection.owner.name().is_some() || connection.looked {
                connection.settle(host_totals);
            }
        }
    }

    /// A look that found these owners, by cookie, and no others.
    pub(crate) fn name_owners(&mut self, mut found: FxHashMap<u64, Owner>) {
        for connection in self.connections.iter_mut() {
            connection.looked = true;
            if let Some(owner) = found.remove(&connection.snapshot.id.cookie) {
                connection.owner = owner;
                connection.unsaved = true;
            }
        }
    }

    /// Connections that live without a known owner, and with those that closed since the
    /// last call, by reason.
    pub(crate) fn unknown_owners(&mut self) -> (u64, UnknownOwners) {
        let mut counts = std::mem::take(&mut self.closed_unknown);
        let mut living = 0;
        for reason in self
            .connections
            .iter()
            .filter_map(|c| c.owner.why_unknown())
        {
            counts.count(reason);
            living += 1;
        }
        (living, counts)
    }

    /// Logs a summary of each living connection that changed since its last one.
    pub(crate) fn save_summaries(&mut self) {
        let Some(log) = &mut self.log else { return };
        for connection in self.connections.iter_mut() {
            save(log, &self.owners, connection, self.wall);
        }
    }

    /// The same for those whose turn it is; gives how many had theirs.
    pub(crate) fn save_due(&mut self, rotation: &mut SummaryRotation) -> usize {
        let Some(log) = &mut self.log else { return 0 };
        let due = rotation.take(self.now, self.connections.places());
        for slot in due.clone() {
            if let Some(connection) = self.connections.get_mut(slot) {
                save(log, &self.owners, connection, self.wall);
            }
        }
        due.len()
    }

    pub(crate) fn log_coverage(&mut self, coverage: &Coverage) {
        if let Some(log) = &mut self.log {
            log.coverage(coverage);
        }
    }

    /// Looks for problems that explain each other, if it is time.
    pub(crate) fn log_interactions(&mut self) {
        if let Some(log) = &mut self.log {
            for found in self.interactions.round(self.now, self.wall) {
                log.interaction(&found);
            }
        }
    }

    pub(crate) fn log_listener(&mut self, interval: &ListenerInterval) {
        if let Some(host_totals) = &mut self.host_totals {
            host_totals.listen(interval);
        }
        if let Some(log) = &mut self.log {
            let owner = self.owners.for_log(&interval.owner);
            log.listener(&ListenerInterval {
                owner,
                ..interval.clone()
            });
        }
    }

    pub(crate) fn tick(&mut self) {
        if let Some(log) = &mut self.log {
            log.tick(self.wall);
        }
    }

    pub(crate) fn records_dropped(&self) -> u64 {
        self.log.as_ref().map_or(0, |l| l.status().records_dropped)
    }

    pub(crate) fn log_status(&self) -> Option<slowpath_store::WriterStatus> {
        Some(self.log.as_ref()?.status())
    }

    pub(crate) fn log_error(&self) -> Option<String> {
        self.log
            .as_ref()?
            .status()
            .last_error
            .as_ref()
            .map(|e| e.to_string())
    }

    /// Closes the log; says what went wrong, if anything.
    pub(crate) fn close(&mut self) -> Option<String> {
        let mut log = self.log.take()?;
        for found in self.interactions.finish(self.now, self.wall) {
            log.interaction(&found);
        }
        log.close().last_error.map(|e| e.to_string())
    }

    pub(crate) fn connections(&self) -> impl Iterator<Item = &LiveConnection> {
        self.connections.iter()
    }

    pub(crate) fn recently_closed(&self) -> impl Iterator<Item = &LiveConnection> {
        self.closed.iter()
    }
}

/// Logs a summary of the connection if it changed since its last one.
fn save(log: &mut LogWriter, owners: &Owners, connection: &mut LiveConnection, wall: WallMicros) {
    if std::mem::take(&mut connection.unsaved) {
        let segment = log.segment();
        if log.summary(&for_log(owners, connection, wall)) {
            connection.summarised_in = segment;
        }
    }
}

/// The connection's row, with as much of the command line as the log may have.
fn for_log(
    owners: &Owners,
    connection: &LiveConnection,
    last_observed: WallMicros,
) -> ConnectionSummary {
    let mut summary = connection.summary(last_observed);
    summary.owner = owners.for_log(&summary.owner);
    summary
}

/// A look at the connection found a problem in an interval of that length, or none.
fn attend(
    priorities: &mut Option<Priorities>,
    connection: &mut LiveConnection,
    snapshot: &Snapshot,
    problem: Option<Micros>,
) {
    if let Some(priorities) = priorities {
        let cookie = snapshot.id.cookie;
        connection.priority = priorities.sample(cookie, connection.priority, snapshot.at, problem);
    }
}

#[cfg(test)]
#[path = "agent_core/tests.rs"]
pub(crate) mod tests;

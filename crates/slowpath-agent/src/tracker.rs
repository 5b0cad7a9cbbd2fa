// SPDX-License-Identifier: Apache-2.0
//! The connections of a host over time: snapshots enter, each changes its connection in the
//! table, is judged, and leaves records for the log.
//!
//! What enters: the time of each poll, snapshots (as a [`Sink`] of the observer, see
//! [`Intake`]), owners and real peers. What leaves: live connections, and records to
//! [`Host::record`]. No clock, no I/O: questions that cannot wait go to [`Host`].
//!
//! What is promised: nothing is allocated for a connection without a finding that is known;
//! a connection that closes has its summary in the log before the poll ends.

mod records;
#[cfg(test)]
mod tests;
mod verdicts;

use crate::baselines::Baselines;
use crate::connection_table::ConnectionTable;
use crate::host::Host;
use crate::host_totals::{HostTotals, OwnerLabels};
use crate::live_connection::LiveConnection;
use crate::owners::Owners;
use crate::owners::assign::{HolderScan, Reasons};
use crate::real_peers::RealPeers;
use crate::traffic::TrafficMark;
use rustc_hash::FxHashMap;
use slowpath_diagnose::{Thresholds, opened};
use slowpath_model::{Micros, MonoNanos, Owner, Snapshot, UnknownOwners, WallMicros};
use slowpath_observe::Sink;
use verdicts::{Consumers, Judge};

/// Closed connections that one poll keeps for display.
const MAX_CLOSED: usize = 65_536;

/// Those of them for which there is always room: what a storm of 1,800 a second closes between
/// two polls.
const KEPT_CLOSED: usize = 1_024;

/// Connections whose calls are logged one by one.
const MAX_SUSPECTS: usize = 4_096;

/// One moment, by both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PollTime {
    pub(crate) now: MonoNanos,
    pub(crate) wall: WallMicros,
}

impl PollTime {
    /// What the wall clock showed, or will show, at `at`.
    fn wall_of(&self, at: MonoNanos) -> WallMicros {
        if at > self.now {
            self.wall + at.since(self.now)
        } else {
            self.wall - self.now.since(at)
        }
    }
}

/// How connections are judged, and what is kept of them.
#[derive(Clone, Debug)]
pub(crate) struct TrackerOptions {
    pub(crate) thresholds: Thresholds,
    /// Points of the past kept for each connection.
    pub(crate) history: usize,
    /// Keep what only views show: verdicts without findings, and connections that closed.
    pub(crate) keep_verdicts: bool,
}

/// Every connection that lives.
pub(crate) struct ConnectionTracker {
    table: ConnectionTable,
    /// Those that closed since the views were last refreshed, if there are views.
    closed: Vec<LiveConnection>,
    judge: Judge,
    pub(crate) consumers: Consumers,
    /// The present poll.
    time: PollTime,
    /// When the poll before this one began.
    previous: MonoNanos,
    /// Polls so far.
    poll: u64,
    /// Problem intervals found by this poll.
    problems: u64,
    /// Connections that had one, while no CPU budget gives priorities.
    suspects: Vec<u64>,
    /// Until when the connection that comes next had not changed, where the observer knows.
    unchanged: Option<MonoNanos>,
    /// The namespace of the next snapshot's connection, 0 if that is not known.
    namespace: u64,
    /// Its first unacknowledged sequence number, where the observer knows it.
    unacknowledged: Option<u32>,
    owners_wanted: bool,
    pub(crate) owners: Owners,
    /// Connections whose real peer is to be asked for.
    pub(crate) real_peers: RealPeers,
    /// Connections that closed without a known owner since they were last counted.
    closed_unknown: UnknownOwners,
}

/// Takes the snapshots of one poll from the observer.
pub(crate) struct Intake<'a> {
    pub(crate) tracker: &'a mut ConnectionTracker,
    pub(crate) host: &'a mut dyn Host,
}

impl Sink for Intake<'_> {
    fn announce(&mut self, netns: u32, cookie: u64) {
        self.tracker.table.announce(netns, cookie);
    }

    fn expect(&mut self, netns: u32, cookie: u64) {
        self.tracker.table.expect(netns, cookie);
    }

    fn unchanged_until(&mut self, at: MonoNanos) {
        self.tracker.unchanged = Some(at);
    }

    fn namespace(&mut self, cookie: u64) {
        self.tracker.namespace = cookie;
    }

    fn unacknowledged(&mut self, sequence: u32) {
        self.tracker.unacknowledged = Some(sequence);
    }

    fn see(&mut self, snapshot: &Snapshot) {
        self.tracker.observe(snapshot, self.host);
    }
}

impl ConnectionTracker {
    pub(crate) fn new(options: TrackerOptions, owners: Owners, now: MonoNanos) -> Self {
        ConnectionTracker {
            table: ConnectionTable::default(),
            closed: Vec::new(),
            judge: Judge {
                baselines: Baselines::default(),
                thresholds: options.thresholds,
                history: options.history,
                keep_verdicts: options.keep_verdicts || options.history > 0,
            },
            consumers: Consumers::default(),
            time: PollTime {
                now,
                wall: WallMicros::default(),
            },
            previous: now,
            poll: 0,
            problems: 0,
            suspects: Vec::new(),
            unchanged: None,
            namespace: 0,
            unacknowledged: None,
            owners_wanted: false,
            owners,
            real_peers: RealPeers::default(),
            closed_unknown: UnknownOwners::default(),
        }
    }

    /// A poll begins; `refreshed`: the views have shown what closed until now.
    pub(crate) fn begin_poll(&mut self, time: PollTime, refreshed: bool) {
        self.time = time;
        self.poll += 1;
        self.problems = 0;
        if refreshed {
            self.closed.clear();
        }
        self.unchanged = None;
        self.suspects.clear();
        self.table.rewind();
        self.owners.begin_poll();
    }

    /// All snapshots of the poll have been taken; gives the number of problem intervals.
    pub(crate) fn end_poll(&mut self) -> u64 {
        self.previous = self.time.now;
        self.problems
    }

    /// Connections that had a problem at this poll, while no CPU budget gives priorities.
    pub(crate) fn suspects(&self) -> &[u64] {
        &self.suspects
    }

    /// Takes one snapshot.
    pub(crate) fn observe(&mut self, snapshot: &Snapshot, host: &mut dyn Host) {
        let slot = match self.table.find(&snapshot.id) {
            Some(slot) => {
                let known = self.table.get_mut(slot).map(|c| c.snapshot.id.start);
                if known != Some(snapshot.id.start) {
                    // A socket that was disconnected and connected again keeps its cookie.
                    self.vanish(slot, host);
                    self.open(snapshot, host)
                } else {
                    self.follow(slot, snapshot, host);
                    slot
                }
            }
            None => self.open(snapshot, host),
        };
        if snapshot.closed {
            if let Some(connection) = self.table.get_mut(slot) {
                connection.name_port(snapshot);
            }
            self.close(slot, host);
        }
    }

    /// A connection that was not known.
    fn open(&mut self, snapshot: &Snapshot, host: &mut dyn Host) -> u32 {
        let started = snapshot.id.start;
        let observed_from_birth = started.0 != 0;
        let (before, since) = if observed_from_birth {
            (opened(snapshot), started)
        } else {
            (snapshot.clone(), snapshot.at)
        };
        self.judge.baselines.learn(self.namespace, snapshot);
        self.owners_wanted = true;
        if let Some(host_totals) = &mut self.consumers.host_totals {
            host_totals.meet(observed_from_birth);
        }
        let owner = self.owners.claimed(snapshot, host);
        let first_observed = self.time.wall_of(since);
        let mut connection = LiveConnection::new(before, owner, first_observed, self.poll);
        if connection.snapshot.at == snapshot.at {
            // Its opening was missed: what it carried until now may be older than the agent.
            connection.traffic = TrafficMark::new(snapshot, snapshot.at, first_observed);
        }
        let slot = self.table.insert(connection);
        self.real_peers.opened(slot);
        if observed_from_birth {
            self.judge(slot, snapshot, host);
        }
        slot
    }

    /// A connection that was known. Nothing had changed until the poll before its first
    /// event, if the observer reports that; else until the previous poll, or that would have
    /// emitted it.
    fn follow(&mut self, slot: u32, snapshot: &Snapshot, host: &mut dyn Host) {
        let unchanged = self.unchanged.take().unwrap_or(self.previous);
        if let Some(connection) = self.table.get_mut(slot) {
            let idle = unchanged.since(connection.snapshot.at);
            if idle > Micros::ZERO {
                connection.totals.idle(idle);
                connection.idle += idle;
                if let Some(host_totals) = &mut self.consumers.host_totals {
                    host_totals.totals.idle(idle);
                }
                connection.snapshot.at = unchanged;
            }
            let lower = |s: &Snapshot| s.stats.rtt_sums.and_then(|r| r.lifetime_min);
            if lower(snapshot) != lower(&connection.snapshot) {
                self.judge.baselines.learn(self.namespace, snapshot);
            }
            self.judge(slot, snapshot, host);
        }
    }

    /// Judges the interval that ends with this snapshot.
    fn judge(&mut self, slot: u32, snapshot: &Snapshot, host: &mut dyn Host) {
        let Some(connection) = self.table.get_mut(slot) else {
            return;
        };
        let (judge, consumers) = (&self.judge, &mut self.consumers);
        let thresholds = &judge.thresholds;
        connection.poll = self.poll;
        if snapshot.at <= connection.snapshot.at {
            // No time has passed: the next snapshot shows what changed.
            connection.snapshot.closed = snapshot.closed;
            return;
        }
        connection.unsaved = true;
        if let Some(host_totals) = &mut consumers.host_totals {
            let charge = &mut connection.charge;
            host_totals.follow(&connection.snapshot, snapshot, &connection.owner, charge);
        }
        let before = &connection.snapshot;
        let measures = judge.measures(self.namespace, before, snapshot);
        let finds = measures.any(thresholds);
        let relates = || {
            finds
                || consumers
                    .interactions
                    .wants(before, snapshot, &connection.owner)
        };
        let relates = relates() && host.logs();
        let verdict = (finds || relates || judge.keep_verdicts)
            .then(|| measures.verdict(before, snapshot, thresholds));
        if let (Some(verdict), true) = (&verdict, relates) {
            (consumers.interactions).observe(snapshot, &connection.owner, verdict);
        }
        let verdict = verdict.filter(|_| finds || judge.keep_verdicts);
        let Some(verdict) = verdict else {
            consumers.quiet_interval(connection, snapshot, &measures);
            connection.latest = None;
            connection.update(snapshot);
            consumers.keep_requests.judged(connection);
            return;
        };
        judge.keep(connection, snapshot, &verdict);
        consumers.verdict(connection, snapshot, &verdict);
        connection.name_port(snapshot);
        connection.update(snapshot);
        if !verdict.findings.is_empty() {
            self.problems += 1;
            consumers.note_losses(snapshot, &verdict, self.unacknowledged);
            if self.suspects.len() < MAX_SUSPECTS && consumers.priorities.is_none() {
                self.suspects.push(snapshot.id.cookie);
            }
            if host.logs() {
                let end = self.time.wall_of(snapshot.at);
                records::log_problem(&self.owners, connection, snapshot, &verdict, end, host);
            }
        }
        match &mut connection.latest {
            Some(latest) => **latest = verdict,
            none => *none = Some(Box::new(verdict)),
        }
        consumers.keep_requests.judged(connection);
    }

    /// A connection that closed: its summary goes to the log.
    fn close(&mut self, slot: u32, host: &mut dyn Host) {
        let Some(mut connection) = self.table.remove(slot) else {
            return;
        };
        let consumers = &mut self.consumers;
        self.real_peers.ask(&mut connection, host);
        self.owners.closed(&mut connection, host);
        consumers.keep_requests.judged(&mut connection);
        if let Some(reason) = connection.owner.why_unknown() {
            self.closed_unknown.count(reason);
        }
        if let Some(host_totals) = &mut consumers.host_totals {
            host_totals.closed += 1;
            connection.settle(host_totals);
        }
        if let Some(priorities) = &mut consumers.priorities {
            priorities.closed(connection.snapshot.id.cookie, connection.priority);
        }
        if host.logs() {
            let last_observed = self.time.wall_of(connection.snapshot.at);
            records::log_closed(&self.owners, &connection, last_observed, host);
        }
        if self.judge.keep_verdicts && self.closed.len() < MAX_CLOSED {
            self.closed.push(connection);
        }
    }

    /// A connection that closed without a final snapshot.
    fn vanish(&mut self, slot: u32, host: &mut dyn Host) {
        if let Some(connection) = self.table.get_mut(slot) {
            connection.snapshot.closed = true;
        }
        self.close(slot, host);
    }

    /// After a poll that met every living connection: the others have closed. Gives their
    /// number.
    pub(crate) fn close_unmet(&mut self, host: &mut dyn Host) -> u64 {
        let mut gone = 0;
        for slot in self.table.slots() {
            let poll = self.table.get_mut(slot).map(|c| c.poll);
            if poll.is_some_and(|p| p != self.poll) {
                self.vanish(slot, host);
                gone += 1;
            }
        }
        gone
    }

    /// Connections that are taken to live.
    pub(crate) fn living(&self) -> u64 {
        self.table.len() as u64
    }

    /// Frees the room of connections that are gone.
    pub(crate) fn release_memory(&mut self) {
        self.table.compact();
        self.real_peers.moved();
        self.closed.shrink_to(KEPT_CLOSED);
    }

    /// How many slots the table has, in use or not.
    pub(crate) fn capacity(&self) -> u32 {
        self.table.capacity()
    }

    /// Asks for the real peers of new connections, `most` at most.
    pub(crate) fn ask_real_peers(&mut self, most: usize, host: &mut dyn Host) {
        self.real_peers.ask_new(&mut self.table, most, host);
    }

    /// Whether a scan for owners would do more than confirm what is known.
    pub(crate) fn owners_wanted(&self) -> bool {
        self.owners_wanted
    }

    /// Names owners by a scan over all descriptors that began at `began`; gives the
    /// connections that no process was found to hold, of which the kernel has to be asked.
    pub(crate) fn assign_owners(
        &mut self,
        scan: &HolderScan,
        began: MonoNanos,
        host: &mut dyn Host,
    ) -> Vec<u32> {
        let assigned = self.owners.assign(&mut self.table, scan, began, host);
        self.owners_wanted = assigned.incomplete;
        assigned.unheld
    }

    /// Gives these connections the kernel's reason why no process holds them.
    pub(crate) fn explain_unheld(
        &mut self,
        unheld: &[u32],
        reasons: &Reasons,
        host: &mut dyn Host,
    ) {
        self.owners.explain(&mut self.table, unheld, reasons, host);
    }

    /// A scan failed: the owners of connections that none has met are unknown for that.
    pub(crate) fn owner_scan_failed(&mut self, host: &mut dyn Host) {
        self.owners.scan_failed(&mut self.table, host);
    }

    /// A scan that found these owners, by cookie, and no others.
    pub(crate) fn set_owners(&mut self, mut found: FxHashMap<u64, Owner>) {
        for connection in self.table.iter_mut() {
            connection.scanned = true;
            if let Some(owner) = found.remove(&connection.snapshot.id.cookie) {
                connection.owner = owner;
                connection.unsaved = true;
            }
        }
    }

    /// Keeps sums from now on, of up to `applications` applications by these labels; a later call
    /// changes their number only.
    pub(crate) fn keep_host_totals(&mut self, applications: usize, labels: OwnerLabels) {
        match &mut self.consumers.host_totals {
            Some(host_totals) => host_totals.set_applications(applications),
            none => *none = Some(Box::new(HostTotals::new(applications, labels))),
        }
    }

    pub(crate) fn host_totals(&self) -> Option<&HostTotals> {
        self.consumers.host_totals.as_deref()
    }

    /// Charges what connections had to their owners, as far as those will be known.
    pub(crate) fn settle_host_totals(&mut self) {
        let Some(host_totals) = &mut self.consumers.host_totals else {
            return;
        };
        for connection in self.table.iter_mut() {
            if connection.owner.name().is_some() || connection.scanned {
                connection.settle(host_totals);
            }
        }
        host_totals.end_round();
    }

    /// Connections that live without a known owner, and with those that closed since the
    /// last call, by reason.
    pub(crate) fn take_unknown_owners(&mut self) -> (u64, UnknownOwners) {
        let mut counts = std::mem::take(&mut self.closed_unknown);
        let mut living = 0;
        for reason in self.table.iter().filter_map(|c| c.owner.why_unknown()) {
            counts.count(reason);
            living += 1;
        }
        (living, counts)
    }

    pub(crate) fn connections(&self) -> impl Iterator<Item = &LiveConnection> {
        self.table.iter()
    }

    pub(crate) fn recently_closed(&self) -> impl Iterator<Item = &LiveConnection> {
        self.closed.iter()
    }
}

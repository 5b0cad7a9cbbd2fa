// SPDX-License-Identifier: Apache-2.0
//! Which records the connections leave in the log, and when.

use super::{ConnectionTracker, PollTime};
use crate::host::{Host, Record};
use crate::live_connection::LiveConnection;
use crate::owners::Owners;
use crate::paths::TracedPath;
use crate::summaries::SummaryRotation;
use crate::traffic::TrafficMark;
use slowpath_model::{
    ConnectionSummary, IntervalVerdict, ListenerInterval, PathHop, ProblemInterval, Snapshot,
    WallMicros,
};
use std::net::{IpAddr, Ipv4Addr};

impl ConnectionTracker {
    /// Logs a summary of each living connection that changed since its last one, and what it
    /// carried in an hour that has ended.
    pub(crate) fn save_summaries(&mut self, host: &mut dyn Host) {
        if host.logs() {
            for connection in self.table.iter_mut() {
                save(&self.owners, connection, self.time, host);
            }
        }
    }

    /// Likewise, and what it carried until now: the agent ends.
    pub(crate) fn save_last(&mut self, host: &mut dyn Host) {
        self.save_summaries(host);
        if host.logs() {
            for connection in self.table.iter_mut() {
                save_traffic(&self.owners, connection, self.time, host);
            }
        }
    }

    /// Likewise for those whose turn it is.
    pub(crate) fn save_due(&mut self, rotation: &mut SummaryRotation, host: &mut dyn Host) {
        for slot in rotation.take(self.time.now, self.table.capacity()) {
            if let Some(connection) = self.table.get_mut(slot) {
                save(&self.owners, connection, self.time, host);
            }
        }
    }

    /// Logs the routers on a connection's path.
    pub(crate) fn log_path(&mut self, path: &TracedPath, host: &mut dyn Host) {
        if !host.logs() {
            return;
        }
        let hop = |(ttl, router): (u16, &Option<Ipv4Addr>)| PathHop {
            connection: path.connection,
            end: self.time.wall,
            duration: self.time.now.since(path.sent),
            ttl,
            router: router.map(IpAddr::V4),
        };
        let hops: Vec<PathHop> = (1..).zip(&path.routers).map(hop).collect();
        let slot = self.table.find(&path.connection);
        let living = slot.and_then(|slot| self.table.get_mut(slot));
        let living = living.filter(|it| it.snapshot.id.start == path.connection.start);
        let summary = living.map(|living| summary(&self.owners, living, self.time.wall));
        host.record(Record::Hops(summary.as_ref(), &hops));
    }

    /// Logs interactions that ended or have gone on for long, if it is time.
    pub(crate) fn log_interactions(&mut self, host: &mut dyn Host) {
        let interactions = &mut self.consumers.interactions;
        for interval in interactions.round(self.time.now, self.time.wall) {
            host.record(Record::Interaction(&interval));
        }
    }

    /// Logs interactions that go on: the agent ends.
    pub(crate) fn finish_interactions(&mut self, host: &mut dyn Host) {
        let interactions = &mut self.consumers.interactions;
        for interval in interactions.finish(self.time.now, self.time.wall) {
            host.record(Record::Interaction(&interval));
        }
    }

    /// Logs an interval in which a listener turned connections away.
    pub(crate) fn log_listener(&mut self, interval: &ListenerInterval, host: &mut dyn Host) {
        if let Some(host_totals) = &mut self.consumers.host_totals {
            host_totals.listen(interval);
        }
        if host.logs() {
            let owner = self.owners.for_log(&interval.owner);
            host.record(Record::Listener(&ListenerInterval {
                owner,
                ..interval.clone()
            }));
        }
    }
}

/// Logs a summary of the connection if it changed since its last one, and what it carried if the
/// hour has ended.
fn save(owners: &Owners, connection: &mut LiveConnection, time: PollTime, host: &mut dyn Host) {
    if connection.traffic.is_due(time.wall) {
        save_traffic(owners, connection, time, host);
    }
    if std::mem::take(&mut connection.unsaved) {
        let segment = host.log_segment();
        let summary = summary(owners, connection, time.wall);
        if host.record(Record::Summary(&summary)) {
            connection.summarised_in = segment;
        }
    }
}

/// Logs what the connection carried, if anything, behind its summary: a segment states the addresses
/// of what is in it. Where there is no space for it, it is part of the next such record.
fn save_traffic(
    owners: &Owners,
    connection: &mut LiveConnection,
    time: PollTime,
    host: &mut dyn Host,
) {
    let snapshot = &connection.snapshot;
    let mark = TrafficMark::new(snapshot, time.now, time.wall);
    if let Some(traffic) = connection.traffic.until(&mark, snapshot, time.wall) {
        let segment = host.log_segment();
        let summary = summary(owners, connection, time.wall);
        if !host.record(Record::Traffic(&summary, &traffic)) {
            return;
        }
        connection.summarised_in = segment;
        connection.unsaved = false;
    }
    connection.traffic = mark;
}

/// Logs the row of a connection that closed, with as much of the command line as the log may have,
/// and what it carried since that was last logged.
pub(super) fn log_closed(
    owners: &Owners,
    connection: &LiveConnection,
    last_observed: WallMicros,
    host: &mut dyn Host,
) {
    let snapshot = &connection.snapshot;
    let summary = summary(owners, connection, last_observed);
    let mark = TrafficMark::new(snapshot, snapshot.at, last_observed);
    let traffic = connection.traffic.until(&mark, snapshot, last_observed);
    host.record(match &traffic {
        Some(traffic) => Record::Traffic(&summary, traffic),
        None => Record::Summary(&summary),
    });
}

fn summary(
    owners: &Owners,
    connection: &LiveConnection,
    last_observed: WallMicros,
) -> ConnectionSummary {
    let mut summary = connection.summary(last_observed);
    summary.owner = owners.for_log(&summary.owner);
    summary
}

/// Logs an interval with a problem that ends with this snapshot, at `end`.
pub(super) fn log_problem(
    owners: &Owners,
    connection: &mut LiveConnection,
    snapshot: &Snapshot,
    verdict: &IntervalVerdict,
    end: WallMicros,
    host: &mut dyn Host,
) {
    let interval = ProblemInterval {
        connection: snapshot.id,
        end,
        duration: verdict.interval(),
        findings: verdict.findings.clone(),
        unmeasured: verdict.unmeasured,
        deltas: verdict.deltas,
    };
    let segment = host.log_segment();
    if connection.summarised_in == segment {
        host.record(Record::Problem(&interval));
        return;
    }
    let summary = summary(owners, connection, end);
    if host.record(Record::FirstProblem(&summary, &interval)) {
        connection.summarised_in = segment;
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Which records the connections leave in the log, and when.

use super::ConnectionTracker;
use crate::host::{Host, Record};
use crate::live_connection::LiveConnection;
use crate::owners::Owners;
use crate::summaries::SummaryRotation;
use slowpath_model::{
    ConnectionSummary, IntervalVerdict, ListenerInterval, ProblemInterval, Snapshot, WallMicros,
};

impl ConnectionTracker {
    /// Logs a summary of each living connection that changed since its last one.
    pub(crate) fn save_summaries(&mut self, host: &mut dyn Host) {
        if host.logs() {
            for connection in self.table.iter_mut() {
                save(&self.owners, connection, self.time.wall, host);
            }
        }
    }

    /// Likewise for those whose turn it is.
    pub(crate) fn save_due(&mut self, rotation: &mut SummaryRotation, host: &mut dyn Host) {
        for slot in rotation.take(self.time.now, self.table.capacity()) {
            if let Some(connection) = self.table.get_mut(slot) {
                save(&self.owners, connection, self.time.wall, host);
            }
        }
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

/// Logs a summary of the connection if it changed since its last one.
fn save(owners: &Owners, connection: &mut LiveConnection, wall: WallMicros, host: &mut dyn Host) {
    if std::mem::take(&mut connection.unsaved) {
        let segment = host.log_segment();
        if log_summary(owners, connection, wall, host) {
            connection.summarised_in = segment;
        }
    }
}

/// Logs the connection's row, with as much of the command line as the log may have; `false` if
/// there is no space for it.
pub(super) fn log_summary(
    owners: &Owners,
    connection: &LiveConnection,
    last_observed: WallMicros,
    host: &mut dyn Host,
) -> bool {
    host.record(Record::Summary(&summary(owners, connection, last_observed)))
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

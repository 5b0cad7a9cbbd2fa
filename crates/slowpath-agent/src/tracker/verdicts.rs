// SPDX-License-Identifier: Apache-2.0
//! Judging an interval of one connection, and who is given the verdict. Pure.

use crate::baselines::Baselines;
use crate::budget::priority::Priorities;
use crate::host_totals::{HostTotals, Labelled};
use crate::interactions::InteractionTracker;
use crate::live_connection::LiveConnection;
use crate::paths::LossyConnection;
use crate::recorder::KeepRequests;
use slowpath_diagnose::{Measures, Thresholds, measure};
use slowpath_model::{Finding, HistoryPoint, IntervalVerdict, Micros, Problem, Snapshot};

/// How intervals are judged, and what of that is kept with the connection.
pub(super) struct Judge {
    /// The lowest RTT to each peer.
    pub(super) baselines: Baselines,
    pub(super) thresholds: Thresholds,
    /// Points of the past kept for each connection.
    pub(super) history: usize,
    /// Keep verdicts without findings.
    pub(super) keep_verdicts: bool,
}

impl Judge {
    /// What the interval between two snapshots measures; `namespace` as in
    /// [`Baselines::learn`].
    pub(super) fn measures(&self, namespace: u64, before: &Snapshot, after: &Snapshot) -> Measures {
        let lone = |s: &Snapshot| s.stats.rtt_sums.map(|r| r.lone_count);
        let baseline = if lone(after) == lone(before) {
            None
        } else {
            self.baselines.of(namespace, after)
        };
        measure(before, after, baseline, &self.thresholds)
    }

    /// Keeps the verdict with its connection: its totals and history.
    pub(super) fn keep(
        &self,
        connection: &mut LiveConnection,
        snapshot: &Snapshot,
        verdict: &IntervalVerdict,
    ) {
        connection.totals.add(verdict);
        if self.history > 0 {
            if connection.history.len() >= self.history {
                connection.history.pop_front();
            }
            let point = HistoryPoint::of(snapshot, verdict);
            connection.history.push_back(point);
        }
    }
}

/// Who is given every verdict, besides the connection itself and the log.
#[derive(Default)]
pub(crate) struct Consumers {
    /// Problems that explain each other, for the log.
    pub(crate) interactions: InteractionTracker,
    /// Sums for an exporter, if there is one.
    pub(crate) host_totals: Option<Box<HostTotals>>,
    /// Which connections had problems, under a CPU budget.
    pub(crate) priorities: Option<Priorities>,
    /// Which connections the recorder is asked to keep.
    pub(crate) keep_requests: KeepRequests,
    /// Connections that lost segments since they were last taken, if their paths are to be traced.
    pub(crate) lossy: Option<Vec<LossyConnection>>,
}

/// Lossy connections of one poll; further ones are of a later one.
const MAX_LOSSY: usize = 64;

impl Consumers {
    /// An interval without a finding, of which no verdict is kept.
    pub(super) fn quiet_interval(
        &mut self,
        connection: &mut LiveConnection,
        snapshot: &Snapshot,
        measures: &Measures,
    ) {
        connection.totals.quiet(measures);
        if let Some(host_totals) = &mut self.host_totals {
            host_totals.totals.quiet(measures);
        }
        self.sampled(connection, snapshot, None);
    }

    /// A verdict on an interval that ends with this snapshot.
    pub(super) fn verdict(
        &mut self,
        connection: &mut LiveConnection,
        snapshot: &Snapshot,
        verdict: &IntervalVerdict,
    ) {
        if let Some(host_totals) = &mut self.host_totals {
            let whose = Labelled {
                owner: &connection.owner,
                port: snapshot.tuple.service_port(connection.snapshot.origin),
            };
            let charge = &mut connection.charge;
            host_totals.judge(verdict, &connection.totals, whose, charge);
        }
        let problem = (!verdict.findings.is_empty()).then(|| verdict.interval());
        self.sampled(connection, snapshot, problem);
    }

    /// Takes note of a living connection whose interval had losses; `unacknowledged` is its first
    /// sequence number without an acknowledgement.
    pub(super) fn note_losses(
        &mut self,
        snapshot: &Snapshot,
        verdict: &IntervalVerdict,
        unacknowledged: Option<u32>,
    ) {
        let (Some(lossy), Some(unacknowledged)) = (&mut self.lossy, unacknowledged) else {
            return;
        };
        let of_loss =
            |found: &Finding| matches!(found.problem, Problem::FastRetransmit | Problem::Timeout);
        if lossy.len() < MAX_LOSSY && !snapshot.closed && verdict.findings.iter().any(of_loss) {
            lossy.push(LossyConnection {
                id: snapshot.id,
                tuple: snapshot.tuple,
                unacknowledged,
            });
        }
    }

    /// A poll met the connection: a problem in an interval of that length, or none, may
    /// change how often it is sampled.
    fn sampled(
        &mut self,
        connection: &mut LiveConnection,
        snapshot: &Snapshot,
        problem: Option<Micros>,
    ) {
        if let Some(priorities) = &mut self.priorities {
            let cookie = snapshot.id.cookie;
            connection.priority =
                priorities.sample(cookie, connection.priority, snapshot.at, problem);
        }
    }
}

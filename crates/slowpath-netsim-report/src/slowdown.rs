// SPDX-License-Identifier: Apache-2.0
//! How many times longer flows took than with the network to themselves.

use serde::Serialize;
use slowpath_netsim::engine::Transport;
use slowpath_netsim::results::FlowRecord;
use slowpath_netsim::scenario::Scenario;
use slowpath_netsim::topology::IdealTimes;
use slowpath_switch::{Span, Time};

/// A flow of this size or more, in bytes, lasts as long as the run: what
/// [`Scenario::flows`] gives those without a size.
pub const ENDLESS: u64 = 1 << 48;

/// Slowdowns as percentiles (nearest ranks). A flow that was not done at the end counts with the time that it had taken until then, so that it is
/// left out of none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Slowdowns {
    /// Flows, those that are not done among them.
    pub flows: u64,
    /// Flows that were not done: where they are, a percentile is a lower bound.
    pub unfinished: u64,
    /// The median.
    pub p50: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

/// The ideal times of a scenario's flows.
#[derive(Debug)]
pub struct Ideals<'a> {
    scenario: &'a Scenario,
    times: IdealTimes<'a>,
}

impl<'a> Ideals<'a> {
    /// Of that scenario.
    pub fn new(scenario: &'a Scenario) -> Self {
        Ideals {
            scenario,
            times: IdealTimes::new(&scenario.topology),
        }
    }

    /// A flow's; `None` of one that lasts as long as the run, and of datagrams.
    pub fn of(&mut self, flow: &FlowRecord) -> Option<Span> {
        let workload = &self.scenario.workloads[usize::from(flow.label)];
        let Transport::Tcp(kind) = workload.transport else {
            return None;
        };
        let tcp = &self.scenario.tcp[usize::from(kind)];
        let [from, to] = [flow.source.0, flow.destination.0];
        let known = flow.bytes < ENDLESS;
        known.then(|| self.times.of(from, to, flow.bytes, tcp.mss, tcp.header))
    }

    /// Those of some flows; `None`: there is none with an ideal time.
    pub fn slowdowns<'f>(
        &mut self,
        flows: impl IntoIterator<Item = &'f FlowRecord>,
        end: Time,
    ) -> Option<Slowdowns> {
        let mut all = Vec::new();
        let mut unfinished = 0;
        for flow in flows {
            let Some(ideal) = self.of(flow) else {
                continue;
            };
            unfinished += u64::from(flow.finish.is_none());
            let took = flow.finish.unwrap_or(end).since(flow.start);
            all.push(took.0 as f64 / ideal.0.max(1) as f64);
        }
        all.sort_by(f64::total_cmp);
        let rank = |hundredths: usize| {
            let rank = (all.len() * hundredths).div_ceil(100).max(1);
            all.get(rank - 1).copied()
        };
        Some(Slowdowns {
            flows: all.len() as u64,
            unfinished,
            p50: rank(50)?,
            p95: rank(95)?,
            p99: rank(99)?,
            max: rank(100)?,
        })
    }
}

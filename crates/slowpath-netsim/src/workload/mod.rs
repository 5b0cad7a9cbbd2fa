// SPDX-License-Identifier: Apache-2.0
//! Which flows begin when, from where to where and how long.
//!
//! What enters: a [`Topology`](crate::topology::Topology), [`Workload`]s, a seed.
//!
//! What leaves: [`Flow`]s in the order of time ([`FlowStream`]), made as they are asked for.
//!
//! What is promised: every workload has random numbers of its own, so that one more does
//! not change the others, and nothing that happens in the network changes any. Only
//! addition, multiplication and division are used on fractions: the same seed gives the
//! same flows on every machine.

mod distribution;
mod endpoints;
mod given;
mod incast;
mod poisson;
mod random;

mod stream;
mod trace;

pub use distribution::{CdfError, CdfProblem, SizeDistribution};
pub use endpoints::{EndpointError, Endpoints, Locality};
pub use given::{Bulk, Permutation};
pub use incast::{Arrivals, Incast};
pub use poisson::{Intensity, Poisson};
pub use stream::FlowStream;
pub use trace::{TraceError, TraceProblem, parse_trace};

use crate::engine::{Application, Transport};
use slowpath_switch::{Span, Time};

/// A flow to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// When the application writes.
    pub start: Time,
    /// Which workload made it.
    pub workload: u16,
    /// The sending host.
    pub from: u32,
    /// The receiving host.
    pub to: u32,
    /// How much; `None`: as long as the run lasts.
    pub bytes: Option<u64>,
    /// The query that it answers.
    pub query: Option<Query>,
}

/// A query: it is complete when all its flows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Query {
    /// Its number in its workload.
    pub number: u32,
    /// How many flows it has.
    pub degree: u32,
    /// When it was asked: the completion time counts from here.
    pub asked: Time,
}

/// What makes flows.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Poisson arrivals.
    Poisson(Poisson),
    /// Queries that many answer at once.
    Incast(Incast),
    /// Long flows between given hosts.
    Bulk(Bulk),
    /// Every host sends to another one, and receives from one.
    Permutation(Permutation),
    /// A list, in the order of time.
    Trace(Vec<Flow>),
}

/// A source of flows, and what all of them have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its name in results.
    pub name: String,
    /// The class of its packets.
    pub class: u8,
    /// What carries its flows.
    pub transport: Transport,
    /// How they are written.
    pub application: Application,
    /// Whether flows between the same hosts share a connection that stays open.
    pub keep_connections: bool,
    /// No flow before.
    pub start: Time,
    /// No flow from here on, and no query; answers to earlier queries still begin.
    pub stop: Time,
    /// What makes them.
    pub kind: Kind,
}

impl Workload {
    /// How long it makes flows.
    pub fn duration(&self) -> Span {
        self.stop.since(self.start)
    }

    /// How many flows it makes, on average.
    pub fn expected_flows(&self) -> f64 {
        let picoseconds = self.duration().0 as f64;
        match &self.kind {
            Kind::Poisson(poisson) => picoseconds / poisson.mean_gap(),
            Kind::Incast(incast) => {
                let queries = picoseconds * 1e-12 * incast.rate;
                let most = incast.count.map_or(f64::INFINITY, |count| count as f64);
                queries.min(most) * f64::from(incast.degree)
            }
            Kind::Bulk(bulk) => bulk.pairs.len() as f64 * f64::from(bulk.flows),
            Kind::Permutation(permutation) => permutation.hosts.len() as f64,
            Kind::Trace(flows) => flows.len() as f64,
        }
    }
}

#[cfg(test)]
mod tests;

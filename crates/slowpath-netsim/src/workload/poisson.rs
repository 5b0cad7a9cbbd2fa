// SPDX-License-Identifier: Apache-2.0
//! Flows that begin at random moments.

use super::distribution::SizeDistribution;
use super::endpoints::Endpoints;
use super::random::exponential;
use super::{Flow, Workload};
use slowpath_switch::{Random, Span, Time};

/// How many flows begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Intensity {
    /// Payload offered, as a share of what the senders' links carry in sum: the mean flow
    /// size times the flows a second, over the sum of the senders' link rates. Headers,
    /// ACKs and retransmissions come on top.
    Load(f64),
    /// Flows a second in the whole network.
    PerSecond(f64),
    /// The mean time between two flows of one sender.
    Gap(Span),
}

/// Poisson arrivals of flows of random sizes between random hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Poisson {
    /// Who sends to whom.
    pub endpoints: Endpoints,
    /// How large.
    pub sizes: SizeDistribution,
    /// How many.
    pub intensity: Intensity,
}

impl Poisson {
    /// The mean time between two flows, in picoseconds.
    pub fn mean_gap(&self) -> f64 {
        let per_second = match self.intensity {
            Intensity::Load(load) => load * self.endpoints.capacity() / (8.0 * self.sizes.mean()),
            Intensity::PerSecond(rate) => rate,
            Intensity::Gap(gap) => self.endpoints.senders() as f64 / (gap.0 as f64 * 1e-12),
        };
        1e12 / per_second
    }

    pub(super) fn flows<'a>(
        &'a self,
        number: u16,
        workload: &Workload,
        mut random: Random,
    ) -> impl Iterator<Item = Flow> + 'a {
        let gap = self.mean_gap();
        let mut at = workload.start;
        std::iter::from_fn(move || {
            at += exponential(&mut random, gap);
            let (from, to) = self.endpoints.pair(&mut random);
            Some(Flow {
                start: at,
                workload: number,
                from,
                to,
                bytes: Some(self.sizes.sample(&mut random)),
                query: None,
            })
        })
        .take_while(|flow| flow.start != Time::MAX)
    }
}

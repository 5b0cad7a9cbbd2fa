// SPDX-License-Identifier: Apache-2.0
//! Flows that are given one by one.

use super::{Flow, Workload};
use slowpath_switch::{Random, Span};

/// Flows between given pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bulk {
    /// From and to.
    pub pairs: Vec<(u32, u32)>,
    /// How many between each pair.
    pub flows: u32,
    /// How much each; `None`: as long as the run lasts.
    pub bytes: Option<u64>,
    /// How long after the one before each begins.
    pub stagger: Span,
    /// Each begins up to so much later, at random.
    pub jitter: Span,
}

impl Bulk {
    pub(super) fn flows<'a>(
        &'a self,
        number: u16,
        workload: &Workload,
        mut random: Random,
    ) -> Box<dyn Iterator<Item = Flow> + Send + 'a> {
        let mut at = workload.start;
        let pairs = (0..self.flows).flat_map(|_| &self.pairs);
        let flows = pairs.map(move |(from, to)| {
            let start = at;
            at += self.stagger;
            Flow {
                start,
                workload: number,
                from: *from,
                to: *to,
                bytes: self.bytes,
                query: None,
            }
        });
        if self.jitter == Span::ZERO {
            return Box::new(flows);
        }
        let mut late: Vec<Flow> = flows
            .map(|flow| {
                let share = u128::from(random.next_u64()) * u128::from(self.jitter.0);
                Flow {
                    start: flow.start + Span((share >> 64) as u64),
                    ..flow
                }
            })
            .collect();
        late.sort_by_key(|flow| flow.start);
        Box::new(late.into_iter())
    }
}

/// Every host sends to another one and receives from one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation {
    /// The hosts, at least two.
    pub hosts: Vec<u32>,
    /// How much each sends; `None`: as long as the run lasts.
    pub bytes: Option<u64>,
}

impl Permutation {
    /// Sattolo's algorithm: a random cycle of all hosts, so that no host sends to itself.
    pub(super) fn flows<'a>(
        &'a self,
        number: u16,
        workload: &Workload,
        mut random: Random,
    ) -> impl Iterator<Item = Flow> + 'a {
        let mut to = self.hosts.clone();
        for last in (1..to.len()).rev() {
            to.swap(last, random.below(last as u32) as usize);
        }
        let start = workload.start;
        self.hosts.iter().zip(to).map(move |(from, to)| Flow {
            start,
            workload: number,
            from: *from,
            to,
            bytes: self.bytes,
            query: None,
        })
    }
}

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
}

impl Bulk {
    pub(super) fn flows<'a>(
        &'a self,
        number: u16,
        workload: &Workload,
    ) -> impl Iterator<Item = Flow> + 'a {
        let mut at = workload.start;
        let pairs = (0..self.flows).flat_map(|_| &self.pairs);
        pairs.map(move |(from, to)| {
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
        })
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
    /// Sattolo's algorithm: a random cycle of all hosts, so nobody sends to itself.
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

// SPDX-License-Identifier: Apache-2.0
//! One round: some flows walk their way once more.
//!
//! The first flow walks to the destination. The others stop before it, since destinations limit their errors (Linux: one
//! a second after the first six), and pass over hops that never answer.

use super::changes::Way;
use super::plan::{Next, Plan, Probe, Reply};
use std::collections::BTreeSet;

/// What a round needs to know of the way.
#[derive(Clone, Debug)]
pub struct Terrain {
    /// How far away the destination is; `None`: it never answered.
    pub destination: Option<u8>,
    /// The last distance at which anything answered.
    pub last: u8,
    /// Distances at which nothing answers.
    pub silent: BTreeSet<u8>,
    /// The most hops.
    pub max_ttl: u8,
    /// After so many unanswered hops in a row the first flow goes no further.
    pub gap: u8,
}

#[derive(Debug)]
struct Walk {
    at: Option<u8>,
    under_way: bool,
    way: Way,
    unanswered: u8,
}

/// The round.
#[derive(Debug)]
pub struct Walks {
    terrain: Terrain,
    walks: Vec<Walk>,
}

impl Walks {
    /// Flows from 0 on.
    #[must_use]
    pub fn new(flows: usize, terrain: Terrain) -> Self {
        let mut this = Walks {
            walks: Vec::new(),
            terrain,
        };
        for flow in 0..flows {
            let at = this.from(flow, 1);
            this.walks.push(Walk {
                at,
                under_way: false,
                way: Way::new(),
                unanswered: 0,
            });
        }
        this
    }

    /// The next distance at which the flow is probed.
    fn from(&self, flow: usize, ttl: u8) -> Option<u8> {
        let terrain = &self.terrain;
        let last = match (flow, terrain.destination) {
            (0, _) => terrain.max_ttl,
            (_, Some(destination)) => destination.saturating_sub(1),
            (_, None) => terrain.last,
        };
        let asked = |ttl: &u8| flow == 0 || !terrain.silent.contains(ttl);
        (ttl..=last).find(asked)
    }

    /// The ways as they were found.
    #[must_use]
    pub fn ways(self) -> Vec<(usize, Way)> {
        let walks = self.walks.into_iter().enumerate();
        walks.map(|(flow, walk)| (flow, walk.way)).collect()
    }

    fn go_on(&mut self, probe: Probe, reply: Option<&Reply>) {
        let next = self.from(probe.flow, probe.ttl.saturating_add(1));
        let walk = &mut self.walks[probe.flow];
        walk.under_way = false;
        walk.way.resize(usize::from(probe.ttl), None);
        walk.way[usize::from(probe.ttl) - 1] = reply.map(|reply| reply.from);
        walk.unanswered = match reply {
            Some(_) => 0,
            None => walk.unanswered + 1,
        };
        // An unanswered probe at the destination's distance has reached it, most likely.
        let arrived = match reply {
            Some(reply) => reply.ends(),
            None => self.terrain.destination == Some(probe.ttl),
        };
        let lost = walk.unanswered >= self.terrain.gap;
        walk.at = next.filter(|_| !arrived && !lost);
    }
}

impl Plan for Walks {
    fn next(&mut self, _: i64) -> Next {
        let mut waits = false;
        for (flow, walk) in self.walks.iter_mut().enumerate() {
            match walk.at {
                Some(ttl) if !walk.under_way => {
                    walk.under_way = true;
                    return Next::Probe(Probe::small(flow, ttl));
                }
                Some(_) => waits = true,
                None => {}
            }
        }
        if waits {
            Next::Wait(i64::MAX)
        } else {
            Next::Done
        }
    }

    fn answered(&mut self, probe: Probe, reply: &Reply, _: i64) {
        self.go_on(probe, Some(reply));
    }

    fn unanswered(&mut self, probe: Probe, _: i64) {
        self.go_on(probe, None);
    }
}

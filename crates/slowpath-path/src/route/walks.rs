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
    /// The first flow goes no further after this number of unanswered hops in a row.
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

#[cfg(test)]
mod tests {
    use super::super::plan::ReplyKind;
    use super::*;
    use std::net::IpAddr;

    fn reply(ttl: u8, kind: ReplyKind) -> Reply {
        Reply {
            from: IpAddr::from([192, 0, 2, ttl]),
            kind,
            rtt: None,
            tos: None,
            mpls: Vec::new(),
        }
    }

    /// What was probed: flow and distance.
    type Probed = BTreeSet<(usize, u8)>;

    /// Runs a round through a row whose destination is at distance 4 and whose hop 2 answers nothing.
    fn walked(answers_at_the_end: bool) -> (Probed, Vec<(usize, Way)>) {
        let mut walks = Walks::new(
            3,
            Terrain {
                destination: Some(4),
                last: 4,
                silent: BTreeSet::from([2]),
                max_ttl: 30,
                gap: 5,
            },
        );
        let mut probed = Probed::new();
        while let Next::Probe(probe) = walks.next(0) {
            assert!(probed.insert((probe.flow, probe.ttl)), "once is enough");
            match probe.ttl {
                2 => walks.unanswered(probe, 0),
                4 if answers_at_the_end => {
                    walks.answered(probe, &reply(4, ReplyKind::Destination), 0);
                }
                4 => walks.unanswered(probe, 0),
                ttl => walks.answered(probe, &reply(ttl, ReplyKind::Expired), 0),
            }
        }
        assert_eq!(walks.next(0), Next::Done);
        (probed, walks.ways())
    }

    #[test]
    fn only_the_first_flow_asks_silent_hops_and_the_destination() {
        let (probed, ways) = walked(true);
        let others = [(1, 1), (1, 3), (2, 1), (2, 3)];
        let first = [(0, 1), (0, 2), (0, 3), (0, 4)];
        assert_eq!(probed, others.into_iter().chain(first).collect());
        let ip = |ttl| Some(IpAddr::from([192, 0, 2, ttl]));
        assert_eq!(ways[0], (0, vec![ip(1), None, ip(3), ip(4)]));
        assert_eq!(ways[1], (1, vec![ip(1), None, ip(3)]));
    }

    #[test]
    fn a_destination_that_is_silent_for_once_ends_the_walk_all_the_same() {
        let (probed, _) = walked(false);
        assert_eq!(probed.last(), Some(&(2, 3)));
        assert!(!probed.contains(&(0, 5)));
    }
}

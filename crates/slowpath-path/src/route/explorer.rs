// SPDX-License-Identifier: Apache-2.0
//! The search for all ways: which flow is probed at which distance, until the stopping rule is satisfied at each node.
//!
//! 1. Some flows walk from the first hop to the destination, each by itself.
//! 2. A *node* is an address at a distance, or all of a distance where nothing answers. Each node needs as many flows
//!    through it, observed at the next hop, as the stopping rule asks for the addresses that they met there. Where
//!    these are too few, flows that pass the node are asked again or for the first time, then new flows are made;
//!    whether they pass the node is probed first where the distance has several.
//! 3. Every flow is probed at every distance with several addresses, so that it is known which way it takes.
//!
//! A hop that answered some flows and not others limits its ICMP messages: it gets no more than a probe a second.

use super::plan::{Next, Plan, Probe, Reply, ReplyKind};
use super::stopping::{StoppingRule, missed};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// So many flows through a node without an answer behind it, and that is silent.
const SILENT: usize = 4;

/// How far the search goes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most hops.
    pub max_ttl: u8,
    /// The most flows: each is a socket.
    pub flows: usize,
    /// A flow goes no further after this number of unanswered hops in a row.
    pub gap: u8,
    /// How often a flow is probed at one distance.
    pub tries: u8,
    /// Between probes of a hop that limits its answers, ns.
    pub hold: i64,
    /// When the search ends, ns on the clock of the plan.
    pub deadline: i64,
}

/// What is known of a flow at a distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Observation {
    Unprobed,
    Unanswered(u8),
    At(IpAddr),
}

#[derive(Debug)]
struct Flow {
    /// By distance; the first is hop 1.
    observed: Vec<Observation>,
    /// Where it walks next.
    walks: Option<u8>,
    under_way: Option<u8>,
    /// The distance at which it ended.
    end: Option<u8>,
}

/// A node that needs flows, or needed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    /// Its distance; 0: this host.
    ttl: u8,
    /// `None`: all that is at this distance.
    address: Option<IpAddr>,
    /// Addresses behind it.
    ways: usize,
    /// Flows through it that were observed behind it.
    flows: u32,
    /// How many more it needs.
    missing: u32,
}

/// The search.
#[derive(Debug)]
pub struct Explorer {
    rule: StoppingRule,
    limits: Limits,
    flows: Vec<Flow>,
    /// By distance: not before.
    held: Vec<i64>,
    /// The least distance at which the destination answered.
    destination: Option<u8>,
}

impl Explorer {
    /// Begins with as many flows as a node with one way needs.
    #[must_use]
    pub fn new(mut rule: StoppingRule, limits: Limits) -> Self {
        let first = (rule.flows(1) as usize).min(limits.flows).max(1);
        let mut this = Explorer {
            rule,
            limits,
            flows: Vec::new(),
            held: vec![0; usize::from(limits.max_ttl) + 2],
            destination: None,
        };
        this.add(first, Some(1));
        this
    }

    fn add(&mut self, count: usize, walks: Option<u8>) {
        for _ in 0..count.min(self.limits.flows - self.flows.len()) {
            self.flows.push(Flow {
                observed: vec![Observation::Unprobed; usize::from(self.limits.max_ttl)],
                walks,
                under_way: None,
                end: None,
            });
        }
    }

    /// How far away the destination is, of the shortest way.
    #[must_use]
    pub fn destination(&self) -> Option<u8> {
        self.destination
    }

    /// How many flows there are.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Where a flow ended: at the destination, or where a router refused it.
    #[must_use]
    pub fn end(&self, flow: usize) -> Option<u8> {
        self.flows.get(flow)?.end
    }

    /// Who answered a flow at each distance: up to its end, or as far as anything answered any.
    #[must_use]
    pub fn way(&self, flow: usize) -> Vec<Option<IpAddr>> {
        let last = self.end(flow).unwrap_or(self.last());
        let observed = self.flows.get(flow).map_or(&[][..], |flow| &flow.observed);
        let address = |observed: &Observation| match observed {
            Observation::At(address) => Some(*address),
            _ => None,
        };
        observed
            .iter()
            .take(usize::from(last))
            .map(address)
            .collect()
    }

    /// The last distance at which anything answered.
    #[must_use]
    pub fn last(&self) -> u8 {
        let answered = |ttl: &u8| self.flows.iter().any(|flow| at(flow, *ttl).is_some());
        (1..=self.limits.max_ttl).rev().find(answered).unwrap_or(0)
    }

    /// Addresses at a distance.
    #[must_use]
    pub fn addresses(&self, ttl: u8) -> BTreeSet<IpAddr> {
        let flows = self.flows.iter();
        flows.filter_map(|flow| at(flow, ttl)).collect()
    }

    /// How probable it is that some node leads to one more address, and whether a node lacks flows.
    #[must_use]
    pub fn missed(&mut self) -> (f64, bool) {
        let nodes = self.nodes();
        let none = nodes
            .iter()
            .map(|node| 1.0 - missed(node.ways, node.flows))
            .product::<f64>();
        (1.0 - none, nodes.iter().any(|node| node.missing > 0))
    }

    /// Whether the flow passes the node, as far as is known.
    fn passes(&self, flow: &Flow, ttl: u8, address: Option<IpAddr>, only: bool) -> bool {
        let Some(address) = address else {
            return flow.end.is_none_or(|end| end > ttl);
        };
        match at(flow, ttl) {
            Some(own) => own == address,
            // Where there is one address only, that is it.
            None => only && flow.end.is_none_or(|end| end > ttl),
        }
    }

    /// All nodes behind which something answers, up to the one before the destination.
    fn nodes(&mut self) -> Vec<Node> {
        let mut nodes = Vec::new();
        let last = self
            .destination
            .map_or(self.last(), |destination| destination - 1);
        for ttl in 0..last {
            if self.addresses(ttl + 1).is_empty() {
                continue;
            }
            let addresses = match ttl {
                0 => BTreeSet::new(),
                _ => self.addresses(ttl),
            };
            let only = addresses.len() == 1;
            let each: Vec<Option<IpAddr>> = match addresses.is_empty() {
                true => vec![None],
                false => addresses.into_iter().map(Some).collect(),
            };
            for address in each {
                let passing = self.flows.iter();
                let passing = passing.filter(|flow| self.passes(flow, ttl, address, only));
                let behind: Vec<IpAddr> = passing.filter_map(|flow| at(flow, ttl + 1)).collect();
                let passing = self.flows.iter();
                let passing = passing.filter(|flow| self.passes(flow, ttl, address, only));
                let tried = passing
                    .filter(|flow| {
                        matches!(flow.observed[usize::from(ttl)], Observation::Unanswered(_))
                    })
                    .count();
                let ways = behind.iter().collect::<BTreeSet<_>>().len().max(1);
                let flows = behind.len() as u32;
                // What lies behind this one answers nothing, while others at its distance do.
                if flows == 0 && tried >= SILENT {
                    continue;
                }
                nodes.push(Node {
                    ttl,
                    address,
                    ways,
                    flows,
                    missing: self.rule.flows(ways).saturating_sub(flows),
                });
            }
        }
        nodes
    }

    /// A flow that may be asked at a distance now, of those that fit.
    fn idle(&self, ttl: u8, fits: impl Fn(&Flow) -> bool) -> Option<usize> {
        self.flows.iter().position(|flow| {
            flow.under_way.is_none() && askable(flow, ttl, self.limits.tries) && fits(flow)
        })
    }

    /// The probe that a node wants; otherwise how many new flows would serve it.
    fn wanted(&self, node: &Node, now: i64) -> Result<Option<Probe>, usize> {
        let (here, behind) = (node.ttl, node.ttl + 1);
        let addresses = if here == 0 {
            0
        } else {
            self.addresses(here).len()
        };
        let passes = |flow: &Flow| self.passes(flow, here, node.address, addresses == 1);
        let on_the_way = self.flows.iter().filter(|flow| {
            flow.under_way == Some(behind) && passes(flow)
                || flow.under_way == Some(here) && addresses > 1
        });
        if on_the_way.count() as u32 >= node.missing {
            return Ok(None);
        }
        if let Some(flow) = self.idle(behind, passes) {
            let held = self.held[usize::from(behind)] > now;
            return Ok((!held).then_some(Probe::small(flow, behind)));
        }
        if addresses > 1 {
            let unknown = |flow: &Flow| flow.end.is_none_or(|end| end > here);
            if let Some(flow) = self.idle(here, unknown) {
                let held = self.held[usize::from(here)] > now;
                return Ok((!held).then_some(Probe::small(flow, here)));
            }
        }
        Err(node.missing as usize * addresses.max(1))
    }

    /// A flow that has not been asked at a distance with several addresses.
    fn unfilled(&self) -> Option<Probe> {
        let forks = (1..=self.last()).filter(|ttl| self.addresses(*ttl).len() > 1);
        for ttl in forks {
            let fits = |flow: &Flow| {
                at(flow, ttl).is_none()
                    && flow.observed[usize::from(ttl) - 1] == Observation::Unprobed
                    && flow.end.is_none_or(|end| end > ttl)
            };
            if let Some(flow) = self.idle(ttl, fits) {
                return Some(Probe::small(flow, ttl));
            }
        }
        None
    }

    fn start(&mut self, probe: Probe) -> Next {
        self.flows[probe.flow].under_way = Some(probe.ttl);
        Next::Probe(probe)
    }

    fn search(&mut self, now: i64) -> Next {
        let nodes = self.nodes();
        let mut more = 0;
        for node in nodes.iter().filter(|node| node.missing > 0) {
            match self.wanted(node, now) {
                Ok(Some(probe)) => return self.start(probe),
                Ok(None) => {}
                Err(flows) => more = more.max(flows),
            }
        }
        if self.flows.iter().any(|flow| flow.under_way.is_some()) {
            return Next::Wait(i64::MAX);
        }
        let held = self.held.iter().copied().filter(|held| *held > now).min();
        let room = self.limits.flows - self.flows.len();
        if more > 0 && room > 0 {
            self.add(more.min(16), None);
            return Next::Wait(now);
        }
        let held_back = nodes
            .iter()
            .any(|node| node.missing > 0 && self.wanted(node, i64::MAX).is_ok_and(|p| p.is_some()));
        match held {
            Some(held) if held_back => return Next::Wait(held),
            _ => {}
        }
        match self.unfilled() {
            Some(probe) => self.start(probe),
            None => Next::Done,
        }
    }
}

/// Who answered a flow at a distance.
fn at(flow: &Flow, ttl: u8) -> Option<IpAddr> {
    match flow.observed.get(usize::from(ttl).checked_sub(1)?)? {
        Observation::At(address) => Some(*address),
        _ => None,
    }
}

fn askable(flow: &Flow, ttl: u8, tries: u8) -> bool {
    match flow.observed.get(usize::from(ttl).wrapping_sub(1)) {
        Some(Observation::Unprobed) => true,
        Some(Observation::Unanswered(count)) => *count < tries,
        _ => false,
    }
}

impl Plan for Explorer {
    fn next(&mut self, now: i64) -> Next {
        if now >= self.limits.deadline {
            return Next::Done;
        }
        let walking = self.flows.iter().enumerate().find_map(|(flow, state)| {
            Some((flow, state.walks?)).filter(|_| state.under_way.is_none())
        });
        if let Some((flow, ttl)) = walking {
            return self.start(Probe::small(flow, ttl));
        }
        match self.flows.iter().any(|flow| flow.walks.is_some()) {
            true => Next::Wait(i64::MAX),
            false => self.search(now),
        }
    }

    fn answered(&mut self, probe: Probe, reply: &Reply, _: i64) {
        if reply.kind == ReplyKind::Destination {
            let nearest = self.destination.map_or(probe.ttl, |ttl| ttl.min(probe.ttl));
            self.destination = Some(nearest);
        }
        let max_ttl = self.limits.max_ttl;
        let flow = &mut self.flows[probe.flow];
        flow.under_way = None;
        flow.observed[usize::from(probe.ttl) - 1] = Observation::At(reply.from);
        if reply.ends() {
            flow.end = Some(flow.end.map_or(probe.ttl, |end| end.min(probe.ttl)));
            flow.walks = None;
        } else if flow.walks == Some(probe.ttl) {
            flow.walks = Some(probe.ttl + 1).filter(|ttl| *ttl <= max_ttl);
        }
    }

    fn unanswered(&mut self, probe: Probe, now: i64) {
        let index = usize::from(probe.ttl);
        let answers = self.flows.iter().any(|flow| at(flow, probe.ttl).is_some());
        if answers {
            self.held[index] = now + self.limits.hold;
        }
        let assumed = self.destination == Some(probe.ttl);
        let limits = self.limits;
        let flow = &mut self.flows[probe.flow];
        flow.under_way = None;
        let observed = &mut flow.observed[index - 1];
        *observed = match *observed {
            Observation::Unanswered(count) => Observation::Unanswered(count.saturating_add(1)),
            Observation::At(address) => Observation::At(address),
            Observation::Unprobed => Observation::Unanswered(1),
        };
        if flow.walks != Some(probe.ttl) {
            return;
        }
        let silent = flow.observed[..index]
            .iter()
            .rev()
            .take_while(|observed| matches!(observed, Observation::Unanswered(_)))
            .count();
        let goes_on = !assumed && silent < usize::from(limits.gap) && probe.ttl < limits.max_ttl;
        flow.walks = goes_on.then_some(probe.ttl + 1);
    }
}

#[cfg(test)]
mod tests;

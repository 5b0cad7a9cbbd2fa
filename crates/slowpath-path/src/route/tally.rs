// SPDX-License-Identifier: Apache-2.0
//! What was sent and answered at each distance, in memory that does not grow with the length of a trace.

use super::plan::{Probe, Reply, ReplyKind};
use super::result::{Label, RoundTrips};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Round trips that are kept of an address at a distance; percentiles leave the rest out.
const MOST_ROUND_TRIPS: usize = 4_096;

/// Addresses that are kept of a distance.
const MOST_ADDRESSES: usize = 256;

/// Answers of one address at one distance.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// How many.
    pub answered: u32,
    /// The first round trips, ns.
    round_trips: Vec<u64>,
    /// The labels of the last answer that had any.
    pub mpls: Vec<Label>,
    /// It is the destination.
    pub destination: bool,
    /// It refused to pass a probe on.
    pub refused: bool,
}

impl Answers {
    /// Their round trips.
    #[must_use]
    pub fn round_trips(&self) -> Option<RoundTrips> {
        RoundTrips::of(self.round_trips.clone())
    }
}

/// One distance.
#[derive(Clone, Debug, Default)]
pub struct Distance {
    /// Probes.
    pub sent: u32,
    /// Probes without an answer, by flow.
    unanswered: BTreeMap<usize, u32>,
    /// Answers by address.
    pub addresses: BTreeMap<IpAddr, Answers>,
}

impl Distance {
    /// Answers of all addresses.
    #[must_use]
    pub fn answered(&self) -> u32 {
        self.addresses
            .values()
            .map(|answers| answers.answered)
            .sum()
    }

    /// Probes of flows for which `passes` holds that had no answer.
    #[must_use]
    pub fn unanswered_of(&self, passes: impl Fn(usize) -> bool) -> u32 {
        let flows = self.unanswered.iter().filter(|(flow, _)| passes(**flow));
        flows.map(|(_, count)| *count).sum()
    }
}

/// All distances. Probes of full size and answers that say that one was too large are not counted.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    hops: BTreeMap<u8, Distance>,
}

impl Tally {
    /// A probe and what came of it.
    pub fn add(&mut self, probe: Probe, reply: Option<&Reply>) {
        if probe.size.is_some() {
            return;
        }
        let at = self.hops.entry(probe.ttl).or_default();
        at.sent = at.sent.saturating_add(1);
        let Some(reply) = reply else {
            *at.unanswered.entry(probe.flow).or_default() += 1;
            return;
        };
        if at.addresses.len() >= MOST_ADDRESSES && !at.addresses.contains_key(&reply.from) {
            return;
        }
        let answers = at.addresses.entry(reply.from).or_default();
        answers.answered = answers.answered.saturating_add(1);
        answers.destination |= reply.kind == ReplyKind::Destination;
        answers.refused |= reply.kind == ReplyKind::Refused;
        if answers.round_trips.len() < MOST_ROUND_TRIPS {
            answers.round_trips.extend(reply.rtt);
        }
        if !reply.mpls.is_empty() {
            answers.mpls.clone_from(&reply.mpls);
        }
    }

    /// One distance.
    #[must_use]
    pub fn at(&self, ttl: u8) -> Distance {
        self.hops.get(&ttl).cloned().unwrap_or_default()
    }

    /// The last distance at which anything answered; 0: none.
    #[must_use]
    pub fn last(&self) -> u8 {
        let answered = self.hops.iter().rev();
        let mut answered = answered.filter(|(_, at)| !at.addresses.is_empty());
        answered.next().map_or(0, |(ttl, _)| *ttl)
    }
}

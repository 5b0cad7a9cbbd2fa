// SPDX-License-Identifier: Apache-2.0
//! Makes a route of what was counted.

use super::changes::{Changes, Way};
use super::judge::{self, Count};
use super::result::{FlowWay, Hop, HopAddress, Loss, Route, RouteNote};
use super::tally::Tally;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What a trace has counted.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// By distance.
    pub tally: Tally,
    /// Each flow's source port and way; none where each probe is a flow of its own.
    pub flows: Vec<(u16, Way)>,
    /// Rounds.
    pub changes: Changes,
    /// Echo requests to the destination.
    pub echo: Option<Count>,
    /// What could not be measured.
    pub notes: Vec<RouteNote>,
}

impl Counted {
    /// Addresses of the next distance to which this one leads; `only`: it is the only one at its own, which flows pass
    /// without having been probed there.
    fn next_of(&self, ttl: u8, address: IpAddr, only: bool) -> Vec<IpAddr> {
        let at = |way: &Way, ttl: u8| way.get(usize::from(ttl) - 1).copied().flatten();
        let flows = self.flows.iter();
        let next: BTreeSet<IpAddr> = flows
            .filter(|(_, way)| at(way, ttl).map_or(only, |own| own == address))
            .filter_map(|(_, way)| at(way, ttl + 1))
            .collect();
        next.into_iter().collect()
    }

    fn addresses(&self, ttl: u8) -> Vec<HopAddress> {
        let at = self.tally.at(ttl);
        let only = at.addresses.len() == 1;
        let each = at.addresses.iter().map(|(address, answers)| {
            let passes = |flow: usize| {
                let way = self.flows.get(flow);
                let known =
                    way.and_then(|(_, way)| way.get(usize::from(ttl) - 1).copied().flatten());
                only || known == Some(*address)
            };
            HopAddress {
                address: *address,
                sent: answers.answered + at.unanswered_of(passes),
                answered: answers.answered,
                rtt_ns: answers.round_trips(),
                mpls: answers.mpls.clone(),
                next: self.next_of(ttl, *address, only),
            }
        });
        each.collect()
    }

    /// Probes and answers by distance, and where the destination answered.
    #[must_use]
    pub fn counts(&self) -> (Vec<Count>, Vec<bool>) {
        let hops = (1..=self.tally.last()).map(|ttl| {
            let at = self.tally.at(ttl);
            let count = Count {
                sent: at.sent,
                answered: at.answered(),
            };
            (count, at.addresses.values().any(|it| it.destination))
        });
        hops.unzip()
    }

    /// Routers that refused probes, unless the destination was reached.
    fn refusals(&self) -> Vec<RouteNote> {
        if self.counts().1.contains(&true) {
            return Vec::new();
        }
        let hops = 1..=self.tally.last();
        let each = hops.flat_map(|hop| {
            let addresses = self.tally.at(hop).addresses.into_iter();
            let refused = addresses.filter(|(_, answers)| answers.refused);
            refused.map(move |(address, _)| RouteNote::Refused { hop, address })
        });
        each.collect()
    }

    /// The hops.
    #[must_use]
    pub fn hops(&self) -> Vec<Hop> {
        let (counts, destination) = self.counts();
        let kinds = judge::kinds(&counts, &destination, self.echo);
        let hops = (1..).zip(counts.iter().zip(kinds));
        let hop = |(ttl, (count, kind)): (u8, (&Count, _))| Hop {
            ttl,
            addresses: self.addresses(ttl),
            sent: count.sent,
            answered: count.answered,
            kind,
        };
        hops.map(hop).collect()
    }

    /// The loss that carries on to the destination.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        let echo = self.echo?;
        let (counts, destination) = self.counts();
        let kinds = judge::kinds(&counts, &destination, self.echo);
        judge::loss(&counts, &kinds, echo)
    }

    /// How many different ways the flows took: by the distances with several addresses, of the flows that are known at
    /// all of them up to their end; at least as many as a distance has addresses.
    #[must_use]
    pub fn ways(&self) -> u32 {
        let last = self.tally.last();
        let forks: Vec<u8> = (1..=last)
            .filter(|ttl| self.tally.at(*ttl).addresses.len() > 1)
            .collect();
        let widest = (1..=last)
            .map(|ttl| self.tally.at(ttl).addresses.len())
            .max()
            .unwrap_or(0);
        let way = |(_, way): &(u16, Way)| -> Option<Vec<IpAddr>> {
            let known = forks.iter().filter(|ttl| usize::from(**ttl) <= way.len());
            known.map(|ttl| way[usize::from(*ttl) - 1]).collect()
        };
        let ways: BTreeSet<Vec<IpAddr>> = self.flows.iter().filter_map(way).collect();
        u32::try_from(ways.len().max(widest)).unwrap_or(u32::MAX)
    }

    /// The route, without what only some engines find.
    #[must_use]
    pub fn into_route(self, empty: Route) -> Route {
        let hops = self.hops();
        let per_packet = !self.changes.per_packet().is_empty();
        let complete = self.counts().1.contains(&true);
        let mut notes = self.refusals();
        notes.extend(&self.notes);
        let ways = match per_packet {
            // Flows take no way then.
            true => hops
                .iter()
                .map(|hop| hop.addresses.len())
                .max()
                .unwrap_or(0) as u32,
            false => self.ways(),
        };
        Route {
            // As many digits as JSON carries without loss, and never too small.
            missed_probability: empty
                .missed_probability
                .map(|missed| ((missed * 1e6).ceil() / 1e6).min(1.0)),
            ways,
            per_packet,
            loss: self.loss(),
            changes: self.changes.changes(),
            complete,
            hops,
            flows: self
                .flows
                .into_iter()
                .map(|(source_port, addresses)| FlowWay {
                    source_port,
                    addresses,
                })
                .collect(),
            notes,
            ..empty
        }
    }
}

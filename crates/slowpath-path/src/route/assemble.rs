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

#[cfg(test)]
mod tests {
    use super::super::plan::{Probe, Reply, ReplyKind};
    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// Flows with their ways; 0: no answer. The last address is the destination's.
    fn counted(ways: &[&[u8]]) -> Counted {
        let mut counted = Counted::default();
        for (flow, way) in ways.iter().enumerate() {
            for (ttl, last) in (1u8..).zip(*way) {
                let kind = match usize::from(ttl) == way.len() {
                    true => ReplyKind::Destination,
                    false => ReplyKind::Expired,
                };
                let reply = Reply {
                    from: ip(*last),
                    kind,
                    rtt: Some(1_000 * u64::from(ttl)),
                    tos: None,
                    mpls: Vec::new(),
                };
                let reply = (*last > 0).then_some(&reply);
                counted.tally.add(Probe::small(flow, ttl), reply);
            }
            let addresses = way.iter().map(|last| (*last > 0).then(|| ip(*last)));
            counted
                .flows
                .push((5_000 + flow as u16, addresses.collect()));
        }
        counted
    }

    #[test]
    fn two_choices_one_behind_the_other_are_the_ways_that_were_taken() {
        // Of the four combinations three are taken.
        let ways: [&[u8]; 4] = [&[1, 2, 4, 9], &[1, 2, 5, 9], &[1, 3, 5, 9], &[1, 3, 5, 9]];
        let counted = counted(&ways);
        assert_eq!(counted.ways(), 3);
        let hops = counted.hops();
        assert_eq!(hops[1].addresses[0].next, [ip(4), ip(5)]);
        assert_eq!(hops[1].addresses[1].next, [ip(5)]);
        assert_eq!(hops[0].addresses[0].next, [ip(2), ip(3)]);
        assert_eq!((hops[2].sent, hops[2].answered), (4, 4));
    }

    #[test]
    fn an_unanswered_probe_is_counted_where_its_flow_passes() {
        // The third flow is known to pass 3, and one of its probes was not answered.
        let mut counted = counted(&[&[1, 2, 9], &[1, 2, 9], &[1, 3, 9]]);
        counted.tally.add(Probe::small(2, 2), None);
        let hops = counted.hops();
        let counts: Vec<(u32, u32)> = hops[1]
            .addresses
            .iter()
            .map(|it| (it.sent, it.answered))
            .collect();
        assert_eq!(counts, [(2, 2), (2, 1)]);
        assert_eq!((hops[1].sent, hops[1].answered), (4, 3));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! How long flows would take with the network to themselves.

use super::{LinkOptions, Node, Topology};
use slowpath_switch::Span;
use std::collections::HashMap;

/// Picoseconds a second, for bits.
const SECOND: u128 = 1_000_000_000_000;

/// The times of flows that meet no other traffic and whose senders wait for nothing: packets leave one after the other at the
/// rate of the slowest link of a shortest way (of several, at each switch the fastest link), which stores and forwards. What TCP adds
/// (handshake, slow start) is not in them.
#[derive(Debug)]
pub struct IdealTimes<'a> {
    topology: &'a Topology,
    /// From every switch, the links to a host's switch.
    distances: HashMap<u32, Vec<u32>>,
    /// Between two hosts' switches.
    ways: HashMap<[u32; 2], Vec<LinkOptions>>,
}

impl<'a> IdealTimes<'a> {
    /// Of flows in that topology.
    pub fn new(topology: &'a Topology) -> Self {
        IdealTimes {
            topology,
            distances: HashMap::new(),
            ways: HashMap::new(),
        }
    }

    /// From the first bit at a host until the last is at the other; `mss` and `header` are bytes of payload and of headers in a packet.
    pub fn of(&mut self, from: u32, to: u32, bytes: u64, mss: u16, header: u16) -> Span {
        let topology = self.topology;
        let port = |host: u32| topology.hosts()[host as usize].port.options;
        let edges = [from, to].map(|host| topology.edge(host));
        let way = self.way(edges);
        let links = || {
            [port(from), port(to)]
                .into_iter()
                .chain(way.iter().copied())
        };
        let (bytes, mss, header) = (
            u128::from(bytes),
            u128::from(mss.max(1)),
            u128::from(header),
        );
        let packets = bytes.div_ceil(mss).max(1);
        let first = bytes.min(mss) + header;
        let others = bytes + packets * header - first;
        let takes = |bytes: u128, link: &LinkOptions| {
            let rate = u128::from(link.rate.bits_per_second().max(1));
            (bytes * 8 * SECOND).div_ceil(rate)
        };
        let slowest = links().map(|link| takes(others, &link)).max().unwrap_or(0);
        let passing: u128 = links()
            .map(|link| takes(first, &link) + u128::from(link.delay.0))
            .sum();
        Span(u64::try_from(passing + slowest).unwrap_or(u64::MAX))
    }

    /// The links between two switches.
    fn way(&mut self, [from, to]: [u32; 2]) -> &[LinkOptions] {
        let topology = self.topology;
        let distances = self.distances.entry(to).or_insert_with(|| {
            let mut distances = Vec::new();
            topology.distances(to, &mut distances);
            distances
        });
        self.ways.entry([from, to]).or_insert_with(|| {
            let mut links = Vec::new();
            let mut at = from;
            while at != to {
                let own = distances[at as usize];
                let nearer = topology.switches[at as usize]
                    .ports
                    .iter()
                    .filter_map(|port| {
                        let Node::Switch(next) = port.peer else {
                            return None;
                        };
                        (distances[next as usize] < own).then_some((next, port.options))
                    });
                // Every host reaches every other.
                let Some((next, options)) = nearer.max_by_key(|(_, it)| it.rate.bits_per_second())
                else {
                    break;
                };
                links.push(options);
                at = next;
            }
            links
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Builder, LinkOptions, QueueOverride};
    use super::*;
    use slowpath_switch::Rate;

    fn link(megabits: u64, us: u64) -> LinkOptions {
        LinkOptions {
            rate: Rate::from_bits_per_second(megabits * 1_000_000).unwrap(),
            delay: Span::from_micros(us),
            queue: QueueOverride::default(),
        }
    }

    /// Two switches with a slow link between them.
    fn topology() -> Topology {
        let mut builder = Builder::default();
        let hosts = ["a", "b", "c"].map(|name| builder.host(name, None).unwrap());
        let switches = ["s", "t"].map(|name| builder.switch(name).unwrap());
        for (ends, options) in [
            ((hosts[0], switches[0]), link(1_000, 10)),
            ((hosts[1], switches[1]), link(1_000, 10)),
            ((hosts[2], switches[0]), link(1_000, 10)),
            ((switches[0], switches[1]), link(100, 50)),
        ] {
            builder.link(ends.0, ends.1, options).unwrap();
        }
        builder.build().unwrap()
    }

    #[test]
    fn packets_follow_each_other_at_the_slowest_links_rate() {
        let topology = topology();
        let mut times = IdealTimes::new(&topology);
        // 1,500 bytes: 12 us, 120 us, 12 us, and 70 us of way.
        assert_eq!(times.of(0, 1, 1_460, 1_460, 40), Span::from_micros(214));
        // Nine more follow at 100 Mbit/s.
        assert_eq!(
            times.of(0, 1, 14_600, 1_460, 40),
            Span::from_micros(214 + 9 * 120)
        );
        // At one switch: two links of 12 us and 10 us each; the last of ten packets 9 x 12 us later.
        assert_eq!(
            times.of(0, 2, 14_600, 1_460, 40),
            Span::from_micros(44 + 9 * 12)
        );
        // 100 bytes and 40: 1.12 us a link.
        let short = Span::from_nanos(2 * 1_120 + 20_000);
        assert_eq!(times.of(2, 0, 100, 1_460, 40), short);
    }
}

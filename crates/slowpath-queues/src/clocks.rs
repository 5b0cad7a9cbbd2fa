// SPDX-License-Identifier: Apache-2.0
//! How far hosts' clocks differ, from the packets themselves.
//!
//! A packet that TCP sent because another arrived was sent no sooner than that could arrive:
//! with `T` what a host's clock showed and `d` how far it is ahead,
//!
//! 1. `d(to) - d(from) <= T(answer) - T(packet) - delay(packet)`, where the delay is that of
//!    an empty network.
//! 2. The least of these differences over all packets from one host to another, and the least
//!    the other way round, bound `d(to) - d(from)` from both sides. The middle is taken, the
//!    more seriously the narrower the bounds are.
//! 3. One offset a host that fits all pairs best: least squares.
//! 4. With a replay, which gives how long each packet waited in queues, the differences
//!    become equations instead of bounds. The offsets that leave the least absolute
//!    differences are taken ([`refine`]). Only answers whose times were kept are used there.
//!
//! What a host takes from an arrival to the answer counts as part of the way; it cancels in 2
//! if all hosts take the same.

use super::engine::{Offered, Outcome, ReplayError, boundless};
use slowpath_netsim::engine::Network;
use slowpath_netsim::topology::Node;
use slowpath_switch::{Destination, Header, Switch, Time};
use std::collections::{BTreeMap, HashMap};

/// Picoseconds a second, times bits a byte.
const PICOS_TIMES_BITS: f64 = 8e12;
/// Sweeps over all hosts until offsets do not change any more.
const SWEEPS: usize = 60;
/// What holds a clock that hardly anything binds.
const PRIOR: f64 = 1e-14;
/// Nothing is known better than this, in picoseconds: the time of a sample is a whole number
/// of nanoseconds.
const FINEST: f64 = 20_000.0;

/// Least squares are solved so often with what fits badly weighing less: least absolute
/// differences in the end, which a packet that waited for something unknown does not move.
const ROBUST: usize = 10;
/// What a replay is wrong by even where nothing waits: what these bytes take.
const WRONG: f64 = 1250.0;
/// Differences below this part of it weigh alike.
const CLEAR: f64 = 0.1;

/// Offsets of clocks, in picoseconds, by the number of the host.
pub type Offsets = Vec<i64>;

/// What is known of one pair of hosts: how far the second's clock is ahead of the first's.
#[derive(Clone, Copy, Debug)]
struct Edge {
    from: u32,
    to: u32,
    ahead: f64,
    weight: f64,
}

/// The offsets that fit all pairs best: minimises the sum of `weight * (d(to) - d(from) -
/// ahead)^2`, and `prior * d^2` for each host, by Gauss and Seidel's iteration.
fn solve(hosts: usize, edges: &[Edge], prior: f64) -> Vec<f64> {
    let mut near: Vec<Vec<(u32, f64, f64)>> = vec![Vec::new(); hosts];
    for edge in edges {
        near[edge.to as usize].push((edge.from, edge.ahead, edge.weight));
        near[edge.from as usize].push((edge.to, -edge.ahead, edge.weight));
    }
    let mut offsets = vec![0.0; hosts];
    for _ in 0..SWEEPS {
        for (host, near) in near.iter().enumerate() {
            let (mut sum, mut weights) = (0.0, prior);
            for (other, ahead, weight) in near {
                sum += weight * (offsets[*other as usize] + ahead);
                weights += weight;
            }
            if weights > 0.0 {
                offsets[host] = sum / weights;
            }
        }
    }
    offsets
}

/// How long packets take in an empty network.
struct Ways<'a> {
    network: &'a Network,
    switches: Vec<Switch<Header>>,
    /// By source, destination and key: picoseconds a byte, and without any.
    known: BTreeMap<(u32, u32, u32), (f64, f64)>,
}

impl<'a> Ways<'a> {
    fn new(network: &'a Network) -> Result<Self, ReplayError> {
        Ok(Ways {
            network,
            switches: boundless(network)?.build().map_err(ReplayError::Network)?,
            known: BTreeMap::new(),
        })
    }

    fn delay(&mut self, packet: &Offered) -> f64 {
        let key = (packet.source.0, packet.destination.0, packet.key);
        let (a_byte, fixed) = match self.known.get(&key) {
            Some(known) => *known,
            None => {
                let way = self.way(packet);
                self.known.insert(key, way);
                way
            }
        };
        a_byte * f64::from(packet.bytes) + fixed
    }

    fn way(&self, packet: &Offered) -> (f64, f64) {
        let topology = &self.network.topology;
        let mut port = &topology.hosts()[packet.source.0 as usize].port;
        let (mut a_byte, mut fixed) = (0.0, 0.0);
        // A way is no longer than there are switches: routes are shortest ones.
        for _ in 0..=self.switches.len() {
            a_byte += PICOS_TIMES_BITS / port.options.rate.bits_per_second() as f64;
            fixed += port.options.delay.0 as f64;
            let Node::Switch(switch) = port.peer else {
                break;
            };
            let to = Destination(packet.destination.0);
            let next = self.switches[switch as usize].next_port(to, packet.key.into());
            let Some(next) = next else { break };
            port = &topology.switches()[switch as usize].ports[usize::from(next.0)];
        }
        (a_byte, fixed)
    }
}

/// Offsets from the least differences, as rules 1 to 3 say. Clocks that nothing binds are
/// taken as right; `bound` is how far they are from each other at most, in picoseconds.
///
/// # Errors
/// The network is impossible.
pub fn offsets(network: &Network, packets: &[Offered], bound: u64) -> Result<Offsets, ReplayError> {
    let mut ways = Ways::new(network)?;
    let mut least: BTreeMap<(u32, u32), f64> = BTreeMap::new();
    for answer in packets {
        let Some(packet) = answer.after.and_then(|after| packets.get(after as usize)) else {
            continue;
        };
        let difference = answer.latest.0 as f64 - packet.earliest.0 as f64 - ways.delay(packet);
        let pair = (packet.source.0, packet.destination.0);
        let known = least.entry(pair).or_insert(difference);
        *known = known.min(difference);
    }
    let mut edges = Vec::new();
    let bound = bound.max(1) as f64;
    for (&(from, to), &most) in &least {
        let other = least.get(&(to, from));
        let most = most.min(bound);
        match other {
            Some(_) if from > to => continue,
            Some(other) => {
                let lowest = -other.min(bound);
                let half = ((most - lowest) / 2.0).max(FINEST);
                edges.push(Edge {
                    from,
                    to,
                    ahead: f64::midpoint(most, lowest),
                    weight: (half * half).recip(),
                });
            }
            None => {
                let half = ((most + bound) / 2.0).max(FINEST);
                edges.push(Edge {
                    from,
                    to,
                    ahead: f64::midpoint(most, -bound),
                    weight: (half * half).recip(),
                });
            }
        }
    }
    let hosts = network.topology.hosts().len();
    let prior = (bound * bound).recip();
    let offsets = solve(hosts, &edges, prior);
    Ok(offsets.into_iter().map(|offset| offset as i64).collect())
}

/// How much more each clock is ahead than the replay of these packets took it to be, as rule
/// 4 says.
///
/// Looks at answers whose time was kept and that are the first after an arrival: the rest
/// waited for others of their connection. What waited long in queues counts less.
///
/// # Errors
/// The network is impossible.
pub fn refine(
    network: &Network,
    packets: &[Offered],
    replayed: &Outcome,
) -> Result<Offsets, ReplayError> {
    let mut ways = Ways::new(network)?;
    let rates = network.topology.hosts().iter();
    let slowest = rates
        .map(|host| host.port.options.rate.bits_per_second())
        .min();
    let wrong = WRONG * PICOS_TIMES_BITS / slowest.unwrap_or(1).max(1) as f64;
    let mut last: HashMap<(u32, u32), Option<u32>> = HashMap::new();
    let mut edges = Vec::new();
    for answer in packets {
        let before = last.insert((answer.source.0, answer.key), answer.after);
        let Some(after) = answer.after else { continue };
        if before.flatten() == Some(after) || answer.earliest != answer.latest {
            continue;
        }
        let packet = &packets[after as usize];
        let (sent, reached) = (
            replayed.sent[after as usize],
            replayed.reached[after as usize],
        );
        if reached == Time::MAX {
            continue;
        }
        let took = reached.since(sent).0 as f64;
        let waited = (took - ways.delay(packet)).max(0.0);
        edges.push(Edge {
            from: packet.source.0,
            to: packet.destination.0,
            ahead: answer.earliest.0 as f64 - packet.at.0 as f64 - took,
            weight: (wrong + waited / 4.0).recip(),
        });
    }
    let hosts = network.topology.hosts().len();
    let weights: Vec<f64> = edges.iter().map(|edge| edge.weight).collect();
    let mut offsets = vec![0.0; hosts];
    for _ in 0..ROBUST {
        for (edge, weight) in edges.iter_mut().zip(&weights) {
            let left: f64 = offsets[edge.to as usize] - offsets[edge.from as usize] - edge.ahead;
            edge.weight = weight / (left.abs() + CLEAR * wrong);
        }
        offsets = solve(hosts, &edges, PRIOR);
    }
    Ok(offsets.into_iter().map(|offset| offset as i64).collect())
}

/// Takes the offsets off all times. All are moved by the same on top of that, so that none
/// becomes negative.
pub fn correct(packets: &mut [Offered], offsets: &Offsets) {
    let most = offsets.iter().copied().max().unwrap_or(0);
    for packet in packets {
        let offset = offsets.get(packet.source.0 as usize).copied();
        let later = most
            .saturating_sub(offset.unwrap_or(0))
            .max(0)
            .unsigned_abs();
        for time in [&mut packet.at, &mut packet.earliest, &mut packet.latest] {
            *time = Time(time.0.saturating_add(later));
        }
    }
}

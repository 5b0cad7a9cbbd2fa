// SPDX-License-Identifier: Apache-2.0
//! Who sends to whom.

use crate::topology::Topology;
use slowpath_switch::Random;

/// Which pairs of hosts may talk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locality {
    /// Any two.
    #[default]
    Any,
    /// Two under different switches.
    OtherRack,
    /// Two in different pods.
    OtherPod,
}

/// What is impossible about senders and receivers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// No sender, or no receiver.
    #[error("no host sends or no host receives")]
    NoHosts,
    /// Pods where there are none.
    #[error("this topology has no pods")]
    NoPods,
    /// A host without a peer.
    #[error("'{0}' has no host to talk with")]
    NoPeer(String),
    /// More answers than hosts that may give them.
    #[error("'{host}' may be answered by {there} hosts, not by {wanted}")]
    TooFew {
        /// Who asks.
        host: String,
        /// How many may answer.
        there: usize,
        /// How many should.
        wanted: usize,
    },
}

/// Senders, receivers, and who may talk with whom. Senders are chosen in proportion to the
/// rate of their link, receivers uniformly.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoints {
    from: Vec<u32>,
    to: Vec<u32>,
    /// Sums of the senders' rates, if they differ.
    weights: Option<Vec<u64>>,
    /// Of every host the group that it does not talk with; its own number for `Any`.
    group: Vec<u32>,
    /// The sum of all senders' rates, bits a second.
    capacity: f64,
}

impl Endpoints {
    /// Those senders and receivers.
    /// Those senders and receivers.
    ///
    /// # Errors
    /// There are none, or one has no peer.
    pub fn new(
        topology: &Topology,
        from: Vec<u32>,
        to: Vec<u32>,
        among: Locality,
    ) -> Result<Self, EndpointError> {
        Self::choose(topology, Some(from), Some(to), among)
    }

    /// The same; `None` means every host that has a peer.
    ///
    /// # Errors
    /// There are none, or one that is given has no peer.
    pub fn choose(
        topology: &Topology,
        from: Option<Vec<u32>>,
        to: Option<Vec<u32>>,
        among: Locality,
    ) -> Result<Self, EndpointError> {
        let hosts = topology.hosts();
        let group = groups(topology, among)?;
        let all: Vec<u32> = (0..hosts.len() as u32).collect();
        let others = to.as_ref().unwrap_or(&all);
        let from = those_with_partners(topology, from, others, &group)?;
        let to = those_with_partners(topology, to, &from, &group)?;
        if from.is_empty() || to.is_empty() {
            return Err(EndpointError::NoHosts);
        }
        let rate = |host: &u32| hosts[*host as usize].port.options.rate.bits_per_second();
        let differ = from.windows(2).any(|pair| rate(&pair[0]) != rate(&pair[1]));
        let weights = differ.then(|| {
            let mut sum = 0u64;
            let sums = from.iter().map(|host| {
                // At most 2^16 hosts of 10^14 bits a second.
                sum += rate(host);
                sum
            });
            sums.collect()
        });
        let capacity = from.iter().map(|host| rate(host) as f64).sum();
        Ok(Endpoints {
            from,
            to,
            weights,
            group,
            capacity,
        })
    }

    /// That every receiver may be sent to by `degree` senders.
    ///
    /// # Errors
    /// The first that may not.
    pub fn check_degree(&self, topology: &Topology, degree: u32) -> Result<(), EndpointError> {
        let senders = partners(&self.group, &self.from);
        let few = self.to.iter().find(|to| senders(**to) < degree as usize);
        match few {
            None => Ok(()),
            Some(to) => Err(EndpointError::TooFew {
                host: topology.hosts()[*to as usize].name.clone(),
                there: senders(*to),
                wanted: degree as usize,
            }),
        }
    }

    pub(super) fn may_talk(&self, a: u32, b: u32) -> bool {
        self.group[a as usize] != self.group[b as usize]
    }

    /// What all senders' links carry in sum, in bits a second.
    pub fn capacity(&self) -> f64 {
        self.capacity
    }

    /// How many senders there are.
    pub fn senders(&self) -> usize {
        self.from.len()
    }

    /// A pair.
    pub(super) fn pair(&self, random: &mut Random) -> (u32, u32) {
        let at = match &self.weights {
            None => random.below(self.from.len() as u32) as usize,
            Some(sums) => {
                let all = sums.last().copied().unwrap_or(1);
                // 64 bits times a share below 2^64: less than 2^-13 away from the exact
                // proportions.
                let point = (u128::from(random.next_u64()) * u128::from(all)) >> 64;
                sums.partition_point(|sum| u128::from(*sum) <= point)
            }
        };
        let from = self.from[at];
        loop {
            let to = self.to[random.below(self.to.len() as u32) as usize];
            if self.may_talk(from, to) {
                return (from, to);
            }
        }
    }

    /// A receiver.
    pub(super) fn receiver(&self, random: &mut Random) -> u32 {
        self.to[random.below(self.to.len() as u32) as usize]
    }

    /// `degree` different senders to a receiver. `order` holds the senders in any order and
    /// is left in another.
    pub(super) fn senders_to(
        &self,
        to: u32,
        degree: u32,
        order: &mut Vec<u32>,
        random: &mut Random,
    ) -> Vec<u32> {
        if order.is_empty() {
            order.clone_from(&self.from);
        }
        let mut chosen = Vec::with_capacity(degree as usize);
        // Fisher and Yates, as far as needed: who may not talk is passed over.
        for at in 0..order.len() {
            if chosen.len() == degree as usize {
                break;
            }
            let other = at + random.below((order.len() - at) as u32) as usize;
            order.swap(at, other);
            if self.may_talk(order[at], to) {
                chosen.push(order[at]);
            }
        }
        chosen
    }
}

/// Of every host the number of the group that it does not talk with.
fn groups(topology: &Topology, among: Locality) -> Result<Vec<u32>, EndpointError> {
    let hosts = 0..topology.hosts().len() as u32;
    match among {
        Locality::Any => Ok(hosts.collect()),
        Locality::OtherRack => Ok(hosts.map(|host| topology.edge(host)).collect()),
        Locality::OtherPod => {
            let pods: Option<Vec<u32>> = topology.hosts().iter().map(|host| host.pod).collect();
            pods.ok_or(EndpointError::NoPods)
        }
    }
}

/// How many of `others` a host may talk with.
fn partners(group: &[u32], others: &[u32]) -> impl Fn(u32) -> usize {
    let groups = group.iter().max().map_or(0, |most| *most as usize + 1);
    let mut members = vec![0; groups];
    for other in others {
        members[group[*other as usize] as usize] += 1;
    }
    let all = others.len();
    move |host| all - members[group[host as usize] as usize]
}

/// The hosts that are given, of which each must have a peer; or all hosts
/// that have.
fn those_with_partners(
    topology: &Topology,
    given: Option<Vec<u32>>,
    others: &[u32],
    group: &[u32],
) -> Result<Vec<u32>, EndpointError> {
    let partners = partners(group, others);
    let Some(given) = given else {
        let all = 0..group.len() as u32;
        return Ok(all.filter(|host| partners(*host) > 0).collect());
    };
    match given.iter().find(|host| partners(**host) == 0) {
        Some(host) if !others.is_empty() => {
            let name = topology.hosts()[*host as usize].name.clone();
            Err(EndpointError::NoPeer(name))
        }
        _ => Ok(given),
    }
}

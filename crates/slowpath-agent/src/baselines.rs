// SPDX-License-Identifier: Apache-2.0
//! The lowest RTT to each peer, which distinguishes a delayed ACK from a long path.

use rustc_hash::FxHashMap;
use slowpath_model::{Micros, Snapshot};
use std::net::IpAddr;

/// Peers whose lowest RTT is remembered.
const MAX_PEERS: usize = 65_536;

/// A network namespace and an address there. The namespace's cookie, or where the kernel has
/// none its inode number, which a later namespace may get: a container that comes soon after another one.
type Peer = (u64, IpAddr);

/// The lowest RTT to each peer. The same address in another network namespace is another
/// peer: containers and networks of their own often number their hosts alike.
#[derive(Debug, Default)]
pub(crate) struct Baselines(FxHashMap<Peer, Micros>);

impl Baselines {
    /// Learns from a connection in the namespace with that cookie, 0 if it has none; what has no
    /// room is not learnt.
    pub(crate) fn learn(&mut self, namespace: u64, snapshot: &Snapshot) {
        if let Some(rtt) = snapshot.stats.rtt_sums.and_then(|r| r.lifetime_min) {
            self.lower(peer(namespace, snapshot), rtt);
        }
    }

    /// What is known of a connection's peer.
    pub(crate) fn of(&self, namespace: u64, snapshot: &Snapshot) -> Option<Micros> {
        self.0.get(&peer(namespace, snapshot)).copied()
    }

    fn lower(&mut self, peer: Peer, rtt: Micros) {
        if self.0.len() >= MAX_PEERS && !self.0.contains_key(&peer) {
            return;
        }
        let lowest = self.0.entry(peer).or_insert(rtt);
        *lowest = rtt.min(*lowest);
    }
}

fn peer(namespace: u64, snapshot: &Snapshot) -> Peer {
    let namespace = match namespace {
        0 => snapshot.id.netns.into(),
        cookie => cookie,
    };
    (namespace, snapshot.tuple.remote.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn peer(netns: u64, last: u8) -> Peer {
        (netns, Ipv4Addr::new(10, 0, 0, last).into())
    }

    #[test]
    fn the_lowest_of_all_connections_to_a_peer_is_kept() {
        let mut baselines = Baselines::default();
        for rtt in [900, 500, 700] {
            baselines.lower(peer(1, 2), Micros(rtt));
        }
        assert_eq!(baselines.0.get(&peer(1, 2)), Some(&Micros(500)));
        assert_eq!(baselines.0.get(&peer(1, 3)), None);
    }

    #[test]
    fn the_same_address_in_another_namespace_is_another_peer() {
        let mut baselines = Baselines::default();
        baselines.lower(peer(1, 2), Micros(100));
        baselines.lower(peer(2, 2), Micros(80_000));
        assert_eq!(baselines.0.get(&peer(1, 2)), Some(&Micros(100)));
        assert_eq!(baselines.0.get(&peer(2, 2)), Some(&Micros(80_000)));
    }

    /// One that took over another's inode number knows nothing of its peers.
    #[test]
    fn a_later_namespace_with_the_same_number_is_another_one() {
        let mut baselines = Baselines::default();
        let mut snapshot = crate::script::quiet();
        snapshot.stats.rtt_sums = Some(slowpath_model::RttSums {
            lifetime_min: Some(Micros(100)),
            ..Default::default()
        });
        baselines.learn(7, &snapshot);
        assert_eq!(baselines.of(7, &snapshot), Some(Micros(100)));
        assert_eq!(baselines.of(8, &snapshot), None);
        assert_eq!(baselines.of(0, &snapshot), None);
    }

    #[test]
    fn a_peer_without_room_is_not_learnt_and_known_ones_still_are() {
        let mut baselines = Baselines::default();
        for netns in 0..MAX_PEERS as u64 {
            baselines.lower(peer(netns, 2), Micros(10));
        }
        baselines.lower(peer(MAX_PEERS as u64, 2), Micros(10));
        baselines.lower(peer(0, 2), Micros(5));
        assert_eq!(baselines.0.len(), MAX_PEERS);
        assert_eq!(baselines.0.get(&peer(0, 2)), Some(&Micros(5)));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The recursive train: probes that expire one hop further each, load, and the same backwards. At each hop the outermost
//! two expire, and the time between the two answers is the train's length there.
//!
//! In the paper probes are small. Small packets run ahead of large ones: each router takes in a packet whole before
//! it sends it on, so that with every link the first probes gain the difference of both packets' times, and gaps
//! grow along any path (at 100 Mbit/s by 0.1 ms a link, 5 % of a train of 60 packets after ten links at 50 Mbit/s). Ours are as
//! long as the load.

use std::collections::BTreeSet;

/// A packet of a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainPacket {
    /// A probe that a hop answers.
    Probe {
        /// The hop.
        hop: u8,
        /// Before or behind the load.
        end: TrainEnd,
    },
    /// A packet that goes to the destination.
    Load,
}

/// Which of a hop's two probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrainEnd {
    /// Before the load.
    Front,
    /// Behind it.
    Tail,
}

/// What a train is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrainPlan {
    /// The last hop: the destination, or the last one that answers.
    pub hops: u8,
    /// Load packets.
    pub load_packets: u32,
    /// Octets of IP of a load packet.
    pub load_octets: usize,
    /// Octets of IP of each of the train's probes.
    pub probe_octets: usize,
    /// Hops that are asked behind the load only: they answer one packet and not a second one soon after. Load is in the
    /// place of their first probes.
    pub tail_only: BTreeSet<u8>,
}

impl TrainPlan {
    /// The packets in the order of sending.
    #[must_use]
    pub fn packets(&self) -> Vec<TrainPacket> {
        let front = (1..=self.hops).map(|hop| match self.tail_only.contains(&hop) {
            true => TrainPacket::Load,
            false => TrainPacket::Probe {
                hop,
                end: TrainEnd::Front,
            },
        });
        let load = (0..self.load_packets).map(|_| TrainPacket::Load);
        let tail = (1..=self.hops).rev().map(|hop| TrainPacket::Probe {
            hop,
            end: TrainEnd::Tail,
        });
        front.chain(load).chain(tail).collect()
    }

    /// Octets of IP that come to a hop after the place of its first probe, its second probe included. Hop 0 is this host,
    /// which sends all but the first packet in that time.
    #[must_use]
    pub fn octets_between(&self, hop: u8) -> usize {
        let first = usize::from(hop.max(1));
        let packets = self.packets();
        // Those before its first probe, and as many behind its second, expire before it.
        let reaching = packets.get(first..(packets.len() + 1).saturating_sub(first));
        reaching.map_or(0, |packets| self.octets_of(packets))
    }

    fn octets_of(&self, packets: &[TrainPacket]) -> usize {
        let octets = |packet: &TrainPacket| match packet {
            TrainPacket::Probe { .. } => self.probe_octets,
            TrainPacket::Load => self.load_octets,
        };
        packets.iter().map(octets).sum()
    }

    /// Octets of IP of the whole train.
    #[must_use]
    pub fn octets(&self) -> usize {
        self.octets_of(&self.packets())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_expires_from_outside_and_its_octets_are_those_between_a_hops_two_probes() {
        let plan = TrainPlan {
            hops: 3,
            load_packets: 2,
            load_octets: 1_000,
            probe_octets: 60,
            tail_only: BTreeSet::new(),
        };
        let probe = |hop, end| TrainPacket::Probe { hop, end };
        use TrainEnd::{Front, Tail};
        let packets = [
            probe(1, Front),
            probe(2, Front),
            probe(3, Front),
            TrainPacket::Load,
            TrainPacket::Load,
            probe(3, Tail),
            probe(2, Tail),
            probe(1, Tail),
        ];
        assert_eq!(plan.packets(), packets);
        // Hop 3: the load and its own tail; each hop before it has two probes more between its own.
        assert_eq!(plan.octets_between(3), 2_060);
        assert_eq!(plan.octets_between(2), 2_180);
        assert_eq!(plan.octets_between(1), 2_300);
        assert_eq!(plan.octets_between(0), 2_300);
        assert_eq!(plan.octets(), 2_360);
        // Of hop 2's first probe load is in the place: that is between hop 1's.
        let plan = TrainPlan {
            tail_only: BTreeSet::from([2]),
            ..plan
        };
        assert_eq!(plan.packets()[1], TrainPacket::Load);
        assert_eq!(plan.packets().len(), 8);
        assert_eq!(plan.octets_between(2), 2_180);
        assert_eq!(plan.octets_between(1), 3_240);
    }
}

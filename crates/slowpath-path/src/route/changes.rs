// SPDX-License-Identifier: Apache-2.0
//! Changes of the way over time, and balancing by packet, from the same flows observed round after round.
//!
//! A flow that meets another address at a distance than in the round before has *moved*. Where flows move in at least
//! two rounds and in at least half of all, and one flow twice, some router chooses for each packet: such a distance has
//! no changes. Any other move is a change of the way, counted at the first distance at which the flow differs.

use super::result::RouteChange;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Moves that are kept; later ones name no changes.
const MOST_MOVES: usize = 4_096;

/// A flow's way in a round: who answered at each distance from 1 on.
pub type Way = Vec<Option<IpAddr>>;

/// Where a flow was last observed.
#[derive(Clone, Copy, Debug)]
struct Last {
    address: IpAddr,
    at_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Move {
    round: u32,
    flow: usize,
    ttl: u8,
    from: Last,
    to: Last,
}

/// Takes rounds, and says what changed.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    rounds: u32,
    last: BTreeMap<(usize, u8), Last>,
    moves: Vec<Move>,
    /// By distance: in how many rounds a flow moved.
    rounds_with_moves: BTreeMap<u8, u32>,
    /// How often a flow moved at a distance.
    moves_of_flow: BTreeMap<(usize, u8), u32>,
}

impl Changes {
    /// A round that was finished at `at_ns` after the trace began, by flow.
    pub fn round(&mut self, at_ns: u64, ways: &[(usize, Way)]) {
        self.rounds += 1;
        let mut moved = BTreeSet::new();
        for (flow, way) in ways {
            for (ttl, address) in (1u8..).zip(way) {
                let Some(address) = *address else { continue };
                let to = Last { address, at_ns };
                let from = self.last.insert((*flow, ttl), to);
                let Some(from) = from.filter(|from| from.address != address) else {
                    continue;
                };
                moved.insert(ttl);
                *self.moves_of_flow.entry((*flow, ttl)).or_default() += 1;
                if self.moves.len() < MOST_MOVES {
                    self.moves.push(Move {
                        round: self.rounds,
                        flow: *flow,
                        ttl,
                        from,
                        to,
                    });
                }
            }
        }
        for ttl in moved {
            *self.rounds_with_moves.entry(ttl).or_default() += 1;
        }
    }

    /// Distances at which the same flow meets different addresses packet by packet.
    #[must_use]
    pub fn per_packet(&self) -> BTreeSet<u8> {
        let compared = self.rounds.saturating_sub(1);
        let again = |ttl: u8| {
            let mut flows = self.moves_of_flow.iter();
            flows.any(|((_, at), moves)| *at == ttl && *moves >= 2)
        };
        let moves = self.rounds_with_moves.iter();
        moves
            .filter(|(ttl, rounds)| **rounds >= 2 && **rounds * 2 >= compared && again(**ttl))
            .map(|(ttl, _)| *ttl)
            .collect()
    }

    /// Changes of the way, in their order.
    #[must_use]
    pub fn changes(&self) -> Vec<RouteChange> {
        let per_packet = self.per_packet();
        let kept = || {
            self.moves
                .iter()
                .filter(|moved| !per_packet.contains(&moved.ttl))
        };
        let mut first: BTreeMap<(u32, usize), u8> = BTreeMap::new();
        for moved in kept() {
            let ttl = first.entry((moved.round, moved.flow)).or_insert(moved.ttl);
            *ttl = (*ttl).min(moved.ttl);
        }
        let mut changes: Vec<(u32, RouteChange)> = Vec::new();
        for moved in kept() {
            if first.get(&(moved.round, moved.flow)) != Some(&moved.ttl) {
                continue;
            }
            // The way may change in mid-round: some flows then move in the next one.
            let same = changes.iter_mut().rev().find(|(round, change)| {
                let hops = (change.hop, change.from, change.to);
                *round + 1 >= moved.round
                    && hops == (moved.ttl, moved.from.address, moved.to.address)
            });
            match same {
                Some((_, change)) => change.flows += 1,
                None => {
                    let change = RouteChange {
                        at_ns: moved.to.at_ns,
                        after_ns: moved.from.at_ns,
                        hop: moved.ttl,
                        from: moved.from.address,
                        to: moved.to.address,
                        flows: 1,
                    };
                    changes.push((moved.round, change));
                }
            }
        }
        changes.into_iter().map(|(_, change)| change).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(last: &[u8]) -> Way {
        let address = |last: &u8| (*last > 0).then(|| IpAddr::from([192, 0, 2, *last]));
        last.iter().map(address).collect()
    }

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn a_way_that_changes_once_is_one_change_at_its_first_hop() {
        let mut changes = Changes::default();
        for (round, hops) in [[1, 2, 3, 9], [1, 2, 3, 9], [1, 5, 6, 9], [1, 5, 6, 9]]
            .iter()
            .enumerate()
        {
            let at = round as u64 * 1_000;
            changes.round(at, &[(0, way(hops)), (1, way(hops))]);
        }
        let expected = RouteChange {
            at_ns: 2_000,
            after_ns: 1_000,
            hop: 2,
            from: ip(2),
            to: ip(5),
            flows: 2,
        };
        assert_eq!(changes.changes(), [expected]);
        assert!(changes.per_packet().is_empty());
    }

    #[test]
    fn flows_that_follow_in_the_next_round_are_the_same_change() {
        let mut changes = Changes::default();
        for hops in [
            [[1, 2], [1, 2]],
            [[1, 5], [1, 2]],
            [[1, 5], [1, 5]],
            [[1, 5], [1, 5]],
            [[1, 5], [1, 5]],
        ] {
            changes.round(0, &[(0, way(&hops[0])), (1, way(&hops[1]))]);
        }
        let found: Vec<(u8, u32)> = changes.changes().iter().map(|c| (c.hop, c.flows)).collect();
        assert_eq!(found, [(2, 2)]);
    }

    #[test]
    fn an_answer_that_is_missing_is_no_change() {
        let mut changes = Changes::default();
        for hops in [[1, 2, 3], [1, 0, 3], [1, 2, 3]] {
            changes.round(0, &[(0, way(&hops))]);
        }
        assert_eq!(changes.changes(), []);
    }

    #[test]
    fn a_flow_that_moves_again_and_again_is_balanced_by_packet() {
        let mut changes = Changes::default();
        for hops in [[1, 2, 9], [1, 3, 9], [1, 3, 9], [1, 2, 9], [1, 3, 9]] {
            changes.round(0, &[(0, way(&hops)), (1, way(&[1, 2, 9]))]);
        }
        // Moves in 3 of 4 rounds.
        assert_eq!(changes.per_packet().into_iter().collect::<Vec<_>>(), [2]);
        assert_eq!(changes.changes(), []);
    }

    #[test]
    fn a_way_that_goes_over_and_back_in_a_minute_is_two_changes() {
        let mut changes = Changes::default();
        for round in 0..60u64 {
            let middle = if (20..40).contains(&round) { 3 } else { 2 };
            changes.round(round, &[(0, way(&[1, middle, 9]))]);
        }
        let found: Vec<(u64, IpAddr)> = changes.changes().iter().map(|c| (c.at_ns, c.to)).collect();
        assert_eq!(found, [(20, ip(3)), (40, ip(2))]);
    }
}

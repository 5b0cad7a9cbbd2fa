// SPDX-License-Identifier: Apache-2.0
//! The followers of a worker's connections: in places of their own, since most connections of a
//! scan or a flood of SYNs never get one.

use super::huge;
use crate::segment::Endpoint;

/// Places are allocated in chunks of this number and never move.
const CHUNK: usize = 2048;

/// There is none.
pub(super) const NO_FOLLOWER: u32 = u32::MAX;

/// What is touched when segments are followed.
pub(super) struct Followed<F> {
    /// The lower and the higher end.
    pub(super) ends: [Endpoint; 2],
    pub(super) first_frame: u64,
    pub(super) follow: F,
}

struct Chunk<F> {
    /// As many as were ever used.
    places: Vec<Option<Followed<F>>>,
    taken: usize,
}

/// Followers by number.
pub(super) struct Followers<F> {
    chunks: Vec<Chunk<F>>,
    free: Vec<u32>,
}

impl<F> Followers<F> {
    pub(super) fn new() -> Self {
        Followers {
            chunks: Vec::new(),
            free: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&Followed<F>> {
        let chunk = self.chunks.get(number as usize / CHUNK)?;
        chunk.places.get(number as usize % CHUNK)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Followed<F>> {
        let chunk = self.chunks.get_mut(number as usize / CHUNK)?;
        chunk.places.get_mut(number as usize % CHUNK)?.as_mut()
    }

    /// Adds one; gives its number.
    pub(super) fn add(&mut self, followed: Followed<F>) -> u32 {
        if let Some(number) = self.free.pop()
            && let Some(chunk) = self.chunks.get_mut(number as usize / CHUNK)
            && let Some(place) = chunk.places.get_mut(number as usize % CHUNK)
        {
            chunk.taken += 1;
            *place = Some(followed);
            return number;
        }
        let is_full = |chunk: &Chunk<F>| chunk.places.len() >= CHUNK;
        if self.chunks.last().is_none_or(is_full) {
            let places = Vec::with_capacity(CHUNK);
            huge::advise(&places);
            self.chunks.push(Chunk { places, taken: 0 });
        }
        let index = self.chunks.len() - 1;
        let chunk = &mut self.chunks[index];
        chunk.taken += 1;
        chunk.places.push(Some(followed));
        (index * CHUNK + chunk.places.len() - 1) as u32
    }

    /// Takes one out.
    pub(super) fn take(&mut self, number: u32) -> Option<Followed<F>> {
        let chunk = self.chunks.get_mut(number as usize / CHUNK)?;
        let followed = chunk.places.get_mut(number as usize % CHUNK)?.take()?;
        chunk.taken -= 1;
        self.free.push(number);
        Some(followed)
    }

    /// Gives back memory that holds no follower; no more will be added.
    pub(super) fn release(&mut self) {
        for chunk in self.chunks.iter_mut().filter(|chunk| chunk.taken == 0) {
            chunk.places = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::net::{IpAddr, Ipv4Addr};

    fn followed(follow: u32) -> Followed<u32> {
        let end = Endpoint {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 1,
        };
        Followed {
            ends: [end; 2],
            first_frame: 0,
            follow,
        }
    }

    proptest! {
        /// Against a map: numbers are distinct, and lead to what was added under them.
        #[test]
        fn numbers_lead_to_what_was_added(steps in prop::collection::vec((any::<bool>(), any::<u32>()), 0..400)) {
            let mut followers = Followers::new();
            let mut there = BTreeMap::new();
            for (add, n) in steps {
                if add {
                    prop_assert_eq!(there.insert(followers.add(followed(n)), n), None);
                } else if let Some(number) = there.keys().nth(n as usize % there.len().max(1)).copied() {
                    let taken = followers.take(number).map(|f| f.follow);
                    prop_assert_eq!(taken, there.remove(&number));
                    prop_assert!(followers.take(number).is_none());
                }
            }
            followers.release();
            for (number, n) in &there {
                prop_assert_eq!(followers.get(*number).map(|f| f.follow), Some(*n));
                prop_assert_eq!(followers.get_mut(*number).map(|f| f.follow), Some(*n));
            }
            prop_assert!(followers.get(NO_FOLLOWER).is_none());
        }
    }

    #[test]
    fn chunks_without_a_follower_are_given_back() {
        let mut followers = Followers::new();
        let numbers: Vec<u32> = (0..2 * CHUNK as u32)
            .map(|n| followers.add(followed(n)))
            .collect();
        for number in &numbers[..CHUNK] {
            followers.take(*number);
        }
        followers.release();
        let capacities: Vec<usize> = followers
            .chunks
            .iter()
            .map(|c| c.places.capacity())
            .collect();
        assert_eq!(capacities, [0, CHUNK]);
        assert_eq!(
            followers.get(numbers[CHUNK]).map(|f| f.follow),
            Some(CHUNK as u32)
        );
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Whose summary is due under a CPU budget: the connections take turns in slices, so that no
//! poll writes all of them.
//!
//! What enters: the time, and how many places there are for connections. What leaves: the
//! places whose turn it is. A pass over all of them takes [`TURN`]; each slice is what has
//! come due since the one before, so those come first that have waited longest.
//!
//! What is promised: while a slice is taken at least every so often, from the turn of a
//! place to its next there is no more than [`TURN`] and twice that time, or, where it is
//! more, one slice for each [`SLICE`] places. No clock, no I/O.

use slowpath_model::{Micros, MonoNanos};
use std::ops::Range;

/// How long a pass over all places takes.
pub(crate) const TURN: Micros = Micros(60_000_000);

/// Most places in a slice: 3 us each if all have something to write, 6 ms in all, beside
/// 100 ms that a budget of 2 % has in five seconds.
pub(crate) const SLICE: u32 = 2_048;

/// The pass that is under way.
#[derive(Debug)]
pub(crate) struct SummaryRotation {
    began: MonoNanos,
    next: u32,
}

impl SummaryRotation {
    /// A first pass.
    pub fn new(now: MonoNanos) -> Self {
        SummaryRotation {
            began: now,
            next: 0,
        }
    }

    /// Whether [`SummaryRotation::take`] has something to do.
    pub fn is_due(&self, now: MonoNanos, places: u32) -> bool {
        let elapsed = now.since(self.began);
        elapsed >= TURN || due(elapsed, places) > self.next
    }

    /// The places due at `now` of `places`; their turn is over with this call. There may be fewer
    /// places than before: a connection that moved to one whose turn is over waits for the next
    /// pass.
    pub fn take(&mut self, now: MonoNanos, places: u32) -> Range<u32> {
        let elapsed = now.since(self.began).min(TURN);
        let from = self.next;
        let to = due(elapsed, places).clamp(from, from.saturating_add(SLICE));
        self.next = to;
        if to >= places && elapsed >= TURN {
            *self = SummaryRotation::new(now);
        }
        from..to
    }
}

/// Places that are due once `elapsed` of a turn has passed.
fn due(elapsed: Micros, places: u32) -> u32 {
    // No more than `places`, since no more than the whole turn has elapsed.
    (u128::from(places) * u128::from(elapsed.0) / u128::from(TURN.0)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> MonoNanos {
        MonoNanos(5_000_000_000 + ms * 1_000_000)
    }

    /// When each of `places` has its turns while slices are taken at these times, and the
    /// largest slice.
    fn rotation(places: u32, times: impl Iterator<Item = u64>) -> (Vec<Vec<u64>>, u32) {
        let mut rotation = SummaryRotation::new(at(0));
        let mut taken = vec![Vec::new(); places as usize];
        let mut largest = 0;
        for ms in times {
            let slice = rotation.take(at(ms), places);
            largest = largest.max(slice.end - slice.start);
            for place in slice {
                taken[place as usize].push(ms);
            }
        }
        (taken, largest)
    }

    fn longest_wait(taken: &[Vec<u64>]) -> u64 {
        let waits = taken.iter().flat_map(|times| {
            let before = std::iter::once(&0).chain(times);
            before.zip(times).map(|(before, then)| then - before)
        });
        waits.max().unwrap_or(0)
    }

    /// A poll every 31 ms, as under a budget with an interval of 500 ms.
    #[test]
    fn everyone_has_a_turn_a_minute_and_no_slice_is_large() {
        let (taken, largest) = rotation(20_000, (0..300_000).step_by(31));
        assert!(taken.iter().all(|times| (4..=5).contains(&times.len())));
        assert!(longest_wait(&taken) <= 60_000 + 2 * 31);
        // 20,000 in 60 s are 10.3 in 31 ms.
        assert!(largest <= 11, "{largest}");
    }

    /// Slices as rare as they may get, every five seconds: 100,000 places need 49 of them.
    #[test]
    fn with_rare_slices_turns_are_longer_but_come() {
        let (taken, largest) = rotation(100_000, (0..2_000_000).step_by(5_000));
        assert_eq!(largest, SLICE);
        assert!(longest_wait(&taken) <= (49 + 2) * 5_000);
        assert!(taken.iter().all(|times| times.len() >= 7));
    }

    #[test]
    fn after_a_pause_the_rest_comes_in_slices_too() {
        let times = (0..20_000)
            .step_by(100)
            .chain((500_000..600_000).step_by(100));
        let (taken, largest) = rotation(20_000, times);
        assert_eq!(largest, SLICE);
        assert!(taken.iter().all(|times| (1..=3).contains(&times.len())));
        assert!(taken.iter().all(|times| times[0] <= 501_000));
    }

    #[test]
    fn places_that_are_added_have_their_turn_and_none_have_none() {
        let mut rotation = SummaryRotation::new(at(0));
        for ms in (0..120_000).step_by(50) {
            assert!(rotation.take(at(ms), 0).is_empty());
        }
        let mut taken = vec![0; 5_000];
        for ms in (120_000..240_000).step_by(50) {
            let places = if ms < 130_000 { 1_000 } else { 5_000 };
            for place in rotation.take(at(ms), places) {
                taken[place as usize] += 1;
            }
        }
        assert!(taken.iter().all(|rotation| (1..=3).contains(rotation)));
    }

    /// A host that had 5,000 connections has 1,000 from the middle of a pass on.
    #[test]
    fn the_places_that_are_left_have_their_turns() {
        let mut rotation = SummaryRotation::new(at(0));
        let mut taken = vec![0; 5_000];
        for ms in (0..120_000).step_by(50) {
            let places = if ms < 30_000 { 5_000 } else { 1_000 };
            for place in rotation.take(at(ms), places) {
                assert!(place < places);
                taken[place as usize] += 1;
            }
        }
        assert!(taken[..1_000].iter().all(|turns| (1..=2).contains(turns)));
    }

    /// A turn is a turn: the number of places times the time does not overflow.
    #[test]
    fn as_many_places_as_there_can_be() {
        let mut rotation = SummaryRotation::new(at(0));
        assert_eq!(rotation.take(at(60_000), u32::MAX), 0..SLICE);
        rotation.next = u32::MAX - 1;
        assert_eq!(rotation.take(at(60_000), u32::MAX), u32::MAX - 1..u32::MAX);
    }
}

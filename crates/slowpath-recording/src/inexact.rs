// SPDX-License-Identifier: Apache-2.0
//! Times of runs that are not the true ones, but near them, and take few bits.
//!
//! 1. Times are whole numbers of units.
//! 2. Of those within the bound the one is taken whose gap is the least surprising, as the file's own model (`block/gaps.rs`) has learnt it from the recording;
//!    being far from the true time counts a little too.
//!
//! What leaves is a recording like any other. Whether it is replayed as the true one is for a replay to say.

use super::block::{Gaps, Kind};
use super::{Connection, End, Run};

/// Units are that much more than the bound: 6 us for 5 us. Half of one must be less.
const UNIT: (u64, u64) = (6, 5);

/// Which gaps are usual in a recording.
#[derive(Clone, Debug)]
pub struct InexactTimes {
    gaps: Gaps,
    within: u32,
    centred: f64,
}

impl InexactTimes {
    /// Learns what is usual with times that are at most `within` nanoseconds from the true ones.
    /// `centred`: how many bits a time is worth that is in the middle of the bound and not at it.
    pub fn learn<'a>(
        connections: impl IntoIterator<Item = &'a Connection>,
        within: u32,
        centred: f64,
    ) -> InexactTimes {
        let mut near = InexactTimes {
            gaps: Gaps::new(),
            within,
            centred,
        };
        for end in connections.into_iter().flat_map(|it| &it.ends) {
            near.choose(end, true);
        }
        near
    }

    /// The end with times that are near the true ones.
    pub fn end(&mut self, end: &End) -> End {
        let mut other = end.clone();
        if self.within > 0 {
            other.within = self.within;
            let times = self.choose(end, false);
            for (run, at) in other.runs.iter_mut().zip(times) {
                run.at.0 = at;
            }
        }
        other
    }

    fn choose(&mut self, end: &End, learn: bool) -> Vec<u64> {
        let (unit, within) = (unit(self.within).max(1), u64::from(self.within));
        let mut times = Vec::with_capacity(end.runs.len());
        let kind = |place: usize| end.runs.get(place).map_or(Kind::NONE, Kind::of);
        for (place, Run { at: true_time, .. }) in end.runs.iter().enumerate() {
            let Some(last) = times.last().copied() else {
                self.gaps.begin(unit, kind(0));
                // Whole units of the clock: the nearest.
                times.push((true_time.0 + unit / 2) / unit * unit);
                continue;
            };
            self.gaps.next(kind(place), kind(place + 1));
            let least = true_time.0.saturating_sub(within).saturating_sub(last);
            let most = true_time.0.saturating_add(within).saturating_sub(last);
            let gaps = least.div_ceil(unit)..=(most / unit).max(least.div_ceil(unit));
            let surprise = |gap: u64| {
                let off = (last + gap * unit).abs_diff(true_time.0) as f64 / within.max(1) as f64;
                self.gaps.cost(gap) + self.centred * off * off
            };
            let best = gaps
                .map(|gap| (surprise(gap), gap))
                .min_by(|a, b| a.0.total_cmp(&b.0));
            // The range has at least its beginning.
            let gap = best.map_or(0, |(_, gap)| gap);
            match learn {
                true => self.gaps.see(gap),
                false => self.gaps.note(gap),
            }
            times.push(last.saturating_add(gap.saturating_mul(unit)));
        }
        times
    }
}

/// The unit of times within that bound; 0 if they are exact.
pub(super) fn unit(within: u32) -> u64 {
    (u64::from(within) * UNIT.0).div_ceil(UNIT.1)
}

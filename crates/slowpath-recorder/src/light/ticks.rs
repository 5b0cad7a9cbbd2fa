// SPDX-License-Identifier: Apache-2.0
//! The value of `jiffies` at a moment, inferred from the few moments at which they were read.

/// `INITIAL_JIFFIES`: they begin so long before their lower half wraps.
const BEFORE: u64 = 300;

#[derive(Clone, Debug, Default)]
pub(super) struct Ticks {
    hz: Option<u32>,
    /// A moment and what they were; and how long before that moment the tick was at least, in nanoseconds.
    known: Option<(u64, u32)>,
}

fn nearest(at: u64, jiffies: u32) -> Option<u32> {
    let off = |hz: u32| {
        let since = u128::from(at) * u128::from(hz) / 1_000_000_000;
        let expected = (since as u32).wrapping_sub(BEFORE as u32 * hz);
        (jiffies.wrapping_sub(expected) as i32).unsigned_abs() / hz
    };
    let best = [100, 250, 300, 1000].into_iter().min_by_key(|hz| off(*hz));
    best.filter(|hz| off(*hz) < 60)
}

impl Ticks {
    /// They had that value then.
    pub(super) fn look(&mut self, at: u64, jiffies: u32) {
        self.hz = self.hz.or_else(|| nearest(at, jiffies));
        // The earliest moment in its tick is nearest to the tick itself.
        let earlier = match self.known {
            Some(_) => self.begins(jiffies).is_none_or(|begins| at < begins),
            None => true,
        };
        if earlier {
            self.known = Some((at, jiffies));
        }
    }

    /// When they became that, as far as is known.
    fn begins(&self, jiffies: u32) -> Option<u64> {
        let (at, known) = self.known?;
        let ticks = i64::from(jiffies.wrapping_sub(known) as i32);
        at.checked_add_signed(ticks * 1_000_000_000 / i64::from(self.hz?))
    }

    pub(super) fn hz(&self) -> u32 {
        self.hz.unwrap_or(0)
    }

    pub(super) fn at(&self, moment: u64) -> u32 {
        let (Some((at, jiffies)), Some(hz)) = (self.known, self.hz) else {
            return 0;
        };
        let tick = 1_000_000_000 / i128::from(hz);
        let ticks = (i128::from(moment) - i128::from(at)).div_euclid(tick);
        jiffies.wrapping_add(ticks as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_look_in_a_tick_dates_the_others() {
        // 250 a second; ticks at 1,000,003 ms and each 4 ms from there.
        let before = (1_000 * 250u32).wrapping_sub(300 * 250);
        let mut ticks = Ticks::default();
        ticks.look(1_000_005_500_000, before);
        ticks.look(1_000_011_100_000, before + 2);
        ticks.look(1_000_018_000_000, before + 3);
        let found = [
            1_000_003_200_000,
            1_000_006_900_000,
            1_000_007_200_000,
            1_000_015_200_000,
        ];
        assert_eq!(ticks.hz(), 250);
        assert_eq!(
            found.map(|at| ticks.at(at).wrapping_sub(before)),
            [0, 0, 1, 3]
        );
    }
}

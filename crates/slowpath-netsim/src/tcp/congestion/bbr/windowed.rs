// SPDX-License-Identifier: Apache-2.0
//! The highest of what was measured lately, in constant memory: Kathleen Nichols' algorithm, which Linux
//! has in `lib/win_minmax.c`.

/// A measurement, and in which round trip.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    round: u32,
    value: u64,
}

impl Measured {
    fn age(self, round: u32) -> u32 {
        round.wrapping_sub(self.round)
    }
}

/// The highest, the second and the third: each later than the one before, and no higher.
#[derive(Clone, Debug, Default)]
pub(super) struct WindowedMax([Measured; 3]);

impl WindowedMax {
    /// The highest of the window; 0 before the first.
    pub fn max(&self) -> u64 {
        self.0[0].value
    }

    /// Takes what was measured in that round trip; what is older than `window` round trips is
    /// forgotten.
    pub fn take(&mut self, window: u32, round: u32, value: u64) {
        let new = Measured { round, value };
        let best = &mut self.0;
        if value >= best[0].value || best[2].age(round) > window {
            *best = [new; 3];
            return;
        }
        if value >= best[1].value {
            best[1] = new;
            best[2] = new;
        } else if value >= best[2].value {
            best[2] = new;
        }
        let age = best[0].age(round);
        if age > window {
            *best = [best[1], best[2], new];
            if best[0].age(round) > window {
                *best = [best[1], best[2], new];
            }
        } else if best[1].round == best[0].round && age > window / 4 {
            // A quarter of the window without a second: the best of the second quarter.
            best[1] = new;
            best[2] = new;
        } else if best[2].round == best[1].round && age > window / 2 {
            best[2] = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_of_ten_rounds_is_kept_and_then_forgotten() {
        let mut rates = WindowedMax::default();
        rates.take(10, 0, 100);
        for round in 1..=10 {
            rates.take(10, round, 50);
            assert_eq!(rates.max(), 100, "round {round}");
        }
        rates.take(10, 11, 50);
        assert_eq!(rates.max(), 50);
    }

    /// Of drawn rates it never gives more than the highest of the window, nor less than the newest.
    #[test]
    fn it_lies_between_the_newest_and_the_highest_of_the_window() {
        let mut state = 7u64;
        let mut all = Vec::new();
        let mut rates = WindowedMax::default();
        for round in 0..5_000u32 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let value = state >> 54;
            all.push(value);
            rates.take(10, round, value);
            let from = all.len().saturating_sub(11);
            let highest = all[from..].iter().max().copied().unwrap();
            assert!((value..=highest).contains(&rates.max()), "round {round}");
        }
    }
}

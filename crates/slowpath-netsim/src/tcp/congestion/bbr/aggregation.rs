// SPDX-License-Identifier: Apache-2.0
//! How much more is acknowledged at once than the rate explains (`bbr_update_ack_aggregation`): what a
//! receiver, or a link that gathers packets, holds back is no reason to stop sending.

use super::{MILLION, RATE_UNIT};

/// `bbr_extra_acked_win_rtts`: round trips of each of the two windows.
const ROUNDS: u32 = 5;
/// `bbr_extra_acked_max_us`.
const MOST: u64 = MILLION / 10;
/// `bbr_ack_epoch_acked_reset_thresh`.
const RESET: u32 = 1 << 20;

/// The excess of two windows, and the stretch over which it is being counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Aggregation {
    extra: [u32; 2],
    current: usize,
    rounds: u32,
    /// When the stretch began, microseconds, and segments acknowledged in it.
    since: u64,
    acked: u32,
}

impl Aggregation {
    /// Counting begins anew.
    pub fn restart(&mut self, now: u64) {
        self.since = now;
        self.acked = 0;
    }

    /// An ACK of `acked` segments at a path of that rate.
    pub fn take(&mut self, round_start: bool, now: u64, rate: u64, acked: u32, window: u32) {
        if acked == 0 {
            return;
        }
        if round_start {
            self.rounds += 1;
            if self.rounds >= ROUNDS {
                self.rounds = 0;
                self.current = 1 - self.current;
                self.extra[self.current] = 0;
            }
        }
        let expected = |since: u64| {
            let segments = u128::from(rate) * u128::from(now.saturating_sub(since));
            (segments / u128::from(RATE_UNIT)).min(u128::from(u32::MAX)) as u32
        };
        let mut explained = expected(self.since);
        if self.acked <= explained || self.acked + acked >= RESET {
            self.restart(now);
            explained = 0;
        }
        self.acked += acked;
        let extra = self.acked.saturating_sub(explained).min(window);
        let most = &mut self.extra[self.current];
        *most = (*most).max(extra);
    }

    /// Segments that the window has for it, once the path's rate is reached
    /// (`bbr_ack_aggregation_cwnd`).
    pub fn window(&self, full: bool, rate: u64) -> u32 {
        if !full {
            return 0;
        }
        let most = u128::from(rate) * u128::from(MOST) / u128::from(RATE_UNIT);
        u128::from(self.extra[0].max(self.extra[1])).min(most) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acks_at_the_rate_of_the_path_are_no_excess_and_a_bunch_is_one() {
        let mut found = Aggregation::default();
        // One segment each 100 us, and no less for being rounded.
        let rate = RATE_UNIT / 100 + 1;
        for n in 1..100 {
            found.take(n % 10 == 0, 100 * n, rate, 1, 1_000);
        }
        assert!(found.window(true, rate) <= 1);
        // Nothing for 2 ms, then the 20 at once, and 15 more than there was time for.
        found.take(true, 12_000, rate, 35, 1_000);
        assert!((15..=35).contains(&found.window(true, rate)));
        assert_eq!(found.window(false, rate), 0);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Linux's timer tick: waits in whole ticks, and when a timer that is set now expires.

use slowpath_switch::{Span, Time};

/// The length of a tick (`1/HZ`). Not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tick(pub Span);

/// Linux's timer wheel: a level has 64 buckets, each 8 times as long as the level before's.
const WHEEL_LEVEL: u64 = 63;
const WHEEL_SHIFT: u32 = 3;
const WHEEL_SHIFTS: u32 = 24;

impl Tick {
    /// A wait in whole ticks, as `usecs_to_jiffies` rounds it.
    #[inline]
    pub fn whole(self, wait: Span) -> Span {
        Span(wait.0.div_ceil(self.0.0) * self.0.0)
    }

    /// When a timer expires that is set now: at a tick, and one later than the wait says, as none
    /// may expire early; long waits end on multiples of 8, 64 and so on (`calc_index` in Linux's
    /// `kernel/time/timer.c`).
    #[inline]
    pub fn expiry(self, now: Time, wait: Span) -> Time {
        let tick = self.0.0;
        let ticks = wait.0.div_ceil(tick);
        let mut shift = 0;
        while ticks >= WHEEL_LEVEL << shift && shift < WHEEL_SHIFTS {
            shift += WHEEL_SHIFT;
        }
        let at = ((((now.0 / tick + ticks) >> shift) + 1) << shift).saturating_mul(tick);
        Time(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As measured in Linux with 250 ticks a second: a timeout of 12 ms and a round trip, set
    /// within a tick, expires 16 to 20 ms after the tick began.
    #[test]
    fn timers_expire_at_whole_ticks_and_one_later() {
        let tick = Tick(Span::from_millis(4));
        let at = |now: u64, wait: u64| {
            let now = Time::ZERO + Span::from_micros(now);
            tick.expiry(now, Span::from_micros(wait)) - Time::ZERO
        };
        assert_eq!(at(0, 12_100), Span::from_millis(20));
        assert_eq!(at(3_999, 12_100), Span::from_millis(20));
        assert_eq!(at(4_000, 12_100), Span::from_millis(24));
        // From 63 ticks on the wheel has buckets of 8: 75 ticks end at 80.
        assert_eq!(at(0, 300_000), Span::from_millis(320));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! CUBIC (RFC 9438) as Linux computes it: time in ticks, the curve computed no more than
//! once a tick, and while the window stays no more than once in 1/32 s (`bictcp_update`).

use super::Growth;
use super::cubic::{BETA, C, FASTEST, FIRST_GROWTH, FRIENDLY_EIGHTHS, TICKS, UNIT, cube_root};
use super::hystart::HyStart;
use slowpath_switch::{Span, Time};

const SECOND: u64 = 1_000_000_000_000;
/// Computed once in this part of a second while the window stays.
const SELDOM: u64 = 32;

/// What `struct bictcp` holds.
#[derive(Clone, Debug)]
pub(super) struct LinuxCubic {
    tick: u64,
    /// Acknowledged segments for one more (`cnt`); 0 before it was computed.
    per_segment: u64,
    last_max: u64,
    /// The window when the curve was computed last, and the tick.
    last_window: u64,
    updated_at: u64,
    origin: u64,
    /// K in 1/1024 s.
    k: u64,
    /// The least round trip; `None` before the first.
    least: Option<Span>,
    /// The tick in which the epoch began; 0 before.
    epoch: u64,
    acknowledged: u64,
    friendly: u64,
    hystart: Option<HyStart>,
}

impl LinuxCubic {
    pub fn new(tick: Span, hystart: bool) -> Self {
        LinuxCubic {
            tick: tick.0,
            per_segment: 0,
            last_max: 0,
            last_window: 0,
            updated_at: 0,
            origin: 0,
            k: 0,
            least: None,
            epoch: 0,
            acknowledged: 0,
            friendly: 0,
            hystart: hystart.then(HyStart::default),
        }
    }

    /// Ticks since the machine started: never 0, which says that there is none.
    fn ticks(&self, now: Time) -> u64 {
        now.0 / self.tick + 1
    }

    /// Ticks a second.
    fn hz(&self) -> u64 {
        (SECOND / self.tick).max(1)
    }

    /// `cubictcp_acked`: a round trip was measured, though not of the first second after a
    /// reduction.
    pub fn measured(&mut self, now: Time, rtt: Span) {
        if self.epoch > 0 && self.ticks(now) - self.epoch.min(self.ticks(now)) < self.hz() {
            return;
        }
        self.least = Some(self.least.map_or(rtt, |least| least.min(rtt)));
    }

    /// Shows HyStart, if on, an ACK of slow start; true if slow start ends here.
    pub fn end_slow_start(&mut self, window: u32, growth: &Growth, rtt: Span) -> bool {
        self.hystart
            .as_mut()
            .is_some_and(|hystart| hystart.update(window, growth, rtt))
    }

    /// How many segments must be acknowledged for one more.
    pub fn acks_per_segment(&mut self, window: u32, acked: u32, growth: &Growth) -> u32 {
        let now = self.ticks(growth.now);
        let window = u64::from(window);
        self.acknowledged += u64::from(acked);
        if self.last_window == window && now - self.updated_at <= self.hz() / SELDOM {
            // 100 times 2^20 fits.
            return self.per_segment as u32;
        }
        if self.epoch == 0 || now != self.updated_at {
            self.update(now, window, u64::from(acked));
        }
        let step = (window * FRIENDLY_EIGHTHS) >> 3;
        while self.acknowledged > step.max(1) {
            self.acknowledged -= step.max(1);
            self.friendly += 1;
        }
        if self.friendly > window {
            self.per_segment = self.per_segment.min(window / (self.friendly - window));
        }
        self.per_segment = self.per_segment.max(u64::from(FASTEST));
        self.per_segment as u32
    }

    fn update(&mut self, now: u64, window: u64, acked: u64) {
        self.last_window = window;
        self.updated_at = now;
        if self.epoch == 0 {
            self.epoch = now;
            self.acknowledged = acked;
            self.friendly = window;
            let below = self.last_max.saturating_sub(window);
            self.k = cube_root(u128::from(below) * u128::from(UNIT * TICKS * TICKS * TICKS / C));
            self.origin = self.last_max.max(window);
        }
        // Where the curve will be one round trip from now, whose ticks are rounded up.
        let least = self.least.map_or(0, |least| least.0.div_ceil(self.tick));
        let t = (now - self.epoch + least) * TICKS / self.hz();
        let offset = u128::from(t.abs_diff(self.k).min(1 << 24));
        let cube = offset * offset * offset * u128::from(C);
        let delta = (cube / u128::from(UNIT * TICKS * TICKS * TICKS)).min(1 << 40) as u64;
        let target = if t < self.k {
            self.origin.saturating_sub(delta)
        } else {
            self.origin + delta
        };
        self.per_segment = if target > window {
            window / (target - window)
        } else {
            100 * window
        };
        if self.last_max == 0 {
            self.per_segment = self.per_segment.min(u64::from(FIRST_GROWTH));
        }
    }

    /// What a reduction leaves (RFC 9438 sections 4.6 and 4.7).
    pub fn reduced(&mut self, window: u32) -> u32 {
        let window = u64::from(window);
        self.epoch = 0;
        self.last_max = if window < self.last_max {
            window * (UNIT + BETA) / (2 * UNIT)
        } else {
            window
        };
        // Not above `window`.
        (window * BETA / UNIT) as u32
    }

    /// After a timeout (`bictcp_reset`).
    pub fn forget(&mut self) {
        let tick = Span(self.tick);
        let hystart = self.hystart.take();
        *self = LinuxCubic::new(tick, false);
        self.hystart = hystart;
    }

    /// Time without data does not count (`CA_EVENT_TX_START`), in whole ticks.
    pub fn shift(&mut self, now: Time, idle: Span) {
        if self.epoch > 0 {
            let now = self.ticks(now);
            self.epoch = (self.epoch + idle.0.div_ceil(self.tick)).min(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(millis: u64) -> Growth {
        Growth {
            now: Time::ZERO + Span::from_millis(millis),
            acked: 1,
            rtt: Some(Span::from_millis(40)),
            min_rtt: Some(Span::from_millis(40)),
            una: 0,
            next: 0,
            limited: true,
            most_out: 0,
        }
    }

    /// From 100 segments the window falls to 70 (RFC 9438 section 4.6). Then W(t) = 0.4 (t - K)^3 +
    /// 100 with K = cbrt(30 / 0.4) = 4.217 s. A round trip of 40 ms after the first
    /// acknowledgment W is 100 - 0.4 (4.177)^3 = 70.84: floor 70, and 30 - 0.84 = 29.16 that
    /// are taken away as 29: 71. So one segment more for 70.
    #[test]
    fn the_curve_of_rfc_9438() {
        let mut cubic = LinuxCubic::new(Span::from_millis(4), false);
        cubic.measured(Time::ZERO, Span::from_millis(40));
        assert_eq!(cubic.reduced(100), 70);
        assert_eq!(cubic.acks_per_segment(70, 1, &growth(1_000)), 70);
        // K seconds later the curve is at 100, 40 ms of it ahead: 30 segments in a window.
        let at = 1_000 + 4_217;
        assert_eq!(cubic.acks_per_segment(70, 1, &growth(at)), 2);
    }

    /// HZ / 32 is 7 of 250 ticks: 28 ms later nothing is computed again, 32 ms later it is. W(0.3 +
    /// 0.04) is 100 - 0.4 (3.877)^3 = 76.7: 70 / 7 = 10.
    #[test]
    fn while_the_window_stays_it_is_computed_every_thirty_second() {
        let mut cubic = LinuxCubic::new(Span::from_millis(4), false);
        cubic.measured(Time::ZERO, Span::from_millis(40));
        cubic.reduced(100);
        cubic.acks_per_segment(70, 1, &growth(1_000));
        cubic.acks_per_segment(70, 1, &growth(1_272));
        let before = cubic.per_segment;
        assert_eq!(
            u64::from(cubic.acks_per_segment(70, 1, &growth(1_300))),
            before
        );
        assert_eq!(cubic.acks_per_segment(70, 1, &growth(1_304)), 10);
    }

    /// Round trips of the first second of an epoch say nothing (`cubictcp_acked`).
    #[test]
    fn the_least_round_trip_is_not_of_the_first_second() {
        let mut cubic = LinuxCubic::new(Span::from_millis(4), false);
        cubic.measured(Time::ZERO, Span::from_millis(40));
        cubic.acks_per_segment(10, 1, &growth(1_000));
        cubic.measured(growth(1_900).now, Span::from_millis(30));
        assert_eq!(cubic.least, Some(Span::from_millis(40)));
        cubic.measured(growth(2_000).now, Span::from_millis(30));
        assert_eq!(cubic.least, Some(Span::from_millis(30)));
    }
}

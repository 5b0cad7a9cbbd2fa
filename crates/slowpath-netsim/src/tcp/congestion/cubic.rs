// SPDX-License-Identifier: Apache-2.0
//! CUBIC (RFC 9438) on integers, with Linux's constants and grain (`tcp_cubic.c`).

use super::Growth;
use super::hystart::HyStart;
use slowpath_switch::{Span, Time};

/// beta_cubic = 717/1024 = 0.7 (section 4.6).
pub(super) const BETA: u64 = 717;
/// The unit of beta.
pub(super) const UNIT: u64 = 1024;
/// Time is counted in 1/1024 s.
pub(super) const TICKS: u64 = 1024;
/// C = 0.4 = 410/1024 (section 5; Linux: `bic_scale * 10`).
pub(super) const C: u64 = 410;
/// Section 4.3: alpha of the Reno-friendly region is 3 (1 - beta) / (1 + beta) = 9/17 in
/// Linux's rounding: a segment more for every 15/8 windows.
pub(super) const FRIENDLY_EIGHTHS: u64 = 15;
/// Linux: at least 5 % a round trip before the first loss.
pub(super) const FIRST_GROWTH: u32 = 20;
/// Linux: at most half a segment an acknowledged one.
pub(super) const FASTEST: u32 = 2;
const PICOSECONDS: u64 = 1_000_000_000_000;

#[derive(Clone, Debug)]
pub(super) struct Cubic {
    /// The window before the last reduction, W_max; 0 before the first.
    last_max: u32,
    /// When this epoch of growth began; `None` before its first ACK.
    epoch: Option<Time>,
    /// K in 1/1024 s.
    k: u64,
    /// Where the curve is flat.
    origin: u32,
    /// What Reno would have (W_est), and what it counts towards its next segment.
    friendly: u32,
    friendly_count: u64,
    hystart: Option<HyStart>,
}

impl Cubic {
    pub fn new(hystart: bool) -> Self {
        Cubic {
            last_max: 0,
            epoch: None,
            k: 0,
            origin: 0,
            friendly: 0,
            friendly_count: 0,
            hystart: hystart.then(HyStart::default),
        }
    }

    /// Shows HyStart, if on, an ACK of slow start; true if slow start ends here.
    #[inline]
    pub fn end_slow_start(&mut self, window: u32, growth: &Growth, rtt: Span) -> bool {
        self.hystart
            .as_mut()
            .is_some_and(|hystart| hystart.update(window, growth, rtt))
    }

    /// How many segments must be acknowledged for one more.
    #[inline]
    pub fn acks_per_segment(&mut self, window: u32, acked: u32, growth: &Growth) -> u32 {
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => self.begin(window, growth.now),
        };
        self.friendly_count += u64::from(acked);
        // Section 4.2: where the curve will be one round trip from now.
        let elapsed = growth.now.since(epoch) + growth.min_rtt.unwrap_or(Span::ZERO);
        let target = self.at(ticks(elapsed));
        let window64 = u64::from(window);
        let mut per_segment = if target > window64 {
            window64 / (target - window64)
        } else {
            100 * window64
        };
        if self.last_max == 0 {
            per_segment = per_segment.min(u64::from(FIRST_GROWTH));
        }
        let step = (window64 * FRIENDLY_EIGHTHS / 8).max(1);
        self.friendly = self
            .friendly
            .saturating_add((self.friendly_count / step) as u32);
        self.friendly_count %= step;
        if self.friendly > window {
            per_segment = per_segment.min(window64 / u64::from(self.friendly - window));
        }
        // 100 times 2^20 fits.
        (per_segment as u32).max(FASTEST)
    }

    fn begin(&mut self, window: u32, now: Time) -> Time {
        self.epoch = Some(now);
        self.friendly = window;
        self.friendly_count = 0;
        self.origin = self.last_max.max(window);
        // K = cbrt((W_max - cwnd) / C).
        let below = u64::from(self.origin - window);
        self.k = cube_root(u128::from(below) * u128::from(UNIT * TICKS * TICKS * TICKS / C));
        now
    }

    /// W_cubic(t) = C (t - K)^3 + W_max, t in ticks.
    fn at(&self, t: u64) -> u64 {
        let offset = u128::from(t.abs_diff(self.k).min(1 << 24));
        let cube = offset * offset * offset * u128::from(C);
        let delta = (cube / u128::from(UNIT * TICKS * TICKS * TICKS)).min(1 << 40) as u64;
        let origin = u64::from(self.origin);
        if t < self.k {
            origin.saturating_sub(delta)
        } else {
            origin + delta
        }
    }

    /// What a reduction leaves (section 4.6), with fast convergence (section 4.7).
    pub fn reduced(&mut self, window: u32) -> u32 {
        let window64 = u64::from(window);
        self.epoch = None;
        self.last_max = if window < self.last_max {
            (window64 * (UNIT + BETA) / (2 * UNIT)) as u32
        } else {
            window
        };
        (window64 * BETA / UNIT) as u32
    }

    /// After a timeout (`bictcp_reset`).
    pub fn forget(&mut self) {
        self.last_max = 0;
        self.epoch = None;
    }

    /// Time without data does not count.
    pub fn shift(&mut self, idle: Span) {
        if let Some(epoch) = &mut self.epoch {
            *epoch += idle;
        }
    }
}

/// In 1/1024 s.
fn ticks(span: Span) -> u64 {
    // Below 2^64: the quotient is.
    (u128::from(span.0) * u128::from(TICKS) / u128::from(PICOSECONDS)) as u64
}

/// The largest integer whose cube is not above `value`.
pub(super) fn cube_root(value: u128) -> u64 {
    let mut root = 0u128;
    // Values stay below 2^20 * 2^31.4 * ... < 2^54, roots below 2^18.
    for bit in (0..20).rev() {
        let tried = root | 1 << bit;
        if tried * tried * tried <= value {
            root = tried;
        }
    }
    root as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots_are_floors() {
        for n in [1u64, 2, 3, 10, 1000, 100_000] {
            let cube = u128::from(n).pow(3);
            assert_eq!(cube_root(cube), n);
            assert_eq!(cube_root(cube + 1), n);
            assert_eq!(cube_root(cube - 1), n - 1);
        }
    }
}

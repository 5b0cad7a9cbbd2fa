// SPDX-License-Identifier: Apache-2.0
//! Round-trip time and the retransmission timeout.

use super::config::{RtoEstimator, TcpConfig};
use slowpath_switch::Span;

/// Smoothed round-trip time, its variation, and the timeout that follows.
#[derive(Clone, Copy, Debug, Default)]
pub struct RttEstimator {
    /// Times 8, as RFC 6298's alpha is 1/8; 0 before the first sample. Picoseconds.
    srtt8: u64,
    /// Of RFC 6298 times 4, as its beta is 1/4 and the timeout wants 4 of it. Linux's
    /// `mdev_us`.
    deviation4: u64,
    /// Linux's `mdev_max_us`: the largest deviation of this round trip.
    deviation_max: u64,
    /// What the timeout adds to the smoothed time.
    variation: u64,
    /// Where the round trip ends over which Linux takes the largest deviation.
    round_end: u64,
    min: u64,
    /// Picoseconds of what the others count: 1, or with a kernel's tick a microsecond.
    unit: u64,
}

/// What Linux measures in.
const MICROSECOND: u64 = 1_000_000;

impl RttEstimator {
    /// A sample. `una` is the first unacknowledged offset, `next` the next one to be sent.
    #[inline]
    pub fn sample(&mut self, config: &TcpConfig, rtt: Span, una: u64, next: u64) {
        self.measured(config, rtt, rtt, una, next);
    }

    /// A sample, and the least that the same acknowledgment shows: Linux takes the minimum of
    /// the latest segment, and the mean of the first (`tcp_clean_rtx_queue`).
    #[inline]
    pub fn measured(&mut self, config: &TcpConfig, rtt: Span, least: Span, una: u64, next: u64) {
        let (unit, rto_min, rtt, least) = match config.kernel_tick {
            None => (1, config.rto_min.0, rtt.0, least.0),
            Some(_) => (
                MICROSECOND,
                config.rto_min.0 / MICROSECOND,
                rtt.0 / MICROSECOND,
                least.0 / MICROSECOND,
            ),
        };
        // 0 says that there is none.
        let (rtt, least) = (rtt.max(1), least.max(1));
        if self.srtt8 == 0 {
            self.unit = unit;
            // RFC 6298 (2.2): SRTT = R, RTTVAR = R/2.
            self.srtt8 = rtt << 3;
            self.deviation4 = rtt << 1;
            self.variation = self.deviation4;
            self.min = least;
            if config.rto_estimator == RtoEstimator::Linux {
                self.variation = self.variation.max(rto_min);
                self.deviation_max = self.variation;
                self.round_end = next;
            }
            return;
        }
        self.min = self.min.min(least);
        let srtt = self.srtt8 >> 3;
        let error = rtt.abs_diff(srtt);
        match config.rto_estimator {
            RtoEstimator::Rfc6298 => {
                // (2.3): RTTVAR = 3/4 RTTVAR + 1/4 |SRTT - R|, before SRTT.
                self.deviation4 = self.deviation4 - (self.deviation4 >> 2) + error;
                self.variation = self.deviation4;
            }
            RtoEstimator::Linux => self.linux_variation(rto_min, rtt < srtt, error, una, next),
        }
        self.srtt8 = self.srtt8 - srtt + rtt;
    }

    /// `tcp_rtt_estimator`: a sample below the mean moves the deviation an eighth as much,
    /// the variation grows at once, and shrinks by a quarter of the difference once a
    /// round trip.
    #[inline]
    fn linux_variation(&mut self, rto_min: u64, below: bool, error: u64, una: u64, next: u64) {
        let quarter = self.deviation4 >> 2;
        if error < quarter {
            self.deviation4 -= quarter - error;
        } else if below {
            self.deviation4 += (error - quarter) >> 3;
        } else {
            self.deviation4 += error - quarter;
        }
        if self.deviation4 > self.deviation_max {
            self.deviation_max = self.deviation4;
            self.variation = self.variation.max(self.deviation_max);
        }
        if una > self.round_end {
            if self.deviation_max < self.variation {
                self.variation -= (self.variation - self.deviation_max) >> 2;
            }
            self.round_end = next;
            self.deviation_max = rto_min;
        }
    }

    /// The timeout after `backoff` expiries in a row.
    #[inline]
    pub fn timeout(&self, config: &TcpConfig, backoff: u32) -> Span {
        let base = if self.srtt8 == 0 {
            config.rto_initial.0
        } else {
            (((self.srtt8 >> 3) + self.variation) * self.unit).max(config.rto_min.0)
        };
        let base = config.in_ticks(Span(base)).0;
        // (5.5): doubled at each expiry, (2.5): at most the maximum.
        let doubled = base.saturating_mul(1 << backoff.min(30));
        Span(doubled.min(config.rto_max.0))
    }

    /// The smoothed round-trip time; `None` before the first sample.
    #[inline]
    pub fn smoothed(&self) -> Option<Span> {
        (self.srtt8 != 0).then_some(Span((self.srtt8 >> 3) * self.unit))
    }

    /// The same with its fraction, an eighth of a microsecond in Linux.
    #[inline]
    pub fn precise(&self) -> Option<Span> {
        (self.srtt8 != 0).then_some(Span(self.srtt8 * self.unit / 8))
    }

    /// The least round-trip time; `None` before the first sample.
    #[inline]
    pub fn min(&self) -> Option<Span> {
        (self.srtt8 != 0).then_some(Span(self.min * self.unit))
    }
}

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
    /// Picoseconds of what the other fields count.
    unit: u64,
}

/// A round trip that an acknowledgment shows.
pub(super) struct Sample {
    /// How long it took.
    pub rtt: Span,
    /// The least that the same acknowledgment shows: Linux takes the mean of the first segment,
    /// and the minimum of the last (`tcp_clean_rtx_queue`).
    pub least: Span,
    /// The first unacknowledged offset.
    pub una: u64,
    /// The next new offset.
    pub next: u64,
}

impl RttEstimator {
    /// Takes a round trip, counted in `unit` picoseconds: the same for each of a connection.
    #[inline]
    pub(super) fn sample(&mut self, config: &TcpConfig, unit: u64, sample: &Sample) {
        let (rtt, least) = (sample.rtt.0 / unit, sample.least.0 / unit);
        let rto_min = config.rto_min.0 / unit;
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
                self.round_end = sample.next;
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
            RtoEstimator::Linux => self.linux_variation(rto_min, rtt < srtt, error, sample),
        }
        self.srtt8 = self.srtt8 - srtt + rtt;
    }

    /// `tcp_rtt_estimator`: a sample below the mean moves the deviation an eighth as much,
    /// the variation grows at once, and shrinks by a quarter of the difference once a
    /// round trip.
    #[inline]
    fn linux_variation(&mut self, rto_min: u64, below: bool, error: u64, sample: &Sample) {
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
        if sample.una > self.round_end {
            if self.deviation_max < self.variation {
                self.variation -= (self.variation - self.deviation_max) >> 2;
            }
            self.round_end = sample.next;
            self.deviation_max = rto_min;
        }
    }

    /// The timeout before any expiry.
    #[inline]
    pub(super) fn timeout(&self, config: &TcpConfig) -> Span {
        if self.srtt8 == 0 {
            return config.rto_initial;
        }
        Span((((self.srtt8 >> 3) + self.variation) * self.unit).max(config.rto_min.0))
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

// SPDX-License-Identifier: Apache-2.0
//! What the rules compare with.

use serde::{Deserialize, Serialize};
use slowpath_model::Micros;

/// What the rules compare with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Thresholds {
    /// SNAP MaxQueuingDelay: how far above the path's own RTT a sample may lie and still be
    /// queueing. 10 ms (SNAP section 4.2).
    pub max_queuing_delay: Micros,
    /// SNAP DelayedACKTimeout: the least time by which a receiver delays an ACK. 40 ms:
    /// Linux delays by TCP_DELACK_MIN = HZ/25 and more (`include/net/tcp.h`); SNAP's 180 ms
    /// is Windows's 200 ms less the grain of its timer.
    pub delayed_ack_timeout: Micros,
    /// Problems that have a duration only are findings from this share of an interval on,
    /// 0..=1; below it they are statistics. 1 %: the kernel's chronographs count in
    /// jiffies, 1 to 10 ms of an interval of 500 ms.
    pub min_share: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Thresholds {
            max_queuing_delay: Micros::from_millis(10),
            delayed_ack_timeout: Micros::from_millis(40),
            min_share: 0.01,
        }
    }
}

impl Thresholds {
    /// How far above the path's own RTT a sample is a delayed ACK's: the least delay, less what
    /// may be queueing in the RTT that it is compared with. The probe that marks samples late
    /// is given this.
    pub fn late_margin(&self) -> Micros {
        self.delayed_ack_timeout
            .saturating_sub(self.max_queuing_delay)
    }

    /// Whether a problem that took `time` of `interval` is more than a statistic.
    pub(crate) fn is_notable(&self, time: Micros, interval: Micros) -> bool {
        time > Micros::ZERO && time.0 as f64 >= self.min_share * interval.0 as f64
    }
}

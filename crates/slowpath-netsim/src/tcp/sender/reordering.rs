// SPDX-License-Identifier: Apache-2.0
//! RACK's reordering window (RFC 8985 section 6.2 step 4).

use super::Phase;
use crate::tcp::rtt::RttEstimator;
use slowpath_switch::Span;

/// SACKed segments beyond a hole that make the window zero.
const THRESHOLD: u32 = 3;
/// Recoveries after which the window shrinks to its first size.
const PERSISTS: u32 = 16;

/// How much later than its successors a segment may arrive before it counts as lost.
#[derive(Clone, Debug)]
pub(super) struct Reordering {
    /// Segments arrived out of order.
    observed: bool,
    /// Quarters of the least round trip.
    steps: u32,
    /// Recoveries until `steps` is 1 again.
    persist: u32,
    /// The offset at which the round trip of the last growth ends.
    round_end: u64,
}

impl Default for Reordering {
    fn default() -> Self {
        Reordering {
            observed: false,
            steps: 1,
            persist: 0,
            round_end: 0,
        }
    }
}

impl Reordering {
    /// The window, with `sacked` segments SACKed.
    pub fn window(&self, phase: Phase, sacked: u32, rtt: &RttEstimator) -> Span {
        if !self.observed && (matches!(phase, Phase::Recovery | Phase::Loss) || sacked >= THRESHOLD)
        {
            return Span::ZERO;
        }
        let min = rtt.min().unwrap_or(Span::ZERO).0;
        let smoothed = rtt.smoothed().unwrap_or(Span::ZERO).0;
        Span((min / 4 * u64::from(self.steps)).min(smoothed))
    }

    /// Takes down whether an ACK shows reordering, and that it reports a `duplicate`: a needless
    /// retransmission widens the window once a round trip.
    pub fn adapt(&mut self, observed: bool, duplicate: bool, una: u64, next: u64) {
        self.observed |= observed;
        if duplicate && una >= self.round_end {
            self.round_end = next;
            self.steps = (self.steps + 1).min(255);
            self.persist = PERSISTS;
        }
    }

    /// A recovery ended.
    pub fn settle(&mut self) {
        if self.persist > 0 {
            self.persist -= 1;
            if self.persist == 0 {
                self.steps = 1;
            }
        }
    }
}

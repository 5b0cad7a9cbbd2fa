// SPDX-License-Identifier: Apache-2.0
//! RTT of one direction's data, as ACKs and timestamps show it.

use super::samples::Samples;

/// Samples of a side's data and what follows from them, ns.
#[derive(Clone, Debug, Default)]
pub(super) struct RttState {
    /// A timestamp value waiting for its echo, and when it was first observed.
    pub timed: Option<(u32, i64)>,
    /// RFC 6298's smoothed RTT and variation, ns; 0 before the first sample.
    pub smoothed: i64,
    pub variation: i64,
    /// Shortest RTT by ACK or timestamp, ns; 0 before the first.
    pub shortest: i64,
    /// The full size so far for `Rtt::full_size`.
    full_size: u32,
    pub acked: Samples,
    pub of_full_size: Samples,
    pub timestamps: Samples,
}

impl RttState {
    /// An ACK of exactly a segment that was sent once, with so much payload.
    #[inline]
    pub(super) fn acknowledged(&mut self, rtt: i64, size: u32) {
        self.acked.add(rtt);
        if size > self.full_size {
            self.full_size = size;
            self.of_full_size = Samples::default();
        }
        if size == self.full_size {
            self.of_full_size.add(rtt);
        }
    }

    /// Adds an RTT sample by RFC 6298 section 2.
    #[inline]
    pub(super) fn smooth(&mut self, rtt: i64) {
        let rtt = rtt.max(0);
        if self.smoothed == 0 {
            self.smoothed = rtt.max(1);
            self.variation = rtt / 2;
        } else {
            self.variation += ((self.smoothed - rtt).abs() - self.variation) / 4;
            self.smoothed = (self.smoothed + (rtt - self.smoothed) / 8).max(1);
        }
        self.shorter(rtt);
    }

    /// Keeps the shortest RTT. One that the clock cannot distinguish from nothing is known to be short.
    #[inline]
    pub(super) fn shorter(&mut self, rtt: i64) {
        let rtt = rtt.max(1);
        if self.shortest == 0 || rtt < self.shortest {
            self.shortest = rtt;
        }
    }
}

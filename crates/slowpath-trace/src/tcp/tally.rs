// SPDX-License-Identifier: Apache-2.0
//! The figures that every segment changes, side by side: a capture has tens of thousands of
//! connections, and what a segment costs is the memory it touches. Counts are small here and
//! added to the report before they can overflow.

use super::report::Direction;

/// Segments after which the counts go to the report.
const SPILL: u32 = 1 << 30;

/// Counts and sums since the last [`spill`](Self::spill), and extremes.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub packets: u32,
    pub acks: u32,
    pub pure_acks: u32,
    pub data_packets: u32,
    pub pushed: u32,
    pub truncated_packets: u32,
    pub advertised: u32,
    pub in_mean: u32,
    pub owins: u32,
    pub codepoints: [u32; 4],
    /// Of ACKs for this direction.
    pub advancing: u32,
    pub immediate: u32,
    pub stretch: u32,
    pub drained: u32,
    pub cumulative: u32,
    pub wire_bytes: u64,
    pub data_bytes: u64,
    pub unique_bytes: u64,
    pub truncated_bytes: u64,
    pub window_sum: u64,
    pub owin_sum: u64,
    pub owin_time: u128,
    // Extremes are never reset.
    pub smallest: u32,
    pub largest: u32,
    pub window_largest: u32,
    pub window_smallest: u32,
    pub owin_largest: u64,
    pub owin_smallest: u64,
    pub flight: u64,
    pub silence: i64,
}

impl Tally {
    /// Whether it is time to [`spill`](Self::spill).
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.packets >= SPILL
    }

    /// Moves everything to the report.
    #[cold]
    pub(super) fn spill(&mut self, report: &mut Direction) {
        let take = |count: &mut u32| u64::from(std::mem::take(count));
        let r = report;
        r.packets += take(&mut self.packets);
        r.control.acks += take(&mut self.acks);
        r.control.pure_acks += take(&mut self.pure_acks);
        r.data.packets += take(&mut self.data_packets);
        r.data.pushed += take(&mut self.pushed);
        r.data.truncated_packets += take(&mut self.truncated_packets);
        r.window.advertised += take(&mut self.advertised);
        r.window.counted += take(&mut self.in_mean);
        r.flight.owin.count += take(&mut self.owins);
        for (sum, count) in r.ecn.codepoints.iter_mut().zip(&mut self.codepoints) {
            *sum += take(count);
        }
        r.acks.advancing += take(&mut self.advancing);
        r.acks.immediate += take(&mut self.immediate);
        r.acks.stretch += take(&mut self.stretch);
        r.flight.drained += take(&mut self.drained);
        r.rtt.cumulative += take(&mut self.cumulative);
        r.wire_bytes += std::mem::take(&mut self.wire_bytes);
        r.data.bytes += std::mem::take(&mut self.data_bytes);
        r.data.unique_bytes += std::mem::take(&mut self.unique_bytes);
        r.data.truncated_bytes += std::mem::take(&mut self.truncated_bytes);
        r.window.sum += std::mem::take(&mut self.window_sum);
        r.flight.owin.sum += std::mem::take(&mut self.owin_sum);
        r.flight.owin.time_weighted += std::mem::take(&mut self.owin_time);
        r.data.smallest = self.smallest;
        r.data.largest = self.largest;
        r.window.largest = u64::from(self.window_largest);
        r.window.smallest = u64::from(self.window_smallest);
        r.flight.owin.largest = self.owin_largest;
        r.flight.owin.smallest = self.owin_smallest;
        r.flight.most = self.flight;
        r.timing.longest_silence =
            std::time::Duration::from_nanos(u64::try_from(self.silence).unwrap_or(0));
    }

    /// Windows until now do not count in the mean: scaled ones begin.
    #[cold]
    pub(super) fn begin_mean(&mut self, report: &mut Direction) {
        self.in_mean = 0;
        self.window_sum = 0;
        report.window.counted = 0;
        report.window.sum = 0;
    }
}

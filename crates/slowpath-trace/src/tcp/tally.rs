// SPDX-License-Identifier: Apache-2.0
//! The figures that every segment changes, side by side: a capture has tens of thousands of
//! connections, and what a segment costs is the memory it touches. Counts are small here and
//! added to the report before they can overflow.

use super::report::{Acks, Data, Direction, Owin, Window};

/// Segments after which the counts go to the report.
const SPILL: u32 = 1 << 30;

/// Counts and sums since the last [`spill`](Self::spill), and extremes, which are never reset.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub packets: u32,
    pub acks: u32,
    pub pure_acks: u32,
    pub codepoints: [u32; 4],
    pub wire_bytes: u64,
    /// Most bytes in flight.
    pub flight: u64,
    /// Longest time without a segment, ns.
    pub silence: i64,
    pub data: DataTally,
    pub windows: WindowTally,
    pub owin: OwinTally,
    pub peer_acks: AckTally,
}

/// Segments with payload.
#[derive(Clone, Debug, Default)]
pub(super) struct DataTally {
    pub packets: u32,
    pub pushed: u32,
    pub truncated_packets: u32,
    pub smallest: u32,
    pub largest: u32,
    pub bytes: u64,
    pub unique_bytes: u64,
    pub truncated_bytes: u64,
}

/// Windows that this side advertised.
#[derive(Clone, Debug, Default)]
pub(super) struct WindowTally {
    pub advertised: u32,
    /// In the mean.
    pub counted: u32,
    pub sum: u64,
    pub largest: u32,
    pub smallest: u32,
}

/// tcptrace's outstanding window.
#[derive(Clone, Debug, Default)]
pub(super) struct OwinTally {
    /// The last one and its time.
    last: (u64, i64),
    count: u32,
    sum: u64,
    time_weighted: u128,
    largest: u64,
    pub smallest: u64,
}

/// ACKs for this direction by the other side.
#[derive(Clone, Debug, Default)]
pub(super) struct AckTally {
    pub advancing: u32,
    pub immediate: u32,
    pub stretch: u32,
    /// Those after which nothing was in flight.
    pub drained: u32,
    /// Segments acknowledged without an RTT sample.
    pub cumulative: u32,
}

/// A count since the last time; it begins anew.
fn take(count: &mut u32) -> u64 {
    u64::from(std::mem::take(count))
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
        let r = report;
        r.packets += take(&mut self.packets);
        r.control.acks += take(&mut self.acks);
        r.control.pure_acks += take(&mut self.pure_acks);
        for (sum, count) in r.ecn.codepoints.iter_mut().zip(&mut self.codepoints) {
            *sum += take(count);
        }
        r.wire_bytes += std::mem::take(&mut self.wire_bytes);
        r.flight.most = self.flight;
        r.timing.longest_silence =
            std::time::Duration::from_nanos(u64::try_from(self.silence).unwrap_or(0));
        self.data.spill(&mut r.data);
        self.windows.spill(&mut r.window);
        self.owin.spill(&mut r.flight.owin);
        r.flight.drained += take(&mut self.peer_acks.drained);
        r.rtt.cumulative += take(&mut self.peer_acks.cumulative);
        self.peer_acks.spill(&mut r.acks);
    }
}

impl DataTally {
    fn spill(&mut self, data: &mut Data) {
        data.packets += take(&mut self.packets);
        data.pushed += take(&mut self.pushed);
        data.truncated_packets += take(&mut self.truncated_packets);
        data.bytes += std::mem::take(&mut self.bytes);
        data.unique_bytes += std::mem::take(&mut self.unique_bytes);
        data.truncated_bytes += std::mem::take(&mut self.truncated_bytes);
        data.smallest = self.smallest;
        data.largest = self.largest;
    }
}

impl WindowTally {
    /// Windows until now do not count in the mean: scaled ones begin.
    #[cold]
    pub(super) fn begin_mean(&mut self, window: &mut Window) {
        self.counted = 0;
        self.sum = 0;
        window.counted = 0;
        window.sum = 0;
    }

    fn spill(&mut self, window: &mut Window) {
        window.advertised += take(&mut self.advertised);
        window.counted += take(&mut self.counted);
        window.sum += std::mem::take(&mut self.sum);
        window.largest = u64::from(self.largest);
        window.smallest = u64::from(self.smallest);
    }
}

impl OwinTally {
    /// `owin` bytes are outstanding from `now`, ns, on.
    #[inline]
    pub(super) fn add(&mut self, owin: u64, now: i64) {
        self.largest = self.largest.max(owin);
        if owin > 0 && (self.smallest == 0 || owin < self.smallest) {
            self.smallest = owin;
        }
        self.sum += owin;
        self.count += 1;
        let (last, since) = self.last;
        if since != 0 {
            let time = now.saturating_sub(since).max(0) as u64;
            self.time_weighted += u128::from(last) * u128::from(time);
        }
        self.last = (owin, now);
    }

    fn spill(&mut self, owin: &mut Owin) {
        owin.count += take(&mut self.count);
        owin.sum += std::mem::take(&mut self.sum);
        owin.time_weighted += std::mem::take(&mut self.time_weighted);
        owin.largest = self.largest;
        owin.smallest = self.smallest;
    }
}

impl AckTally {
    fn spill(&mut self, acks: &mut Acks) {
        acks.advancing += take(&mut self.advancing);
        acks.immediate += take(&mut self.immediate);
        acks.stretch += take(&mut self.stretch);
    }
}

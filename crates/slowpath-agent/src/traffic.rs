// SPDX-License-Identifier: Apache-2.0
//! What each connection carried, hour by hour, healthy ones included: a server needs it to make
//! rates of losses.
//!
//! What enters: a connection's counters and the time. What leaves: how much they have grown since the
//! last mark, once the hour of the wall clock has changed, when the connection closes, and when
//! the agent ends. No clock, no I/O.
//!
//! What is promised: nothing counts twice and nothing is left out from the first mark on, which is
//! the connection's opening or, where that is older than the agent, its first snapshot. Where a
//! wall clock is set, a stretch ends early or late.

use slowpath_model::{MonoNanos, Snapshot, TrafficInterval, WallMicros};

/// An hour of the wall clock, microseconds.
const HOUR: i64 = 3_600_000_000;

/// A connection's counters up to which its traffic is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrafficMark {
    at: MonoNanos,
    /// Hours since 1970.
    hour: i64,
    data_segments_out: u64,
    data_segments_in: u64,
    retransmitted: u64,
}

fn hour_of(wall: WallMicros) -> i64 {
    wall.0.div_euclid(HOUR)
}

impl TrafficMark {
    /// The counters as the snapshot has them, at that moment.
    pub(crate) fn new(snapshot: &Snapshot, at: MonoNanos, wall: WallMicros) -> Self {
        let stats = &snapshot.stats;
        TrafficMark {
            at,
            hour: hour_of(wall),
            data_segments_out: stats.data_segments_out,
            data_segments_in: stats.data_segments_in,
            retransmitted: stats.retransmitted,
        }
    }

    /// Whether a stretch ends: the wall clock shows another hour.
    pub(crate) fn is_due(&self, wall: WallMicros) -> bool {
        self.hour != hour_of(wall)
    }

    /// What the connection carried until `later`, which is at that time of the wall clock; `None`
    /// if nothing.
    pub(crate) fn until(
        &self,
        later: &TrafficMark,
        snapshot: &Snapshot,
        end: WallMicros,
    ) -> Option<TrafficInterval> {
        let traffic = TrafficInterval {
            connection: snapshot.id,
            end,
            duration: later.at.since(self.at),
            data_segments_out: later.data_segments_out.checked_sub(self.data_segments_out),
            data_segments_in: later.data_segments_in.checked_sub(self.data_segments_in),
            retransmitted: later.retransmitted.checked_sub(self.retransmitted),
        };
        let counts = [
            traffic.data_segments_out,
            traffic.data_segments_in,
            traffic.retransmitted,
        ];
        (counts != [Some(0); 3]).then_some(traffic)
    }
}

#[cfg(test)]
#[path = "traffic_tests.rs"]
mod tests;

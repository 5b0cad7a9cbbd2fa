// SPDX-License-Identifier: Apache-2.0
//! DelayedAck: the receiver waited before it acknowledged.
//!
//! SNAP counts (ΔSumRTT − ΔSampleRTT · MaxQueuingDelay) / DelayedAckTimeout. Here only
//! samples that can be delayed ACKs enter (*lone*: the ACK carried no data and answered the
//! only segment in flight), and each is compared with the path's own RTT:
//!
//! 1. The baseline is the least of the connection's lowest sample, the kernel's minimum
//!    (which knows the handshake) and the lowest RTT known to the same peer. A path of
//!    200 ms has a baseline of 200 ms: nothing on it is late by itself.
//! 2. Where the kernel judged each sample against a minimum that distinguished a delayed ACK from
//!    the path, its *late* samples are the delayed ACKs, exactly, and what they took above
//!    the baseline is the time: lone samples do not overlap.
//! 3. Where its minimum was itself a delayed sample (all were, so far), the sum rule is
//!    applied to the lone samples with the baseline: excess = Σ − n · (baseline +
//!    MaxQueuingDelay). The larger of the two counts, as both are lower bounds; less than
//!    what one delay leaves is none.
//! 4. In an exchange (bytes ever came back) only ACKs that *held* something back (unsent
//!    data, a waiting writer) count: the sender of a complete request waits for its answer,
//!    not for the ACK. Whether bytes came in this very interval does not matter: an answer
//!    that arrives after the next poll would make its request look like a stream. If rule 3
//!    was needed, whether anything was held is unknown: unmeasured.
//! 5. In a one-way stream (nothing ever came back) every delayed ACK counts, as in SNAP.

use crate::{Measure, Thresholds};
use slowpath_model::{Micros, RttSums, TcpStats};

/// What the rule found, with the evidence.
pub(crate) struct DelayedAck {
    pub(crate) measure: Measure,
    pub(crate) baseline: Option<Micros>,
    /// Delayed ACKs observed, the harmless ones of an exchange included.
    pub(crate) observed: Option<u64>,
    /// Those of them that held something back.
    pub(crate) held: Option<u64>,
    /// What those took above the baseline.
    pub(crate) held_time: Option<Micros>,
}

struct Samples {
    sum: Micros,
    count: u64,
}

impl Samples {
    fn between(
        before: &RttSums,
        after: &RttSums,
        of: impl Fn(&RttSums) -> (Micros, u64),
    ) -> Option<Self> {
        let ((b_sum, b_count), (a_sum, a_count)) = (of(before), of(after));
        Some(Samples {
            sum: a_sum.checked_sub(b_sum)?,
            count: a_count.checked_sub(b_count)?,
        })
    }

    fn above(&self, each: Micros) -> Micros {
        self.sum
            .saturating_sub(Micros(self.count.saturating_mul(each.0)))
    }
}

pub(crate) fn delayed_ack(
    before: &TcpStats,
    after: &TcpStats,
    peer_baseline: Option<Micros>,
    thresholds: &Thresholds,
) -> DelayedAck {
    let mut result = DelayedAck {
        measure: Measure::Unmeasured,
        baseline: least(
            least(after.rtt_sums.and_then(|r| r.lifetime_min), after.min_rtt),
            peer_baseline,
        ),
        observed: None,
        held: None,
        held_time: None,
    };
    let (Some(b), Some(a)) = (&before.rtt_sums, &after.rtt_sums) else {
        return result;
    };
    let lone = Samples::between(b, a, |r| (r.lone_sum, r.lone_count));
    let late = Samples::between(b, a, |r| (r.late_sum, r.late_count));
    let held = Samples::between(b, a, |r| (r.held_sum, r.held_count));
    let (Some(lone), Some(late), Some(held)) = (lone, late, held) else {
        return result;
    };
    result.held = Some(held.count);
    if lone.count == 0 {
        result.observed = Some(0);
        result.measure = Measure::Absent;
        return result;
    }
    let Some(baseline) = result.baseline else {
        return result;
    };
    if after.bytes_received < before.bytes_received {
        return result;
    }

    result.held_time = Some(held.above(baseline));
    let queued = baseline + thresholds.max_queuing_delay;
    let margin = thresholds.late_margin();
    let judged = b
        .lifetime_min
        .is_some_and(|m| m + margin < baseline + thresholds.delayed_ack_timeout);
    let late_time = late.above(baseline);
    let excess = if judged {
        Micros::ZERO
    } else {
        lone.above(queued)
    };
    // Less than one delay leaves is none.
    let by_sum = excess > late_time && excess >= margin;
    let (time, events) = if by_sum {
        (excess, delayed_acks_in(excess, thresholds).max(late.count))
    } else {
        (late_time, late.count)
    };
    result.observed = Some(events);
    result.measure = if after.bytes_received == 0 {
        Measure::of_events(Some(events), Some(time))
    } else if held.count > 0 {
        Measure::of_events(Some(held.count), Some(held.above(baseline)))
    } else if by_sum {
        Measure::Unmeasured
    } else {
        Measure::Absent
    };
    result
}

/// The smaller of what is known.
fn least(one: Option<Micros>, other: Option<Micros>) -> Option<Micros> {
    match (one, other) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (known, None) | (None, known) => known,
    }
}

/// How many delayed ACKs an excess stands for, to the nearest; at least one of any: a
/// single delay of the least length lies below the timeout, for MaxQueuingDelay was taken
/// off it.
fn delayed_acks_in(excess: Micros, thresholds: &Thresholds) -> u64 {
    let timeout = thresholds.delayed_ack_timeout.0.max(1);
    (excess.0.saturating_add(timeout / 2) / timeout).max(1)
}

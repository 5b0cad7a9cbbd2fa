// SPDX-License-Identifier: Apache-2.0
//! Differences of counters: `None` where the kernel lacks one or it went backwards.

use slowpath_model::{Deltas, Micros, Snapshot};

pub(crate) fn count(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    after?.checked_sub(before?)
}

pub(crate) fn time(before: Option<Micros>, after: Option<Micros>) -> Option<Micros> {
    after?.checked_sub(before?)
}

/// The evidence; `baseline` and `delayed_acks` are the delayed-ACK rule's.
pub(crate) fn deltas(
    before: &Snapshot,
    after: &Snapshot,
    baseline: Option<Micros>,
    delayed_acks: Option<u64>,
) -> Deltas {
    let (b, a) = (&before.stats, &after.stats);
    let timeouts = if a.rto_stats.is_some() {
        count(
            b.rto_stats.map(|r| r.timeouts),
            a.rto_stats.map(|r| r.timeouts),
        )
    } else {
        count(
            b.recovery.map(|r| r.loss_entries),
            a.recovery.map(|r| r.loss_entries),
        )
    };
    let (now, then) = (after.waits.episodes(), before.waits.episodes());
    Deltas {
        bytes_sent: count(b.bytes_sent, a.bytes_sent),
        bytes_acked: a.bytes_acked.checked_sub(b.bytes_acked),
        bytes_received: a.bytes_received.checked_sub(b.bytes_received),
        retransmitted: a.retransmitted.checked_sub(b.retransmitted),
        fast_recoveries: count(
            b.recovery.map(|r| r.fast_recoveries),
            a.recovery.map(|r| r.fast_recoveries),
        ),
        timeouts,
        rtt_sum: time(b.rtt_sums.map(|r| r.sum), a.rtt_sums.map(|r| r.sum)),
        rtt_count: count(b.rtt_sums.map(|r| r.count), a.rtt_sums.map(|r| r.count)),
        delayed_acks,
        busy: time(b.busy, a.busy),
        rwnd_limited: time(b.rwnd_limited, a.rwnd_limited),
        sndbuf_limited: time(b.sndbuf_limited, a.sndbuf_limited),
        bytes_written: count(
            before.sends.as_ref().map(|c| c.bytes),
            after.sends.as_ref().map(|c| c.bytes),
        ),
        writes: count(
            before.sends.as_ref().map(|c| c.count),
            after.sends.as_ref().map(|c| c.count),
        ),
        bytes_read: count(
            before.receives.as_ref().map(|c| c.bytes),
            after.receives.as_ref().map(|c| c.bytes),
        ),
        reads: count(
            before.receives.as_ref().map(|c| c.count),
            after.receives.as_ref().map(|c| c.count),
        ),
        cwnd: a.cwnd,
        send_window: a.send_window,
        send_queue: a.send_queue,
        receive_queue: a.receive_queue,
        srtt: a.srtt,
        baseline_rtt: baseline,
        send_mss: a.send_mss,
        send_buffer: a.send_buffer,
        thin_timeouts: count(then.map(|e| e.thin_timeouts), now.map(|e| e.thin_timeouts)),
        acks_after_timeout: count(
            then.map(|e| e.acks_after_timeout),
            now.map(|e| e.acks_after_timeout),
        ),
    }
}

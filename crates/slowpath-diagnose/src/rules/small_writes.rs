// SPDX-License-Identifier: Apache-2.0
//! SmallWrites: the application hands its data over in pieces far below a segment.
//!
//! Two things cost time; both are counted:
//!
//! 1. *Held*: less than a segment waited for the acknowledgement of a small one before it
//!    (Nagle, RFC 9293 section 3.7.4, with Minshall's change: `tcp_nagle_check`), or for
//!    more data under TCP_CORK. What a delayed acknowledgement held is DelayedAck's and is
//!    taken off. The end of a write of half a segment or more without an answer delays nothing: the
//!    next write completes it, and as much arrives. (A proxy that writes what each segment brought writes a segment
//!    on average, and less in one interval or another.) There is no answer if fewer segments with data came back
//!    than a quarter of the writes: a message may take up to four of them.
//! 2. *Tiny*: writes of a quarter of a segment or less on average, and more of them than
//!    segments would have been needed, and than answers came. Each of those that could have
//!    been spared costs a system call and, without Nagle, a segment: [`EACH`]. A request of
//!    one write that is answered is not one of them.
//!
//! Events are the writes of rule 2 that could have been spared. Where calls are not observed it
//! is unmeasured, and where more than a segment came into the send buffer without a call: what the kernel
//! writes there itself (for MPTCP into its subflows, for NFS) is in no application's pieces.

use crate::Measure;
use slowpath_model::{CallStats, Micros, Snapshot, TcpStats};

/// What a write and its segment cost a processor: measured on this project's machines, with
/// 10-byte writes and TCP_NODELAY over a pair of devices (`docs/decisions/0014`).
const EACH: Micros = Micros(4);

/// Writes up to this part of a segment are small.
const PART: u64 = 4;

#[inline]
pub(crate) fn small_writes(
    before: &Snapshot,
    after: &Snapshot,
    held_acks: Option<Micros>,
) -> Measure {
    let (Some(b), Some(a)) = (before.waits.queues(), after.waits.queues()) else {
        return Measure::Unmeasured;
    };
    let (Some(sends_b), Some(sends_a)) = (&before.sends, &after.sends) else {
        return Measure::Unmeasured;
    };
    let Some(nagle) = a.nagle.checked_sub(b.nagle) else {
        return Measure::Unmeasured;
    };
    let answers = (after.stats.data_segments_in).checked_sub(before.stats.data_segments_in);
    let written = Written::between(sends_b, sends_a);
    let (Some(answers), Some(written)) = (answers, written) else {
        return Measure::Unmeasured;
    };
    if written.writes == 0 && entered(&before.stats, &after.stats) > u64::from(after.stats.send_mss)
    {
        return Measure::Unmeasured;
    }
    let tiny = written.spared(after.stats.send_mss, answers);
    let held = match written.is_stream(after.stats.send_mss, answers) {
        true => Micros::ZERO,
        false => nagle.saturating_sub(held_acks.unwrap_or(Micros::ZERO)),
    };
    Measure::of_events(Some(tiny), Some(held + cost(tiny)))
}

/// Bytes that came into the send buffer: those that left it, and by how much more it holds.
fn entered(before: &TcpStats, after: &TcpStats) -> u64 {
    let left = after.bytes_acked.saturating_sub(before.bytes_acked);
    left.saturating_add(u64::from(after.send_queue))
        .saturating_sub(u64::from(before.send_queue))
}

/// What `spared` writes cost that could have been spared.
pub(crate) fn cost(spared: u64) -> Micros {
    Micros(spared.saturating_mul(EACH.0))
}

/// Writes between two snapshots.
struct Written {
    writes: u64,
    bytes: u64,
}

impl Written {
    /// `None` if a counter went backwards.
    fn between(before: &CallStats, after: &CallStats) -> Option<Self> {
        Some(Written {
            writes: after.count.checked_sub(before.count)?,
            bytes: after.bytes.checked_sub(before.bytes)?,
        })
    }

    /// Those that could have been spared.
    fn spared(&self, mss: u32, answers: u64) -> u64 {
        let mss = u64::from(mss.max(1));
        if self.writes == 0 || self.bytes / self.writes > mss / PART {
            return 0;
        }
        self.writes
            .saturating_sub(self.bytes.div_ceil(mss).max(answers))
    }

    /// Writes of half a segment or more on average, without answers.
    fn is_stream(&self, mss: u32, answers: u64) -> bool {
        let segments = u64::from(mss.max(1)).saturating_mul(self.writes);
        self.writes > 0 && self.bytes >= segments / 2 && answers.saturating_mul(PART) < self.writes
    }
}

// SPDX-License-Identifier: Apache-2.0
//! SmallWrites: the application hands its data over in pieces far below a segment.
//!
//! Two things cost time; both are counted:
//!
//! 1. *Held*: less than a segment waited for the acknowledgement of a small one before it
//!    (Nagle, RFC 9293 section 3.7.4, with Minshall's change: `tcp_nagle_check`), or for
//!    more data under TCP_CORK. What a delayed acknowledgement held is DelayedAck's and is
//!    taken off.
//! 2. *Tiny*: writes of a quarter of a segment or less on average, and more of them than
//!    segments would have been needed, and than answers came. Each of those that could have
//!    been spared costs a system call and, without Nagle, a segment: [`EACH`]. A request of
//!    one write that is answered is not one of them.
//!
//! Events are the writes of rule 2 that could have been spared. Where calls are not observed it
//! is unmeasured.

use crate::Measure;
use slowpath_model::{CallStats, Micros, Snapshot};

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
    let tiny = answers.and_then(|n| spared(sends_b, sends_a, after.stats.send_mss, n));
    let Some(tiny) = tiny else {
        return Measure::Unmeasured;
    };
    let held = nagle.saturating_sub(held_acks.unwrap_or(Micros::ZERO));
    Measure::of_events(Some(tiny), Some(held + cost(tiny)))
}

/// What so many writes that could have been spared cost.
pub(crate) fn cost(spared: u64) -> Micros {
    Micros(spared.saturating_mul(EACH.0))
}

/// Writes that could have been spared; `None` if a counter went backwards.
fn spared(before: &CallStats, after: &CallStats, mss: u32, answers: u64) -> Option<u64> {
    let writes = after.count.checked_sub(before.count)?;
    let bytes = after.bytes.checked_sub(before.bytes)?;
    let mss = u64::from(mss.max(1));
    if writes == 0 || bytes / writes > mss / PART {
        return Some(0);
    }
    Some(writes.saturating_sub(bytes.div_ceil(mss).max(answers)))
}

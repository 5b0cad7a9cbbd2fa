// SPDX-License-Identifier: Apache-2.0
//! The mirror of what the probes keep of socket calls in one direction, and its typed form.

use super::layouts;
use layouts::both::BOTH_BYTES_BITS;
use slowpath_layout::mirror;
use slowpath_model::{CALL_HISTOGRAM_BUCKETS, CallStats, MonoNanos};

mirror! {
    /// `struct calls`.
    pub(crate) struct Calls = layouts::CALLS {
        count: u64,
        bytes: u64,
        both: u64,
        last_jiffies: u64,
        min: u32,
        max: u32,
        histogram: [u32; CALL_HISTOGRAM_BUCKETS],
    }
}

/// The number nearest to `near` of which `low` are the lower `bits`; `bits` is at most 63.
fn nearest(near: u64, low: u64, bits: u32) -> u64 {
    let unused = 64 - bits;
    let ahead = low.wrapping_sub(near) << unused;
    near.saturating_add_signed(ahead as i64 >> unused)
}

impl Calls {
    /// Calls and bytes. The probe counts both with one atomic addition; two threads that call at once may
    /// lose a count of the other in the rest, which is near.
    fn exact(&self) -> (u64, u64) {
        let bytes = nearest(self.bytes, self.both, BOTH_BYTES_BITS);
        // What the bytes have carried over is no call.
        let calls = (self.both >> BOTH_BYTES_BITS).wrapping_sub(bytes >> BOTH_BYTES_BITS);
        (nearest(self.count, calls, 64 - BOTH_BYTES_BITS), bytes)
    }

    /// `at` and `at_jiffies` name one moment.
    pub(super) fn stats(&self, at: MonoNanos, at_jiffies: u64, hz: u32) -> CallStats {
        let (count, bytes) = self.exact();
        let some = count > 0;
        // At most the age of the host: a century in nanoseconds is below 2^62.
        let ago = at_jiffies.saturating_sub(self.last_jiffies);
        let ago = match hz {
            1000 => ago.saturating_mul(1_000_000),
            250 => ago.saturating_mul(4_000_000),
            100 => ago.saturating_mul(10_000_000),
            hz => ago.saturating_mul(1_000_000_000) / u64::from(hz.max(1)),
        };
        CallStats {
            count,
            bytes,
            min: some.then_some(self.min),
            max: some.then_some(self.max),
            histogram: self.histogram,
            last: some.then(|| MonoNanos(at.0.saturating_sub(ago))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(count: u64, bytes: u64, both: u64) -> Calls {
        Calls {
            count,
            bytes,
            both,
            last_jiffies: 0,
            min: 1,
            max: 1,
            histogram: [0; CALL_HISTOGRAM_BUCKETS],
        }
    }

    /// What two threads lost of the counts is in `both`, whose fields have overflowed: 2^33 + 6 calls and
    /// 2^45 + 7 bytes, of which 2 calls and 1,000 bytes were lost.
    #[test]
    fn what_two_threads_lost_is_in_the_sum_of_both() {
        let (count, bytes) = ((1u64 << 33) + 6, (1u64 << 45) + 7);
        let both = (count << 44).wrapping_add(bytes);
        assert_eq!(calls(count, bytes, both).exact(), (count, bytes));
        assert_eq!(
            calls(count - 2, bytes - 1_000, both).exact(),
            (count, bytes)
        );
    }

    /// A record that was copied between two additions.
    #[test]
    fn the_sum_of_both_may_be_behind() {
        assert_eq!(calls(1, 10, 0).exact(), (0, 0));
        assert_eq!(calls(1 << 20, 1 << 44, 1 << 44).exact(), (1 << 20, 1 << 44));
        assert_eq!(calls(0, 0, u64::MAX).exact(), (0, 0));
    }
}

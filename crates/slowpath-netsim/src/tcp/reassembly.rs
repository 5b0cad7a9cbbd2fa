// SPDX-License-Identifier: Apache-2.0
//! What a receiver holds out of order.

use super::segment::{SACK_BLOCKS, SackBlocks};

/// Ranges beyond the next expected offset. Bounded by the receive window.
#[derive(Clone, Debug, Default)]
pub(super) struct Reassembly {
    /// `[start, end)`, ascending, disjoint and not adjacent.
    ranges: Vec<(u64, u64)>,
    /// Where the segments that came last began, the latest first: RFC 2018 section 4 wants
    /// their ranges reported in this order.
    recent: [u64; SACK_BLOCKS],
}

impl Reassembly {
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.recent = Default::default();
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Adds a range; true if all of it was there.
    pub fn insert(&mut self, start: u64, end: u64) -> bool {
        let first = self.ranges.partition_point(|range| range.1 < start);
        let last = self.ranges.partition_point(|range| range.0 <= end);
        let known = self.ranges[first..last]
            .iter()
            .any(|range| range.0 <= start && end <= range.1);
        if first == last {
            self.ranges.insert(first, (start, end));
        } else {
            let joined = (
                self.ranges[first].0.min(start),
                self.ranges[last - 1].1.max(end),
            );
            self.ranges[first] = joined;
            self.ranges.drain(first + 1..last);
        }
        self.recent.rotate_right(1);
        self.recent[0] = start;
        known
    }

    /// Takes what continues at `next`; the offset after it.
    pub fn advance(&mut self, next: u64) -> u64 {
        let mut next = next;
        let mut gone = 0;
        for range in &self.ranges {
            if range.0 > next {
                break;
            }
            next = next.max(range.1);
            gone += 1;
        }
        self.ranges.drain(..gone);
        next
    }

    /// The blocks to report: that of the segment that came last, then those of the ones
    /// before it.
    pub fn blocks(&self, into: &mut SackBlocks) {
        let mut reported = [(0, 0); SACK_BLOCKS];
        let mut count = 0;
        let in_order = self.recent.iter().filter_map(|&at| self.holding(at));
        for range in in_order.chain(self.ranges.iter().rev().copied()) {
            if count == SACK_BLOCKS {
                break;
            }
            if !reported[..count].contains(&range) {
                reported[count] = range;
                count += 1;
                into.push(range.0, range.1);
            }
        }
    }

    fn holding(&self, at: u64) -> Option<(u64, u64)> {
        let after = self.ranges.partition_point(|range| range.0 <= at);
        let range = *self.ranges.get(after.checked_sub(1)?)?;
        (at < range.1).then_some(range)
    }
}

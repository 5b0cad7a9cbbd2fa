// SPDX-License-Identifier: Apache-2.0
//! What a receiver holds out of order.

use super::segment::{MAX_SACK_BLOCKS, SACK_BLOCKS, SackBlocks};

/// Ranges beyond the next expected offset. Bounded by the receive window.
#[derive(Clone, Debug, Default)]
pub(super) struct Reassembly {
    /// `[start, end)`, ascending, apart.
    ranges: Vec<(u64, u64)>,
    /// Where the segments that came last began, the latest first: RFC 2018 section 4 wants
    /// their ranges reported in this order.
    recent: [u64; SACK_BLOCKS],
    /// The ranges that Linux remembers for its reports, the latest first.
    remembered: Vec<(u64, u64)>,
}

impl Reassembly {
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.recent = Default::default();
        self.remembered.clear();
    }

    /// Notes a range as Linux does (`tcp_sack_new_ofo_skb`): four are remembered, and one that
    /// grows becomes the latest.
    pub fn remember(&mut self, start: u64, end: u64) {
        let touches = |range: &(u64, u64)| start <= range.1 && range.0 <= end;
        let mut latest = (start, end);
        if let Some(at) = self.remembered.iter().position(touches) {
            let known = self.remembered.remove(at);
            latest = (known.0.min(start), known.1.max(end));
            // tcp_sack_maybe_coalesce.
            self.remembered.retain(|range| {
                let apart = latest.1 < range.0 || range.1 < latest.0;
                if !apart {
                    latest = (latest.0.min(range.0), latest.1.max(range.1));
                }
                apart
            });
        } else if self.remembered.len() == MAX_SACK_BLOCKS {
            self.remembered.pop();
        }
        self.remembered.insert(0, latest);
    }

    /// Forgets what `next` covers (`tcp_sack_remove`).
    pub fn forget(&mut self, next: u64) {
        self.remembered.retain(|range| next < range.0);
    }

    /// The blocks that Linux reports.
    pub fn remembered(&self, into: &mut SackBlocks) {
        for range in &self.remembered {
            into.push(range.0, range.1);
        }
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

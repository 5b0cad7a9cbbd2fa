// SPDX-License-Identifier: Apache-2.0
//! Sets of sequence numbers as few sorted ranges.

/// Disjoint half-open ranges in ascending order, never touching.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges {
    ranges: Vec<(u64, u64)>,
}

impl Ranges {
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Adds a range and returns how many numbers of it were new. With more than `limit`
    /// ranges the two lowest become one: returns the numbers between them as `forgotten`.
    pub(super) fn insert(&mut self, start: u64, end: u64, limit: usize) -> Inserted {
        if start >= end {
            return Inserted::default();
        }
        // All that touch [start, end].
        let first = self.ranges.partition_point(|r| r.1 < start);
        let last = first + self.ranges[first..].partition_point(|r| r.0 <= end);
        let mut new = end - start;
        let mut merged = (start, end);
        for r in &self.ranges[first..last] {
            let shared = r.1.min(end).saturating_sub(r.0.max(start));
            new -= shared;
            merged = (merged.0.min(r.0), merged.1.max(r.1));
        }
        self.ranges.splice(first..last, [merged]);
        let mut forgotten = 0;
        if self.ranges.len() > limit.max(2) {
            forgotten = self.ranges[1].0 - self.ranges[0].1;
            self.ranges[0].1 = self.ranges[1].1;
            self.ranges.remove(1);
        }
        Inserted { new, forgotten }
    }

    /// The first range that ends after `at`.
    pub(super) fn ending_after(&self, at: u64) -> Option<(u64, u64)> {
        let index = self.ranges.partition_point(|r| r.1 <= at);
        self.ranges.get(index).copied()
    }

    /// How many numbers of `start..end` are in it.
    pub(super) fn covered(&self, start: u64, end: u64) -> u64 {
        let first = self.ranges.partition_point(|r| r.1 <= start);
        self.ranges[first..]
            .iter()
            .take_while(|r| r.0 < end)
            .map(|r| r.1.min(end) - r.0.max(start))
            .sum()
    }

    /// Takes the highest range out.
    pub(super) fn pop(&mut self) -> Option<(u64, u64)> {
        self.ranges.pop()
    }

    /// The highest range.
    pub(super) fn highest(&self) -> Option<(u64, u64)> {
        self.ranges.last().copied()
    }

    /// Forgets everything below `floor` and returns how many numbers that were.
    pub(super) fn drain_below(&mut self, floor: u64) -> u64 {
        let whole = self.ranges.partition_point(|r| r.1 <= floor);
        let mut gone: u64 = self.ranges.drain(..whole).map(|r| r.1 - r.0).sum();
        if let Some(first) = self.ranges.first_mut()
            && first.0 < floor
        {
            gone += floor - first.0;
            first.0 = floor;
        }
        gone
    }
}

/// What an insertion did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Inserted {
    /// Numbers that were not there before.
    pub new: u64,
    /// Numbers that are there now without having been inserted.
    pub forgotten: u64,
}

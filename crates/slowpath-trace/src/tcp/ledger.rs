// SPDX-License-Identifier: Apache-2.0
//! What one side sent: the segments not yet acknowledged, and the ranges observed before.
//!
//! A segment stays until an ACK reaches into it; then only its range is kept, joined with
//! its neighbours, so that a connection without gaps costs one range and what is in flight.
//! Positions are unwrapped sequence numbers. RTT samples follow Karn's rule and tcptrace's
//! two more: only an ACK of exactly the segment's end counts, and not if anything before it
//! in the sequence was sent later.

use super::ranges::Ranges;
use std::collections::VecDeque;

/// Acknowledged ranges with gaps between them that are remembered.
const ISLANDS: usize = 1024;

/// A segment, or a part of one, that is not yet acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub start: u64,
    /// When it was last sent.
    pub time: i64,
    pub length: u32,
    /// How often it was sent again.
    pub copies: u16,
    /// It was first sent at another time than last.
    pub moved: bool,
}

impl Sent {
    pub(super) fn end(&self) -> u64 {
        self.start + u64::from(self.length)
    }
}

/// What recording a segment found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Recorded {
    /// Bytes that were observed before.
    pub observed: u64,
    /// It starts before observed data and ends before its end, with new bytes.
    pub before_observed: bool,
    /// How often the outstanding data it repeats was repeated now, as far as it fits.
    pub copies: u16,
    /// When the outstanding data that it repeats was last sent.
    pub last_sent: Option<i64>,
}

/// What an ACK did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acknowledged {
    /// Segments that it reached for the first time.
    pub segments: u32,
    /// When the last of them was last sent.
    pub last_sent: i64,
    /// The last of them ended at the ACK.
    pub exact: Option<Exact>,
    /// The ACK names the end of the range acknowledged before.
    pub repeats: bool,
}

/// An ACK of exactly a segment's end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exact {
    pub sent: Sent,
    /// Something before it in the sequence was sent later.
    pub overtaken: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    /// Not acknowledged, in sequence, never overlapping.
    outstanding: VecDeque<Sent>,
    /// The highest acknowledged range; empty before the first ACK.
    head: (u64, u64),
    /// The latest transmission of anything acknowledged.
    acked_time: i64,
    /// Acknowledged ranges below the highest one.
    islands: Option<Box<Ranges>>,
}

impl Ledger {
    /// Adds `start..end`, sent at `now`; keeps at most `limit` segments and counts in
    /// `dropped` those it forgot.
    #[inline]
    pub(super) fn record(
        &mut self,
        start: u64,
        end: u64,
        now: i64,
        limit: usize,
        dropped: &mut u64,
    ) -> Recorded {
        if start >= self.top() {
            if self.outstanding.len() >= limit {
                *dropped += 1;
                self.forget_first();
            }
            self.outstanding.push_back(Sent {
                start,
                time: now,
                length: (end - start) as u32,
                copies: 0,
                moved: false,
            });
            return Recorded::default();
        }
        self.record_again(start, end, now)
    }

    /// One past the highest number observed.
    #[inline]
    pub(super) fn top(&self) -> u64 {
        self.outstanding
            .back()
            .map_or(0, Sent::end)
            .max(self.head.1)
    }

    /// Fetches the first outstanding segments, and where the next will be.
    #[inline]
    pub(super) fn prefetch(&self) {
        const BYTES: usize = 512;
        let ends = [self.outstanding.front(), self.outstanding.back()];
        for sent in ends.into_iter().flatten() {
            crate::engine::prefetch_all(std::ptr::from_ref(sent).cast(), BYTES);
        }
    }

    /// Whether the first or the last of what is outstanding was sent at another time than `now`.
    pub(super) fn sent_before(&self, now: i64) -> Option<bool> {
        let (first, last) = (self.outstanding.front()?, self.outstanding.back()?);
        Some(first.moved || first.time != now || last.time != now)
    }

    #[cold]
    fn record_again(&mut self, start: u64, end: u64, now: i64) -> Recorded {
        let mut found = Recorded::default();
        let mut at = start;
        let mut first_piece = true;
        while at < end {
            let Some((range, acked)) = self.ending_after(at) else {
                self.insert(at, end, now);
                break;
            };
            if at < range.0 {
                found.before_observed |= end < range.1;
                self.insert(at, end.min(range.0), now);
                if end <= range.0 {
                    break;
                }
                at = range.0;
            }
            if first_piece {
                self.sent_again(range.0, acked, now, &mut found);
            } else if !acked {
                let sent = self.segment_at(range.0);
                sent.copies = sent.copies.saturating_add(1);
            }
            first_piece = false;
            found.observed += end.min(range.1) - at;
            at = range.1;
        }
        found
    }

    /// Marks the range that starts at `start` as sent again `now`.
    fn sent_again(&mut self, start: u64, acked: bool, now: i64, found: &mut Recorded) {
        if acked {
            self.acked_time = self.acked_time.max(now);
            return;
        }
        let sent = self.segment_at(start);
        sent.copies = sent.copies.saturating_add(1);
        sent.moved |= sent.time != now;
        found.copies = sent.copies;
        found.last_sent = Some(sent.time);
        sent.time = now;
    }

    /// The outstanding segment that starts at `start`, which is there.
    fn segment_at(&mut self, start: u64) -> &mut Sent {
        let index = self.outstanding.partition_point(|s| s.start < start);
        &mut self.outstanding[index]
    }

    /// The lowest range that ends after `at`, and whether it is acknowledged.
    fn ending_after(&self, at: u64) -> Option<((u64, u64), bool)> {
        let index = self.outstanding.partition_point(|s| s.end() <= at);
        let waiting = self.outstanding.get(index).map(|s| (s.start, s.end()));
        let island = self.islands.as_ref().and_then(|i| i.ending_after(at));
        let acked = island.or((self.head.1 > at).then_some(self.head));
        match (waiting, acked) {
            (Some(w), Some(a)) if w.0 < a.0 => Some((w, false)),
            (_, Some(a)) => Some((a, true)),
            (w, None) => w.map(|w| (w, false)),
        }
    }

    fn insert(&mut self, start: u64, end: u64, now: i64) {
        let index = self.outstanding.partition_point(|s| s.start < start);
        let sent = Sent {
            start,
            time: now,
            length: (end - start) as u32,
            copies: 0,
            moved: false,
        };
        self.outstanding.insert(index, sent);
    }

    /// Takes what `ack` reaches out of the outstanding segments.
    #[inline]
    pub(super) fn acknowledge(&mut self, ack: u64, dropped: &mut u64) -> Acknowledged {
        let mut done = Acknowledged {
            repeats: ack == self.head.1,
            ..Acknowledged::default()
        };
        let mut latest = self.acked_time;
        while let Some(sent) = self.outstanding.front().copied() {
            if sent.start >= ack {
                break;
            }
            latest = latest.max(sent.time);
            done.segments += 1;
            done.last_sent = sent.time;
            if sent.end() == ack {
                done.exact = Some(Exact {
                    sent,
                    overtaken: latest > sent.time,
                });
            }
            self.outstanding.pop_front();
            self.merge(sent.start, sent.end(), dropped);
        }
        self.acked_time = latest;
        done
    }

    /// Joins an acknowledged range with the others.
    #[inline]
    fn merge(&mut self, start: u64, end: u64, dropped: &mut u64) {
        if start == self.head.1 {
            self.head.1 = end;
        } else {
            self.merge_separate(start, end, dropped);
        }
    }

    #[cold]
    fn merge_separate(&mut self, start: u64, end: u64, dropped: &mut u64) {
        if self.head.1 == 0 {
            self.head = (start, end);
            return;
        }
        let islands = self.islands.get_or_insert_default();
        let lower = if start > self.head.1 {
            std::mem::replace(&mut self.head, (start, end))
        } else {
            (start, end)
        };
        let inserted = islands.insert(lower.0, lower.1, ISLANDS);
        *dropped += u64::from(inserted.forgotten > 0);
        if islands.highest().is_some_and(|r| r.1 >= self.head.0)
            && let Some(highest) = islands.pop()
        {
            self.head.0 = highest.0;
        }
    }

    fn forget_first(&mut self) {
        if let Some(first) = self.outstanding.pop_front() {
            let mut ignored = 0;
            self.merge(first.start, first.end(), &mut ignored);
        }
    }
}

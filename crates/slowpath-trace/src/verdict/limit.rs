// SPDX-License-Identifier: Apache-2.0
//! What held a direction back, and the line of time that is made of it.

use crate::segment::Timestamp;
use crate::tcp::Moment;
use slowpath_model::Problem;
use std::collections::VecDeque;
use std::time::Duration;

/// What one direction's sender waited for. At any moment exactly one of them; the rules are
/// in [`sender`](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Limit {
    /// The handshake was not over.
    Opening = 0,
    /// The application gave nothing to send.
    SenderApp,
    /// The send buffer was full of what was under way. An inference: packets do not show it.
    SendBuffer,
    /// As much was under way as the congestion window, pacing or the path's rate allows.
    CongestionWindow,
    /// Fast recovery from a loss.
    Recovery,
    /// Waiting for the retransmission timer, and repairing after it.
    Timeout,
    /// Waiting for a tail loss probe, and for what it brings.
    TailLossProbe,
    /// The receiver kept back its acknowledgement.
    DelayedAck,
    /// Nagle's rule held a small segment until an acknowledgement that came in time.
    SmallWrites,
    /// The receiver's window had no room for another segment.
    ReceiverWindow,
    /// The receiver's window was closed.
    ZeroWindow,
    /// Nothing more was to come: the FIN was acknowledged, or the connection reset.
    Closed,
}

/// How many there are.
pub(super) const LIMITS: usize = Limit::ALL.len();

impl Limit {
    /// All, in the order of their numbers.
    pub const ALL: [Limit; 12] = [
        Limit::Opening,
        Limit::SenderApp,
        Limit::SendBuffer,
        Limit::CongestionWindow,
        Limit::Recovery,
        Limit::Timeout,
        Limit::TailLossProbe,
        Limit::DelayedAck,
        Limit::SmallWrites,
        Limit::ReceiverWindow,
        Limit::ZeroWindow,
        Limit::Closed,
    ];

    /// The word for it in output: the problem's where there is one.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Limit::Opening => "Opening",
            Limit::SenderApp => "SenderAppLimited",
            Limit::SendBuffer => "SendBufferLimited",
            Limit::CongestionWindow => "CongestionWindowLimited",
            Limit::Recovery => "FastRetransmit",
            Limit::Timeout => "Timeout",
            Limit::TailLossProbe => "TailLossProbe",
            Limit::DelayedAck => "DelayedAck",
            Limit::SmallWrites => "SmallWrites",
            Limit::ReceiverWindow => "ReceiverWindowLimited",
            Limit::ZeroWindow => "ZeroWindow",
            Limit::Closed => "Closed",
        }
    }

    /// The problem that the classifier of live connections sees in it. `None`: none of its
    /// six; such time is `SenderAppLimited` to it.
    #[must_use]
    pub const fn problem(self) -> Option<Problem> {
        match self {
            Limit::SenderApp => Some(Problem::SenderAppLimited),
            Limit::SendBuffer => Some(Problem::SendBufferLimited),
            Limit::Recovery => Some(Problem::FastRetransmit),
            Limit::Timeout => Some(Problem::Timeout),
            Limit::DelayedAck => Some(Problem::DelayedAck),
            Limit::ReceiverWindow | Limit::ZeroWindow => Some(Problem::ReceiverWindowLimited),
            Limit::Opening
            | Limit::CongestionWindow
            | Limit::TailLossProbe
            | Limit::SmallWrites
            | Limit::Closed => None,
        }
    }
}

/// Time by limit. The times are exclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares([u64; LIMITS]);

impl Shares {
    pub(super) fn add(&mut self, limit: Limit, nanos: u64) {
        let time = &mut self.0[limit as usize];
        *time = time.saturating_add(nanos);
    }

    /// The time of one.
    #[must_use]
    pub fn of(&self, limit: Limit) -> Duration {
        Duration::from_nanos(self.0[limit as usize])
    }

    /// The time of a problem: of all limits that are it.
    #[must_use]
    pub fn of_problem(&self, problem: Problem) -> Duration {
        let limits = Limit::ALL.into_iter();
        limits
            .filter(|l| l.problem() == Some(problem))
            .map(|l| self.of(l))
            .sum()
    }

    /// All combined.
    #[must_use]
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.0.iter().fold(0, |sum, t| sum.saturating_add(*t)))
    }

    /// A limit's part of the whole, in 0..=1; 0 of nothing.
    #[must_use]
    pub fn fraction(&self, limit: Limit) -> f64 {
        let total = self.total().as_nanos();
        if total == 0 {
            return 0.0;
        }
        self.of(limit).as_nanos() as f64 / total as f64
    }

    /// The limit with most time, the earlier of [`Limit::ALL`] of two equal ones; `None` if
    /// there is no time.
    #[must_use]
    pub fn largest(&self) -> Option<Limit> {
        let timed = Limit::ALL.into_iter().filter(|l| self.0[*l as usize] > 0);
        timed.max_by_key(|l| (self.0[*l as usize], std::cmp::Reverse(*l as usize)))
    }
}

/// A stretch of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Where it began; the frame is the one that began it.
    pub from: Moment,
    /// Where it ended; the frame is the one that ended it.
    pub to: Moment,
    /// What held the sender back.
    pub limit: Limit,
}

impl Interval {
    /// How long.
    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(between(self.from.time, self.to.time))
    }
}

/// Nanoseconds from one time to a later one; 0 if it is earlier.
pub(super) fn between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0)
}

/// Where an interval begins, packed: there are many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    time: i64,
    /// The frame, and in the lowest [`LIMIT_BITS`] the limit.
    frame_and_limit: u64,
}

/// Marks that a line has room for from its first on: a request and its response, and both ends.
const FIRST_MARKS: usize = 12;

/// Bits of a mark that number its limit.
const LIMIT_BITS: u32 = 4;

impl Mark {
    fn new(from: Moment, limit: Limit) -> Self {
        Mark {
            time: from.time.0,
            frame_and_limit: from.frame << LIMIT_BITS | limit as u64,
        }
    }

    fn from(self) -> Moment {
        Moment {
            frame: self.frame_and_limit >> LIMIT_BITS,
            time: Timestamp(self.time),
        }
    }

    fn is(self, limit: Limit) -> bool {
        self.frame_and_limit % (1 << LIMIT_BITS) == limit as u64
    }

    fn limit(self) -> Limit {
        Limit::ALL[self.frame_and_limit as usize % (1 << LIMIT_BITS) % LIMITS]
    }
}

/// A direction's time, from its connection's first segment to its last, without gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    shares: Shares,
    /// Each interval ends where the next begins, the last one at `end`.
    marks: VecDeque<Mark>,
    end: Moment,
    dropped: u64,
    /// The longest of each limit among the intervals that were dropped.
    longest_dropped: Option<Box<[Option<Interval>; LIMITS]>>,
}

impl Line {
    /// Fetches the line's end.
    #[inline]
    pub(super) fn prefetch(&self) {
        if let Some(last) = self.marks.back() {
            crate::engine::prefetch(std::ptr::from_ref(last).cast());
        }
    }

    /// The time of each limit, of the whole line.
    #[must_use]
    pub fn shares(&self) -> &Shares {
        &self.shares
    }

    /// The intervals, oldest first; each begins where the one before ended, and has another
    /// limit. The oldest may be missing: [`Line::dropped`].
    pub fn intervals(&self) -> impl DoubleEndedIterator<Item = Interval> + ExactSizeIterator {
        (0..self.marks.len()).map(|index| self.interval(index))
    }

    fn interval(&self, index: usize) -> Interval {
        let mark = self.marks[index];
        let next = self.marks.get(index + 1);
        Interval {
            from: mark.from(),
            to: next.map_or(self.end, |next| next.from()),
            limit: mark.limit(),
        }
    }

    /// Intervals that were forgotten, for want of room. Their time is in the shares.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The longest interval of a limit, forgotten ones too: its best evidence. Of equal ones
    /// the first.
    #[must_use]
    pub fn longest(&self, limit: Limit) -> Option<Interval> {
        let dropped = self.longest_dropped.as_ref();
        let dropped = dropped.and_then(|longest| longest[limit as usize]);
        let marks = self.marks.iter().enumerate();
        let kept = marks.filter(|(_, mark)| mark.is(limit));
        let kept = kept.map(|(index, _)| self.interval(index));
        dropped.into_iter().chain(kept).reduce(longer)
    }

    /// The time of each limit within a stretch of time, as far as the intervals are kept.
    #[must_use]
    pub fn within(&self, from: Timestamp, to: Timestamp) -> Shares {
        let mut shares = Shares::default();
        let mut next = self.end.time;
        for mark in self.marks.iter().rev() {
            if next <= from {
                break;
            }
            let begin = Timestamp(mark.time).max(from);
            shares.add(mark.limit(), between(begin, next.min(to)));
            next = Timestamp(mark.time);
        }
        shares
    }

    /// Adds what comes next, from where the line ended; an interval without length leaves
    /// nothing.
    #[inline]
    pub(super) fn push(&mut self, next: Interval, keep: usize) {
        if next.to.time <= next.from.time {
            return;
        }
        self.shares
            .add(next.limit, between(next.from.time, next.to.time));
        let same = |mark: &Mark| mark.is(next.limit);
        if !self.marks.back().is_some_and(same) {
            // A part that was given another limit leaves up to two marks more.
            while self.marks.len() >= keep && !self.marks.is_empty() {
                self.drop_oldest();
            }
            if self.marks.capacity() == 0 {
                self.marks.reserve_exact(FIRST_MARKS);
            }
            self.marks.push_back(Mark::new(next.from, next.limit));
        }
        self.end = next.to;
    }

    #[cold]
    fn drop_oldest(&mut self) {
        if self.marks.is_empty() {
            return;
        }
        let oldest = self.interval(0);
        self.marks.pop_front();
        self.dropped += 1;
        let longest = self.longest_dropped.get_or_insert_default();
        let longest = &mut longest[oldest.limit as usize];
        *longest = Some(longest.map_or(oldest, |l| longer(l, oldest)));
    }

    /// Says `after` of what was any of `before` from a moment on.
    pub(super) fn relabel(&mut self, since: Moment, before: &[Limit], after: Limit) {
        let until = Moment {
            frame: since.frame,
            time: Timestamp(i64::MAX),
        };
        self.relabel_within((since, until), before, after);
    }

    /// Says `after` of what was any of `before` between two moments.
    pub(super) fn relabel_within(
        &mut self,
        (since, until): (Moment, Moment),
        before: &[Limit],
        after: Limit,
    ) {
        let first = self.marks.partition_point(|mark| mark.time < since.time.0);
        let mut tail = self.marks.split_off(first);
        if let Some(spanning) = self.marks.back()
            && before.contains(&spanning.limit())
            && since.time < self.end.time
            && tail.front().is_none_or(|mark| mark.time > since.time.0)
        {
            tail.push_front(Mark::new(since, spanning.limit()));
        }
        let rest = tail.partition_point(|mark| mark.time < until.time.0);
        if rest > 0
            && until.time < self.end.time
            && tail.get(rest).is_none_or(|mark| mark.time > until.time.0)
        {
            let limit = tail[rest - 1].limit();
            tail.insert(rest, Mark::new(until, limit));
        }
        for (index, mark) in tail.iter().enumerate() {
            let mut limit = mark.limit();
            if index < rest && before.contains(&limit) {
                let next = tail.get(index + 1);
                let to = next.map_or(self.end.time, |next| Timestamp(next.time));
                let moved = between(Timestamp(mark.time), to);
                let from = &mut self.shares.0[limit as usize];
                *from = from.saturating_sub(moved);
                self.shares.add(after, moved);
                limit = after;
            }
            let same = |mark: &Mark| mark.is(limit);
            if !self.marks.back().is_some_and(same) {
                self.marks.push_back(Mark::new(mark.from(), limit));
            }
        }
    }

    /// The connection began at `first`, before what was first observed of it, if its clock went
    /// back. `end`: up to where the line is drawn.
    pub(super) fn begin_at(&mut self, first: Moment, end: Moment) {
        let Some(oldest) = self.marks.front_mut() else {
            let limit = Limit::Opening;
            let (from, to) = (first, end);
            return self.push(Interval { from, to, limit }, 1);
        };
        if self.dropped == 0 && first.time.0 < oldest.time {
            let before = between(first.time, Timestamp(oldest.time));
            oldest.time = first.time.0;
            let limit = oldest.limit();
            self.shares.add(limit, before);
        }
    }
}

/// The longer of two intervals, the first of equal ones.
fn longer(first: Interval, second: Interval) -> Interval {
    if second.duration() > first.duration() {
        second
    } else {
        first
    }
}

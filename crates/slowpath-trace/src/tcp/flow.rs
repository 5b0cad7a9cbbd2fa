// SPDX-License-Identifier: Apache-2.0
//! What is remembered of one direction while the connection is open; what is rare is behind a
//! pointer.

use super::event::Cause;
use super::frames::FrameHistory;
use super::ledger::{Ledger, Sent};
use super::ranges::Ranges;
use super::report::{Direction, Dropped, Offered};
use super::rtt::RttState;
use super::tally::Tally;
use super::wireshark;
use std::collections::VecDeque;

/// Positions start one wrap up, so that numbers before the first are positive too.
const FIRST_WRAP: u64 = 1 << 32;

/// Gaps waited for at a time.
pub(super) const GAPS: usize = 256;

/// Outstanding segments that were captured twice, and for which an RTT is known nevertheless.
const COPIES: usize = 256;

/// Retransmissions that a later DSACK or timestamp may prove needless.
pub(super) const RESENT: usize = 64;

/// One direction: what a side sent, and what is known of the ACKs for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    /// This side has sent a segment.
    pub observed: bool,
    /// Its SYN was observed.
    pub syn: bool,
    /// This side has sent FIN.
    pub fins: bool,
    /// There are gaps, SACK blocks or retransmissions that an ACK may pass.
    pub lossy: bool,
    /// SYNs of this side, as far as they fit.
    pub syns: u8,
    /// When this side sent first, and first data.
    pub first_time: i64,
    pub first_data: i64,
    /// What this side has sent.
    pub send: SendState,
    /// What it acknowledged and lets the other side send.
    pub receive: ReceiveState,
    /// ACKs of this side's data by the other.
    pub acks: AckState,
    /// This side's last segments.
    pub last: LastSegment,
    /// RTT of its data.
    pub rtt: RttState,
    /// What the SYN offered.
    pub offered: Offered,
    /// What every segment changes.
    pub tally: Tally,
    /// What tshark's rules know.
    pub wireshark: wireshark::Flow,
    /// The segments.
    pub ledger: Ledger,
    /// The last frames.
    pub frames: FrameHistory,
    /// What is rare.
    pub rare: Option<Box<Rare>>,
    /// The figures, but for those in `tally` and the RTT samples here.
    pub report: Option<Box<Direction>>,
}

/// The send sequence space of a side (RFC 9293 section 3.3.1) and its bursts.
#[derive(Clone, Debug, Default)]
pub(super) struct SendState {
    /// The sequence numbers have an origin.
    pub known: bool,
    /// Sequence number 0 as a position.
    pub origin: u64,
    /// One past the highest number sent.
    pub next: u64,
    /// When `next` moved last.
    pub next_time: i64,
    /// One past the highest number known when this side's first segment was captured: what is below
    /// was sent before the capture began.
    pub floor: u64,
    /// TSval of that segment.
    pub first_tsval: Option<u32>,
    /// Highest acknowledgement of this side's data.
    pub acked: u64,
    /// Bytes since an idle time, until the next ACK; `u64::MAX`: no burst.
    pub burst: u64,
    /// When the other side's window was filled; 0: it is not.
    pub filled: i64,
}

/// What a side acknowledges and the windows that it advertises.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceiveState {
    /// This side's windows are scaled, and one above zero was observed.
    pub scaled: bool,
    /// This side's last window was zero.
    pub closed: bool,
    /// Shift of this side's windows.
    pub shift: u8,
    /// This side's last acknowledgement number as a position, 0 before the first.
    pub last_ack: u64,
    /// How far this side lets the other send: a position of the other's.
    pub edge: u64,
    /// The last window, scaled.
    pub window: u64,
}

/// The other side's ACKs of a side's data.
#[derive(Clone, Debug, Default)]
pub(super) struct AckState {
    /// The other side acknowledged data, or no SYN shows whether.
    pub data_acked: bool,
    /// Nothing in flight since an ACK without data, all before having been small.
    pub drained_small: bool,
    /// Duplicate ACKs in a row, RFC 5681.
    pub duplicates: u32,
    /// ACKs of the end of the acknowledged range, as tcptrace counts them.
    pub repeats: u32,
    /// The last acknowledgement, or the SYN before any.
    pub last: u64,
    /// When an ACK of this side's data came last.
    pub time: i64,
    /// When all that was sent before the capture began was first acknowledged; 0: it was not.
    pub first: i64,
}

/// The last segment of a side and its last data.
#[derive(Clone, Debug, Default)]
pub(super) struct LastSegment {
    /// It was a keep-alive.
    pub keep_alive: bool,
    /// It was a zero-window probe.
    pub probe: bool,
    /// When this side sent last.
    pub time: i64,
    /// When this side sent data last.
    pub data_time: i64,
    /// Payload of that data.
    pub data_length: u32,
    /// The last timestamp value.
    pub tsval: u32,
}

/// State of directions with losses, gaps, SACK.
#[derive(Clone, Debug, Default)]
pub(super) struct Rare {
    /// Gaps in what was observed, in sequence.
    pub gaps: Vec<Gap>,
    /// The last of them that was forgotten.
    pub forgotten: Option<Gap>,
    /// SACKed by the other side and not acknowledged.
    pub sacked: Ranges,
    /// Acknowledged and never observed.
    pub lost: Ranges,
    /// Late retransmissions that may prove needless.
    pub resent: Vec<Resent>,
    /// Outstanding segments that were captured twice.
    pub copies: VecDeque<Copies>,
    /// Recovery from a loss ends with the ACK of this.
    pub recovery: u64,
    /// And recovery from a timeout.
    pub timeout: u64,
    /// Payload sent before the capture began that was captured when it was sent again.
    pub early: u64,
    /// The last retransmission's cause.
    pub cause: Option<Cause>,
    /// When the third duplicate ACK came.
    pub asked: i64,
    /// When this side's window closed.
    pub closed: i64,
    /// One past a zero-window probe.
    pub probe_end: u64,
    /// The end of the FIN.
    pub fin: u64,
    /// When everything was acknowledged, for Nagle's rule, and how long the ACK took.
    pub drained: (i64, i64),
    pub dropped: Dropped,
}

/// A range that was jumped over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    pub start: u64,
    pub end: u64,
    /// When the segment after it came.
    pub opened: i64,
    /// IP identification of the segments before and after it.
    pub ids: Option<(u16, u16)>,
    /// Timestamp value of the segment after it.
    pub tsval: Option<u32>,
}

/// A segment that was captured more than once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copies {
    pub end: u64,
    /// When the first copy was captured.
    pub sent: i64,
    /// How many came after it.
    pub count: u16,
}

/// A retransmission.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resent {
    pub start: u64,
    pub end: u64,
    pub frame: u64,
    pub tsval: Option<u32>,
    /// It was the lowest outstanding and no ACK has covered it yet.
    pub waiting: bool,
    pub spurious: bool,
}

impl SendState {
    /// The position of a sequence number near what was sent. The first one observed gets the
    /// relative number `first`.
    #[inline]
    pub(super) fn position(&mut self, number: u32, first: u32) -> u64 {
        if !self.known {
            self.known = true;
            self.origin = FIRST_WRAP + u64::from(number) - u64::from(first);
            self.next = self.origin;
            self.acked = self.origin;
        }
        unwrap(self.next, number)
    }

    /// A position relative to the origin.
    pub(super) fn relative(&self, position: u64) -> i64 {
        position.wrapping_sub(self.origin) as i64
    }

    /// Bytes sent and not acknowledged.
    #[inline]
    pub(super) fn flight(&self) -> u64 {
        self.next.saturating_sub(self.acked)
    }
}

impl Flow {
    /// A SYN with another number than expected: sequence numbers start anew, above all
    /// that was observed.
    #[cold]
    pub(super) fn restart(&mut self, number: u32) -> u64 {
        let floor = self.ledger.top().max(self.send.next).max(FIRST_WRAP);
        let mut position = unwrap(floor, number);
        if position < floor {
            position += FIRST_WRAP;
        }
        self.send.known = true;
        self.send.origin = position;
        self.send.next = position;
        self.send.acked = position;
        self.receive.edge = 0;
        if let Some(rare) = &mut self.rare {
            rare.gaps.clear();
            rare.forgotten = None;
        }
        position
    }

    /// The last gap that was forgotten, if `position` may lie in it or in one forgotten before.
    pub(super) fn forgotten(&self, position: u64) -> Option<Gap> {
        let rare = self.rare.as_ref()?;
        rare.forgotten.filter(|gap| position < gap.end)
    }

    /// The figures that are not changed by every segment.
    pub(super) fn report(&mut self) -> &mut Direction {
        self.report.get_or_insert_default()
    }

    /// Brings the report up to date.
    pub(super) fn spill(&mut self) {
        self.tally.spill(self.report.get_or_insert_default());
    }

    /// The outstanding segment that ends at `end`, last captured at `sent`, was captured again.
    #[cold]
    pub(super) fn copied(&mut self, end: u64, sent: i64) {
        let copies = &mut self.rare().copies;
        if let Some(known) = copies.iter_mut().rev().find(|c| c.end == end) {
            known.count = known.count.saturating_add(1);
            return;
        }
        if copies.len() >= COPIES {
            copies.pop_front();
        }
        let count = 1;
        copies.push_back(Copies { end, sent, count });
    }

    /// When an acknowledged segment was sent, if all its copies were captured and not sent.
    #[cold]
    pub(super) fn sent_once(&mut self, sent: &Sent) -> Option<i64> {
        let copies = &mut self.rare.as_mut()?.copies;
        while copies.front().is_some_and(|c| c.end < sent.end()) {
            copies.pop_front();
        }
        let known = copies.iter().find(|c| c.end == sent.end())?;
        (known.count == sent.copies).then_some(known.sent)
    }

    /// How often the outstanding segment that ends at `end` was captured again.
    pub(super) fn captured_again(&self, end: u64) -> u16 {
        let copies = self.rare.iter().flat_map(|r| &r.copies);
        copies.filter(|c| c.end == end).map(|c| c.count).sum()
    }

    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// This side acknowledged something, so the other has sent it; after [`spill`](Self::spill).
    pub(super) fn acks_something(&self) -> bool {
        let report = self.report.as_ref();
        report.is_some_and(|r| r.control.acks > 0)
    }

    /// The right edge of the highest SACK block, or 0.
    pub(super) fn sacked_above(&self, position: u64) -> u64 {
        self.rare
            .as_ref()
            .filter(|r| !r.sacked.is_empty())
            .map_or(0, |r| r.sacked.covered(position, u64::MAX))
    }
}

/// The position nearest to `reference` with these low 32 bits.
#[inline]
pub(super) fn unwrap(reference: u64, number: u32) -> u64 {
    let distance = number.wrapping_sub(reference as u32) as i32;
    reference.wrapping_add_signed(i64::from(distance))
}

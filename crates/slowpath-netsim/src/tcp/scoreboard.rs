// SPDX-License-Identifier: Apache-2.0
//! The segments that are out, and what is known of each.

use super::delivery_rate::DeliveryRate;
use slowpath_switch::{Span, Time};
use std::collections::VecDeque;

/// The receiver has it (SACK).
const SACKED: u8 = 1;
/// Taken for lost.
const LOST: u8 = 2;
/// Taken for lost, sent again, and nothing known of that yet.
const RESENT: u8 = 4;
/// Sent again at least once: its acknowledgment measures nothing (Karn).
const EVER_RESENT: u8 = 8;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// When it was sent last.
    sent: Time,
    /// The low 32 bits of the offset after its last byte.
    end: u32,
    len: u16,
    state: u8,
}

impl Entry {
    fn is(&self, state: u8) -> bool {
        self.state & state != 0
    }
}

/// What an ACK delivered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delivered {
    /// Segments newly known to have arrived.
    pub segments: u32,
    /// Those of them before the cumulative acknowledgment, or already SACKed and now there.
    pub acked: u32,
    /// Those newly known from SACK blocks.
    pub sacked: u32,
    /// Whether one before the cumulative acknowledgment had been sent again.
    pub resent: bool,
    /// When the earliest of the newly arrived that was never resent was sent.
    pub first_sent: Option<Time>,
    /// When the first and the last of those before the cumulative acknowledgment were sent.
    pub acked_sent: Option<(Time, Time)>,
    /// The same of those newly known from SACK blocks, in the order of the blocks.
    pub sacked_sent: Option<(Time, Time)>,
}

impl Delivered {
    #[inline]
    fn measure(&mut self, sent: Time) {
        self.first_sent = Some(self.first_sent.map_or(sent, |first| first.min(sent)));
    }

    #[inline]
    fn measure_acked(&mut self, sent: Time) {
        self.measure(sent);
        self.acked_sent = Some((self.acked_sent.map_or(sent, |(first, _)| first), sent));
    }

    fn measure_sacked(&mut self, sent: Time) {
        self.measure(sent);
        self.sacked_sent = Some((self.sacked_sent.map_or(sent, |(first, _)| first), sent));
    }
}

/// Segments between the first unacknowledged offset and the next new one. As many as fit
/// into a window; the memory stays when they go.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    entries: VecDeque<Entry>,
    sacked: u32,
    lost: u32,
    resent: u32,
    /// No entry before this one waits to be sent again.
    resend_from: usize,
    /// No entry before this one can newly be found lost by counting.
    lost_below: usize,
    /// Entries up to the highest SACKed one.
    sacked_below: usize,
    /// The same before the acknowledgment at hand, if only that says what came out of order.
    before_ack: Option<usize>,
    /// The SACK blocks of the last ACK, which are not searched for again.
    reported: [(u32, u32); super::MAX_SACK_BLOCKS],
    rack: Rack,
    /// Whether a segment arrived after one that was sent later.
    reordered: bool,
    /// Rates of delivery, if anyone asks for them.
    rates: Option<Box<DeliveryRate>>,
}

/// RFC 8985 section 5.2.
#[derive(Clone, Copy, Debug, Default)]
struct Rack {
    /// When the most recently sent of the delivered segments was sent, and where it ends.
    sent: Time,
    end: u32,
    rtt: Span,
    /// Whether anything was delivered yet.
    valid: bool,
    /// Whether anything was delivered since [`Scoreboard::take_advanced`].
    advanced: bool,
}

/// Whether `a` comes after `b` in the stream.
fn after(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) < 0
}

impl Scoreboard {
    pub fn clear(&mut self) {
        self.entries.clear();
        self.sacked = 0;
        self.lost = 0;
        self.resent = 0;
        self.resend_from = 0;
        self.lost_below = 0;
        self.sacked_below = 0;
        self.before_ack = None;
        self.reported = Default::default();
        self.rack = Rack::default();
        self.reordered = false;
        self.rates = None;
    }

    /// Measures rates of delivery from now on.
    pub fn measure_rates(&mut self) {
        self.rates = Some(Box::default());
    }

    /// Rates of delivery, if they are measured.
    #[inline]
    pub fn rates(&mut self) -> Option<&mut DeliveryRate> {
        self.rates.as_deref_mut()
    }

    /// An acknowledgment begins to be looked at, as Linux does: what it says has arrived in
    /// itself came in order (`prior_fack`).
    pub fn begin_ack(&mut self) {
        self.before_ack = Some(self.sacked_below);
    }

    /// Whether a segment that was sent once arrived after a later one, since last asked
    /// (RFC 8985 section 6.2 step 3).
    pub fn take_reordered(&mut self) -> bool {
        core::mem::take(&mut self.reordered)
    }

    /// Whether anything new was delivered since last asked (`tp->rack.advanced`).
    pub fn take_advanced(&mut self) -> bool {
        core::mem::take(&mut self.rack.advanced)
    }

    /// Segments out.
    #[inline]
    pub fn out(&self) -> u32 {
        self.entries.len() as u32
    }

    /// When the first was sent last.
    #[inline]
    pub fn first_sent(&self) -> Option<Time> {
        self.entries.front().map(|entry| entry.sent)
    }

    #[inline]
    pub fn sacked(&self) -> u32 {
        self.sacked
    }

    #[inline]
    pub fn lost(&self) -> u32 {
        self.lost
    }

    /// Segments that are taken for lost and were not sent again since.
    #[inline]
    pub fn to_resend(&self) -> u32 {
        self.lost - self.resent
    }

    /// RFC 6675's pipe: out, less arrived, less lost, plus sent again.
    #[inline]
    pub fn pipe(&self) -> u32 {
        self.out() + self.resent - self.sacked - self.lost
    }

    #[inline]
    pub fn push(&mut self, now: Time, end: u64, len: u32) {
        if let Some(rates) = &mut self.rates {
            rates.sent(now, self.entries.is_empty());
        }
        self.entries.push_back(Entry {
            sent: now,
            end: end as u32,
            // A segment fits into a packet.
            len: len as u16,
            state: 0,
        });
    }

    /// Takes away what lies before `una`.
    #[inline]
    pub fn acknowledge(
        &mut self,
        now: Time,
        una: u64,
        min_rtt: Option<Span>,
        delivered: &mut Delivered,
    ) {
        let una = una as u32;
        let late_below = self.before_ack.unwrap_or(self.sacked_below);
        let mut gone = 0usize;
        while let Some(entry) = self.entries.front().copied() {
            if after(entry.end, una) {
                break;
            }
            gone += 1;
            delivered.acked += 1;
            if entry.state == 0 {
                delivered.segments += 1;
                delivered.measure_acked(entry.sent);
            } else {
                self.retire(&entry, delivered);
            }
            if let Some(rates) = &mut self.rates {
                if !entry.is(SACKED) {
                    rates.delivered(0, entry.sent, entry.end);
                }
                rates.acknowledged();
            }
            if !entry.is(SACKED) {
                self.rack_delivered(now, &entry, min_rtt);
                self.reordered |= gone <= late_below && !entry.is(EVER_RESENT);
            }
            self.entries.pop_front();
        }
        self.resend_from = self.resend_from.saturating_sub(gone);
        self.lost_below = self.lost_below.saturating_sub(gone);
        self.sacked_below = self.sacked_below.saturating_sub(gone);
    }

    fn retire(&mut self, entry: &Entry, delivered: &mut Delivered) {
        if entry.is(SACKED) {
            self.sacked -= 1;
            return;
        }
        delivered.segments += 1;
        if entry.is(LOST) {
            self.lost -= 1;
        }
        if entry.is(RESENT) {
            self.resent -= 1;
        }
        if entry.is(EVER_RESENT) {
            delivered.resent = true;
        } else {
            delivered.measure_acked(entry.sent);
        }
    }

    /// The entry that begins at or after `offset`.
    fn position(&self, offset: u32) -> usize {
        self.entries.partition_point(|entry| {
            !after(entry.end.wrapping_sub(u32::from(entry.len)), offset)
                && entry.end.wrapping_sub(u32::from(entry.len)) != offset
        })
    }

    /// Notes the blocks of a SACK option; true if one is a duplicate below `una`.
    pub fn sack(
        &mut self,
        now: Time,
        blocks: &[(u32, u32)],
        una: u64,
        next: u64,
        min_rtt: Option<Span>,
        delivered: &mut Delivered,
    ) {
        let before = self.reported;
        self.reported = Default::default();
        for (at, &(start, end)) in blocks.iter().enumerate() {
            let valid = after(end, start) && after(start, una as u32) && !after(end, next as u32);
            if !valid {
                continue;
            }
            self.reported[at] = (start, end);
            // Only what a block known before does not hold.
            let known = before
                .iter()
                .find(|(s, e)| s != e && !after(start, *s) && !after(*e, end));
            match known {
                Some(&(s, e)) => {
                    self.sack_range(now, start, s, min_rtt, delivered);
                    self.sack_range(now, e, end, min_rtt, delivered);
                }
                None => self.sack_range(now, start, end, min_rtt, delivered),
            }
        }
    }

    fn sack_range(
        &mut self,
        now: Time,
        start: u32,
        end: u32,
        min_rtt: Option<Span>,
        delivered: &mut Delivered,
    ) {
        if !after(end, start) {
            return;
        }
        let mut at = self.position(start);
        while let Some(entry) = self.entries.get_mut(at) {
            if after(entry.end, end) {
                break;
            }
            if !entry.is(SACKED) {
                if entry.is(LOST) {
                    self.lost -= 1;
                }
                if entry.is(RESENT) {
                    self.resent -= 1;
                }
                let late_below = self.before_ack.unwrap_or(self.sacked_below);
                self.reordered |= at < late_below && !entry.is(EVER_RESENT);
                entry.state = entry.state & EVER_RESENT | SACKED;
                self.sacked += 1;
                delivered.segments += 1;
                delivered.sacked += 1;
                let entry = *entry;
                if let Some(rates) = &mut self.rates {
                    rates.delivered(at, entry.sent, entry.end);
                }
                if !entry.is(EVER_RESENT) {
                    delivered.measure_sacked(entry.sent);
                }
                self.rack_delivered(now, &entry, min_rtt);
            }
            at += 1;
            self.sacked_below = self.sacked_below.max(at);
        }
    }

    /// RFC 8985 section 6.2 steps 1 and 2. A resent segment whose acknowledgment comes
    /// sooner than any could is that of the first copy.
    #[inline]
    fn rack_delivered(&mut self, now: Time, entry: &Entry, min_rtt: Option<Span>) {
        let rtt = now.since(entry.sent);
        if entry.is(EVER_RESENT) && min_rtt.is_some_and(|min| rtt < min) {
            return;
        }
        self.rack.rtt = rtt;
        self.rack.advanced = true;
        let later = entry.sent > self.rack.sent
            || entry.sent == self.rack.sent && after(entry.end, self.rack.end);
        if later || !self.rack.valid {
            self.rack.sent = entry.sent;
            self.rack.end = entry.end;
            self.rack.valid = true;
        }
    }

    fn lose(&mut self, at: usize) {
        let entry = &mut self.entries[at];
        let was_resent = entry.is(RESENT);
        if was_resent {
            self.resent -= 1;
            entry.state &= !RESENT;
        }
        if !entry.is(LOST) {
            entry.state |= LOST;
            self.lost += 1;
        } else if !was_resent {
            return;
        }
        if let Some(rates) = &mut self.rates {
            rates.lost();
        }
        self.resend_from = self.resend_from.min(at);
    }

    /// RFC 6675's IsLost, by segments: lost is what has at least `threshold` SACKed
    /// segments beyond it. Returns how many were found.
    pub fn find_lost_by_count(&mut self, threshold: u32) -> u32 {
        if self.sacked < threshold {
            return 0;
        }
        let mut at = self.sacked_below;
        let mut above = 0;
        while at > self.lost_below && above < threshold {
            at -= 1;
            above += u32::from(self.entries[at].is(SACKED));
        }
        if above < threshold {
            return 0;
        }
        let before = self.lost;
        for hole in self.lost_below..at {
            if !self.entries[hole].is(SACKED | LOST) {
                self.lose(hole);
            }
        }
        self.lost_below = at.max(self.lost_below);
        self.lost - before
    }

    /// RFC 8985 section 6.2 step 5: lost is what was sent before the latest delivered, by
    /// more than its round trip and the reordering window. Returns how many were found,
    /// and how long until the next would be.
    pub fn find_lost_by_time(&mut self, now: Time, window: Span) -> (u32, Option<Span>) {
        let mut found = 0;
        let mut wait: Option<Span> = None;
        if !self.rack.valid {
            return (0, None);
        }
        for at in 0..self.entries.len() {
            let entry = self.entries[at];
            let earlier = entry.sent < self.rack.sent
                || entry.sent == self.rack.sent && after(self.rack.end, entry.end);
            if !earlier {
                // What was sent once lies in the order of sending.
                if !entry.is(EVER_RESENT) {
                    break;
                }
                continue;
            }
            if entry.is(SACKED) || entry.is(LOST) && !entry.is(RESENT) {
                continue;
            }
            let due = entry.sent + self.rack.rtt + window;
            if due <= now {
                self.lose(at);
                found += 1;
            } else {
                let left = due - now;
                wait = Some(wait.map_or(left, |wait| wait.max(left)));
            }
        }
        (found, wait)
    }

    /// Takes the first segment for lost: a partial acknowledgment (RFC 6582), or the
    /// threshold of duplicates without SACK.
    pub fn lose_head(&mut self) -> u32 {
        match self.entries.front() {
            Some(entry) if !entry.is(SACKED) && (!entry.is(LOST) || entry.is(RESENT)) => {
                self.lose(0);
                1
            }
            _ => 0,
        }
    }

    /// After a timeout everything that did not arrive counts as lost.
    pub fn lose_all(&mut self) {
        for at in 0..self.entries.len() {
            if !self.entries[at].is(SACKED) {
                self.lose(at);
            }
        }
        self.lost_below = self.entries.len();
        self.resend_from = 0;
    }

    /// After a timeout, in Linux: the first counts as lost, and what was sent longer ago than
    /// the latest round trip (RFC 8985 section 6.3, `tcp_timeout_mark_lost`).
    pub fn lose_old(&mut self, now: Time) {
        for at in 0..self.entries.len() {
            let entry = self.entries[at];
            if !entry.is(SACKED) && (at == 0 || now.since(entry.sent) >= self.rack.rtt) {
                self.lose(at);
            }
        }
        self.lost_below = self.entries.len();
        self.resend_from = 0;
    }

    /// Forgets what was taken for lost: nothing was, or without SACK nothing is known of
    /// single segments.
    pub fn forget_losses(&mut self) {
        for entry in &mut self.entries {
            entry.state &= SACKED | EVER_RESENT;
        }
        self.lost = 0;
        self.resent = 0;
        self.lost_below = 0;
        self.resend_from = 0;
    }

    /// The next segment to be sent again, as its end and length; notes that it is.
    pub fn resend(&mut self, now: Time) -> Option<(u32, u32)> {
        while self.resend_from < self.entries.len() {
            let entry = &mut self.entries[self.resend_from];
            if entry.is(LOST) && !entry.is(RESENT) {
                entry.state |= RESENT | EVER_RESENT;
                entry.sent = now;
                self.resent += 1;
                let sent = (entry.end, u32::from(entry.len));
                if let Some(rates) = &mut self.rates {
                    rates.sent_again(self.resend_from);
                }
                return Some(sent);
            }
            self.resend_from += 1;
        }
        None
    }

    /// Whether what follows the segment that was sent again last is to be sent again, too.
    pub fn goes_on(&self) -> bool {
        let next = self.entries.get(self.resend_from + 1);
        next.is_some_and(|entry| entry.is(LOST) && !entry.is(RESENT))
    }

    /// Sends the last segment again as a probe: it stays what it is. As its end and length.
    pub fn probe(&mut self, now: Time) -> Option<(u32, u32)> {
        let entry = self.entries.back_mut()?;
        entry.state |= EVER_RESENT;
        entry.sent = now;
        let sent = (entry.end, u32::from(entry.len));
        if let Some(rates) = &mut self.rates {
            rates.sent_again(self.entries.len() - 1);
        }
        Some(sent)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What a segment says about the other side's data: acknowledgements, SACK, windows. Here
//! `fwd` is the direction of the segment, `rev` that of the data it acknowledges.

use super::connection::Step;
use super::event::{Kind, Marks, Proof};
use super::flow::{Flow, unwrap};
use super::ledger::Acknowledged;
use crate::segment::{Flags, Timestamp};
use std::time::Duration;

/// SACKed ranges remembered.
const SACKED: usize = 256;

/// Ranges remembered that were acknowledged and never observed.
const LOST: usize = 64;

/// More than any window (RFC 7323 section 2.3).
const LARGEST_WINDOW: u64 = 1 << 30;

/// Takes the acknowledgement number, timestamps and SACK blocks.
#[inline]
pub(super) fn acknowledge(step: &mut Step<'_, '_>, fwd: &mut Flow, rev: &mut Flow) {
    let Some(ack) = step.ack else { return };
    let plain = !step.has(Flags::SYN | Flags::FIN | Flags::RST);
    let pure = plain && step.s.length == 0;
    if pure {
        fwd.tally.pure_acks += 1;
    }
    let echo = step.options.timestamps.map(|t| t.1);
    if let (Some(echo), Some((value, sent))) = (echo, rev.rtt.timed)
        && echo != 0
        && echo.wrapping_sub(value) as i32 >= 0
    {
        rev.rtt.timed = None;
        let rtt = step.now.saturating_sub(sent);
        rev.rtt.timestamps.add(rtt);
        rev.rtt.shorter(rtt);
    }

    let mut forgotten = 0;
    let done = rev.ledger.acknowledge(ack, &mut forgotten);
    if forgotten > 0 {
        rev.rare().dropped.ranges += forgotten;
    }
    if done.segments > 0 {
        samples(step, rev, ack, &done);
    }
    repeats(step, fwd, rev, ack, &done);

    if !rev.acks.data_acked && ack < rev.send.acked {
        under_way_before(step, rev, ack);
    }
    let news = if step.options.sack().is_empty() {
        false
    } else {
        selective(step, fwd, rev, ack)
    };
    let advances = ack > rev.send.acked;
    if advances {
        advance(step, fwd, rev, ack, &done, pure);
    } else if pure {
        without_news(step, fwd, rev, ack, news);
    } else if ack < rev.send.acked {
        rev.report().acks.old += 1;
    }
    if news && !advances {
        rev.report().acks.duplicate_by_sack += 1;
    }
    rev.acks.time = step.now;
    rev.acks.last = if step.has(Flags::RST) {
        rev.acks.last
    } else {
        ack
    };
    if !rev.acks.data_acked && (!rev.syn || ack != rev.send.origin + 1) {
        rev.acks.data_acked = true;
    }
}

/// RTT samples: see [`Ledger`](super::ledger::Ledger).
#[inline]
fn samples(step: &mut Step<'_, '_>, rev: &mut Flow, ack: u64, done: &Acknowledged) {
    rev.tally.peer_acks.cumulative += done.segments - u32::from(done.exact.is_some());
    let Some(exact) = done.exact else { return };
    let rtt = step.now.saturating_sub(exact.sent.time).max(0);
    if exact.overtaken {
        rev.report().rtt.after_loss += 1;
    } else if exact.sent.copies > 0 {
        rev.report().rtt.ambiguous.add(rtt);
        if let Some(sent) = rev.sent_once(&exact.sent) {
            let rtt = step.now.saturating_sub(sent).max(0);
            rev.rtt.smooth(rtt);
            step.rtt = Some(rtt);
        }
    } else {
        rev.rtt.acknowledged(rtt, exact.sent.length);
        if rev.syn && ack == rev.send.origin + 1 && rev.syns == 1 {
            rev.report().rtt.handshake = Some(Duration::from_nanos(rtt as u64));
        }
        rev.rtt.smooth(rtt);
        step.rtt = Some(rtt);
    }
}

/// The first ACK, of less than was sent before the capture began: the rest was under way.
#[cold]
fn under_way_before(step: &Step<'_, '_>, rev: &mut Flow, ack: u64) {
    if !rev.syn && !step.has(Flags::RST) && rev.send.acked - ack < LARGEST_WINDOW {
        rev.send.acked = ack;
    }
}

/// Duplicate ACKs by tcptrace's rule.
#[inline]
fn repeats(step: &Step<'_, '_>, fwd: &Flow, rev: &mut Flow, ack: u64, done: &Acknowledged) {
    if done.repeats
        && ack == fwd.receive.last_ack
        && step.s.length == 0
        && step.window == fwd.receive.window
        && rev.tally.owin.smallest > 0
    {
        rev.acks.repeats += 1;
        let third = rev.acks.repeats == 4;
        let acks = &mut rev.report().acks;
        acks.duplicate_tcptrace += 1;
        acks.triple += u64::from(third);
    } else {
        rev.acks.repeats = 1;
    }
}

/// Data is acknowledged for the first time.
#[inline]
fn advance(
    step: &mut Step<'_, '_>,
    fwd: &mut Flow,
    rev: &mut Flow,
    ack: u64,
    done: &Acknowledged,
    pure: bool,
) {
    let new = ack - rev.send.acked;
    let mss = rev.full_segment(fwd);
    rev.send.acked = ack;
    if rev.acks.first == 0 && ack >= rev.send.floor {
        rev.acks.first = step.now;
    }
    rev.acks.duplicates = 0;
    rev.end_burst(mss);
    if ack > rev.send.next {
        acked_unobserved(step, rev, ack);
    }
    if rev.lossy {
        past_losses(step, rev, ack);
    }
    if done.segments == 0 || step.has(Flags::SYN) {
        return;
    }
    rev.tally.peer_acks.advancing += 1;
    let delay = step
        .now
        .saturating_sub(done.last_sent)
        .saturating_sub(rev.rtt.shortest);
    if new > 2 * mss {
        rev.tally.peer_acks.stretch += 1;
        step.marks.set(Marks::STRETCH_ACK);
    } else if new < 2 * mss && rev.rtt.shortest > 0 {
        if step.rtt.is_some() && delay >= step.limits.delayed_ack {
            let acks = &mut rev.report().acks;
            acks.delayed += 1;
            acks.delay.add(delay);
            step.marks.set(Marks::DELAYED_ACK);
        } else {
            rev.tally.peer_acks.immediate += 1;
        }
    }
    if ack >= rev.send.next {
        rev.tally.peer_acks.drained += 1;
        let held = step.now.saturating_sub(rev.last.data_time);
        rev.acks.drained_small = pure
            && rev.last.data_time != 0
            && u64::from(rev.last.data_length) < mss
            && held >= step.limits.delayed_ack;
        if rev.acks.drained_small {
            rev.rare().drained = (step.now, held);
        }
    }
}

/// An ACK of numbers that were never captured.
#[cold]
fn acked_unobserved(step: &mut Step<'_, '_>, rev: &mut Flow, ack: u64) {
    let probe_end = rev.rare.as_ref().map_or(0, |r| r.probe_end);
    let start = rev.send.next.max(probe_end.min(ack));
    rev.send.next = ack;
    if !rev.observed || start >= ack {
        return;
    }
    step.marks.set(Marks::ACKED_UNCAPTURED);
    lose(rev, start, ack);
}

fn lose(rev: &mut Flow, start: u64, end: u64) {
    rev.report().order.capture_losses += 1;
    rev.report().order.capture_lost_bytes += end - start;
    rev.rare().lost.insert(start, end, LOST);
}

/// Gaps, SACK blocks and retransmissions that an ACK has passed.
#[cold]
fn past_losses(step: &mut Step<'_, '_>, rev: &mut Flow, ack: u64) {
    let echo = step.options.timestamps.map(|t| t.1);
    let Some(rare) = rev.rare.as_mut() else {
        return;
    };
    rare.sacked.drain_below(ack);
    for resent in &mut rare.resent {
        if !resent.waiting || ack < resent.end {
            continue;
        }
        resent.waiting = false;
        if let (Some(sent), Some(echo)) = (resent.tsval, echo)
            && echo != 0
            && (echo.wrapping_sub(sent) as i32) < 0
        {
            let r = &mut rev.report.get_or_insert_default().retransmitted;
            r.spurious_eifel += 1;
            r.spurious += u64::from(!resent.spurious);
            resent.spurious = true;
            step.spurious = Some((resent.frame, Proof::Eifel));
        }
    }
    let passed: Vec<(u64, u64)> = rare
        .gaps
        .iter()
        .filter(|g| g.start < ack)
        .map(|g| (g.start, g.end.min(ack)))
        .collect();
    rare.gaps.retain_mut(|g| {
        g.start = g.start.max(ack);
        g.start < g.end
    });
    rev.lossy =
        !(rare.gaps.is_empty() && rare.sacked.is_empty()) || rare.resent.iter().any(|r| r.waiting);
    for (start, end) in passed {
        step.marks.set(Marks::ACKED_UNCAPTURED);
        lose(rev, start, end);
    }
}

/// A pure ACK that acknowledges nothing new.
#[inline]
fn without_news(step: &mut Step<'_, '_>, fwd: &mut Flow, rev: &mut Flow, ack: u64, news: bool) {
    if step.kind != Kind::Ack {
        return;
    }
    if ack < rev.send.acked {
        rev.report().acks.old += 1;
        return;
    }
    if !fwd.observed || ack != fwd.receive.last_ack {
        return;
    }
    let same_window = step.window == fwd.receive.window;
    if rev.last.probe && step.window == 0 {
        step.kind = Kind::ZeroWindowProbeAck;
        fwd.report().window.probe_acks += 1;
    } else if rev.last.keep_alive {
        step.kind = Kind::KeepAliveAck;
        fwd.report().control.keep_alive_acks += 1;
    } else if (same_window || news) && rev.send.next > rev.send.acked {
        step.kind = Kind::DuplicateAck;
        rev.acks.duplicates = rev.acks.duplicates.saturating_add(1);
        step.duplicate = rev.acks.duplicates;
        let run = rev.acks.duplicates;
        let a = &mut rev.report().acks;
        a.duplicate += u64::from(same_window);
        a.longest_run = a.longest_run.max(run);
        if rev.acks.duplicates == 3 {
            rev.rare().asked = step.now;
        }
    } else if !same_window {
        step.kind = Kind::WindowUpdate;
        fwd.report().window.updates += 1;
    }
}

/// SACK blocks; returns whether they report something new.
#[cold]
fn selective(step: &mut Step<'_, '_>, fwd: &mut Flow, rev: &mut Flow, ack: u64) -> bool {
    let blocks = step.options.sack();
    let control = &mut fwd.report().control;
    control.sacks += 1;
    control.most_sack_blocks = control.most_sack_blocks.max(blocks.len() as u8);
    let near = |n: u32| unwrap(rev.send.next, n);
    let mut placed = [(0, 0); 4];
    for (to, (left, right)) in placed.iter_mut().zip(blocks) {
        *to = (near(*left), near(*right));
    }
    let placed = &placed[..blocks.len()];
    let (left, right) = placed[0];
    // RFC 2883 section 4: below the ACK, or inside the second block.
    let duplicate = right <= ack
        || placed
            .get(1)
            .is_some_and(|second| left >= second.0 && right <= second.1);
    if duplicate {
        control.dsacks += 1;
        step.marks.set(Marks::DSACK);
        reported_duplicate(step, rev, left, right);
    }
    // An ACK that was overtaken reports what is acknowledged by now.
    let (next, acked) = (rev.send.next, rev.send.acked);
    let rare = rev.rare();
    let mut new = 0;
    for (left, right) in &placed[usize::from(duplicate)..] {
        if left < right && *left >= ack && *right <= next {
            let inserted = rare.sacked.insert((*left).max(acked), *right, SACKED);
            rare.dropped.ranges += u64::from(inserted.forgotten > 0);
            new += inserted.new;
        }
    }
    rev.lossy = true;
    new > 0
}

/// A DSACK names the retransmission that was not needed.
fn reported_duplicate(step: &mut Step<'_, '_>, rev: &mut Flow, left: u64, right: u64) {
    let Some(rare) = rev.rare.as_mut() else {
        return;
    };
    let named = rare
        .resent
        .iter_mut()
        .rev()
        .find(|r| !r.spurious && r.start < right && r.end > left);
    if let Some(resent) = named {
        resent.spurious = true;
        step.spurious = Some((resent.frame, Proof::Dsack));
        let r = &mut rev.report().retransmitted;
        r.spurious_dsack += 1;
        r.spurious += 1;
    }
}

/// Takes the window. Not for segments with RST.
#[inline]
pub(super) fn advertise(step: &mut Step<'_, '_>, fwd: &mut Flow, rev: &mut Flow) {
    let window = step.window;
    let syn = step.has(Flags::SYN);
    if syn || step.ack.is_some() {
        let both = fwd.offered.window_scale.is_some() && rev.offered.window_scale.is_some();
        // At most 65,535 << 14.
        let size = window as u32;
        let t = &mut fwd.tally.windows;
        t.advertised += 1;
        t.largest = t.largest.max(size);
        if size > 0 && both && !syn && !fwd.receive.scaled {
            fwd.receive.scaled = true;
            t.smallest = size;
            t.largest = size;
            t.begin_mean(&mut fwd.report.get_or_insert_default().window);
        } else if size > 0 && (t.smallest == 0 || size < t.smallest) {
            t.smallest = size;
        }
        t.sum += window;
        t.counted += 1;
    }
    if let Some(ack) = step.ack {
        edge(step, fwd, rev, ack);
        fwd.receive.last_ack = ack;
    }
    fwd.receive.window = window;
}

/// How far the other side may send now.
#[inline]
fn edge(step: &mut Step<'_, '_>, fwd: &mut Flow, rev: &mut Flow, ack: u64) {
    let edge = ack.saturating_add(step.window);
    if edge > fwd.receive.edge {
        fwd.receive.edge = edge;
        if rev.send.filled != 0 {
            let waited = step.now.saturating_sub(rev.send.filled);
            rev.report().window.filled_time.add(waited);
            rev.send.filled = 0;
        }
    } else if edge < fwd.receive.edge && ack >= rev.send.acked {
        // Rounding to the scale moves it by less than one unit (RFC 7323 section 2.4).
        if fwd.receive.edge - edge > 1 << fwd.receive.shift && !step.has(Flags::SYN | Flags::FIN) {
            fwd.report().window.shrunk += 1;
            step.marks.set(Marks::SHRUNK);
        }
        fwd.receive.edge = edge;
    }
    if step.window == 0 {
        fwd.report().window.zero += 1;
        step.marks.set(Marks::ZERO_WINDOW);
        if !fwd.receive.closed && !step.has(Flags::FIN) {
            fwd.receive.closed = true;
            fwd.report().window.closed += 1;
            fwd.rare().closed = step.now;
        }
    } else {
        if fwd.receive.closed {
            opened(step, fwd);
        }
        if rev.tally.data.largest > 0
            && step.window < rev.full_segment(fwd)
            && step.window < u64::from(fwd.tally.windows.largest / 2)
            && !step.has(Flags::SYN)
        {
            fwd.report().window.silly += 1;
            step.marks.set(Marks::SILLY);
        }
    }
}

#[cold]
fn opened(step: &Step<'_, '_>, fwd: &mut Flow) {
    fwd.receive.closed = false;
    let since = fwd.rare().closed;
    fwd.report()
        .window
        .closed_time
        .add(step.now.saturating_sub(since));
}

impl Flow {
    /// The connection's last segment was at `end`: what was still going on is over.
    pub(super) fn close(&mut self, end: i64) {
        if self.receive.closed {
            let since = self.rare().closed;
            let time = end.saturating_sub(since);
            self.report().window.closed_time.add(time);
        }
        if self.send.filled != 0 {
            let time = end.saturating_sub(self.send.filled);
            self.report().window.filled_time.add(time);
        }
        self.spill();
        let (syn, origin, rare) = (self.syn, self.send.origin, self.rare.take());
        let r = self.report.get_or_insert_default();
        r.offered = self.offered;
        if self.observed {
            r.timing.first = Some(Timestamp(self.first_time));
            r.timing.last = Some(Timestamp(self.last.time));
        }
        if r.data.packets > 0 {
            r.timing.first_data = Some(Timestamp(self.first_data));
            r.timing.last_data = Some(Timestamp(self.last.data_time));
        }
        r.rtt.acked = self.rtt.acked;
        r.rtt.full_size = self.rtt.of_full_size;
        r.rtt.timestamps = self.rtt.timestamps;
        let mut end = self.send.acked;
        let mut early = 0;
        if let Some(rare) = rare {
            if end >= self.send.floor {
                early = rare.early;
            }
            r.order.unexplained_gap_bytes = rare.gaps.iter().map(|g| g.end - g.start).sum();
            if syn && rare.fin > 0 {
                let length = rare.fin.saturating_sub(origin + 2);
                r.data.stream_length = Some(length);
                r.data.missed_bytes = Some(length.saturating_sub(r.data.unique_bytes));
            }
            if rare.fin > 0 && end >= rare.fin {
                end = rare.fin - 1;
            }
        }
        r.data.acked_bytes = end
            .saturating_sub(origin + 1)
            .saturating_sub(r.order.capture_lost_bytes)
            .saturating_add(early)
            .min(r.data.unique_bytes);
        if self.rtt.smoothed > 0 {
            let nanos = |n: i64| Some(Duration::from_nanos(u64::try_from(n).unwrap_or(0)));
            r.rtt.smoothed = nanos(self.rtt.smoothed);
            r.rtt.variation = nanos(self.rtt.variation);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What a segment is for the side that sent it: new data, sent again, late, a probe.

mod counts;

pub(super) use counts::count;

use super::connection::Step;
use super::event::{Cause, Kind, Marks};
use super::flow::{Flow, GAPS, Gap, RESENT, Resent};
use super::frames::Repeat;
use super::ledger::Recorded;
use super::retransmission::{self, Late};
use crate::segment::Flags;

/// More than this many full-sized segments before an ACK are a burst: RFC 6928's initial
/// window.
const BURST_SEGMENTS: u64 = 10;

/// A full-sized segment while no MSS and no data is known: RFC 9293 section 3.7.1.
const DEFAULT_MSS: u64 = 536;

/// The timestamps option in every segment (RFC 7323 appendix A).
const TIMESTAMPS_LENGTH: u64 = 12;

/// A host's own time between an ACK and the data it lets go.
const HOST_NANOS: i64 = 1_000_000;

/// Places the segment among what this side sent before.
#[inline]
pub(super) fn numbers(step: &mut Step<'_, '_>, fwd: &mut Flow, rev: &mut Flow) {
    let s = step.s;
    if s.ecn == 3 {
        step.marks.set(Marks::CE);
    }
    let twice = identified(step, fwd, rev);
    if step.start == step.end {
        return without_data(step, fwd, rev, twice);
    }
    if rev.receive.window == 0 && rev.observed && !step.has(Flags::SYN) {
        probe(step, fwd);
        if twice {
            step.kind = Kind::HardwareDuplicate;
        }
        return;
    }
    let mut forgotten = 0;
    let limit = step.limits.outstanding;
    let recorded = fwd
        .ledger
        .record(step.start, step.end, step.now, limit, &mut forgotten);
    if forgotten > 0 {
        fwd.rare().dropped.segments += forgotten;
    }
    if recorded.observed > 0 || recorded.before_observed || step.start < fwd.send.next {
        behind(step, fwd, rev, recorded, twice);
    } else {
        ahead(step, fwd);
        step.new_bytes = u64::from(s.length);
        fwd.tally.data.unique_bytes += step.new_bytes;
    }
    if step.end > fwd.send.next && !step.has(Flags::RST) {
        fwd.send.next = step.end;
        fwd.send.next_time = step.now;
    }
    if step.has(Flags::SYN) {
        // Nothing is acknowledged yet: as if the other side had asked for the SYN.
        fwd.acks.last = step.start;
        rev.receive.last_ack = step.start;
    }
    if step.has(Flags::FIN) {
        fwd.rare().fin = step.end;
    }
    if s.length > 0 {
        if step.kind == Kind::Data {
            new_data(step, fwd, rev);
        }
        fwd.last.data_time = step.now;
        fwd.last.data_length = s.length;
    }
}

impl Step<'_, '_> {
    /// Its numbers were sent before the capture began.
    pub(super) fn is_before_capture(&self, fwd: &Flow) -> bool {
        !fwd.syn && self.start < fwd.send.floor
    }

    /// Some of its numbers were observed before.
    fn observed_before(&self) -> bool {
        self.not_next && self.new_bytes < u64::from(self.s.length)
    }
}

/// Whether the frame was captured twice; follows IP identification and timestamps.
#[inline]
fn identified(step: &Step<'_, '_>, fwd: &mut Flow, rev: &Flow) -> bool {
    let s = step.s;
    if let Some((tsval, _)) = step.options.timestamps
        && (tsval != fwd.last.tsval || !fwd.observed)
    {
        fwd.last.tsval = tsval;
        if fwd.rtt.timed.is_none() {
            fwd.rtt.timed = Some((tsval, step.now));
        }
    }
    if let Some(repeat) = fwd.frames.repeats(s, &step.options) {
        return repeated(step, fwd, rev, repeat);
    }
    if let Some(id) = s.ip_id {
        fwd.frames.follow(id);
    }
    false
}

/// A frame that repeats one of the last: captured twice, or sent again.
#[cold]
fn repeated(step: &Step<'_, '_>, fwd: &mut Flow, rev: &Flow, repeat: Repeat) -> bool {
    if repeat.identified && (step.s.sequence != 0 || !repeat.recent) {
        fwd.report().order.hardware_duplicates += u64::from(repeat.recent);
    } else if let Some(id) = step.s.ip_id {
        fwd.frames.follow(id);
    }
    let twice = retransmission::captured_twice(step, fwd, rev, repeat);
    if twice {
        fwd.report().order.captured_twice += 1;
        fwd.frames.remember_more();
    } else {
        fwd.frames.sent_again(step.s, &step.options);
    }
    twice
}

/// A segment without data, SYN and FIN.
#[inline]
fn without_data(step: &mut Step<'_, '_>, fwd: &mut Flow, rev: &Flow, twice: bool) {
    if twice {
        step.kind = Kind::HardwareDuplicate;
    }
    if step.has(Flags::RST) {
        return;
    }
    if !fwd.observed {
        fwd.send.next = fwd.send.next.max(step.start);
    } else if step.start > fwd.send.next {
        gap(step, fwd);
        fwd.send.next = step.start;
        fwd.send.next_time = step.now;
    } else if step.start + 1 == fwd.send.next && fwd.send.acked >= fwd.send.next {
        below_next(step, fwd, rev);
    }
}

/// Nothing or one byte just before the next number, everything acknowledged: the other
/// side is asked whether it is there, or whether its window is open.
#[cold]
fn below_next(step: &mut Step<'_, '_>, fwd: &mut Flow, rev: &Flow) {
    if rev.observed && rev.receive.window == 0 {
        step.kind = Kind::ZeroWindowProbe;
        fwd.report().window.empty_probes += 1;
        fwd.last.probe = true;
    } else {
        step.kind = Kind::KeepAlive;
        fwd.report().control.keep_alives += 1;
        fwd.last.keep_alive = true;
    }
}

/// Data into a closed window. It is not in the ledger: whether the receiver takes it, only
/// its ACK can show.
#[cold]
fn probe(step: &mut Step<'_, '_>, fwd: &mut Flow) {
    step.kind = Kind::ZeroWindowProbe;
    fwd.last.probe = true;
    let w = &mut fwd.report().window;
    w.probes += 1;
    w.probe_bytes += u64::from(step.s.length);
    fwd.last.data_time = step.now;
    let end = step.end;
    let rare = fwd.rare();
    rare.probe_end = rare.probe_end.max(end);
    if step.has(Flags::FIN) {
        rare.fin = end;
    }
}

/// New numbers at the end.
#[inline]
fn ahead(step: &mut Step<'_, '_>, fwd: &mut Flow) {
    if fwd.observed && step.start > fwd.send.next {
        gap(step, fwd);
    }
    step.kind = if step.has(Flags::SYN) {
        if step.has(Flags::ACK) {
            Kind::SynAck
        } else {
            Kind::Syn
        }
    } else if step.s.length > 0 {
        Kind::Data
    } else {
        Kind::Fin
    };
}

/// Numbers were left out before this segment.
#[cold]
fn gap(step: &mut Step<'_, '_>, fwd: &mut Flow) {
    let start = fwd
        .rare
        .as_ref()
        .map_or(fwd.send.next, |r| r.probe_end.max(fwd.send.next));
    if start >= step.start || step.has(Flags::RST) {
        return;
    }
    step.marks.set(Marks::GAP);
    fwd.report().order.gaps += 1;
    fwd.report().order.gap_bytes += step.start - start;
    let gap = Gap {
        start,
        end: step.start,
        opened: step.now,
        // The identification before the gap was replaced by this segment's: one step back
        // is the least it can have been.
        ids: step
            .s
            .ip_id
            .filter(|_| fwd.frames.id_trust >= 2)
            .map(|id| (id.wrapping_sub(1024), id)),
        tsval: step.options.timestamps.map(|t| t.0),
    };
    let rare = fwd.rare();
    if rare.gaps.len() >= GAPS {
        rare.forgotten = Some(rare.gaps.remove(0));
        rare.dropped.ranges += 1;
    }
    rare.gaps.push(gap);
    fwd.lossy = true;
}

/// Numbers below what was sent before: again, or late.
#[cold]
fn behind(step: &mut Step<'_, '_>, fwd: &mut Flow, rev: &Flow, recorded: Recorded, twice: bool) {
    let s = step.s;
    let (syn, fin) = (step.has(Flags::SYN), step.has(Flags::FIN));
    // SYN and FIN are no payload: repeated ones do not make less of it.
    let control = u64::from(syn && fwd.syns > 1) + u64::from(fin && fwd.report().control.fins > 1);
    let repeated = recorded.observed.saturating_sub(control);
    step.new_bytes = u64::from(s.length).saturating_sub(repeated);
    fwd.tally.data.unique_bytes += step.new_bytes;
    if step.is_before_capture(fwd) {
        let early = step.new_bytes.min(fwd.send.floor - step.start);
        fwd.rare().early += early;
    }

    step.not_next = recorded.observed > 0 || recorded.before_observed;
    let r = fwd.report();
    r.order.before_observed += u64::from(recorded.before_observed);
    if recorded.observed > 0 {
        r.retransmitted.observed_before += 1;
        r.retransmitted.observed_before_bytes += recorded.observed;
        r.retransmitted.most = r.retransmitted.most.max(u32::from(recorded.copies));
        if let Some(sent) = recorded.last_sent {
            r.retransmitted.interval.add(step.now.saturating_sub(sent));
        }
    }
    if step.end <= fwd.send.acked {
        step.marks.set(Marks::ALREADY_ACKED);
    }
    if twice {
        step.kind = Kind::HardwareDuplicate;
        if let Some(sent) = recorded.last_sent {
            fwd.copied(step.end, sent);
        }
        return;
    }
    let keep_alive = s.length == 1 && !syn && !fin;
    if keep_alive && step.start + 1 == fwd.send.next && fwd.send.acked >= fwd.send.next {
        return below_next(step, fwd, rev);
    }
    let opened = fill(fwd, step.start, step.end);
    if recorded.observed == 0 {
        match retransmission::late(step, fwd, rev, opened.as_ref()) {
            Late::Reordered => {
                step.kind = Kind::OutOfOrder;
                fwd.report().order.out_of_order += 1;
                if let Some(gap) = &opened {
                    let late = step.now.saturating_sub(gap.opened);
                    fwd.report().order.lateness.add(late);
                }
                return;
            }
            Late::Unknown => {
                step.kind = Kind::OutOfOrder;
                return;
            }
            Late::Resent => {
                step.marks.set(Marks::LOST_BEFORE_HERE);
                fwd.report().retransmitted.lost_before_here += 1;
            }
        }
    }
    let last_sent = recorded.last_sent.or(opened.map(|g| g.opened));
    step.sent_before = last_sent;
    resent(step, fwd, rev, recorded, last_sent);
}

/// Data sent again: why, and what it says about the connection.
fn resent(
    step: &mut Step<'_, '_>,
    fwd: &mut Flow,
    rev: &Flow,
    recorded: Recorded,
    last_sent: Option<i64>,
) {
    let again = recorded.copies - fwd.captured_again(step.end).min(recorded.copies);
    let cause = retransmission::cause(step, fwd, rev, again, last_sent);
    step.kind = Kind::Retransmission(cause);
    let silence = step
        .now
        .saturating_sub(fwd.last.data_time.max(fwd.acks.time));
    let r = &mut fwd.report().retransmitted;
    r.packets += 1;
    r.bytes += match recorded.observed {
        0 => step.end - step.start,
        observed => observed,
    };
    if step.marks.any(Marks::ALREADY_ACKED) {
        r.already_acked += 1;
    }
    match cause {
        Cause::Fast => r.fast += 1,
        Cause::Timeout => {
            r.timeouts += 1;
            r.timeout_wait.add(silence);
        }
        Cause::AfterTimeout => r.after_timeout += 1,
        Cause::TailLossProbe => r.tail_loss_probes += 1,
        Cause::Handshake => r.syns += 1,
        Cause::Fin => r.fins += 1,
        Cause::Unexplained => r.unexplained += 1,
    }
    let (next, acked) = (fwd.send.next.max(step.end), fwd.send.acked);
    let rare = fwd.rare();
    match cause {
        Cause::Fast => rare.recovery = next,
        Cause::Timeout => {
            rare.timeout = next;
            rare.recovery = 0;
        }
        _ => {}
    }
    rare.cause = Some(cause);
    if rare.resent.len() >= RESENT {
        rare.resent.remove(0);
    }
    fwd.lossy = true;
    let rare = fwd.rare();
    rare.resent.push(Resent {
        start: step.start,
        end: step.end,
        frame: step.s.frame,
        tsval: step.options.timestamps.map(|t| t.0),
        waiting: step.start <= acked && step.end > acked,
        spurious: false,
    });
}

/// Takes `start..end` out of the gaps; returns the first gap touched as it was.
fn fill(fwd: &mut Flow, start: u64, end: u64) -> Option<Gap> {
    let rare = fwd.rare.as_mut()?;
    let late = rare.lost.covered(start, end);
    if late > 0 {
        let order = &mut fwd.report.get_or_insert_default().order;
        order.capture_lost_bytes = order.capture_lost_bytes.saturating_sub(late);
    }
    let mut touched = None;
    let mut index = 0;
    while let Some(gap) = rare.gaps.get(index).copied() {
        if gap.end <= start || gap.start >= end {
            index += 1;
            continue;
        }
        touched = touched.or(Some(gap));
        rare.gaps.remove(index);
        if gap.start < start {
            rare.gaps.insert(index, Gap { end: start, ..gap });
            index += 1;
        }
        if gap.end > end {
            rare.gaps.insert(index, Gap { start: end, ..gap });
            index += 1;
        }
    }
    touched
}

/// New data at the end: pauses, bursts, Nagle's rule, the other side's window.
#[inline]
fn new_data(step: &mut Step<'_, '_>, fwd: &mut Flow, rev: &mut Flow) {
    let mss = fwd.full_segment(rev);
    let length = u64::from(step.s.length);
    if length > mss && rev.offered.mss.is_some() {
        fwd.report().data.super_segments += 1;
    }
    let before = step.start.saturating_sub(fwd.send.acked);
    if before == 0 || step.start <= fwd.send.acked + 1 {
        after_pause(step, fwd, rev, mss);
    }
    if fwd.send.burst != u64::MAX {
        fwd.send.burst += length;
    }
    let edge = rev.receive.edge;
    if edge != 0 && rev.window_is_known(fwd) {
        // Not even another full segment fits.
        if step.data_end == edge
            || (step.data_end < edge && edge - step.data_end < mss && length >= mss)
        {
            step.marks.set(Marks::WINDOW_FULL);
            fwd.report().window.filled += 1;
            if fwd.send.filled == 0 {
                fwd.send.filled = step.now;
            }
            if length < mss && step.data_end == edge {
                fwd.report().window.silly_segments += 1;
                step.marks.set(Marks::SILLY);
            }
            return;
        }
        if step.data_end > edge {
            fwd.report().window.exceeded += 1;
        }
    }
    if length < mss && before > 0 && !step.has(Flags::PSH | Flags::FIN) {
        fwd.report().data.small_segments += 1;
    }
}

/// The first data after everything was acknowledged.
fn after_pause(step: &mut Step<'_, '_>, fwd: &mut Flow, rev: &Flow, mss: u64) {
    if fwd.acks.drained_small {
        fwd.acks.drained_small = false;
        let turnaround = rev.rtt.shortest;
        if let Some(rare) = &fwd.rare {
            let (drained, held) = rare.drained;
            let waited = step.now.saturating_sub(drained);
            if waited <= HOST_NANOS + turnaround + turnaround / 4
                && held >= step.limits.delayed_ack
                && rev.last.data_time < fwd.last.data_time
            {
                step.marks.set(Marks::NAGLE);
                fwd.report().flight.nagle_stalls += 1;
                fwd.report().flight.nagle_time.add(held);
            }
        }
    }
    if fwd.last.data_time == 0 {
        return;
    }
    let idle = step
        .now
        .saturating_sub(fwd.last.data_time.max(fwd.acks.time));
    if idle >= step.limits.idle {
        step.marks.set(Marks::AFTER_IDLE);
        fwd.report().timing.idle.add(idle);
        fwd.send.burst = 0;
    } else if fwd.send.burst != u64::MAX {
        fwd.end_burst(mss);
    }
}

impl Flow {
    /// Payload of a full-sized segment: what the other side's MSS leaves, or the largest
    /// observed.
    #[inline]
    pub(super) fn full_segment(&self, rev: &Flow) -> u64 {
        let Some(mss) = rev.offered.mss else {
            return match self.tally.data.largest {
                0 => DEFAULT_MSS,
                largest => u64::from(largest),
            };
        };
        let timestamps = self.offered.timestamps && rev.offered.timestamps;
        let options = if timestamps { TIMESTAMPS_LENGTH } else { 0 };
        u64::from(mss).saturating_sub(options).max(1)
    }

    /// Whether this side's windows are in bytes: the scale is known, `other` being the
    /// other direction.
    #[inline]
    fn window_is_known(&self, other: &Flow) -> bool {
        self.syn && (other.syn || self.offered.window_scale.is_none())
    }

    /// An ACK ends a burst.
    #[inline]
    pub(super) fn end_burst(&mut self, mss: u64) {
        if self.send.burst > BURST_SEGMENTS * mss && self.send.burst != u64::MAX {
            let burst = self.send.burst;
            let flight = &mut self.report().flight;
            flight.idle_bursts += 1;
            flight.largest_burst = flight.largest_burst.max(burst);
        }
        self.send.burst = u64::MAX;
    }
}

/// Flight and outstanding window, after the segment's own ACK was taken.
#[inline]
pub(super) fn outstanding(step: &mut Step<'_, '_>, fwd: &mut Flow, rev: &Flow) {
    let length = u64::from(step.s.length);
    let flight = fwd.send.flight();
    if rev.observed {
        fwd.tally.flight = fwd.tally.flight.max(flight);
    }
    if length > 0 && !fwd.acks.data_acked && !step.observed_before() {
        let initial = &mut fwd.report().data.initial_window;
        initial.0 += length;
        initial.1 += 1;
    }
    if step.has(Flags::SYN) || step.not_next {
        return;
    }
    let owin = match fwd.acks.last {
        0 => length,
        ack => (step.start + length + 1).saturating_sub(ack),
    };
    fwd.tally.owin.add(owin, step.now);
}

// SPDX-License-Identifier: Apache-2.0
//! Was it sent again or only late, and why was it sent again? Judged by what passed here,
//! wherever "here" is: the stack's own reasons are not on the wire.
//!
//! What is known: `turnaround`, the shortest time from here to the sender and back (RTT of
//! the other side's segments); `path`, the smoothed RTT of the whole path; when the last ACK
//! passed here, and when the sender last sent data. An ACK is answered here one turnaround
//! later: a retransmission within that time, and a bit, is *clocked* by the ACK.
//!
//! **Rules for any repeated segment**, the first that fits:
//!
//! 1. *Hardware duplicate* ([`captured_twice`]): numbers, flags, window and length of one of
//!    the last eight segments of the direction; once one was, of one of the last 256. The frame was captured or delivered twice:
//!    by two interfaces, a mirror port, or before and after a router. Either
//!    - it has the same IP identification, not zero, which no other of them has, and comes
//!      before any timer would send it again (Linux's TCP_RTO_MIN); or
//!    - it has no identification (IPv6; zero where RFC 6864 section 4.1 allows any value),
//!      and the same timestamps and SACK blocks. Then it also has to come sooner than the sender
//!      can have heard of a loss: no ACK that signals one passed since the first copy. With timestamps,
//!      which a sender renews (RFC 7323 section 3.2), Linux's TCP_RTO_MIN is the bound as
//!      before; without, [`COPY_NANOS`]. An ACK without data repeats all numbers where it
//!      reports another lost segment: it is known for a copy only within [`COPY_NANOS`], if
//!      both agreed on SACK, whose blocks would differ (nearly all do: it is presumed of a side whose
//!      SYN was not captured), and it has blocks or other segments were captured twice; a reset
//!      only if others were.
//! 2. *Keep-alive or zero-window probe*: at most one byte just before the next number,
//!    everything acknowledged (RFC 9293 sections 3.8.4 and 3.8.6.1); any data while the
//!    window is closed.
//! 3. *Handshake*: a SYN. *FIN*: a FIN without data.
//! 4. *Late or again* ([`late`]): the bytes were not observed before, the numbers after them
//!    were. In this order:
//!    - timestamps: an earlier TSval than the segment that opened the gap had is late, a
//!      later one was sent after it: again;
//!    - IP identification, where it counts (RFC 6864 allows anything): likewise;
//!    - the sender cannot know of a gap sooner than one turnaround after it opened: late;
//!    - three duplicate ACKs, or SACK above, and the turnaround is over: again;
//!    - the clock: within the larger of the turnaround and 3 ms (Wireshark's threshold
//!      without an RTT) late, else again. Counted as ambiguous.
//!
//!    A gap that was forgotten, because there were too many, opened no later than the last one
//!    that was: what has a later TSval than that one's was sent again, and its clock counts from then.
//!
//!    Numbers below the first captured, without a SYN, were sent before the capture began
//!    ([`sent_before_capture`]). In this order:
//!    - timestamps, compared with this side's first segment: an earlier TSval is late, a later one again;
//!    - the receiver acknowledged them 3 ms ago or more: it had them, this is another copy;
//!    - three duplicate ACKs, or SACK above: again;
//!    - 3 ms after this side's first segment: again. Sooner it is not known which, and neither
//!      is claimed. Counted as ambiguous, both.
//!
//! **Rules for the cause**, [`cause`]:
//!
//! 5. *Fast*: clocked, and a loss was signalled: three duplicate ACKs (RFC 5681 section
//!    3.2), three segments' worth of SACK above (RFC 6675 section 4), recovery not over
//!    (NewReno's partial ACKs, RFC 6582), or fewer duplicates or SACK where nothing but an
//!    ACK can have set it off (RFC 5827's early retransmit, RACK of RFC 8985).
//! 6. *Tail loss probe* (RFC 8985 section 7): not clocked; the last segment sent, others
//!    before it outstanding; no loss signalled; nothing was sent for less than an RTO could
//!    be (path RTT + 200 ms, Linux's minimum).
//! 7. *Fast by RACK's timer* (RFC 8985 section 6.2 step 5), or paced: not clocked; a loss
//!    signalled or hinted at by SACK; the last ACK is no older than that timer waits (twice the
//!    path RTT: the RTT and a reordering window of at most one more; and [`RACK_TICKS`]); this
//!    data was last sent less than an RTO before (shortest RTT + 200 ms).
//! 8. *Timeout* (RFC 6298): not sooner than the shortest retransmission timer after it was last
//!    sent; and not clocked, or sent again before and silent since for two path
//!    RTTs and 200 ms, if the sender is more than 2 ms away, so that ACKs pass by chance. Where
//!    nothing of the other side was captured, its ACKs may have asked for it: not sooner than
//!    200 ms (Linux's TCP_RTO_MIN), and never a probe. Of what was sent before the capture began, the
//!    silence that counts is that since the connection's first segment. A lone
//!    outstanding segment is called so too, although some stacks probe with it: the wire
//!    cannot decide.
//! 9. *After a timeout*: below what was sent when the timer ran out, without another
//!    silence.
//! 10. *Unexplained*: the rest. ACKs that passed elsewhere or were not captured, most likely.

use super::connection::Step;
use super::event::{Cause, Marks};
use super::flow::{Flow, Gap};
use super::frames::Repeat;
use crate::segment::Flags;

/// Wireshark's reordering threshold where no RTT is known.
const REORDER_NANOS: i64 = 3_000_000;

/// A host's own time to answer an ACK.
const HOST_NANOS: i64 = 2_000_000;

/// Linux's TCP_RTO_MIN (include/net/tcp.h); RFC 6298 section 2.4 has one second.
const RTO_MIN_NANOS: i64 = 200_000_000;

/// The shortest retransmission timer in use: 10 ms, which data centres set ("minRTO 10ms", DIBS
/// section 5.3 and its peers; Windows takes 20 ms and more).
const SHORTEST_RTO_NANOS: i64 = 10_000_000;

/// Linux sets RACK's timer two ticks late and in whole ticks (`tcp_rack_mark_lost`): three
/// ticks of 4 ms.
const RACK_TICKS: i64 = 12_000_000;

/// A second interface's delay of a frame: 1.2 ms for 1,500 bytes at 10 Mbit/s, and the interrupts of
/// two cards, below a millisecond. No timer that sends again is as short (Linux's least for tail
/// loss probes: two ticks, TCP_TIMEOUT_MIN).
const COPY_NANOS: i64 = 2_000_000;

/// Duplicate ACKs that signal a loss (RFC 5681 section 3.2).
const DUPLICATES: u32 = 3;

/// IP identifications that stepped forward before they count as evidence.
const ID_TRUST: u8 = 4;

/// What data is that was not observed before, although later numbers were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    /// Overtaken.
    Reordered,
    /// Its first copy was lost before it came here.
    Resent,
    /// One of both: its first copy was sent before the capture began.
    Unknown,
}

/// Rule 1.
pub(super) fn captured_twice(step: &Step<'_, '_>, fwd: &Flow, rev: &Flow, repeat: Repeat) -> bool {
    if repeat.identified {
        return repeat.elapsed < RTO_MIN_NANOS;
    }
    if step.start == step.end {
        let copies = |flow: &Flow| {
            let report = flow.report.as_ref();
            report.is_some_and(|r| r.order.captured_twice > 0)
        };
        let sack = |flow: &Flow| flow.offered.sack || !flow.syn;
        return repeat.elapsed < COPY_NANOS
            && (sack(fwd) && sack(rev) || step.has(Flags::RST))
            && (!step.options.sack().is_empty() || copies(fwd) || copies(rev));
    }
    let bound = match step.options.timestamps {
        Some(_) => RTO_MIN_NANOS,
        None => COPY_NANOS,
    };
    let signalled = fwd.acks.duplicates > 0 || fwd.sacked_above(step.end) > 0;
    let since_ack = step.now.saturating_sub(fwd.acks.time);
    repeat.elapsed < bound && !(signalled && since_ack < repeat.elapsed)
}

/// Rule 4.
pub(super) fn late(step: &mut Step<'_, '_>, fwd: &mut Flow, rev: &Flow, gap: Option<&Gap>) -> Late {
    let judged = |again| if again { Late::Resent } else { Late::Reordered };
    if let Some(gap) = gap {
        if let (Some(opened), Some((own, _))) = (gap.tsval, step.options.timestamps)
            && opened != own
        {
            return judged(own.wrapping_sub(opened) as i32 > 0);
        }
        if let (Some((before, opened)), Some(own)) = (gap.ids, step.s.ip_id)
            && fwd.frames.id_trust >= ID_TRUST
            && own != opened
        {
            let window = opened.wrapping_sub(before);
            return judged(own.wrapping_sub(before) > window);
        }
    }
    let forgotten = fwd.forgotten(step.start).filter(|_| gap.is_none());
    if let (Some(opened), Some((own, _))) =
        (forgotten.and_then(|g| g.tsval), step.options.timestamps)
        && own.wrapping_sub(opened) as i32 > 0
    {
        return Late::Resent;
    }
    let gap = gap.or(forgotten.as_ref());
    if gap.is_none() && step.is_before_capture(fwd) {
        return sent_before_capture(step, fwd);
    }
    let since = gap.map_or(fwd.send.next_time, |g| g.opened);
    let elapsed = step.now.saturating_sub(since);
    let turnaround = rev.rtt.shortest;
    if elapsed < turnaround {
        return Late::Reordered;
    }
    if fwd.is_loss_signalled(step.end) {
        return Late::Resent;
    }
    step.marks.set(Marks::AMBIGUOUS);
    fwd.report().order.ambiguous += 1;
    judged(elapsed >= turnaround.max(REORDER_NANOS))
}

/// Rule 4, of what was sent before the capture began.
fn sent_before_capture(step: &mut Step<'_, '_>, fwd: &mut Flow) -> Late {
    if let (Some(first), Some((own, _))) = (fwd.send.first_tsval, step.options.timestamps)
        && first != own
    {
        return match own.wrapping_sub(first) as i32 > 0 {
            true => Late::Resent,
            false => Late::Reordered,
        };
    }
    let passed = |time: i64| step.now.saturating_sub(time) >= REORDER_NANOS;
    let arrived = step.end <= fwd.send.acked && fwd.acks.first != 0 && passed(fwd.acks.first);
    if arrived || fwd.is_loss_signalled(step.end) {
        return Late::Resent;
    }
    let again = passed(fwd.first_time);
    step.marks.set(Marks::AMBIGUOUS);
    fwd.report().order.ambiguous += 1;
    match again {
        true => Late::Resent,
        false => Late::Unknown,
    }
}

impl Flow {
    /// The other side's ACKs say that something before `end` was lost.
    fn is_loss_signalled(&self, end: u64) -> bool {
        self.acks.duplicates >= DUPLICATES || self.sacked_above(end) > 0
    }
}

/// Rules 3 and 5 to 10. `copies`: how often the data was sent again, this time included, as
/// far as it is outstanding; `last_sent`: when it, or what jumped over it, was last sent.
pub(super) fn cause(
    step: &Step<'_, '_>,
    fwd: &Flow,
    rev: &Flow,
    copies: u16,
    last_sent: Option<i64>,
) -> Cause {
    if step.has(Flags::SYN) {
        return Cause::Handshake;
    }
    if step.s.length == 0 {
        return Cause::Fin;
    }
    let now = step.now;
    let turnaround = rev.rtt.shortest;
    let path = fwd.rtt.smoothed.saturating_add(turnaround);
    let shortest = fwd.rtt.shortest.saturating_add(turnaround);
    let mss = fwd.full_segment(rev);
    let sacked = fwd.sacked_above(step.end);
    let (recovery, timeout, last_cause) = fwd
        .rare
        .as_ref()
        .map_or((0, 0, None), |r| (r.recovery, r.timeout, r.cause));

    let since_ack = now.saturating_sub(fwd.acks.time);
    let clocked = since_ack.saturating_sub(turnaround) <= turnaround / 2 + HOST_NANOS;
    // Nothing of it was captured before: at least since the capture shows the connection.
    let active = match fwd.last.data_time {
        0 if rev.observed => fwd.first_time.min(rev.first_time),
        0 => fwd.first_time,
        time => time,
    };
    let silence = now.saturating_sub(active);
    let since_sent = last_sent.map_or(silence, |sent| now.saturating_sub(sent));
    let in_recovery = step.start < recovery;
    let signalled =
        fwd.acks.duplicates >= DUPLICATES || sacked >= u64::from(DUPLICATES) * mss || in_recovery;
    let hinted = fwd.acks.duplicates > 0 || sacked > 0;

    // Where the sender is near, what comes right after an ACK comes of it.
    let backed_off = copies > 1
        && turnaround > HOST_NANOS
        && since_sent >= path.saturating_mul(2).max(RTO_MIN_NANOS);
    let silent = silence >= path.max(HOST_NANOS);
    if silent && (!clocked || backed_off) {
        let last = step.end >= fwd.send.next && step.start > fwd.send.acked;
        let probe = last && !signalled && silence < path.saturating_add(RTO_MIN_NANOS);
        let by_sack = (in_recovery || sacked > 0)
            && since_ack <= path.saturating_mul(2).saturating_add(RACK_TICKS)
            && since_sent < shortest.saturating_add(RTO_MIN_NANOS);
        // ACKs that were not captured may have asked for it.
        let shortest_rto = match rev.observed {
            true => SHORTEST_RTO_NANOS,
            false => RTO_MIN_NANOS,
        };
        return if probe && rev.observed {
            Cause::TailLossProbe
        } else if by_sack {
            Cause::Fast
        } else if since_sent >= shortest_rto {
            Cause::Timeout
        } else {
            Cause::Unexplained
        };
    }
    if step.start < timeout {
        return Cause::AfterTimeout;
    }
    if clocked && (signalled || hinted) {
        return Cause::Fast;
    }
    match last_cause {
        Some(Cause::Fast) if in_recovery => Cause::Fast,
        _ => Cause::Unexplained,
    }
}

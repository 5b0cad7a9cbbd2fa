// SPDX-License-Identifier: Apache-2.0
//! What of a segment is counted without looking at any other.

use crate::segment::Flags;
use crate::tcp::connection::Step;
use crate::tcp::event::Marks;
use crate::tcp::flow::Flow;

/// Counts what needs no other segment.
#[inline]
pub(in crate::tcp) fn count(step: &mut Step<'_, '_>, fwd: &mut Flow) {
    let s = step.s;
    if fwd.tally.is_full() {
        fwd.spill();
    }
    let t = &mut fwd.tally;
    t.packets += 1;
    t.wire_bytes += u64::from(s.wire_length);
    t.codepoints[usize::from(s.ecn & 3)] += 1;
    if fwd.observed {
        t.silence = t.silence.max(step.now.saturating_sub(fwd.last.time));
    } else {
        begin(step, fwd);
    }
    if step.has(Flags::SYN | Flags::FIN | Flags::RST | Flags::ECE | Flags::CWR) {
        count_flags(step, fwd);
    }
    if s.length > 0 {
        count_data(step, fwd);
    }
    if step.ack.is_some() {
        fwd.tally.acks += 1;
    }
    fwd.last.probe = false;
    fwd.last.keep_alive = false;
}

/// The first segment of this side that was captured.
#[cold]
fn begin(step: &Step<'_, '_>, fwd: &mut Flow) {
    fwd.first_time = step.now;
    fwd.send.first_tsval = step.options.timestamps.map(|t| t.0);
    fwd.send.floor = step.start.max(fwd.send.next);
    if fwd.send.floor > fwd.send.acked {
        fwd.acks.first = 0;
    }
}

#[inline]
fn count_data(step: &mut Step<'_, '_>, fwd: &mut Flow) {
    let s = step.s;
    let t = &mut fwd.tally.data;
    t.packets += 1;
    t.bytes += u64::from(s.length);
    if t.largest == 0 {
        t.smallest = s.length;
        fwd.first_data = step.now;
    }
    t.smallest = t.smallest.min(s.length);
    t.largest = t.largest.max(s.length);
    t.pushed += u32::from(step.has(Flags::PSH));
    if s.captured < s.length {
        t.truncated_packets += 1;
        t.truncated_bytes += u64::from(s.length - s.captured);
    }
    if step.has(Flags::URG) {
        let d = &mut fwd.report().data;
        d.urgent_packets += 1;
        d.urgent_bytes += u64::from(s.urgent);
    }
}

fn count_flags(step: &mut Step<'_, '_>, fwd: &mut Flow) {
    fwd.fins |= step.has(Flags::FIN);
    fwd.syns = fwd.syns.saturating_add(u8::from(step.has(Flags::SYN)));
    let r = fwd.report();
    if step.has(Flags::SYN) {
        r.control.syns += 1;
    } else {
        if step.has(Flags::ECE) {
            r.ecn.echoes += 1;
            step.marks.set(Marks::ECE);
        }
        if step.has(Flags::CWR) {
            r.ecn.reduced += 1;
            step.marks.set(Marks::CWR);
        }
    }
    r.control.fins += u64::from(step.has(Flags::FIN));
    r.control.resets += u64::from(step.has(Flags::RST));
}

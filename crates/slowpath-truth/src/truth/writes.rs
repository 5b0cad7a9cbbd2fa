// SPDX-License-Identifier: Apache-2.0
//! SmallWrites: what Nagle's algorithm held, and writes that could have been spared.

use super::Truth;
use super::delayed_ack::delays;
use crate::app::Span;
use crate::stream::Stream;

/// What a write costs, nanoseconds: docs/reference/verdicts.md's constant.
const WRITE: u64 = 4_000;

/// Time during which Nagle's algorithm held less than a segment, without what the receiver's
/// delayed ACKs held; and 4 us for each write beyond the segments that its bytes need and those
/// that came back, where writes are at most a quarter of a segment. The rest of a round trip
/// whose ACK was delayed is doubtful: it is either's.
pub(super) fn small_writes(stream: &Stream) -> Truth {
    let (held, doubtful) = held(stream);
    Truth::lasting(stream, held + spared(stream) * WRITE, doubtful)
}

/// The part of it that packets show: what Nagle's algorithm held.
pub(super) fn held_back(stream: &Stream) -> Truth {
    let (held, doubtful) = held(stream);
    Truth::lasting(stream, held, doubtful)
}

/// A write on average without answers, in segments: of a stream the next write completes what is held
/// of the one before, and as much arrives. 0 where there are answers.
fn one_way_write(stream: &Stream) -> f64 {
    let writes = stream.written.len() as u64;
    let bytes = stream.written.last().map_or(0, |step| step.total);
    let back = stream.heard.iter().filter(|h| h.data).count() as u64;
    match back * 4 < writes && stream.mss > 0 {
        true => bytes as f64 / (writes * stream.mss) as f64,
        false => 0.0,
    }
}

/// For how long Nagle's algorithm held something, and for how long it is doubtful, nanoseconds. Between half a segment and a
/// segment on average it is doubtful whether the next write comes in time.
fn held(stream: &Stream) -> (u64, u64) {
    let write = one_way_write(stream);
    if write >= 1.0 {
        return (0, 0);
    }
    let delays = delays(stream);
    let cycles: Vec<Span> = delays.iter().map(|(cycle, _)| *cycle).collect();
    let waits: Vec<Span> = delays.iter().map(|(_, wait)| *wait).collect();
    let (mut held, mut doubtful) = (0, 0);
    for (span, state) in stream.states() {
        if !stream.nodelay && !state.repairing && state.nagle(stream.mss) {
            let within = overlap(&cycles, span);
            held += span.length() - within;
            doubtful += within.saturating_sub(overlap(&waits, span));
        }
    }
    match write >= 0.5 {
        true => (0, held + doubtful),
        false => (held, doubtful),
    }
}

/// Writes beyond the segments that their bytes need.
fn spared(stream: &Stream) -> u64 {
    let writes = stream.written.len() as u64;
    let bytes = stream.written.last().map_or(0, |step| step.total);
    if writes == 0 || stream.mss == 0 || bytes / writes > stream.mss / 4 {
        return 0;
    }
    let back = stream.heard.iter().filter(|h| h.data).count() as u64;
    writes.saturating_sub(bytes / stream.mss + back)
}

/// How much of a span lies within others.
fn overlap(others: &[Span], span: Span) -> u64 {
    let within = |d: &Span| d.to.min(span.to).saturating_sub(d.from.max(span.from));
    let sum: u64 = others.iter().map(within).sum();
    sum.min(span.length())
}

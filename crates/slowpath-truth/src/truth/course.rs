// SPDX-License-Identifier: Apache-2.0
//! What one end's packets and its application show, beside problems: queues on its path, unread data,
//! pauses and waits.

use crate::repair::{Cause, repairs};
use crate::stream::Stream;

/// What one end's packets and its application show, beside problems.
#[derive(Clone, Copy, Debug, Default)]
pub struct Course {
    /// How long data that it sent waited on its way in the mean, beyond the least; nanoseconds.
    pub queue: u64,
    /// The least time from a segment's departure to its acknowledgement, nanoseconds.
    pub least_rtt: u64,
    /// Something was sent again, other than a probe, or came out of order.
    pub disturbed: bool,
    /// The part of the time that its SYNs waited, 0 to 1.
    pub opening: f64,
    /// The part of the time in which something had reached it that its application had not read, 0 to 1.
    pub unread: f64,
    /// The part of the time that a quicker reader would leave: what it was sent takes at least a round trip for each
    /// full window, 0 to 1.
    pub round_trips: f64,
    /// How long its application took from what it read to its next write, nanoseconds.
    pub own: u64,
    /// How long it waited from its last write until it read, nanoseconds.
    pub waited: u64,
}

impl Course {
    /// Of the sender of `ours`; `theirs` is the other direction.
    pub fn of(ours: &Stream, theirs: &Stream) -> Self {
        let delay = |s: &crate::stream::Sent| Some(s.arrived? - s.at);
        let delays: Vec<u64> = ours.sent.iter().filter_map(delay).collect();
        let least = delays.iter().copied().min().unwrap_or(0);
        let mean = delays.iter().sum::<u64>() / (delays.len() as u64).max(1);
        let again = repairs(ours).iter().any(|r| r.cause != Cause::Probe);
        let behind = ours.arrivals.windows(2).any(|two| two[1].1 < two[0].1);
        let (own, waited) = turns(ours, theirs);
        Course {
            queue: mean - least,
            least_rtt: least_rtt(ours),
            disturbed: again || behind,
            opening: opening(ours),
            unread: unread(theirs),
            round_trips: round_trips(theirs),
            own,
            waited,
        }
    }
}

/// The least time from a segment's departure to its acknowledgement.
fn least_rtt(stream: &Stream) -> u64 {
    let rtt = stream.sent.iter().filter_map(|s| {
        let heard = stream.heard.partition_point(|h| h.at <= s.at);
        let answer = stream.heard[heard..].iter().find(|h| h.ack >= s.end)?;
        Some(answer.at - s.at)
    });
    rtt.min().unwrap_or(0)
}

/// The part of the time that all that arrived takes at least, by one largest window a round trip.
fn round_trips(stream: &Stream) -> f64 {
    let bytes = stream.arrivals.iter().map(|&(_, _, end)| end).max();
    let window = stream.answered.iter().map(|a| a.window).max();
    let windows = bytes.unwrap_or(0) as f64 / window.unwrap_or(0).max(1) as f64;
    let time = windows * least_rtt(stream) as f64;
    (time / (stream.to - stream.from).max(1) as f64).min(1.0)
}

/// The part of the time from the first SYN to the last.
fn opening(stream: &Stream) -> f64 {
    let (first, last) = (stream.syns.first(), stream.syns.last());
    let waited = last.zip(first).map_or(0, |(last, first)| last - first);
    waited as f64 / (stream.to - stream.from).max(1) as f64
}

/// The part of the time in which something that had arrived was not read.
fn unread(stream: &Stream) -> f64 {
    let arrivals = stream.arrivals.iter().map(|&(at, _, end)| (at, end, 0));
    let reads = stream.read.iter().map(|step| (step.at, 0, step.total));
    let mut events: Vec<(u64, u64, u64)> = arrivals.chain(reads).collect();
    events.sort_unstable();
    let (mut arrived, mut read, mut since, mut time) = (0, 0, stream.from, 0);
    for (at, end, total) in events.into_iter().chain([(stream.to, 0, 0)]) {
        let at = at.clamp(since, stream.to.max(since));
        if arrived > read {
            time += at - since;
        }
        since = at;
        (arrived, read) = (end.max(arrived), total.max(read));
    }
    time as f64 / (stream.to - stream.from).max(1) as f64
}

/// The application's calls in order: times from reads to writes, and from writes to reads.
fn turns(ours: &Stream, theirs: &Stream) -> (u64, u64) {
    let writes = ours.written.iter().map(|step| (step.at, true));
    let reads = theirs.read.iter().map(|step| (step.at, false));
    let mut calls: Vec<(u64, bool)> = writes.chain(reads).collect();
    calls.sort_unstable();
    let (mut own, mut waited) = (0, 0);
    for two in calls.windows(2) {
        let time = two[1].0 - two[0].0;
        match (two[0].1, two[1].1) {
            (false, true) => own += time,
            (true, false) => waited += time,
            _ => {}
        }
    }
    (own, waited)
}

// SPDX-License-Identifier: Apache-2.0
//! ReceiverAppSlow: what has arrived is not read.

use super::Truth;
use crate::stream::Stream;

enum Event {
    Arrived(u64, u64),
    Answered(u64),
    Read(u64),
}

/// More than three times as much has arrived in order and is not read as the sender is still
/// allowed to send: a quarter of the window is left. `stream` is the direction in which this end
/// receives.
pub(super) fn slow_application(stream: &Stream) -> Truth {
    let arrivals = stream.arrivals.iter();
    let arrivals = arrivals.map(|&(at, start, end)| (at, Event::Arrived(start, end)));
    let answers = stream.answered.iter();
    let answers = answers.map(|a| (a.at, Event::Answered(a.ack + a.window)));
    let reads = stream.read.iter().map(|r| (r.at, Event::Read(r.total)));
    let mut events: Vec<_> = arrivals.chain(answers).chain(reads).collect();
    events.sort_by_key(|(at, _)| *at);
    let (mut time, mut since) = (0, stream.from);
    let (mut next, mut edge, mut read) = (0, 0, 0);
    // What came beyond a gap, by its beginning.
    let mut beyond = std::collections::BTreeMap::<u64, u64>::new();
    let slow = |next: u64, edge: u64, read: u64| {
        next.saturating_sub(read) > 3 * u64::saturating_sub(edge, next)
    };
    for (at, event) in events {
        let at = at.clamp(stream.from, stream.to);
        if slow(next, edge, read) {
            time += at - since;
        }
        since = at;
        match event {
            Event::Arrived(start, end) => {
                let known = beyond.entry(start).or_insert(end);
                *known = end.max(*known);
                while let Some((&start, &end)) = beyond.first_key_value()
                    && start <= next
                {
                    next = next.max(end);
                    beyond.remove(&start);
                }
            }
            Event::Answered(to) => edge = to,
            Event::Read(total) => read = total,
        }
    }
    if slow(next, edge, read) {
        time += stream.to - since;
    }
    Truth::lasting(stream, time, 0)
}

// SPDX-License-Identifier: Apache-2.0
//! How long a cause held a message up, by the packets at its hosts only. Nothing here knows a socket's state.

use super::plants::{Cause, Plant, SEGMENT};
use slowpath_recording::headers::Header;

/// `window scale` of RFC 7323 section 2.2.
const SCALE: u8 = 3;
/// An acknowledgment that costs less is not counted (`slowpath_explain::PAUSE`).
const PAUSE_NS: u64 = 1_000_000;

/// What a capture at the sender shows after each packet.
#[derive(Clone, Copy, Default)]
struct Flight {
    /// The first byte that was never sent.
    highest: u64,
    acknowledged: u64,
    /// The first byte that the receiver has no room for.
    edge: u64,
}

/// A packet at the sender, and what it changed.
struct Event<'a> {
    header: &'a Header,
    before: Flight,
    after: Flight,
}

impl Event<'_> {
    fn is_data(&self) -> bool {
        self.header.forward && self.header.payload > 0
    }

    /// Data that had been sent before.
    fn is_again(&self) -> bool {
        self.is_data() && u64::from(self.header.sequence) - 1 < self.before.highest
    }

    fn is_progress(&self) -> bool {
        self.is_data() || self.after.acknowledged > self.before.acknowledged
    }

    fn at(&self) -> u64 {
        self.header.at.0
    }
}

/// Nanoseconds, of the message that is the connection's first; `headers`: at the sender and at the receiver.
pub fn held_up(plant: &Plant, headers: &[Vec<Header>; 2]) -> u64 {
    let events = events(&headers[0]);
    match plant.cause {
        Cause::CongestionWindow => blocked(plant, &events, false),
        Cause::ReceiveWindow | Cause::Reader => blocked(plant, &events, true),
        Cause::Timer | Cause::Probe => repaired(&events, false),
        Cause::FastRetransmission => repaired(&events, true),
        Cause::DelayedAck => delayed(plant, &events, &headers[1]),
        Cause::Writer => nothing_to_send(plant, &events),
    }
}

fn events(headers: &[Header]) -> Vec<Event<'_>> {
    let mut now = Flight::default();
    let mut scale = 0;
    let of = |header| {
        let before = now;
        let header: &Header = header;
        if header.forward {
            let end = u64::from(header.sequence.saturating_sub(1)) + u64::from(header.payload);
            now.highest = now.highest.max(end);
        } else if let Some(number) = header.acknowledgment {
            let option = header.options.iter().find(|(kind, _)| *kind == SCALE);
            let opens = header.flags & 2 != 0;
            if let (true, Some((_, shift))) = (opens, option) {
                scale = shift[0];
            }
            let number = u64::from(number.saturating_sub(1));
            now.acknowledged = now.acknowledged.max(number);
            let shift = if opens { 0 } else { scale };
            now.edge = now.edge.max(number + (u64::from(header.window) << shift));
        }
        Event {
            header,
            before,
            after: now,
        }
    };
    headers.iter().map(of).collect()
}

/// The times in which bytes of the message were left to send, and the receive window had no room for the next segment; or had, and still nothing was sent.
fn blocked(plant: &Plant, events: &[Event<'_>], receive: bool) -> u64 {
    let begun = events.iter().position(Event::is_data);
    let events = &events[begun.unwrap_or(events.len())..];
    let pairs = events.windows(2);
    pairs
        .filter(|pair| {
            let now = pair[0].after;
            let left = plant.bytes - now.highest.min(plant.bytes);
            let room = now.edge.saturating_sub(now.highest);
            left > 0 && (room < left.min(SEGMENT)) == receive
        })
        .map(|pair| pair[1].at() - pair[0].at())
        .sum()
}

/// From the last progress until bytes were sent again: by what arrived at that moment, or by a timer.
fn repaired(events: &[Event<'_>], answered: bool) -> u64 {
    let mut sum = 0;
    let mut progress = 0;
    let mut recovering = false;
    let mut place = 0;
    while let Some(first) = events.get(place) {
        let at = first.at();
        let moment = events[place..].iter().take_while(|it| it.at() == at);
        let moment: Vec<&Event<'_>> = moment.collect();
        let again = moment.iter().any(|it| it.is_again());
        let arrived = moment.iter().any(|it| !it.header.forward);
        if again && arrived == answered && !(answered && recovering) {
            sum += at - progress;
        }
        recovering |= again;
        if moment.iter().any(|it| it.is_progress()) {
            progress = at;
        }
        place += moment.len();
    }
    sum
}

/// Until acknowledgments that the receiver sent at a time when nothing had arrived, from the last progress on, while bytes were left to send.
fn delayed(plant: &Plant, events: &[Event<'_>], receiver: &[Header]) -> u64 {
    let arrivals: std::collections::BTreeSet<u64> = receiver
        .iter()
        .filter(|it| it.forward)
        .map(|it| it.at.0)
        .collect();
    let late = receiver
        .iter()
        .filter(|it| !it.forward && it.payload == 0 && !arrivals.contains(&it.at.0));
    let late: std::collections::BTreeSet<Option<u32>> = late.map(|it| it.acknowledgment).collect();
    let (mut sum, mut progress) = (0, 0);
    for event in events {
        let advances = event.after.acknowledged > event.before.acknowledged;
        let left = event.before.highest < plant.bytes;
        if left && advances && late.contains(&event.header.acknowledgment) {
            let took = event.at() - progress;
            sum += if took > PAUSE_NS { took } else { 0 };
        }
        if event.is_progress() {
            progress = event.at();
        }
    }
    sum
}

/// All that the application had written until then was sent.
fn nothing_to_send(plant: &Plant, events: &[Event<'_>]) -> u64 {
    let Some(writes) = plant.writes else {
        return 0;
    };
    let begun = events.iter().position(Event::is_data);
    let events = &events[begun.unwrap_or(events.len())..];
    let first = events.first().map_or(0, Event::at);
    let data: Vec<&Event<'_>> = events.iter().filter(|it| it.is_data()).collect();
    data.windows(2)
        .map(|pair| {
            let sent = pair[0].after.highest;
            // The call that hands over the next byte.
            let call = first + sent / writes.bytes * writes.every_ns;
            let whole = sent % writes.bytes == 0;
            let until = call.min(pair[1].at());
            if whole {
                until.saturating_sub(pair[0].at())
            } else {
                0
            }
        })
        .sum()
}

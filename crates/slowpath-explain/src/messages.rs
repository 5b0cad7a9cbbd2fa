// SPDX-License-Identifier: Apache-2.0
//! Messages, and what they would have taken.

use super::timeline::Timeline;
use slowpath_recording::{Handler, Moment};
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

/// Bytes that an application wrote as one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The end that sent it: 0 connected, 1 accepted.
    pub end: u8,
    /// Among those of its end, from 0.
    pub number: usize,
    /// Its place in the end's stream.
    pub bytes: Range<u64>,
    /// The call that began it, among the end's runs.
    pub run: usize,
    /// When that was.
    pub begun: Moment,
    /// When the other end had all of it in order, by the clock of the end that sent; `None`: never.
    pub done: Option<Moment>,
}

impl Message {
    /// From the call until the other end had all of it.
    pub fn duration(&self) -> Option<Duration> {
        let done = self.done?;
        Some(Duration::from_nanos(done.0.saturating_sub(self.begun.0)))
    }
}

/// Where an end's stream is cut into messages. A call begins a message unless
///
/// 1. it is made while earlier bytes are not acknowledged (DETER section 5.1: a message may take several calls), and
/// 2. the application had not stopped: the call before was taken in part only, or was made no longer than a smoothed round trip ago (that of the handshake before there is one). DETER has no
///    such second condition: its Spark connections carry one message at a time, while requests of its section 5.2 follow each other before the
///    earlier ones are acknowledged, and only the application can distinguish them.
pub(super) fn messages(timeline: &Timeline<'_>, end: usize) -> Vec<Message> {
    let mut found: Vec<Message> = Vec::new();
    let mut written = 0u64;
    let mut before: Option<(Moment, bool)> = None;
    let opening = handshake(timeline, end).unwrap_or(0);
    for (run, step) in timeline.steps[end].iter().enumerate() {
        let Handler::Send { bytes, result, .. } = step.handler else {
            continue;
        };
        let taken = u64::try_from(*result).unwrap_or(0);
        let whole = taken == u64::from(*bytes);
        let smoothed = step.after.map_or(0, |state| state.srtt()) * 1000;
        let trip = if smoothed > 0 { smoothed } else { opening };
        let goes_on = before.is_some_and(|(at, whole)| {
            step.acknowledged < written && (!whole || step.at.0.saturating_sub(at.0) <= trip)
        });
        before = Some((step.at, whole));
        match found.last_mut() {
            Some(last) if goes_on => last.bytes.end += taken,
            _ if taken > 0 => found.push(Message {
                end: end as u8,
                number: found.len(),
                bytes: written..written + taken,
                run,
                begun: step.at,
                done: None,
            }),
            _ => {}
        }
        written += taken;
    }
    found
}

/// When the other end had the bytes up to there in order: the run of it, which is by its own clock.
pub(super) fn completing(timeline: &Timeline<'_>, end: usize, up_to: u64) -> Option<usize> {
    arrival(timeline, end, |there| there.in_order() >= up_to)
}

/// When the other end had these bytes, whatever lacked before them.
pub(super) fn arrived(timeline: &Timeline<'_>, end: usize, bytes: &Range<u64>) -> Option<usize> {
    arrival(timeline, end, |there| there.hold(bytes))
}

/// The first run of the other end after which so much is there.
fn arrival(timeline: &Timeline<'_>, end: usize, enough: impl Fn(&Pieces) -> bool) -> Option<usize> {
    let mut there = Pieces::default();
    let steps = timeline.steps[1 - end].iter();
    let got = steps.map(|step| timeline.packets[end].get(step.packet()?));
    for (run, packet) in got.enumerate() {
        let Some(packet) = packet else {
            continue;
        };
        there.add(packet.bytes.clone());
        if enough(&there) {
            return Some(run);
        }
    }
    None
}

/// Bytes that are there, in ranges that do not touch.
#[derive(Default)]
struct Pieces(Vec<Range<u64>>);

impl Pieces {
    fn add(&mut self, mut range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.0.retain(|known| {
            let separate = known.end < range.start || range.end < known.start;
            if !separate {
                range = range.start.min(known.start)..range.end.max(known.end);
            }
            separate
        });
        self.0.push(range);
    }

    fn hold(&self, bytes: &Range<u64>) -> bool {
        let mut pieces = self.0.iter();
        pieces.any(|it| it.start <= bytes.start && bytes.end <= it.end)
    }

    fn in_order(&self) -> u64 {
        let first = self.0.iter().find(|range| range.start == 0);
        first.map_or(0, |range| range.end)
    }
}

/// What is known of a connection's path, from the connection itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkPath {
    /// The shortest time from a packet to its acknowledgment, of packets that were sent once; of the handshake if there is none.
    pub round_trip: Duration,
    /// The highest rate at which packets came in, in bytes a second; `None`: there were no two that followed each other without a pause of the application.
    pub rate: Option<u64>,
}

/// Packets in a row that give a rate; of a short connection fewer, so that a loss does not stand in each row.
const TRAIN: usize = 10;
const ROWS: usize = 3;

pub(super) fn path(timeline: &Timeline<'_>, end: usize) -> Option<NetworkPath> {
    let packets = &timeline.packets[end];
    let (mut next, mut highest) = (0, 0);
    let mut shortest: Option<u64> = None;
    for step in &timeline.steps[end] {
        let mut least: Option<u64> = None;
        // Not of what was lost or sent again (Karn's rule, RFC 6298 section 3), nor of what the same acknowledgment covers: that waited for it.
        let mut waited = false;
        while let Some(packet) = packets.get(next) {
            if packet.bytes.end > step.acknowledged || packet.at > step.at {
                break;
            }
            if packet.has_data() {
                waited |= packet.got.is_none() || packet.bytes.start < highest;
                let trip = step.at.0 - packet.at.0;
                least = Some(least.map_or(trip, |least| least.min(trip)));
            }
            highest = highest.max(packet.bytes.end);
            next += 1;
        }
        if let (Some(trip), false) = (least, waited) {
            shortest = Some(shortest.map_or(trip, |shortest| shortest.min(trip)));
        }
    }
    let shortest = shortest.or_else(|| handshake(timeline, end))?;
    Some(NetworkPath {
        round_trip: Duration::from_nanos(shortest),
        rate: rate(timeline, end),
    })
}

/// The highest rate of packets that came in one after the other. A packet that the application's next call sent does not count as one after that before it, nor does what was sent
/// again: pauses and repairs are not the path's.
fn rate(timeline: &Timeline<'_>, end: usize) -> Option<u64> {
    let packets = &timeline.packets[end];
    let mut called = BTreeSet::new();
    for step in &timeline.steps[end] {
        let all_sent = step.before.is_some_and(|state| state.unsent() == 0);
        if matches!(step.handler, Handler::Send { .. }) && all_sent {
            let next = (step.sent.start..packets.len()).find(|number| packets[*number].has_data());
            called.extend(next);
        }
    }
    let mut trains: Vec<Vec<(u64, u64)>> = vec![Vec::new()];
    for step in &timeline.steps[1 - end] {
        let Some((number, packet)) = step.packet().and_then(|it| Some((it, packets.get(it)?)))
        else {
            continue;
        };
        if !packet.has_data() {
            continue;
        }
        if packet.again || called.contains(&number) {
            trains.push(Vec::new());
        }
        let arrival = (step.at.0, packet.bytes.end - packet.bytes.start);
        trains.last_mut()?.push(arrival);
    }
    let all: usize = trains.iter().map(Vec::len).sum();
    let longest = trains.iter().map(Vec::len).max()?;
    let row = (all / ROWS).clamp(2, TRAIN).min(longest);
    if row < 2 {
        return None;
    }
    let rows = trains.iter().flat_map(|train| train.windows(row));
    rows.filter_map(|row| {
        let bytes: u64 = row[1..].iter().map(|(_, bytes)| bytes).sum();
        let time = row[row.len() - 1].0 - row[0].0;
        (bytes * 1_000_000_000).checked_div(time)
    })
    .max()
}

/// From a SYN or SYN-ACK to what came next, if it was sent once: small packets take less than those with data.
fn handshake(timeline: &Timeline<'_>, end: usize) -> Option<u64> {
    let opening = timeline.packets[end].first()?;
    let again = timeline.packets[end].get(1);
    let answer = timeline.steps[end]
        .iter()
        .find(|step| step.packet().is_some() && step.at > opening.at)?;
    let once = again.is_none_or(|it| it.at >= answer.at);
    (opening.got.is_some() && once).then(|| answer.at.0 - opening.at.0)
}

/// What that many bytes take on a path with no other traffic: rounds of slow start from a `window` in bytes, no faster than the path; until the last has arrived.
pub fn unimpeded(bytes: u64, window: u64, path: &NetworkPath) -> Duration {
    let trip = path.round_trip.as_nanos() as u64;
    let on_line = |bytes: u64| match path.rate {
        Some(rate) => (u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1))) as u64,
        None => 0,
    };
    let (mut left, mut window, mut time) = (bytes, window.max(1), 0u64);
    // Once a window takes longer than a round trip the line is never idle.
    while left > window && on_line(window) < trip {
        left -= window;
        time = time.saturating_add(trip);
        window = window.saturating_mul(2);
    }
    Duration::from_nanos(time.saturating_add(on_line(left)).saturating_add(trip / 2))
}

// SPDX-License-Identifier: Apache-2.0
//! Infers the runs of one end: between which packets its calls were.
//!
//! 1. A call that moved bytes ended when they had been moved: before the first packet at whose beginning the socket had that much written, or read.
//! 2. A call that had moved a part of them had begun; it resumes before the next packet at which it has moved more.
//! 3. The call that held the lock handled a packet that waited in the backlog: at the call's end, if it had just moved its last byte; else within the call. A sender whose
//!    buffer is full releases the lock; every other call handles the backlog while it holds the lock.
//! 4. A call that moved nothing (an end of file, an error) is placed before the call that follows it.
//! 5. A timer is placed by the identification of the next packet, then by time. A timer that found the lock taken left a note: it, and what the backlog put off, runs when the call
//!    releases the lock.
//! 6. Packets in states for which no tracepoint exists (after the end has closed) are the further ones that its peer sent, in their order.

use super::memory;
use super::moments::{Clock, Packet, again, begun, delay, first, handshake, moment};
use super::numbers::Numbers;
use super::piece::{Event, Observation, STATES, TimerEvent, index};
use super::side::{Before, Side};
use super::ticks::Ticks;
use slowpath_recording::fields::Field;
use slowpath_recording::{Decision, Handler, Moment, Outcome, Queue, Run};
use std::collections::HashMap;

/// `enum tcp_state`.
mod state {
    pub const ESTABLISHED: u8 = 1;
    pub const FIN_WAIT1: u8 = 4;
    pub const CLOSE: u8 = 7;
    pub const CLOSE_WAIT: u8 = 8;
    pub const LAST_ACK: u8 = 9;
}

/// `SHUTDOWN_MASK`.
const BOTH: u8 = 3;

/// The fields of the socket that a block begins with (`read_state` of the probe); `None`: each packet carries it, or only clocks decide it.
const STATE_FIELDS: [Option<Field>; STATES] = [
    None,
    Some(Field::SendWindow),
    Some(Field::ReceiveThreshold),
    Some(Field::CongestionWindow),
    Some(Field::SlowStartThreshold),
    Some(Field::PacketsOut),
    Some(Field::TotalRetransmitted),
    Some(Field::Reordering),
    None,
    Some(Field::ReceiveBuffer),
    Some(Field::SendBuffer),
    Some(Field::WindowClamp),
];

/// Data that an acknowledgment permits is sent within that time, in nanoseconds.
const MOST_AGAIN: u64 = 1_000_000;
/// `TCPF_ACK_DEFERRED`.
const ACKNOWLEDGMENT_DEFERRED: u32 = 1 << 6;
/// Place of `srtt_us` in what a block begins with.
const SMOOTHED_RTT: usize = 8;
pub(super) struct RunInference<'a> {
    side: &'a Side,
    numbers: Numbers,
    places: std::vec::IntoIter<i64>,
    runs: Vec<(Clock, Handler, Vec<Outcome>)>,
    /// The socket's state before runs at whose beginning the recorder read it, by place.
    before: HashMap<usize, (u16, u32)>,
    call: usize,
    written: u32,
    read: u32,
    /// The call under way has moved so much.
    begun: Option<i32>,
    /// The last value recorded of each field.
    recorded: [Option<u32>; Field::COUNT],
    last_number: u32,
    /// When the first packet left of what calls sent before the next observation, in microseconds: if nothing was in flight.
    sent_first: Option<u64>,
    /// Clocks of state changes by packets for which no tracepoint fired.
    untraced: Vec<u64>,
    /// Timers that are not among the runs yet.
    timers: std::slice::Iter<'a, TimerEvent>,
    /// Of those, timers that fired while a call held the lock.
    waiting: Vec<&'a TimerEvent>,
    /// Deferred work for when the call releases the lock (`sk_tsq_flags`).
    put_off: u32,
    /// How long the handshake's packets took to this end.
    handshake: u64,
    /// How many packets the other end had sent, and its last reading of the clock then.
    sent: Vec<(u32, u64)>,
    pub(super) gap: Option<usize>,
}

impl<'a> RunInference<'a> {
    /// `first`: the number of the first packet that the tracepoint can report.
    pub(super) fn new(
        side: &'a Side,
        peer: &'a Side,
        numbers: Numbers,
        places: Vec<i64>,
        first: u32,
    ) -> RunInference<'a> {
        let mut most = 0;
        let (clocks, next): (Vec<u64>, Vec<u16>) = peer.sent().unzip();
        let totals = numbers.totals(next.into_iter()).zip(clocks);
        let sent = totals.map(|(total, at)| {
            most = total.max(most);
            (most, at)
        });
        let sent: Vec<(u32, u64)> = sent.collect();
        RunInference {
            side,
            numbers,
            places: places.into_iter(),
            runs: Vec::new(),
            before: HashMap::new(),
            call: 0,
            written: side.opened.words[index::WRITTEN],
            read: side.opened.words[index::READ],
            begun: None,
            recorded: [None; Field::COUNT],
            last_number: first,
            sent_first: None,
            untraced: Vec::new(),
            timers: side.timers.iter(),
            waiting: Vec::new(),
            put_off: 0,
            handshake: handshake(&side.opened, &peer.opened),
            sent,
            gap: None,
        }
    }

    fn push(&mut self, clock: Clock, handler: Handler) {
        let waited = matches!(handler, Handler::Packet { backlog: true, .. });
        let by_call = !matches!(handler, Handler::Packet { .. } | Handler::Timer { .. });
        if !waited {
            self.release();
        }
        self.runs.push((clock, handler, Vec::new()));
        if waited {
            self.put_off |= ACKNOWLEDGMENT_DEFERRED;
        }
        if by_call {
            for fired in std::mem::take(&mut self.waiting) {
                self.put_off |= fired.note();
                let at = Clock::TimerEvent(fired.at);
                self.runs.push((at, fired.handler(), Vec::new()));
            }
        }
    }

    /// Work that was put off while a call held the lock is done when the call releases it.
    fn release(&mut self) {
        let flags = std::mem::take(&mut self.put_off);
        if flags != 0 {
            self.runs
                .push((Clock::Same, Handler::Release { flags }, Vec::new()));
        }
    }

    fn packet(number: u32, marked: bool, backlog: bool, merged: u16) -> Handler {
        Handler::Packet {
            number,
            marked,
            backlog,
            merged,
            truesize: 0,
        }
    }

    pub(super) fn opening(&mut self, peer: &Side) {
        let opened = &self.side.opened;
        // Each end knows by its first round trip when it had sent its part.
        let first = self
            .side
            .states
            .first()
            .map(|(_, state)| state[SMOOTHED_RTT]);
        let round_trip = u64::from(first.unwrap_or(0) >> 3) * 1000;
        if opened.end != 0 {
            let asked = match round_trip {
                0 => Clock::Sent(peer.opened.begun),
                known => Clock::Read(opened.clock.saturating_sub(known)),
            };
            self.push(asked, Self::packet(0, false, false, 1));
            self.push(Clock::Read(opened.clock), Self::packet(1, false, false, 1));
            self.push(Clock::Read(opened.clock), Handler::Accept);
            return;
        }
        let established = self.side.observations.first();
        let waited = established.is_some_and(|observed| {
            observed.owned && matches!(observed.event, Event::State { .. })
        });
        let begun = match round_trip {
            0 => opened.begun,
            known => opened.clock.saturating_sub(known),
        };
        self.push(Clock::Read(begun), Handler::Connect);
        self.push(Clock::Read(opened.clock), Self::packet(0, false, waited, 1));
        self.push(Clock::Read(opened.clock), Handler::Resume);
    }

    /// Infers the runs after the handshake.
    pub(super) fn infer(&mut self) {
        let side = self.side;
        let mut states = side.states.iter().peekable();
        for (place, observed) in side.observations.iter().enumerate() {
            if side.cut == Some(place) {
                self.gap = Some(self.runs.len());
            }
            let state = states.next_if(|(first, _)| *first == place);
            match observed.event {
                Event::Packet { marked, .. } => {
                    self.packet_arrived(place, marked, state.map(|it| &it.1));
                }
                Event::State { from, to, shutdown } => {
                    self.state_changed(observed, from, to, shutdown)
                }
            }
        }
        if side.cut == Some(side.observations.len()) {
            self.gap = Some(self.runs.len());
        }
        self.calls_until(None);
        self.after();
        self.fired_until(u64::MAX, None);
        self.release();
    }

    fn packet_arrived(&mut self, place: usize, marked: bool, state: Option<&[u32; STATES]>) {
        let observed = &self.side.observations[place];
        let next = self.side.observations.get(place + 1);
        self.sent_first = place.checked_sub(1).and_then(|before| {
            let before = &self.side.observations[before];
            // What waited is sent with the packet before.
            let waited = before.words[index::WRITTEN] != before.words[index::NEXT];
            begun(before, observed).filter(|_| !waited)
        });
        self.calls_until(Some(observed));
        let found = self.places.next().and_then(|place| self.numbers.get(place));
        let Some((number, merged)) = found else {
            self.gap.get_or_insert(self.runs.len());
            return;
        };
        self.last_number = number + u32::from(merged);
        let backlog = observed.owned && self.in_backlog(observed);
        let sent = self.sent_at(number);
        let waits = observed.words[index::WRITTEN] != observed.words[index::NEXT];
        let first = next.and_then(|next| first(observed, next));
        // Timers that fired before it arrived.
        let until = next.map_or(u64::MAX, |next| next.clock);
        let noted = observed
            .arrived
            .map(|low| self.full_clock(observed.clock, low));
        let noted = noted.or_else(|| self.answered(observed, next?));
        let arrived = match first {
            Some(first) => first.saturating_mul(1000).saturating_add(999),
            None if noted.is_some() => noted.unwrap_or(until),
            None if sent > 0 => sent.saturating_add(self.handshake),
            None => until,
        };
        self.fired_until(arrived.min(until).max(observed.clock), Some(observed.next));
        let clock = Packet {
            before: observed.clock,
            sent,
            first,
            arrived: noted,
            again: next.filter(|_| waits).and_then(|next| {
                let begun = begun(observed, next).map(|micros| micros.saturating_mul(1000));
                // Calls could not send: an acknowledgment permitted what was sent.
                let soon = |first: &u64| {
                    next.sent().saturating_sub(first.saturating_mul(1000)) < MOST_AGAIN
                };
                begun.or_else(|| first.filter(soon).map(|_| next.sent()))
            }),
        };
        self.push(
            Clock::Packet(clock),
            Self::packet(number, marked, backlog, merged),
        );
        let before = (observed.next, observed.words[index::MEMORY]);
        self.before.insert(self.runs.len() - 1, before);
        if backlog {
            self.waited(place);
        }
        self.record_state(observed, state);
    }

    /// When the acknowledgment of the packet was sent: if something was sent before the next observation, and neither a call nor a timer sent it.
    fn answered(&self, observed: &Observation, next: &Observation) -> Option<u64> {
        next.last_sent?;
        let at = next.sent();
        let calls = self.side.calls.get(self.call..).unwrap_or_default();
        let mut calls = calls.iter().take(4).filter(|call| !call.sent);
        let wrote = next.words[index::WRITTEN] != observed.words[index::WRITTEN];
        let by_call = wrote || calls.any(|call| call.clock == at as u32);
        let fired = self.timers.as_slice().first();
        let by_timer = fired.is_some_and(|fired| fired.at <= at);
        let sent = next.next != observed.next && !by_call && !by_timer && at > observed.clock;
        sent.then_some(at)
    }

    /// The memory of all packets that wait in the backlog with it counts until the last of them has been handled (`__release_sock`), and for the call that holds the lock as
    /// well: most of them arrived before the call had first read the clock.
    fn waited(&mut self, place: usize) {
        let filled = Outcome::Backlog {
            done: 0,
            bytes: memory::backlog(&self.side.observations, place),
        };
        let mut runs = self.runs.iter_mut().rev();
        if let Some((_, _, outcomes)) = runs.next() {
            outcomes.push(filled);
        }
        if let Some((_, call, outcomes)) = runs.next()
            && let Handler::Send { .. } | Handler::Receive { .. } | Handler::Resume = call
        {
            outcomes.retain(|it| it.decision() != Decision::Backlog);
            outcomes.push(filled);
            outcomes.sort_by_key(Outcome::key);
        }
    }

    /// Records what the socket's fields were before the packet, as far as they have changed since they were last recorded.
    fn record_state(&mut self, observed: &Observation, state: Option<&[u32; STATES]>) {
        let words = &observed.words;
        let acknowledged = words[index::ACKNOWLEDGED];
        let in_flight = words[index::NEXT].wrapping_sub(acknowledged);
        let mut all = vec![(Field::InFlight, in_flight)];
        all.push((
            Field::Queued,
            words[index::WRITTEN].wrapping_sub(acknowledged),
        ));
        all.push((
            Field::Unread,
            words[index::RECEIVED].wrapping_sub(words[index::READ]),
        ));
        all.push((Field::ReceiveWindow, words[index::WINDOW]));
        if let Some(state) = state {
            let known = STATE_FIELDS.iter().zip(state);
            all.extend(known.filter_map(|(field, value)| Some(((*field)?, *value))));
        }
        let Some((_, _, outcomes)) = self.runs.last_mut() else {
            return;
        };
        for (field, value) in all {
            let last = &mut self.recorded[field as usize];
            if field == Field::InFlight || *last != Some(value) {
                *last = Some(value);
                outcomes.push(Outcome::Observed { field, value });
            }
        }
        outcomes.sort_by_key(Outcome::key);
    }

    fn is_call(&self) -> bool {
        let last = self.runs.last().map(|(_, handler, _)| handler);
        last.is_some_and(|last| !matches!(last, Handler::Packet { .. } | Handler::Timer { .. }))
    }

    /// Finds the call that holds the lock, and where it handles its backlog. Returns whether there is one.
    fn in_backlog(&mut self, observed: &Observation) -> bool {
        let same_look = matches!(
            self.runs.last(),
            Some((_, Handler::Packet { backlog: true, .. }, _))
        );
        if same_look {
            return true;
        }
        if self.begun.is_none() {
            if self.is_call() {
                return true;
            }
            // One that waits, and has moved nothing.
            let words = &observed.words;
            let Some(call) = self.side.calls.get(self.call) else {
                return false;
            };
            let nothing = words[index::READ] == words[index::RECEIVED];
            if call.result <= 0 || !(if call.sent { observed.full } else { nothing }) {
                return false;
            }
            self.begin(observed.clock);
            self.begun = Some(0);
            return true;
        }
        let sent = self.side.calls.get(self.call).is_some_and(|call| call.sent);
        if self.is_call() && !(sent && observed.full) {
            let words = &observed.words;
            let queued = words[index::WRITTEN].wrapping_sub(words[index::ACKNOWLEDGED]);
            let unread = words[index::RECEIVED].wrapping_sub(words[index::READ]);
            if let Some((_, _, outcomes)) = self.runs.last_mut() {
                for (queue, bytes) in [(Queue::Unacknowledged, queued), (Queue::Unread, unread)] {
                    outcomes.push(Outcome::Flush { queue, bytes });
                }
            }
        }
        true
    }

    fn full_clock(&self, near: u64, low: u32) -> u64 {
        near.wrapping_add_signed(i64::from(low.wrapping_sub(near as u32) as i32))
    }

    fn clock(&self) -> u64 {
        let mut read = self
            .runs
            .iter()
            .rev()
            .filter_map(|(clock, _, _)| clock.read());
        read.next().unwrap_or(0)
    }

    /// Places the timers that fired before that moment, as far as is known; also by the next packet's identification, where that was read as the timer fired.
    fn fired_until(&mut self, clock: u64, next: Option<u16>) {
        while let Some(fired) = self.timers.as_slice().first() {
            let sent = next.map_or(0, |next| next.wrapping_sub(fired.next) as i16);
            if sent < 0 || (sent == 0 && fired.at > clock) {
                return;
            }
            self.timers.next();
            if fired.owned {
                self.waiting.push(fired);
                continue;
            }
            self.push(Clock::TimerEvent(fired.at), fired.handler());
            let before = (fired.next, fired.memory);
            self.before.insert(self.runs.len() - 1, before);
        }
    }

    /// `last`: the call's last reading of the clock.
    fn begin(&mut self, last: u64) {
        let Some(call) = self.side.calls.get(self.call) else {
            return;
        };
        let bytes = call.result.max(1).unsigned_abs();
        let (flags, result) = (call.flags, call.result);
        let handler = if call.sent {
            Handler::Send {
                bytes,
                flags,
                result,
            }
        } else {
            Handler::Receive {
                bytes,
                flags,
                result,
            }
        };
        let sends = call.sent && call.result > 0;
        let first = self.sent_first.take_if(|_| sends);
        let first = first.map(|micros| micros.saturating_mul(1000));
        let clock = match first.filter(|first| last.saturating_sub(*first) >= 1000) {
            Some(first) => Clock::Several(first, last),
            None => Clock::Read(last),
        };
        self.push(clock, handler);
    }

    /// Whether a later call has moved something by then.
    fn is_passed(&self, written: u32, read: u32) -> bool {
        let later = self.side.calls.get(self.call + 1..).unwrap_or_default();
        let next = later.iter().find(|call| call.result > 0);
        next.is_some_and(|call| {
            let moved = match call.sent {
                true => written.wrapping_sub(self.written),
                false => read.wrapping_sub(self.read),
            };
            moved as i32 > 0
        })
    }

    fn calls_until(&mut self, observed: Option<&Observation>) {
        while let Some(call) = self.side.calls.get(self.call) {
            // Its last reading at the latest: packets that waited in the backlog have read the clock since, and found that.
            let found = observed.map(|observed| {
                if call.sent {
                    observed.sent()
                } else {
                    observed.clock
                }
            });
            let near = found.unwrap_or_else(|| self.clock());
            let wanted = call.result.max(0);
            if let Some(observed) = observed {
                let (written, read) = (observed.words[index::WRITTEN], observed.words[index::READ]);
                let moved = match call.sent {
                    true => written.wrapping_sub(self.written),
                    false => read.wrapping_sub(self.read),
                } as i32;
                if wanted == 0 && !self.is_passed(written, read) {
                    return;
                }
                if moved < wanted {
                    match self.begun {
                        None if moved > 0 => self.begin(near),
                        Some(before) if moved > before => {
                            self.push(Clock::Read(near), Handler::Resume);
                        }
                        _ => return,
                    }
                    self.begun = Some(moved);
                    return;
                }
            }
            let last = self.full_clock(near, call.clock);
            let last = last.min(found.unwrap_or(u64::MAX));
            match self.begun.take() {
                None => {
                    self.fired_until(last, None);
                    self.begin(last);
                }
                Some(_) => self.push(Clock::Read(last), Handler::Resume),
            }
            let position = if call.sent {
                &mut self.written
            } else {
                &mut self.read
            };
            *position = position.wrapping_add(wanted as u32);
            self.call += 1;
        }
    }

    fn state_changed(&mut self, observed: &Observation, from: u8, to: u8, shutdown: u8) {
        let by_call = matches!(to, state::FIN_WAIT1 | state::LAST_ACK)
            || (to == state::CLOSE
                && matches!(from, state::ESTABLISHED | state::CLOSE_WAIT)
                && shutdown == BOTH);
        if by_call {
            let closed = shutdown == BOTH;
            self.calls_until(if closed { None } else { Some(observed) });
            let how = 1;
            let handler = match closed {
                true => Handler::Close,
                false => Handler::Shutdown { how },
            };
            self.push(Clock::Read(observed.clock), handler);
        } else if !matches!(to, state::ESTABLISHED | state::CLOSE_WAIT)
            && self.untraced.last() != Some(&observed.clock)
        {
            self.untraced.push(observed.clock);
        }
    }

    /// The other end's last reading of the clock when that packet had been sent; both ends are on one machine, so far. 0: it was not observed since.
    fn sent_at(&self, number: u32) -> u64 {
        let place = self.sent.partition_point(|(total, _)| *total <= number);
        self.sent.get(place).map_or(0, |(_, at)| *at)
    }

    /// Packets that arrived when no tracepoint fired.
    fn after(&mut self) {
        let total = self.sent.last().map_or(self.last_number, |last| last.0);
        let mut numbers: Vec<u32> = (self.last_number..total).collect();
        // Time wait acknowledges when its socket has gone.
        while numbers.len() < self.untraced.len() {
            numbers.push(numbers.last().map_or(total, |last| last + 1));
        }
        let without = numbers.len() - self.untraced.len();
        for (place, number) in numbers.into_iter().enumerate() {
            let sent = self.sent_at(number);
            let (clock, at) = match place.checked_sub(without) {
                Some(place) => (Clock::Read(self.untraced[place]), self.untraced[place]),
                None => (Clock::Sent(sent), sent.saturating_add(self.handshake)),
            };
            self.fired_until(at, None);
            self.push(clock, Self::packet(number, false, false, 1));
        }
    }

    /// Each with the first clock that was read after it had begun.
    pub(super) fn timed(self, ticks: &Ticks) -> Vec<(Run, Before)> {
        let clocks: Vec<Clock> = self.runs.iter().map(|run| run.0).collect();
        let delay = delay(&clocks).unwrap_or(self.handshake);
        let before = self.before;
        let mut last = 0;
        let timed =
            |(place, (clock, handler, mut outcomes)): (usize, (Clock, Handler, Vec<Outcome>))| {
                let at = moment(&clocks, place, clock, delay);
                last = at.max(last);
                // What it sent read it once more.
                let again = again(clock, clocks.get(place + 1));
                if let Some(again) = again
                    && again > last
                    && let Ok(after) = u32::try_from(again - last)
                {
                    outcomes.push(Outcome::Clock { reading: 1, after });
                    outcomes.sort_by_key(Outcome::key);
                }
                let run = Run {
                    at: Moment(last),
                    jiffies: ticks.at(last),
                    handler,
                    outcomes,
                    check: None,
                };
                (run, before.get(&place).copied())
            };
        self.runs.into_iter().enumerate().map(timed).collect()
    }
}

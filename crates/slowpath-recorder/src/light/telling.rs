// SPDX-License-Identifier: Apache-2.0
//! One end: between which packets its calls were.
//!
//! 1. A call that moved bytes was over when they had been moved: before the first packet at whose beginning the socket had that much written, or read.
//! 2. One that had moved a part of them had begun, and goes on before the next packet at which it has moved more.
//! 3. A packet that waited in the backlog was looked at by the call that had the lock: at its end, if it had just moved its last byte; else in its midst. A sender whose
//!    buffer is full gives the lock away; all others look at the backlog with it.
//! 4. What moved nothing (an end of file, an error) stands before the call that follows it.
//! 5. A timer stands where the identification of the next packet says, then by time. One that found the lock taken left a note: it, and what the backlog put off, is done when the call gives the
//!    lock away.
//! 6. Packets in states for which no tracepoint exists (after the end has closed) are those that its peer sent besides, in their order.

use super::memory;
use super::moments::{Clock, Packet, again, begun, delay, first, handshake, moment};
use super::numbers::Numbers;
use super::piece::{Fired, STATES, Seen, What, word};
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

/// The fields of the socket that a block begins with (`look_at` of the probe); `None`: it stands with each packet, or only clocks decide it.
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

/// What an acknowledgment lets go goes within that time, in nanoseconds.
const MOST_AGAIN: u64 = 1_000_000;
/// `TCPF_ACK_DEFERRED`.
const ACKNOWLEDGMENT_DEFERRED: u32 = 1 << 6;
/// Place of `srtt_us` in what a block begins with.
const SMOOTHED_RTT: usize = 8;
pub(super) struct Telling<'a> {
    side: &'a Side,
    numbers: Numbers,
    places: std::vec::IntoIter<i64>,
    runs: Vec<(Clock, Handler, Vec<Outcome>)>,
    /// Of runs at whose beginning the recorder looked, by place.
    before: HashMap<usize, (u16, u32)>,
    call: usize,
    written: u32,
    read: u32,
    /// The call under way has moved so much.
    begun: Option<i32>,
    /// The last value recorded of each field.
    told: [Option<u32>; Field::COUNT],
    last_number: u32,
    /// When the first packet went of what calls sent before the next look, in microseconds: if nothing was under way.
    sent_first: Option<u64>,
    unseen: Vec<u64>,
    /// Timers that are not among the runs yet.
    timers: std::slice::Iter<'a, Fired>,
    /// Of those, what fired while a call had the lock.
    waiting: Vec<&'a Fired>,
    /// Notes for when it gives it away (`sk_tsq_flags`).
    put_off: u32,
    /// How long the handshake's packets took to here.
    handshake: u64,
    /// How many packets the other end had sent, and what its clock had read then.
    sent: Vec<(u32, u64)>,
    pub(super) gap: Option<usize>,
}

impl<'a> Telling<'a> {
    /// `first`: the number of the first packet that the tracepoint can report.
    pub(super) fn new(
        side: &'a Side,
        theirs: &'a Side,
        numbers: Numbers,
        places: Vec<i64>,
        first: u32,
    ) -> Telling<'a> {
        let mut most = 0;
        let (clocks, next): (Vec<u64>, Vec<u16>) = theirs.sent().unzip();
        let totals = numbers.totals(next.into_iter()).zip(clocks);
        let sent = totals.map(|(total, at)| {
            most = total.max(most);
            (most, at)
        });
        let sent: Vec<(u32, u64)> = sent.collect();
        Telling {
            side,
            numbers,
            places: places.into_iter(),
            runs: Vec::new(),
            before: HashMap::new(),
            call: 0,
            written: side.opened.words[word::WRITTEN],
            read: side.opened.words[word::READ],
            begun: None,
            told: [None; Field::COUNT],
            last_number: first,
            sent_first: None,
            unseen: Vec::new(),
            timers: side.timers.iter(),
            waiting: Vec::new(),
            put_off: 0,
            handshake: handshake(&side.opened, &theirs.opened),
            sent,
            gap: None,
        }
    }

    fn push(&mut self, clock: Clock, handler: Handler) {
        let waited = matches!(handler, Handler::Packet { backlog: true, .. });
        let by_call = !matches!(handler, Handler::Packet { .. } | Handler::Timer { .. });
        if !waited {
            self.give_away();
        }
        self.runs.push((clock, handler, Vec::new()));
        if waited {
            self.put_off |= ACKNOWLEDGMENT_DEFERRED;
        }
        if by_call {
            for fired in std::mem::take(&mut self.waiting) {
                self.put_off |= fired.note();
                let at = Clock::Fired(fired.at);
                self.runs.push((at, fired.handler(), Vec::new()));
            }
        }
    }

    /// What was put off while a call had the lock is done when it gives it away.
    fn give_away(&mut self) {
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

    pub(super) fn opening(&mut self, theirs: &Side) {
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
                0 => Clock::Sent(theirs.opened.begun),
                known => Clock::Read(opened.clock.saturating_sub(known)),
            };
            self.push(asked, Self::packet(0, false, false, 1));
            self.push(Clock::Read(opened.clock), Self::packet(1, false, false, 1));
            self.push(Clock::Read(opened.clock), Handler::Accept);
            return;
        }
        let established = self.side.seen.first();
        let waited =
            established.is_some_and(|seen| seen.owned && matches!(seen.what, What::State { .. }));
        let begun = match round_trip {
            0 => opened.begun,
            known => opened.clock.saturating_sub(known),
        };
        self.push(Clock::Read(begun), Handler::Connect);
        self.push(Clock::Read(opened.clock), Self::packet(0, false, waited, 1));
        self.push(Clock::Read(opened.clock), Handler::Resume);
    }

    pub(super) fn all(&mut self) {
        let side = self.side;
        let mut states = side.states.iter().peekable();
        for (place, seen) in side.seen.iter().enumerate() {
            if side.cut == Some(place) {
                self.gap = Some(self.runs.len());
            }
            let state = states.next_if(|(first, _)| *first == place);
            match seen.what {
                What::Packet { marked, .. } => {
                    self.came(place, marked, state.map(|it| &it.1));
                }
                What::State { from, to, shutdown } => self.went(seen, from, to, shutdown),
            }
        }
        if side.cut == Some(side.seen.len()) {
            self.gap = Some(self.runs.len());
        }
        self.calls_until(None);
        self.after();
        self.fired_until(u64::MAX, None);
        self.give_away();
    }

    fn came(&mut self, place: usize, marked: bool, state: Option<&[u32; STATES]>) {
        let seen = &self.side.seen[place];
        let next = self.side.seen.get(place + 1);
        self.sent_first = place.checked_sub(1).and_then(|before| {
            let before = &self.side.seen[before];
            // What waited goes with the packet before.
            let waited = before.words[word::WRITTEN] != before.words[word::NEXT];
            begun(before, seen).filter(|_| !waited)
        });
        self.calls_until(Some(seen));
        let found = self.places.next().and_then(|place| self.numbers.get(place));
        let Some((number, merged)) = found else {
            self.gap.get_or_insert(self.runs.len());
            return;
        };
        self.last_number = number + u32::from(merged);
        let backlog = seen.owned && self.in_backlog(seen);
        let sent = self.sent_at(number);
        let waits = seen.words[word::WRITTEN] != seen.words[word::NEXT];
        let first = next.and_then(|next| first(seen, next));
        // What fired before it came.
        let until = next.map_or(u64::MAX, |next| next.clock);
        let noted = seen.came.map(|low| self.full_clock(seen.clock, low));
        let noted = noted.or_else(|| self.answered(seen, next?));
        let came = match first {
            Some(first) => first.saturating_mul(1000).saturating_add(999),
            None if noted.is_some() => noted.unwrap_or(until),
            None if sent > 0 => sent.saturating_add(self.handshake),
            None => until,
        };
        self.fired_until(came.min(until).max(seen.clock), Some(seen.next));
        let clock = Packet {
            before: seen.clock,
            sent,
            first,
            came: noted,
            again: next.filter(|_| waits).and_then(|next| {
                let begun = begun(seen, next).map(|micros| micros.saturating_mul(1000));
                // Calls could not send: what went, an acknowledgment let go.
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
        let before = (seen.next, seen.words[word::MEMORY]);
        self.before.insert(self.runs.len() - 1, before);
        if backlog {
            self.waited(place);
        }
        self.tell(seen, state);
    }

    /// When the acknowledgment went that the packet made: of what was sent before the next look, if neither a call nor a timer sent it.
    fn answered(&self, seen: &Seen, next: &Seen) -> Option<u64> {
        next.went?;
        let at = next.sent();
        let calls = self.side.calls.get(self.call..).unwrap_or_default();
        let mut calls = calls.iter().take(4).filter(|call| !call.sent);
        let wrote = next.words[word::WRITTEN] != seen.words[word::WRITTEN];
        let by_call = wrote || calls.any(|call| call.clock == at as u32);
        let fired = self.timers.as_slice().first();
        let by_timer = fired.is_some_and(|fired| fired.at <= at);
        let sent = next.next != seen.next && !by_call && !by_timer && at > seen.clock;
        sent.then_some(at)
    }

    /// The memory of all that waits in the backlog with it counts until the last of them has been looked at (`__release_sock`), and for the call that has the lock as
    /// well: most of it came before it had read the clock first.
    fn waited(&mut self, place: usize) {
        let filled = Outcome::Backlog {
            done: 0,
            bytes: memory::backlog(&self.side.seen, place),
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

    /// What there was before it.
    fn tell(&mut self, seen: &Seen, state: Option<&[u32; STATES]>) {
        let words = &seen.words;
        let acknowledged = words[word::ACKNOWLEDGED];
        let in_flight = words[word::NEXT].wrapping_sub(acknowledged);
        let mut all = vec![(Field::InFlight, in_flight)];
        all.push((
            Field::Queued,
            words[word::WRITTEN].wrapping_sub(acknowledged),
        ));
        all.push((
            Field::Unread,
            words[word::RECEIVED].wrapping_sub(words[word::READ]),
        ));
        all.push((Field::ReceiveWindow, words[word::WINDOW]));
        if let Some(state) = state {
            let known = STATE_FIELDS.iter().zip(state);
            all.extend(known.filter_map(|(field, value)| Some(((*field)?, *value))));
        }
        let Some((_, _, outcomes)) = self.runs.last_mut() else {
            return;
        };
        for (field, value) in all {
            let told = &mut self.told[field as usize];
            if field == Field::InFlight || *told != Some(value) {
                *told = Some(value);
                outcomes.push(Outcome::Observed { field, value });
            }
        }
        outcomes.sort_by_key(Outcome::key);
    }

    fn is_call(&self) -> bool {
        let last = self.runs.last().map(|(_, handler, _)| handler);
        last.is_some_and(|last| !matches!(last, Handler::Packet { .. } | Handler::Timer { .. }))
    }

    /// A call has the lock: which, and where it looks at its backlog. Whether there is one.
    fn in_backlog(&mut self, seen: &Seen) -> bool {
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
            let words = &seen.words;
            let Some(call) = self.side.calls.get(self.call) else {
                return false;
            };
            let nothing = words[word::READ] == words[word::RECEIVED];
            if call.result <= 0 || !(if call.sent { seen.full } else { nothing }) {
                return false;
            }
            self.begin(seen.clock);
            self.begun = Some(0);
            return true;
        }
        let sent = self.side.calls.get(self.call).is_some_and(|call| call.sent);
        if self.is_call() && !(sent && seen.full) {
            let words = &seen.words;
            let queued = words[word::WRITTEN].wrapping_sub(words[word::ACKNOWLEDGED]);
            let unread = words[word::RECEIVED].wrapping_sub(words[word::READ]);
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

    /// What fired before that moment, as far as is known. The next packet's identification may have been read then: it counts, too.
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
            self.push(Clock::Fired(fired.at), fired.handler());
            let before = (fired.next, fired.memory);
            self.before.insert(self.runs.len() - 1, before);
        }
    }

    /// `last`: what it read last of the clock.
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

    fn calls_until(&mut self, seen: Option<&Seen>) {
        while let Some(call) = self.side.calls.get(self.call) {
            // What it read last, at the latest: packets that waited in the backlog have read the clock since, and found that.
            let found = seen.map(|seen| if call.sent { seen.sent() } else { seen.clock });
            let near = found.unwrap_or_else(|| self.clock());
            let wanted = call.result.max(0);
            if let Some(seen) = seen {
                let (written, read) = (seen.words[word::WRITTEN], seen.words[word::READ]);
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

    fn went(&mut self, seen: &Seen, from: u8, to: u8, shutdown: u8) {
        let by_call = matches!(to, state::FIN_WAIT1 | state::LAST_ACK)
            || (to == state::CLOSE
                && matches!(from, state::ESTABLISHED | state::CLOSE_WAIT)
                && shutdown == BOTH);
        if by_call {
            let closed = shutdown == BOTH;
            self.calls_until(if closed { None } else { Some(seen) });
            let how = 1;
            let handler = match closed {
                true => Handler::Close,
                false => Handler::Shutdown { how },
            };
            self.push(Clock::Read(seen.clock), handler);
        } else if !matches!(to, state::ESTABLISHED | state::CLOSE_WAIT)
            && self.unseen.last() != Some(&seen.clock)
        {
            self.unseen.push(seen.clock);
        }
    }

    /// What the other end's clock had read when that packet had been sent; both ends are on one machine, so far. 0: it was not observed since.
    fn sent_at(&self, number: u32) -> u64 {
        let place = self.sent.partition_point(|(total, _)| *total <= number);
        self.sent.get(place).map_or(0, |(_, at)| *at)
    }

    /// What came when no tracepoint fired.
    fn after(&mut self) {
        let total = self.sent.last().map_or(self.last_number, |last| last.0);
        let mut numbers: Vec<u32> = (self.last_number..total).collect();
        // Time wait acknowledges when its socket has gone.
        while numbers.len() < self.unseen.len() {
            numbers.push(numbers.last().map_or(total, |last| last + 1));
        }
        let without = numbers.len() - self.unseen.len();
        for (place, number) in numbers.into_iter().enumerate() {
            let sent = self.sent_at(number);
            let (clock, at) = match place.checked_sub(without) {
                Some(place) => (Clock::Read(self.unseen[place]), self.unseen[place]),
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

// SPDX-License-Identifier: Apache-2.0
//! One end: its events become runs.
//!
//! 1. A call's run begins when it has the lock, and ends where it gives the lock away; another run of the same call begins where it has the lock again.
//! 2. Packets from the backlog and work that was put off are runs of their own between them. If the call looked at the backlog without giving the
//!    lock away, what was queued then tells where.
//! 3. A timer that found the socket in use only leaves a note for whoever gives the lock away: it stands before that one's packets.

use super::apart::Apart;
use super::bbr::Phase;
use super::building::Building;
use super::event::{Event, Found, Kind, Name};
use super::options::whole;
use super::paced::Paced;
use super::request::Request;
use super::sent::{Came, Sent};
use slowpath_recording::fields::{Field, SocketFields};
use slowpath_recording::{
    Fragment, Handler, Moment, Outcome, Packet, Queue, Reader, Refused, Run, Timer, options,
};
use std::collections::{HashMap, VecDeque};

const SYN: u32 = 0x02;
/// `INET_ECN_CE`.
pub(super) const MARKED: u32 = 3;

/// `enum call` of the probe.
pub(super) mod call {
    pub const CONNECT: u8 = 1;
    pub const ACCEPT: u8 = 2;
    pub const SEND: u8 = 4;
    pub const RECEIVE: u8 = 5;
    pub const SHUTDOWN: u8 = 7;
    pub const CLOSE: u8 = 8;
    pub const OPTION: u8 = 9;
}

const TIMERS: [Timer; 5] = [
    Timer::Write,
    Timer::DelayedAck,
    Timer::Keepalive,
    Timer::Pacing,
    Timer::CompressedAck,
];

#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) what: u8,
    pub(super) a: u32,
    pub(super) b: u32,
    /// Of an option: what it is to be, and how many bytes that are.
    pub(super) value: [u32; 2],
    pub(super) length: u32,
    /// Its first run.
    pub(super) run: Option<usize>,
}

/// What the other end of a connection has done.
#[derive(Clone, Copy)]
pub(super) struct Theirs<'a> {
    pub(super) sent: Option<&'a Sent>,
    /// It was found to be alone.
    pub(super) alone: bool,
    pub(super) request: &'a Request,
}

impl Theirs<'_> {
    fn number(self, name: Name) -> Option<Came> {
        self.sent?.number(name)
    }
}

/// A packet in the backlog.
#[derive(Clone, Copy)]
struct Queued {
    name: Name,
    /// Made part of the one before it.
    merged: bool,
}

/// An end whose events come in.
#[derive(Clone)]
pub(super) struct Side {
    /// Those that were not handed out before the end, see [`Side::settle`].
    pub(super) runs: Vec<Run>,
    pub(super) states: Vec<SocketFields>,
    /// So many were handed out before them, and the last one's check.
    pub(super) told: usize,
    pub(super) before: u32,
    /// Runs there were when losses were looked at last: those are before any that nobody placed.
    pub(super) sure: usize,
    pub(super) current: Option<Building>,
    pub(super) packets: Sent,
    pub(super) calls: HashMap<u32, Call>,
    /// The task that has the lock.
    owner: Option<u32>,
    releasing: bool,
    interrupted: bool,
    nested: bool,
    drained: Option<SocketFields>,
    pub(super) put_off: Vec<Run>,
    /// What was told before it has the lock, see `together.rs`.
    pub(super) waiting: VecDeque<Handler>,
    backlog: VecDeque<Queued>,
    /// The run that packets behind it in the backlog were merged into.
    pub(super) merging: Option<usize>,
    pub(super) gone: bool,
    /// A packet came that no socket had sent: nothing from there on can be replayed.
    pub(super) cut: bool,
    /// One came that cannot be told, and may turn out to be damaged.
    pub(super) strange: bool,
    /// Events that the recorder lost.
    pub(super) lost: u32,
    pub(super) settings: Option<Found>,
    phase: Phase,
    pub(super) paced: Paced,
    /// Its peer is elsewhere.
    pub(super) apart: Option<Box<Apart>>,
    /// Options that were set before the socket was known.
    pub(super) inherited: Vec<Handler>,
}

impl Side {
    /// `answers`: SYN-ACKs, which no socket sends.
    pub(super) fn new(answers: u32) -> Side {
        Side {
            runs: Vec::new(),
            states: Vec::new(),
            told: 0,
            before: 0,
            sure: 0,
            current: None,
            packets: Sent::new(answers),
            calls: HashMap::new(),
            owner: None,
            releasing: false,
            interrupted: false,
            nested: false,
            drained: None,
            put_off: Vec::new(),
            waiting: VecDeque::new(),
            backlog: VecDeque::new(),
            merging: None,
            gone: false,
            cut: false,
            strange: false,
            lost: 0,
            settings: None,
            phase: Phase::default(),
            paced: Paced::default(),
            apart: None,
            inherited: Vec::new(),
        }
    }

    pub(super) fn begin(&mut self, event: &Event, handler: Handler) {
        self.current = Some(Building::new(event, handler));
    }

    fn finish(&mut self, event: &Event, fields: &SocketFields) {
        if self.current.as_ref().is_some_and(|run| run.sent == 0) {
            self.looked_before();
        }
        let before = self.phase;
        if event.fields.is_some() {
            self.phase = Phase(event.more);
            self.paced.look(fields);
        }
        if let Some(mut building) = self.current.take() {
            if let Some(drawn) = self.phase.drawn(before) {
                building.outcome(Outcome::Random { nth: 0, drawn });
            }
            self.runs.push(building.ended(event));
            self.states.push(*fields);
        }
        for mut run in std::mem::take(&mut self.put_off) {
            // It only left a note, which shows now.
            if let Some(last) = self.runs.last() {
                run.at = run.at.max(last.at);
                run.jiffies = last.jiffies;
            }
            self.runs.push(run);
            self.states.push(*fields);
        }
    }

    /// Nothing from here on can be replayed.
    pub(super) fn cut(&mut self) {
        self.cut = true;
    }

    /// Runs there are, those that were handed out included.
    pub(super) fn count(&self) -> usize {
        self.told + self.runs.len()
    }

    pub(super) fn run_at(&mut self, place: usize) -> Option<&mut Run> {
        self.runs.get_mut(place.checked_sub(self.told)?)
    }

    fn has_lock(&self) -> bool {
        self.owner.is_some() && !self.releasing
    }

    /// Whether it fits.
    pub(super) fn take(&mut self, event: &Event, theirs: Theirs<'_>) -> bool {
        if event.lost != self.lost {
            self.lost = event.lost;
            self.cut = true;
        }
        if self.cut {
            self.gone |= event.kind == Kind::Gone;
            return true;
        }
        if let Some(fits) = self.goes_on_strangely(event) {
            return fits;
        }
        self.has_lock_at_last(event);
        if let Some(current) = &mut self.current {
            current.look_at_window(event);
        }
        if matches!(event.kind, Kind::Clock | Kind::Sent | Kind::Release) {
            self.option_locks(event);
        }
        let zero = SocketFields::NONE;
        let fields = event.fields.as_ref().unwrap_or(&zero);
        match event.kind {
            Kind::Open | Kind::Request | Kind::TimeWait | Kind::Options => {}
            Kind::NoRoom => self.aside(event, options::NO_ROOM),
            Kind::Metrics => return self.metrics(event),
            Kind::OtherCall => self.aside(event, options::other(event.what)),
            Kind::Settings => self.settings.clone_from(&event.settings),
            Kind::Call => self.call(event),
            Kind::CallEnd => {
                let Some(call) = self.calls.remove(&event.task) else {
                    // Once more, to see what has become of the first one.
                    return event.what == call::CONNECT;
                };
                match call.what {
                    call::OPTION => self.option_returned(&call, event),
                    _ => self.returned(call, whole(event.a as i32)),
                }
            }
            Kind::Lock => self.lock(event),
            Kind::Release => {
                self.finish(event, fields);
                self.releasing = true;
                let call = self.calls.get(&event.task);
                let ends = |it: &Call| matches!(it.what, call::ACCEPT | call::SHUTDOWN);
                if call.is_some_and(|call| ends(call) && call.run.is_some()) {
                    self.calls.remove(&event.task);
                }
            }
            Kind::Drain => {
                self.drained = event.fields;
                self.interrupted = false;
            }
            Kind::Drained => {
                self.merged(self.backlog.len(), theirs);
                self.merging = None;
                if self.interrupted && self.has_lock() {
                    self.begin(event, Handler::Resume);
                }
                self.interrupted = false;
            }
            Kind::Callback => {
                // After the lock was given away only what was put off is left of the call.
                self.finish(event, fields);
                self.begin(event, Handler::Release { flags: event.a });
            }
            Kind::CallbackEnd => {
                self.finish(event, fields);
                if self.has_lock() {
                    self.begin(event, Handler::Resume);
                }
            }
            Kind::Packet => return self.packet(event, theirs),
            Kind::RunEnd => self.run_end(event, fields),
            Kind::Timer => {
                let Some(timer) = TIMERS.get(usize::from(event.what)) else {
                    return false;
                };
                let timer = *timer;
                let deferred = event.owned;
                self.by_itself(event, Handler::Timer { timer, deferred });
            }
            Kind::SmallQueue => {
                let pacing = Handler::Timer {
                    timer: Timer::Pacing,
                    deferred: false,
                };
                let inside = self.current.as_ref();
                if inside.is_some_and(|inside| inside.run.handler == pacing) {
                    self.nested = true;
                } else {
                    self.by_itself(event, Handler::SmallQueue);
                }
            }
            // It has only one beginning.
            Kind::Clock if event.what == 1 && self.count() > 0 => return false,
            Kind::Clock if event.what == 1 => self.child(event, theirs),
            Kind::Clock => return self.clock(event),
            Kind::Sent => {
                self.sends(event);
                self.packets.sent(Packet {
                    run: self.count() as u64,
                    id: event.d as u16,
                    begins: event.a,
                    length: event.b.wrapping_sub(event.a),
                    mark: 0,
                });
                if let Some(current) = &mut self.current {
                    current.tick(event.jiffies);
                    current.window(event.backlog);
                    current.freed(event.memory);
                    current.sending = true;
                }
            }
            Kind::Memory => {
                let Some(current) = &mut self.current else {
                    return false;
                };
                current.note(Reader::Sent, current.sent, event.data_sent);
                if event.a != 0 {
                    current.outcome(Outcome::Refused(Refused::Device {
                        sent: current.sent,
                        result: event.a as i32,
                    }));
                }
                current.sent += 1;
                current.sending = false;
                if event.memory != 1 {
                    current.outcome(Outcome::DeviceMemory {
                        sent: current.sent,
                        bytes: event.memory,
                    });
                }
                current.tick(event.jiffies);
                current.backlog(event.backlog);
            }
            Kind::Queued => {
                self.backlog.push_back(Queued {
                    name: event.name(),
                    merged: event.what != 0,
                });
                if let Some(current) = &mut self.current {
                    current.tick(event.jiffies);
                    current.backlog(event.backlog);
                }
            }
            Kind::Named => self.packets.looks(event.like, event.at),
            Kind::AnsweredByReset => {
                self.packets.after(event.a, event.b, self.count());
                if let Some(current) = &mut self.current {
                    current.sent += 1;
                }
            }
            Kind::Window => {
                if let Some(current) = &mut self.current {
                    current.window(event.backlog);
                }
            }
            Kind::Busy => {
                let Some(current) = &mut self.current else {
                    return false;
                };
                current.outcome(Outcome::HostQueue {
                    nth: current.sent,
                    queued: true,
                });
            }
            Kind::Gone => {
                self.finish(event, &zero);
                self.gone = true;
            }
        }
        true
    }

    fn call(&mut self, event: &Event) {
        let call = Call {
            what: event.what,
            a: event.a,
            b: event.b,
            value: [event.c, event.d],
            length: event.more,
            run: None,
        };
        self.calls.insert(event.task, call);
        // These are told from inside.
        if matches!(event.what, call::CONNECT | call::SHUTDOWN) {
            self.lock(event);
        }
    }

    pub(super) fn lock(&mut self, event: &Event) {
        self.owner = Some(event.task);
        self.releasing = false;
        self.is_overtaken();
        self.look_for_others(event);
        let place = self.count();
        let Some(call) = self.calls.get_mut(&event.task) else {
            // Which call it is may turn out inside of it.
            return self.begin(event, options::LOCKED);
        };
        let handler = match (call.run, call.what) {
            (Some(_), _) => Handler::Resume,
            (_, call::CONNECT) => Handler::Connect,
            (_, call::ACCEPT) => Handler::Accept,
            (_, call::SEND) => Handler::Send {
                bytes: call.a,
                flags: call.b,
                result: 0,
            },
            (_, call::RECEIVE) => Handler::Receive {
                bytes: call.a,
                flags: call.b,
                result: 0,
            },
            (_, call::SHUTDOWN) => Handler::Shutdown {
                how: call.a.wrapping_sub(1) as u8,
            },
            (_, call::CLOSE) => Handler::Close,
            (_, call::OPTION) => call.option(),
            _ => return,
        };
        let first = call.run.is_none();
        call.run.get_or_insert(place);
        let call = *call;
        self.begin(event, handler);
        if let (Some(current), call::SEND) = (&mut self.current, call.what) {
            let file = if first { call.value[0] } else { 0 };
            let page = Fragment::TaskPage {
                filled: event.like as u16,
                size: (event.like >> 16) as u16,
            };
            for (place, fragment) in [(event.like, page), (file, Fragment::File { offset: file })] {
                if place != 0 {
                    current.outcome(Outcome::Fragment(fragment));
                }
            }
        }
    }

    fn packet(&mut self, event: &Event, theirs: Theirs<'_>) -> bool {
        if event.what == 0 {
            self.is_overtaken();
        }
        let name = self.unmerged(event, theirs);
        let answer = event.d >> 24 & SYN != 0;
        self.met((theirs.sent.is_some() || !theirs.request.is_empty()) && !theirs.alone);
        let came = self.came(event, name, answer).map(Came::whole);
        let came = came.or_else(|| match answer {
            true => Some(Came::whole(theirs.request.answer(event.more, event.at))),
            false => theirs.sent?.packet(name, event.more),
        });
        let Some(came) = came else {
            self.current = None;
            // What waits in the backlog was looked at before, as are all that make a socket.
            self.strange = !event.owned && event.what == 0;
            self.cut = !self.strange;
            return self.strange;
        };
        let handler = Handler::Packet {
            number: came.number,
            marked: event.d >> 16 & 3 == MARKED,
            backlog: event.owned,
            merged: 1,
            truesize: event.c,
        };
        if event.what == 1 {
            // The child began with its own making.
            if let Some(current) = &mut self.current {
                current.run.handler = handler;
                current.came(came);
            }
            return true;
        }
        if event.owned {
            if self.has_lock() && self.current.is_some() {
                let fields = self.drained.unwrap_or(SocketFields::NONE);
                if let Some(current) = &mut self.current {
                    for (queue, field) in [
                        (Queue::Unacknowledged, Field::Queued),
                        (Queue::Unread, Field::Unread),
                    ] {
                        let bytes = fields[field];
                        current.outcome(Outcome::Flush { queue, bytes });
                    }
                }
                self.finish(event, &fields);
                self.interrupted = true;
            }
            self.merging = Some(self.count());
        }
        self.begin(event, handler);
        if let Some(current) = &mut self.current {
            current.came(came);
        }
        true
    }

    /// What the packet was known by before others were merged into it. Those ahead of it in the backlog were part of the packet before.
    fn unmerged(&mut self, event: &Event, theirs: Theirs<'_>) -> Name {
        let name = event.name();
        if !event.owned || event.what == 1 {
            return name;
        }
        let own = |queued: &Queued| match name.like {
            0 => queued.name.id == name.id,
            _ => !queued.merged,
        };
        let Some(before) = self.backlog.iter().position(own) else {
            return name;
        };
        self.merged(before, theirs);
        let queued = self.backlog.pop_front().map_or(name, |it| it.name);
        match queued.stretch {
            [from, to] if from != to => queued,
            _ => Name {
                stretch: [event.a; 2],
                ..queued
            },
        }
    }

    /// So many at the head of the backlog were part of the packet before them.
    fn merged(&mut self, count: usize, theirs: Theirs<'_>) {
        let queued: Vec<Queued> = self.backlog.drain(..count).collect();
        if self.merged_alone(queued.iter().map(|it| it.name)) {
            return;
        }
        let run = self.merging.and_then(|place| self.run_at(place));
        let Some(run) = run else { return };
        let Handler::Packet { number, merged, .. } = &mut run.handler else {
            return;
        };
        let mut more = 0;
        for queued in queued {
            let Some(came) = theirs.number(queued.name) else {
                continue;
            };
            let further = came.number.wrapping_sub(*number);
            let follows = further == u32::from(*merged) && *merged < u16::MAX;
            if more == 0 && follows && came.is_whole() {
                *merged += 1;
            } else {
                run.outcomes.push(Outcome::Merged {
                    place: more,
                    further,
                });
                more += 1;
                run.outcomes.extend(came.outcomes(more));
            }
        }
    }

    fn run_end(&mut self, event: &Event, fields: &SocketFields) {
        if self.was_damaged(event) || self.found_a_call(event) {
            return;
        }
        if event.what != Kind::Packet as u8 + 1 {
            if event.owned || std::mem::take(&mut self.nested) {
                return;
            }
            if self.has_lock() {
                return;
            }
        }
        self.finish(event, fields);
    }

    fn clock(&mut self, event: &Event) -> bool {
        let Some(current) = &mut self.current else {
            return false;
        };
        if current.clocks == 0 {
            current.run.at = Moment(event.clock);
        } else {
            let later = event.clock.saturating_sub(current.run.at.0) as u32;
            current.outcome(Outcome::Clock {
                reading: current.clocks,
                after: later,
            });
        }
        current.clocks += 1;
        current.tick(event.jiffies);
        current.backlog(event.backlog);
        true
    }
}

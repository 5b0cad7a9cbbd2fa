// SPDX-License-Identifier: Apache-2.0
//! One end: its events become runs.
//!
//! 1. A call's run begins when it has the lock, and ends where it gives the lock away; another run of the same call begins where it has the lock again.
//! 2. Packets from the backlog and work that was put off are runs of their own between them. If the call looked at the backlog without giving the
//!    lock away, what was queued then says where.
//! 3. A timer that found the socket in use only leaves a note for whoever gives the lock away: it stands before that one's packets.

use super::bbr::Phase;
use super::building::Building;
use super::event::{ArrivedPacket, Body, Event, Name, SocketSettings, queued_name};
use super::one_sided::OneSidedState;
use super::options::visible;
use super::paced::Paced;
use super::request::Request;
use super::sent::{PacketMatch, Sent};
use super::wire::{self, CallName, Kind, TimerName, bit};
use slowpath_recording::fields::{Field, SocketFields};
use slowpath_recording::{
    Fragment, Handler, Moment, Outcome, Packet, Queue, Reader, Refused, Run, Timer, options,
};
use std::collections::{HashMap, VecDeque};

/// `INET_ECN_CE`.
pub(super) const MARKED: u8 = 3;

/// What a call asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum CallRequest {
    Connect,
    Accept,
    Send {
        bytes: u32,
        flags: u32,
        /// Where in its first page the data of a file begins.
        first_page: u32,
    },
    Receive {
        bytes: u32,
        flags: u32,
    },
    Shutdown {
        how: u32,
    },
    Close,
    Option {
        level: u32,
        name: u32,
        /// Its first bytes.
        value: u64,
        length: u32,
    },
}

#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) request: CallRequest,
    /// Its first run.
    pub(super) run: Option<usize>,
}

/// `None`: no call that this version knows.
fn call_request(body: &Body) -> Option<CallRequest> {
    Some(match body {
        Body::Call(call) => match CallName::from_raw(*call)? {
            CallName::Connect => CallRequest::Connect,
            CallName::Accept => CallRequest::Accept,
            CallName::Close => CallRequest::Close,
            CallName::Send | CallName::Receive | CallName::Shutdown => return None,
        },
        Body::Transfer(it) => {
            let (bytes, flags) = (it.bytes, it.flags);
            match CallName::from_raw(it.call)? {
                CallName::Send => CallRequest::Send {
                    bytes,
                    flags,
                    first_page: it.first_page,
                },
                CallName::Receive => CallRequest::Receive { bytes, flags },
                _ => return None,
            }
        }
        Body::Shutdown { how } => CallRequest::Shutdown { how: *how },
        Body::OptionCall(it) => CallRequest::Option {
            level: it.level,
            name: it.name,
            value: it.value,
            length: it.length,
        },
        _ => return None,
    })
}

fn timer(name: u32) -> Option<Timer> {
    Some(match TimerName::from_raw(name)? {
        TimerName::Write => Timer::Write,
        TimerName::DelayedAck => Timer::DelayedAck,
        TimerName::Keepalive => Timer::Keepalive,
        TimerName::Pacing => Timer::Pacing,
        TimerName::CompressedAck => Timer::CompressedAck,
    })
}

/// What the other end of a connection has done.
#[derive(Clone, Copy)]
pub(super) struct PeerView<'a> {
    pub(super) sent: Option<&'a Sent>,
    /// It was found to be one-sided.
    pub(super) one_sided: bool,
    pub(super) request: &'a Request,
}

impl PeerView<'_> {
    fn number(self, name: Name) -> Option<PacketMatch> {
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
    pub(super) handed_out: usize,
    pub(super) before: u32,
    /// Runs there were when losses were last checked: those are before any loss that cannot be placed.
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
    /// Handlers whose event came before they hold the lock, see `contention.rs`.
    pub(super) waiting: VecDeque<Handler>,
    backlog: VecDeque<Queued>,
    /// The run that packets behind it in the backlog were merged into.
    pub(super) merging: Option<usize>,
    pub(super) gone: bool,
    /// A packet came that no socket had sent: nothing from there on can be replayed.
    pub(super) cut: bool,
    /// A packet came that matches none that was sent, and may turn out to be damaged.
    pub(super) unmatched: bool,
    /// Events that the recorder lost.
    pub(super) lost: u32,
    pub(super) settings: Option<SocketSettings>,
    phase: Phase,
    pub(super) paced: Paced,
    /// Its peer is elsewhere.
    pub(super) one_sided: Option<Box<OneSidedState>>,
    /// Options that were set before the socket was known.
    pub(super) inherited: Vec<Handler>,
}

impl Side {
    /// `answers`: SYN-ACKs, which no socket sends.
    pub(super) fn new(answers: u32) -> Side {
        Side {
            runs: Vec::new(),
            states: Vec::new(),
            handed_out: 0,
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
            unmatched: false,
            lost: 0,
            settings: None,
            phase: Phase::default(),
            paced: Paced::default(),
            one_sided: None,
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
            self.phase = Phase(event.phase);
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
        self.handed_out + self.runs.len()
    }

    pub(super) fn run_at(&mut self, place: usize) -> Option<&mut Run> {
        self.runs.get_mut(place.checked_sub(self.handed_out)?)
    }

    fn has_lock(&self) -> bool {
        self.owner.is_some() && !self.releasing
    }

    /// Whether it fits.
    pub(super) fn take(&mut self, event: &Event, peer: PeerView<'_>) -> bool {
        if event.of.lost != self.lost {
            self.lost = event.of.lost;
            self.cut = true;
        }
        if self.cut {
            self.gone |= event.kind == Kind::Gone;
            return true;
        }
        if let Some(fits) = self.in_unmatched_packet(event) {
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
        match &event.body {
            Body::Plain => return self.plain(event, fields, peer),
            Body::Opened(_) | Body::Options(_) => {}
            Body::Metrics(metrics) => return self.metrics(metrics),
            Body::Other(other) => self.aside(event, options::other(*other as u8)),
            Body::Settings(found) => self.settings = Some((**found).clone()),
            Body::Call(_) | Body::Transfer(_) | Body::Shutdown { .. } | Body::OptionCall(_) => {
                return self.call(event);
            }
            Body::CallEnd { call, result } => {
                let Some(ended) = self.calls.remove(&event.of.task) else {
                    // Once more, to see what has become of the first one.
                    return *call == CallName::Connect as u32;
                };
                self.returned(ended, visible(*result));
            }
            Body::OptionEnd { result } => {
                let Some(call) = self.calls.remove(&event.of.task) else {
                    return false;
                };
                self.option_returned(&call, event, *result);
            }
            Body::Lock { .. } => self.lock(event),
            Body::Callback { flags } => {
                // After the lock was given away only what was put off is left of the call.
                self.finish(event, fields);
                self.begin(event, Handler::Release { flags: *flags });
            }
            Body::Packet(arrived) => return self.packet(event, arrived, peer),
            Body::RunEnd { of_packet, damaged } => {
                self.run_end(event, *of_packet, *damaged, fields);
            }
            Body::Timer(name) => {
                let Some(timer) = timer(*name) else {
                    return false;
                };
                let deferred = event.owned;
                self.by_itself(event, Handler::Timer { timer, deferred });
            }
            // It has only one beginning.
            Body::Child(_) if self.count() > 0 => return false,
            Body::Child(child) => self.child(event, child, peer),
            Body::Sent(sent) => self.was_sent(event, sent),
            Body::HandedOver { result } => return self.handed_over(event, *result),
            Body::Queued(queued) => {
                self.backlog.push_back(Queued {
                    name: queued_name(event.at(), queued),
                    merged: queued.bits & bit::MERGED != 0,
                });
                if let Some(current) = &mut self.current {
                    current.tick(event.jiffies());
                    current.backlog(event.of.backlog);
                }
            }
            Body::Named { alike } => self.packets.looks(*alike, event.at()),
            Body::AnsweredByReset(reset) => {
                self.packets
                    .after(reset.begins, reset.acknowledges, self.count());
                if let Some(current) = &mut self.current {
                    current.sent += 1;
                }
            }
        }
        true
    }

    /// Of an event that has nothing of its own, or nothing but fields.
    fn plain(&mut self, event: &Event, fields: &SocketFields, peer: PeerView<'_>) -> bool {
        match event.kind {
            Kind::NoRoom => self.aside(event, options::NO_ROOM),
            Kind::Release => {
                self.finish(event, fields);
                self.releasing = true;
                let call = self.calls.get(&event.of.task);
                let ends = |it: &Call| {
                    matches!(
                        it.request,
                        CallRequest::Accept | CallRequest::Shutdown { .. }
                    )
                };
                if call.is_some_and(|call| ends(call) && call.run.is_some()) {
                    self.calls.remove(&event.of.task);
                }
            }
            Kind::Drain => {
                self.drained = event.fields;
                self.interrupted = false;
            }
            Kind::Drained => {
                self.merged(self.backlog.len(), peer);
                self.merging = None;
                if self.interrupted && self.has_lock() {
                    self.begin(event, Handler::Resume);
                }
                self.interrupted = false;
            }
            Kind::CallbackEnd => {
                self.finish(event, fields);
                if self.has_lock() {
                    self.begin(event, Handler::Resume);
                }
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
            Kind::Clock => return self.clock(event),
            Kind::Window => {
                if let Some(current) = &mut self.current {
                    current.window(event.of.backlog);
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
                self.finish(event, &SocketFields::NONE);
                self.gone = true;
            }
            _ => {}
        }
        true
    }

    fn was_sent(&mut self, event: &Event, sent: &wire::Sent) {
        self.sends(sent);
        self.packets.sent(Packet {
            run: self.count() as u64,
            id: sent.id as u16,
            begins: sent.begins,
            length: sent.ends.wrapping_sub(sent.begins),
            mark: 0,
        });
        if let Some(current) = &mut self.current {
            current.tick(event.jiffies());
            current.window(event.of.backlog);
            current.freed(event.of.memory);
            current.sending = true;
        }
    }

    fn handed_over(&mut self, event: &Event, result: i32) -> bool {
        let Some(current) = &mut self.current else {
            return false;
        };
        current.note(Reader::Sent, current.sent, event.of.data_sent);
        if result != 0 {
            current.outcome(Outcome::Refused(Refused::Device {
                sent: current.sent,
                result,
            }));
        }
        current.sent += 1;
        current.sending = false;
        if event.of.memory != 1 {
            current.outcome(Outcome::DeviceMemory {
                sent: current.sent,
                bytes: event.of.memory,
            });
        }
        current.tick(event.jiffies());
        current.backlog(event.of.backlog);
        true
    }

    fn call(&mut self, event: &Event) -> bool {
        let Some(request) = call_request(&event.body) else {
            return false;
        };
        self.calls
            .insert(event.of.task, Call { request, run: None });
        // The events of these come from inside.
        if matches!(request, CallRequest::Connect | CallRequest::Shutdown { .. }) {
            self.lock(event);
        }
        true
    }

    pub(super) fn lock(&mut self, event: &Event) {
        self.owner = Some(event.of.task);
        self.releasing = false;
        self.is_overtaken();
        self.look_for_others(event);
        let place = self.count();
        let Some(call) = self.calls.get_mut(&event.of.task) else {
            // Which call it is may turn out inside of it.
            return self.begin(event, options::LOCKED);
        };
        let handler = match (call.run, call.request) {
            (Some(_), _) => Handler::Resume,
            (_, CallRequest::Connect) => Handler::Connect,
            (_, CallRequest::Accept) => Handler::Accept,
            (_, CallRequest::Send { bytes, flags, .. }) => Handler::Send {
                bytes,
                flags,
                result: 0,
            },
            (_, CallRequest::Receive { bytes, flags }) => Handler::Receive {
                bytes,
                flags,
                result: 0,
            },
            (_, CallRequest::Shutdown { how }) => Handler::Shutdown {
                how: how.wrapping_sub(1) as u8,
            },
            (_, CallRequest::Close) => Handler::Close,
            (_, CallRequest::Option { .. }) => call.option(),
        };
        let first = call.run.is_none();
        call.run.get_or_insert(place);
        let call = *call;
        self.begin(event, handler);
        if let (Some(current), CallRequest::Send { first_page, .. }) =
            (&mut self.current, call.request)
        {
            let file = if first { first_page } else { 0 };
            let filled = match event.body {
                Body::Lock { fragment } => fragment,
                _ => 0,
            };
            let page = Fragment::TaskPage {
                filled: filled as u16,
                size: (filled >> 16) as u16,
            };
            for (place, fragment) in [(filled, page), (file, Fragment::File { offset: file })] {
                if place != 0 {
                    current.outcome(Outcome::Fragment(fragment));
                }
            }
        }
    }

    fn packet(&mut self, event: &Event, arrived: &ArrivedPacket, peer: PeerView<'_>) -> bool {
        let packet = &arrived.packet;
        let first = packet.bits & bit::FIRST != 0;
        if !first {
            self.is_overtaken();
        }
        let name = self.unmerged(event, arrived, peer);
        self.met((peer.sent.is_some() || !peer.request.is_empty()) && !peer.one_sided);
        let came = self.came(arrived, name).map(PacketMatch::whole);
        let came = came.or_else(|| match arrived.syn {
            Some(like) => Some(PacketMatch::whole(peer.request.answer(like, event.at()))),
            None => peer.sent?.packet(name, packet.acknowledges),
        });
        let Some(came) = came else {
            self.current = None;
            // What waits in the backlog was looked at before, as are all that make a socket.
            self.unmatched = !event.owned && !first;
            self.cut = !self.unmatched;
            return self.unmatched;
        };
        let handler = Handler::Packet {
            number: came.number,
            marked: packet.ecn == MARKED,
            backlog: event.owned,
            merged: 1,
            truesize: packet.truesize,
        };
        if first {
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
    fn unmerged(&mut self, event: &Event, arrived: &ArrivedPacket, peer: PeerView<'_>) -> Name {
        let name = arrived.name(event.at());
        if !event.owned || arrived.packet.bits & bit::FIRST != 0 {
            return name;
        }
        let own = |queued: &Queued| match name.like {
            0 => queued.name.id == name.id,
            _ => !queued.merged,
        };
        let Some(before) = self.backlog.iter().position(own) else {
            return name;
        };
        self.merged(before, peer);
        let queued = self.backlog.pop_front().map_or(name, |it| it.name);
        match queued.stretch {
            [from, to] if from != to => queued,
            _ => Name {
                stretch: [arrived.packet.begins; 2],
                ..queued
            },
        }
    }

    /// So many at the head of the backlog were part of the packet before them.
    fn merged(&mut self, count: usize, peer: PeerView<'_>) {
        let queued: Vec<Queued> = self.backlog.drain(..count).collect();
        if self.merged_one_sided(queued.iter().map(|it| it.name)) {
            return;
        }
        let run = self.merging.and_then(|place| self.run_at(place));
        let Some(run) = run else { return };
        let Handler::Packet { number, merged, .. } = &mut run.handler else {
            return;
        };
        let mut more = 0;
        for queued in queued {
            let Some(came) = peer.number(queued.name) else {
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

    fn run_end(&mut self, event: &Event, of_packet: bool, damaged: bool, fields: &SocketFields) {
        if self.was_damaged(of_packet && damaged) || self.found_a_call(event, of_packet) {
            return;
        }
        if !of_packet {
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
            current.run.at = Moment(event.of.clock);
        } else {
            let later = event.of.clock.saturating_sub(current.run.at.0) as u32;
            current.outcome(Outcome::Clock {
                reading: current.clocks,
                after: later,
            });
        }
        current.clocks += 1;
        current.tick(event.jiffies());
        current.backlog(event.of.backlog);
        true
    }
}

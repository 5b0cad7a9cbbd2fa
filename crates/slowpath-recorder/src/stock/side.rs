// SPDX-License-Identifier: Apache-2.0
//! One end: its events become runs.
//!
//! 1. A call's run begins when it has the lock, and ends where it gives the lock away; another run of the same call begins where it has the lock again.
//! 2. Packets from the backlog and work that was put off are runs of their own between them. If the call looked at the backlog without giving the
//!    lock away, what was queued then says where.
//! 3. A timer that found the socket in use only leaves a note for whoever gives the lock away: it stands before that one's packets.

use super::arrival::Queued;
use super::bbr::Phase;
use super::building::Building;
use super::call::{Call, CallRequest};
use super::event::{Body, Event, Name, SocketSettings};
use super::one_sided::OneSidedState;
use super::paced::Paced;
use super::request::Request;
use super::run_log::RunLog;
use super::sent::{PacketMatch, Sent};
use super::wire::{self, Kind, TimerName};
use slowpath_recording::fields::SocketFields;
use slowpath_recording::{Handler, Moment, Outcome, Packet, Reader, Refused, Run, Timer, options};
use std::collections::{HashMap, VecDeque};

/// `INET_ECN_CE`.
pub(super) const MARKED: u8 = 3;

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
    pub(super) fn number(self, name: Name) -> Option<PacketMatch> {
        self.sent?.number(name)
    }
}

/// Who holds the socket's lock, and how far it is released.
#[derive(Clone, Default)]
pub(super) struct LockState {
    /// The task that has the lock.
    pub(super) owner: Option<u32>,
    /// It gives the lock away: what is left of the call is deferred work.
    pub(super) releasing: bool,
    /// A packet of the backlog interrupted the call, which resumes when the backlog is empty.
    pub(super) interrupted: bool,
    /// Small queues run inside of the pacing timer's run.
    nested: bool,
    /// The state as the backlog's handling began.
    pub(super) drained: Option<SocketFields>,
}

impl LockState {
    pub(super) fn is_held(&self) -> bool {
        self.owner.is_some() && !self.releasing
    }
}

/// An end whose events come in.
#[derive(Clone)]
pub(super) struct Side {
    pub(super) log: RunLog,
    pub(super) current: Option<Building>,
    pub(super) packets: Sent,
    pub(super) calls: HashMap<u32, Call>,
    pub(super) lock: LockState,
    pub(super) put_off: Vec<Run>,
    /// Handlers whose event came before they hold the lock, see `contention.rs`.
    pub(super) waiting: VecDeque<Handler>,
    pub(super) backlog: VecDeque<Queued>,
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
            log: RunLog::default(),
            current: None,
            packets: Sent::new(answers),
            calls: HashMap::new(),
            lock: LockState::default(),
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

    pub(super) fn finish(&mut self, event: &Event, fields: &SocketFields) {
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
            self.log.push(building.ended(event), *fields);
        }
        for mut run in std::mem::take(&mut self.put_off) {
            // It only left a note, which shows now.
            if let Some(last) = self.log.runs.last() {
                run.at = run.at.max(last.at);
                run.jiffies = last.jiffies;
            }
            self.log.push(run, *fields);
        }
    }

    /// Nothing from here on can be replayed.
    pub(super) fn cut(&mut self) {
        self.cut = true;
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
                return self.call_end(event, *call, *result);
            }
            Body::OptionEnd { result } => return self.option_end(event, *result),
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
            Body::Child(_) if self.log.count() > 0 => return false,
            Body::Child(child) => self.child(event, child, peer),
            Body::Sent(sent) => self.was_sent(event, sent),
            Body::HandedOver { result } => return self.handed_over(event, *result),
            Body::Queued(queued) => self.queued(event, queued),
            Body::Named { alike } => self.packets.looks(*alike, event.at()),
            Body::AnsweredByReset(reset) => {
                self.packets
                    .after(reset.begins, reset.acknowledges, self.log.count());
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
                self.lock.releasing = true;
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
                self.lock.drained = event.fields;
                self.lock.interrupted = false;
            }
            Kind::Drained => {
                self.merged(self.backlog.len(), peer);
                self.merging = None;
                if self.lock.interrupted && self.lock.is_held() {
                    self.begin(event, Handler::Resume);
                }
                self.lock.interrupted = false;
            }
            Kind::CallbackEnd => {
                self.finish(event, fields);
                if self.lock.is_held() {
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
                    self.lock.nested = true;
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
            run: self.log.count() as u64,
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

    fn run_end(&mut self, event: &Event, of_packet: bool, damaged: bool, fields: &SocketFields) {
        if self.was_damaged(of_packet && damaged) || self.found_a_call(event, of_packet) {
            return;
        }
        if !of_packet {
            if event.owned || std::mem::take(&mut self.lock.nested) {
                return;
            }
            if self.lock.is_held() {
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

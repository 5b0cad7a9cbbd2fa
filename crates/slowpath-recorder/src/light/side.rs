// SPDX-License-Identifier: Apache-2.0
//! One end: what was recorded of its socket, and its runs with the timers between them and the memory that the device held.

use super::inference::RunInference;
use super::memory;
use super::numbers::{Arrival, Numbers};
use super::piece::{Block, CallEvent, Event, Observation, Opened, STATES, SocketWords, TimerEvent};
use super::ticks::Ticks;
use super::wire::TimerName;
use slowpath_recording::{End, Handler, Run, Timer};

/// `TCPF_TSQ_DEFERRED`.
const SMALL_QUEUE_DEFERRED: u32 = 1 << 2;
/// `TCPF_WRITE_TIMER_DEFERRED`.
const WRITE_TIMER_DEFERRED: u32 = 1 << 3;
/// `TCPF_DELACK_TIMER_DEFERRED`.
const DELAYED_ACK_DEFERRED: u32 = 1 << 4;

/// What was recorded of one socket.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub opened: Opened,
    words: SocketWords,
    pub(super) observations: Vec<Observation>,
    /// What a block began with, by its first event.
    pub(super) states: Vec<(usize, [u32; STATES])>,
    pub(super) calls: Vec<CallEvent>,
    pub(super) timers: Vec<TimerEvent>,
    packets_serial: u32,
    calls_serial: u32,
    pub lost: u32,
    /// Events are missing from that one on.
    pub(super) cut: Option<usize>,
    pub gone: bool,
}

impl Side {
    pub(super) fn new(opened: Opened) -> Side {
        Side {
            words: opened.words,
            opened,
            observations: Vec::new(),
            states: Vec::new(),
            calls: Vec::new(),
            timers: Vec::new(),
            packets_serial: 0,
            calls_serial: 0,
            lost: 0,
            cut: None,
            gone: false,
        }
    }

    /// Events after those that are there are missing.
    pub(super) fn missing(&mut self) {
        self.cut.get_or_insert(self.observations.len());
    }

    pub(super) fn packets(&mut self, block: Block<Observation>, state: [u32; STATES], gone: bool) {
        if block.serial != self.packets_serial || block.lost != self.lost {
            self.lost = self.lost.max(block.lost).max(1);
            self.missing();
        }
        self.packets_serial = block.serial.wrapping_add(1);
        if !block.list.is_empty() {
            self.states.push((self.observations.len(), state));
        }
        for mut observed in block.list {
            for (place, word) in observed.words.iter_mut().enumerate() {
                if observed.changed >> place & 1 == 0 {
                    *word = self.words[place];
                }
            }
            self.words = observed.words;
            self.observations.push(observed);
        }
        self.gone |= gone;
    }

    pub(super) fn called(&mut self, block: Block<CallEvent>) {
        if block.serial != self.calls_serial {
            self.lost = self.lost.max(block.lost).max(1);
            self.missing();
        }
        self.calls_serial = block.serial.wrapping_add(1);
        self.calls.extend(block.list);
    }

    pub(super) fn fired(&mut self, fired: TimerEvent) {
        self.timers.push(fired);
    }

    /// The other end's packets in the order of their arrival here.
    fn arrivals(&self) -> Vec<Arrival> {
        let packet = |observed: &Observation| match observed.event {
            Event::Packet { id, segments, .. } => Some(Arrival {
                id,
                segments,
                waited: observed.owned,
                data: observed.data,
            }),
            Event::State { .. } => None,
        };
        self.observations.iter().filter_map(packet).collect()
    }

    /// Its last readings of the clock, and the identification of its next packet from then on.
    pub(super) fn sent(&self) -> impl Iterator<Item = (u64, u16)> {
        self.observations
            .iter()
            .map(|observed| (observed.sent(), observed.next))
    }

    /// The numbers of its packets as they arrived at the receiver, their places, and the first number that can be there.
    fn numbers(&self, receiver: &Side) -> (Numbers, Vec<i64>, u32) {
        // The accepting end has had the last packet of the handshake already.
        let (base, first) = match receiver.opened.end {
            0 => (self.opened.next, 1),
            _ => (self.opened.next.wrapping_add(1), 2),
        };
        let (numbers, places) = Numbers::new(base, first, &receiver.arrivals());
        (numbers, places, first)
    }

    pub(super) fn end(&self, peer: &Side, ticks: &Ticks) -> End {
        let (numbers, places, first) = peer.numbers(self);
        let (own, _, _) = self.numbers(peer);
        let mut inference = RunInference::new(self, peer, numbers, places, first);
        inference.opening(peer);
        inference.infer();
        let gap = inference.gap;
        let mut runs = inference.timed(ticks);
        memory::remember(&mut runs, &own);
        let runs: Vec<Run> = runs.into_iter().map(|(run, _)| run).collect();
        let gap = gap.map(|gap| (gap as u64).min(runs.len() as u64));
        End {
            runs,
            gap,
            lost: gap.map_or(0, |_| self.lost.into()),
            ..End::default()
        }
    }
}

/// The identification of the socket's next packet and `sk_wmem_alloc`, as a run begins.
pub(super) type Before = Option<(u16, u32)>;

impl TimerEvent {
    /// The note that it leaves for the call that holds the lock (`enum tsq_flags`).
    pub(super) fn note(&self) -> u32 {
        match TimerName::from_raw(self.timer) {
            Some(TimerName::Write) => WRITE_TIMER_DEFERRED,
            Some(TimerName::DelayedAck | TimerName::CompressedAck) => DELAYED_ACK_DEFERRED,
            _ => 0,
        }
    }

    /// What it runs, or leaves to the call that holds the lock, which does it when the backlog is empty.
    pub(super) fn handler(&self) -> Handler {
        let timer = match TimerName::from_raw(self.timer) {
            Some(TimerName::Write) => Some(Timer::Write),
            Some(TimerName::DelayedAck) => Some(Timer::DelayedAck),
            Some(TimerName::Keepalive) => Some(Timer::Keepalive),
            Some(TimerName::Pacing) => Some(Timer::Pacing),
            Some(TimerName::CompressedAck) => Some(Timer::CompressedAck),
            Some(TimerName::SmallQueues) | None => None,
        };
        match timer {
            Some(timer) => Handler::Timer {
                timer,
                deferred: self.owned,
            },
            None if self.owned => Handler::Release {
                flags: SMALL_QUEUE_DEFERRED,
            },
            None => Handler::SmallQueue,
        }
    }
}

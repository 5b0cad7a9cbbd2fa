// SPDX-License-Identifier: Apache-2.0
//! One end: what its socket told, and its runs with what fired between them and what the device held.

use super::memory;
use super::numbers::{Arrival, Numbers};
use super::piece::{Block, Called, Fired, Opened, STATES, Seen, What, Words};
use super::telling::Telling;
use super::ticks::Ticks;
use super::wire::FiredTimer;
use slowpath_recording::{End, Handler, Run, Timer};

/// `TCPF_TSQ_DEFERRED`.
const SMALL_QUEUE_DEFERRED: u32 = 1 << 2;
/// `TCPF_WRITE_TIMER_DEFERRED`.
const WRITE_TIMER_DEFERRED: u32 = 1 << 3;
/// `TCPF_DELACK_TIMER_DEFERRED`.
const DELAYED_ACK_DEFERRED: u32 = 1 << 4;

/// What one socket told.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub opened: Opened,
    words: Words,
    pub(super) seen: Vec<Seen>,
    /// What a block began with, by its first event.
    pub(super) states: Vec<(usize, [u32; STATES])>,
    pub(super) calls: Vec<Called>,
    pub(super) timers: Vec<Fired>,
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
            seen: Vec::new(),
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

    /// What comes after what is there is not all.
    pub(super) fn missing(&mut self) {
        self.cut.get_or_insert(self.seen.len());
    }

    pub(super) fn packets(&mut self, block: Block<Seen>, state: [u32; STATES], gone: bool) {
        if block.serial != self.packets_serial || block.lost != self.lost {
            self.lost = self.lost.max(block.lost).max(1);
            self.missing();
        }
        self.packets_serial = block.serial.wrapping_add(1);
        if !block.list.is_empty() {
            self.states.push((self.seen.len(), state));
        }
        for mut seen in block.list {
            for (place, word) in seen.words.iter_mut().enumerate() {
                if seen.changed >> place & 1 == 0 {
                    *word = self.words[place];
                }
            }
            self.words = seen.words;
            self.seen.push(seen);
        }
        self.gone |= gone;
    }

    pub(super) fn called(&mut self, block: Block<Called>) {
        if block.serial != self.calls_serial {
            self.lost = self.lost.max(block.lost).max(1);
            self.missing();
        }
        self.calls_serial = block.serial.wrapping_add(1);
        self.calls.extend(block.list);
    }

    pub(super) fn fired(&mut self, fired: Fired) {
        self.timers.push(fired);
    }

    /// As the other end's packets came here.
    fn arrivals(&self) -> Vec<Arrival> {
        let packet = |seen: &Seen| match seen.what {
            What::Packet { id, segments, .. } => Some(Arrival {
                id,
                segments,
                waited: seen.owned,
                data: seen.data,
            }),
            What::State { .. } => None,
        };
        self.seen.iter().filter_map(packet).collect()
    }

    /// What its clock had read last, and the identification of its next packet, from then on.
    pub(super) fn sent(&self) -> impl Iterator<Item = (u64, u16)> {
        self.seen.iter().map(|seen| (seen.sent(), seen.next))
    }

    /// The numbers of its packets as they came there, where they stand, and the first that can stand there.
    fn numbers(&self, receiver: &Side) -> (Numbers, Vec<i64>, u32) {
        // The accepting end has had the last packet of the handshake already.
        let (base, first) = match receiver.opened.end {
            0 => (self.opened.next, 1),
            _ => (self.opened.next.wrapping_add(1), 2),
        };
        let (numbers, places) = Numbers::new(base, first, &receiver.arrivals());
        (numbers, places, first)
    }

    pub(super) fn end(&self, theirs: &Side, ticks: &Ticks) -> End {
        let (numbers, places, first) = theirs.numbers(self);
        let (own, _, _) = self.numbers(theirs);
        let mut telling = Telling::new(self, theirs, numbers, places, first);
        telling.opening(theirs);
        telling.all();
        let gap = telling.gap;
        let mut runs = telling.timed(ticks);
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

impl Fired {
    /// The note that it leaves for whoever has the lock (`enum tsq_flags`).
    pub(super) fn note(&self) -> u32 {
        match FiredTimer::from_raw(self.timer) {
            Some(FiredTimer::Write) => WRITE_TIMER_DEFERRED,
            Some(FiredTimer::DelayedAck | FiredTimer::CompressedAck) => DELAYED_ACK_DEFERRED,
            _ => 0,
        }
    }

    /// What it runs, or leaves to whoever has the lock, who does it when the backlog is empty.
    pub(super) fn handler(&self) -> Handler {
        let timer = match FiredTimer::from_raw(self.timer) {
            Some(FiredTimer::Write) => Some(Timer::Write),
            Some(FiredTimer::DelayedAck) => Some(Timer::DelayedAck),
            Some(FiredTimer::Keepalive) => Some(Timer::Keepalive),
            Some(FiredTimer::Pacing) => Some(Timer::Pacing),
            Some(FiredTimer::CompressedAck) => Some(Timer::CompressedAck),
            Some(FiredTimer::SmallQueues) | None => None,
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

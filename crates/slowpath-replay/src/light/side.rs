// SPDX-License-Identifier: Apache-2.0
//! One end: what its socket told, and its runs with what fired between them and what the device held.

use super::numbers::{Arrival, Numbers};
use super::piece::{Block, Called, Fired, Opened, STATES, Seen, WORDS, What, Words, word};
use super::telling::Telling;
use super::ticks::Ticks;
use crate::recording::{Decision, End, Handler, Moment, Outcome, Run, Timer};

const TIMERS: [Timer; 5] = [
    Timer::Write,
    Timer::DelayedAck,
    Timer::Keepalive,
    Timer::Pacing,
    Timer::CompressedAck,
];

/// `TCPF_TSQ_DEFERRED`.
const SMALL_QUEUE_DEFERRED: u32 = 1 << 2;
/// Packets that one run is told the device's memory of.
const MOST_SENT: u32 = 32;

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
            opened,
            words: [0; WORDS],
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
        let received = |seen: &Seen| seen.words[word::RECEIVED];
        let behind = self.seen.iter().skip(1).map(Some).chain([None]);
        let packet = |(seen, next): (&Seen, Option<&Seen>)| match seen.what {
            What::Packet { id, segments, .. } => Some(Arrival {
                id,
                segments,
                waited: seen.owned,
                data: next.is_none_or(|next| received(next) != received(seen)),
            }),
            What::State { .. } => None,
        };
        self.seen.iter().zip(behind).filter_map(packet).collect()
    }

    /// What its clock had read last, and the identification of its next packet, from then on.
    pub(super) fn sent(&self) -> impl Iterator<Item = (u64, u16)> {
        self.seen.iter().map(|seen| (seen.clock, seen.next))
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
        for fired in &self.timers {
            add_fired(&mut runs, fired, ticks);
        }
        remember(&mut runs, &own);
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

fn add_fired(runs: &mut Vec<(Run, Before)>, fired: &Fired, ticks: &Ticks) {
    let mut place = runs.partition_point(|(run, _)| run.at.0 <= fired.at);
    // As long as a call has the lock others do not run: its times are only near.
    let waits = |handler: &Handler| matches!(handler, Handler::Packet { backlog: true, .. });
    while runs.get(place).is_some_and(|(run, _)| waits(&run.handler)) {
        place += 1;
    }
    let handler = match TIMERS.get(usize::from(fired.timer)) {
        Some(timer) => Handler::Timer {
            timer: *timer,
            deferred: false,
        },
        None if fired.owned => {
            // Who has the lock does it when the backlog is empty.
            let flags = SMALL_QUEUE_DEFERRED;
            Handler::Release { flags }
        }
        None => Handler::SmallQueue,
    };
    let before = place.checked_sub(1).and_then(|before| runs.get(before));
    let at = before.map_or(fired.at, |(run, _)| run.at.0.max(fired.at));
    let run = Run {
        at: Moment(at),
        jiffies: ticks.at(at),
        handler,
        outcomes: Vec::new(),
        check: None,
    };
    let before = (!fired.owned).then_some((fired.next, fired.memory));
    runs.insert(place, (run, before));
}

/// What waited in the device while runs were sending: seen before some of them; between those in proportion to what was sent.
fn remember(runs: &mut [(Run, Before)], own: &Numbers) {
    let known: Vec<(usize, (u16, u32))> = runs
        .iter()
        .enumerate()
        .filter_map(|(place, (_, before))| Some((place, (*before)?)))
        .collect();
    let next: Vec<u16> = known.iter().map(|(_, (next, _))| *next).collect();
    let totals: Vec<u32> = own.totals(next.into_iter()).collect();
    for (two, totals) in known.windows(2).zip(totals.windows(2)) {
        let ((from, (_, memory)), (to, (_, left))) = (two[0], two[1]);
        if memory == 1 && left == 1 {
            continue;
        }
        let sent = totals[1].saturating_sub(totals[0]).min(MOST_SENT);
        for (run, _) in &mut runs[from..to] {
            for count in 0..=sent {
                let share = i64::from(left) - i64::from(memory);
                let more = share * i64::from(count) / i64::from(sent.max(1));
                run.outcomes.push(Outcome {
                    decision: Decision::DeviceMemory,
                    before: count,
                    value: (i64::from(memory) + more) as u32,
                });
            }
            run.outcomes.sort_by_key(|it| (it.decision, it.before));
        }
    }
}

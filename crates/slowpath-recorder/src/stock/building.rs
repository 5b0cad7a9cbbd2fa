// SPDX-License-Identifier: Apache-2.0
//! A run that is under way, with what it found.

use super::event::Event;
use super::sent::PacketMatch;
use slowpath_recording::{Decision, Handler, Moment, Outcome, Reader, Run, TicksAt};

/// A run takes no longer than that.
const MOST_TICKS: u32 = 16;

#[derive(Clone)]
pub(super) struct Building {
    pub(super) run: Run,
    pub(super) clocks: u32,
    /// When it began, by the recorder's clock, which is TCP's.
    pub(super) begun: u64,
    pub(super) sent: u32,
    /// A packet is on its way to the device, from where others return before its sending has returned.
    pub(super) sending: bool,
    pub(super) ticks: u32,
    pub(super) backlog: u32,
    /// What `jiffies` were when the window was changed last, and how often that was another value than before.
    pub(super) window_changed: u32,
    pub(super) window_changes: u32,
    /// The `jiffies` that readers stored, in ticks; recorded only if they changed during the run.
    pub(super) noted: Vec<(TicksAt, u32)>,
}

impl Building {
    pub(super) fn new(event: &Event, handler: Handler) -> Building {
        let mut run = Run {
            at: Moment(event.at()),
            jiffies: event.jiffies(),
            handler,
            outcomes: Vec::new(),
            check: None,
        };
        if event.of.memory != 1 {
            run.outcomes.push(Outcome::DeviceMemory {
                sent: 0,
                bytes: event.of.memory,
            });
        }
        let mut building = Building {
            run,
            clocks: 0,
            begun: event.at(),
            sent: 0,
            sending: false,
            ticks: 0,
            backlog: 0,
            window_changed: event.of.window_changed,
            window_changes: 0,
            noted: Vec::new(),
        };
        building.backlog(event.of.backlog);
        building
    }

    pub(super) fn outcome(&mut self, outcome: Outcome) {
        self.run.outcomes.push(outcome);
    }

    /// A packet is sent while the device has `memory`: less than after the packets before it, and small queues let it through.
    pub(super) fn freed(&mut self, memory: u32) {
        let nth = self.sent;
        let mut outcomes = self.run.outcomes.iter().rev();
        let recorded = outcomes.find_map(|it| match it {
            Outcome::DeviceMemory { sent, bytes } if *sent == nth => Some(*bytes),
            _ => None,
        });
        if recorded.is_some_and(|bytes| memory < bytes) {
            self.outcome(Outcome::SmallQueue {
                nth,
                throttled: false,
            });
        }
    }

    /// The packet that came was only a piece of one, or made of several.
    pub(super) fn came(&mut self, came: PacketMatch) {
        self.run.outcomes.extend(came.outcomes(0));
    }

    /// Clocks read and packets sent.
    pub(super) fn done(&self) -> u32 {
        self.clocks + self.sent + u32::from(self.sending)
    }

    /// `jiffies` were this at the latest after the clocks that have been read and the packets that have been sent.
    pub(super) fn tick(&mut self, jiffies: u32) {
        let ticks = jiffies.wrapping_sub(self.run.jiffies);
        if ticks != self.ticks {
            self.ticks = ticks;
            let at = TicksAt::Done(self.done());
            self.outcome(Outcome::Ticks { at, ticks });
        }
    }

    /// A reader of `jiffies` stored this value; perhaps in an earlier run.
    pub(super) fn note(&mut self, reader: Reader, sent: u32, jiffies: u32) {
        let ticks = jiffies.wrapping_sub(self.run.jiffies);
        if ticks <= MOST_TICKS {
            self.noted.push((TicksAt::Reader { reader, sent }, ticks));
        }
    }

    /// Notes whether the window was changed.
    pub(super) fn look_at_window(&mut self, event: &Event) {
        if self.window_changed != event.of.window_changed {
            self.window_changed = event.of.window_changed;
            self.window_changes += 1;
        }
    }

    pub(super) fn ended(mut self, event: &Event) -> Run {
        self.look_at_window(event);
        self.note(Reader::Received, 0, event.of.received);
        // Twice, one tick later: each has the tick of its place (idle and then limited by the application, in one call).
        if self.window_changes < 2 {
            self.note(Reader::WindowChanged, 0, event.of.window_changed);
        }
        self.note(Reader::Cubic, 0, event.of.cubic);
        self.note(Reader::DelayedAck, 0, event.of.delayed_ack);
        self.note(Reader::OutOfWindow, 0, event.of.out_of_window);
        let ticked = |it: &Outcome| it.decision() == Decision::Ticks;
        if self.run.outcomes.iter().any(ticked) || self.noted.iter().any(|(_, ticks)| *ticks > 0) {
            let noted = self.noted.into_iter();
            let noted = noted.map(|(at, ticks)| Outcome::Ticks { at, ticks });
            self.run.outcomes.extend(noted);
        }
        // Of two at one place the later one counts.
        let outcomes = &mut self.run.outcomes;
        outcomes.reverse();
        outcomes.sort_by_key(Outcome::key);
        outcomes.dedup_by_key(|it| it.key());
        self.run
    }

    /// How much waits in the backlog, if that has changed; counted as the replay counts: clocks read and packets sent.
    pub(super) fn backlog(&mut self, bytes: u32) {
        if self.backlog != bytes {
            self.backlog = bytes;
            let done = self.done();
            self.outcome(Outcome::Backlog { done, bytes });
        }
    }

    /// And how much as the next packet, which has not been sent, got its window.
    pub(super) fn window(&mut self, bytes: u32) {
        if self.backlog != bytes || self.sending {
            self.backlog = bytes;
            let done = self.clocks + self.sent;
            self.outcome(Outcome::Backlog { done, bytes });
        }
    }
}

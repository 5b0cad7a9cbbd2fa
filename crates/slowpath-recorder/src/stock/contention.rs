// SPDX-License-Identifier: Apache-2.0
//! Several CPUs contend for a socket's lock: the event of a timer, or of what small queues held back, precedes its taking the lock, which another run may hold or take first.
//!
//! It holds the lock from its first further event on. If a call holds the socket by then, it only leaves a note.

use super::event::{Body, Event};
use super::side::Side;
use super::wire::Kind;
use slowpath_recording::{Handler, Moment, Run};

/// More do not wait for one socket's lock.
const MOST: usize = 8;

/// Whether its event precedes its taking the lock.
fn comes_by_itself(handler: &Handler) -> bool {
    matches!(handler, Handler::Timer { .. } | Handler::SmallQueue)
}

impl Side {
    pub(super) fn by_itself(&mut self, event: &Event, handler: Handler) {
        if event.owned {
            self.leaves_a_note(event, handler);
        } else if self.current.is_some() {
            self.waits(handler);
        } else {
            self.begin(event, handler);
        }
    }

    /// It found a call, which will see to it.
    fn leaves_a_note(&mut self, event: &Event, handler: Handler) {
        // What small queues held back shows in the callback's flags.
        if let Handler::Timer { timer, .. } = handler {
            let deferred = true;
            self.put_off.push(Run {
                at: Moment(event.at()),
                jiffies: event.jiffies(),
                handler: Handler::Timer { timer, deferred },
                outcomes: Vec::new(),
                check: None,
            });
        }
    }

    /// It cannot have the lock now.
    fn waits(&mut self, handler: Handler) {
        if self.waiting.len() < MOST {
            self.waiting.push_back(handler);
        } else {
            self.cut();
        }
    }

    /// Another run has the lock now: a timer that was reported, and in which nothing happened, waits for it.
    pub(super) fn is_overtaken(&mut self) {
        let idle =
            |it: &mut super::building::Building| it.done() == 0 && comes_by_itself(&it.run.handler);
        if let Some(current) = self.current.take_if(idle) {
            self.waits(current.run.handler);
        }
    }

    /// Before an event that is part of a run: a timer that waited has the lock, if no other run has.
    pub(super) fn has_lock_at_last(&mut self, event: &Event) {
        let inside = matches!(event.kind, Kind::Clock | Kind::Sent)
            || matches!(
                event.body,
                Body::RunEnd {
                    of_packet: false,
                    ..
                }
            ) && !event.owned;
        if !inside || self.current.is_some() {
            return;
        }
        if let Some(handler) = self.waiting.pop_front() {
            self.begin(event, handler);
        }
    }

    /// The end of a timer or the like that has waited and found a call. Whether it is one.
    pub(super) fn found_a_call(&mut self, event: &Event, of_packet: bool) -> bool {
        if !event.owned || of_packet {
            return false;
        }
        let Some(handler) = self.waiting.pop_front() else {
            return false;
        };
        self.leaves_a_note(event, handler);
        true
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What became of the SYNs of a connection.
//!
//! 1. Each side's SYN (the server's with ACK) is an attempt, from its first copy. Copies that
//!    the capture holds twice count once: what comes within [`SHORTEST_RTO`] was not sent again.
//! 2. Any segment of the other side with ACK or RST after it answers it; a RST refuses it.
//! 3. A SYN after the answer shows that the answer did not arrive, or that the client tries
//!    again after a refusal: the attempt waits again.

use super::limit::between;
use crate::segment::Flags;
use crate::tcp::{Cause, Event, Kind, Moment, Side};

/// Linux's TCP_RTO_MIN; initial RTOs are a second or more (RFC 6298 section 2.1).
const SHORTEST_RTO: u64 = 200_000_000;

/// A side's SYN and its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) first: Moment,
    pub(super) last: Moment,
    /// How often it was sent again.
    pub(super) copies: u64,
    /// What answered the last copy.
    pub(super) answer: Option<Moment>,
    /// How often a RST came back, and when it did last.
    pub(super) refusals: u64,
    pub(super) refused: Option<Moment>,
    /// Something else than a RST came back.
    pub(super) accepted: bool,
}

impl Attempt {
    fn new(now: Moment) -> Self {
        Attempt {
            first: now,
            last: now,
            copies: 0,
            answer: None,
            refusals: 0,
            refused: None,
            accepted: false,
        }
    }

    /// Up to where it waited: the answer, or the last copy.
    pub(super) fn end(&self) -> Moment {
        self.answer.or(self.refused).map_or(self.last, |answer| {
            if answer.frame > self.last.frame {
                answer
            } else {
                self.last
            }
        })
    }

    /// Only a RST came back.
    pub(super) fn is_refused(&self) -> bool {
        self.refusals > 0 && !self.accepted
    }
}

/// The attempts of both sides.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Opening {
    attempts: [Option<Attempt>; 2],
    waiting: bool,
}

impl Opening {
    /// What a side tried; `None`: no SYN of it was observed.
    pub(super) fn of(&self, side: Side) -> Option<Attempt> {
        self.attempts[side as usize]
    }

    /// A segment of the connection.
    #[inline]
    pub(super) fn segment(&mut self, event: &Event<'_>, now: Moment) {
        if self.waiting || event.flags.any(Flags::SYN) {
            self.follow(event, now);
        }
    }

    #[cold]
    fn follow(&mut self, event: &Event<'_>, now: Moment) {
        if event.kind == Kind::HardwareDuplicate {
            return;
        }
        if event.flags.any(Flags::ACK | Flags::RST)
            && let Some(attempt) = &mut self.attempts[event.side.peer() as usize]
            && attempt.answer.is_none()
        {
            attempt.answer = Some(now);
            if event.flags.any(Flags::RST) {
                attempt.refusals += 1;
                attempt.refused = Some(now);
            } else {
                attempt.accepted = true;
            }
        }
        if event.flags.any(Flags::SYN) {
            let attempt = &mut self.attempts[event.side as usize];
            match attempt {
                None => *attempt = Some(Attempt::new(now)),
                Some(attempt) => {
                    if between(attempt.last.time, now.time) < SHORTEST_RTO {
                        return;
                    }
                    let again = event.kind == Kind::Retransmission(Cause::Handshake);
                    attempt.copies += u64::from(again);
                    attempt.last = now;
                    attempt.answer = None;
                }
            }
        }
        self.waiting = (self.attempts.iter().flatten()).any(|a| a.answer.is_none());
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What became of the SYNs of a connection.
//!
//! 1. Each side's SYN (the server's with ACK) is an attempt, from its first copy. Copies that
//!    the capture holds twice count once.
//! 2. Any segment of the other side after it answers it; a RST refuses it. What comes from
//!    the other side without ACK before, or at the same time, is no answer.
//! 3. A copy after the answer shows that the answer did not arrive: the attempt waits again.

use crate::segment::Flags;
use crate::tcp::{Cause, Event, Kind, Moment, Side};

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Accepted,
    Refused,
}

/// A side's SYN and its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub first: Moment,
    pub last: Moment,
    /// How often it was sent again.
    pub copies: u64,
    pub reply: Option<(Moment, Reply)>,
}

impl Attempt {
    /// Up to where it waited: the answer, or the last copy.
    pub(super) fn end(&self) -> Moment {
        self.reply.map_or(self.last, |(at, _)| at)
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
        {
            let refused = event.flags.any(Flags::RST);
            let reply = match refused {
                true => Reply::Refused,
                false => Reply::Accepted,
            };
            attempt.reply = attempt.reply.or(Some((now, reply)));
        }
        if event.flags.any(Flags::SYN) {
            self.syn(event, now);
        }
        self.waiting = (self.attempts.iter().flatten()).any(|a| a.reply.is_none());
    }

    fn syn(&mut self, event: &Event<'_>, now: Moment) {
        let attempt = &mut self.attempts[event.side as usize];
        match attempt {
            None => {
                *attempt = Some(Attempt {
                    first: now,
                    last: now,
                    copies: 0,
                    reply: None,
                });
            }
            Some(attempt) => {
                attempt.last = now;
                attempt.copies += u64::from(event.kind == Kind::Retransmission(Cause::Handshake));
                // A client that tries again after a RST knows that it was refused.
                if let Some((_, Reply::Accepted)) = attempt.reply {
                    attempt.reply = None;
                }
            }
        }
    }
}

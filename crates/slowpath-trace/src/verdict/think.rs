// SPDX-License-Identifier: Apache-2.0
//! How long an application took to answer.
//!
//! 1. A side's *think time* is from the other side's last data (sent again or not), or from
//!    the end of the handshake if there was none, to its own first data after that, less one
//!    turn (the shortest time from here to it and back): what passed at its host.
//! 2. It counts only if its host acknowledged all of the other side's data before it answered:
//!    otherwise the request may have been lost, or its ACK; and if the other side's window was
//!    not closed. A host acknowledges within half a second (RFC 1122 section 4.2.3.2), so that
//!    this leaves no long one out.
//! 3. Waits from [`NOTICED`] on are summed: "about the limit for having the user feel that the
//!    system is reacting instantaneously" (Nielsen, Usability Engineering, 1993, section 5.5, after
//!    Miller 1968). The server kept its client waiting if one of them is [`TOO_LONG`]: "about the
//!    limit for the user's flow of thought to stay uninterrupted". What a client takes is its
//!    user's time.

use crate::tcp::Moment;
use std::time::Duration;

/// Waits that are summed, ns.
const NOTICED: i64 = 100_000_000;

/// A wait that is worth looking into.
const TOO_LONG: Duration = Duration::from_secs(1);

/// What one side's application took to answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Think {
    /// All waits of 0.1 s and more.
    pub time: Duration,
    /// How many.
    pub waits: u64,
    /// The longest, with the segments between which it lies.
    pub longest: Option<(Duration, Moment, Moment)>,
}

impl Think {
    /// Whether the other side had to wait for a second or more.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.longest.is_some_and(|(time, ..)| time >= TOO_LONG)
    }

    /// The side answered at `to` what was sent at `from`, a turn away from here.
    pub(super) fn answered(&mut self, from: Moment, to: Moment, turn: i64) {
        let waited = to.time.0.saturating_sub(from.time.0).saturating_sub(turn);
        if waited < NOTICED {
            return;
        }
        let time = Duration::from_nanos(u64::try_from(waited).unwrap_or(0));
        self.time = self.time.saturating_add(time);
        self.waits += 1;
        if self.longest.is_none_or(|(longest, ..)| time > longest) {
            self.longest = Some((time, from, to));
        }
    }
}

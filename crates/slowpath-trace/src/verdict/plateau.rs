// SPDX-License-Identifier: Apache-2.0
//! A send buffer observed from outside: data under way that stays the same although every
//! congestion window would have grown, or that is sent anew only after part of it was
//! acknowledged ([`refills`]).
//!
//! Round by round (a round ends when what was sent last at its beginning is acknowledged),
//! the most that was under way. It is a plateau when all of these hold:
//!
//! 1. [`ROUNDS`] rounds in a row, as many RTTs, and [`SHORTEST`] at least, differ by at most [`LEVEL`]
//!    segments. A round that takes less than three quarters of an RTT began in a pause after a
//!    burst (Linux wakes the writer when a third of the buffer is free,
//!    `sk_stream_is_writeable`): it counts as the one before if that had more under way. A
//!    congestion window in use grows by a segment a round (RFC 5681 section 3.1), CUBIC's by
//!    3 · (1 − 0.7) ÷ (1 + 0.7) = 0.53 at least where it follows Reno (RFC 9438 section 4.3): by
//!    four in eight rounds.
//! 2. No loss in it. After one, CUBIC stays within a segment of its old window for
//!    2 · (1 ÷ C)^(1/3) = 2.7 s (RFC 9438 section 4.2, C = 0.4): a plateau after a loss has to
//!    last longer than that.
//! 3. The advertised window left room for two segments more, and the congestion window may have grown to
//!    twice what was under way: from [`INITIAL`] segments, by what was acknowledged (RFC 5681
//!    section 3.1). Up to there it grows in slow start (`tcp_is_cwnd_limited`).
//! 4. Three of four bytes were in full segments: an application that writes little at a time keeps a
//!    constant amount under way too. (Each write may end with a segment that is not full.)
//! 5. The sender never ran dry in it.
//! 6. The path was not full, or it would have been the limit: captured at the sender, no round's
//!    least RTT exceeds the connection's by a quarter (and a host's time) or more, which is a
//!    standing queue (not of a round that began in a pause: it has the end of a burst only);
//!    elsewhere, where a bottleneck's even flow looks constant, each round passed in a burst and
//!    was silent for half of its time at least (one that began in a pause: with the round
//!    before, which had the pause).
//! 7. As a whole: if the mean of its last [`ROUNDS`] rounds exceeds that of its first by more
//!    than two segments, it was additive increase, however slow, and no plateau at all; not where
//!    refills show the buffer, which may grow too.
//! 8. Its bursts follow ACKs ([`waits`]): an application that passes on what arrives at a constant
//!    rate keeps a constant amount under way too, but sends when something arrives.
//!
//! What else looks like this: an application that keeps a fixed number of full segments
//! under way, and a congestion control that does not grow (BBR between two probes, on a path
//! of less than eight segments).

mod refills;
mod waits;

use crate::tcp::Moment;
use refills::{REFILLS, Refills, Stretch};
use waits::Waits;

/// Rounds of a plateau.
const ROUNDS: usize = 8;

/// Segments by which its rounds may differ: fewer than any congestion window grows in them.
const LEVEL: i64 = 3;

/// Least length of a plateau, ns: below it a host's own scheduling is a limit.
const SHORTEST: i64 = 100_000_000;

/// Segments of the initial window (RFC 6928).
const INITIAL: i64 = 10;

/// A host's own time to answer, ns.
const HOST: i64 = 1_000_000;

/// Least length after a loss, ns.
const AFTER_LOSS: i64 = 2_714_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Round {
    began: i64,
    most: i64,
    /// Bytes sent in full segments, and in all.
    full: i64,
    bytes: i64,
    /// One of both windows may have had no room for more, or the path.
    pressed: bool,
    /// The last data, the longest time between two, and the least RTT, ns; 0: none.
    last: i64,
    gap: i64,
    rtt: i64,
}

impl Round {
    /// Rule 6: the path had room for more in this round, which ended at `end`; `before` is the one
    /// that is judged with it.
    fn had_room(&self, end: i64, before: Option<&Round>, path: &PathTimes) -> bool {
        if path.is_at_sender() {
            let most = path.receiver.saturating_add(path.receiver / 4);
            return self.rtt <= most.saturating_add(HOST);
        }
        let silence = |round: &Round, end: i64| round.gap.max(end.saturating_sub(round.last));
        let own = silence(self, end);
        let (silent, began) = match before {
            Some(before) => (own.max(silence(before, self.began)), before.began),
            None => (own, self.began),
        };
        // Times of a damaged capture lie centuries from one another.
        silent.saturating_mul(2) >= end.saturating_sub(began)
    }
}

/// The path as it looks from here.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathTimes {
    /// Shortest time to the sender and back, and to the receiver and back, ns.
    pub turn: i64,
    pub receiver: i64,
    /// Payload of a full segment.
    pub full: i64,
}

impl PathTimes {
    /// The path's RTT, ns.
    fn rtt(&self) -> i64 {
        self.turn.saturating_add(self.receiver)
    }

    /// The capture was made nearer to the sender than to the receiver.
    fn is_at_sender(&self) -> bool {
        self.turn <= self.receiver
    }
}

/// New data.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentData {
    pub at: Moment,
    /// The data before it.
    pub last: Moment,
    pub length: i64,
    /// One past the last byte sent, and acknowledged.
    pub next: i64,
    pub acked: i64,
    /// The window has room for two segments more.
    pub room: bool,
    /// An ACK that showed something new had come just before it.
    pub prompt: bool,
    /// The receiver had sent data since the data before it.
    pub answered: bool,
    /// A loss is being repaired.
    pub repairing: bool,
    pub path: PathTimes,
}

/// What a round changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// There is a plateau, since then (ns).
    Found(i64),
    /// What was called a plateau since then (ns) was none.
    Revoked(i64),
}

/// Follows the rounds of one direction.
#[derive(Clone, Debug, Default)]
pub(super) struct Plateau {
    rounds: [Round; ROUNDS],
    count: usize,
    current: Round,
    /// The round is over when this is acknowledged; 0: it has not begun.
    until: i64,
    lost: Option<i64>,
    /// Since when the rounds differ by little.
    since: Option<i64>,
    holds: bool,
    /// Most under way in its first rounds, summed.
    first: i64,
    /// Most under way in any round.
    recent: i64,
    /// Most under way in the last round, itself.
    before: i64,
    waits: Waits,
    refills: Refills,
}

impl Plateau {
    /// New data was sent. Returns from when to when the buffer was the limit, as far as refills
    /// show it now.
    pub(super) fn sent(&mut self, data: &SentData) -> Option<[Option<Stretch>; REFILLS]> {
        let (now, flight) = (data.at.time.0, data.next - data.acked);
        let most = self.recent;
        let rtt = data.path.rtt();
        let released = self.waits.sent(data, most);
        let released = released.filter(|_| self.waits.follow_acks());
        let settled = |lost: i64| now.saturating_sub(lost) > rtt;
        let unlimited = data.room && !data.repairing && self.lost.is_none_or(settled);
        let found = self.refills.sent(data, released, most, unlimited);
        self.continue_round(data, now, flight);
        found
    }

    fn continue_round(&mut self, data: &SentData, now: i64, flight: i64) {
        if self.until == 0 {
            self.until = data.next;
            self.current = Round {
                began: now,
                ..Round::default()
            };
        }
        let round = &mut self.current;
        if round.last > 0 {
            round.gap = round.gap.max(now.saturating_sub(round.last));
        }
        round.last = now;
        round.most = round.most.max(flight);
        round.bytes += data.length;
        if data.length >= data.path.full {
            round.full += data.length;
        }
        round.pressed |= !data.room;
        self.recent = self.recent.max(flight);
    }

    /// An RTT to the receiver, ns.
    pub(super) fn rtt(&mut self, rtt: i64) {
        let least = &mut self.current.rtt;
        *least = if *least == 0 { rtt } else { rtt.min(*least) };
    }

    /// Something was acknowledged.
    pub(super) fn acknowledged(
        &mut self,
        now: i64,
        acked: i64,
        next: i64,
        path: &PathTimes,
    ) -> Option<Change> {
        self.refills.acknowledged(now, acked);
        if self.until == 0 || acked < self.until {
            return None;
        }
        let mss = path.full;
        let most = self.current.most;
        let lasted = now.saturating_sub(self.current.began);
        let short = lasted.saturating_mul(4) < path.rtt().saturating_mul(3);
        if short {
            self.current.most = most.max(self.before);
        }
        if !(short && path.is_at_sender()) {
            let before = (short && self.count > 0).then(|| &self.rounds[(self.count - 1) % ROUNDS]);
            self.current.pressed |= !self.current.had_room(now, before, path);
        }
        self.current.pressed |= 2 * most > INITIAL * mss + acked;
        self.before = most;
        self.rounds[self.count % ROUNDS] = self.current;
        self.count += 1;
        self.until = next.max(acked + 1);
        // What is under way is part of the next round's flight.
        self.current = Round {
            began: now,
            most: next.saturating_sub(acked),
            ..Round::default()
        };
        let known = self.rounds;
        let known = &known[..self.count.min(ROUNDS)];
        self.recent = known.iter().map(|r| r.most).max().unwrap_or(0);
        let (was, since) = (self.holds, self.since);
        self.holds = self.is_plateau(now, path);
        let sum = known.iter().map(|r| r.most).sum::<i64>();
        if self.holds && !was {
            self.first = sum;
            return self.since.map(Change::Found);
        }
        let grew = sum - self.first > 2 * mss * ROUNDS as i64;
        if was && grew && !self.refills.are_near(now, path.rtt()) {
            self.restart();
            return since.map(Change::Revoked);
        }
        None
    }

    fn is_plateau(&mut self, now: i64, path: &PathTimes) -> bool {
        let mss = path.full;
        let oldest = self.rounds[self.count % ROUNDS].began;
        if self.count < ROUNDS {
            return false;
        }
        let most = self.recent;
        let least = self.rounds.iter().map(|r| r.most).min().unwrap_or(0);
        let sum = |of: fn(&Round) -> i64| self.rounds.iter().map(of).sum::<i64>();
        let level = most - least <= LEVEL * mss && least >= 2 * mss;
        let full = 4 * sum(|r| r.full) >= 3 * sum(|r| r.bytes);
        let pressed = self.rounds.iter().any(|r| r.pressed);
        if !level || !full || pressed || !self.waits.follow_acks() {
            self.since = None;
            return false;
        }
        let since = self.since.map_or(oldest, |s| s.min(oldest));
        self.since = Some(since);
        let needed = match self.lost {
            Some(lost) if lost >= since => return false,
            Some(_) => AFTER_LOSS,
            None => SHORTEST.max(path.rtt().saturating_mul(ROUNDS as i64)),
        };
        now.saturating_sub(since) >= needed
    }

    /// A segment was sent again.
    pub(super) fn lost(&mut self, now: i64) {
        self.lost = Some(now);
        self.refills.lost();
        self.restart();
    }

    /// The sender had nothing to send.
    pub(super) fn dry(&mut self) {
        self.restart();
    }

    fn restart(&mut self) {
        self.count = 0;
        self.before = 0;
        self.until = 0;
        self.since = None;
        self.holds = false;
    }

    /// Whether there is a plateau now.
    pub(super) fn holds(&self) -> bool {
        self.holds
    }

    /// Most under way in the last rounds.
    pub(super) fn recent(&self) -> i64 {
        self.recent
    }
}

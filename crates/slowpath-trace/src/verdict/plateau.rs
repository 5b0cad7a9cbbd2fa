// SPDX-License-Identifier: Apache-2.0
//! A send buffer observed from outside: data under way that stays the same although every
//! congestion window would have grown.
//!
//! Round by round (a round ends when what was sent last at its beginning is acknowledged),
//! the most that was under way. It is a plateau when all of these hold:
//!
//! 1. [`ROUNDS`] rounds in a row, as many RTTs, and [`SHORTEST`] at least, differ by at most [`LEVEL`]
//!    segments. A round that takes less than three quarters of an RTT began in a pause after a
//!    burst (Linux wakes the writer when a third of the buffer is free,
//!    `sk_stream_is_writeable`): it counts as the one before if that had more under way. A congestion window in use grows by a segment a round (RFC 5681 section
//!    3.1), CUBIC's by 3 · (1 − 0.7) ÷ (1 + 0.7) = 0.53 at least where it follows Reno (RFC
//!    9438 section 4.3): by four in eight rounds.
//! 2. No loss in it. After one, CUBIC stays within a segment of its old window for
//!    2 · (1 ÷ C)^(1/3) = 2.7 s (RFC 9438 section 4.2, C = 0.4): a plateau after a loss has to
//!    last longer than that.
//! 3. The advertised window left room for two segments more.
//! 4. Three of four segments were full: an application that writes little at a time keeps a
//!    constant amount under way too.
//! 5. The sender never ran dry in it.
//! 6. The path was not full, or it would have been the limit: captured at the sender, no round's
//!    least RTT exceeds the connection's by a quarter (and a host's time) or more, which is a
//!    standing queue; elsewhere, where a bottleneck's even flow looks constant, each round passed
//!    in a burst and was silent for half of its time at least.
//! 7. As a whole: if the mean of its last [`ROUNDS`] rounds exceeds that of its first by more
//!    than two segments, it was additive increase, however slow, and no plateau at all.
//!
//! What else looks like this: an application that keeps a fixed number of full segments
//! under way, and a congestion control that does not grow (BBR between two probes, on a path
//! of less than eight segments).

/// Rounds of a plateau.
const ROUNDS: usize = 8;

/// Segments by which its rounds may differ: fewer than any congestion window grows in them.
const LEVEL: i64 = 3;

/// Least length of a plateau, ns: below it a host's own scheduling is a limit.
const SHORTEST: i64 = 100_000_000;

/// A host's own time to answer, ns.
const HOST: i64 = 1_000_000;

/// Least length after a loss, ns.
const AFTER_LOSS: i64 = 2_714_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Round {
    began: i64,
    most: i64,
    full: u32,
    segments: u32,
    /// The window had no room for more, or the path.
    pressed: bool,
    /// The last data, the longest time between two, and the least RTT, ns; 0: none.
    last: i64,
    gap: i64,
    rtt: i64,
}

impl Round {
    /// Rule 6: the path had room for more in this round, which ended at `end`.
    fn had_room(&self, end: i64, path: &PathTimes) -> bool {
        if path.turn <= path.receiver {
            return self.rtt <= path.receiver + path.receiver / 4 + HOST;
        }
        let gap = self.gap.max(end.saturating_sub(self.last));
        2 * gap >= end.saturating_sub(self.began)
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
}

impl Plateau {
    /// New data was sent; `flight` counts it.
    pub(super) fn sent(&mut self, now: i64, next: i64, flight: i64, full: bool, room: bool) {
        if self.until == 0 {
            self.until = next;
            self.current = Round {
                began: now,
                ..Round::default()
            };
        }
        if self.current.last > 0 {
            self.current.gap = self.current.gap.max(now.saturating_sub(self.current.last));
        }
        self.current.last = now;
        self.current.most = self.current.most.max(flight);
        self.current.segments += 1;
        self.current.full += u32::from(full);
        self.current.pressed |= !room;
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
        if self.until == 0 || acked < self.until {
            return None;
        }
        let mss = path.full;
        self.current.pressed |= !self.current.had_room(now, path);
        let most = self.current.most;
        let rtt = path.turn.saturating_add(path.receiver);
        if 4 * now.saturating_sub(self.current.began) < 3 * rtt {
            self.current.most = most.max(self.before);
        }
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
        if was && sum - self.first > 2 * mss * ROUNDS as i64 {
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
        let sum = |of: fn(&Round) -> u32| self.rounds.iter().map(of).sum::<u32>();
        let (full, segments) = (sum(|r| r.full), sum(|r| r.segments));
        let level = most - least <= LEVEL * mss && least >= 2 * mss;
        if !level || self.rounds.iter().any(|r| r.pressed) || full * 4 < segments * 3 {
            self.since = None;
            return false;
        }
        let since = self.since.map_or(oldest, |s| s.min(oldest));
        self.since = Some(since);
        let needed = match self.lost {
            Some(lost) if lost >= since => return false,
            Some(_) => AFTER_LOSS,
            None => SHORTEST.max((path.turn + path.receiver).saturating_mul(ROUNDS as i64)),
        };
        now.saturating_sub(since) >= needed
    }

    /// A segment was sent again.
    pub(super) fn lost(&mut self, now: i64) {
        self.lost = Some(now);
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

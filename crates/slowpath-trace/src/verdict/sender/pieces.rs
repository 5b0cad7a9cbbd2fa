// SPDX-License-Identifier: Apache-2.0
//! Pieces of time: what each is, by rules 1 to 6 of [`super`], and, when the sender sends
//! next, what it waited for in them, by rules 7 to 12.

use super::super::limit::{Interval, Limit};
use super::{Next, PIECES, PROBE_WAIT, PROMPT, Piece, START, Sender, What, passed};
use crate::segment::Timestamp;
use crate::tcp::{Event, Moment};

impl Sender {
    /// An ACK was kept back: the flight since an ACK in time would have come is late.
    pub(super) fn kept_back(&mut self, now: Moment, ack: i64, late: i64) {
        let lone = ack - self.acked < 2 * self.full;
        let Some(path) = self.path_rtt() else { return };
        if self.last_data == START {
            return;
        }
        let since = self.last_data.time.0.saturating_add(path);
        if now.time.0.saturating_sub(since) < late {
            return;
        }
        self.delayed_acks += 1;
        let since = Moment {
            frame: self.last_data.frame,
            time: Timestamp(since),
        };
        self.split(since);
        for piece in self.pieces.iter_mut().rev() {
            if piece.from.time < since.time {
                break;
            }
            if piece.what == What::Flight {
                piece.what = What::Late { lone };
            }
        }
    }

    /// Makes a piece begin there.
    fn split(&mut self, at: Moment) {
        let found = self
            .pieces
            .iter()
            .rposition(|p| p.from.time < at.time && at.time < p.to.time);
        if let Some(index) = found {
            let mut second = self.pieces[index];
            self.pieces[index].to = at;
            second.from = at;
            self.pieces.insert(index + 1, second);
        }
    }

    fn what(&self) -> What {
        let under_way = self.next - self.acked;
        if self.closed {
            What::Known(Limit::Closed)
        } else if self.opening {
            What::Known(Limit::Opening)
        } else if self.timeout.is_some() {
            What::Known(Limit::Timeout)
        } else if self.recovery.is_some() {
            What::Known(Limit::Recovery)
        } else if self.probe.is_some() {
            What::Known(Limit::TailLossProbe)
        } else if self.zero {
            What::Zero
        } else if under_way <= 0 {
            What::Idle
        } else if !self.unscaled
            && self
                .edge
                .is_some_and(|e| e.saturating_sub(self.next) < self.full)
        {
            What::Full
        } else {
            What::Flight
        }
    }

    /// Time has passed.
    pub(super) fn advance(&mut self, to: Moment) {
        if to.time <= self.at.time {
            return;
        }
        let piece = Piece {
            from: self.at,
            to,
            what: self.what(),
        };
        self.at = to;
        match self.pieces.last_mut() {
            Some(last) if last.what == piece.what => last.to = to,
            _ => self.pieces.push(piece),
        }
        if self.pieces.len() > PIECES {
            self.settle(Next::Nothing, to);
        }
    }

    /// Rule 7.
    pub(super) fn is_probe(&self, event: &Event<'_>, now: Moment) -> bool {
        let first = self.probe.is_none()
            && self.timeout.is_none()
            && self.recovery.is_none()
            && event.sequence >= self.resent;
        let path = self.srtt.saturating_add(self.turn());
        let longest = path.saturating_mul(2).saturating_add(PROBE_WAIT);
        let waited = passed(self.sign_of_life, now);
        let last = event.end >= self.next;
        self.sack
            && first
            && last
            && !self.signalled
            && waited <= longest.saturating_add(longest / 4)
    }

    fn since_release(&self, now: Moment) -> Option<i64> {
        let released = self.last_release.time >= self.last_data.time && self.last_release != START;
        released.then(|| passed(self.last_release, now))
    }

    pub(super) fn is_prompt(&self, now: Moment) -> bool {
        let held = passed(self.last_data, self.last_release);
        let slack = (held / 4).clamp(PROMPT.0, PROMPT.1) + self.turn() / 8;
        self.since_release(now).is_some_and(|since| since <= slack)
    }

    /// The sender sends next: rules 7 to 12.
    pub(super) fn settle(&mut self, next: Next, now: Moment) {
        if matches!(next, Next::Timer | Next::Probe) {
            self.split(self.sign_of_life);
        }
        let prompt = matches!(next, Next::Data { .. }) && self.is_prompt(now);
        let soon = matches!(next, Next::Data { .. })
            && (prompt
                || self
                    .since_release(now)
                    .zip(self.path_rtt())
                    .is_some_and(|(since, path)| since <= path));
        let flight = self.flight_limit(next, prompt);
        let mut pieces = std::mem::take(&mut self.pieces);
        let mut held = false;
        let mut small = false;
        for piece in &pieces {
            let waited = piece.from.time >= self.sign_of_life.time;
            let limit = match (piece.what, next) {
                (What::Known(Limit::Recovery | Limit::TailLossProbe), Next::Timer) if waited => {
                    Limit::Timeout
                }
                (What::Known(limit), _) => limit,
                (_, Next::Timer) if waited => Limit::Timeout,
                (_, Next::Probe) if waited => Limit::TailLossProbe,
                (What::Zero, _) if self.probed || soon => Limit::ZeroWindow,
                (What::Full, _) if soon => Limit::ReceiverWindow,
                (What::Late { lone }, _) => {
                    if prompt && !self.answered {
                        held = true;
                        Limit::DelayedAck
                    } else if lone && !self.answered {
                        Limit::DelayedAck
                    } else {
                        Limit::SenderApp
                    }
                }
                (What::Flight, _) => flight,
                (What::Zero | What::Full | What::Idle, _) => Limit::SenderApp,
            };
            small |= limit == Limit::SmallWrites;
            let interval = Interval {
                from: piece.from,
                to: piece.to,
                limit,
            };
            self.line.push(interval, self.keep);
        }
        self.held_acks += u64::from(held);
        self.small_writes += u64::from(small);
        pieces.clear();
        self.pieces = pieces;
    }

    /// Rules 10 to 12.
    fn flight_limit(&self, next: Next, prompt: bool) -> Limit {
        let network = if self.plateau.holds() {
            Limit::SendBuffer
        } else {
            Limit::CongestionWindow
        };
        match next {
            Next::Data { small, flight } if prompt => {
                if flight > 0 {
                    network
                } else if self.answered {
                    Limit::SenderApp
                } else if small && self.last_small {
                    Limit::SmallWrites
                } else {
                    network
                }
            }
            Next::Data { flight, .. } => {
                let more = !self.last_small && !self.last_pushed;
                let high = !self.last_small && 2 * flight >= self.plateau.recent();
                if flight > 0 && (more || high) {
                    network
                } else {
                    Limit::SenderApp
                }
            }
            Next::Repair if !self.last_small => network,
            _ => Limit::SenderApp,
        }
    }
}

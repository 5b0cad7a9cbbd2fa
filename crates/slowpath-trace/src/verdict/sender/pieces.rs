// SPDX-License-Identifier: Apache-2.0
//! Pieces of time: what each is, by rules 1 to 6 of [`super`], and, when the sender sends
//! next, what it waited for in them, by rules 7 to 12.

use super::super::limit::{Interval, Limit};
use super::{HOST, Next, PIECES, PROBE_WAIT, PROMPT, Piece, PieceKind, START, Sender, passed};
use crate::segment::Timestamp;
use crate::tcp::{Event, Moment};

impl Sender {
    /// An ACK was kept back: the flight since an ACK in time would have come is late.
    pub(super) fn kept_back(&mut self, now: Moment, late: i64) {
        if self.last.time == START {
            return;
        }
        self.counts.delayed_acks += 1;
        let since = Moment {
            frame: self.last.time.frame,
            time: Timestamp(now.time.0.saturating_sub(late)),
        };
        self.split(since);
        for piece in self.pieces.iter_mut().rev() {
            if piece.from.time < since.time {
                break;
            }
            if piece.kind == PieceKind::Flight {
                piece.kind = PieceKind::Late;
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

    /// A receiver advertises no less than a full segment but 0 (RFC 9293 section 3.8.6.2.2):
    /// without a handshake, such a window shows that its scale is not known.
    pub(super) fn read_window(&mut self, window: u64) {
        let less = i64::try_from(window).is_ok_and(|w| (1..self.sequence.full).contains(&w));
        if less && !self.window.unscaled && !self.sequence.size.by_handshake() {
            self.scale_is_unknown();
        }
    }

    /// Windows are not what they were taken for, now and before.
    #[cold]
    pub(super) fn scale_is_unknown(&mut self) {
        self.window.unscaled = true;
        for piece in &mut self.pieces {
            piece.kind = match piece.kind {
                PieceKind::Full => PieceKind::Flight,
                PieceKind::Blocked => PieceKind::Idle,
                known => known,
            };
        }
        let read = [Limit::ReceiverWindow];
        self.line.relabel(START, &read, Limit::CongestionWindow);
    }

    fn kind(&self) -> PieceKind {
        let under_way = self.sequence.in_flight();
        if self.closed {
            PieceKind::Known(Limit::Closed)
        } else if self.opening {
            PieceKind::Known(Limit::Opening)
        } else if self.repair.timeout.is_some() {
            PieceKind::Known(Limit::Timeout)
        } else if self.repair.recovery.is_some() {
            PieceKind::Known(Limit::Recovery)
        } else if self.repair.probe.is_some() {
            PieceKind::Known(Limit::TailLossProbe)
        } else if self.window.zero {
            PieceKind::Zero
        } else {
            match (under_way > 0, self.has_room()) {
                (false, true) => PieceKind::Idle,
                (false, false) => PieceKind::Blocked,
                (true, false) => PieceKind::Full,
                (true, true) => PieceKind::Flight,
            }
        }
    }

    /// A full segment fits in the window, or what the window is, is not known.
    fn has_room(&self) -> bool {
        let edge = self.window.edge.filter(|_| !self.window.unscaled);
        edge.is_none_or(|e| e.saturating_sub(self.sequence.next) >= self.sequence.full)
    }

    /// Time has passed.
    #[inline]
    pub(super) fn advance(&mut self, to: Moment) {
        if to.time > self.at.time {
            self.pass(to);
        }
    }

    fn pass(&mut self, to: Moment) {
        let kind = self.kind();
        let from = std::mem::replace(&mut self.at, to);
        if kind == PieceKind::Full {
            self.window.was_full(self.sequence.acked);
        }
        match self.pieces.last_mut() {
            Some(last) if last.kind == kind => last.to = to,
            _ => self.next_piece(Piece { from, to, kind }),
        }
    }

    fn next_piece(&mut self, piece: Piece) {
        self.pieces.push(piece);
        if self.pieces.len() > PIECES {
            self.settle(Next::Nothing, piece.to);
        }
    }

    /// Rule 7.
    pub(super) fn is_probe(&self, event: &Event<'_>, now: Moment) -> bool {
        let first = !self.repair.is_under_way() && event.sequence >= self.repair.resent;
        let path = self.rtt.smoothed.saturating_add(self.turn());
        let longest = path.saturating_mul(2).saturating_add(PROBE_WAIT);
        let waited = passed(self.sign_of_life, now);
        let last = event.end >= self.sequence.next;
        self.repair.sack
            && first
            && last
            && !self.repair.signalled
            && waited <= longest.saturating_add(longest / 4)
    }

    pub(super) fn since_release(&self, now: Moment) -> Option<i64> {
        let released = self.last_release.time >= self.last.time.time && self.last_release != START;
        released.then(|| passed(self.last_release, now))
    }

    pub(super) fn is_prompt(&self, now: Moment) -> bool {
        let held = passed(self.last.time, self.last_release);
        let slack = (held / 4).clamp(PROMPT.0, PROMPT.1) + self.turn() / 8;
        self.since_release(now).is_some_and(|since| since <= slack)
    }

    /// The sender sends next: rules 7 to 12.
    pub(super) fn settle(&mut self, next: Next, now: Moment) {
        if matches!(next, Next::Timer | Next::Probe) {
            self.split(self.sign_of_life);
        }
        let prompt = matches!(next, Next::Data { .. }) && self.is_prompt(now);
        let waited = !self.last.answered || !self.last.small && !self.last.pushed;
        let soon = matches!(next, Next::Data { .. })
            && waited
            && (prompt
                || self
                    .since_release(now)
                    .zip(self.path_rtt())
                    .is_some_and(|(since, path)| since <= path));
        let let_go = !self.last.answered
            && matches!(next, Next::Data { after: true, .. })
            && self
                .since_release(now)
                .is_some_and(|since| prompt || since <= HOST + self.turn() / 8 + self.rtt.jitter());
        let flight = match next {
            // Nagle's rule lets a small segment go with the ACK of the small one before.
            Next::Data {
                small: true,
                flight: 0,
                ..
            } if let_go && self.last.small => Limit::SmallWrites,
            _ => self.flight_limit(next, prompt),
        };
        let mut pieces = std::mem::take(&mut self.pieces);
        let mut held = false;
        let mut small = false;
        for piece in &pieces {
            let waited = piece.from.time >= self.sign_of_life.time;
            let limit = match (piece.kind, next) {
                (PieceKind::Known(Limit::Recovery | Limit::TailLossProbe), Next::Timer)
                    if waited =>
                {
                    Limit::Timeout
                }
                (PieceKind::Known(limit), _) => limit,
                (_, Next::Timer) if waited => Limit::Timeout,
                (_, Next::Probe) if waited => Limit::TailLossProbe,
                (PieceKind::Zero, _) if self.window.probed || soon => Limit::ZeroWindow,
                (PieceKind::Full, _) if soon => Limit::ReceiverWindow,
                (PieceKind::Blocked, Next::Data { small: false, .. }) if soon => {
                    Limit::ReceiverWindow
                }
                (PieceKind::Late, _) if let_go => {
                    held = true;
                    Limit::DelayedAck
                }
                (PieceKind::Late, _) => Limit::SenderApp,
                (PieceKind::Flight, _) => flight,
                (PieceKind::Zero | PieceKind::Full | PieceKind::Blocked | PieceKind::Idle, _) => {
                    Limit::SenderApp
                }
            };
            small |= limit == Limit::SmallWrites;
            let interval = Interval {
                from: piece.from,
                to: piece.to,
                limit,
            };
            self.line.push(interval, self.keep);
        }
        self.counts.held_acks += u64::from(held);
        self.counts.small_writes += u64::from(small);
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
            Next::Data { flight, .. } if prompt => {
                if flight > 0 {
                    network
                } else if self.last.answered {
                    Limit::SenderApp
                } else {
                    network
                }
            }
            Next::Data { flight, .. } => {
                let more = !self.last.small && !self.last.pushed;
                let high = !self.last.small && 2 * flight >= self.plateau.recent();
                if flight > 0 && (more || high) {
                    network
                } else {
                    Limit::SenderApp
                }
            }
            Next::Repair if !self.last.small => network,
            _ => Limit::SenderApp,
        }
    }
}

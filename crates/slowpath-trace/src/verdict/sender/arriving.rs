// SPDX-License-Identifier: Apache-2.0
//! What the receiver sends, on its way to the sender: when it takes effect there, and what it
//! shows of the path, of the windows and of the ACKs that were kept back.

use super::super::limit::Limit;
use super::super::plateau::Change;
use super::{PENDING, PROMPT, START, Sender, Sequence, lateness, passed};
use crate::segment::{Flags, Timestamp};
use crate::tcp::{Event, Marks, Moment};

/// A segment of the other side, until it reaches the sender; packed, as a window of them may be on
/// its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    pub(super) effect: Moment,
    ack: i64,
    edge: i64,
    late: i64,
    window: u32,
    stamp: u32,
    /// Which of these there are, and whether it has payload.
    has: u8,
}

/// Bits of [`Incoming::has`].
mod has {
    pub const ACK: u8 = 1;
    pub const WINDOW: u8 = 1 << 1;
    pub const LATE: u8 = 1 << 2;
    pub const STAMP: u8 = 1 << 3;
    pub const PAYLOAD: u8 = 1 << 4;
}

impl Incoming {
    /// `late`: it was kept back, by so much, ns.
    #[inline]
    fn new(event: &Event<'_>, effect: Moment, late: Option<i64>) -> Self {
        let window = event.window.zip(event.window_edge);
        let bit = |there: bool, bit: u8| if there { bit } else { 0 };
        Incoming {
            effect,
            ack: event.acknowledgement.unwrap_or(0),
            edge: window.map_or(0, |(_, edge)| edge),
            late: late.unwrap_or(0),
            // At most 65,535 << 14.
            window: window.map_or(0, |(window, _)| window as u32),
            stamp: event.timestamps.map_or(0, |(value, _)| value),
            has: bit(event.acknowledgement.is_some(), has::ACK)
                | bit(window.is_some(), has::WINDOW)
                | bit(late.is_some(), has::LATE)
                | bit(event.timestamps.is_some(), has::STAMP)
                | bit(event.length > 0, has::PAYLOAD),
        }
    }

    /// The same, with effect at another time.
    pub(super) fn taking_effect(self, effect: Moment) -> Self {
        Incoming { effect, ..self }
    }

    pub(super) fn acknowledges(&self) -> Option<i64> {
        (self.has & has::ACK != 0).then_some(self.ack)
    }

    fn window(&self) -> Option<(u64, i64)> {
        (self.has & has::WINDOW != 0).then_some((self.window.into(), self.edge))
    }

    fn late(&self) -> Option<i64> {
        (self.has & has::LATE != 0).then_some(self.late)
    }

    /// Its TSval.
    fn stamp(&self) -> Option<u32> {
        (self.has & has::STAMP != 0).then_some(self.stamp)
    }
}

impl Sender {
    /// The receiver sent a segment.
    pub(crate) fn received(&mut self, event: &Event<'_>, now: Moment) {
        if let Some(rtt) = event.rtt {
            let rtt = self.rtt.sample(rtt);
            self.plateau.rtt(rtt);
        }
        if event.marks.any(Marks::ECE) {
            self.plateau.lost(now.time.0);
        }
        // A DSACK block reports an unneeded copy, not of a loss.
        let needless = usize::from(event.marks.any(Marks::DSACK));
        self.repair.signalled |=
            event.duplicate > 0 && needless == 0 || event.sack.len() > needless;
        if event
            .acknowledgement
            .is_some_and(|ack| ack > self.sequence.acked)
            && event.sack.is_empty()
        {
            self.repair.signalled = false;
        }
        let late = self.lateness(event, now);
        let effect = Moment {
            frame: now.frame,
            time: Timestamp(now.time.0.saturating_add(self.turn())),
        };
        let segment = Incoming::new(event, effect, late);
        if self.turn() == 0 {
            self.arrive(now);
            if self.incoming.is_empty() {
                return self.apply(&segment);
            }
        }
        if self.incoming.len() >= PENDING
            && let Some(first) = self.incoming.pop_front()
        {
            self.apply(&first);
        }
        self.incoming.push_back(segment);
    }

    /// Rule 6: by how much an ACK was kept back, ns.
    pub(super) fn lateness(&mut self, event: &Event<'_>, now: Moment) -> Option<i64> {
        let ack = event.acknowledgement.filter(|_| self.sequence.begun)?;
        if !self.lateness.is_news(self.sequence.acked, ack) {
            return None;
        }
        let base = self.rtt.receiver()?;
        // What was sent long enough ago to have arrived, a timer's ACK covers.
        let all = ack >= self.sequence.next || passed(self.last.time, now) < base;
        let pure = event.length == 0 && !event.flags.any(Flags::SYN | Flags::FIN | Flags::RST);
        self.lateness.acknowledged(&lateness::Acknowledged {
            at: now.time.0,
            from: self.sequence.acked,
            ack,
            rtt: event
                .rtt
                .map(|rtt| i64::try_from(rtt.as_nanos()).unwrap_or(i64::MAX)),
            base,
            path: base.saturating_add(self.turn()),
            sent: self.sequence.next,
            full: self.sequence.full,
            handshake: self.sequence.size.by_handshake(),
            all,
            pure: pure && !self.repair.is_under_way() && self.last.time != START,
            shrinks: event.window < self.offered(),
        })
    }

    /// The window that the receiver advertised last, bytes.
    fn offered(&self) -> Option<u64> {
        let on_its_way = self.incoming.back().and_then(Incoming::window);
        on_its_way.map_or(self.window.size, |(window, _)| Some(window))
    }

    /// The sender is nearer than was known, by so much, ns: so it is for what is on its way.
    #[cold]
    pub(super) fn arrives_sooner(&mut self, by: i64) {
        for segment in &mut self.incoming {
            let time = &mut segment.effect.time;
            *time = Timestamp(time.0.saturating_sub(by));
        }
    }

    /// Takes what has reached the sender by now.
    pub(super) fn arrive(&mut self, now: Moment) {
        while let Some(first) = self.incoming.front()
            && first.effect.time <= now.time
        {
            let first = *first;
            self.incoming.pop_front();
            self.apply(&first);
        }
    }

    /// The sender's next data comes when an ACK of all that was sent is about to take effect: its timestamp shows whether the ACK had arrived; without one, turns and
    /// clocks may be wrong by as little as that.
    pub(super) fn arrive_early(&mut self, event: &Event<'_>, now: Moment) {
        let Some(first) = self.incoming.front().copied() else {
            return;
        };
        let near = passed(now, first.effect) <= PROMPT.0 + self.turn() / 64;
        let arrived = self.had_arrived(event, first.stamp()).unwrap_or(near);
        let all = first
            .acknowledges()
            .is_some_and(|a| a >= self.sequence.next);
        if arrived && all {
            self.incoming.pop_front();
            let effect = Moment {
                time: now.time,
                ..first.effect
            };
            self.apply(&first.taking_effect(effect));
        }
    }

    /// Whether what had this TSval had arrived when a segment left; `None` without timestamps, or
    /// if this sender never echoed a later one than that of the handshake (old stacks do not take
    /// them from ACKs without data).
    pub(super) fn had_arrived(&mut self, event: &Event<'_>, stamp: Option<u32>) -> Option<bool> {
        let (_, echo) = event.timestamps?;
        let arrived = echo.wrapping_sub(stamp?).cast_signed() >= 0;
        self.echoes_acks |= arrived && self.last_release != START;
        (arrived || self.echoes_acks).then_some(arrived)
    }

    pub(super) fn apply(&mut self, segment: &Incoming) {
        let now = Moment {
            frame: segment.effect.frame,
            time: segment.effect.time.max(self.at.time),
        };
        self.advance(now);
        let mut reported = false;
        if let Some(ack) = segment.acknowledges()
            && self.sequence.begun
            && ack > self.sequence.acked
        {
            // One that closes the window lets nothing go.
            let opens = segment.window().is_none_or(|(window, _)| window > 0);
            if let Some(late) = segment.late()
                && ack >= self.sequence.next
                && opens
            {
                self.kept_back(now, late);
            }
            self.advanced = now;
            self.sequence.acked = ack;
            self.sequence.next = self.sequence.next.max(ack);
            self.repair.acknowledged(ack, self.sequence.next);
            self.closed |= self.sequence.fin.is_some_and(|fin| ack >= fin);
            reported = true;
            self.judge_plateau(now);
        } else if let Some(ack) = segment.acknowledges()
            && self.repair.is_under_way()
        {
            self.repair.acknowledged(ack, self.sequence.next);
        }
        if let Some((window, edge)) = segment.window() {
            reported |= self.window.edge.is_none_or(|old| edge > old);
            self.window.edge = Some(edge);
            self.window.zero = window == 0;
            self.window.size = Some(window);
            if self.sequence.size.is_larger(window) {
                self.sequence.size.window(window);
                self.sequence.full = self.sequence.size.full();
            }
            self.read_window(window);
        }
        self.last.answered |= segment.has & has::PAYLOAD != 0;
        if reported {
            self.last_release = now;
            self.released_by = segment.stamp();
        }
        self.sign_of_life = now;
    }

    /// Something was acknowledged: is there a plateau, was there none?
    pub(super) fn judge_plateau(&mut self, now: Moment) {
        let Sequence { acked, next, .. } = self.sequence;
        let path = self.path_times();
        let change = self.plateau.acknowledged(now.time.0, acked, next, &path);
        let (since, before, after) = match change {
            None => return,
            Some(Change::Found(since)) => (since, Limit::CongestionWindow, Limit::SendBuffer),
            Some(Change::Revoked(since)) => (since, Limit::SendBuffer, Limit::CongestionWindow),
        };
        let since = Moment {
            frame: now.frame,
            time: Timestamp(since),
        };
        self.line.relabel(since, &[before], after);
    }

    /// It sends beyond what it may: it knows of a window that is still on its way to it by our
    /// reckoning, so that it is nearer than that (if the handshake showed the windows' scale);
    /// or else the scale is unknown.
    pub(super) fn exceeds_window(&mut self, end: i64, now: Moment) {
        let exceeds = |edge: Option<i64>| edge.is_some_and(|e| end > e.saturating_add(1));
        if !exceeds(self.window.edge) {
            return;
        }
        let on_its_way = |i: &Incoming| i.window().is_some_and(|(_, edge)| !exceeds(Some(edge)));
        if !self.window.unscaled && self.incoming.iter().any(on_its_way) {
            while exceeds(self.window.edge)
                && let Some(first) = self.incoming.pop_front()
            {
                if self.sequence.size.by_handshake() {
                    let sooner = passed(first.effect, now).saturating_add(self.turn());
                    self.rtt.nearer(sooner.clamp(0, self.turn()));
                }
                self.apply(&first.taking_effect(now));
            }
        } else if !self.window.zero {
            self.scale_is_unknown();
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What one direction's sender waited for, moment by moment.
//!
//! The line is drawn as the sender lived it, in the capture's time: an ACK counts from when
//! the data that it lets go can be observed here, one *turn* after it passed (the shortest time from
//! here to the sender and back; nothing at the sender itself, whose own response time it then is). Time is cut into pieces at
//! every segment sent and every ACK's effect, and a piece is judged when the sender sends
//! next, because only that shows what it waited for.
//!
//! **What a piece is**, the first that fits:
//!
//! 1. *Opening*: no segment without SYN has passed.
//! 2. *Closed*: the FIN was acknowledged, or there was a reset.
//! 3. *Timeout*: after a timer's retransmission, until that is acknowledged: the hole is filled,
//!    and what follows is slow start.
//! 4. *Recovery*: after a fast retransmission (or from the gap that it fills, if the data was lost
//!    before this place), until everything sent before it is acknowledged;
//!    *TailLossProbe*: the same after a probe.
//! 5. *Zero*: the window is closed. *Full*: less than one full segment fits in the window;
//!    *Blocked*: the same with nothing under way, so that only a window update can let a full
//!    segment go (RFC 9293 section 3.8.6.2.1). *Idle*: nothing is under way. *Flight*: the rest.
//! 6. *Late*, of a flight: from when an ACK in time would have had its effect until the
//!    effect of one that was kept back ([`lateness`]) and acknowledges all that was sent until
//!    then: with more under way, other ACKs were due in time. A full window stays *Full*: it is
//!    the window that an ACK in time would not have opened. Nor does an ACK count that closes it.
//!
//! **What it was limited by**, known when the sender sends next. *Prompt*: it sends within a
//! quarter of the wait after the last ACK or window update that showed something new (200 µs at least,
//! 1 ms at most; and an eighth of the turn): that ACK let it go.
//!
//! 7. A timer's retransmission: everything since the last sign of life (data sent, an
//!    ACK's effect), or since its data was due, if that was before, was *Timeout*: one RTT after
//!    it was last sent (or after what came in its place), but not before what precedes it was
//!    acknowledged; a probe's: *TailLossProbe*. The first one of the last
//!    segment sent, with SACK and no sign of a loss, is a probe as long as it comes within
//!    2 · SRTT + 200 ms (RFC 8985 section 7.2, and a quarter for slow clocks): Linux then
//!    always probes before its timer; not where that segment had been sent again already,
//!    for it probes in the states Open and CWR only (`tcp_schedule_loss_probe`).
//!    [`tcp`](crate::tcp) calls it a timeout, as the wire by itself cannot decide. Where no ACK
//!    was captured that is all: when the repair arrived is not known.
//! 8. Zero: *ZeroWindow* if the window was probed, or data follows its opening promptly or
//!    within a round trip, and it had been waiting: the receiver sent no data meanwhile that the
//!    application may have answered, or a full segment without PSH was sent last. Otherwise
//!    *SenderApp*. Full: *ReceiverWindow* likewise, without the probe. Blocked: the same if a
//!    full segment follows: a smaller one might have fitted.
//! 9. Late: *DelayedAck* if the next data came promptly, or within [`HOST`], an eighth of the
//!    turn, and what the smoothed turn is longer than the shortest, unless its timestamp shows
//!    that it left before (RFC 7323 section 4.3: TSecr), and the receiver sent no data meanwhile: the late ACK let it go. Otherwise *SenderApp*: nothing waited for that ACK. (SNAP counts
//!    every late ACK of a stream; that count stays in the evidence.)
//! 10. Flight, let go by an ACK as in rule 9, everything acknowledged, a small segment before
//!     and a small one now: *SmallWrites*. With data that came back: *SenderApp*, a turn.
//! 11. Flight, prompt otherwise; or not prompt with a full segment without PSH before
//!     (Linux sets PSH where its queue ends), or with half of what the last rounds had
//!     under way: *CongestionWindow*, or *SendBuffer* where there is a [plateau](super::plateau).
//! 12. Everything else: *SenderApp*.
//! 13. New data that comes 200 ms (Linux's least retransmission timer) after the last sign of
//!     life, after a full segment without PSH, before which a frame is missing by IP
//!     identifications that count one by one: its first copy was lost before this place, and a
//!     timer, or a probe, sent it again. Before it: *Timeout*, inferred.

mod arriving;
mod lateness;
mod pieces;
mod state;

use super::limit::{Limit, Line};
use super::plateau::{PathTimes, Plateau, SentData};
use super::size::Payloads;
use crate::segment::{Flags, Timestamp};
use crate::tcp::{Cause, Event, Kind, Marks, Moment};
use arriving::Incoming;
use lateness::Lateness;
use state::{Counts, LastData, ReceiverWindow, Repair, RoundTrips, Sequence};
use std::collections::VecDeque;

/// Bounds of what is prompt, ns.
const PROMPT: (i64, i64) = (200_000, 1_000_000);

/// A host's own time between an ACK that it waited for and the data that this lets go, ns: one
/// tick of a clock of milliseconds at both ends.
const HOST: i64 = 2_000_000;

/// ACKs on their way to the sender.
const PENDING: usize = 1024;

/// Pieces waiting to be judged.
const PIECES: usize = 512;

/// The longest that a probe waits for an ACK that may be kept back: TLP.max_ack_delay (RFC 8985
/// section 7.2, Linux TCP_RTO_MIN), ns.
const PROBE_WAIT: i64 = 200_000_000;

/// What a sender does whose losses are not known yet.
const SENDING: [Limit; 4] = [
    Limit::SenderApp,
    Limit::CongestionWindow,
    Limit::SendBuffer,
    Limit::SmallWrites,
];

/// Nothing observed yet.
const START: Moment = Moment {
    frame: 0,
    time: Timestamp(i64::MIN),
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PieceKind {
    Known(Limit),
    Zero,
    Idle,
    Blocked,
    Full,
    Flight,
    Late,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    from: Moment,
    to: Moment,
    kind: PieceKind,
}

/// What the sender sends next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// New data: less than a full segment; so much was under way; it may have left after the last
    /// release (its timestamp does not exclude it).
    Data {
        small: bool,
        flight: i64,
        after: bool,
    },
    Timer,
    Probe,
    Repair,
    Nothing,
}

/// Where a message may end, for those who collect messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Nothing was under way, and no ACK let this data go: the application wrote it now.
    pub(crate) begins: bool,
    /// When ACKs let it go, or what was sent before it, it began.
    pub(crate) at: Moment,
}

/// One direction: what a side sent, as that side lived it.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    line: Line,
    keep: usize,
    pieces: Vec<Piece>,
    /// Up to here there are pieces.
    at: Moment,
    incoming: VecDeque<Incoming>,
    opening: bool,
    closed: bool,
    rtt: RoundTrips,
    lateness: Lateness,
    repair: Repair,
    sequence: Sequence,
    window: ReceiverWindow,
    last: LastData,
    last_release: Moment,
    /// TSval of that ACK.
    released_by: Option<u32>,
    /// What it echoes follows the ACKs.
    echoes_acks: bool,
    sign_of_life: Moment,
    /// When something was acknowledged last.
    advanced: Moment,
    plateau: Plateau,
    pub(super) counts: Counts,
}

impl Sender {
    pub(super) fn new(keep: usize) -> Self {
        Sender {
            line: Line::default(),
            keep: keep.max(1),
            pieces: Vec::new(),
            at: START,
            incoming: VecDeque::new(),
            opening: false,
            closed: false,
            rtt: RoundTrips::default(),
            lateness: Lateness::default(),
            repair: Repair::new(),
            sequence: Sequence::new(),
            window: ReceiverWindow::default(),
            last: LastData::new(),
            last_release: START,
            released_by: None,
            echoes_acks: false,
            sign_of_life: START,
            advanced: START,
            plateau: Plateau::default(),
            counts: Counts::default(),
        }
    }

    /// Fetches what the next segments will touch outside.
    #[inline]
    pub(super) fn prefetch(&self) {
        self.line.prefetch();
        crate::engine::prefetch_all(self.pieces.as_ptr().cast(), 128);
        // What is on its way, as far as it goes.
        let (incoming, _) = self.incoming.as_slices();
        let bytes = size_of_val(incoming).clamp(64, 1024);
        crate::engine::prefetch_all(incoming.as_ptr().cast(), bytes);
    }

    pub(crate) fn line(&self) -> &Line {
        &self.line
    }

    pub(super) fn into_line(self) -> Line {
        self.line
    }

    /// Payload of a full segment.
    pub(super) fn full_segment(&self) -> i64 {
        self.sequence.full
    }

    /// The shortest round trip of the whole path.
    pub(crate) fn path_rtt(&self) -> Option<i64> {
        self.rtt.path()
    }

    /// ACKs in time cannot be distinguished from late ones: all may have been kept back.
    pub(super) fn lateness_unknown(&self) -> bool {
        !self.lateness.path_is_shown()
    }

    /// For most of the time it was not known how far away the sender is, so that which ACK let its data go is
    /// not: no handshake shows it, and the other side sent nothing that it acknowledged.
    pub(super) fn turn_unknown(&self) -> bool {
        let total = i64::try_from(self.line.shares().total().as_nanos()).unwrap_or(i64::MAX);
        let known = (self.rtt.turn_since).map_or(0, |since| passed(since, self.at));
        !self.sequence.size.by_handshake() && known < total / 2
    }

    /// The path as it looks from here.
    fn path_times(&self) -> PathTimes {
        PathTimes {
            turn: self.turn(),
            receiver: self.rtt.receiver().unwrap_or(0),
            full: self.sequence.full,
        }
    }

    /// From here to the sender and back, ns; 0 if it is not known, or if the capture was made there.
    #[inline]
    pub(crate) fn turn(&self) -> i64 {
        self.rtt.turn()
    }

    /// Since when this side has waited for an answer: its last data, or the end of the handshake.
    /// `None` if it was not acknowledged yet.
    pub(super) fn waits_for_answer(&self, handshake: Option<Moment>) -> Option<Moment> {
        if self.last.time == START {
            return handshake;
        }
        let all = |ack: i64| ack >= self.sequence.next;
        let on_its_way = || {
            self.incoming
                .iter()
                .any(|i| i.acknowledges().is_some_and(all))
        };
        (all(self.sequence.acked) || on_its_way()).then_some(self.last.time)
    }

    /// The window that the receiver advertised last, bytes.
    pub(super) fn window(&self) -> Option<u64> {
        self.window.size
    }

    /// The window that held the sender back, bytes: 0 if it was closed for longer than it was full;
    /// the last if it did neither.
    pub(super) fn limiting_window(&self) -> Option<u64> {
        let shares = self.line.shares();
        let full = shares.of(Limit::ReceiverWindow);
        let closed = shares.of(Limit::ZeroWindow);
        if closed > full {
            Some(0)
        } else if !full.is_zero() {
            Some(self.window.full)
        } else {
            self.window.size
        }
    }

    /// The windows of the receiver cannot be read.
    pub(super) fn windows_unknown(&self) -> bool {
        self.window.unscaled
    }

    /// The handshake showed the size of full segments, and whether there is SACK.
    pub(super) fn agreed(&mut self, payloads: Payloads, sack: bool) {
        self.sequence.size.agreed(payloads);
        self.sequence.full = self.sequence.size.full();
        self.repair.sack = sack;
    }

    /// Why the last retransmission was sent, by rule 7.
    pub(crate) fn judged(&self) -> Cause {
        self.repair.cause
    }

    /// The first segment of the connection, of either side.
    pub(super) fn begin(&mut self, at: Moment, opening: bool) {
        self.at = at;
        self.sign_of_life = at;
        self.opening = opening;
        // Without a handshake: as nearly all do.
        self.repair.sack = !opening;
    }

    /// A segment of either side that is no SYN: the handshake is over.
    pub(super) fn opened(&mut self, now: Moment) {
        if self.opening {
            self.advance(now);
            self.opening = false;
            self.sign_of_life = now;
        }
    }

    /// The connection was reset.
    pub(super) fn reset(&mut self, now: Moment) {
        self.arrive(now);
        self.advance(now);
        self.settle(Next::Nothing, now);
        self.closed = true;
    }

    /// The sender sent a segment. For new data: whether a message may begin with it.
    pub(crate) fn sent(&mut self, event: &Event<'_>, now: Moment) -> Option<Sent> {
        if let Some(rtt) = event.rtt {
            let before = self.turn();
            self.rtt.sample_turn(rtt, now);
            let shorter = before - self.turn();
            if shorter > 0 {
                self.arrives_sooner(shorter);
            }
        }
        self.arrive(now);
        if event.kind == Kind::Data {
            self.arrive_early(event, now);
        }
        self.advance(now);
        if event.flags.any(Flags::FIN) {
            self.sequence.fin = Some(
                self.sequence
                    .fin
                    .map_or(event.end, |fin| fin.max(event.end)),
            );
        }
        if !self.sequence.begun && event.end > event.sequence {
            self.sequence.begun = true;
            self.sequence.next = event.sequence;
            self.sequence.acked = self.sequence.acked.max(event.sequence);
        }
        match event.kind {
            Kind::Retransmission(cause) => {
                self.again(event, cause, now);
                None
            }
            Kind::ZeroWindowProbe => {
                self.window.probed = true;
                None
            }
            Kind::Data => Some(self.data(event, now)),
            Kind::OutOfOrder => {
                self.last.time = now;
                None
            }
            _ => {
                self.sequence.next = self.sequence.next.max(event.end);
                None
            }
        }
    }

    fn data(&mut self, event: &Event<'_>, now: Moment) -> Sent {
        let length = i64::from(event.length);
        if self.sequence.size.shows_more(length) {
            self.sequence.size.sent(length);
            self.sequence.full = self.sequence.size.full();
        }
        self.exceeds_window(event.end, now);
        let small =
            length < self.sequence.full && !event.marks.any(Marks::SILLY | Marks::WINDOW_FULL);
        let idle = self.sequence.acked >= self.sequence.next;
        let flight = self.sequence.in_flight();
        let prompt = self.is_prompt(now);
        let begins = idle && (!prompt || self.last.answered);
        let after = self.had_arrived(event, self.released_by).unwrap_or(true);
        let next = Next::Data {
            small,
            flight,
            after,
        };
        if self.is_repeat_of_missing(event, now) {
            self.settle(Next::Timer, now);
            self.counts.timeouts += 1;
            self.counts.inferred_timeouts += 1;
        } else {
            self.settle(next, now);
        }
        if begins {
            self.plateau.dry();
        }
        self.sequence.next = self.sequence.next.max(event.end);
        let flight = self.sequence.in_flight();
        self.counts.most_in_flight = self.counts.most_in_flight.max(flight);
        let room = self
            .window
            .edge
            .is_none_or(|e| e - self.sequence.next >= 2 * self.sequence.full);
        let since = self.since_release(now);
        let refilled = self.plateau.sent(&SentData {
            at: now,
            last: self.last.time,
            length,
            next: self.sequence.next,
            acked: self.sequence.acked,
            room,
            prompt: since.is_some_and(|since| since <= PROMPT.0 + self.turn() / 8),
            answered: self.last.answered,
            repairing: self.repair.is_under_way(),
            path: self.path_times(),
        });
        for silent in refilled.into_iter().flatten().flatten() {
            let (before, after) = (Limit::CongestionWindow, Limit::SendBuffer);
            self.line.relabel_within(silent, &[before], after);
        }
        self.last.time = now;
        self.last.small = small;
        self.last.pushed = event.flags.any(Flags::PSH);
        self.sign_of_life = now;
        self.last.answered = false;
        self.window.probed = false;
        Sent { begins, at: now }
    }

    /// Rule 13.
    fn is_repeat_of_missing(&self, event: &Event<'_>, now: Moment) -> bool {
        event.missing > 0
            && !event.marks.any(Marks::GAP)
            && !self.last.small
            && !self.last.pushed
            && passed(self.sign_of_life, now) >= PROBE_WAIT
    }

    fn again(&mut self, event: &Event<'_>, cause: Cause, now: Moment) {
        let cause = match cause {
            Cause::Timeout if self.had_arrived_before(event) => Cause::Unexplained,
            Cause::Timeout if self.is_probe(event, now) => Cause::TailLossProbe,
            cause => cause,
        };
        self.repair.cause = cause;
        self.repair.resent = self.repair.resent.max(event.end);
        let reached = self.sequence.next.max(event.end);
        self.sequence.next = reached;
        match cause {
            Cause::Timeout => {
                self.overdue_since(event);
                self.settle(Next::Timer, now);
                self.counts.timeouts += 1;
                self.repair.timeout = Some(event.end);
                self.repair.recovery = None;
                self.repair.probe = None;
            }
            Cause::TailLossProbe => {
                self.settle(Next::Probe, now);
                self.counts.probes += 1;
                self.repair.probe = Some(reached);
            }
            Cause::Fast => {
                self.settle(Next::Repair, now);
                if self.repair.recovery.is_none() {
                    self.counts.fast_recoveries += 1;
                    self.repair.recovery = Some(reached);
                    self.missing_since(event);
                }
                self.repair.probe = None;
            }
            Cause::AfterTimeout | Cause::Unexplained => self.settle(Next::Repair, now),
            Cause::Handshake | Cause::Fin => return,
        }
        // All of it had arrived: nothing is repaired.
        self.repair.acknowledged(self.sequence.acked, reached);
        self.repair.over_unless(self.window.edge.is_some());
        self.plateau.lost(now.time.0);
        self.last.time = now;
        self.sign_of_life = now;
    }

    /// All of it had arrived, and whether the ACK came in time is not known: how far the sender is, or
    /// what it waited for before the capture began.
    fn had_arrived_before(&self, event: &Event<'_>) -> bool {
        let early = event.sequence < 1 && !self.sequence.size.by_handshake();
        event.marks.any(Marks::ALREADY_ACKED) && (self.rtt.known_turn().is_none() || early)
    }

    /// A timer ran out: the time since its data was due is the timer's, whatever else was sent.
    fn overdue_since(&mut self, event: &Event<'_>) {
        // What was acknowledged here is no longer known, but of the last data.
        let last = (event.end >= self.sequence.next && self.last.time != START)
            .then_some(self.last.time.time);
        let (Some(sent), Some(path)) = (event.sent_before.or(last), self.path_rtt()) else {
            return;
        };
        let due = Moment {
            frame: event.frame,
            time: Timestamp(sent.0.saturating_add(path)).max(self.advanced.time),
        };
        if due.time >= self.sign_of_life.time || self.repair.timeout.is_some() {
            return;
        }
        self.sign_of_life = due;
        self.line.relabel(due, &SENDING, Limit::Timeout);
    }

    /// Data that was lost before it came here is being repaired since the gap opened.
    fn missing_since(&mut self, event: &Event<'_>) {
        if let Some(time) = event.sent_before
            && event.marks.any(Marks::LOST_BEFORE_HERE)
        {
            let frame = event.frame;
            let gap = Moment { frame, time };
            self.line.relabel(gap, &SENDING, Limit::Recovery);
        }
    }

    /// The connection's last segment was at `end`.
    pub(crate) fn finish(&mut self, end: Moment) {
        while let Some(first) = self.incoming.pop_front() {
            let effect = Moment {
                frame: first.effect.frame,
                time: first.effect.time.min(end.time),
            };
            self.apply(&first.taking_effect(effect));
        }
        self.advance(end);
        self.settle(Next::Nothing, end);
    }

    /// The connection's first segment was at `first`, if its clock went back.
    pub(super) fn begin_at(&mut self, first: Moment) {
        self.line.begin_at(first, self.at);
    }
}

/// Nanoseconds from one moment to another.
fn passed(from: Moment, to: Moment) -> i64 {
    to.time.0.saturating_sub(from.time.0)
}

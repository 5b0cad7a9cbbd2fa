// SPDX-License-Identifier: Apache-2.0
//! The state machine that both senders have in common.

use super::model::Before;
use super::pacing::Pacing;
use super::policy::Policy;
use super::reduction::Reduction;
use super::reordering::Reordering;
use super::undo::{SpuriousTimeout, Undo};
use super::{Counts, NEVER, Phase};
use crate::tcp::config::{Algorithm, LossDetection, TcpConfig};
use crate::tcp::congestion::{Congestion, Growth};
use crate::tcp::rtt::{RttEstimator, Sample};
use crate::tcp::scoreboard::{Delivered, Scoreboard};
use crate::tcp::segment::{Ack, Segment};
use slowpath_switch::{Span, Time};

/// How far the handshake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setup {
    /// The SYN is due.
    Due,
    /// The SYN is out.
    Sent,
    /// The acknowledgment of the SYN's answer is due.
    Confirm,
    /// The connection is established.
    Done,
}

/// Offsets in the stream.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    /// The first unacknowledged one.
    pub una: u64,
    /// The next new one.
    pub next: u64,
    /// The end of what the application has written.
    pub written: u64,
    /// The end of the receiver's window.
    pub right_edge: u64,
}

/// When something is due; [`NEVER`] if not.
#[derive(Clone, Debug)]
pub(super) struct Timers {
    /// The retransmission timeout.
    pub timeout_at: Time,
    /// A tail loss probe.
    pub probe_at: Time,
    /// The end of RACK's reordering window.
    pub reordering_at: Time,
    /// Expiries of the retransmission timer in a row.
    pub backoff: u32,
    /// When pacing lets the next segment go.
    pub pacing: Pacing,
}

/// A tail loss probe.
#[derive(Clone, Debug, Default)]
pub(super) struct Probe {
    /// It may leave now.
    pub due: bool,
    /// Where the stream ended when the last one left; `None` when that one is judged.
    pub end: Option<u64>,
    /// The last one was new data.
    pub was_new: bool,
}

/// How much of the window a round trip uses (`tcp_cwnd_validate`).
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    /// The window, and nothing else, held the sender back.
    limited: bool,
    /// The most segments that were out.
    most_out: u32,
    /// The offset at which the round trip ends.
    end: u64,
}

/// One end of a connection, as far as a [`Policy`] does not decide.
#[derive(Clone, Debug)]
pub(super) struct Machine<P> {
    pub stream: Stream,
    pub phase: Phase,
    setup: Setup,
    pub congestion: Congestion,
    pub rtt: RttEstimator,
    pub board: Scoreboard,
    /// Where what was out ended when the phase began.
    pub recovery_point: u64,
    /// Duplicate ACKs that stand for segments that arrived, without SACK.
    pub dup_acks: u32,
    /// The next retransmission leaves though the window is full: RFC 6675 section 5 step 4.3, RFC
    /// 6582 section 3.2 steps 2 and 3.
    pub forced: bool,
    pub reduction: Reduction,
    pub reordering: Reordering,
    pub timers: Timers,
    pub probe: Probe,
    pub undo: Option<Undo>,
    pub spurious: SpuriousTimeout,
    usage: Usage,
    pub last_sent: Time,
    /// [`Ack::stamp`] of the last ACK.
    echo: Time,
    pub counts: Counts,
    pub policy: P,
}

impl<P: Policy> Machine<P> {
    /// One with nothing to send.
    pub fn new(config: &TcpConfig, offered: u32, policy: P) -> Self {
        let mut board = Scoreboard::default();
        if config.algorithm == Algorithm::Bbr {
            board.measure_rates();
        }
        Self::with(config, offered, policy, board)
    }

    fn with(config: &TcpConfig, offered: u32, policy: P, board: Scoreboard) -> Self {
        Machine {
            stream: Stream {
                una: 0,
                next: 0,
                written: 0,
                right_edge: u64::from(offered),
            },
            phase: Phase::Open,
            setup: if config.handshake {
                Setup::Due
            } else {
                Setup::Done
            },
            congestion: Congestion::new(config),
            rtt: RttEstimator::default(),
            board,
            recovery_point: 0,
            dup_acks: 0,
            forced: false,
            reduction: Reduction::default(),
            reordering: Reordering::default(),
            timers: Timers {
                timeout_at: NEVER,
                probe_at: NEVER,
                reordering_at: NEVER,
                backoff: 0,
                pacing: Pacing::new(config),
            },
            probe: Probe::default(),
            undo: None,
            spurious: SpuriousTimeout::default(),
            usage: Usage::default(),
            last_sent: Time::ZERO,
            echo: Time::ZERO,
            counts: Counts::default(),
            policy,
        }
    }

    /// Becomes a new one and keeps its memory.
    pub fn reset(&mut self, config: &TcpConfig, offered: u32, policy: P) {
        let mut board = core::mem::take(&mut self.board);
        board.clear();
        if config.algorithm == Algorithm::Bbr {
            board.measure_rates();
        }
        *self = Self::with(config, offered, policy, board);
    }

    pub fn write(&mut self, config: &TcpConfig, now: Time, bytes: u64) {
        if self.board.out() == 0 && self.counts.segments > 0 {
            let idle = now.since(self.last_sent);
            let timeout = self.backed_off(config, 0);
            self.congestion.on_restart(config, now, idle, timeout);
        }
        if config.algorithm == Algorithm::Bbr {
            self.check_limited(config);
        }
        self.stream.written = self.stream.written.saturating_add(bytes);
        P::written(self);
    }

    #[inline]
    pub fn deadline(&self) -> Option<Time> {
        let timers = &self.timers;
        let at = (timers.timeout_at.min(timers.probe_at)).min(timers.reordering_at);
        (at != NEVER).then_some(at)
    }

    /// The retransmission timeout after `backoff` expiries in a row.
    #[inline]
    pub fn backed_off(&self, config: &TcpConfig, backoff: u32) -> Span {
        let once = self.policy.timer_wait(self.rtt.timeout(config));
        // RFC 6298 (5.5): doubled at each expiry, (2.5): at most the maximum.
        let doubled = once.0.saturating_mul(1 << backoff.min(30));
        Span(doubled.min(config.rto_max.0))
    }

    /// Takes a round-trip time, and the least that the same ACK shows.
    #[inline]
    pub fn sample_rtt(&mut self, config: &TcpConfig, rtt: Span, least: Span) {
        let sample = Sample {
            rtt,
            least,
            una: self.stream.una,
            next: self.stream.next,
        };
        self.rtt.sample(config, P::RTT_UNIT, &sample);
    }

    #[inline]
    pub fn wants_to_send(&self, config: &TcpConfig) -> bool {
        if self.setup != Setup::Done {
            return matches!(self.setup, Setup::Due | Setup::Confirm);
        }
        if self.timers.pacing.is_held() {
            return false;
        }
        self.probe.due
            || self.forced && self.may_retransmit()
            || self.window_open(config)
                && (self.may_retransmit() || self.new_segment(config).is_some())
    }

    #[inline]
    pub fn may_retransmit(&self) -> bool {
        self.board.to_resend() > 0 && !self.spurious.new_only
    }

    /// What is in the network by the sender's knowledge, in segments.
    #[inline]
    pub fn pipe(&self) -> u32 {
        self.board.pipe().saturating_sub(self.dup_acks)
    }

    /// Whether the congestion window lets one more segment out.
    #[inline]
    pub fn window_open(&self, config: &TcpConfig) -> bool {
        if self.phase == Phase::Disorder {
            // RFC 3042: one segment more for each duplicate ACK below the threshold.
            let arrived = self.board.sacked() + self.dup_acks;
            let extra = match config.loss_detection {
                _ if !config.limited_transmit => 0,
                LossDetection::DuplicateAcks(threshold) => arrived.min(threshold - 1),
                LossDetection::Rack | LossDetection::TimeoutOnly => arrived,
            };
            return self.board.out() < self.congestion.window.saturating_add(extra);
        }
        self.pipe() < self.congestion.window
    }

    /// The length of the next segment of new data, if the receiver takes it.
    #[inline]
    pub fn new_segment(&self, config: &TcpConfig) -> Option<u32> {
        let stream = &self.stream;
        let len = (stream.written - stream.next).min(u64::from(config.mss));
        let offered = stream.right_edge.saturating_sub(stream.next);
        if len == 0 {
            None
        } else if len <= offered {
            Some(len as u32)
        } else if self.board.out() == 0 && offered > 0 {
            Some(offered as u32)
        } else {
            None
        }
    }

    /// The next segment, if one may leave now.
    #[inline]
    pub fn poll_transmit(&mut self, config: &TcpConfig, now: Time) -> Option<Segment> {
        if self.setup != Setup::Done {
            return self.open(config, now);
        }
        if self.probe.due {
            self.probe.due = false;
            if let Some(segment) = self.send_probe(config, now) {
                return Some(segment);
            }
        }
        P::poll(self, config, now)
    }

    fn open(&mut self, config: &TcpConfig, now: Time) -> Option<Segment> {
        let syn = self.setup == Setup::Due;
        match self.setup {
            Setup::Due => {
                self.setup = Setup::Sent;
                self.last_sent = now;
                let doublings = P::syn_doublings(self.timers.backoff);
                let timeout = self.backed_off(config, doublings);
                self.timers.timeout_at = self.policy.expiry(now, timeout);
            }
            Setup::Confirm => self.setup = Setup::Done,
            Setup::Sent | Setup::Done => return None,
        }
        Some(Segment {
            seq: 0,
            len: 0,
            retransmission: self.timers.backoff > 0,
            cwr: false,
            push: false,
            syn,
            echo: self.echo,
        })
    }

    /// A segment of new data of that length leaves.
    #[inline]
    pub fn send_new(&mut self, config: &TcpConfig, now: Time, len: u32) -> Segment {
        let seq = self.stream.next;
        let out_before = self.board.out();
        if out_before == 0 && config.algorithm == Algorithm::Bbr {
            self.model_start(config, now);
        }
        self.stream.next += u64::from(len);
        self.board.push(now, self.stream.next, len);
        self.last_sent = now;
        self.counts.segments += 1;
        self.reduction.sent += 1;
        P::sent_new(self, config, now, out_before);
        Segment {
            seq,
            len,
            retransmission: false,
            cwr: core::mem::take(&mut self.reduction.cwr_due),
            push: false,
            syn: false,
            echo: self.echo,
        }
    }

    /// The first segment that is taken for lost leaves once more, if F-RTO allows it.
    #[inline]
    pub fn retransmit(&mut self, config: &TcpConfig, now: Time) -> Option<Segment> {
        if !self.may_retransmit() {
            return None;
        }
        let (end, len) = self.board.resend(now)?;
        self.forced = false;
        self.count_retransmission();
        Some(self.send_again(config, now, end, len))
    }

    /// The segment of that length that ends at `end`, by its low 32 bits, leaves once more.
    pub fn send_again(&mut self, config: &TcpConfig, now: Time, end: u32, len: u32) -> Segment {
        let una = self.stream.una;
        let seq = una + u64::from(end.wrapping_sub(una as u32)) - u64::from(len);
        self.last_sent = now;
        self.counts.segments += 1;
        self.counts.retransmissions += 1;
        self.reduction.sent += 1;
        let mut segment = Segment {
            seq,
            len,
            retransmission: true,
            cwr: false,
            push: false,
            syn: false,
            echo: self.echo,
        };
        P::sent_again(self, config, now, &mut segment);
        segment
    }

    /// Notes how much of the window is used; `limited` if nothing else holds the sender back.
    #[inline]
    pub fn note_usage(&mut self, limited: bool) {
        let out = self.board.out();
        let usage = &mut self.usage;
        if limited || self.stream.una >= usage.end || (!usage.limited && out > usage.most_out) {
            usage.limited = limited;
            usage.most_out = out;
            usage.end = self.stream.next;
        }
    }

    /// An acknowledgment arrived.
    #[inline]
    pub fn on_ack(&mut self, config: &TcpConfig, now: Time, ack: &Ack) {
        if self.setup != Setup::Done {
            return self.on_syn_ack(config, now, ack);
        }
        if ack.ack > self.stream.next || ack.ack < self.stream.una {
            // Of nothing that was sent, or overtaken by a later one.
            return;
        }
        self.echo = ack.stamp;
        let edge = ack.ack + u64::from(ack.window);
        let window_moved = edge > self.stream.right_edge;
        self.stream.right_edge = self.stream.right_edge.max(edge);
        let mut delivered = Delivered::default();
        let before = Before {
            in_flight: self.pipe(),
            una: self.stream.una,
        };
        let advanced = ack.ack > self.stream.una;
        let duplicate = self.take_report(config, now, ack, &mut delivered);
        if advanced {
            self.timers.backoff = 0;
        } else if self.board.out() == 0 {
            return;
        }
        let rtt = P::measure(self, config, now, &delivered);
        if !config.sack {
            self.count_duplicates(advanced, window_moved, &mut delivered);
        }
        let (una, next) = (self.stream.una, self.stream.next);
        self.congestion
            .delivered(delivered.segments, ack.ece, una, next);
        if let Some(end) = self.probe.end {
            P::judge_probe(self, config, end, ack.ack, duplicate, &delivered);
        }
        if self.phase == Phase::Loss {
            let repeated = !advanced && !window_moved;
            self.doubt_timeout(config, advanced, repeated, &delivered);
        } else {
            self.doubt_recovery(config);
        }
        let calm = self.phase == Phase::Open
            && self.board.sacked() + self.board.lost() + self.dup_acks == 0;
        let lost = if calm {
            0
        } else {
            self.find_losses(config, now, advanced, duplicate)
        };
        self.react(config, ack, lost, advanced, &delivered);
        // RFC 3168 section 6.1.2: an echo raises nothing.
        let may_grow = matches!(self.phase, Phase::Open | Phase::Disorder | Phase::Loss)
            || self.phase == Phase::Reduced && !config.proportional_rate_reduction;
        if config.algorithm == Algorithm::Bbr {
            self.model_ack(config, now, before, lost, &delivered);
        } else if advanced && !ack.ece && may_grow {
            let growth = Growth {
                now,
                acked: delivered.segments,
                rtt,
                min_rtt: self.rtt.min(),
                una,
                next,
                limited: self.usage.limited,
                most_out: self.usage.most_out,
            };
            self.congestion.grow(config, &growth);
        }
        P::after_ack(self, config, now, advanced, &delivered);
    }

    /// Takes down what an ACK says has arrived; true if it reports a duplicate.
    #[inline]
    fn take_report(
        &mut self,
        config: &TcpConfig,
        now: Time,
        ack: &Ack,
        delivered: &mut Delivered,
    ) -> bool {
        let min_rtt = self.rtt.min();
        if P::JUDGES_ORDER_BY_EARLIER_ACKS {
            self.board.begin_ack();
        }
        let mut duplicate = false;
        if !ack.sack.is_empty() && config.sack {
            duplicate = ack.sack.duplicate;
            let blocks = &ack.sack.as_slice()[usize::from(duplicate)..];
            self.board
                .sack(now, blocks, ack.ack, self.stream.next, min_rtt, delivered);
            if duplicate {
                self.note_duplicate(ack.sack.as_slice()[0].1);
            }
        }
        if ack.ack > self.stream.una {
            self.board.acknowledge(now, ack.ack, min_rtt, delivered);
            self.stream.una = ack.ack;
        }
        duplicate
    }

    fn on_syn_ack(&mut self, config: &TcpConfig, now: Time, ack: &Ack) {
        if !ack.syn || self.setup != Setup::Sent {
            return;
        }
        self.stream.right_edge = u64::from(ack.window);
        self.timers.timeout_at = NEVER;
        let expiries = core::mem::take(&mut self.timers.backoff);
        if expiries == 0 {
            let rtt = P::elapsed(self.last_sent, now);
            self.sample_rtt(config, rtt, rtt);
        }
        self.setup = P::handshake_answered(self, config, expiries);
    }

    /// The time of [`Machine::deadline`] has come.
    pub fn on_deadline(&mut self, config: &TcpConfig, now: Time) {
        P::on_deadline(self, config, now);
    }

    /// Whether the timeout is of the handshake: then the SYN is due once more.
    pub fn retry_handshake(&mut self) -> bool {
        let waits = self.setup != Setup::Done;
        if waits {
            self.timers.backoff += 1;
            self.setup = Setup::Due;
            self.timers.timeout_at = NEVER;
        }
        waits
    }
}

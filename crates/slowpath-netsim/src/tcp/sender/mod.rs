// SPDX-License-Identifier: Apache-2.0
//! The sending end.

pub(crate) mod buffer;
mod offload;
mod recovery;
mod ticking;
mod timers;
mod undo;

use crate::tcp::config::{LossDetection, TcpConfig};
use crate::tcp::congestion::{Congestion, Growth};
use crate::tcp::rtt::RttEstimator;
use crate::tcp::scoreboard::{Delivered, Scoreboard};
use crate::tcp::segment::{Ack, Segment};
use slowpath_switch::Time;

/// What the sender is doing about losses and marks: Linux's `tcp_ca_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is wrong.
    Open,
    /// ACKs say that segments arrived out of order, not enough to call one lost.
    Disorder,
    /// The window falls after an ECN mark.
    Reduced,
    /// Fast recovery.
    Recovery,
    /// After a timeout.
    Loss,
}

/// What a sender has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments with data sent, retransmissions included.
    pub segments: u64,
    /// Segments sent again, probes included.
    pub retransmissions: u32,
    /// Times the retransmission timer expired.
    pub timeouts: u32,
    /// Times fast recovery began.
    pub recoveries: u32,
    /// Tail loss probes.
    pub probes: u32,
    /// Times the window fell because of ECN-Echo.
    pub mark_reductions: u32,
    /// Reductions that were needless and taken back.
    pub undone: u32,
}

/// No deadline.
const NEVER: Time = Time::MAX;
/// SACKed segments beyond a hole that end RACK's tolerance (RFC 8985 section 6.2 step 4).
const RACK_THRESHOLD: u32 = 3;
/// Recoveries after which RACK's window shrinks to its first size again (same place).
const RACK_PERSISTS: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setup {
    Due,
    Sent,
    /// The answer to the SYN's answer is due: with [`TcpConfig::kernel_tick`].
    Confirm,
    Done,
}

/// The sending end of a connection. See the [module](super) for how it is driven.
#[derive(Clone, Debug)]
pub struct Sender {
    una: u64,
    next: u64,
    written: u64,
    /// The offset that the receiver's window ends before.
    right_edge: u64,
    phase: Phase,
    setup: Setup,
    congestion: Congestion,
    rtt: RttEstimator,
    board: Scoreboard,
    /// Where what was out ended when the phase began.
    recovery_point: u64,
    /// Duplicate ACKs that stand for segments that arrived, without SACK.
    dup_acks: u32,
    /// RFC 6937: delivered and sent since the reduction began, and the window before it.
    prr_delivered: u32,
    prr_out: u32,
    prr_window: u32,
    rto_at: Time,
    probe_at: Time,
    reorder_at: Time,
    /// Expiries of the retransmission timer in a row.
    backoff: u32,
    /// How often the timeout was doubled since the last round trip that was measured
    /// (`icsk_backoff`): with [`TcpConfig::kernel_tick`].
    stretch: u32,
    probe_due: bool,
    /// Where the stream ended when a probe went out; `None` without one.
    probe_end: Option<u64>,
    probe_was_new: bool,
    reordering: bool,
    /// Quarters of the least round trip in RACK's reordering window.
    reorder_steps: u32,
    /// Whether the acknowledgment at hand set the end of RACK's tolerance.
    tolerates: bool,
    reorder_persist: u32,
    reorder_round: u64,
    cwr_due: bool,
    /// With [`TcpConfig::kernel_tick`].
    offload: Option<Box<offload::Offload>>,
    /// What a reduction would give back.
    before: Option<undo::Before>,
    /// When the timer expired last.
    lost_at: Time,
    /// Whether that may still turn out spurious (RFC 5682).
    frto: bool,
    /// New data goes first: the second step of F-RTO.
    new_only: bool,
    /// The next retransmission does not wait for room in the window: RFC 6675 section 5
    /// step 4.3, RFC 6582 section 3.2 steps 2 and 3.
    forced: bool,
    limited: bool,
    most_out: u32,
    usage_end: u64,
    last_sent: Time,
    /// What the last ACK said about when it was made.
    echo: Time,
    counts: Counts,
}

impl Sender {
    /// One with nothing to send.
    pub fn new(config: &TcpConfig, offered: u32) -> Self {
        Sender {
            una: 0,
            next: 0,
            written: 0,
            right_edge: u64::from(offered),
            phase: Phase::Open,
            setup: if config.handshake {
                Setup::Due
            } else {
                Setup::Done
            },
            congestion: Congestion::new(config),
            rtt: RttEstimator::default(),
            board: Scoreboard::default(),
            recovery_point: 0,
            dup_acks: 0,
            prr_delivered: 0,
            prr_out: 0,
            prr_window: 0,
            rto_at: NEVER,
            probe_at: NEVER,
            reorder_at: NEVER,
            backoff: 0,
            stretch: 0,
            probe_due: false,
            probe_end: None,
            probe_was_new: false,
            reordering: false,
            reorder_steps: 1,
            tolerates: false,
            reorder_persist: 0,
            reorder_round: 0,
            cwr_due: false,
            offload: config.kernel_tick.map(|_| Box::default()),
            before: None,
            lost_at: Time::ZERO,
            frto: false,
            new_only: false,
            forced: false,
            limited: false,
            most_out: 0,
            usage_end: 0,
            last_sent: Time::ZERO,
            echo: Time::ZERO,
            counts: Counts::default(),
        }
    }

    /// Becomes a new one and keeps its memory.
    pub fn reset(&mut self, config: &TcpConfig, offered: u32) {
        let mut board = core::mem::take(&mut self.board);
        board.clear();
        *self = Sender::new(config, offered);
        self.board = board;
    }

    /// The application writes so many bytes.
    pub fn write(&mut self, config: &TcpConfig, now: Time, bytes: u64) {
        if self.board.out() == 0 && self.counts.segments > 0 {
            let idle = now.since(self.last_sent);
            let timeout = self.rtt.timeout(config, 0);
            self.congestion.on_restart(config, now, idle, timeout);
        }
        self.written = self.written.saturating_add(bytes);
        if let Some(offload) = &mut self.offload {
            offload.buffer.wake();
        }
    }

    /// When [`Sender::on_deadline`] is due; `None` while nothing is awaited.
    #[inline]
    pub fn deadline(&self) -> Option<Time> {
        let at = self.rto_at.min(self.probe_at).min(self.reorder_at);
        (at != NEVER).then_some(at)
    }

    /// Whether [`Sender::poll_transmit`] has a segment now.
    #[inline]
    pub fn wants_to_send(&self, config: &TcpConfig) -> bool {
        if self.setup != Setup::Done {
            return matches!(self.setup, Setup::Due | Setup::Confirm);
        }
        self.probe_due
            || self.forced && self.may_resend()
            || self.has_room(config) && (self.may_resend() || self.new_segment(config).is_some())
    }

    #[inline]
    fn may_resend(&self) -> bool {
        self.board.to_resend() > 0 && !self.new_only
    }

    /// What is in the network by the sender's knowledge, in segments.
    #[inline]
    pub fn pipe(&self) -> u32 {
        self.board.pipe().saturating_sub(self.dup_acks)
    }

    #[inline]
    fn has_room(&self, config: &TcpConfig) -> bool {
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
    fn new_segment(&self, config: &TcpConfig) -> Option<u32> {
        let len = (self.written - self.next).min(u64::from(config.mss));
        let offered = self.right_edge.saturating_sub(self.next);
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
        if self.probe_due {
            self.probe_due = false;
            if let Some(segment) = self.probe(config, now) {
                return Some(segment);
            }
        }
        if self.offload.is_some() {
            return self.poll_as_linux(config, now);
        }
        let room = self.has_room(config);
        if (room || self.forced)
            && self.may_resend()
            && let Some((end, len)) = self.board.resend(now)
        {
            self.forced = false;
            self.note_resent();
            return Some(self.again(config, now, end, len));
        }
        if !room {
            return None;
        }
        let len = self.new_segment(config)?;
        Some(self.fresh(config, now, len))
    }

    fn open(&mut self, config: &TcpConfig, now: Time) -> Option<Segment> {
        let syn = self.setup == Setup::Due;
        match self.setup {
            Setup::Due => {
                self.setup = Setup::Sent;
                self.last_sent = now;
                self.rto_at = config.expiry(now, self.rtt.timeout(config, self.backoff));
            }
            Setup::Confirm => self.setup = Setup::Done,
            Setup::Sent | Setup::Done => return None,
        }
        Some(Segment {
            seq: 0,
            len: 0,
            retransmission: self.backoff > 0,
            cwr: false,
            push: false,
            syn,
            echo: self.echo,
        })
    }

    #[inline]
    fn fresh(&mut self, config: &TcpConfig, now: Time, len: u32) -> Segment {
        let seq = self.next;
        let out_before = self.board.out();
        self.next += u64::from(len);
        self.board.push(now, self.next, len);
        self.last_sent = now;
        self.counts.segments += 1;
        self.prr_out += 1;
        if config.kernel_tick.is_some() {
            self.after_new_data(config, now, out_before);
        } else {
            // tcp_cwnd_validate: how much of the window this round trip uses.
            self.note_usage(self.pipe() >= self.congestion.window);
            if self.rto_at == NEVER {
                // RFC 6298 (5.1).
                self.rto_at = config.expiry(now, self.rtt.timeout(config, self.backoff));
            }
            self.schedule_probe(config, now);
        }
        Segment {
            seq,
            len,
            retransmission: false,
            cwr: core::mem::take(&mut self.cwr_due),
            push: false,
            syn: false,
            echo: self.echo,
        }
    }

    #[inline]
    fn note_usage(&mut self, limited: bool) {
        let out = self.board.out();
        if limited || self.una >= self.usage_end || (!self.limited && out > self.most_out) {
            self.limited = limited;
            self.most_out = out;
            self.usage_end = self.next;
        }
    }

    fn again(&mut self, config: &TcpConfig, now: Time, end: u32, len: u32) -> Segment {
        let seq = self.una + u64::from(end.wrapping_sub(self.una as u32)) - u64::from(len);
        self.last_sent = now;
        self.counts.segments += 1;
        self.counts.retransmissions += 1;
        self.prr_out += 1;
        if config.kernel_tick.is_some() {
            // tcp_xmit_retransmit_queue.
            if seq == self.una && self.reorder_at == NEVER {
                self.set_timeout(config, now);
            }
        } else if seq == self.una || self.rto_at == NEVER {
            self.rto_at = config.expiry(now, self.rtt.timeout(config, self.backoff));
        }
        Segment {
            seq,
            len,
            retransmission: true,
            cwr: false,
            // The end of the last write.
            push: config.kernel_tick.is_some() && seq + u64::from(len) == self.written,
            syn: false,
            echo: self.echo,
        }
    }

    /// An acknowledgment arrived.
    #[inline]
    pub fn on_ack(&mut self, config: &TcpConfig, now: Time, ack: &Ack) {
        if self.setup != Setup::Done {
            return self.on_syn_ack(config, now, ack);
        }
        if ack.ack > self.next || ack.ack < self.una {
            // Of nothing that was sent, or overtaken by a later one.
            return;
        }
        self.echo = ack.stamp;
        let edge = ack.ack + u64::from(ack.window);
        let window_moved = edge > self.right_edge;
        self.right_edge = self.right_edge.max(edge);
        let min_rtt = self.rtt.min();
        let mut delivered = Delivered::default();
        let advanced = ack.ack > self.una;
        let mut duplicate = false;
        if config.kernel_tick.is_some() {
            self.board.begin_ack();
        }
        if !ack.sack.is_empty() && config.sack {
            duplicate = ack.sack.duplicate;
            let blocks = &ack.sack.as_slice()[usize::from(duplicate)..];
            self.board
                .sack(now, blocks, ack.ack, self.next, min_rtt, &mut delivered);
            if duplicate {
                self.note_duplicate(ack.sack.as_slice()[0].1);
            }
        }
        if advanced {
            self.board
                .acknowledge(now, ack.ack, min_rtt, &mut delivered);
            self.una = ack.ack;
            self.backoff = 0;
        } else if self.board.out() == 0 {
            return;
        }
        let kernel = config.kernel_tick.is_some();
        let rtt = if kernel {
            let measured = Self::kernel_rtt(now, &delivered);
            if let Some((rtt, least)) = measured {
                self.rtt.measured(config, rtt, least, self.una, self.next);
                self.stretch = 0;
            }
            if let Some((_, latest)) = measured {
                self.congestion.measured(now, latest);
            }
            measured.map(|(_, latest)| latest)
        } else {
            let rtt = delivered.first_sent.map(|sent| now.since(sent));
            if let Some(rtt) = rtt {
                self.rtt.sample(config, rtt, self.una, self.next);
            }
            rtt
        };
        if !config.sack {
            self.count_duplicates(advanced, window_moved, &mut delivered);
        }
        self.congestion
            .delivered(delivered.segments, ack.ece, self.una, self.next);
        if let Some(end) = self.probe_end {
            if kernel {
                self.judge_probe_as_linux(end, ack.ack, duplicate, &delivered);
            } else if ack.ack >= end {
                self.judge_probe(end, ack.ack, duplicate);
            } else if duplicate {
                self.probe_end = None;
            }
        }
        let resets = kernel && self.resets_timer(now, advanced, &delivered);
        if advanced && !kernel {
            self.rto_at = if self.board.out() == 0 {
                NEVER
            } else {
                config.expiry(now, self.rtt.timeout(config, 0))
            };
        }
        if self.phase == Phase::Loss {
            let repeated = !advanced && !window_moved;
            self.doubt_timeout(config, advanced, repeated, &delivered);
        } else {
            self.doubt_recovery(config);
        }
        self.tolerates = false;
        let lost = if self.phase == Phase::Open
            && self.board.sacked() + self.board.lost() + self.dup_acks == 0
        {
            0
        } else {
            self.look_for_losses(config, now, advanced, duplicate)
        };
        self.react(config, ack, lost, advanced, &delivered);
        if resets && !self.tolerates && !self.await_probe(config, now, true) {
            self.rearm_timeout(config, now);
        }
        if advanced && !ack.ece {
            // RFC 3168 section 6.1.2: an echo raises nothing.
            let most_out = self.most_out;
            if matches!(self.phase, Phase::Open | Phase::Disorder | Phase::Loss)
                || self.phase == Phase::Reduced && !config.proportional_rate_reduction
            {
                let growth = Growth {
                    now,
                    acked: delivered.segments,
                    rtt,
                    min_rtt: self.rtt.min(),
                    una: self.una,
                    next: self.next,
                    limited: self.limited,
                    most_out,
                };
                self.congestion.grow(config, &growth);
            }
        }
        if kernel {
            self.prepare_burst(config);
        } else if advanced {
            self.schedule_probe(config, now);
        }
    }

    fn on_syn_ack(&mut self, config: &TcpConfig, now: Time, ack: &Ack) {
        if !ack.syn || self.setup != Setup::Sent {
            return;
        }
        self.setup = if config.kernel_tick.is_some() {
            Setup::Confirm
        } else {
            Setup::Done
        };
        self.right_edge = u64::from(ack.window);
        self.rto_at = NEVER;
        if self.backoff == 0 {
            let rtt = now.since(self.last_sent);
            self.rtt.sample(config, rtt, self.una, self.next);
        }
        self.backoff = 0;
        self.prepare_burst(config);
    }

    /// Whether all that was written was acknowledged.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.una == self.written
    }

    /// How much was written in all.
    #[inline]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The first unacknowledged offset.
    #[inline]
    pub fn una(&self) -> u64 {
        self.una
    }

    /// The next new offset.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The congestion window and its threshold.
    pub fn congestion(&self) -> &Congestion {
        &self.congestion
    }

    /// Round-trip times.
    pub fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// What it is doing about losses and marks.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// What it has done.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Losses and marks: finding them, and what the window makes of them.

use super::Phase;
use super::machine::Machine;
use super::policy::Policy;
use crate::tcp::config::{LossDetection, TcpConfig};
use crate::tcp::scoreboard::Delivered;
use crate::tcp::segment::Ack;
use slowpath_switch::{Span, Time};

impl<P: Policy> Machine<P> {
    /// RFC 6582 with what Linux makes of it: a duplicate ACK stands for one segment that
    /// arrived; an ACK of n segments for n - 1 of those counted before.
    pub fn count_duplicates(
        &mut self,
        advanced: bool,
        window_moved: bool,
        delivered: &mut Delivered,
    ) {
        if advanced {
            // What duplicates stood for was counted when they came (tcp_remove_reno_sacks).
            delivered.segments = delivered.acked.saturating_sub(self.dup_acks).max(1);
            if self.phase == Phase::Recovery {
                self.dup_acks = self
                    .dup_acks
                    .saturating_sub(delivered.acked.saturating_sub(1));
            } else {
                self.dup_acks = 0;
            }
        } else if !window_moved && self.dup_acks + self.board.lost() < self.board.out() {
            self.dup_acks += 1;
            delivered.segments += 1;
        }
    }

    /// Marks segments that an ACK shows to be lost; how many.
    pub fn find_losses(
        &mut self,
        config: &TcpConfig,
        now: Time,
        advanced: bool,
        duplicate: bool,
    ) -> u32 {
        match config.loss_detection {
            LossDetection::TimeoutOnly => 0,
            LossDetection::DuplicateAcks(threshold) if config.sack => {
                self.board.find_lost_by_count(threshold)
            }
            LossDetection::DuplicateAcks(threshold) => {
                let una = self.stream.una;
                let partial =
                    self.phase == Phase::Recovery && advanced && una < self.recovery_point;
                let enough = self.dup_acks >= threshold && self.phase != Phase::Recovery
                    && self.phase != Phase::Loss
                    // RFC 6582 section 4: not for ACKs of what an earlier recovery resent.
                    && (self.recovery_point == 0 || una > self.recovery_point);
                if partial || enough {
                    self.forced = true;
                    self.board.lose_head()
                } else {
                    0
                }
            }
            LossDetection::Rack => {
                let reordered = self.board.take_reordered();
                let (una, next) = (self.stream.una, self.stream.next);
                self.reordering.adapt(reordered, duplicate, una, next);
                P::find_lost_by_time(self, config, now)
            }
        }
    }

    /// RFC 8985 section 6.2 step 4.
    pub fn reordering_window(&self) -> Span {
        let sacked = self.board.sacked();
        self.reordering.window(self.phase, sacked, &self.rtt)
    }

    /// What the phases make of an ACK, in the order of Linux's `tcp_fastretrans_alert`.
    #[inline]
    pub fn react(
        &mut self,
        config: &TcpConfig,
        ack: &Ack,
        lost: u32,
        advanced: bool,
        delivered: &Delivered,
    ) {
        self.leave_phase(config, advanced);
        let disorder = self.board.sacked() + self.dup_acks > 0;
        match self.phase {
            Phase::Recovery | Phase::Loss => {}
            _ if self.board.lost() > 0 => self.enter_recovery(config, ack.ece),
            _ if ack.ece && self.phase != Phase::Reduced => self.enter_reduced(config),
            Phase::Open if disorder => self.phase = Phase::Disorder,
            Phase::Disorder if !disorder => self.phase = Phase::Open,
            _ => {}
        }
        if matches!(self.phase, Phase::Recovery | Phase::Reduced)
            && config.proportional_rate_reduction
            && delivered.segments > 0
        {
            self.reduce_in_proportion(delivered.segments, lost, advanced);
        }
    }

    #[inline]
    fn leave_phase(&mut self, config: &TcpConfig, advanced: bool) {
        let una = self.stream.una;
        let may_end = advanced || P::RECOVERY_KEEPS_POINT && self.phase == Phase::Recovery;
        if una < self.recovery_point || !may_end {
            return;
        }
        match self.phase {
            Phase::Reduced if una > self.recovery_point || self.board.out() == 0 => {
                self.end_reduction(config);
                self.phase = Phase::Open;
            }
            Phase::Recovery => {
                if !(P::NEEDLESS_WITHOUT_RETRANSMISSION && self.take_back_unused()) {
                    self.end_reduction(config);
                }
                self.dup_acks = 0;
                self.phase = Phase::Open;
                self.reordering.settle();
            }
            Phase::Loss => {
                self.dup_acks = 0;
                self.phase = Phase::Open;
                if !config.sack {
                    self.board.forget_losses();
                }
            }
            _ => {}
        }
    }

    /// The window at the end of a reduction is the threshold. RFC 6582 section 3.2 step 3
    /// allows it; with little out the next burst is limited by what was acknowledged.
    fn end_reduction(&mut self, config: &TcpConfig) {
        if self.congestion.is_modelled() {
            return;
        }
        if config.proportional_rate_reduction || self.phase == Phase::Recovery {
            self.congestion.window = self.congestion.ssthresh;
        }
    }

    /// Ends a phase without changing the window (`tcp_try_keep_open`).
    pub fn keep_open(&mut self) {
        self.recovery_point = self.stream.next;
        self.phase = if self.board.sacked() + self.board.lost() > 0 {
            Phase::Disorder
        } else {
            Phase::Open
        };
    }

    /// Fast recovery begins; with `echo` the ACK carried ECN-Echo.
    pub fn enter_recovery(&mut self, config: &TcpConfig, echo: bool) {
        self.counts.recoveries += 1;
        self.remember(echo || self.phase == Phase::Reduced);
        let is_falling = self.phase == Phase::Reduced;
        if !is_falling {
            self.reduction.begin(self.congestion.window);
            self.congestion.on_loss();
            P::reduction_began(self, config);
        }
        self.phase = Phase::Recovery;
        if !is_falling || !P::RECOVERY_KEEPS_POINT {
            self.recovery_point = self.stream.next;
        }
        P::recovery_began(self);
        if !config.proportional_rate_reduction {
            if !self.congestion.is_modelled() {
                self.congestion.window = self.congestion.ssthresh;
            }
            self.forced = true;
        }
    }

    fn enter_reduced(&mut self, config: &TcpConfig) {
        self.counts.mark_reductions += 1;
        self.undo = None;
        self.reduction.begin(self.congestion.window);
        self.congestion.on_mark();
        self.phase = Phase::Reduced;
        self.recovery_point = self.stream.next;
        self.reduction.cwr_due = true;
        P::reduction_began(self, config);
        if !config.proportional_rate_reduction {
            self.congestion.window = self.congestion.window.min(self.congestion.ssthresh);
        }
    }

    /// The window in proportion to what was delivered (RFC 6937).
    pub fn reduce_in_proportion(&mut self, delivered: u32, lost: u32, advanced: bool) {
        if self.congestion.is_modelled() {
            return;
        }
        let (pipe, ssthresh) = (self.pipe(), self.congestion.ssthresh);
        self.congestion.window = self
            .reduction
            .window(pipe, ssthresh, delivered, lost, advanced);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Losses and marks: finding them, and what the window makes of them.

use super::{NEVER, Phase, RACK_PERSISTS, RACK_THRESHOLD, Sender};
use crate::tcp::config::{LossDetection, TcpConfig};
use crate::tcp::scoreboard::Delivered;
use crate::tcp::segment::Ack;
use slowpath_switch::{Span, Time};

impl Sender {
    /// RFC 6582 with what Linux makes of it: a duplicate ACK stands for one segment that
    /// arrived; an ACK of n segments for n - 1 of those counted before.
    pub(super) fn count_duplicates(
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

    pub(super) fn look_for_losses(
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
                let partial =
                    self.phase == Phase::Recovery && advanced && self.una < self.recovery_point;
                let enough = self.dup_acks >= threshold && self.phase != Phase::Recovery
                    && self.phase != Phase::Loss
                    // RFC 6582 section 4: not for ACKs of what an earlier recovery resent.
                    && (self.recovery_point == 0 || self.una > self.recovery_point);
                if partial || enough {
                    self.forced = true;
                    self.board.lose_head()
                } else {
                    0
                }
            }
            LossDetection::Rack => {
                self.adapt_reordering(duplicate);
                if config.kernel_tick.is_none() {
                    self.rack(config, now)
                } else if self.board.take_advanced() {
                    // tcp_rack_mark_lost.
                    self.rack_as_linux(config, now)
                } else {
                    0
                }
            }
        }
    }

    pub(super) fn rack(&mut self, config: &TcpConfig, now: Time) -> u32 {
        let window = self.reordering_window();
        let (lost, wait) = self.board.find_lost_by_time(now, window);
        self.reorder_at = wait.map_or(NEVER, |wait| config.expiry(now, wait + config.least_wait()));
        lost
    }

    /// The wait for the end of the tolerance takes the timer.
    fn rack_as_linux(&mut self, config: &TcpConfig, now: Time) -> u32 {
        let window = self.reordering_window();
        let (lost, wait) = self.board.find_lost_by_time(now, window);
        if let Some(wait) = wait {
            self.tolerates = true;
            self.rto_at = NEVER;
            self.probe_at = NEVER;
            self.reorder_at = config.expiry(now, wait + config.least_wait());
        }
        lost
    }

    /// RFC 8985 section 6.2 step 4.
    pub(super) fn reordering_window(&self) -> Span {
        if !self.reordering
            && (matches!(self.phase, Phase::Recovery | Phase::Loss)
                || self.board.sacked() >= RACK_THRESHOLD)
        {
            return Span::ZERO;
        }
        let min = self.rtt.min().unwrap_or(Span::ZERO).0;
        let smoothed = self.rtt.smoothed().unwrap_or(Span::ZERO).0;
        Span((min / 4 * u64::from(self.reorder_steps)).min(smoothed))
    }

    pub(super) fn adapt_reordering(&mut self, duplicate: bool) {
        self.reordering |= self.board.take_reordered();
        if duplicate && self.una >= self.reorder_round {
            self.reorder_round = self.next;
            self.reorder_steps = (self.reorder_steps + 1).min(255);
            self.reorder_persist = RACK_PERSISTS;
        }
    }

    /// What the phases make of an ACK, in the order of Linux's `tcp_fastretrans_alert`.
    #[inline]
    pub(super) fn react(
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
    pub(super) fn leave_phase(&mut self, config: &TcpConfig, advanced: bool) {
        if self.una < self.recovery_point || !advanced {
            return;
        }
        match self.phase {
            Phase::Reduced if self.una > self.recovery_point || self.board.out() == 0 => {
                self.end_reduction(config);
                self.phase = Phase::Open;
            }
            Phase::Recovery => {
                self.end_reduction(config);
                self.dup_acks = 0;
                self.phase = Phase::Open;
                self.settle_reordering();
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
    pub(super) fn end_reduction(&mut self, config: &TcpConfig) {
        if config.proportional_rate_reduction || self.phase == Phase::Recovery {
            self.congestion.window = self.congestion.ssthresh;
        }
    }

    pub(super) fn settle_reordering(&mut self) {
        if self.reorder_persist > 0 {
            self.reorder_persist -= 1;
            if self.reorder_persist == 0 {
                self.reorder_steps = 1;
            }
        }
    }

    pub(super) fn enter_recovery(&mut self, config: &TcpConfig, echo: bool) {
        self.counts.recoveries += 1;
        self.remember(echo || self.phase == Phase::Reduced);
        if self.phase != Phase::Reduced {
            self.begin_reduction();
            self.congestion.on_loss();
        }
        self.phase = Phase::Recovery;
        self.recovery_point = self.next;
        if config.kernel_tick.is_some() {
            // tcp_init_cwnd_reduction.
            self.probe_end = None;
        } else {
            self.probe_at = NEVER;
        }
        if !config.proportional_rate_reduction {
            self.congestion.window = self.congestion.ssthresh;
            self.forced = true;
        }
    }

    pub(super) fn enter_reduced(&mut self, config: &TcpConfig) {
        self.counts.mark_reductions += 1;
        self.before = None;
        self.begin_reduction();
        self.congestion.on_mark();
        self.phase = Phase::Reduced;
        self.recovery_point = self.next;
        self.cwr_due = true;
        if config.kernel_tick.is_some() {
            // tcp_init_cwnd_reduction.
            self.probe_end = None;
        }
        if !config.proportional_rate_reduction {
            self.congestion.window = self.congestion.window.min(self.congestion.ssthresh);
        }
    }

    pub(super) fn begin_reduction(&mut self) {
        self.prr_window = self.congestion.window;
        self.prr_delivered = 0;
        self.prr_out = 0;
    }

    /// RFC 6937 section 3, with the safe bound (PRR-SSRB) only where the ACK advances and
    /// finds nothing lost (`tcp_cwnd_reduction`).
    pub(super) fn reduce_in_proportion(&mut self, delivered: u32, lost: u32, advanced: bool) {
        self.prr_delivered += delivered;
        let pipe = self.pipe();
        let ssthresh = self.congestion.ssthresh;
        let may_send = if pipe > ssthresh {
            // ceil(prr_delivered * ssthresh / RecoverFS) - prr_out.
            let share = (u64::from(self.prr_delivered) * u64::from(ssthresh))
                .div_ceil(u64::from(self.prr_window.max(1)));
            (share as u32).saturating_sub(self.prr_out)
        } else {
            let mut limit = self
                .prr_delivered
                .saturating_sub(self.prr_out)
                .max(delivered);
            if advanced && lost == 0 {
                limit += 1;
            }
            limit.min(ssthresh - pipe)
        };
        // The first of a reduction may always leave: a fast retransmission.
        let may_send = may_send.max(u32::from(self.prr_out == 0));
        self.congestion.window = pipe + may_send;
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The retransmission timer and tail loss probes.

use super::{NEVER, Phase, Sender, Setup};
use crate::tcp::config::{LossDetection, TcpConfig};
use crate::tcp::segment::Segment;
use slowpath_switch::{Span, Time};

impl Sender {
    /// RFC 8985 section 7.3: new data if there is, else the last segment again.
    pub(super) fn probe(&mut self, config: &TcpConfig, now: Time) -> Option<Segment> {
        self.counts.probes += 1;
        let fresh = if self.offload.is_some() {
            self.probe_as_linux(config, now)
        } else {
            let len = self.new_segment(config);
            len.map(|len| self.fresh(config, now, len))
        };
        let segment = match fresh {
            Some(segment) => {
                self.probe_was_new = true;
                segment
            }
            None => {
                let (end, len) = self.board.probe(now)?;
                self.probe_was_new = false;
                self.again(config, now, end, len)
            }
        };
        self.probe_end = Some(self.next);
        self.probe_at = NEVER;
        self.set_timeout(config, now);
        Some(segment)
    }

    /// RFC 8985 section 7.2.
    #[inline]
    pub(super) fn schedule_probe(&mut self, config: &TcpConfig, now: Time) {
        if !config.tail_loss_probe {
            return;
        }
        self.probe_at = NEVER;
        let out = self.board.out();
        let calm = matches!(self.phase, Phase::Open | Phase::Reduced);
        if !config.sack || !calm || out == 0 || self.board.sacked() > 0 || self.probe_end.is_some()
        {
            return;
        }
        let Some(srtt) = self.rtt.smoothed() else {
            return;
        };
        let mut wait = Span(srtt.0 * 2);
        if out == 1 {
            // The receiver may wait for a second one. Linux takes the least timeout for
            // the longest such wait.
            wait = wait + config.rto_min;
        } else {
            wait = wait + config.least_wait();
        }
        // Where the timer would come first it stays alone.
        self.probe_at = config.expiry(now, wait).min(self.rto_at);
    }

    /// RFC 8985 section 7.4.2: an ACK that covers what was out when the probe left, without
    /// word of a duplicate, says that the probe repaired a loss.
    pub(super) fn judge_probe(&mut self, end: u64, ack: u64, duplicate: bool) {
        self.probe_end = None;
        if self.probe_was_new || duplicate || ack < end {
            return;
        }
        if matches!(self.phase, Phase::Open | Phase::Disorder) {
            self.congestion.on_loss();
            self.congestion.window = self.congestion.window.min(self.congestion.ssthresh);
        }
    }

    /// The time of [`Sender::deadline`] has come.
    pub fn on_deadline(&mut self, config: &TcpConfig, now: Time) {
        if self.probe_at <= now {
            // Instead of the timer, where both are due (RFC 8985 section 7.2).
            if config.kernel_tick.is_some() && self.probe_end.is_some() {
                // One at a time (tcp_send_loss_probe).
                return self.rearm_timeout(config, now);
            }
            self.probe_at = NEVER;
            self.probe_due = true;
            self.rto_at = config.expiry(now, self.rtt.timeout(config, self.backoff));
            return;
        }
        if self.rto_at <= now {
            return self.on_timeout(config, now);
        }
        if self.reorder_at <= now && config.kernel_tick.is_some() {
            return self.tolerance_over(config, now);
        }
        if self.reorder_at <= now {
            self.reorder_at = NEVER;
            if self.rack(config, now) > 0 && !matches!(self.phase, Phase::Recovery | Phase::Loss) {
                self.enter_recovery(config, false);
                if config.proportional_rate_reduction {
                    self.reduce_in_proportion(0, 1, false);
                }
            }
        }
    }

    pub(super) fn on_timeout(&mut self, config: &TcpConfig, now: Time) {
        self.counts.timeouts += 1;
        if self.setup != Setup::Done {
            self.backoff += 1;
            self.setup = Setup::Due;
            self.rto_at = NEVER;
            return;
        }
        // RFC 5681 section 3.1: the threshold falls once for a flight, not for each expiry.
        // Linux leaves it too where a reduction is under way (tcp_enter_loss).
        let falls = matches!(self.phase, Phase::Open | Phase::Disorder)
            || self.una >= self.recovery_point
            || self.phase == Phase::Loss && self.backoff == 0;
        if falls {
            self.remember(false);
            self.congestion.on_loss();
        }
        // RFC 5682 section 3.1 step 1, and 3.2: not within another recovery, unless the same
        // segment timed out before.
        let alone = !matches!(self.phase, Phase::Recovery | Phase::Loss);
        self.frto = config.frto && (alone || self.backoff > 0);
        self.new_only = false;
        self.lost_at = now;
        self.congestion.on_timeout();
        if config.kernel_tick.is_some() && config.loss_detection == LossDetection::Rack {
            self.board.lose_old(now);
        } else {
            self.board.lose_all();
        }
        self.dup_acks = 0;
        self.phase = Phase::Loss;
        self.recovery_point = self.next;
        self.congestion.window = self.pipe() + 1;
        self.backoff += 1;
        self.stretch += 1;
        self.set_timeout(config, now);
        self.probe_at = NEVER;
        self.reorder_at = NEVER;
        self.probe_due = false;
        self.probe_end = None;
    }
}

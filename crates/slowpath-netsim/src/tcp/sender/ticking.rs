// SPDX-License-Identifier: Apache-2.0
//! Linux's timers: one for a connection, which waits for a timeout, for a probe or for the end
//! of RACK's tolerance, whichever was set last. With [`TcpConfig::kernel_tick`] only.

use super::{NEVER, Phase, Sender};
use crate::tcp::config::TcpConfig;
use crate::tcp::scoreboard::Delivered;
use slowpath_switch::{Span, Time};

/// Least wait that is left of a timeout (`tcp_rearm_rto`).
const LEAST: Span = Span::from_micros(1);
/// `TCP_TIMEOUT_INIT`: until a probe, before the first round trip.
const UNKNOWN: Span = Span::from_secs(1);

impl Sender {
    /// The round trip that an acknowledgment shows, and what it says of the least one
    /// (`tcp_clean_rtx_queue`): of what it acknowledges in order, if none of that was sent again,
    /// otherwise of what it newly says has arrived out of order.
    pub(super) fn kernel_rtt(now: Time, delivered: &Delivered) -> Option<(Span, Span)> {
        let since = |sent: Time| Span(now.0 / MICRO * MICRO - sent.0 / MICRO * MICRO);
        let in_order = delivered.acked_sent.filter(|_| !delivered.resent);
        let (first, _) = in_order.or(delivered.sacked_sent)?;
        let (_, last) = delivered.sacked_sent.or(in_order)?;
        Some((since(first), since(last)))
    }

    /// `icsk_rto`.
    pub(super) fn whole_timeout(&self, config: &TcpConfig) -> Span {
        let kernel = config.kernel_tick.is_some();
        self.rtt
            .timeout(config, if kernel { self.stretch } else { self.backoff })
    }

    /// The timeout, counted from now; nothing else is waited for.
    pub(super) fn set_timeout(&mut self, config: &TcpConfig, now: Time) {
        self.rto_at = config.expiry(now, self.whole_timeout(config));
        if config.kernel_tick.is_some() {
            self.probe_at = NEVER;
            self.reorder_at = NEVER;
        }
    }

    /// What is left of a timeout that began when the first segment left (`tcp_rto_delta_us`).
    fn left_of_timeout(&self, config: &TcpConfig, now: Time) -> Option<Span> {
        let end = self.board.first_sent()? + self.whole_timeout(config);
        (end > now).then(|| end - now)
    }

    /// `tcp_rearm_rto`: if another wait was under way, only what is left of the timeout.
    pub(super) fn rearm_timeout(&mut self, config: &TcpConfig, now: Time) {
        if self.board.out() == 0 {
            self.rto_at = NEVER;
            self.probe_at = NEVER;
            self.reorder_at = NEVER;
        } else if self.probe_at != NEVER || self.reorder_at != NEVER {
            let left = self.left_of_timeout(config, now);
            self.set_timeout(config, now);
            self.rto_at = config.expiry(now, left.unwrap_or(LEAST).max(LEAST));
        } else {
            self.set_timeout(config, now);
        }
    }

    /// `tcp_schedule_loss_probe`; `advancing` where the timeout would begin anew. Whether a
    /// probe is waited for now.
    pub(super) fn await_probe(&mut self, config: &TcpConfig, now: Time, advancing: bool) -> bool {
        let out = self.board.out();
        let calm = matches!(self.phase, Phase::Open | Phase::Reduced);
        if !config.tail_loss_probe || !config.sack || !calm || out == 0 {
            return false;
        }
        let wait = match self.rtt.precise() {
            // The receiver may wait for a second one. Linux takes the least timeout for the
            // longest such wait.
            Some(srtt) if out == 1 => Span(srtt.0 * 2) + config.rto_min,
            Some(srtt) => Span(srtt.0 * 2) + config.least_wait(),
            None => UNKNOWN,
        };
        let timeout = if advancing {
            Some(self.whole_timeout(config))
        } else {
            self.left_of_timeout(config, now)
        };
        let wait = timeout.map_or(wait, |timeout| wait.min(timeout));
        self.probe_at = config.expiry(now, wait);
        self.rto_at = NEVER;
        self.reorder_at = NEVER;
        true
    }

    /// New data left, where so much was out before (`tcp_event_new_data_sent`, then the end of
    /// `tcp_write_xmit`).
    pub(super) fn after_new_data(&mut self, config: &TcpConfig, now: Time, out_before: u32) {
        if out_before == 0 || self.probe_at != NEVER {
            self.rearm_timeout(config, now);
        }
        self.await_probe(config, now, false);
    }

    /// Whether an acknowledgment sets the timer again (`FLAG_SET_XMIT_TIMER`): it advances, or
    /// what it newly says has arrived was sent before the first segment was.
    pub(super) fn resets_timer(&self, now: Time, advanced: bool, delivered: &Delivered) -> bool {
        if advanced {
            return true;
        }
        match (delivered.sacked_sent, self.board.first_sent()) {
            (Some((first, _)), Some(head)) => now.since(first) > now.since(head),
            _ => false,
        }
    }

    /// The end of RACK's tolerance (`tcp_rack_reo_timeout`).
    pub(super) fn tolerance_over(&mut self, config: &TcpConfig, now: Time) {
        let window = self.reordering_window();
        let (lost, _) = self.board.find_lost_by_time(now, window);
        if lost > 0 && self.phase != Phase::Recovery {
            self.enter_recovery(config, false);
            self.reduce_in_proportion(1, lost, false);
        }
        self.rearm_timeout(config, now);
    }

    /// What an acknowledgment says of a probe (`tcp_process_tlp_ack`): only one beyond it
    /// says that the probe repaired a loss.
    pub(super) fn judge_probe_as_linux(
        &mut self,
        end: u64,
        ack: u64,
        duplicate: bool,
        delivered: &Delivered,
    ) {
        if ack < end {
            return;
        }
        if self.probe_was_new || duplicate {
            self.probe_end = None;
        } else if ack > end {
            self.probe_end = None;
            self.congestion.on_loss();
            self.congestion.window = self.congestion.ssthresh;
            // tcp_try_keep_open.
            self.recovery_point = self.next;
            self.phase = if self.board.sacked() + self.board.lost() > 0 {
                Phase::Disorder
            } else {
                Phase::Open
            };
        } else if delivered.segments == 0 {
            self.probe_end = None;
        }
    }
}

/// Picoseconds of what Linux measures in.
const MICRO: u64 = 1_000_000;

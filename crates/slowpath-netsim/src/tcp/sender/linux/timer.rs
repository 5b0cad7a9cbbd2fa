// SPDX-License-Identifier: Apache-2.0
//! Linux's timer: one for a connection, which waits for a timeout, for a probe or for the end
//! of RACK's reordering window, whichever was set last.

use super::{Linux, NEVER};
use crate::tcp::config::TcpConfig;
use crate::tcp::scoreboard::Delivered;
use crate::tcp::sender::Phase;
use crate::tcp::sender::machine::Machine;
use crate::tcp::sender::policy::Policy;
use slowpath_switch::{Span, Time};

/// Least wait that is left of a timeout (`tcp_rearm_rto`).
const LEAST: Span = Span::from_micros(1);
/// `TCP_TIMEOUT_INIT`: until a probe, before the first round trip.
const UNKNOWN: Span = Span::from_secs(1);
/// What Linux adds to waits of less than a round trip: `TCP_TIMEOUT_MIN_US`.
const SHORT_WAIT: Span = Span::from_millis(2);

impl Machine<Linux> {
    /// `icsk_rto`.
    pub fn timeout(&self, config: &TcpConfig) -> Span {
        self.backed_off(config, self.policy.doublings)
    }

    /// The timer waits for a timeout.
    pub fn wait_for_timeout(&mut self, now: Time, wait: Span) {
        let at = self.policy.tick.expiry(now, wait);
        self.policy.timer_moved |= self.deadline() != Some(at);
        self.timers.timeout_at = at;
        self.timers.probe_at = NEVER;
        self.timers.reordering_at = NEVER;
    }

    /// The timer waits for a probe.
    fn wait_for_probe(&mut self, now: Time, wait: Span) {
        let at = self.policy.tick.expiry(now, wait);
        self.policy.timer_moved |= self.deadline() != Some(at);
        self.timers.timeout_at = NEVER;
        self.timers.probe_at = at;
        self.timers.reordering_at = NEVER;
    }

    /// The timer waits for the end of RACK's reordering window.
    pub fn wait_for_reordering(&mut self, now: Time, wait: Span) {
        self.policy.awaits_reordering = true;
        let at = self.policy.tick.expiry(now, wait + SHORT_WAIT);
        self.policy.timer_moved |= self.deadline() != Some(at);
        self.timers.timeout_at = NEVER;
        self.timers.probe_at = NEVER;
        self.timers.reordering_at = at;
    }

    /// What is left of a timeout that began when the first segment left (`tcp_rto_delta_us`).
    fn left_of_timeout(&self, config: &TcpConfig, now: Time) -> Option<Span> {
        let end = self.board.first_sent()? + self.timeout(config);
        (end > now).then(|| end - now)
    }

    /// `tcp_rearm_rto`: if another wait was under way, only what is left of the timeout.
    pub fn rearm_timeout(&mut self, config: &TcpConfig, now: Time) {
        let timers = &mut self.timers;
        if self.board.out() == 0 {
            timers.timeout_at = NEVER;
            timers.probe_at = NEVER;
            timers.reordering_at = NEVER;
        } else if timers.probe_at != NEVER || timers.reordering_at != NEVER {
            let left = self.left_of_timeout(config, now);
            self.wait_for_timeout(now, left.unwrap_or(LEAST).max(LEAST));
        } else {
            Linux::restart_timeout(self, config, now);
        }
    }

    /// `tcp_schedule_loss_probe`; `advancing` where the timeout would begin anew. True if the
    /// timer waits for a probe now.
    pub fn await_probe(&mut self, config: &TcpConfig, now: Time, advancing: bool) -> bool {
        let out = self.board.out();
        let calm = matches!(self.phase, Phase::Open | Phase::Reduced);
        if !config.tail_loss_probe || !config.sack || !calm || out == 0 {
            return false;
        }
        let wait = match self.rtt.precise() {
            // The receiver may wait for a second one. Linux takes the least timeout for the
            // longest such wait.
            Some(srtt) if out == 1 => Span(srtt.0 * 2) + config.rto_min,
            Some(srtt) => Span(srtt.0 * 2) + SHORT_WAIT,
            None => UNKNOWN,
        };
        let timeout = if advancing {
            Some(self.timeout(config))
        } else {
            self.left_of_timeout(config, now)
        };
        let wait = timeout.map_or(wait, |timeout| wait.min(timeout));
        self.wait_for_probe(now, wait);
        true
    }

    /// Whether an ACK sets the timer again (`FLAG_SET_XMIT_TIMER`): it advances, or what it newly
    /// reports was sent before the first segment was.
    pub fn resets_timer(&self, now: Time, advanced: bool, delivered: &Delivered) -> bool {
        if advanced {
            return true;
        }
        match (delivered.sacked_sent, self.board.first_sent()) {
            (Some((first, _)), Some(head)) => now.since(first) > now.since(head),
            _ => false,
        }
    }

    /// The end of RACK's reordering window (`tcp_rack_reo_timeout`).
    pub fn end_reordering_window(&mut self, config: &TcpConfig, now: Time) {
        let window = self.reordering_window();
        let (lost, _) = self.board.find_lost_by_time(now, window);
        if lost > 0 && self.phase != Phase::Recovery {
            self.enter_recovery(config, false);
            self.reduce_in_proportion(1, lost, false);
        }
        self.rearm_timeout(config, now);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The sender of an ideal host: what the RFCs say, exact timers, and one segment whenever the
//! host's link asks for one.

use super::machine::{Machine, Setup};
use super::policy::Policy;
use super::{NEVER, Phase};
use crate::tcp::config::TcpConfig;
use crate::tcp::scoreboard::Delivered;
use crate::tcp::segment::Segment;
use slowpath_switch::{Span, Time};

#[derive(Clone, Copy, Debug)]
pub(super) struct Rfc;

impl Policy for Rfc {
    const RTT_UNIT: u64 = 1;
    const JUDGES_ORDER_BY_EARLIER_ACKS: bool = false;
    const RECOVERY_KEEPS_POINT: bool = false;
    const NEEDLESS_WITHOUT_RETRANSMISSION: bool = false;

    #[inline]
    fn elapsed(since: Time, now: Time) -> Span {
        now.since(since)
    }

    #[inline]
    fn expiry(&self, now: Time, wait: Span) -> Time {
        now + wait
    }

    #[inline]
    fn timer_wait(&self, wait: Span) -> Span {
        wait
    }

    #[inline]
    fn restart_timeout(sender: &mut Machine<Self>, config: &TcpConfig, now: Time) {
        sender.timers.timeout_at = now + sender.backed_off(config, sender.timers.backoff);
    }

    fn syn_doublings(expiries: u32) -> u32 {
        expiries
    }

    fn handshake_answered(_: &mut Machine<Self>, _: &TcpConfig, _: u32) -> Setup {
        Setup::Done
    }

    fn written(_: &mut Machine<Self>) {}

    fn has_waiting(&self) -> bool {
        false
    }

    #[inline]
    fn poll(sender: &mut Machine<Self>, config: &TcpConfig, now: Time) -> Option<Segment> {
        if sender.timers.pacing.holds(now) {
            return None;
        }
        let window_open = sender.window_open(config);
        if (window_open || sender.forced)
            && let Some(segment) = sender.retransmit(config, now)
        {
            sender.pace(config, now, u64::from(segment.len));
            return Some(segment);
        }
        if !window_open {
            return None;
        }
        let len = sender.new_segment(config)?;
        let segment = sender.send_new(config, now, len);
        sender.pace(config, now, u64::from(len));
        Some(segment)
    }

    fn poll_probe(sender: &mut Machine<Self>, config: &TcpConfig, now: Time) -> Option<Segment> {
        let len = sender.new_segment(config)?;
        Some(sender.send_new(config, now, len))
    }

    #[inline]
    fn sent_new(sender: &mut Machine<Self>, config: &TcpConfig, now: Time, _: u32) {
        // tcp_cwnd_validate: how much of the window this round trip uses.
        sender.note_usage(sender.pipe() >= sender.congestion.window);
        if sender.timers.timeout_at == NEVER {
            // RFC 6298 (5.1).
            Self::restart_timeout(sender, config, now);
        }
        schedule_probe(sender, config, now);
    }

    #[inline]
    fn sent_again(
        sender: &mut Machine<Self>,
        config: &TcpConfig,
        now: Time,
        segment: &mut Segment,
    ) {
        if segment.seq == sender.stream.una || sender.timers.timeout_at == NEVER {
            Self::restart_timeout(sender, config, now);
        }
    }

    #[inline]
    fn measure(
        sender: &mut Machine<Self>,
        config: &TcpConfig,
        now: Time,
        delivered: &Delivered,
    ) -> Option<Span> {
        let rtt = now.since(delivered.first_sent?);
        sender.sample_rtt(config, rtt, rtt);
        Some(rtt)
    }

    /// RFC 8985 section 7.4.2: an ACK that covers what was out when the probe left and reports no
    /// duplicate says that the probe repaired a loss.
    fn judge_probe(
        sender: &mut Machine<Self>,
        _: &TcpConfig,
        end: u64,
        ack: u64,
        duplicate: bool,
        _: &Delivered,
    ) {
        if ack < end && !duplicate {
            return;
        }
        sender.probe.end = None;
        let repaired = ack >= end && !sender.probe.was_new && !duplicate;
        if repaired && matches!(sender.phase, Phase::Open | Phase::Disorder) {
            sender.congestion.on_loss();
            sender.congestion.window = sender.congestion.window.min(sender.congestion.ssthresh);
        }
    }

    fn find_lost_by_time(sender: &mut Machine<Self>, _: &TcpConfig, now: Time) -> u32 {
        let window = sender.reordering_window();
        let (lost, wait) = sender.board.find_lost_by_time(now, window);
        sender.timers.reordering_at = wait.map_or(NEVER, |wait| now + wait);
        lost
    }

    #[inline]
    fn reduction_began(_: &mut Machine<Self>, _: &TcpConfig) {}

    #[inline]
    fn recovery_began(sender: &mut Machine<Self>) {
        sender.timers.probe_at = NEVER;
    }

    #[inline]
    fn after_ack(
        sender: &mut Machine<Self>,
        config: &TcpConfig,
        now: Time,
        advanced: bool,
        _: &Delivered,
    ) {
        if !advanced {
            return;
        }
        // RFC 6298 (5.2) and (5.3).
        sender.timers.timeout_at = if sender.board.out() == 0 {
            NEVER
        } else {
            now + sender.backed_off(config, 0)
        };
        schedule_probe(sender, config, now);
    }

    fn on_deadline(sender: &mut Machine<Self>, config: &TcpConfig, now: Time) {
        if sender.timers.probe_at <= now {
            // Instead of the timeout, where both are due (RFC 8985 section 7.2).
            sender.timers.probe_at = NEVER;
            sender.probe.due = true;
            Self::restart_timeout(sender, config, now);
        } else if sender.timers.timeout_at <= now {
            sender.on_timeout(config, now);
        } else if sender.timers.reordering_at <= now {
            sender.timers.reordering_at = NEVER;
            if Self::find_lost_by_time(sender, config, now) > 0
                && !matches!(sender.phase, Phase::Recovery | Phase::Loss)
            {
                sender.enter_recovery(config, false);
                if config.proportional_rate_reduction {
                    sender.reduce_in_proportion(0, 1, false);
                }
            }
        }
    }

    fn lose_after_timeout(sender: &mut Machine<Self>, _: &TcpConfig, _: Time) {
        sender.board.lose_all();
    }
}

/// RFC 8985 section 7.2.
#[inline]
fn schedule_probe(sender: &mut Machine<Rfc>, config: &TcpConfig, now: Time) {
    if !config.tail_loss_probe {
        return;
    }
    sender.timers.probe_at = NEVER;
    let out = sender.board.out();
    if !config.sack
        || !matches!(sender.phase, Phase::Open | Phase::Reduced)
        || out == 0
        || sender.board.sacked() > 0
        || sender.probe.end.is_some()
    {
        return;
    }
    let Some(srtt) = sender.rtt.smoothed() else {
        return;
    };
    let mut wait = Span(srtt.0 * 2);
    if out == 1 {
        // The receiver may wait for a second one. Linux takes the least timeout for
        // the longest such wait.
        wait = wait + config.rto_min;
    }
    // Where the timeout would come first there is no probe.
    sender.timers.probe_at = (now + wait).min(sender.timers.timeout_at);
}

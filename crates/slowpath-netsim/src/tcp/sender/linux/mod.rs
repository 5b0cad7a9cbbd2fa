// SPDX-License-Identifier: Apache-2.0
//! The sender of a Linux host ([`TcpConfig::kernel_tick`]): timers that count ticks, one of them
//! for a connection, a send buffer, and bursts that a network card cuts into packets.

pub(crate) mod buffer;
mod burst;
mod timer;

use super::NEVER;
use super::machine::{Machine, Setup};
use super::policy::Policy;
use crate::tcp::config::{Ecn, LossDetection, TcpConfig};
use crate::tcp::scoreboard::Delivered;
use crate::tcp::segment::Segment;
use crate::tcp::tick::Tick;
use burst::Offload;
use slowpath_switch::{Span, Time};

/// `sysctl_tcp_syn_linear_timeouts`: the first timeouts of a SYN, which do not double the next.
const LINEAR_SYNS: u32 = 4;
/// A microsecond, in picoseconds: what Linux measures round trips in.
const MICROSECOND: u64 = 1_000_000;

/// What a Linux sender has beside the common state.
#[derive(Clone, Debug)]
pub(super) struct Linux {
    tick: Tick,
    /// How often the timeout was doubled since the last round trip that was measured
    /// (`icsk_backoff`).
    doublings: u32,
    /// The ACK at hand started the wait for the end of RACK's reordering window.
    awaits_reordering: bool,
    /// The timer was set to another time than it had.
    pub timer_moved: bool,
    /// What is at the host between TCP and the link.
    pub offload: Offload,
}

impl Linux {
    /// One of a host with that tick.
    pub fn new(tick: Tick) -> Self {
        Linux {
            tick,
            doublings: 0,
            awaits_reordering: false,
            timer_moved: false,
            offload: Offload::default(),
        }
    }
}

impl Policy for Linux {
    const RTT_UNIT: u64 = MICROSECOND;
    const JUDGES_ORDER_BY_EARLIER_ACKS: bool = true;
    const RECOVERY_KEEPS_POINT: bool = true;
    const NEEDLESS_WITHOUT_RETRANSMISSION: bool = true;

    #[inline]
    fn elapsed(since: Time, now: Time) -> Span {
        let micros = |at: Time| at.0 / MICROSECOND;
        Span((micros(now) - micros(since)) * MICROSECOND)
    }

    #[inline]
    fn expiry(&self, now: Time, wait: Span) -> Time {
        self.tick.expiry(now, wait)
    }

    #[inline]
    fn timer_wait(&self, wait: Span) -> Span {
        self.tick.whole(wait)
    }

    fn restart_timeout(sender: &mut Machine<Self>, config: &TcpConfig, now: Time) {
        let timeout = sender.timeout(config);
        sender.wait_for_timeout(now, timeout);
    }

    /// `tcp_retransmit_timer`.
    fn syn_doublings(expiries: u32) -> u32 {
        expiries.saturating_sub(LINEAR_SYNS)
    }

    fn handshake_answered(sender: &mut Machine<Self>, config: &TcpConfig, expiries: u32) -> Setup {
        // tcp_init_transfer: the network lost more than one.
        if expiries > 1 {
            sender.congestion.window = 1;
        }
        sender.prepare_burst(config);
        Setup::Confirm
    }

    fn written(sender: &mut Machine<Self>) {
        sender.policy.offload.buffer.wake();
    }

    fn has_waiting(&self) -> bool {
        self.offload.has_waiting()
    }

    fn poll(sender: &mut Machine<Self>, config: &TcpConfig, now: Time) -> Option<Segment> {
        sender.poll_burst(config, now)
    }

    fn poll_probe(sender: &mut Machine<Self>, config: &TcpConfig, now: Time) -> Option<Segment> {
        sender.burst_for_probe(config, now)
    }

    /// `tcp_event_new_data_sent`, then the end of `tcp_write_xmit`.
    fn sent_new(sender: &mut Machine<Self>, config: &TcpConfig, now: Time, out_before: u32) {
        if out_before == 0 || sender.timers.probe_at != NEVER {
            sender.rearm_timeout(config, now);
        }
        sender.await_probe(config, now, false);
    }

    fn sent_again(
        sender: &mut Machine<Self>,
        config: &TcpConfig,
        now: Time,
        segment: &mut Segment,
    ) {
        // tcp_xmit_retransmit_queue.
        if segment.seq == sender.stream.una && sender.timers.reordering_at == NEVER {
            Self::restart_timeout(sender, config, now);
        }
        segment.push = sender.pushes_again(config, now, segment.seq + u64::from(segment.len));
    }

    /// The round trip that an ACK shows, and what it says of the least one
    /// (`tcp_clean_rtx_queue`): of what it acknowledges in order, if none of that was sent again,
    /// otherwise of what it newly reports out of order.
    fn measure(
        sender: &mut Machine<Self>,
        config: &TcpConfig,
        now: Time,
        delivered: &Delivered,
    ) -> Option<Span> {
        let in_order = delivered.acked_sent.filter(|_| !delivered.resent);
        let (first, _) = in_order.or(delivered.sacked_sent)?;
        let (_, last) = delivered.sacked_sent.or(in_order)?;
        let (rtt, least) = (Self::elapsed(first, now), Self::elapsed(last, now));
        sender.sample_rtt(config, rtt, least);
        sender.policy.doublings = 0;
        sender.congestion.measured(now, least);
        Some(least)
    }

    /// `tcp_process_tlp_ack`: only an ACK beyond the probe says that the probe repaired a loss.
    fn judge_probe(
        sender: &mut Machine<Self>,
        config: &TcpConfig,
        end: u64,
        ack: u64,
        duplicate: bool,
        delivered: &Delivered,
    ) {
        if ack < end {
            return;
        }
        if sender.probe.was_new || duplicate {
            sender.probe.end = None;
        } else if ack > end {
            sender.probe.end = None;
            sender.queue_cwr(config);
            sender.congestion.on_mark();
            if !sender.congestion.is_modelled() {
                sender.congestion.window = sender.congestion.ssthresh;
            }
            sender.keep_open();
        } else if delivered.segments == 0 {
            sender.probe.end = None;
        }
    }

    /// `tcp_rack_mark_lost`, if anything was delivered: the wait for the end of the reordering
    /// window takes the timer.
    fn find_lost_by_time(sender: &mut Machine<Self>, _: &TcpConfig, now: Time) -> u32 {
        if !sender.board.take_advanced() {
            return 0;
        }
        let window = sender.reordering_window();
        let (lost, wait) = sender.board.find_lost_by_time(now, window);
        if let Some(wait) = wait {
            sender.wait_for_reordering(now, wait);
        }
        lost
    }

    /// `tcp_init_cwnd_reduction`.
    fn reduction_began(sender: &mut Machine<Self>, config: &TcpConfig) {
        sender.probe.end = None;
        sender.queue_cwr(config);
    }

    /// `dctcp_state` halves the window, though it may be falling for a mark already.
    fn recovery_began(sender: &mut Machine<Self>) {
        if sender.congestion.alpha().is_some() {
            sender.congestion.on_loss();
        }
    }

    fn after_ack(
        sender: &mut Machine<Self>,
        config: &TcpConfig,
        now: Time,
        advanced: bool,
        delivered: &Delivered,
    ) {
        let awaits_reordering = core::mem::take(&mut sender.policy.awaits_reordering);
        if sender.resets_timer(now, advanced, delivered)
            && !awaits_reordering
            && !sender.await_probe(config, now, true)
        {
            sender.rearm_timeout(config, now);
        }
        sender.prepare_burst(config);
    }

    fn on_deadline(sender: &mut Machine<Self>, config: &TcpConfig, now: Time) {
        if sender.timers.probe_at <= now {
            if sender.probe.end.is_some() {
                // One at a time (tcp_send_loss_probe).
                return sender.rearm_timeout(config, now);
            }
            sender.timers.probe_at = NEVER;
            sender.probe.due = true;
            let timeout = sender.backed_off(config, sender.timers.backoff);
            sender.timers.timeout_at = sender.policy.tick.expiry(now, timeout);
        } else if sender.timers.timeout_at <= now {
            sender.on_timeout(config, now);
        } else if sender.timers.reordering_at <= now {
            sender.end_reordering_window(config, now);
        }
    }

    fn lose_after_timeout(sender: &mut Machine<Self>, config: &TcpConfig, now: Time) {
        sender.policy.doublings += 1;
        sender.queue_cwr(config);
        if config.loss_detection == LossDetection::Rack {
            sender.board.lose_old(now);
        } else {
            sender.board.lose_all();
        }
    }
}

impl Machine<Linux> {
    /// The next new segment says that the window fell, whatever for (`tcp_ecn_queue_cwr`).
    fn queue_cwr(&mut self, config: &TcpConfig) {
        self.reduction.cwr_due |= config.ecn != Ecn::Off;
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Bursts: what Linux hands down in one piece because a network card, or the kernel below TCP,
//! cuts it into packets.

use super::Linux;
use super::buffer::{Buffer, MOST_BYTES, OVERHEAD, Push};
use crate::tcp::config::TcpConfig;
use crate::tcp::segment::Segment;
use crate::tcp::sender::Phase;
use crate::tcp::sender::machine::Machine;
use slowpath_switch::{Span, Time};

/// `sysctl_tcp_min_tso_segs`.
const LEAST_SEGMENTS: u64 = 2;
/// `sysctl_tcp_tso_win_divisor`.
const WINDOW_DIVISOR: u32 = 3;
/// `sysctl_tcp_tso_rtt_log`: a round trip below 2^9 us has whole pieces.
const RTT_SHIFT: u32 = 9;
/// `sk_pacing_shift`: a piece is what the pacing rate gives in 1/1024 s.
const PACING_SHIFT: u32 = 10;
/// `sysctl_tcp_limit_output_bytes`.
const OUTPUT_LIMIT: u64 = 4 << 20;
const MILLISECOND: Span = Span::from_millis(1);

/// Segments that are sent again in one piece (`tcp_retransmit_skb`).
#[derive(Clone, Copy, Debug, Default)]
struct Retransmission {
    /// Segments of it that have left.
    sent: u32,
    /// Segments that may still leave in it.
    allowed: u32,
}

/// What of a connection is at its host between TCP and the link.
#[derive(Clone, Debug, Default)]
pub(in crate::tcp::sender) struct Offload {
    pub(super) buffer: Buffer,
    /// Bytes of the present burst, those of them that are still to come, and whether its last
    /// segment is pushed.
    length: u64,
    left: u64,
    pushes: bool,
    /// What a write wants to leave now; `None` outside of a write.
    push: Option<Push>,
    /// Where the last piece ends that was not of whole segments (`snd_sml`).
    short_end: u64,
    /// Whether something new left, or only the window held it back, since that was noted.
    moved: bool,
    /// What is being sent again in one piece.
    retransmission: Retransmission,
    /// Bytes a second (`sk_pacing_rate`).
    rate: Option<u64>,
    /// Bytes that wait at the host's link, and whether they are too many for more.
    waiting: u64,
    throttled: bool,
}

impl Offload {
    /// `waiting` bytes of the connection wait at the host's link, with [`OVERHEAD`] for each packet.
    pub fn note_waiting(&mut self, waiting: u64) {
        self.waiting = waiting;
        self.throttled = false;
    }

    /// Whether it held something back because too much waits.
    pub fn is_throttled(&self) -> bool {
        self.throttled
    }

    /// Whether something waits at the host's link.
    pub fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Bytes of a piece by the pacing rate; `None` before the first round trip.
    fn piece_rate(&self) -> Option<u64> {
        self.rate.map(|rate| rate >> PACING_SHIFT)
    }

    /// Whether `length` bytes may join what waits at the host's link; `factor` times more may than
    /// of one new piece (`tcp_small_queue_check`).
    fn allows(&self, factor: u64, length: u64, most: u64) -> bool {
        let rate = self.piece_rate().unwrap_or(u64::MAX);
        let limit = rate.max(2 * (length + OVERHEAD)).min(most) * factor;
        // A socket's own count begins at 1.
        self.waiting < limit || self.buffer.has_one_out()
    }
}

impl Machine<Linux> {
    /// The next segment that Linux would hand down now.
    pub fn poll_burst(&mut self, config: &TcpConfig, now: Time) -> Option<Segment> {
        loop {
            if let Some(segment) = self.next_of_burst(config, now) {
                return Some(segment);
            }
            let retransmits = self.window_open(config) || self.forced;
            if retransmits
                && self.may_retransmit()
                && (self.policy.offload.retransmission.allowed > 0
                    || !self.timers.pacing.holds(now))
                && self.try_queue(2, u64::from(config.mss))
                && let Some(segment) = self.retransmit(config, now)
            {
                return Some(segment);
            }
            let one = matches!(self.policy.offload.push, Some(Push::One));
            let begun = self.begin_burst(config, now, one, false);
            let window = self.congestion.window;
            if !begun || one {
                self.note_burst();
                let pipe = self.pipe();
                let offload = &mut self.policy.offload;
                offload.push = None;
                if !begun {
                    offload.buffer.check_space(config, window, pipe);
                }
            }
            if begun {
                continue;
            }
            let offered = self.stream.right_edge - self.stream.una;
            let offload = &mut self.policy.offload;
            offload.push = offload
                .buffer
                .write(config, self.stream.written, offered, window);
            offload.push?;
        }
    }

    /// What an acknowledgment leaves for what is sent next.
    pub fn prepare_burst(&mut self, config: &TcpConfig) {
        let rate = self.pacing_rate(config);
        let offload = &mut self.policy.offload;
        offload.rate = rate;
        offload.retransmission = Retransmission::default();
        offload.buffer.acknowledge(self.stream.una);
    }

    /// The end of `tcp_write_xmit`: how much of the window is used.
    fn note_burst(&mut self) {
        let full = self.pipe() >= self.congestion.window;
        let offload = &mut self.policy.offload;
        let moved = core::mem::take(&mut offload.moved);
        if moved || full && !offload.buffer.unsent.is_empty() {
            self.note_usage(full);
        }
    }

    fn next_of_burst(&mut self, config: &TcpConfig, now: Time) -> Option<Segment> {
        let offload = &mut self.policy.offload;
        if offload.left == 0 {
            return None;
        }
        let len = offload.left.min(u64::from(config.mss));
        offload.left -= len;
        let push = offload.left == 0 && offload.pushes;
        let (left, length) = (offload.left, offload.length);
        let mut segment = self.send_new(config, now, len as u32);
        segment.push = push;
        if left == 0 {
            self.pace(config, now, length);
        }
        Some(segment)
    }

    /// Whether a segment that is sent again, and ends there, is pushed: it is the end of what is sent
    /// again in one piece, and that has several segments, or was the end of a write.
    pub fn pushes_again(&mut self, config: &TcpConfig, now: Time, end: u64) -> bool {
        let (piece_end, written) = self
            .policy
            .offload
            .buffer
            .sent_piece(end)
            .unwrap_or((end, false));
        let mut again = self.policy.offload.retransmission;
        if again.allowed == 0 {
            // The segment itself is in the pipe already.
            let free = (self.congestion.window + 1).saturating_sub(self.pipe());
            let allowed = free.clamp(1, self.most_segments(config));
            again = Retransmission { sent: 0, allowed };
        }
        again.sent += 1;
        again.allowed -= 1;
        let goes_on = again.allowed > 0 && end < piece_end && self.board.goes_on();
        self.policy.offload.retransmission = if goes_on {
            again
        } else {
            Retransmission::default()
        };
        if !goes_on {
            self.pace(config, now, u64::from(again.sent) * u64::from(config.mss));
        }
        !goes_on && (again.sent > 1 || end == piece_end && written)
    }

    /// A probe: one new segment, whatever the window says (`tcp_send_loss_probe`).
    pub fn burst_for_probe(&mut self, config: &TcpConfig, now: Time) -> Option<Segment> {
        if !self.begin_burst(config, now, true, true) {
            return None;
        }
        self.note_burst();
        self.next_of_burst(config, now)
    }

    /// One round of `tcp_write_xmit`: whether the first piece leaves, or what may of it. With
    /// `one` it does not wait for more; `probe` takes one segment though the window is full.
    fn begin_burst(&mut self, config: &TcpConfig, now: Time, one: bool, probe: bool) -> bool {
        if self.timers.pacing.holds(now) {
            return false;
        }
        let mss = u64::from(config.mss);
        let most = u64::from(self.most_segments(config));
        let window = self.congestion.window;
        // tcp_cwnd_test: half of the window at most.
        let free = window.saturating_sub(self.pipe()).min((window / 2).max(1));
        let quota = match u64::from(free) {
            0 if probe => 1,
            0 => return false,
            free => free.min(most),
        };
        let buffer = &mut self.policy.offload.buffer;
        buffer.grow(quota * mss);
        let Some(length) = buffer.unsent.front().map(|piece| piece.length) else {
            return false;
        };
        let is_last = buffer.unsent.len() == 1;
        let offered = self.stream.right_edge.saturating_sub(self.stream.next);
        let idle = self.board.out() == 0;
        if offered < length.min(mss) && !(idle && offered > 0) {
            return false;
        }
        if length > mss && !one && self.defer(config, now, most as u32, length, is_last) {
            return false;
        }
        let partial = length.min(offered) % mss;
        let held = partial > 0 && !probe && self.waits_for_short();
        let limit = if length <= mss {
            // tcp_nagle_test.
            if held && is_last {
                return false;
            }
            mss
        } else {
            // tcp_mss_split_point.
            let most = quota * mss;
            let needed = length.min(offered);
            if !is_last && most <= offered || most <= needed || !held {
                most
            } else {
                needed - partial
            }
        };
        let length = length.min(limit).min(offered);
        self.policy.offload.buffer.split(length);
        if !self.try_queue(1, length) {
            return false;
        }
        let end = self.stream.next + length;
        if length % mss != 0 {
            self.policy.offload.short_end = end;
        }
        let in_flight = self.pipe() + length.div_ceil(mss) as u32;
        let offload = &mut self.policy.offload;
        offload.moved = true;
        offload.left = length;
        offload.length = length;
        // __tcp_transmit_skb: PSH on what has more than one segment.
        offload.pushes = offload.buffer.leave(end) || length > mss;
        offload.buffer.check_space(config, window, in_flight);
        true
    }

    /// Nagle's rule as Minshall changed it: a segment that is not whole waits while another such is
    /// not acknowledged, unless a write goes on (`tcp_nagle_check`, `tcp_minshall_check`).
    fn waits_for_short(&self) -> bool {
        let offload = &self.policy.offload;
        let pushes = matches!(offload.push, Some(Push::All | Push::One));
        !pushes && self.board.out() > 0 && offload.short_end > self.stream.una
    }

    /// Lets a piece of that length join what waits at the host's link, or notes that it may not.
    fn try_queue(&mut self, factor: u64, length: u64) -> bool {
        let most = if self.timers.pacing.is_on() {
            u64::MAX / 2
        } else {
            OUTPUT_LIMIT
        };
        let offload = &mut self.policy.offload;
        let allowed = offload.allows(factor, length, most);
        offload.throttled |= !allowed;
        allowed
    }

    /// `tcp_tso_autosize`.
    fn most_segments(&mut self, config: &TcpConfig) -> u32 {
        let mss = u64::from(config.mss);
        let least = match self.congestion.model() {
            Some(model) => model.least_segments(),
            None => LEAST_SEGMENTS,
        };
        let Some(rate) = self.policy.offload.piece_rate() else {
            return (MOST_BYTES / mss).max(least) as u32;
        };
        let mut bytes = rate.min(MOST_BYTES);
        let micros = self.rtt.min().map_or(u64::MAX, |min| min.0 / 1_000_000);
        let halvings = micros >> RTT_SHIFT;
        if halvings < u64::from(u32::BITS) {
            bytes += MOST_BYTES >> halvings;
        }
        (bytes.min(MOST_BYTES) / mss).max(least) as u32
    }

    /// `tcp_tso_should_defer`: a small part of a piece waits for the next acknowledgment, if
    /// that is near.
    fn defer(
        &mut self,
        config: &TcpConfig,
        now: Time,
        most: u32,
        length: u64,
        is_last: bool,
    ) -> bool {
        let mss = u64::from(config.mss);
        if matches!(self.phase, Phase::Recovery | Phase::Loss)
            || now.since(self.last_sent) > MILLISECOND
        {
            return false;
        }
        let window = self.congestion.window;
        let by_window = u64::from(window.saturating_sub(self.pipe())) * mss;
        let offered = self.stream.right_edge.saturating_sub(self.stream.next);
        let limit = by_window.min(offered);
        let whole = u64::from(window) * mss;
        let chunk = whole.min(self.stream.right_edge - self.stream.una) / u64::from(WINDOW_DIVISOR);
        if limit >= u64::from(most) * mss || !is_last && limit >= length || limit >= chunk {
            return false;
        }
        let (Some(first), Some(srtt)) = (self.board.first_sent(), self.rtt.precise()) else {
            return false;
        };
        let expected = first + srtt;
        let near = Span(srtt.0 / 2).min(MILLISECOND);
        if expected > now + near {
            return false;
        }
        if by_window < offered && by_window <= length {
            self.note_usage(true);
            self.policy.offload.moved = false;
        }
        true
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Bursts: what Linux hands down in one piece because a network card, or the kernel below TCP,
//! cuts it into packets. With [`TcpConfig::kernel_tick`] only.

use super::buffer::{Buffer, MOST_BYTES, OVERHEAD, Push};
use super::{Phase, Sender};
use crate::tcp::config::TcpConfig;
use crate::tcp::segment::Segment;
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
const PER_SECOND: u128 = 1_000_000_000_000;
const MILLISECOND: Span = Span::from_millis(1);

/// What of a connection is at its host between TCP and the link.
#[derive(Clone, Debug, Default)]
pub(super) struct Offload {
    pub buffer: Buffer,
    /// Bytes of the present burst that are still to come, and whether its last segment is
    /// pushed.
    left: u64,
    pushes: bool,
    /// What a write wants to leave now; `None` outside of a write.
    push: Option<Push>,
    /// Whether something new left, or the window alone held it back, since that was noted.
    moved: bool,
    /// Bytes a second (`sk_pacing_rate`).
    rate: Option<u64>,
    /// Bytes that wait at the host's link, and whether they are too many for more.
    waiting: u64,
    throttled: bool,
}

impl Sender {
    /// So many bytes of it wait at the host's link, with `OVERHEAD` for each packet.
    pub fn note_waiting(&mut self, waiting: u64) {
        if let Some(offload) = &mut self.offload {
            offload.waiting = waiting;
            offload.throttled = false;
        }
    }

    /// Whether it held something back because too much of it waits.
    pub fn is_throttled(&self) -> bool {
        (self.offload.as_ref()).is_some_and(|offload| offload.throttled)
    }

    /// The next segment that Linux would hand down now.
    pub(super) fn poll_as_linux(&mut self, config: &TcpConfig, now: Time) -> Option<Segment> {
        loop {
            if let Some(segment) = self.next_of_burst(config, now) {
                return Some(segment);
            }
            let resends = self.has_room(config) || self.forced;
            if resends
                && self.may_resend()
                && self.may_queue(2, u64::from(config.mss))
                && let Some((end, len)) = self.board.resend(now)
            {
                self.forced = false;
                self.note_resent();
                return Some(self.again(config, now, end, len));
            }
            let one = matches!(self.offload_mut()?.push, Some(Push::One));
            let begun = self.begin_burst(config, now, one, false);
            if !begun || one {
                self.note_burst();
                let window = self.congestion.window;
                let pipe = self.pipe();
                let offload = self.offload_mut()?;
                offload.push = None;
                if !begun {
                    offload.buffer.check_room(config, window, pipe);
                }
            }
            if begun {
                continue;
            }
            let (written, window) = (self.written, self.congestion.window);
            let offered = self.right_edge - self.una;
            let offload = self.offload_mut()?;
            offload.push = offload.buffer.write(config, written, offered, window);
            offload.push?;
        }
    }

    fn offload_mut(&mut self) -> Option<&mut Offload> {
        self.offload.as_deref_mut()
    }

    /// What an acknowledgment leaves for what is sent next.
    pub(super) fn prepare_burst(&mut self, config: &TcpConfig) {
        let rate = self.pacing_rate(config);
        let una = self.una;
        if let Some(offload) = self.offload_mut() {
            offload.rate = rate;
            offload.buffer.free(una);
        }
    }

    /// The end of `tcp_write_xmit`: how much of the window is used.
    fn note_burst(&mut self) {
        let full = self.pipe() >= self.congestion.window;
        let Some(offload) = self.offload_mut() else {
            return;
        };
        let moved = core::mem::take(&mut offload.moved);
        if moved || full && !offload.buffer.unsent.is_empty() {
            self.note_usage(full);
        }
    }

    fn next_of_burst(&mut self, config: &TcpConfig, now: Time) -> Option<Segment> {
        let offload = self.offload_mut()?;
        if offload.left == 0 {
            return None;
        }
        let len = offload.left.min(u64::from(config.mss));
        offload.left -= len;
        let push = offload.left == 0 && offload.pushes;
        let mut segment = self.fresh(config, now, len as u32);
        segment.push = push;
        Some(segment)
    }

    /// A probe: one new segment, whatever the window says (`tcp_send_loss_probe`).
    pub(super) fn probe_as_linux(&mut self, config: &TcpConfig, now: Time) -> Option<Segment> {
        if !self.begin_burst(config, now, true, true) {
            return None;
        }
        self.note_burst();
        self.next_of_burst(config, now)
    }

    /// One round of `tcp_write_xmit`: whether the first piece leaves, or what may of it. With
    /// `one` it does not wait for more; `probe` takes one segment without room for it.
    fn begin_burst(&mut self, config: &TcpConfig, now: Time, one: bool, probe: bool) -> bool {
        let mss = u64::from(config.mss);
        let most = u64::from(self.most_segments(config));
        let window = self.congestion.window;
        // tcp_cwnd_test: half of the window at most.
        let room = window.saturating_sub(self.pipe()).min((window / 2).max(1));
        let quota = match u64::from(room) {
            0 if probe => 1,
            0 => return false,
            room => room.min(most),
        };
        let Some(offload) = self.offload_mut() else {
            return false;
        };
        offload.buffer.grow(quota * mss);
        let Some(length) = offload.buffer.unsent.front().map(|piece| piece.length) else {
            return false;
        };
        let is_last = offload.buffer.unsent.len() == 1;
        let offered = self.right_edge.saturating_sub(self.next);
        let idle = self.board.out() == 0;
        if offered < length.min(mss) && !(idle && offered > 0) {
            return false;
        }
        if length > mss && !one && self.defers(config, now, most as u32, length, is_last) {
            return false;
        }
        // tcp_mss_split_point.
        let limit = if length <= mss {
            mss
        } else if quota * mss <= offered {
            quota * mss
        } else {
            (offered / mss * mss).max(mss).min(quota * mss)
        };
        let length = length.min(limit).min(offered);
        if let Some(offload) = self.offload_mut() {
            offload.buffer.split(length);
        }
        if !self.may_queue(1, length) {
            return false;
        }
        let end = self.next + length;
        let window = self.congestion.window;
        let in_flight = self.pipe() + length.div_ceil(mss) as u32;
        if let Some(offload) = self.offload_mut() {
            offload.moved = true;
            offload.left = length;
            // __tcp_transmit_skb: PSH on what has more than one segment.
            offload.pushes = offload.buffer.leave(end) || length > mss;
            offload.buffer.check_room(config, window, in_flight);
        }
        true
    }

    /// Whether a piece of that length may join what waits at the host's link
    /// (`tcp_small_queue_check`).
    fn may_queue(&mut self, factor: u64, length: u64) -> bool {
        let Some(offload) = self.offload_mut() else {
            return true;
        };
        let rate = offload.rate.map_or(u64::MAX, |rate| rate >> PACING_SHIFT);
        let limit = rate.max(2 * (length + OVERHEAD)).min(OUTPUT_LIMIT) * factor;
        // A socket's own count begins at 1.
        if offload.waiting < limit || offload.buffer.has_one_out() {
            return true;
        }
        offload.throttled = true;
        false
    }

    /// Bytes a second (`tcp_update_pacing_rate`); `None` before the first round trip.
    fn pacing_rate(&self, config: &TcpConfig) -> Option<u64> {
        let srtt = u128::from(self.rtt.precise()?.0.max(1));
        let window = self.congestion.window;
        let percent = if window < self.congestion.ssthresh / 2 {
            200
        } else {
            120
        };
        let out = u128::from(window.max(self.board.out()));
        let rate = out * u128::from(config.mss) * percent * PER_SECOND / (100 * srtt);
        Some(rate.min(u128::from(u64::MAX)) as u64)
    }

    /// `tcp_tso_autosize`.
    fn most_segments(&self, config: &TcpConfig) -> u32 {
        let mss = u64::from(config.mss);
        let Some(rate) = self.offload.as_ref().and_then(|offload| offload.rate) else {
            return (MOST_BYTES / mss).max(LEAST_SEGMENTS) as u32;
        };
        let mut bytes = (rate >> PACING_SHIFT).min(MOST_BYTES);
        let micros = self.rtt.min().map_or(u64::MAX, |min| min.0 / 1_000_000);
        let halvings = micros >> RTT_SHIFT;
        if halvings < u64::from(u32::BITS) {
            bytes += MOST_BYTES >> halvings;
        }
        (bytes.min(MOST_BYTES) / mss).max(LEAST_SEGMENTS) as u32
    }

    /// `tcp_tso_should_defer`: a small part of a piece waits for the next acknowledgment, if
    /// that is near.
    fn defers(
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
        let offered = self.right_edge.saturating_sub(self.next);
        let limit = by_window.min(offered);
        let whole = u64::from(window) * mss;
        let chunk = whole.min(self.right_edge - self.una) / u64::from(WINDOW_DIVISOR);
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
            if let Some(offload) = self.offload_mut() {
                offload.moved = false;
            }
        }
        true
    }
}

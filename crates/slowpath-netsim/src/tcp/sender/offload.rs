// SPDX-License-Identifier: Apache-2.0
//! Bursts: what Linux hands down in one piece because a network card, or the kernel below TCP,
//! cuts it into packets. With [`TcpConfig::kernel_tick`] only.

use super::{Phase, Sender};
use crate::tcp::config::TcpConfig;
use slowpath_switch::{Span, Time};

/// `sk_gso_max_size`: 65,536 less `MAX_TCP_HEADER` and one.
const MOST_BYTES: u64 = 65_536 - 321;
/// Half of 65,535: what a SYN-ACK can offer.
const HALF_WINDOW: u64 = 32_767;
/// Pieces of that length which the first send buffer holds: 87,040 bytes (`tcp_sndbuf_expand`).
const FIRST_PIECES: u64 = 3;
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
/// What a packet takes in the host beside its payload: `struct sk_buff`, its head and
/// `skb_shared_info`.
pub(crate) const OVERHEAD: u64 = 768;
const PER_SECOND: u128 = 1_000_000_000_000;
const MILLISECOND: Span = Span::from_millis(1);

impl Sender {
    /// Whether the next new segment may leave now, with those that leave with it.
    pub(super) fn may_burst(&mut self, config: &TcpConfig, now: Time) -> bool {
        if self.burst == 0 {
            let most = self.most_segments(config);
            let left = self.piece_end(config) - self.next;
            if self.defers(config, now, most, left) {
                return false;
            }
            let window = self.congestion.window;
            // tcp_cwnd_test: half of the window at most.
            let room = window.saturating_sub(self.pipe());
            let segments = left.div_ceil(u64::from(config.mss)).min(u64::from(most)) as u32;
            self.burst = room.min(window / 2).clamp(1, segments.max(1));
            self.alone = self.burst == 1;
        }
        self.burst -= 1;
        // __tcp_transmit_skb: PSH on what has more than one segment.
        self.burst_ends = self.burst == 0 && !self.alone;
        true
    }

    /// Whether another burst may join so many bytes that wait in the host
    /// (`tcp_small_queue_check`). Within a burst it always may.
    pub fn may_queue(&self, config: &TcpConfig, waiting: u64) -> bool {
        let window = self.congestion.window;
        let room = window.saturating_sub(self.pipe()).min(window / 2).max(1);
        let burst = u64::from(room.min(self.most_segments(config)));
        let burst = burst * (u64::from(config.mss) + OVERHEAD);
        let limit = self
            .pacing_rate(config)
            .map_or(u64::MAX, |rate| rate >> PACING_SHIFT);
        let limit = limit.max(2 * burst).min(OUTPUT_LIMIT);
        self.burst > 0 || waiting <= limit || self.board.out() <= 1
    }

    /// Bytes a second (`tcp_update_pacing_rate`); `None` before the first round trip.
    fn pacing_rate(&self, config: &TcpConfig) -> Option<u64> {
        let srtt = u128::from(self.rtt.smoothed()?.0.max(1));
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
        let Some(rate) = self.pacing_rate(config) else {
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

    /// Where the piece ends in which the next segment lies: they are filled as data is
    /// written. The first are half of a window that is not scaled (`tcp_bound_to_half_wnd`), as
    /// long as the first buffer lasts.
    fn piece_end(&self, config: &TcpConfig) -> u64 {
        let mss = u64::from(config.mss);
        let small = (HALF_WINDOW / mss).max(1) * mss;
        let large = (MOST_BYTES / mss).max(1) * mss;
        let (from, piece) = if self.written_from > 0 {
            (self.written_from, large)
        } else if self.next < FIRST_PIECES * small {
            (0, small)
        } else {
            (FIRST_PIECES * small, large)
        };
        let into = self.next.saturating_sub(from);
        (from + (into / piece + 1) * piece).min(self.written)
    }

    /// `tcp_tso_should_defer`: a small piece waits for the next acknowledgment, if that is
    /// near. `left` is what the piece has.
    fn defers(&mut self, config: &TcpConfig, now: Time, most: u32, left: u64) -> bool {
        let mss = u64::from(config.mss);
        if left <= mss
            || matches!(self.phase, Phase::Recovery | Phase::Loss)
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
        if limit >= u64::from(most) * mss
            || self.next + left != self.written && limit >= left
            || limit >= chunk
        {
            return false;
        }
        let (Some(first), Some(srtt)) = (self.board.first_sent(), self.rtt.smoothed()) else {
            return false;
        };
        let expected = first + srtt;
        let near = Span(srtt.0 / 2).min(MILLISECOND);
        if expected > now + near {
            return false;
        }
        if by_window < offered && by_window <= left {
            self.note_usage(true);
        }
        true
    }
}

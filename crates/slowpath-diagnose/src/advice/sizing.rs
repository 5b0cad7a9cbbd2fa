// SPDX-License-Identifier: Apache-2.0
//! How large a send buffer should be (SNAP section 5.3).

use super::AdviceContext;
use slowpath_model::{Deltas, Micros};

/// What a connection's send buffer should hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendBufferSizing {
    /// Congestion window in bytes: Cwin · MSS. A lower bound of what the path carries, as
    /// the window does not grow while the buffer is the limit (`tcp_is_cwnd_limited`).
    pub window: u64,
    /// Bandwidth-delay product in bytes: delivery rate · minimum RTT, if both are known.
    pub rate_delay: Option<u64>,
    /// SNAP's share of the host's memory, in bytes of memory:
    /// Cwin · TotalSendBufferMemory ÷ ΣCwin, if both are known.
    pub memory_share: Option<u64>,
    /// The value to give to `setsockopt(SO_SNDBUF)`, in bytes: twice the larger of
    /// `window` and `rate_delay` (one window in flight, the next being written, as
    /// `tcp_sndbuf_expand` does), and at most half of `memory_share`, for Linux doubles
    /// the value to account for overhead (`socket(7)`).
    pub so_sndbuf: u64,
}

/// Sizes the send buffer; `None` while window and segment size are unknown.
pub fn size_send_buffer(deltas: &Deltas, context: &AdviceContext) -> Option<SendBufferSizing> {
    let window = u64::from(deltas.cwnd) * u64::from(deltas.send_mss);
    if window == 0 {
        return None;
    }
    let min_rtt = context.min_rtt.or(deltas.baseline_rtt);
    let rate_delay = context
        .delivery_rate
        .zip(min_rtt)
        .map(|(rate, rtt)| bytes_in(rate, rtt));
    let memory_share = context
        .total_send_buffer_memory
        .zip(context.sum_cwnd)
        .filter(|(_, sum)| *sum > 0)
        .map(|(total, sum)| {
            let share = u128::from(window) * u128::from(total) / u128::from(sum.max(window));
            // At most `total`, as the window is at most the divisor.
            share as u64
        });
    let wanted = window.max(rate_delay.unwrap_or(0)).saturating_mul(2);
    Some(SendBufferSizing {
        window,
        rate_delay,
        memory_share,
        so_sndbuf: memory_share.map_or(wanted, |m| wanted.min(m / 2)),
    })
}

/// What `rate` bytes a second carry in `time`.
pub(crate) fn bytes_in(rate: u64, time: Micros) -> u64 {
    u64::try_from(u128::from(rate) * u128::from(time.0) / 1_000_000).unwrap_or(u64::MAX)
}

// SPDX-License-Identifier: Apache-2.0
//! The kernel's `struct tcp_info` (`include/uapi/linux/tcp.h`), as inet_diag,
//! `getsockopt(TCP_INFO)` and saved series carry it.
//!
//! Two steps: [`RawTcpInfo::read`] cuts any byte slice into fields, a field that is not
//! wholly inside being missing (older kernels give shorter structs, newer ones longer);
//! [`TcpInfo::try_from`] demands the fields that every kernel since 4.6 has and checks the
//! enumerations; [`TcpInfo::stats`] undoes the kernel's scalings, once.

mod raw;
#[cfg(test)]
mod tests;

pub use raw::{KNOWN_LENGTH, RawTcpInfo};

use crate::{CaState, Micros, RtoStats, TcpState, TcpStats};
use thiserror::Error;

/// `TCP_INFINITE_SSTHRESH` (`include/net/tcp.h`): no loss met yet.
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// Length in bytes of the part that must be there: up to and including
/// `tcpi_data_segs_out`, Linux 4.6.
pub const MANDATORY_LENGTH: usize = 160;

/// Why bytes are not the statistics of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TcpInfoError {
    /// The struct ends before `tcpi_data_segs_out`.
    #[error(
        "reading tcp_info: {length} bytes where {MANDATORY_LENGTH} are needed; \
         the kernel is older than 4.6 or the data are cut"
    )]
    TooShort {
        /// Length in bytes of what was given.
        length: usize,
    },
    /// `tcpi_state` is no TCP state.
    #[error("reading tcp_info: {0} is no TCP state; the data are not a tcp_info")]
    State(u8),
    /// `tcpi_ca_state` is no congestion-avoidance state.
    #[error("reading tcp_info: {0} is no congestion state; the data are not a tcp_info")]
    CaState(u8),
}

/// What the socket layer knows beside `tcp_info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketQueues {
    /// Bytes in the send buffer, sent or not (`idiag_wqueue`: `write_seq - snd_una`; a SYN
    /// or FIN counts one).
    pub send: u32,
    /// Bytes received in order and not read (`idiag_rqueue`: `rcv_nxt - copied_seq`).
    pub receive: u32,
    /// Memory, where the source gives it.
    pub memory: Option<SocketMemory>,
}

/// Memory of a socket (`INET_DIAG_SKMEMINFO`, `sk_get_meminfo`), in bytes of truesize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketMemory {
    /// Receive-buffer limit (`sk_rcvbuf`).
    pub receive_buffer: u32,
    /// Send-buffer limit (`sk_sndbuf`).
    pub send_buffer: u32,
    /// Memory charged to the send queue (`sk_wmem_queued`).
    pub send_memory: u32,
}

impl SocketMemory {
    /// `SK_MEMINFO_DROPS` of the same array (Linux 4.6).
    pub fn drops(bytes: &[u8]) -> Option<u32> {
        const DROPS: usize = 8;
        let word = bytes.get(DROPS * 4..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*word))
    }

    /// Reads the array of `SK_MEMINFO_*` values (`include/uapi/linux/sock_diag.h`); `None`
    /// if it ends before `SK_MEMINFO_WMEM_QUEUED`.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let word = |index: usize| {
            let at = index * 4;
            let word = bytes.get(at..at + 4)?;
            Some(u32::from_ne_bytes(word.try_into().ok()?))
        };
        const RCVBUF: usize = 1;
        const SNDBUF: usize = 3;
        const WMEM_QUEUED: usize = 5;
        Some(SocketMemory {
            receive_buffer: word(RCVBUF)?,
            send_buffer: word(SNDBUF)?,
            send_memory: word(WMEM_QUEUED)?,
        })
    }
}

/// A `tcp_info` whose mandatory fields are there and whose enumerations are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    raw: RawTcpInfo,
    state: TcpState,
    ca_state: CaState,
}

impl TcpInfo {
    /// Reads a `tcp_info` of any kernel; bytes past [`KNOWN_LENGTH`] are ignored.
    ///
    /// # Errors
    /// See [`TcpInfoError`].
    pub fn read(bytes: &[u8]) -> Result<Self, TcpInfoError> {
        let raw = RawTcpInfo::read(bytes);
        if raw.tcpi_data_segs_out.is_none() {
            return Err(TcpInfoError::TooShort {
                length: bytes.len(),
            });
        }
        Self::try_from(raw)
    }

    /// The fields as the kernel gave them.
    pub fn raw(&self) -> &RawTcpInfo {
        &self.raw
    }

    /// The connection's state.
    pub fn state(&self) -> TcpState {
        self.state
    }

    /// Scale of the windows the peer announces (`tcpi_snd_wscale`), the exponent of
    /// RFC 7323: 0..=14.
    pub fn send_window_scale(&self) -> u8 {
        let [first, _] = nibbles(self.raw.tcpi_wscale.unwrap_or(0));
        first
    }

    /// Scale of the windows this end announces (`tcpi_rcv_wscale`): 0..=14.
    pub fn receive_window_scale(&self) -> u8 {
        let [_, second] = nibbles(self.raw.tcpi_wscale.unwrap_or(0));
        second
    }

    /// The statistics in slowpath's words; `rtt_sums` and `recovery` are `None`.
    pub fn stats(&self, queues: SocketQueues) -> TcpStats {
        let raw = &self.raw;
        let u32_of = |field: Option<u32>| field.unwrap_or(0);
        let u64_of = |field: Option<u32>| u64::from(field.unwrap_or(0));
        TcpStats {
            state: self.state,
            ca_state: self.ca_state,

            bytes_sent: raw.tcpi_bytes_sent,
            bytes_acked: raw.tcpi_bytes_acked.unwrap_or(0),
            bytes_received: raw.tcpi_bytes_received.unwrap_or(0),
            bytes_retransmitted: raw.tcpi_bytes_retrans,
            segments_out: u64_of(raw.tcpi_segs_out),
            segments_in: u64_of(raw.tcpi_segs_in),
            data_segments_out: u64_of(raw.tcpi_data_segs_out),
            data_segments_in: u64_of(raw.tcpi_data_segs_in),
            retransmitted: u64_of(raw.tcpi_total_retrans),
            delivered: raw.tcpi_delivered.map(u64::from),
            delivered_ce: raw.tcpi_delivered_ce.map(u64::from),
            dsack_duplicates: raw.tcpi_dsack_dups.map(u64::from),
            reordering_events: raw.tcpi_reord_seen.map(u64::from),
            out_of_order_in: raw.tcpi_rcv_ooopack.map(u64::from),

            in_flight: u32_of(raw.tcpi_unacked),
            lost: u32_of(raw.tcpi_lost),
            retransmitted_in_flight: u32_of(raw.tcpi_retrans),
            sacked: u32_of(raw.tcpi_sacked),
            unanswered_timeouts: raw.tcpi_retransmits.unwrap_or(0).into(),
            probes: raw.tcpi_probes.unwrap_or(0).into(),
            backoff: raw.tcpi_backoff.unwrap_or(0).into(),

            cwnd: u32_of(raw.tcpi_snd_cwnd),
            ssthresh: raw.tcpi_snd_ssthresh.filter(|s| *s < INFINITE_SSTHRESH),
            send_window: raw.tcpi_snd_wnd,
            receive_window: raw.tcpi_rcv_wnd,
            send_mss: u32_of(raw.tcpi_snd_mss),
            path_mtu: u32_of(raw.tcpi_pmtu),
            reordering: u32_of(raw.tcpi_reordering),

            // srtt_us is 0 until tcp_rtt_estimator has had a sample.
            srtt: raw.tcpi_rtt.filter(|us| *us != 0).map(micros),
            rttvar: micros(u32_of(raw.tcpi_rttvar)),
            // minmax_reset in tcp_init_sock starts from ~0.
            min_rtt: raw.tcpi_min_rtt.filter(|us| *us != u32::MAX).map(micros),
            rto: micros(u32_of(raw.tcpi_rto)),

            pacing_rate: raw.tcpi_pacing_rate.filter(|rate| *rate != u64::MAX),
            // tcp_compute_delivery_rate gives 0 while there is no sample.
            delivery_rate: raw.tcpi_delivery_rate.filter(|rate| *rate != 0),
            // The bit and tcpi_delivery_rate both came in 4.9; before, it was padding.
            app_limited: raw
                .tcpi_delivery_rate
                .and(raw.tcpi_flags)
                .map(|flags| flags & APP_LIMITED != 0),

            busy: raw.tcpi_busy_time.map(Micros),
            rwnd_limited: raw.tcpi_rwnd_limited.map(Micros),
            sndbuf_limited: raw.tcpi_sndbuf_limited.map(Micros),

            unsent: u32_of(raw.tcpi_notsent_bytes),
            send_queue: queues.send,
            receive_queue: queues.receive,
            send_memory: queues.memory.map(|m| m.send_memory),
            send_buffer: queues.memory.map(|m| m.send_buffer),
            receive_buffer: queues.memory.map(|m| m.receive_buffer),

            rtt_sums: None,
            recovery: None,
            rto_stats: rto_stats(raw),
        }
    }
}

/// `tcpi_delivery_rate_app_limited`: the first bit of the flags byte.
const APP_LIMITED: u8 = if cfg!(target_endian = "little") {
    0x01
} else {
    0x80
};

// Bit fields fill a byte from its low end on little-endian machines and from its high end
// on big-endian ones.
fn nibbles(byte: u8) -> [u8; 2] {
    if cfg!(target_endian = "little") {
        [byte & 0x0f, byte >> 4]
    } else {
        [byte >> 4, byte & 0x0f]
    }
}

fn micros(us: u32) -> Micros {
    Micros(us.into())
}

fn rto_stats(raw: &RawTcpInfo) -> Option<RtoStats> {
    Some(RtoStats {
        timeouts: raw.tcpi_total_rto?.into(),
        recoveries: raw.tcpi_total_rto_recoveries?.into(),
        time: Micros::from_millis(raw.tcpi_total_rto_time?.into()),
    })
}

impl TryFrom<RawTcpInfo> for TcpInfo {
    type Error = TcpInfoError;

    fn try_from(raw: RawTcpInfo) -> Result<Self, TcpInfoError> {
        let (Some(state), Some(ca_state), Some(_)) =
            (raw.tcpi_state, raw.tcpi_ca_state, raw.tcpi_data_segs_out)
        else {
            return Err(TcpInfoError::TooShort {
                length: raw.encode().len(),
            });
        };
        Ok(TcpInfo {
            raw,
            state: TcpState::from_kernel(state).ok_or(TcpInfoError::State(state))?,
            ca_state: CaState::from_kernel(ca_state).ok_or(TcpInfoError::CaState(ca_state))?,
        })
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The kernel's own account of a connection, read by the process that owns it.
//!
//! Deliberately not slowpath's reader: the two are compared.

use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Some of `TCP_INFO` (linux/tcp.h, Linux 6.7 and later), counted since the connection
/// was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpTruth {
    /// `tcpi_ca_state`: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub ca_state: u8,
    /// `tcpi_snd_mss`, bytes.
    pub snd_mss: u32,
    /// `tcpi_rtt`, microseconds.
    pub rtt_us: u32,
    /// `tcpi_min_rtt`, microseconds.
    pub min_rtt_us: u32,
    /// `tcpi_snd_cwnd`, segments.
    pub snd_cwnd: u32,
    /// `tcpi_total_retrans`, segments.
    pub total_retrans: u32,
    /// `tcpi_data_segs_out`, segments, retransmissions included.
    pub data_segs_out: u32,
    /// `tcpi_bytes_acked`, bytes.
    pub bytes_acked: u64,
    /// `tcpi_bytes_sent`, bytes, retransmissions included.
    pub bytes_sent: u64,
    /// `tcpi_bytes_retrans`, bytes.
    pub bytes_retrans: u64,
    /// `tcpi_busy_time`, microseconds.
    pub busy_us: u64,
    /// `tcpi_rwnd_limited`, microseconds.
    pub rwnd_limited_us: u64,
    /// `tcpi_sndbuf_limited`, microseconds.
    pub sndbuf_limited_us: u64,
    /// `tcpi_dsack_dups`, segments.
    pub dsack_dups: u32,
    /// `tcpi_reord_seen`, events.
    pub reord_seen: u32,
    /// `tcpi_total_rto`, timer expirations.
    pub total_rto: u16,
    /// `tcpi_total_rto_recoveries`, episodes of them.
    pub total_rto_recoveries: u16,
    /// `tcpi_total_rto_time`, milliseconds.
    pub total_rto_time_ms: u32,
}

/// Bytes of `struct tcp_info` up to and including `tcpi_total_rto_time`.
const LENGTH: usize = 248;

impl TcpTruth {
    /// Reads it from a TCP socket.
    ///
    /// # Errors
    /// The socket is not TCP, or the kernel is older than 6.7.
    pub fn read(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let mut raw = [0u8; LENGTH];
        let mut length = LENGTH as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes to `raw`, which has that many.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                raw.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        if (length as usize) < LENGTH {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let u16_at = |at: usize| u16::from_ne_bytes(std::array::from_fn(|i| raw[at + i]));
        let u32_at = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| raw[at + i]));
        let u64_at = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| raw[at + i]));
        Ok(TcpTruth {
            ca_state: raw[1],
            snd_mss: u32_at(16),
            rtt_us: u32_at(68),
            min_rtt_us: u32_at(148),
            snd_cwnd: u32_at(80),
            total_retrans: u32_at(100),
            data_segs_out: u32_at(156),
            bytes_acked: u64_at(120),
            bytes_sent: u64_at(200),
            bytes_retrans: u64_at(208),
            busy_us: u64_at(168),
            rwnd_limited_us: u64_at(176),
            sndbuf_limited_us: u64_at(184),
            dsack_dups: u32_at(216),
            reord_seen: u32_at(220),
            total_rto: u16_at(240),
            total_rto_recoveries: u16_at(242),
            total_rto_time_ms: u32_at(244),
        })
    }
}

/// Where a connection's time went, from samples of its congestion-avoidance state about
/// every 2 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateTimes {
    /// Time in `TCP_CA_Recovery`, in microseconds.
    pub recovery_us: u64,
    /// Time in `TCP_CA_Loss`, in microseconds.
    pub loss_us: u64,
    /// Time sampled, in microseconds.
    pub sampled_us: u64,
}

impl StateTimes {
    /// Samples until `stop`; a sample stands for the time since the one before.
    pub fn sample(socket: BorrowedFd<'_>, stop: &AtomicBool) -> Self {
        let mut times = StateTimes::default();
        let mut last = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(2));
            let Ok(truth) = TcpTruth::read(socket) else {
                break;
            };
            let now = Instant::now();
            let passed = (now - last).as_micros() as u64;
            last = now;
            times.sampled_us += passed;
            match truth.ca_state {
                3 => times.recovery_us += passed,
                4 => times.loss_us += passed,
                _ => {}
            }
        }
        times
    }
}

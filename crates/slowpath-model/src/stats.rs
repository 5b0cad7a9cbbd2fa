// SPDX-License-Identifier: Apache-2.0
//! Statistics of one connection at one moment.
//!
//! Names are SNAP's (Table 1) or `tcp_info`'s; each field's doc gives the `tcp_info` field
//! and, where it has one, RFC 4898's name.

use crate::{Claim, ConnectionId, FourTuple, Micros, MonoNanos, Origin, Turns, Waits};
use serde::{Deserialize, Serialize};

/// TCP connection states (`include/net/tcp_states.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum TcpState {
    Established,
    SynSent,
    SynReceived,
    FinWait1,
    FinWait2,
    TimeWait,
    Close,
    CloseWait,
    LastAck,
    Listen,
    Closing,
    NewSynReceived,
}

impl TcpState {
    /// The state with the kernel's number, if there is one.
    pub const fn from_kernel(state: u8) -> Option<Self> {
        use TcpState::*;
        Some(match state {
            1 => Established,
            2 => SynSent,
            3 => SynReceived,
            4 => FinWait1,
            5 => FinWait2,
            6 => TimeWait,
            7 => Close,
            8 => CloseWait,
            9 => LastAck,
            10 => Listen,
            11 => Closing,
            12 => NewSynReceived,
            _ => return None,
        })
    }
}

/// State of the sender's congestion avoidance (`enum tcp_ca_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaState {
    /// Nothing dubious.
    Open,
    /// Duplicate ACKs or SACKs arrived.
    Disorder,
    /// The window was reduced after an ECN mark or local congestion.
    Cwr,
    /// Fast recovery.
    Recovery,
    /// Recovery after a retransmission timeout.
    Loss,
}

impl CaState {
    /// The state with the kernel's number, if there is one.
    pub const fn from_kernel(state: u8) -> Option<Self> {
        use CaState::*;
        Some(match state {
            0 => Open,
            1 => Disorder,
            2 => Cwr,
            3 => Recovery,
            4 => Loss,
            _ => return None,
        })
    }
}

/// Which kernel interfaces a snapshot comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// BPF programs on iterators and tracepoints.
    Bpf,
    /// inet_diag over netlink (`sock_diag(7)`).
    InetDiag,
    /// Read from a file that another tool saved.
    Imported,
}

/// Sums over the RTT samples that TCP took, recovered one by one from the change of the
/// smoothed RTT (`tcp_rtt_estimator`); BPF tier only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RttSums {
    /// SNAP SumRTT, RFC 4898 SumRTT.
    pub sum: Micros,
    /// SNAP #SampleRTT, RFC 4898 CountRTT.
    pub count: u64,
    /// The smallest sample of the connection's whole life as far as observed; unlike
    /// `tcpi_min_rtt` not windowed (300 s). `None` before the first sample.
    pub lifetime_min: Option<Micros>,
    /// Sum of the samples that may be delayed ACKs: given by an ACK without data for the
    /// only segment in flight. Not the rest of a burst, unless its ACK came after a silence of
    /// the margin below: the last segment waits in the burst's own queue, not for its
    /// receiver.
    pub lone_sum: Micros,
    /// Number of the samples in `lone_sum`.
    pub lone_count: u64,
    /// Sum of those of `lone_sum` that exceeded `lifetime_min` by more than the margin
    /// at the time: the least delay of an ACK less a queueing allowance (SNAP
    /// DelayedAckTimeout less MaxQueuingDelay).
    pub late_sum: Micros,
    /// Number of the samples in `late_sum`.
    pub late_count: u64,
    /// Sum of those of `late_sum` during which the sender held unsent data back (Nagle) or
    /// a writer waited for buffer space.
    pub held_sum: Micros,
    /// Number of the samples in `held_sum`.
    pub held_count: u64,
}

/// Entries to fast recovery and the time spent there (tracepoint `tcp_cong_state_set`);
/// BPF tier only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryStats {
    /// SNAP #FastRetrans: number of times the connection entered `TCP_CA_Recovery`.
    pub fast_recoveries: u64,
    /// Time spent in `TCP_CA_Recovery`, the current episode included.
    pub recovery_time: Micros,
    /// Number of times the connection entered `TCP_CA_Loss`.
    pub loss_entries: u64,
    /// Time spent in `TCP_CA_Loss`, the current episode included.
    pub loss_time: Micros,
    /// Time waited for retransmission timers before they expired and took the connection
    /// into `TCP_CA_Loss`: from the last ACK received to the first expiry, but no longer than since
    /// any data was sent or the earliest segment outstanding was. `tcpi_total_rto_time` starts only there.
    pub rto_wait: Micros,
}

/// Retransmission-timeout counters (Linux 6.7 and later).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RtoStats {
    /// SNAP #Timeout: expirations of the retransmission timer (`tcpi_total_rto`).
    pub timeouts: u64,
    /// Episodes of one or more expirations (`tcpi_total_rto_recoveries`).
    pub recoveries: u64,
    /// Time from the first expiration of each episode to its end (`tcpi_total_rto_time`,
    /// millisecond grain).
    pub time: Micros,
}

/// Number of buckets of [`CallStats::histogram`].
pub const CALL_HISTOGRAM_BUCKETS: usize = 16;

/// The histogram bucket of a call that moved `bytes`: bucket 0 is below 16 bytes, bucket i
/// holds `[2^(i+3), 2^(i+4))`, the last one everything from 256 KiB.
pub const fn call_bucket(bytes: u32) -> usize {
    let log2 = 31 - (bytes | 1).leading_zeros() as usize;
    let bucket = log2.saturating_sub(3);
    if bucket >= CALL_HISTOGRAM_BUCKETS {
        CALL_HISTOGRAM_BUCKETS - 1
    } else {
        bucket
    }
}

/// Socket calls in one direction over the connection's life as far as observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallStats {
    /// Calls that moved data.
    pub count: u64,
    /// SNAP WriteBytes or ReadBytes, in bytes.
    pub bytes: u64,
    /// Smallest call in bytes; `None` before the first.
    pub min: Option<u32>,
    /// Largest call in bytes; `None` before the first.
    pub max: Option<u32>,
    /// Calls by size, see [`call_bucket`].
    pub histogram: [u32; CALL_HISTOGRAM_BUCKETS],
    /// When the last call returned, to the grain of the kernel's timer tick (1 to 10 ms).
    pub last: Option<MonoNanos>,
}

/// TCP statistics of one connection at one moment. Counters cover the whole life of the
/// connection; gauges are the value at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpStats {
    /// Connection state (`tcpi_state`).
    pub state: TcpState,
    /// Congestion-avoidance state (`tcpi_ca_state`).
    pub ca_state: CaState,

    /// SNAP SentBytes: payload bytes sent, retransmissions included (`tcpi_bytes_sent`);
    /// Linux 4.19.
    pub bytes_sent: Option<u64>,
    /// Payload bytes acknowledged by the peer (`tcpi_bytes_acked`), counting one for SYN.
    pub bytes_acked: u64,
    /// Payload bytes received in order (`tcpi_bytes_received`), counting one for FIN.
    pub bytes_received: u64,
    /// Payload bytes retransmitted (`tcpi_bytes_retrans`); Linux 4.19.
    pub bytes_retransmitted: Option<u64>,
    /// Segments sent (`tcpi_segs_out`).
    pub segments_out: u64,
    /// Segments received (`tcpi_segs_in`).
    pub segments_in: u64,
    /// Segments with payload sent (`tcpi_data_segs_out`).
    pub data_segments_out: u64,
    /// Segments with payload received (`tcpi_data_segs_in`).
    pub data_segments_in: u64,
    /// Segments retransmitted for whatever reason (`tcpi_total_retrans`).
    pub retransmitted: u64,
    /// Segments delivered, RFC 6937 sense (`tcpi_delivered`); Linux 4.18.
    pub delivered: Option<u64>,
    /// Segments delivered and reported CE-marked (`tcpi_delivered_ce`); Linux 4.18.
    pub delivered_ce: Option<u64>,
    /// Duplicate-SACK reports received (`tcpi_dsack_dups`); Linux 4.19.
    pub dsack_duplicates: Option<u64>,
    /// Reordering events (`tcpi_reord_seen`); Linux 4.19.
    #[serde(rename = "reordering_seen")]
    pub reordering_events: Option<u64>,
    /// Segments received out of order (`tcpi_rcv_ooopack`); Linux 5.4.
    pub out_of_order_in: Option<u64>,

    /// Segments in flight (`tcpi_unacked`).
    pub in_flight: u32,
    /// Segments presumed lost and not yet recovered (`tcpi_lost`).
    pub lost: u32,
    /// Retransmitted segments in flight (`tcpi_retrans`).
    pub retransmitted_in_flight: u32,
    /// Segments reported received out of order by SACK (`tcpi_sacked`).
    pub sacked: u32,
    /// Expirations of the retransmission timer without an answer so far
    /// (`tcpi_retransmits`).
    pub unanswered_timeouts: u32,
    /// Unanswered window or keep-alive probes (`tcpi_probes`).
    pub probes: u32,
    /// Exponent of the timer's current back-off (`tcpi_backoff`).
    pub backoff: u32,

    /// SNAP Cwin: congestion window in segments (`tcpi_snd_cwnd`).
    pub cwnd: u32,
    /// Slow-start threshold in segments; `None` while infinite (`tcpi_snd_ssthresh`).
    pub ssthresh: Option<u32>,
    /// SNAP Rwin: window the peer announced, in bytes, scaled (`tcpi_snd_wnd`); Linux 5.4.
    pub send_window: Option<u32>,
    /// Window this end announces, in bytes, scaled (`tcpi_rcv_wnd`); Linux 6.2.
    pub receive_window: Option<u32>,
    /// Sending maximum segment size in bytes (`tcpi_snd_mss`).
    pub send_mss: u32,
    /// Path MTU in bytes (`tcpi_pmtu`).
    pub path_mtu: u32,
    /// Current reordering degree in segments (`tcpi_reordering`).
    pub reordering: u32,

    /// Smoothed RTT (`tcpi_rtt`); `None` before the first sample.
    pub srtt: Option<Micros>,
    /// RTT variation (`tcpi_rttvar`).
    pub rttvar: Micros,
    /// Windowed minimum RTT (`tcpi_min_rtt`, 300 s by default); `None` before the first
    /// sample.
    pub min_rtt: Option<Micros>,
    /// Current retransmission timeout (`tcpi_rto`).
    pub rto: Micros,

    /// Pacing rate in bytes a second; `None` when unlimited (`tcpi_pacing_rate`).
    pub pacing_rate: Option<u64>,
    /// Latest delivery-rate sample in bytes a second (`tcpi_delivery_rate`); Linux 4.9.
    pub delivery_rate: Option<u64>,
    /// Whether that sample was limited by the application
    /// (`tcpi_delivery_rate_app_limited`); Linux 4.9.
    pub app_limited: Option<bool>,

    /// Time with data outstanding or queued (`tcpi_busy_time`); Linux 4.10. With the two
    /// below, RFC 4898's SndLimTimeCwnd is `busy - rwnd_limited - sndbuf_limited`
    /// (SNAP CwinLimitTime), as far as the application is not the limit.
    pub busy: Option<Micros>,
    /// SNAP RwinLimitTime, RFC 4898 SndLimTimeRwin: time limited by the peer's receive
    /// window (`tcpi_rwnd_limited`); Linux 4.10.
    pub rwnd_limited: Option<Micros>,
    /// Time limited by the send buffer (`tcpi_sndbuf_limited`); Linux 4.10.
    pub sndbuf_limited: Option<Micros>,

    /// Payload bytes written by the application and not yet sent (`tcpi_notsent_bytes`,
    /// RFC 4898 CurAppWQueue).
    pub unsent: u32,
    /// SNAP CurAppWQueue: payload bytes in the send buffer, sent or not
    /// (`write_seq - snd_una`; `idiag_wqueue`).
    pub send_queue: u32,
    /// Payload bytes received in order and not yet read (`rcv_nxt - copied_seq`;
    /// `idiag_rqueue`).
    pub receive_queue: u32,
    /// Memory charged to the send queue, in bytes of truesize (`sk_wmem_queued`).
    pub send_memory: Option<u32>,
    /// Send-buffer limit in bytes of truesize (`sk_sndbuf`).
    pub send_buffer: Option<u32>,
    /// Receive-buffer limit in bytes of truesize (`sk_rcvbuf`).
    pub receive_buffer: Option<u32>,

    /// RTT sums; BPF tier only.
    pub rtt_sums: Option<RttSums>,
    /// Recovery episodes; BPF tier only.
    pub recovery: Option<RecoveryStats>,
    /// Retransmission timeouts; Linux 6.7.
    pub rto_stats: Option<RtoStats>,
}

/// How a connection ended: the state that its socket was closed in, and the socket's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// The state before `TCP_CLOSE`; `None` if it was not observed.
    pub state: Option<TcpState>,
    /// `sk_err` as it closed (errno(3)); `None` without an error.
    pub error: Option<u16>,
}

/// Why a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// A RST answered its SYN.
    Refused,
    /// No SYN of it left this host.
    NotSent,
    /// Nothing answered its SYN, or what it had sent.
    Unanswered,
    /// An ICMP message said that the destination cannot be reached.
    Unreachable,
    /// The peer reset it.
    ResetByPeer,
    /// This end reset it (RFC 9293 section 3.10.4: data was unread, or SO_LINGER was 0).
    ResetHere,
    /// Its own process closed it before anything answered its SYN.
    Abandoned,
}

impl Failure {
    /// All of them.
    pub const ALL: [Failure; 7] = [
        Failure::Refused,
        Failure::NotSent,
        Failure::Unanswered,
        Failure::Unreachable,
        Failure::ResetByPeer,
        Failure::ResetHere,
        Failure::Abandoned,
    ];
}

impl Ending {
    /// Linux's numbers (asm-generic/errno.h).
    const EPIPE: u16 = 32;
    const ENETUNREACH: u16 = 101;
    const ECONNABORTED: u16 = 103;
    const ECONNRESET: u16 = 104;
    const ETIMEDOUT: u16 = 110;
    const ECONNREFUSED: u16 = 111;
    const EHOSTUNREACH: u16 = 113;

    /// Why it failed, if it did: a connection that both ends closed did not.
    pub const fn failure(&self) -> Option<Failure> {
        let open = matches!(
            self.state,
            Some(TcpState::Established | TcpState::SynReceived)
        );
        Some(match self.error {
            Some(Self::ECONNREFUSED) => Failure::Refused,
            Some(Self::ETIMEDOUT) => Failure::Unanswered,
            Some(Self::EHOSTUNREACH | Self::ENETUNREACH) => Failure::Unreachable,
            Some(Self::ECONNRESET | Self::EPIPE) => Failure::ResetByPeer,
            Some(Self::ECONNABORTED) => Failure::ResetHere,
            // A close that ends in order leaves ESTABLISHED for FIN_WAIT_1 (tcp_close_state).
            None if open => Failure::ResetHere,
            None if matches!(self.state, Some(TcpState::SynSent)) => Failure::Abandoned,
            _ => return None,
        })
    }
}

/// What the kernel knows of a socket beside TCP's statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketFacts {
    /// The rate that its application set, bytes a second (SO_MAX_PACING_RATE,
    /// `sk_max_pacing_rate`); `None` if it set none, or it is not known.
    pub max_pacing_rate: Option<u64>,
    /// Bytes of memory that wait in this host's own queueing discipline and device
    /// (`sk_wmem_alloc`); `None` if not known.
    pub device_queue: Option<u32>,
    /// How it ended, of a connection's last snapshot; `None` while it lives, or if not known.
    pub ending: Option<Ending>,
    /// It is opening, and no SYN has left this host: its own firewall, routes or queueing discipline dropped each
    /// (`tsorted_sent_queue`).
    #[serde(default)]
    pub not_sent: bool,
}

/// One connection at one moment.
///
/// The fields lie in this order: what never changes comes first, the agent's polls need not
/// touch it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(C)]
pub struct Snapshot {
    /// Its addresses.
    pub tuple: FourTuple,
    /// What the observer knows of its owner; the agent knows more.
    pub owner: Option<Claim>,
    /// Which connection.
    pub id: ConnectionId,
    /// When the statistics were read.
    pub at: MonoNanos,
    /// Which end opened it.
    pub origin: Origin,
    /// Whether this is the connection's last snapshot, taken as it closed.
    pub closed: bool,
    /// Which tier saw it.
    pub tier: Tier,
    /// What TCP says.
    pub stats: TcpStats,
    /// Calls that sent, where the tier sees them.
    pub sends: Option<CallStats>,
    /// Calls that received, where the tier sees them.
    pub receives: Option<CallStats>,
    /// What it waited for, where the tier sees it.
    #[serde(default)]
    pub waits: Waits,
    /// What else the kernel knows of its socket.
    #[serde(default)]
    pub facts: SocketFacts,
    /// Whose turn it is and how long turns took, where the tier sees it.
    #[serde(default)]
    pub turns: Turns,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_powers_of_two_from_sixteen_bytes() {
        for (bytes, bucket) in [
            (0, 0),
            (15, 0),
            (16, 1),
            (31, 1),
            (32, 2),
            (4096, 9),
            (131_072, 14),
            (262_143, 14),
            (262_144, 15),
            (u32::MAX, 15),
        ] {
            assert_eq!(call_bucket(bytes), bucket, "{bytes} bytes");
        }
    }

    #[test]
    fn kernel_numbers_outside_the_enum_are_nothing() {
        assert_eq!(TcpState::from_kernel(1), Some(TcpState::Established));
        assert_eq!(TcpState::from_kernel(0), None);
        assert_eq!(TcpState::from_kernel(13), None);
        assert_eq!(CaState::from_kernel(5), None);
    }
}

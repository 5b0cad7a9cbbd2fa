// SPDX-License-Identifier: Apache-2.0
//! The layout of `struct tcp_info`, every field to Linux 6.18.

/// Declares [`RawTcpInfo`] and its reader and writer from one table of
/// `offset name: type`.
macro_rules! layout {
    ($($(#[$doc:meta])* $offset:literal $name:ident: $type:ident,)*) => {
        /// The fields of `struct tcp_info` as the kernel gave them, in its units, host byte
        /// order. A field that the given bytes did not hold wholly is `None`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct RawTcpInfo {
            $($(#[$doc])* pub $name: Option<$type>,)*
        }

        impl RawTcpInfo {
            /// Cuts `bytes` into fields; never fails, whatever the length.
            pub fn read(bytes: &[u8]) -> Self {
                RawTcpInfo {
                    $($name: bytes
                        .get($offset..$offset + size_of::<$type>())
                        .and_then(|field| field.try_into().ok())
                        .map($type::from_ne_bytes),)*
                }
            }

            /// The bytes that [`read`](Self::read) gives these fields for: up to the first
            /// missing field.
            pub fn encode(&self) -> Vec<u8> {
                let mut bytes = Vec::with_capacity(KNOWN_LENGTH);
                $(
                    let Some(value) = self.$name else { return bytes };
                    debug_assert_eq!(bytes.len(), $offset);
                    bytes.extend_from_slice(&value.to_ne_bytes());
                )*
                bytes
            }
        }

        #[cfg(test)]
        pub(super) const OFFSETS: &[(&str, usize, usize)] =
            &[$((stringify!($name), $offset, size_of::<$type>()),)*];
    };
}

/// Length in bytes of the struct this file knows: Linux 6.18's.
pub const KNOWN_LENGTH: usize = 280;

layout! {
    /// TCP state, `include/net/tcp_states.h`.
    0 tcpi_state: u8,
    /// `enum tcp_ca_state`.
    1 tcpi_ca_state: u8,
    /// Unanswered expirations of the retransmission timer (`icsk_retransmits`).
    2 tcpi_retransmits: u8,
    /// Unanswered probes (`icsk_probes_out`).
    3 tcpi_probes: u8,
    /// Exponent of the timer's back-off (`icsk_backoff`).
    4 tcpi_backoff: u8,
    /// `TCPI_OPT_*` bits.
    5 tcpi_options: u8,
    /// Two nibbles: the send window's scale, then the receive window's.
    6 tcpi_wscale: u8,
    /// One bit `delivery_rate_app_limited` (4.9), two bits `fastopen_client_fail` (5.5).
    7 tcpi_flags: u8,
    /// Retransmission timeout, us.
    8 tcpi_rto: u32,
    /// Delayed-ACK timeout, us.
    12 tcpi_ato: u32,
    /// Sending MSS, bytes.
    16 tcpi_snd_mss: u32,
    /// Estimate of the peer's MSS, bytes.
    20 tcpi_rcv_mss: u32,
    /// Segments in flight (accept queue's length of a listener).
    24 tcpi_unacked: u32,
    /// SACKed segments (accept queue's limit of a listener).
    28 tcpi_sacked: u32,
    /// Segments presumed lost.
    32 tcpi_lost: u32,
    /// Retransmitted segments in flight.
    36 tcpi_retrans: u32,
    /// Always 0 since 4.15.
    40 tcpi_fackets: u32,
    /// Time since data were last sent, ms.
    44 tcpi_last_data_sent: u32,
    /// Never filled in.
    48 tcpi_last_ack_sent: u32,
    /// Time since data were last received, ms.
    52 tcpi_last_data_recv: u32,
    /// Time since an ACK was last received, ms.
    56 tcpi_last_ack_recv: u32,
    /// Path MTU, bytes.
    60 tcpi_pmtu: u32,
    /// Receive window's slow-start threshold, bytes.
    64 tcpi_rcv_ssthresh: u32,
    /// Smoothed RTT, us (`srtt_us >> 3`).
    68 tcpi_rtt: u32,
    /// RTT variation, us (`mdev_us >> 2`).
    72 tcpi_rttvar: u32,
    /// Slow-start threshold, segments; 0x7fffffff while infinite.
    76 tcpi_snd_ssthresh: u32,
    /// Congestion window, segments.
    80 tcpi_snd_cwnd: u32,
    /// MSS announced, bytes.
    84 tcpi_advmss: u32,
    /// Reordering degree, segments.
    88 tcpi_reordering: u32,
    /// Receiver's RTT estimate, us.
    92 tcpi_rcv_rtt: u32,
    /// Receive buffer autotuning's target, bytes.
    96 tcpi_rcv_space: u32,
    /// Segments retransmitted.
    100 tcpi_total_retrans: u32,
    /// Pacing rate, bytes a second; all ones if unlimited.
    104 tcpi_pacing_rate: u64,
    /// Limit of the pacing rate, bytes a second; all ones if unlimited.
    112 tcpi_max_pacing_rate: u64,
    /// Bytes acknowledged by the peer.
    120 tcpi_bytes_acked: u64,
    /// Bytes received in order.
    128 tcpi_bytes_received: u64,
    /// Segments sent; 4.2.
    136 tcpi_segs_out: u32,
    /// Segments received; 4.2.
    140 tcpi_segs_in: u32,
    /// Bytes written and not sent; 4.6.
    144 tcpi_notsent_bytes: u32,
    /// Windowed minimum RTT, us; all ones before the first sample; 4.6.
    148 tcpi_min_rtt: u32,
    /// Segments with data received; 4.6.
    152 tcpi_data_segs_in: u32,
    /// Segments with data sent; 4.6.
    156 tcpi_data_segs_out: u32,
    /// Delivery rate, bytes a second; 0 before the first sample; 4.9.
    160 tcpi_delivery_rate: u64,
    /// Time with data outstanding, us; 4.10.
    168 tcpi_busy_time: u64,
    /// Time limited by the peer's window, us; 4.10.
    176 tcpi_rwnd_limited: u64,
    /// Time limited by the send buffer, us; 4.10.
    184 tcpi_sndbuf_limited: u64,
    /// Segments delivered; 4.18.
    192 tcpi_delivered: u32,
    /// Segments delivered with a CE mark; 4.18.
    196 tcpi_delivered_ce: u32,
    /// Bytes sent, retransmissions included; 4.19.
    200 tcpi_bytes_sent: u64,
    /// Bytes retransmitted; 4.19.
    208 tcpi_bytes_retrans: u64,
    /// Duplicate-SACK reports; 4.19.
    216 tcpi_dsack_dups: u32,
    /// Reordering events; 4.19.
    220 tcpi_reord_seen: u32,
    /// Segments received out of order; 5.4.
    224 tcpi_rcv_ooopack: u32,
    /// Window the peer announced, bytes, scaled; 5.4.
    228 tcpi_snd_wnd: u32,
    /// Window this end announces, bytes, scaled; 6.2.
    232 tcpi_rcv_wnd: u32,
    /// Times the flow label or transmit hash was changed; 6.2.
    236 tcpi_rehash: u32,
    /// Expirations of the retransmission timer; 6.7.
    240 tcpi_total_rto: u16,
    /// Episodes of expirations begun; 6.7.
    242 tcpi_total_rto_recoveries: u16,
    /// Time in such episodes, ms, an unfinished one included; 6.7.
    244 tcpi_total_rto_time: u32,
    /// CE-marked segments received; 6.18, as all that follow.
    248 tcpi_received_ce: u32,
    /// Bytes delivered marked ECT(1), as the peer reports (AccECN).
    252 tcpi_delivered_e1_bytes: u32,
    /// Bytes delivered marked ECT(0), as the peer reports (AccECN).
    256 tcpi_delivered_e0_bytes: u32,
    /// Bytes delivered marked CE, as the peer reports (AccECN).
    260 tcpi_delivered_ce_bytes: u32,
    /// Bytes received marked ECT(1).
    264 tcpi_received_e1_bytes: u32,
    /// Bytes received marked ECT(0).
    268 tcpi_received_e0_bytes: u32,
    /// Bytes received marked CE.
    272 tcpi_received_ce_bytes: u32,
    /// Why AccECN fell back.
    276 tcpi_accecn_fail_mode: u16,
    /// Whether the AccECN option was met.
    278 tcpi_accecn_opt_seen: u16,
}

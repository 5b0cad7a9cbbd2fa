// SPDX-License-Identifier: Apache-2.0
//! Sysctls of TCP that a recording names only where they are not what the kernel has by itself.
//!
//! What it has by itself: `tcp_sk_init` of Linux 6.12 (net/ipv4/tcp_ipv4.c) and the constants of include/net/tcp.h; what it can be set to:
//! `ipv4_net_table` (net/ipv4/sysctl_net_ipv4.c), narrower where the kernel divides or shifts by it. Those that only time wait, other protocols, routes or
//! new sockets' places look at are not among them, nor is `tcp_challenge_ack_limit`, whose quota is random.

/// What the kernel has by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usual {
    /// That.
    Number(u32),
    /// A time, which the kernel keeps in ticks, and recordings as well.
    Milliseconds(u32),
}

use Usual::{Milliseconds, Number};

/// `INT_MAX`.
const INT: u32 = i32::MAX as u32;

/// No sysctl: 0 if the device takes no packet of TCP that is larger than the path does, so that the kernel cuts them before it (`ethtool -K DEVICE tso off`).
pub const SEGMENTATION: &str = "device.segmentation";

/// The name of the three of a send buffer, at the head of the others.
pub const WRITE_BUFFER: &str = "tcp_wmem";
/// Least, first and largest size of a send buffer: the last one of a machine with 512 MB or more (`tcp_init`).
pub const WRITE_BUFFERS: [u32; 3] = [4096, 16_384, 4 << 20];

/// Name, usual value, least and most: in the order of the recorder's probe (`SYSCTLS` of slowpath-recorder's probes/handlers/state.bpf.h) and of the
/// laboratory kernel's driver (lab/kernel/driver/sysctls.c).
pub const SYSCTLS: [(&str, Usual, u32, u32); 45] = [
    ("tcp_window_scaling", Number(1), 0, 1),
    ("tcp_dsack", Number(1), 0, 1),
    ("tcp_frto", Number(2), 0, 255),
    ("tcp_app_win", Number(31), 0, 31),
    ("tcp_max_reordering", Number(300), 0, INT),
    ("tcp_autocorking", Number(1), 0, 1),
    ("tcp_tso_win_divisor", Number(3), 0, 255),
    ("tcp_tso_rtt_log", Number(9), 0, 31),
    ("tcp_min_tso_segs", Number(2), 1, 255),
    ("tcp_min_snd_mss", Number(48), 48, 65_535),
    ("tcp_notsent_lowat", Number(u32::MAX), 0, u32::MAX),
    ("tcp_limit_output_bytes", Number(16 * 65_536), 0, INT),
    ("tcp_min_rtt_wlen", Number(300), 0, 86_400),
    ("tcp_shrink_window", Number(0), 0, 1),
    ("tcp_ecn_fallback", Number(1), 0, 1),
    ("tcp_mtu_probing", Number(0), 0, 2),
    ("tcp_mtu_probe_floor", Number(48), 48, 65_535),
    ("tcp_base_mss", Number(1_024), 48, 65_535),
    ("tcp_probe_threshold", Number(8), 0, INT),
    ("tcp_probe_interval", Number(600), 0, u32::MAX),
    ("tcp_keepalive_probes", Number(9), 1, 255),
    ("tcp_syn_retries", Number(6), 1, 127),
    ("tcp_synack_retries", Number(5), 0, 255),
    ("tcp_retries1", Number(3), 0, 255),
    ("tcp_retries2", Number(15), 0, 255),
    ("tcp_orphan_retries", Number(0), 0, 255),
    ("tcp_thin_linear_timeouts", Number(0), 0, 1),
    ("tcp_retrans_collapse", Number(1), 0, 1),
    ("tcp_stdurg", Number(0), 0, 1),
    ("tcp_rfc1337", Number(0), 0, 1),
    ("tcp_abort_on_overflow", Number(0), 0, 1),
    ("tcp_workaround_signed_windows", Number(0), 0, 1),
    ("tcp_reflect_tos", Number(0), 0, 1),
    ("tcp_pacing_ss_ratio", Number(200), 0, 1_000),
    ("tcp_pacing_ca_ratio", Number(120), 0, 1_000),
    ("tcp_comp_sack_nr", Number(44), 0, 255),
    ("tcp_comp_sack_delay_ns", Number(1_000_000), 0, u32::MAX),
    ("tcp_backlog_ack_defer", Number(1), 0, 1),
    ("tcp_pingpong_thresh", Number(1), 1, 255),
    ("tcp_rto_min_us", Number(200_000), 1, INT),
    ("tcp_syn_linear_timeouts", Number(4), 0, 127),
    ("tcp_keepalive_time", Milliseconds(7_200_000), 1, INT),
    ("tcp_keepalive_intvl", Milliseconds(75_000), 1, INT),
    ("tcp_fin_timeout", Milliseconds(60_000), 0, INT),
    ("tcp_invalid_ratelimit", Milliseconds(500), 0, INT),
];

impl Usual {
    /// With `hz` ticks a second.
    pub fn value(self, hz: u32) -> u32 {
        match self {
            Number(value) => value,
            Milliseconds(ms) => (u64::from(ms) * u64::from(hz) / 1000) as u32,
        }
    }

    /// How a recording names it.
    pub fn name(self, sysctl: &str) -> String {
        match self {
            Number(_) => sysctl.to_owned(),
            Milliseconds(_) => format!("{sysctl}.ticks"),
        }
    }
}

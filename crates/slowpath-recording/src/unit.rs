// SPDX-License-Identifier: Apache-2.0
//! What the variables of a socket count, so that those of one unit share an axis. Linux's scaling is undone here.

use crate::fields::Variable;

/// What a variable counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// Packets.
    Packets,
    /// Bytes.
    Bytes,
    /// Sequence numbers, from the SYN of the end that sends them: bytes.
    Sequence,
    /// Milliseconds.
    Milliseconds,
    /// Bytes a second.
    BytesPerSecond,
    /// A number of its own: a state, bits, a reading of a clock, a count of something else.
    Number,
}

impl Unit {
    /// Its name at an axis.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Packets => "packets",
            Unit::Bytes => "bytes",
            Unit::Sequence => "sequence number, bytes",
            Unit::Milliseconds => "ms",
            Unit::BytesPerSecond => "bytes a second",
            Unit::Number => "",
        }
    }
}

/// `TCP_INFINITE_SSTHRESH` (include/net/tcp.h): from it on a number of packets stands for no limit. `snd_cwnd_clamp` begins with more.
const NO_LIMIT: i64 = 0x7fff_ffff;
/// `minmax_get` of nothing (`tcp_init_sock`), microseconds.
const NO_SAMPLE: i64 = 0xffff_ffff;

const PACKETS: &[&str] = &[
    "snd_cwnd",
    "snd_cwnd_cnt",
    "snd_ssthresh",
    "packets_out",
    "sacked_out",
    "lost_out",
    "retrans_out",
    "total_retrans",
    "reordering",
    "delivered",
    "delivered_ce",
    "segs_out",
    "segs_in",
    "undo_retrans",
    "prior_cwnd",
    "prior_ssthresh",
    "prr_delivered",
    "prr_out",
    "snd_cwnd_clamp",
    "snd_cwnd_used",
    "max_packets_out",
    "lost",
    "data_segs_out",
    "data_segs_in",
    "rcv_ooopack",
    "rate_delivered",
    "gso_segs",
];

const BYTES: &[&str] = &[
    "in_flight_bytes",
    "queued_bytes",
    "bytes_acked",
    "bytes_received",
    "unannounced_bytes",
    "unread_bytes",
    "rcv_wnd",
    "snd_wnd",
    "rcv_ssthresh",
    "rcvbuf",
    "sndbuf",
    "wmem_queued",
    "rmem_alloc",
    "window_clamp",
    "rcvq_space",
    "bytes_sent",
    "bytes_retrans",
    "max_window",
    "mss_cache",
    "advmss",
    "notsent_lowat",
    "ack_rcv_mss",
    "ack_last_seg_size",
    "forward_alloc",
    "wmem_alloc",
];

const SEQUENCE: &[&str] = &[
    "snd_una",
    "snd_nxt",
    "write_seq",
    "rcv_nxt",
    "copied_seq",
    "rcv_wup",
    "high_seq",
    "undo_marker",
    "cwnd_usage_seq",
    "tlp_high_seq",
    "rack_end_seq",
    "rtt_seq",
    "snd_wl1",
    "snd_sml",
    "pushed_seq",
    "rcvq_space_seq",
    "compressed_ack_rcv_nxt",
];

/// Times in microseconds, and how many times: `tcp_rtt_estimator` and `tcp_rcv_rtt_update` keep eighths and quarters.
const MICROSECONDS: &[(&str, f64)] = &[
    ("srtt_us_x8", 8.0),
    ("mdev_us_x4", 4.0),
    ("mdev_max_us", 4.0),
    ("rttvar_us", 4.0),
    ("rcv_rtt_us", 8.0),
    ("rack_rtt_us", 1.0),
    ("rtt_min_us", 1.0),
    ("rate_interval_us", 1.0),
];

const TICKS: &[&str] = &["rto_jiffies", "ack_ato_jiffies", "rto_min_jiffies"];
const MILLISECONDS: &[&str] = &["total_rto_time"];
const BYTES_PER_SECOND: &[&str] = &["pacing_rate"];

impl Variable {
    /// What it counts.
    pub fn unit(self) -> Unit {
        let name = self.name();
        if PACKETS.contains(&name) {
            Unit::Packets
        } else if BYTES.contains(&name) {
            Unit::Bytes
        } else if SEQUENCE.contains(&name) {
            Unit::Sequence
        } else if TICKS.contains(&name) || MILLISECONDS.contains(&name) || scaled(name).is_some() {
            Unit::Milliseconds
        } else if BYTES_PER_SECOND.contains(&name) {
            Unit::BytesPerSecond
        } else {
            Unit::Number
        }
    }

    /// A probed value in its unit, of a kernel with `hz` ticks a second; `None`: it stands for no limit, or for no sample yet.
    pub fn measured(self, value: i64, hz: u32) -> Option<f64> {
        let name = self.name();
        let number = value as f64;
        match self.unit() {
            Unit::Packets => (value < NO_LIMIT).then_some(number),
            // `~0UL`: no limit.
            Unit::BytesPerSecond => (value >= 0).then_some(number),
            Unit::Milliseconds => match scaled(name) {
                Some(times) => (value < NO_SAMPLE).then_some(number / times / 1e3),
                None if TICKS.contains(&name) => Some(number * 1e3 / f64::from(hz.max(1))),
                None => Some(number),
            },
            Unit::Bytes | Unit::Sequence | Unit::Number => Some(number),
        }
    }
}

/// How many times microseconds it is, if it is that.
fn scaled(name: &str) -> Option<f64> {
    let mut all = MICROSECONDS.iter();
    all.find(|(it, _)| *it == name).map(|(_, times)| *times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::variables;

    fn named(name: &str) -> Variable {
        variables([name]).unwrap()[0]
    }

    #[test]
    fn every_name_in_a_list_is_a_variable_and_in_one_list_only() {
        let microseconds = MICROSECONDS.iter().map(|(name, _)| *name);
        let others = [
            PACKETS,
            BYTES,
            SEQUENCE,
            TICKS,
            MILLISECONDS,
            BYTES_PER_SECOND,
        ];
        let mut all: Vec<&str> = others.concat();
        all.extend(microseconds);
        for name in &all {
            assert_eq!(named(name).name(), *name);
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn what_linux_scales_is_unscaled() {
        // 8 x 1,500 us; 4 x 250 us; 50 ticks of 4 ms.
        assert_eq!(named("srtt_us").measured(12_000, 250), Some(1.5));
        assert_eq!(named("mdev_us").measured(1_000, 250), Some(0.25));
        assert_eq!(named("rto").measured(50, 250), Some(200.0));
        assert_eq!(named("cwnd").measured(10, 250), Some(10.0));
        assert_eq!(named("srtt_us").unit(), named("rto").unit());
        assert_ne!(named("snd_nxt").unit(), named("snd_wnd").unit());
    }

    #[test]
    fn no_limit_is_no_number() {
        assert_eq!(named("ssthresh").measured(0x7fff_ffff, 250), None);
        assert_eq!(named("snd_cwnd_clamp").measured(0xffff_ffff, 250), None);
        assert_eq!(named("rtt_min_us").measured(0xffff_ffff, 250), None);
        assert_eq!(named("pacing_rate").measured(-1, 250), None);
        assert_eq!(named("rmem_alloc").measured(0, 250), Some(0.0));
    }
}

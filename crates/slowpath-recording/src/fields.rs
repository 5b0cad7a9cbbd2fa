// SPDX-License-Identifier: Apache-2.0
//! The variables of a socket that a replay shows after each run of a handler.

use slowpath_model::did_you_mean;

/// A field of `struct tcp_sock`, `inet_connection_sock` or `sock` that a laboratory kernel shows, and that each check covers. Sequence numbers are
/// differences: bytes. The order is the kernel's (`lab_look` in `lab/kernel/driver/recorder.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// `sk_state`.
    State,
    /// Bytes sent and not acknowledged.
    InFlight,
    /// Bytes written and not acknowledged.
    Queued,
    /// `bytes_acked`.
    BytesAcked,
    /// `bytes_received`.
    BytesReceived,
    /// Bytes received since a window was announced last.
    Unannounced,
    /// Bytes that the application has not read.
    Unread,
    /// Bytes.
    ReceiveWindow,
    /// Bytes: the window that the peer announced last.
    SendWindow,
    /// `rcv_ssthresh`: bytes.
    ReceiveThreshold,
    /// Packets.
    CongestionWindow,
    /// `snd_cwnd_cnt`: packets.
    CongestionWindowCount,
    /// Packets.
    SlowStartThreshold,
    /// Packets.
    PacketsOut,
    /// Packets.
    SackedOut,
    /// Packets.
    LostOut,
    /// Packets.
    RetransmittedOut,
    /// Packets.
    TotalRetransmitted,
    /// Packets.
    Reordering,
    /// Packets.
    Delivered,
    /// Packets.
    DeliveredMarked,
    /// Microseconds, eight times.
    SmoothedRoundTrip,
    /// Microseconds, four times.
    RoundTripDeviation,
    /// Ticks.
    RetransmissionTimeout,
    /// `TCP_CA_*`.
    RecoveryState,
    /// How often the timeout was doubled.
    Backoff,
    /// `ICSK_TIME_*`.
    PendingTimer,
    /// `ICSK_ACK_*`: bits.
    AckPending,
    /// Acknowledgments that are sent at once.
    AckQuick,
    /// Ticks.
    AckTimeout,
    /// Bytes.
    ReceiveBuffer,
    /// Bytes.
    SendBuffer,
    /// Bytes.
    WriteMemory,
    /// Bytes.
    ReadMemory,
    /// Segments sent in all.
    SegmentsOut,
    /// Segments received in all.
    SegmentsIn,
    /// Bytes.
    WindowClamp,
    /// Bytes.
    ReceiveQueueSpace,
    /// `TCP_ECN_*`: bits.
    EcnFlags,
    /// Acknowledgments held back.
    CompressedAck,
}

impl Field {
    /// How many there are: `LAB_PROBED`.
    pub const COUNT: usize = 40;

    /// Every one, in the kernel's order.
    pub const ALL: [Field; Field::COUNT] = [
        Field::State,
        Field::InFlight,
        Field::Queued,
        Field::BytesAcked,
        Field::BytesReceived,
        Field::Unannounced,
        Field::Unread,
        Field::ReceiveWindow,
        Field::SendWindow,
        Field::ReceiveThreshold,
        Field::CongestionWindow,
        Field::CongestionWindowCount,
        Field::SlowStartThreshold,
        Field::PacketsOut,
        Field::SackedOut,
        Field::LostOut,
        Field::RetransmittedOut,
        Field::TotalRetransmitted,
        Field::Reordering,
        Field::Delivered,
        Field::DeliveredMarked,
        Field::SmoothedRoundTrip,
        Field::RoundTripDeviation,
        Field::RetransmissionTimeout,
        Field::RecoveryState,
        Field::Backoff,
        Field::PendingTimer,
        Field::AckPending,
        Field::AckQuick,
        Field::AckTimeout,
        Field::ReceiveBuffer,
        Field::SendBuffer,
        Field::WriteMemory,
        Field::ReadMemory,
        Field::SegmentsOut,
        Field::SegmentsIn,
        Field::WindowClamp,
        Field::ReceiveQueueSpace,
        Field::EcnFlags,
        Field::CompressedAck,
    ];

    /// What it is called.
    pub fn name(self) -> &'static str {
        FIELDS[self as usize]
    }
}

/// The names of all [`Field`]s, in their order.
pub const FIELDS: [&str; Field::COUNT] = [
    "state",
    "in_flight_bytes",
    "queued_bytes",
    "bytes_acked",
    "bytes_received",
    "unannounced_bytes",
    "unread_bytes",
    "rcv_wnd",
    "snd_wnd",
    "rcv_ssthresh",
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
    "srtt_us_x8",
    "mdev_us_x4",
    "rto_jiffies",
    "ca_state",
    "backoff",
    "pending_timer",
    "ack_pending",
    "ack_quick",
    "ack_ato_jiffies",
    "rcvbuf",
    "sndbuf",
    "wmem_queued",
    "rmem_alloc",
    "segs_out",
    "segs_in",
    "window_clamp",
    "rcvq_space",
    "ecn_flags",
    "compressed_ack",
];

/// What all fields of a socket were at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketFields(pub [u32; Field::COUNT]);

impl SocketFields {
    /// Of a connection without a socket.
    pub const NONE: SocketFields = SocketFields([0; Field::COUNT]);

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (Field, u32)> {
        Field::ALL.into_iter().zip(self.0)
    }
}

impl std::ops::Index<Field> for SocketFields {
    type Output = u32;

    fn index(&self, field: Field) -> &u32 {
        &self.0[field as usize]
    }
}

impl std::ops::IndexMut<Field> for SocketFields {
    fn index_mut(&mut self, field: Field) -> &mut u32 {
        &mut self.0[field as usize]
    }
}

/// Further variables of the socket, which a laboratory kernel shows if it is asked to, in its order (`lab/kernel/driver/fields.h`): by the names
/// and in the units that they have in Linux. Sequence numbers are counted from the SYN of the end that sends them.
pub const MORE: [&str; 87] = [
    "flag",
    "snd_una",
    "snd_nxt",
    "write_seq",
    "rcv_nxt",
    "copied_seq",
    "rcv_wup",
    "high_seq",
    "undo_marker",
    "undo_retrans",
    "prior_cwnd",
    "prior_ssthresh",
    "prr_delivered",
    "prr_out",
    "snd_cwnd_clamp",
    "snd_cwnd_used",
    "snd_cwnd_stamp",
    "is_cwnd_limited",
    "max_packets_out",
    "cwnd_usage_seq",
    "lost",
    "retransmits",
    "retrans_stamp",
    "bytes_sent",
    "bytes_retrans",
    "data_segs_out",
    "data_segs_in",
    "total_rto",
    "total_rto_recoveries",
    "total_rto_time",
    "frto",
    "reord_seen",
    "dsack_dups",
    "rcv_ooopack",
    "is_sack_reneg",
    "dup_ack_counter",
    "tlp_high_seq",
    "tlp_retrans",
    "rack_mstamp",
    "rack_rtt_us",
    "rack_end_seq",
    "rack_reo_wnd_steps",
    "rack_reo_wnd_persist",
    "rack_dsack_seen",
    "rttvar_us",
    "mdev_max_us",
    "rtt_seq",
    "rtt_min_us",
    "rto_min_jiffies",
    "probes_out",
    "tcp_mstamp",
    "tcp_wstamp_ns",
    "first_tx_mstamp",
    "delivered_mstamp",
    "rate_delivered",
    "rate_interval_us",
    "rate_app_limited",
    "app_limited",
    "lsndtime",
    "rcv_tstamp",
    "max_window",
    "snd_wl1",
    "mss_cache",
    "advmss",
    "gso_segs",
    "nonagle",
    "snd_sml",
    "pushed_seq",
    "notsent_lowat",
    "snd_wscale",
    "rcv_wscale",
    "num_sacks",
    "saw_tstamp",
    "scaling_ratio",
    "rcv_rtt_us",
    "rcvq_space_seq",
    "ack_pingpong",
    "ack_rcv_mss",
    "ack_last_seg_size",
    "ack_lrcvtime",
    "compressed_ack_rcv_nxt",
    "chrono_type",
    "pacing_rate",
    "forward_alloc",
    "wmem_alloc",
    "shutdown",
    "err",
];

/// `flag` of `tcp_ack`, which is there only after a run that looked at an acknowledgment: it is never 0 then.
pub const FLAG: usize = 0;

/// What [`Field`]s and [`MORE`] are called elsewhere: in Linux, and in DETER.
const ALIASES: [(&str, &str); 15] = [
    ("cwnd", "snd_cwnd"),
    ("ssthresh", "snd_ssthresh"),
    ("srtt_us", "srtt_us_x8"),
    ("mdev_us", "mdev_us_x4"),
    ("rto", "rto_jiffies"),
    ("icsk_rto", "rto_jiffies"),
    ("icsk_ca_state", "ca_state"),
    ("icsk_backoff", "backoff"),
    ("icsk_pending", "pending_timer"),
    ("icsk_retransmits", "retransmits"),
    ("sk_state", "state"),
    ("sk_rcvbuf", "rcvbuf"),
    ("sk_sndbuf", "sndbuf"),
    ("sk_wmem_queued", "wmem_queued"),
    ("sk_pacing_rate", "pacing_rate"),
];

/// What can be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable {
    /// A field that checks cover.
    Checked(Field),
    /// Its place among [`MORE`].
    More(usize),
}

impl Variable {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Variable> {
        let checked = Field::ALL.into_iter().map(Variable::Checked);
        checked.chain((0..MORE.len()).map(Variable::More))
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Variable::Checked(field) => field.name(),
            Variable::More(place) => MORE[place],
        }
    }

    /// The one with that name, or with that name elsewhere.
    fn named(name: &str) -> Option<Variable> {
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
        let name = alias.map_or(name, |(_, name)| name);
        Variable::all().find(|it| it.name() == name)
    }
}

/// Every name that a variable has, here or elsewhere.
fn known() -> Vec<&'static str> {
    let aliases = ALIASES.iter().map(|(alias, _)| *alias);
    let names = Variable::all().map(Variable::name);
    names.chain(aliases).collect()
}

/// A name that is none of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{name}' cannot be probed{}", did_you_mean(name, &known()))]
pub struct UnknownField {
    name: String,
}

/// The variables with these names, in the order of the names.
///
/// # Errors
/// One is not known.
pub fn variables<'a>(
    names: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<Variable>, UnknownField> {
    let variable = |name: &str| {
        Variable::named(name).ok_or_else(|| UnknownField {
            name: name.to_owned(),
        })
    };
    names.into_iter().map(variable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_field_has_a_name_of_its_own() {
        for (number, field) in Field::ALL.into_iter().enumerate() {
            assert_eq!(field as usize, number);
        }
        let names: BTreeSet<&str> = Variable::all().map(Variable::name).collect();
        assert_eq!(names.len(), FIELDS.len() + MORE.len());
        assert!(ALIASES.iter().all(|(alias, _)| !names.contains(alias)));
        assert_eq!(
            variables(["snd_cwnd", "state", "flag"]),
            Ok(vec![
                Variable::Checked(Field::CongestionWindow),
                Variable::Checked(Field::State),
                Variable::More(FLAG)
            ])
        );
        let error = variables(["nonsense"]).unwrap_err().to_string();
        assert!(error.contains("snd_cwnd") && error.contains("undo_marker"));
    }

    #[test]
    fn names_from_elsewhere_mean_something() {
        for (alias, name) in ALIASES {
            assert_eq!(variables([alias]).map(|it| it[0].name()), Ok(name));
        }
    }

    #[test]
    fn the_kernel_has_the_same_list() {
        let header = include_str!("../../../lab/kernel/driver/fields.h");
        let names = header.lines().filter_map(|line| {
            let (name, _) = line.trim_start().strip_prefix("MORE(")?.split_once(", ")?;
            Some(name)
        });
        assert_eq!(names.collect::<Vec<_>>(), MORE);
    }
}

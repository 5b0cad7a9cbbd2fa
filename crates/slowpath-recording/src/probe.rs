// SPDX-License-Identifier: Apache-2.0
//! What a replay shows of a socket after each run of a handler.

/// The fields of `struct tcp_sock`, `inet_connection_sock` and `sock` that a laboratory kernel shows, in its order (`lab_look` in
/// `lab/kernel/driver/recorder.c`). Sequence numbers are differences: bytes.
pub const FIELDS: [&str; 40] = [
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

/// What [`FIELDS`] and [`MORE`] are called elsewhere: in Linux, and in DETER.
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
pub enum Place {
    /// Among [`FIELDS`].
    Checked(usize),
    /// Among [`MORE`].
    More(usize),
}

impl Place {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Place> {
        let checked = (0..FIELDS.len()).map(Place::Checked);
        checked.chain((0..MORE.len()).map(Place::More))
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Place::Checked(place) => FIELDS[place],
            Place::More(place) => MORE[place],
        }
    }

    fn of(name: &str) -> Option<Place> {
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
        let name = alias.map_or(name, |(_, name)| name);
        Place::all().find(|place| place.name() == name)
    }
}

/// A name that is none of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{name}' is none of what can be probed: {}, {}", FIELDS.join(", "), MORE.join(", "))]
pub struct UnknownField {
    name: String,
}

/// The places of fields, in the order in which they are asked for.
///
/// # Errors
/// One is not known.
pub fn places<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Vec<Place>, UnknownField> {
    let place = |name: &str| {
        Place::of(name).ok_or_else(|| UnknownField {
            name: name.to_owned(),
        })
    };
    names.into_iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_field_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = Place::all().map(Place::name).collect();
        assert_eq!(names.len(), FIELDS.len() + MORE.len());
        assert!(ALIASES.iter().all(|(alias, _)| !names.contains(alias)));
        assert_eq!(
            places(["snd_cwnd", "state", "flag"]),
            Ok(vec![
                Place::Checked(10),
                Place::Checked(0),
                Place::More(FLAG)
            ])
        );
        let error = places(["nonsense"]).unwrap_err().to_string();
        assert!(error.contains("snd_cwnd") && error.contains("undo_marker"));
    }

    #[test]
    fn names_from_elsewhere_mean_something() {
        for (alias, name) in ALIASES {
            assert_eq!(places([alias]).map(|it| it[0].name()), Ok(name));
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

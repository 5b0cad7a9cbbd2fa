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

/// A name that is none of [`FIELDS`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{name}' is none of what can be probed: {}", FIELDS.join(", "))]
pub struct UnknownField {
    name: String,
}

/// The places of fields, in the order in which they are asked for.
///
/// # Errors
/// One is not known.
pub fn places<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Vec<usize>, UnknownField> {
    let place = |name: &str| {
        FIELDS
            .iter()
            .position(|known| *known == name)
            .ok_or_else(|| UnknownField {
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
        assert_eq!(FIELDS.iter().collect::<BTreeSet<_>>().len(), FIELDS.len());
        assert_eq!(places(["snd_cwnd", "state"]), Ok(vec![10, 0]));
        assert!(
            places(["cwnd"])
                .unwrap_err()
                .to_string()
                .contains("snd_cwnd")
        );
    }
}

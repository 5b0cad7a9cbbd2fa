// SPDX-License-Identifier: Apache-2.0
//! The series and events of a run as comma-separated values.

use super::{EventKind, Run};
use slowpath_netsim::topology::Topology;
use slowpath_switch::fabric::DropCause;
use std::io::{self, Write};

/// Fields of `struct tcp_info` (include/uapi/linux/tcp.h) that the series has, by offset.
const FIELDS: [(&str, usize); 20] = [
    ("rto_us", 8),
    ("unacked", 24),
    ("sacked", 28),
    ("lost", 32),
    ("retrans", 36),
    ("rtt_us", 68),
    ("rttvar_us", 72),
    ("snd_ssthresh", 76),
    ("snd_cwnd", 80),
    ("reordering", 88),
    ("total_retrans", 100),
    ("segs_out", 136),
    ("notsent_bytes", 144),
    ("min_rtt_us", 148),
    ("delivered", 192),
    ("delivered_ce", 196),
    ("dsack_dups", 216),
    ("reord_seen", 220),
    ("snd_wnd", 228),
    ("total_rto_time_ms", 244),
];

/// `tcp-info.csv`: a line for each sender and interval.
///
/// # Errors
/// Writing fails.
pub fn write_series(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "time_ns,connection,ca_state,bytes_acked,total_rto")?;
    for (name, _) in FIELDS {
        write!(out, ",{name}")?;
    }
    writeln!(out)?;
    for one in &run.series {
        let state = one.info.get(1).copied().unwrap_or(0);
        let acked = [120, 124].map(|at| u64::from(one.field(at).unwrap_or(0)));
        let acked = acked[0] | acked[1] << 32;
        write!(
            out,
            "{},{},{state},{acked}",
            one.at.0 / 1000,
            one.connection
        )?;
        // Of 16 bits, before the count of recoveries.
        write!(out, ",{}", one.field(240).map_or(0, |two| two & 0xffff))?;
        for (_, offset) in FIELDS {
            match one.field(offset) {
                Some(value) => write!(out, ",{value}")?,
                None => write!(out, ",")?,
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

/// `events.csv`: a line for each drop, mark and detour.
///
/// # Errors
/// Writing fails.
pub fn write_events(run: &Run, topology: &Topology, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "time_ps,event,cause,node,port,connection,reply,bytes,queue_packets,queue_bytes"
    )?;
    for event in &run.events {
        let (what, cause) = match event.kind {
            EventKind::Dropped(cause) => {
                let cause = DropCause::ALL.get(usize::from(cause));
                (
                    "dropped",
                    cause.map_or(String::new(), |cause| format!("{cause:?}")),
                )
            }
            EventKind::Marked => ("marked", String::new()),
            EventKind::Detoured(to) => ("detoured", format!("to port {to}")),
        };
        let port = event.port.map_or(String::new(), |port| port.0.to_string());
        let name = topology.name(event.node);
        writeln!(
            out,
            "{},{what},{cause},{name},{port},{},{},{},{},{}",
            event.at,
            event.connection,
            u8::from(event.reply),
            event.bytes,
            event.depth.0,
            event.depth.1
        )?;
    }
    Ok(())
}

// SPDX-License-Identifier: Apache-2.0
//! Interactions as rows. A row names both its connections whole: they may have no problem of
//! their own, and so no other row.

use crate::cells::{CellValue, Flat, Row};
use crate::column::{Column, bytes, number, rate, segments, text, time, us, word};
use slowpath_model::{
    ConnectionId, FourTuple, InteractionEvidence, InteractionInterval, InteractionKind, MonoNanos,
    Owner, Problem, ProxyFlow, UnknownOwner,
};
use std::net::{IpAddr, SocketAddr};

const KINDS: &[&str] = &[
    "TimeoutThenDelayedAck",
    "TooFewForFastRetransmit",
    "SendBufferBelowBdp",
    "PipelinedProxy",
];
const FLOWS: &[&str] = &["backed_up", "starved"];

/// A column for each cell of [`InteractionInterval`]'s row, in the order of `put` and `take`.
pub(crate) const COLUMNS: [Column; 41] = [
    text("boot_id", "the kernel's boot id, 32 hex digits").of("ConnectionId::boot_id"),
    number(
        "netns",
        "network namespace of the connection that suffers; with the next seven it names it",
    )
    .of("ConnectionId::netns"),
    number("cookie", "its socket's cookie").of("ConnectionId::cookie"),
    number("start_ns", "monotonic clock when it opened")
        .unit("ns")
        .of("ConnectionId::start"),
    text("local_address", "this host's address").of("InteractionInterval::tuple"),
    number("local_port", "its port").of("InteractionInterval::tuple"),
    text("remote_address", "the peer's address").of("InteractionInterval::tuple"),
    number("remote_port", "its port").of("InteractionInterval::tuple"),
    number("pid", "process that owns it").of("Process::pid"),
    text("command", "its command name").of("Process::command"),
    number(
        "cause_netns",
        "network namespace of the connection that is the cause: of a proxy another, of the other kinds the same",
    )
    .of("ConnectionId::netns"),
    number("cause_cookie", "its socket's cookie").of("ConnectionId::cookie"),
    number("cause_start_ns", "monotonic clock when it opened")
        .unit("ns")
        .of("ConnectionId::start"),
    text("cause_local_address", "its address on this host").of("InteractionInterval::cause_tuple"),
    number("cause_local_port", "its port").of("InteractionInterval::cause_tuple"),
    text("cause_remote_address", "its peer's address").of("InteractionInterval::cause_tuple"),
    number("cause_remote_port", "its port").of("InteractionInterval::cause_tuple"),
    word("interaction", KINDS, "its name").of("InteractionInterval::kind"),
    number("connections", "how many connections it is about")
        .of("InteractionInterval::connections"),
    time("end_time", "when it was last found")
        .was("end")
        .of("InteractionInterval::end"),
    us("duration_us", "for how long it was found").of("InteractionInterval::duration"),
    number("rounds", "in how many rounds").of("InteractionInterval::rounds"),
    number("timeouts", "expirations of the retransmission timer").of("InteractionEvidence"),
    number("delayed_acks", "delayed ACKs of what they sent again").of("InteractionEvidence"),
    segments("retransmitted", "segments retransmitted").of("InteractionEvidence"),
    bytes("average_write", "mean of a write").of("InteractionEvidence"),
    bytes("send_mss", "sending maximum segment size").of("InteractionEvidence"),
    number(
        "spread_over_connections",
        "connections of the process to the same peer with writes as small",
    )
    .of("InteractionEvidence"),
    bytes("capacity", "payload that fits into the send buffer").of("InteractionEvidence"),
    bytes("send_buffer", "its limit, of memory").of("InteractionEvidence"),
    rate("bandwidth_low", "bandwidth that the path has at least").of("InteractionEvidence"),
    rate(
        "bandwidth_high",
        "bandwidth that the congestion window would allow",
    )
    .of("InteractionEvidence"),
    us("min_rtt_us", "minimum RTT").of("InteractionEvidence"),
    bytes(
        "product_low",
        "bandwidth-delay product of the lower bound",
    )
    .of("InteractionEvidence"),
    bytes("product_high", "likewise of the upper bound").of("InteractionEvidence"),
    word("flow", FLOWS, "a proxy's: `backed_up` or `starved`").of("ProxyFlow"),
    text("limited_by", "problem that limits the cause").of("InteractionEvidence"),
    number("share_ppm", "its share of the time, in millionths").of("InteractionEvidence"),
    bytes("bytes_in", "payload that came in").of("InteractionEvidence"),
    bytes("bytes_out", "payload that went out").of("InteractionEvidence"),
    number(
        "processes",
        "processes on this host between cause and effect",
    )
    .of("InteractionEvidence"),
];

impl Flat for InteractionInterval {
    fn put(&self, row: &mut Vec<CellValue>) {
        let InteractionInterval {
            kind,
            connection,
            tuple,
            owner,
            cause,
            cause_tuple,
            connections,
            end,
            duration,
            rounds,
            evidence,
        } = self;
        row.push(CellValue::Text(format!("{:032x}", connection.boot_id)));
        put_connection(connection, tuple, row);
        owner.pid().put(row);
        owner.command().map(|c| c.to_string()).put(row);
        put_connection(cause, cause_tuple, row);
        row.push(CellValue::Int(*kind as u64));
        connections.put(row);
        end.put(row);
        duration.put(row);
        rounds.put(row);
        Numbers::of(evidence).put(row);
    }

    fn take(row: &mut Row<'_>) -> Option<Self> {
        let boot_id = u128::from_str_radix(&String::take(row)?, 16).ok()?;
        let (connection, tuple) = take_connection(boot_id, row)?;
        let pid = <Option<u32> as Flat>::take(row)?;
        let command = <Option<String> as Flat>::take(row)?;
        let owner = match pid.zip(command) {
            Some((pid, command)) => Owner::named(pid, &command),
            None => Owner::unknown(UnknownOwner::NotRecorded),
        };
        let (cause, cause_tuple) = take_connection(boot_id, row)?;
        let kind = usize::try_from(u64::take(row)?).ok()?;
        let kind = *InteractionKind::ALL.get(kind)?;
        Some(InteractionInterval {
            kind,
            connection,
            tuple,
            cause,
            cause_tuple,
            connections: Flat::take(row)?,
            end: Flat::take(row)?,
            duration: Flat::take(row)?,
            rounds: Flat::take(row)?,
            evidence: Numbers::take(row)?.evidence(kind, pid, cause_tuple)?,
            owner,
        })
    }
}

fn put_connection(id: &ConnectionId, tuple: &FourTuple, row: &mut Vec<CellValue>) {
    id.netns.put(row);
    id.cookie.put(row);
    id.start.put(row);
    for end in [tuple.local, tuple.remote] {
        end.ip().to_string().put(row);
        u32::from(end.port()).put(row);
    }
}

fn take_connection(boot_id: u128, row: &mut Row<'_>) -> Option<(ConnectionId, FourTuple)> {
    let id = ConnectionId {
        boot_id,
        netns: Flat::take(row)?,
        cookie: Flat::take(row)?,
        start: MonoNanos::take(row)?,
    };
    let mut end = || {
        let ip: IpAddr = String::take(row)?.parse().ok()?;
        Some(SocketAddr::new(ip, Flat::take(row)?))
    };
    Some((id, FourTuple::new(end()?, end()?)))
}

/// The numbers of every kind; a kind has its own and lacks the others.
#[derive(Default)]
struct Numbers {
    counts: [Option<u64>; 13],
    flow: Option<ProxyFlow>,
    limited_by: Option<Problem>,
    share_ppm: Option<u64>,
    bytes: [Option<u64>; 3],
}

const PARTS: f64 = 1e6;

impl Numbers {
    fn of(evidence: &InteractionEvidence) -> Self {
        let mut numbers = Numbers::default();
        let c = &mut numbers.counts;
        match *evidence {
            InteractionEvidence::TimeoutThenDelayedAck {
                timeouts,
                delayed_acks,
                retransmitted_segments,
            } => {
                c[..3].copy_from_slice(&[timeouts, delayed_acks, retransmitted_segments].map(Some));
            }
            InteractionEvidence::TooFewForFastRetransmit {
                timeouts,
                average_write_bytes,
                send_mss_bytes,
                spread_over_connections,
            } => {
                c[0] = Some(timeouts);
                c[3] = Some(average_write_bytes);
                c[4] = Some(send_mss_bytes.into());
                c[5] = Some(spread_over_connections.into());
            }
            InteractionEvidence::SendBufferBelowBdp {
                capacity_bytes,
                send_buffer_bytes,
                bandwidth_low,
                bandwidth_high,
                min_rtt_us,
                product_low_bytes,
                product_high_bytes,
                average_write_bytes,
            } => {
                c[3] = average_write_bytes;
                c[6..].copy_from_slice(
                    &[
                        capacity_bytes,
                        send_buffer_bytes.into(),
                        bandwidth_low,
                        bandwidth_high,
                        min_rtt_us,
                        product_low_bytes,
                        product_high_bytes,
                    ]
                    .map(Some),
                );
            }
            InteractionEvidence::PipelinedProxy {
                flow,
                problem,
                share,
                bytes_in,
                bytes_out,
                processes,
                ..
            } => {
                numbers.flow = Some(flow);
                numbers.limited_by = Some(problem);
                // A share is between 0 and 1.
                numbers.share_ppm = Some((share.clamp(0.0, 1.0) * PARTS).round() as u64);
                numbers.bytes = [bytes_in, bytes_out, processes.into()].map(Some);
            }
        }
        numbers
    }

    fn put(&self, row: &mut Vec<CellValue>) {
        self.counts.iter().for_each(|n| n.put(row));
        row.push(
            self.flow
                .map_or(CellValue::Null, |flow| CellValue::Int(flow as u64)),
        );
        let problem = self.limited_by.map(|problem| problem.name().to_owned());
        problem.put(row);
        self.share_ppm.put(row);
        self.bytes.iter().for_each(|n| n.put(row));
    }

    fn take(row: &mut Row<'_>) -> Option<Self> {
        let mut numbers = Numbers::default();
        for n in &mut numbers.counts {
            *n = <Option<u64> as Flat>::take(row)?;
        }
        numbers.flow = match <Option<u64> as Flat>::take(row)? {
            None => None,
            Some(0) => Some(ProxyFlow::BackedUp),
            Some(1) => Some(ProxyFlow::Starved),
            Some(_) => return None,
        };
        if let Some(name) = <Option<String> as Flat>::take(row)? {
            let problem = Problem::ALL.into_iter().find(|p| p.name() == name)?;
            numbers.limited_by = Some(problem);
        }
        numbers.share_ppm = <Option<u64> as Flat>::take(row)?;
        for n in &mut numbers.bytes {
            *n = <Option<u64> as Flat>::take(row)?;
        }
        Some(numbers)
    }

    fn evidence(
        &self,
        kind: InteractionKind,
        pid: Option<u32>,
        cause: FourTuple,
    ) -> Option<InteractionEvidence> {
        let c = &self.counts;
        let small = |n: Option<u64>| u32::try_from(n?).ok();
        Some(match kind {
            InteractionKind::TimeoutThenDelayedAck => InteractionEvidence::TimeoutThenDelayedAck {
                timeouts: c[0]?,
                delayed_acks: c[1]?,
                retransmitted_segments: c[2]?,
            },
            InteractionKind::TooFewForFastRetransmit => {
                InteractionEvidence::TooFewForFastRetransmit {
                    timeouts: c[0]?,
                    average_write_bytes: c[3]?,
                    send_mss_bytes: small(c[4])?,
                    spread_over_connections: small(c[5])?,
                }
            }
            InteractionKind::SendBufferBelowBdp => InteractionEvidence::SendBufferBelowBdp {
                capacity_bytes: c[6]?,
                send_buffer_bytes: small(c[7])?,
                bandwidth_low: c[8]?,
                bandwidth_high: c[9]?,
                min_rtt_us: c[10]?,
                product_low_bytes: c[11]?,
                product_high_bytes: c[12]?,
                average_write_bytes: c[3],
            },
            InteractionKind::PipelinedProxy => InteractionEvidence::PipelinedProxy {
                pid: pid.unwrap_or(0),
                flow: self.flow?,
                problem: self.limited_by?,
                share: self.share_ppm? as f64 / PARTS,
                cause,
                bytes_in: self.bytes[0]?,
                bytes_out: self.bytes[1]?,
                processes: small(self.bytes[2])?,
            },
        })
    }
}

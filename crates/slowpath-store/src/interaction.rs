// SPDX-License-Identifier: Apache-2.0
//! Interactions as rows. A row names both its connections whole: they may have no problem of
//! their own, and so no other row.

use crate::cells::{Cell, Column, Flat, Kind, Row};
use slowpath_model::{
    ConnectionId, FourTuple, InteractionEvidence, InteractionInterval, InteractionKind, MonoNanos,
    Owner, Problem, ProxyFlow, UnknownOwner,
};
use std::net::{IpAddr, SocketAddr};

use Kind::{Exact, Name, Text, Time};

const KINDS: &[&str] = &[
    "TimeoutThenDelayedAck",
    "TooFewForFastRetransmit",
    "SendBufferBelowBdp",
    "PipelinedProxy",
];
const FLOWS: &[&str] = &["backed_up", "starved"];

/// A column for each cell of [`InteractionInterval`]'s row, in the order of `put` and `take`.
pub(crate) const COLUMNS: [Column; 41] = {
    macro_rules! columns {
        ($($name:literal $kind:expr,)*) => {
            [$(Column { name: $name, kind: $kind }),*]
        };
    }
    columns! {
        "boot_id" Text, "netns" Exact, "cookie" Exact, "start_ns" Exact, "local_address" Text,
        "local_port" Exact, "remote_address" Text, "remote_port" Exact, "pid" Exact,
        "command" Text, "cause_netns" Exact, "cause_cookie" Exact, "cause_start_ns" Exact,
        "cause_local_address" Text, "cause_local_port" Exact, "cause_remote_address" Text,
        "cause_remote_port" Exact, "interaction" Name(KINDS), "connections" Exact, "end" Time,
        "duration_us" Exact, "rounds" Exact, "timeouts" Exact, "delayed_acks" Exact,
        "retransmitted" Exact, "average_write" Exact, "send_mss" Exact,
        "spread_over_connections" Exact, "capacity" Exact, "send_buffer" Exact,
        "bandwidth_low" Exact, "bandwidth_high" Exact, "min_rtt_us" Exact, "product_low" Exact,
        "product_high" Exact, "flow" Name(FLOWS), "limited_by" Text, "share_ppm" Exact,
        "bytes_in" Exact, "bytes_out" Exact, "processes" Exact,
    }
};

impl Flat for InteractionInterval {
    fn put(&self, row: &mut Vec<Cell>) {
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
        row.push(Cell::Text(format!("{:032x}", connection.boot_id)));
        put_connection(connection, tuple, row);
        owner.pid().put(row);
        owner.command().map(|c| c.to_string()).put(row);
        put_connection(cause, cause_tuple, row);
        row.push(Cell::Int(*kind as u64));
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

fn put_connection(id: &ConnectionId, tuple: &FourTuple, row: &mut Vec<Cell>) {
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

    fn put(&self, row: &mut Vec<Cell>) {
        self.counts.iter().for_each(|n| n.put(row));
        row.push(self.flow.map_or(Cell::Null, |flow| Cell::Int(flow as u64)));
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

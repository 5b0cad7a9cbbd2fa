// SPDX-License-Identifier: Apache-2.0
//! The laboratory kernel's records of TCP's handlers as a [`Recording`].

use super::plan::{EPOCH_NS, Plan};
use super::script::{MAGIC, Record, kind};
use super::tcp::{Kind, Sysctls};
use super::wire::{ACK_AT_ONCE, FORMAT, RawRecording, Reader};
use slowpath_netsim::tcp::Reading;
use slowpath_recording::{
    Connection, Decision, End, Moment, Origin, Outcome, RecorderKind, Recording, Run, Settings,
};
use slowpath_switch::Span;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

/// Hosts' addresses: `LAB_NETWORK`, and one more for each.
const NETWORK: u32 = 0x0a00_0000;
/// Listeners' ports: `LAB_LISTEN` and the number of the kind of TCP.
const LISTEN: u16 = 5000;
/// What the applications of the laboratory do with what arrives.
pub const READER: &str = "reader";
/// They read it as soon as it is there.
pub const AT_ONCE: &str = "at-once";
/// Both ends have one of their own.
pub const RTO_MIN: &str = "rto_min_ns";
/// The module's parameter of CUBIC.
pub const HYSTART: &str = "tcp_cubic.hystart";

/// What a run of the laboratory recorded.
pub(super) fn read(plan: &Plan, bytes: &[u8]) -> Option<Recording> {
    let mut from = Reader(bytes);
    let head: RawRecording = from.get()?;
    if head.magic != MAGIC || head.version != FORMAT {
        return None;
    }
    let (hz, origin) = (head.hz, head.origin);
    let mut connections: Vec<Connection> = (0..plan.connections.len())
        .map(|number| connection(plan, number))
        .collect();
    let mut pending: Vec<[Vec<Outcome>; 2]> = vec![Default::default(); connections.len()];
    while !from.is_empty() {
        let record = Record::read(&mut from)?;
        let (number, end) = (record.connection as usize, usize::from(record.end));
        let outcomes = pending.get_mut(number)?.get_mut(end)?;
        if record.kind == kind::DECISION {
            let decision = *Decision::ALL.get(usize::from(record.decision))?;
            let outcome = Outcome::from_numbers(decision, record.value, record.result);
            outcomes.push(outcome?);
            continue;
        }
        let end = &mut connections[number].ends[end];
        end.digest = record.check;
        end.runs.push(Run {
            at: Moment(record.at),
            jiffies: record.jiffies,
            handler: record.handler()?,
            outcomes: std::mem::take(outcomes),
            check: Some(record.check),
        });
    }
    connections.retain(|connection| !connection.ends[0].runs.is_empty());
    Some(Recording {
        origin: Origin {
            kernel: super::kernel::SOURCE.to_owned(),
            hz,
            epoch: EPOCH_NS as i64 - origin as i64,
            recorder: RecorderKind::Laboratory,
        },
        connections,
        one_sided: Vec::new(),
    })
}

fn connection(plan: &Plan, number: usize) -> Connection {
    let it = &plan.connections[number];
    let address =
        |host: u32, port| SocketAddr::from((Ipv4Addr::from_bits(NETWORK + 1 + host), port));
    let kind = &plan.kinds[usize::from(it.kind)];
    let sysctls = sysctls(&plan.sysctls, plan.ttl);
    let socket = socket(kind);
    let mut accepted = socket.clone();
    accepted.insert(RTO_MIN.into(), nanoseconds(kind.accepted_rto_min));
    accepted.insert(READER.into(), reader(kind.reading));
    Connection {
        addresses: [
            address(it.from, it.port),
            address(it.to, LISTEN + u16::from(it.kind)),
        ],
        settings: Settings {
            sysctls: [sysctls.clone(), sysctls],
            socket: [socket, accepted],
            mtu: [plan.sysctls.mtu; 2],
        },
        ends: [End::default(), End::default()],
        joint: None,
    }
}

type Values = BTreeMap<String, String>;

fn values<const N: usize>(pairs: [(&str, String); N]) -> Values {
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}

fn sysctls(from: &Sysctls, ttl: u8) -> Values {
    let bit = |value: bool| u32::from(value).to_string();
    values([
        ("tcp_timestamps", bit(from.timestamps)),
        ("tcp_sack", bit(from.sack)),
        ("tcp_ecn", from.ecn.to_string()),
        ("tcp_recovery", from.recovery.to_string()),
        ("tcp_early_retrans", from.early_retrans.to_string()),
        ("tcp_reordering", from.reordering.to_string()),
        ("tcp_slow_start_after_idle", bit(from.slow_start_after_idle)),
        ("tcp_moderate_rcvbuf", bit(from.moderate_rcvbuf)),
        (
            "tcp_rmem",
            format!("4096 {} {}", from.rmem[0], from.rmem[1]),
        ),
        (HYSTART, bit(from.hystart)),
        ("ip_default_ttl", ttl.to_string()),
    ])
}

fn nanoseconds(span: Span) -> String {
    span.0.div_ceil(1000).to_string()
}

/// `at-once`, or bytes at a time and nanoseconds between.
fn reader(reading: Option<Reading>) -> String {
    match reading {
        None => AT_ONCE.to_owned(),
        Some(it) => format!("{} every {}", it.bytes, nanoseconds(it.every)),
    }
}

fn socket(kind: &Kind) -> Values {
    values([
        ("congestion", kind.algorithm.clone()),
        (RTO_MIN, nanoseconds(kind.rto_min)),
        ("rto_initial_ns", nanoseconds(kind.rto_initial)),
        ("initial_window", kind.initial_window.to_string()),
        ("initial_ssthresh", kind.initial_ssthresh.to_string()),
        ("receive_window", kind.receive_window.to_string()),
        ("mss", kind.mss.to_string()),
        (
            "ack_at_once",
            u32::from(kind.flags & ACK_AT_ONCE != 0).to_string(),
        ),
    ])
}

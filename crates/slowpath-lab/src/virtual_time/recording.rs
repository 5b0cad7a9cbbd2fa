// SPDX-License-Identifier: Apache-2.0
//! The laboratory kernel's records of TCP's handlers as a [`Recording`], and a recording as the script that the kernel replays: twin of
//! `lab/kernel/driver/script.h`, which tells what each field means.

use super::plan::{EPOCH_NS, Plan};
use super::sysctls::Own;
use super::tcp::{ALGORITHMS, Kind, Sysctls};
use super::wire::{ACK_AT_ONCE, HANDSHAKE, IPV6, Reader, VERSION, Writer};
use slowpath_netsim::tcp::Reading;
use slowpath_replay::recording::{
    Connection, Decision, End, Handler, Moment, Origin, Outcome, Recording, Run, Settings, Timer,
};
use slowpath_switch::Span;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;

/// `SPLSPCST`.
const MAGIC: u64 = 0x5453_4350_534c_5053;
/// Hosts' addresses: `LAB_NETWORK`, and one more for each.
const NETWORK: u32 = 0x0a00_0000;
/// Listeners' ports: `LAB_LISTEN` and the number of the kind of TCP.
const LISTEN: u16 = 5000;
/// What the applications of the laboratory do with what arrives.
const READER: &str = "reader";
const AT_ONCE: &str = "at-once";
/// The least that a device of IPv6 has: RFC 8200 section 5.
const IPV6_MTU: u32 = 1280;
/// Both ends have one of their own.
const RTO_MIN: &str = "rto_min_ns";

/// The value of a setting that a recording lacks.
const NOT_THERE: &str = "not there";

/// Of an option that only a replay with something changed has; its name is of `enum lab_change`.
pub(super) const CHANGE: u16 = u16::MAX;

/// Kinds of records; script.h has more, which no laboratory kernel writes yet.
mod kind {
    pub const DECISION: u8 = 0;
    pub const CONNECT: u8 = 1;
    pub const ACCEPT: u8 = 2;
    pub const BEGIN: u8 = 3;
    pub const SEND: u8 = 4;
    pub const RECEIVE: u8 = 5;
    pub const PACKET: u8 = 10;
    pub const FIRST_TIMER: u8 = 11;
    pub const LAST_TIMER: u8 = 16;
    pub const SMALL_QUEUE: u8 = 17;
}

/// Of a run itself (`LAB_RUN_UNCHECKED`): nothing is compared.
const UNCHECKED: u8 = 1;

/// `LAB_END_UNNUMBERED`.
const UNNUMBERED: u32 = 1;

const MARKED: u8 = 1;
const BACKLOG: u8 = 2;
const OWNED: u8 = 4;

const TIMERS: [Timer; 6] = Timer::ALL;

const DECISIONS: [Decision; 20] = Decision::ALL;

/// `struct lab_run_record`.
#[derive(Clone, Copy, Default)]
struct Record {
    at: u64,
    jiffies: u32,
    connection: u32,
    end: u8,
    kind: u8,
    flags: u8,
    decision: u8,
    value: u32,
    result: u32,
    check: u32,
    decisions: u32,
    more: u32,
}

impl Record {
    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(Record {
            at: from.u64()?,
            jiffies: from.u32()?,
            connection: from.u32()?,
            end: from.u8()?,
            kind: from.u8()?,
            flags: from.u8()?,
            decision: from.u8()?,
            value: from.u32()?,
            result: from.u32()?,
            check: from.u32()?,
            decisions: from.u32()?,
            more: from.u32()?,
        })
    }

    fn write(&self, out: &mut Writer) {
        out.u64s([self.at]);
        out.u32s([self.jiffies, self.connection]);
        out.u8s(&[self.end, self.kind, self.flags, self.decision]);
        out.u32s([
            self.value,
            self.result,
            self.check,
            self.decisions,
            self.more,
        ]);
    }

    /// `None`: the kernel of the laboratory writes none such.
    fn handler(&self) -> Option<Handler> {
        Some(match self.kind {
            kind::CONNECT => Handler::Connect,
            kind::ACCEPT => Handler::Accept,
            kind::BEGIN => Handler::Begin {
                fresh: self.value != 0,
            },
            kind::SEND => Handler::Send {
                bytes: self.value,
                flags: 0,
                result: self.result as i32,
            },
            kind::RECEIVE => Handler::Receive {
                bytes: self.value,
                flags: 0,
                result: self.result as i32,
            },
            kind::PACKET => Handler::Packet {
                number: self.value,
                marked: self.flags & MARKED != 0,
                backlog: self.flags & BACKLOG != 0,
                merged: 1,
                truesize: self.result,
            },
            kind @ kind::FIRST_TIMER..=kind::LAST_TIMER => Handler::Timer {
                timer: *TIMERS.get(usize::from(kind - kind::FIRST_TIMER))?,
                deferred: self.flags & OWNED != 0,
            },
            kind::SMALL_QUEUE => Handler::SmallQueue,
            _ => return None,
        })
    }
}

/// What a run of the laboratory recorded.
pub(super) fn read(plan: &Plan, bytes: &[u8]) -> Option<Recording> {
    let mut from = Reader(bytes);
    if from.u64()? != MAGIC || from.u32()? != VERSION {
        return None;
    }
    let (hz, origin) = (from.u32()?, from.u64()?);
    let mut connections: Vec<Connection> = (0..plan.connections.len())
        .map(|number| connection(plan, number))
        .collect();
    let mut pending: Vec<[Vec<Outcome>; 2]> = vec![Default::default(); connections.len()];
    while !from.is_empty() {
        let record = Record::read(&mut from)?;
        let (number, end) = (record.connection as usize, usize::from(record.end));
        let outcomes = pending.get_mut(number)?.get_mut(end)?;
        if record.kind == kind::DECISION {
            outcomes.push(Outcome {
                decision: *DECISIONS.get(usize::from(record.decision))?,
                before: record.value,
                value: record.result,
            });
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
            recorder: "laboratory".to_owned(),
        },
        connections,
        alone: Vec::new(),
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

/// A day, in nanoseconds.
const LONG: u64 = 86_400_000_000_000;

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

fn take_reader(text: &str) -> Option<Option<Reading>> {
    if text == AT_ONCE {
        return Some(None);
    }
    let (bytes, every) = text.split_once(" every ")?;
    let every: u64 = every.parse().ok().filter(|ns| (1..=LONG).contains(ns))?;
    Some(Some(Reading {
        bytes: bytes.parse().ok()?,
        every: Span::from_nanos(every),
    }))
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

/// A setting that a laboratory kernel cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a laboratory kernel cannot have {name} = '{value}'{}", self.instead())]
pub struct Unknown {
    name: String,
    value: String,
}

impl Unknown {
    fn instead(&self) -> String {
        match self.name.as_str() {
            "congestion" => format!(": it has {}", ALGORITHMS.join(", ")),
            _ => String::new(),
        }
    }
}

/// Takes settings one by one; what is left over is not known.
struct Taking(Values);

impl Taking {
    fn text(&mut self, name: &str) -> Result<String, Unknown> {
        self.0.remove(name).ok_or_else(|| Unknown {
            name: name.to_owned(),
            value: NOT_THERE.to_owned(),
        })
    }

    fn number<T: TryFrom<u64>>(&mut self, name: &str, most: u64) -> Result<T, Unknown> {
        let text = self.text(name)?;
        let number = text.parse::<u64>().ok().filter(|number| *number <= most);
        number
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| Unknown {
                name: name.to_owned(),
                value: text,
            })
    }

    fn bit(&mut self, name: &str) -> Result<bool, Unknown> {
        Ok(self.number::<u8>(name, 1)? == 1)
    }

    fn end(self) -> Result<(), Unknown> {
        match self.0.into_iter().next() {
            None => Ok(()),
            Some((name, value)) => Err(Unknown { name, value }),
        }
    }
}

/// Of both sockets, whatever is missing.
fn same(opened: &Values, accepted: &Values) -> Result<(), Unknown> {
    let mut names = opened.keys().chain(accepted.keys());
    match names.find(|name| opened.get(*name) != accepted.get(*name)) {
        None => Ok(()),
        Some(name) => Err(Unknown {
            name: format!("{name} of the accepting end"),
            value: accepted
                .get(name)
                .map_or_else(|| NOT_THERE.to_owned(), Clone::clone),
        }),
    }
}

/// The module's parameter of CUBIC.
const HYSTART: &str = "tcp_cubic.hystart";

/// What each end has of its own, and what one kernel has for both: the former stands for the latter but for [`HYSTART`].
pub(super) fn take_sysctls(settings: &Settings) -> Result<(Sysctls, u8, [Own; 2]), Unknown> {
    let own = |end: usize| {
        let mut from = Taking(settings.sysctls[end].clone());
        let mtu = settings.mtu[end];
        if !(68..=65_536).contains(&mtu) {
            return Err(Unknown {
                name: "mtu".to_owned(),
                value: mtu.to_string(),
            });
        }
        let hystart = from.bit(HYSTART)?;
        let own = Own::take(&mut from.0, mtu);
        let own = own.map_err(|(name, value)| Unknown { name, value })?;
        from.end()?;
        Ok((own, hystart))
    };
    let ((client, hystart), (server, other)) = (own(0)?, own(1)?);
    if hystart != other {
        return Err(Unknown {
            name: format!("{HYSTART} of the accepting end"),
            value: u8::from(other).to_string(),
        });
    }
    let (sysctls, ttl) = client.shared(hystart);
    Ok((sysctls, ttl, [client, server]))
}

/// Of one that speaks IPv6.
fn check_ipv6(settings: &Settings) -> Result<(), Unknown> {
    match settings.mtu.iter().find(|mtu| **mtu < IPV6_MTU) {
        None => Ok(()),
        Some(mtu) => Err(Unknown {
            name: "mtu".to_owned(),
            value: format!("{mtu} with IPv6"),
        }),
    }
}

/// What a connection's sockets have.
pub(super) fn take_kind(connection: &Connection) -> Result<Kind, Unknown> {
    let settings = &connection.settings;
    let ipv6 = connection.addresses[0].is_ipv6();
    if ipv6 {
        check_ipv6(settings)?;
    }
    let mut accepted = settings.socket[1].clone();
    let text = accepted.remove(READER).unwrap_or_default();
    let Some(reading) = take_reader(&text) else {
        return Err(Unknown {
            name: READER.to_owned(),
            value: text,
        });
    };
    let own = accepted.remove(RTO_MIN);
    let own = own.or_else(|| settings.socket[0].get(RTO_MIN).cloned());
    let mut own = Taking(Values::from_iter(own.map(|own| (RTO_MIN.to_owned(), own))));
    let accepted_rto_min = Span::from_nanos(own.number(RTO_MIN, LONG)?);
    let mut opened = settings.socket[0].clone();
    opened.remove(RTO_MIN);
    same(&opened, &accepted)?;
    let mut from = Taking(settings.socket[0].clone());
    let algorithm = from.text("congestion")?;
    if !ALGORITHMS.contains(&algorithm.as_str()) {
        return Err(Unknown {
            name: "congestion".to_owned(),
            value: algorithm,
        });
    }
    let kind = Kind {
        algorithm,
        rto_min: Span::from_nanos(from.number(RTO_MIN, LONG)?),
        accepted_rto_min,
        reading,
        rto_initial: Span::from_nanos(from.number("rto_initial_ns", LONG)?),
        initial_window: from.number("initial_window", 1 << 20)?,
        initial_ssthresh: from.number("initial_ssthresh", u64::from(u32::MAX))?,
        receive_window: from.number("receive_window", 1 << 30)?,
        mss: from.number("mss", 65_535)?,
        framing: 0,
        // Connections of a replay are opened as the recording says.
        flags: HANDSHAKE
            | if from.bit("ack_at_once")? {
                ACK_AT_ONCE
            } else {
                0
            }
            | if ipv6 { IPV6 } else { 0 },
    };
    from.end()?;
    Ok(kind)
}

/// Some runs of one end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// The connection's place in what is replayed.
    pub place: usize,
    /// 0: the end that connected.
    pub end: u8,
    /// Which.
    pub runs: Range<u64>,
}

/// The script of some connections, in the order of the plan.
///
/// # Errors
/// Something was recorded that a laboratory kernel cannot do.
pub(super) fn script(
    connections: &[&Connection],
    told: Option<&Stretch>,
    stop: Option<&Stretch>,
    follow: bool,
    checked: bool,
) -> Result<Vec<u8>, Unknown> {
    let mut ends = Writer::default();
    let mut records = Writer::default();
    let mut count = 0u64;
    for (number, connection) in connections.iter().enumerate() {
        for (side, end) in connection.ends.iter().enumerate() {
            let first = count;
            let mut packets = 0;
            for run in &end.runs {
                let mut record = record(run, number as u32, side as u8, follow)?;
                if !checked {
                    record.decision = UNCHECKED;
                }
                if record.kind == kind::PACKET {
                    packets = packets.max(needed(run, &record));
                }
                record.write(&mut records);
                for outcome in decided(run) {
                    let decision = DECISIONS
                        .iter()
                        .position(|known| *known == outcome.decision)
                        .unwrap_or_default();
                    Record {
                        kind: kind::DECISION,
                        decision: decision as u8,
                        value: outcome.before,
                        result: outcome.value,
                        ..record
                    }
                    .write(&mut records);
                }
                count += 1 + decided(run).count() as u64;
            }
            ends.u64s([first, count - first]);
            ends.u32s([packets, end.digest]);
            let clock = connection
                .joint
                .map_or(0, |joint| joint.clocks[side].offset);
            ends.u64s([clock as u64]);
            let flags = if connection.joint.is_some() {
                UNNUMBERED
            } else {
                0
            };
            ends.u32s([flags, 0]);
        }
    }
    let mut out = Writer::default();
    out.u64s([MAGIC]);
    out.u32s([VERSION, connections.len() as u32]);
    out.u64s([count]);
    let nothing = Stretch::default();
    let of = |stretch: Option<&Stretch>| match stretch {
        Some(stretch) => [stretch.place as u32, u32::from(stretch.end)],
        None => [u32::MAX; 2],
    };
    out.u32s(of(told));
    let runs = &told.unwrap_or(&nothing).runs;
    out.u64s([runs.start, runs.end]);
    out.u32s(of(stop));
    out.u64s([stop.unwrap_or(&nothing).runs.start]);
    out.u8s(&ends.0);
    out.u8s(&records.0);
    Ok(out.0)
}

/// Packets of the other end up to the last one that the run needs.
fn needed(run: &Run, record: &Record) -> u32 {
    let told = |decision| {
        run.outcomes
            .iter()
            .filter(move |it| it.decision == decision)
    };
    let merged = told(Decision::Merged).map(|it| record.value.wrapping_add(it.value));
    let heads: Vec<u32> = std::iter::once(record.value).chain(merged).collect();
    let further = told(Decision::Joined).filter_map(|it| {
        let head = *heads.get(it.before as usize)?;
        Some(head.saturating_add(slowpath_replay::recording::Stretch::of(it.value).further))
    });
    let in_order = record.value.saturating_add(record.more.max(1) - 1);
    let all = heads.iter().copied().chain(further).chain([in_order]);
    all.max().unwrap_or(in_order).saturating_add(1)
}

/// What the kernel is told; what somebody saw is compared afterwards.
fn decided(run: &Run) -> impl Iterator<Item = &Outcome> {
    let all = run.outcomes.iter();
    all.filter(|outcome| outcome.decision != Decision::Seen)
}

fn record(run: &Run, connection: u32, end: u8, follow: bool) -> Result<Record, Unknown> {
    let mut record = Record {
        at: run.at.0,
        jiffies: run.jiffies,
        connection,
        end,
        check: run.check.unwrap_or(0),
        decision: if run.check.is_none() { UNCHECKED } else { 0 },
        decisions: decided(run).count() as u32,
        ..Record::default()
    };
    let known = match run.handler {
        Handler::Option { level, .. } => follow || level == CHANGE,
        Handler::Receive { flags, .. } => follow || flags == 0,
        _ => true,
    };
    if !known {
        return Err(Unknown {
            name: "handler".to_owned(),
            value: format!("{:?}", run.handler),
        });
    }
    let [kind, value, result, more] = run.handler.words();
    record.kind = kind as u8;
    record.flags = (kind >> 8) as u8;
    record.value = value;
    record.result = result;
    record.more = more;
    Ok(record)
}

// SPDX-License-Identifier: Apache-2.0
//! What a laboratory kernel is given: the network, the connections, the flows one by one.

use super::error::Refusal;
use super::sysctls::Own;
use super::tcp::{Kind, Kinds, Sysctls};
use super::wire::{
    CAPTURE, EVENTS, FORMAT, IPV6, MAGIC, RECORD, RawConnection, RawFlow, RawPlan, RawWatch,
    SWITCH, THROUGH_PROCESS, Writer,
};
use slowpath_netsim::engine::{Application, FlowSpec, QueueSeries, Transport};
use slowpath_netsim::scenario::Scenario;
use slowpath_switch::fabric::{self, Action, Change};
use slowpath_switch::{Limit, PortConfig, PortKind, Random, Rate, Span, Time};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The stream of the seed from which the simulator draws what ECMP hashes: one number for each
/// connection, in the order in which they begin. The same here, so that packets go the same way.
const KEYS: u64 = u32::MAX as u64;
/// Ports of senders begin here: those below are for listeners.
const FIRST_PORT: u32 = 10_000;
/// How many connections one host can begin.
const PORTS: u32 = (1 << 16) - FIRST_PORT;
/// More are a mistake in a rate: they would take hours.
const MAX_FLOWS: usize = 10_000_000;
/// Packets of a handshake, with all options that there may be, and room for as much again.
const HANDSHAKE_BITS: u64 = 3 * 8 * 160;
/// 2000-01-01 00:00 UTC: the kernel's clock when it starts.
pub const EPOCH_NS: u64 = 946_684_800_000_000_000;
/// One second in picoseconds: warm-ups are whole ones, so that ticks fall where they would.
const SECOND: u64 = 1_000_000_000_000;

/// What packets pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PacketPath {
    /// The switch model inside the kernel.
    #[default]
    Kernel,
    /// The same model in a process inside, a system call for each packet each way: for
    /// comparison. The program, with these arguments and the plan's file behind them, is to
    /// call [`forward`](super::forward).
    Process(PathBuf, Vec<String>),
}

impl PacketPath {
    /// The kernel's arguments besides the plan, which lies in that folder.
    pub(super) fn arguments(&self, folder: &Path) -> Vec<OsString> {
        let PacketPath::Process(program, arguments) = self else {
            return Vec::new();
        };
        let mut init = OsString::from("init=");
        init.push(program);
        let root = ["root=/dev/root", "rootfstype=hostfs", "rootflags=/"];
        let mut all: Vec<OsString> = root.map(OsString::from).into();
        all.extend([init, OsString::from("--")]);
        all.extend(arguments.iter().map(OsString::from));
        all.push(folder.join("plan.bin").into());
        all
    }
}

/// What is written down, and what differs from the scenario.
#[derive(Clone, Debug)]
pub struct Options {
    /// A capture of each host, with so many bytes of each packet.
    pub capture: Option<u32>,
    /// Drops, marks and detours one by one.
    pub events: bool,
    /// `tcp_info` of every sender with something to send, so often.
    pub info_every: Option<Span>,
    /// A congestion control by Linux's name, instead of the scenario's.
    pub algorithm: Option<String>,
    /// What packets pass.
    pub path: PacketPath,
    /// The runs of TCP's handlers are recorded, to be replayed.
    pub record: bool,
    /// The kernel is killed after so much silence.
    pub patience: std::time::Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            // IP and TCP headers with all their options.
            capture: Some(120),
            events: true,
            info_every: Some(Span::from_millis(1)),
            algorithm: None,
            path: PacketPath::Kernel,
            record: false,
            patience: std::time::Duration::from_secs(60),
        }
    }
}

/// A connection: `struct lab_connection`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The host that sends.
    pub from: u32,
    /// The host that receives.
    pub to: u32,
    /// What ECMP hashes for data; for answers it is one more.
    pub key: u32,
    /// The sender's port.
    pub port: u16,
    /// The kind of TCP.
    pub kind: u8,
    /// Priority.
    pub class: u8,
    /// The workload.
    pub label: u8,
}

/// All that a run is given.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The flows, as the simulator has them.
    pub flows: Vec<FlowSpec>,
    /// The connection of each.
    pub carried_by: Vec<u32>,
    /// The connections, in the order in which they begin.
    pub connections: Vec<Connection>,
    /// How long before the scenario connections are opened.
    pub warm_up: Span,
    pub(super) open_every: Span,
    pub(super) until: Time,
    pub(super) kinds: Vec<Kind>,
    pub(super) sysctls: Sysctls,
    /// Of a replay's two hosts.
    pub(super) own: [Own; 2],
    pub(super) flags: u32,
    pub(super) snap: u32,
    pub(super) info_every: Span,
    pub(super) sample_every: Span,
    pub(super) watched: Vec<(u32, u16)>,
    pub(super) ttl: u8,
    pub(super) seed: u64,
    pub(super) network: fabric::Plan,
    /// The kernel's clock when it starts, in nanoseconds since 1970.
    pub(super) epoch: u64,
}

/// What a plan of two hosts with nothing between them says: each connection is opened as a script has it.
#[derive(Clone, Debug)]
pub struct Direct {
    /// The connections, from host 0 to host 1.
    pub connections: Vec<Connection>,
    /// What their sockets have; at most 256.
    pub kinds: Vec<Kind>,
    /// What both hosts have.
    pub sysctls: Sysctls,
    /// What each host has of its own.
    pub own: [Own; 2],
    /// Of [`wire`](super::wire).
    pub flags: u32,
    /// Bytes of each packet that captures keep.
    pub snap: u32,
    /// Time to live.
    pub ttl: u8,
    /// Of the kernel's random numbers.
    pub seed: u64,
    /// The kernel's clock when it starts, in nanoseconds since 1970.
    pub epoch: u64,
}

impl Plan {
    /// Two hosts with nothing between them.
    pub fn direct(from: Direct) -> Plan {
        let host = PortConfig {
            kind: PortKind::Switch,
            rate: Rate::MIN,
            propagation: Span::ZERO,
            limit: Limit::NONE,
            marking: None,
        };
        Plan {
            flows: Vec::new(),
            carried_by: Vec::new(),
            connections: from.connections,
            warm_up: Span::ZERO,
            open_every: Span::ZERO,
            until: Time::ZERO,
            kinds: from.kinds,
            sysctls: from.sysctls,
            own: from.own,
            flags: from.flags,
            snap: from.snap,
            info_every: Span::ZERO,
            sample_every: Span::ZERO,
            watched: Vec::new(),
            ttl: from.ttl,
            seed: from.seed,
            network: fabric::Plan {
                seed: 0,
                most_packets: 1,
                hosts: vec![host; 2],
                switches: Vec::new(),
                links: Vec::new(),
                routes: Vec::new(),
                impairments: Vec::new(),
                changes: Vec::new(),
            },
            epoch: from.epoch,
        }
    }

    /// What a scenario means for a kernel with that many ticks a second.
    ///
    /// # Errors
    /// Linux cannot do what it says.
    pub fn new(scenario: &Scenario, options: &Options, hz: u32) -> Result<Self, Refusal> {
        let Kinds { kinds, sysctls } = Kinds::new(&scenario.tcp, options.algorithm.as_deref(), hz)?;
        if scenario.paths {
            return Err(Refusal::new(
                "measure.paths",
                "packets' ways are not followed",
            ));
        }
        let mut flows = Vec::new();
        for flow in scenario.flows() {
            if flows.len() == MAX_FLOWS {
                let reason = format!("they make more than {MAX_FLOWS} flows");
                return Err(Refusal::new("workload", reason));
            }
            flows.push(flow);
        }
        let (connections, carried_by) = connections(scenario, &flows)?;
        let early = connections.iter();
        let early = early
            .filter(|c| !kinds[usize::from(c.kind)].has_handshake())
            .count() as u64;
        let (open_every, warm_up) = warm_up(scenario, early);
        let mut network = scenario.plan();
        if scenario.host.queue.is_none() {
            // TCP small queues bound it: what waits there belongs to a socket.
            for host in &mut network.hosts {
                host.limit = Limit::NONE;
            }
        }
        // Connections are opened before anything happens to links.
        let from_the_beginning = network.impairments.drain(..);
        let at_once = from_the_beginning.map(|(line, impairment)| Change {
            at: Time::ZERO,
            action: Action::Impair(line, Box::new(impairment)),
        });
        network.changes = at_once
            .chain(std::mem::take(&mut network.changes))
            .collect();
        for change in &mut network.changes {
            change.at += warm_up;
        }
        let (sample_every, watched) = match &scenario.queues {
            QueueSeries::Off => (Span::ZERO, &[][..]),
            QueueSeries::Sampled { every, ports } => (*every, &ports[..]),
            QueueSeries::OnChange { ports } => (Span::ZERO, &ports[..]),
        };
        let mut flags = 0;
        for (wanted, flag) in [
            (options.capture.is_some(), CAPTURE),
            (options.events || !watched.is_empty(), EVENTS),
            (options.path != PacketPath::Kernel, THROUGH_PROCESS),
            (options.record, RECORD),
        ] {
            flags |= if wanted { flag } else { 0 };
        }
        Ok(Plan {
            warm_up,
            open_every,
            until: scenario.until,
            kinds,
            own: [0, 1].map(|_| Own::usual(sysctls.mtu)),
            sysctls,
            flags,
            snap: options.capture.unwrap_or(0),
            info_every: options.info_every.unwrap_or(Span::ZERO),
            sample_every,
            watched: watched
                .iter()
                .map(|(switch, port)| (switch.0 | SWITCH, port.0))
                .collect(),
            ttl: scenario.ttl,
            seed: scenario.seed,
            network,
            flows,
            carried_by,
            connections,
            epoch: EPOCH_NS,
        })
    }

    /// The network that packets pass; its time 0 is the beginning of the warm-up.
    pub fn network(&self) -> &fabric::Plan {
        &self.network
    }

    /// The kernel's file: `struct lab_plan` and what follows it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        let network = self.network.encode();
        let sysctls = &self.sysctls;
        out.put(&RawPlan {
            magic: MAGIC,
            version: FORMAT,
            hosts: self.network.hosts.len() as u32,
            kinds: self.kinds.len() as u32,
            connections: self.connections.len() as u32,
            flows: self.flows.len() as u64,
            until: self.until.0,
            warm_up: self.warm_up.0,
            open_every: self.open_every.0,
            info_every: self.info_every.0,
            sample_every: self.sample_every.0,
            flags: self.flags,
            snap: self.snap,
            watched: self.watched.len() as u32,
            mtu: sysctls.mtu,
            ttl: u32::from(self.ttl),
            timestamps: u32::from(sysctls.timestamps),
            sack: u32::from(sysctls.sack),
            ecn: sysctls.ecn,
            recovery: sysctls.recovery,
            early_retrans: sysctls.early_retrans,
            reordering: sysctls.reordering,
            slow_start_after_idle: u32::from(sysctls.slow_start_after_idle),
            moderate_rcvbuf: u32::from(sysctls.moderate_rcvbuf),
            rmem_default: sysctls.rmem[0],
            rmem_max: sysctls.rmem[1],
            lines: 2 * self.network.links.len() as u32,
            fabric: network.len() as u64,
            own_mtu: self.own.each_ref().map(|own| own.device()),
            own: self.own.each_ref().map(|own| own.values),
        });
        for kind in &self.kinds {
            out.put(&kind.raw());
        }
        for connection in &self.connections {
            out.put(&RawConnection {
                from: connection.from,
                to: connection.to,
                key: connection.key,
                port: connection.port,
                kind: connection.kind,
                class: connection.class,
                tag: connection.label,
                reserved: [0; 7],
            });
        }
        for (flow, connection) in self.flows.iter().zip(&self.carried_by) {
            let (chunk, every) = match flow.application {
                Application::AtOnce => (0, Span::ZERO),
                Application::Periodic { chunk, every } => (chunk, every),
            };
            out.put(&RawFlow {
                start: flow.start.0,
                bytes: flow.bytes,
                connection: *connection,
                chunk,
                every: every.0,
            });
        }
        for (node, port) in &self.watched {
            out.put(&RawWatch {
                node: *node,
                port: u32::from(*port),
            });
        }
        out.u8s(&network);
        out.0
    }

    pub(super) fn has_ipv6(&self) -> bool {
        self.kinds.iter().any(|kind| kind.flags & IPV6 != 0)
    }

    /// Memory that the kernel needs, in MiB: what it has at rest, and for each host its
    /// namespace and buffers, for each connection two sockets and what they hold.
    pub(super) fn memory(&self) -> u64 {
        let connections = self.connections.len() as u64;
        let hosts = self.network.hosts.len() as u64;
        512 + 2 * hosts + (connections * 48 + self.flows.len() as u64 / 8) / 1024
    }
}

/// Who carries what: as in the simulator, flows of a workload between the same hosts share
/// a connection if the scenario says so, otherwise each has its own.
fn connections(
    scenario: &Scenario,
    flows: &[FlowSpec],
) -> Result<(Vec<Connection>, Vec<u32>), Refusal> {
    let mut keys = Random::stream(scenario.seed, KEYS);
    let mut shared: BTreeMap<(u32, u32, u32), u32> = BTreeMap::new();
    let mut begun = vec![0; scenario.topology.hosts().len()];
    let mut connections: Vec<Connection> = Vec::new();
    let mut carried_by = Vec::with_capacity(flows.len());
    for flow in flows {
        let Transport::Tcp(kind) = flow.transport else {
            return Err(Refusal::new("workload.datagram", "only TCP is sent"));
        };
        let (from, to) = (flow.source.0, flow.destination.0);
        let share = flow.connection.map(|number| (from, to, number));
        if let Some(known) = share.and_then(|share| shared.get(&share)) {
            carried_by.push(*known);
            continue;
        }
        let begun = &mut begun[from as usize];
        if *begun == PORTS {
            let host = &scenario.topology.hosts()[from as usize].name;
            let reason = format!("host '{host}' begins more than {PORTS} connections");
            return Err(Refusal::new("workload", reason));
        }
        let number = connections.len() as u32;
        connections.push(Connection {
            from,
            to,
            key: keys.next_u64() as u32,
            // At most 65,535 by the check above.
            port: (FIRST_PORT + *begun) as u16,
            kind,
            class: flow.class,
            label: flow.label,
        });
        *begun += 1;
        carried_by.push(number);
        if let Some(share) = share {
            shared.insert(share, number);
        }
    }
    Ok((connections, carried_by))
}

/// How long before the scenario `early` connections are opened, and one after the other how
/// fast: so slowly that they do not meet on the slowest link.
fn warm_up(scenario: &Scenario, early: u64) -> (Span, Span) {
    if early == 0 {
        return (Span::ZERO, Span::ZERO);
    }
    let links = scenario.topology.links().iter();
    let mut every = 0;
    let mut path = 0u64;
    for link in links {
        let bits = link.options.rate.bits_per_second();
        every = every.max(HANDSHAKE_BITS.saturating_mul(SECOND) / bits);
        path = path.max(link.options.delay.0);
    }
    // To and fro over as many links as there are switches at most, twice.
    let switches = scenario.topology.switches().len() as u64 + 1;
    let handshake = (path + every).saturating_mul(4 * switches.min(64));
    let whole = every.saturating_mul(early).saturating_add(handshake);
    (
        Span(every),
        Span(whole.div_ceil(SECOND).saturating_mul(SECOND)),
    )
}

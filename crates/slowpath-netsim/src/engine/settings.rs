// SPDX-License-Identifier: Apache-2.0
//! What a run is asked to do.

use super::network::{HostId, NetworkError, SwitchId};
use crate::results::{Conservation, LABELS};
use crate::tcp::{TcpConfig, TcpConfigError};
use slowpath_switch::fabric::Change;
use slowpath_switch::{PortId, Span, Time};
use std::fmt;

/// What carries a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP, with that one of [`Settings::tcp`].
    Tcp(u8),
    /// Datagrams of a size in bytes on the wire, header included, as fast as the host's link
    /// goes. What is dropped stays lost.
    Datagrams(u16),
}

/// How an application writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Application {
    /// Everything at the start.
    #[default]
    AtOnce,
    /// Some bytes at the start, and as many after each interval.
    Periodic {
        /// Bytes of a write.
        chunk: u32,
        /// From one write to the next.
        every: Span,
    },
}

/// The query a flow belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Its number.
    pub id: u64,
    /// How many flows it has in all.
    pub flows: u32,
    /// When it was asked: its completion time counts from here.
    pub asked: Time,
}

/// A flow to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSpec {
    /// The workload's number, in the results again.
    pub id: u64,
    /// From.
    pub source: HostId,
    /// To.
    pub destination: HostId,
    /// How much, without headers. Not 0; [`FlowSpec::ENDLESS`] at most.
    pub bytes: u64,
    /// When.
    pub start: Time,
    /// What carries it.
    pub transport: Transport,
    /// How it is written.
    pub application: Application,
    /// Priority in switches, 0 first; to 7.
    pub class: u8,
    /// Counted separately in the results; to 7.
    pub label: u8,
    /// The query it belongs to.
    pub query: Option<Query>,
    /// Flows with the same number between the same hosts share a connection that stays
    /// open; `None`: one of its own. TCP, written at once.
    pub connection: Option<u32>,
}

impl FlowSpec {
    /// More bytes than any run carries.
    pub const ENDLESS: u64 = 1 << 50;

    /// A TCP flow written at once, with the first of the configurations.
    pub fn tcp(id: u64, source: HostId, destination: HostId, bytes: u64, start: Time) -> Self {
        FlowSpec {
            id,
            source,
            destination,
            bytes,
            start,
            transport: Transport::Tcp(0),
            application: Application::AtOnce,
            class: 0,
            label: 0,
            query: None,
            connection: None,
        }
    }
}

/// Which queues are written down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum QueueSeries {
    /// None.
    #[default]
    Off,
    /// These, again and again.
    Sampled {
        /// From one sample to the next. Not 0.
        every: Span,
        /// Which.
        ports: Vec<(SwitchId, PortId)>,
    },
    /// These, whenever a packet joins or leaves. Of different ports not in the order of
    /// time; of one port it is.
    OnChange {
        /// Which.
        ports: Vec<(SwitchId, PortId)>,
    },
}

/// What a run is asked to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The kinds of TCP.
    pub tcp: Vec<TcpConfig>,
    /// The run ends here, or when there is nothing more to do.
    pub until: Time,
    /// Time to live of a new packet. Not 0.
    pub ttl: u8,
    /// Decides the ECMP keys of flows.
    pub seed: u64,
    /// Queues to write down.
    pub queues: QueueSeries,
    /// Most samples; the rest is counted.
    pub max_queue_samples: usize,
    /// Whether flows say their path.
    pub paths: bool,
    /// Whether every packet and every queue that it joins is written down: 32 bytes a packet
    /// and 8 a queue, and some time.
    pub packets: bool,
    /// How often the congestion windows of flows that are not done are written down, and what
    /// `lines` carried.
    pub windows_every: Option<Span>,
    /// Of which flows, by label; `None`: of all.
    pub windows_of: Option<Vec<u8>>,
    /// Directions of links: twice a link's number in the topology, and one more for the way from
    /// its second end to its first.
    pub lines: Vec<u32>,
    /// What happens to links and routes.
    pub changes: Vec<Change>,
    /// Picoseconds of a tick of the event queue, as a shift. Changes the speed only.
    pub tick_shift: u32,
}

impl Settings {
    /// A run of that length with one kind of TCP.
    pub fn new(tcp: TcpConfig, until: Time) -> Self {
        Settings {
            tcp: vec![tcp],
            until,
            ttl: 255,
            seed: 1,
            queues: QueueSeries::Off,
            max_queue_samples: 1 << 24,
            paths: false,
            packets: false,
            windows_every: None,
            windows_of: None,
            lines: Vec::new(),
            changes: Vec::new(),
            tick_shift: 12,
        }
    }
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Virtual time.
    pub now: Time,
    /// Where it ends at the latest.
    pub until: Time,
    /// Events so far.
    pub events: u64,
    /// Packets that left a link so far.
    pub hops: u64,
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimulationError {
    /// The network is impossible.
    Network(NetworkError),
    /// One of the kinds of TCP is impossible.
    Tcp(usize, TcpConfigError),
    /// Packets that live for no hop.
    TimeToLive,
    /// A change names a link, a switch or a port that is not there.
    Change,
    /// A flow is impossible, and why.
    Flow(u64, &'static str),
    /// A queue that does not exist is to be written down, or all the time.
    Queues,
    /// The run itself lost packets: a defect of the simulator.
    Conservation(Conservation),
}

impl fmt::Display for SimulationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(error) => write!(f, "{error}"),
            Self::Tcp(kind, error) => write!(f, "TCP configuration {kind}: {error}"),
            Self::TimeToLive => write!(f, "the time to live is at least 1"),
            Self::Change => write!(
                f,
                "a change names a link, a switch or a port that is not there"
            ),
            Self::Flow(id, reason) => write!(f, "flow {id}: {reason}"),
            Self::Queues => write!(f, "a queue series names no port, or samples every 0 s"),
            Self::Conservation(counts) => {
                write!(
                    f,
                    "the simulator does not account for every packet: {counts}"
                )
            }
        }
    }
}

impl std::error::Error for SimulationError {}

impl FlowSpec {
    /// Says what is impossible about it.
    pub(super) fn check(&self, hosts: usize, settings: &Settings) -> Result<(), SimulationError> {
        let error = |reason| Err(SimulationError::Flow(self.id, reason));
        if self.source.0 as usize >= hosts || self.destination.0 as usize >= hosts {
            return error("there is no such host");
        }
        if self.source == self.destination {
            return error("it goes to where it comes from");
        }
        if self.bytes == 0 || self.bytes > Self::ENDLESS {
            return error("it has no bytes, or more than 2^50");
        }
        if matches!(self.transport, Transport::Datagrams(_)) && self.bytes > 1 << 32 {
            return error("datagrams of more than 2^32 bytes");
        }
        if self.class > super::packet::MAX_CLASS || usize::from(self.label) >= LABELS {
            return error("classes and labels are 0 to 7");
        }
        match self.transport {
            Transport::Tcp(kind) if usize::from(kind) >= settings.tcp.len() => {
                error("there is no such TCP configuration")
            }
            Transport::Datagrams(bytes) if bytes <= DATAGRAM_HEADER => {
                error("its datagrams have no payload")
            }
            Transport::Datagrams(_) if self.connection.is_some() => {
                error("datagrams have no connection")
            }
            _ if matches!(self.application, Application::Periodic { chunk, every } if chunk == 0 || every == Span::ZERO) => {
                error("it writes nothing, or all the time")
            }
            _ if self.connection.is_some() && self.application != Application::AtOnce => {
                error("flows that share a connection are written at once")
            }
            _ => Ok(()),
        }
    }
}

/// IPv4 and UDP.
pub(super) const DATAGRAM_HEADER: u16 = 28;

// SPDX-License-Identifier: Apache-2.0
//! What a run gives: records that a writer can turn into tables.

use crate::engine::{HostId, LineCounts, PauseRecord, SwitchId};
mod packets;

pub use packets::{DropPlace, Joined, PacketLog, SentPacket};

use slowpath_switch::{Counters, DropReason, FlowletCounts, PortId, Rate, Span, Time};
use std::fmt;

/// What happened to a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRecord {
    /// The workload's number.
    pub id: u64,
    /// The workload's label: background, query, whatever it counts separately.
    pub label: u8,
    /// The query it belongs to.
    pub query: Option<u64>,
    /// From.
    pub source: HostId,
    /// To.
    pub destination: HostId,
    /// How much.
    pub bytes: u64,
    /// How much of it had arrived in order at the end.
    pub arrived: u64,
    /// When it began.
    pub start: Time,
    /// When the receiver had its last byte; `None` if it had not at the end of the run.
    pub finish: Option<Time>,
    /// Segments sent again by its connection, up to then. Of a connection that carries
    /// several flows: since the flow before it finished.
    pub retransmissions: u32,
    /// Retransmission timeouts, likewise.
    pub timeouts: u32,
    /// The ports it leaves switches by if nothing detours it; empty if not asked for.
    pub path: Vec<(SwitchId, PortId)>,
}

impl FlowRecord {
    /// The flow completion time.
    pub fn completion(&self) -> Option<Span> {
        self.finish.map(|finish| finish - self.start)
    }
}

/// What happened to a query: flows that the asker waits for jointly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryRecord {
    /// The workload's number.
    pub id: u64,
    /// When it was asked.
    pub start: Time,
    /// When its last flow finished; `None` if one did not.
    pub finish: Option<Time>,
    /// How many flows it has.
    pub flows: u32,
}

impl QueryRecord {
    /// The query completion time.
    pub fn completion(&self) -> Option<Span> {
        self.finish.map(|finish| finish - self.start)
    }
}

/// A queue at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSample {
    /// When.
    pub at: Time,
    /// Which switch.
    pub switch: SwitchId,
    /// Which port.
    pub port: PortId,
    /// Packets that wait, without the one on the line.
    pub packets: u32,
    /// Bytes that wait.
    pub bytes: u64,
}

/// A sender's congestion window at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSample {
    /// When.
    pub at: Time,
    /// The first flow of the connection that is not done.
    pub flow: u64,
    /// Segments.
    pub segments: u32,
    /// Bytes of that flow that its receiver has in order.
    pub arrived: u64,
}

/// What a direction of a link had carried at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineSample {
    /// When.
    pub at: Time,
    /// Twice the link's number in the topology; one more: from its second end to its first.
    pub line: u32,
    /// Packets since the start.
    pub packets: u64,
    /// Bytes since the start, headers included.
    pub bytes: u64,
}

/// What a port of a switch did.
#[derive(Clone, Copy, Debug)]
pub struct PortRecord {
    /// Which switch.
    pub switch: SwitchId,
    /// Which port.
    pub port: PortId,
    /// Its link.
    pub rate: Rate,
    /// Packets and bytes in and out, marks, drops, detours.
    pub counters: Counters,
    /// The most packets that waited; `None` if the port was not watched.
    pub most_packets: Option<u32>,
}

/// What a host's link carried towards the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRecord {
    /// Which host.
    pub host: HostId,
    /// Its link.
    pub rate: Rate,
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent.
    pub bytes: u64,
}

/// What happened to packets of one label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabelRecord {
    /// Packets that hosts sent, ACKs included.
    pub sent: u64,
    /// Packets dropped, by [`DropReason`].
    pub dropped: [u64; DropReason::ALL.len()],
    /// Marks.
    pub marked: u64,
    /// Detours; a packet may take several.
    pub detours: u64,
    /// Packets that took one detour or more, counted when they arrive or are dropped.
    pub detoured_packets: u64,
}

/// What happened in one stretch of time, by label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StretchRecord {
    /// Packets dropped.
    pub dropped: [u64; LABELS],
    /// Marks.
    pub marked: [u64; LABELS],
    /// Detours.
    pub detours: [u64; LABELS],
}

/// Labels are below this.
pub const LABELS: usize = 8;

/// Packets counted at both ends of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conservation {
    /// Packets that left hosts.
    pub sent: u64,
    /// Packets that arrived at hosts.
    pub delivered: u64,
    /// Packets that switches dropped.
    pub dropped: u64,
    /// Packets that links made of others.
    pub copies: u64,
    /// Packets that links lost, or that were on one that went down.
    pub lost: u64,
    /// Packets in queues and on lines at the end.
    pub in_network: u64,
    /// Packets that left a link, ACKs included.
    pub hops: u64,
    /// The links that the packets passed, by their times to live.
    pub path_lengths: u64,
    /// Those that copies passed before they were made.
    pub copied_hops: u64,
}

impl Conservation {
    /// Whether nothing was lost or made.
    pub fn holds(&self) -> bool {
        self.sent + self.copies == self.delivered + self.dropped + self.lost + self.in_network
            && self.hops + self.copied_hops == self.path_lengths
    }
}

impl fmt::Display for Conservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} packets sent and {} copied, {} delivered, {} dropped, {} lost, {} in the network; {} hops, paths of {}",
            self.sent,
            self.copies,
            self.delivered,
            self.dropped,
            self.lost,
            self.in_network,
            self.hops + self.copied_hops,
            self.path_lengths
        )
    }
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Flows, by number.
    pub flows: Vec<FlowRecord>,
    /// Queries, by number.
    pub queries: Vec<QueryRecord>,
    /// Queues over time.
    pub queues: Vec<QueueSample>,
    /// Congestion windows over time, if they are asked for.
    pub windows: Vec<WindowSample>,
    /// Links over time, if they are asked for.
    pub lines: Vec<LineSample>,
    /// What lines did to packets, by their number in the topology, where a change names them.
    pub impairments: Vec<(u32, LineCounts)>,
    /// Samples not taken because there were too many.
    pub queue_samples_lost: u64,
    /// What happened over time; stretches at the end in which nothing did are left out.
    pub stretches: Vec<StretchRecord>,
    /// How long a stretch is.
    pub stretch: Span,
    /// Ports of switches.
    pub ports: Vec<PortRecord>,
    /// What switches made of flows, where they divide them into flowlets; otherwise empty.
    pub flowlets: Vec<(SwitchId, FlowletCounts)>,
    /// What flow control did; `None` without any.
    pub pauses: Option<PauseRecord>,
    /// Links of hosts.
    pub hosts: Vec<HostRecord>,
    /// Packets by label.
    pub labels: [LabelRecord; LABELS],
    /// Every packet, if they are asked for.
    pub packets: Option<PacketLog>,
    /// Packets in and out.
    pub conservation: Conservation,
    /// When the run ended.
    pub end: Time,
    /// Events processed.
    pub events: u64,
    /// The most packets that were in the network at once.
    pub most_packets: u64,
    /// The most connections that were open at once.
    pub most_connections: u64,
}

// SPDX-License-Identifier: Apache-2.0
//! Every packet of a run, and every queue that it joined.

use crate::engine::{HostId, SwitchId};
use slowpath_switch::{PortId, Time};

/// A packet that a host sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentPacket {
    /// When its first bit left the host.
    pub at: Time,
    /// From.
    pub source: HostId,
    /// To.
    pub destination: HostId,
    /// What switches choose equal paths by: that of its connection.
    pub key: u32,
    /// Its length on the wire.
    pub bytes: u16,
    /// The packet, an index of [`PacketLog::sent`], whose arrival was the last thing that
    /// happened at this end of its connection before TCP handed this one down; `None` where
    /// that was a timer or the application. What a recorder of handlers knows.
    pub after: Option<u32>,
}

/// A packet that joined a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Which: an index of [`PacketLog::sent`].
    pub packet: u32,
    /// How many of those that had joined the queue before it had left it.
    pub left: u32,
}

/// Where a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropPlace {
    /// Which: an index of [`PacketLog::sent`].
    pub packet: u32,
    /// When.
    pub at: Time,
    /// The switch.
    pub switch: SwitchId,
    /// The port that it should have left by; `None` where none was chosen.
    pub port: Option<PortId>,
}

/// Every packet of a run. Queues are numbered through: the ports of the first switch, then
/// those of the second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketLog {
    /// In the order in which they were sent.
    pub sent: Vec<SentPacket>,
    /// What joined each queue, in order. A queue serves one class; what waits when a packet
    /// joins is what joined before it and had not left.
    pub queues: Vec<Vec<Joined>>,
    /// Dropped packets.
    pub dropped: Vec<DropPlace>,
}

// SPDX-License-Identifier: Apache-2.0
//! What a switch is made of.

use crate::packet::PortId;
use crate::time::{Rate, Span};
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU32;

/// The most classes a port may have: the eight priorities of IEEE 802.1Q.
pub const MAX_CLASSES: u8 = 8;

/// A bound in packets, bytes, or both; what is `None` is not bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// Most packets.
    pub packets: Option<u32>,
    /// Most bytes.
    pub bytes: Option<u64>,
}

impl Limit {
    /// No bound.
    pub const NONE: Limit = Limit {
        packets: None,
        bytes: None,
    };

    /// A bound in packets.
    pub const fn packets(packets: u32) -> Self {
        Limit {
            packets: Some(packets),
            bytes: None,
        }
    }

    /// A bound in bytes.
    pub const fn bytes(bytes: u64) -> Self {
        Limit {
            packets: None,
            bytes: Some(bytes),
        }
    }

    /// Whether nothing is bounded.
    pub fn is_none(&self) -> bool {
        self.packets.is_none() && self.bytes.is_none()
    }

    fn has_zero(&self) -> bool {
        self.packets == Some(0) || self.bytes == Some(0)
    }
}

/// The factor of dynamic thresholds, exact: `numerator / denominator`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alpha {
    /// Above the line.
    pub numerator: NonZeroU32,
    /// Below the line.
    pub denominator: NonZeroU32,
}

impl Alpha {
    /// 1.
    pub const ONE: Alpha = Alpha {
        numerator: NonZeroU32::MIN,
        denominator: NonZeroU32::MIN,
    };

    /// A fraction; `None` if either number is 0.
    pub const fn new(numerator: u32, denominator: u32) -> Option<Self> {
        match (NonZeroU32::new(numerator), NonZeroU32::new(denominator)) {
            (Some(numerator), Some(denominator)) => Some(Alpha {
                numerator,
                denominator,
            }),
            _ => None,
        }
    }
}

/// Memory that all ports of a switch share with dynamic thresholds (Choudhury and Hahne,
/// Dynamic Queue Length Thresholds for Shared-Memory Packet Switches, IEEE/ACM Transactions
/// on Networking 6(2), 1998): a queue may take a packet while it is shorter than
/// `alpha * (total - what all queues hold)`, and the memory must hold the packet. Lengths
/// are in the units that `total` bounds; in both if it bounds both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// The memory.
    pub total: Limit,
    /// How much of what is free one queue may have.
    pub alpha: Alpha,
}

/// From which length of its own queue on a packet is marked: it is if the queue holds that
/// much or more when the packet comes, without it and without the packet on the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// K packets.
    Packets(u32),
    /// K bytes.
    Bytes(u64),
}

/// DIBS, detour-induced buffer sharing (Zarifis et al., EuroSys 2014): a packet whose queue
/// has no room goes to another port that has, each as likely as another. Only to ports that
/// face a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detour {
    /// Whether the port that the packet came in by may be chosen. The authors' slides choose
    /// among the ports other than the full one, and their example's packet bounces back to
    /// the core it came from eight times: it may.
    pub arrival_port: bool,
    /// Whether a detoured packet is marked (if ECN-capable) because the queue it should
    /// have joined is full. Otherwise only the queue that it joins decides. The slides do
    /// not say; a full queue is past any threshold below its limit.
    pub mark: bool,
}

impl Default for Detour {
    fn default() -> Self {
        Detour {
            arrival_port: true,
            mark: true,
        }
    }
}

/// What is at a port's other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PortKind {
    /// A host. Never takes a detour.
    Host = 0,
    /// Another switch.
    Switch = 1,
}

/// A port and the link behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// What is at the other end.
    pub kind: PortKind,
    /// The link's rate.
    pub rate: Rate,
    /// How long a bit takes to the other end.
    pub propagation: Span,
    /// What all classes of the port may hold in all.
    pub limit: Limit,
    /// Where marking begins; `None`: no marks.
    pub marking: Option<Threshold>,
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Its ports; a [`PortId`] is an index here.
    pub ports: Vec<PortConfig>,
    /// How many classes each port has, 1 to [`MAX_CLASSES`].
    pub classes: u8,
    /// Memory that the ports share; `None`: only their own limits count.
    pub shared: Option<Shared>,
    /// Where packets go that find no room; `None`: they are dropped.
    pub detour: Option<Detour>,
    /// Whether a packet's time to live falls by one here: a router. Otherwise a bridge.
    pub decrement_ttl: bool,
    /// Whether to count what waits of each flow. Costs a table look-up at every enqueue
    /// and dequeue.
    pub count_flows: bool,
    /// The seed of everything random, the same for all switches of a network.
    pub seed: u64,
    /// The switch's number in its network: salts its ECMP hash and its random numbers.
    pub number: u32,
}

impl SwitchConfig {
    /// A router with those ports, one class, no shared memory and no detours.
    pub fn new(ports: Vec<PortConfig>, seed: u64, number: u32) -> Self {
        SwitchConfig {
            ports,
            classes: 1,
            shared: None,
            detour: None,
            decrement_ttl: true,
            count_flows: false,
            seed,
            number,
        }
    }

    /// Says what is impossible about it.
    ///
    /// # Errors
    /// The first thing found.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(1..=MAX_CLASSES).contains(&self.classes) {
            return Err(ConfigError::Classes);
        }
        if self.ports.is_empty() || self.ports.len() > usize::from(u16::MAX) {
            return Err(ConfigError::Ports);
        }
        for (number, port) in self.ports.iter().enumerate() {
            if port.limit.has_zero() {
                // Fits: checked above.
                return Err(ConfigError::ZeroBuffer(PortId(number as u16)));
            }
        }
        match self.shared {
            Some(shared) if shared.total.is_none() => Err(ConfigError::SharedUnbounded),
            Some(shared) if shared.total.has_zero() => Err(ConfigError::ZeroShared),
            _ => Ok(()),
        }
    }
}

/// What is impossible about a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// The number of classes is not 1 to [`MAX_CLASSES`].
    Classes,
    /// No ports, or more than 65,535.
    Ports,
    /// A port's buffer holds nothing.
    ZeroBuffer(PortId),
    /// The shared memory holds nothing.
    ZeroShared,
    /// The shared memory has no bound: there is nothing to share.
    SharedUnbounded,
    /// A route names a port that the switch does not have.
    NoSuchPort(PortId),
    /// A route names a port twice.
    PortTwice(PortId),
    /// A destination's number is too large for the route table.
    Destination,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Classes => write!(f, "a port has 1 to {MAX_CLASSES} classes"),
            ConfigError::Ports => write!(f, "a switch has 1 to {} ports", u16::MAX),
            ConfigError::ZeroBuffer(port) => write!(f, "the buffer of port {} is zero", port.0),
            ConfigError::ZeroShared => write!(f, "the shared buffer is zero"),
            ConfigError::SharedUnbounded => write!(f, "the shared buffer has no size"),
            ConfigError::NoSuchPort(port) => write!(f, "there is no port {}", port.0),
            ConfigError::PortTwice(port) => write!(f, "port {} stands twice in a route", port.0),
            ConfigError::Destination => write!(f, "the destination's number is too large"),
        }
    }
}

impl core::error::Error for ConfigError {}

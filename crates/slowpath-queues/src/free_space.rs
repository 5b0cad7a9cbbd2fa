// SPDX-License-Identifier: Apache-2.0
//! How much room a queue has for a packet, by the rules of [`slowpath_switch::Switch`]
//! (`has_room`).

use slowpath_switch::{Depth, Limit, PortId, Shared, SwitchConfig};

/// A lost packet is dropped by a queue that is not further than this from full. DETER takes
/// five times the largest packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Margin {
    /// Where the limit is one of bytes.
    pub bytes: u64,
    /// Where it is one of packets.
    pub packets: u32,
}

impl Default for Margin {
    fn default() -> Self {
        Margin {
            bytes: 5 * 1500,
            packets: 5,
        }
    }
}

/// The limits of a switch.
pub(super) struct FreeSpace {
    limits: Vec<Limit>,
    shared: Option<Shared>,
}

/// What a queue still takes behind a packet that comes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// Bytes; packets where the limit is one of packets count as long as the one that comes.
    pub bytes: u64,
    /// The same where limits are of bytes: negative where the packet itself has no room.
    of_bytes: Option<i128>,
    of_packets: Option<i128>,
}

impl Left {
    /// Whether a queue with so little room may have dropped the packet.
    pub fn is_within(self, margin: Margin) -> bool {
        let full = |left: Option<i128>, margin: i128| left.is_some_and(|left| left < margin);
        full(self.of_bytes, margin.bytes.into()) || full(self.of_packets, margin.packets.into())
    }
}

impl FreeSpace {
    pub fn new(config: &SwitchConfig) -> Self {
        FreeSpace {
            limits: config.ports.iter().map(|port| port.limit).collect(),
            shared: config.shared,
        }
    }

    /// What a port with so much in it, of so much in all, has left for a packet.
    pub fn left(&self, port: PortId, own: Depth, total: Depth, packet: u64) -> Left {
        let limit = self.limits[usize::from(port.0)];
        let behind = |most: u64, used: u64, packet: u64| {
            i128::from(most) - i128::from(used) - i128::from(packet)
        };
        let least = |left: &mut Option<i128>, other: i128| {
            *left = Some(left.map_or(other, |left| left.min(other)));
        };
        let (mut of_bytes, mut of_packets) = (None, None);
        if let Some(most) = limit.bytes {
            least(&mut of_bytes, behind(most, own.bytes, packet));
        }
        if let Some(most) = limit.packets {
            least(&mut of_packets, behind(most.into(), own.packets.into(), 1));
        }
        if let Some(shared) = self.shared {
            let (over, under) = (
                i128::from(shared.alpha.numerator.get()),
                i128::from(shared.alpha.denominator.get()),
            );
            // A dynamic threshold: full from alpha * (total - used) on, without the packet.
            // The last whole number below it has none left.
            let below = |most: u64, used: u64, queue: u64| {
                let free = i128::from(most.saturating_sub(used));
                (free * over + under - 1).div_euclid(under) - 1 - i128::from(queue)
            };
            if let Some(most) = shared.total.bytes {
                least(&mut of_bytes, below(most, total.bytes, own.bytes));
                least(&mut of_bytes, behind(most, total.bytes, packet));
            }
            if let Some(most) = shared.total.packets {
                let (used, queue) = (total.packets.into(), own.packets.into());
                least(&mut of_packets, below(most.into(), used, queue));
                least(&mut of_packets, behind(most.into(), used, 1));
            }
        }
        let whole = of_packets.map(|packets| packets.saturating_mul(packet.into()));
        let bytes = of_bytes.into_iter().chain(whole).min();
        Left {
            bytes: bytes.map_or(u64::MAX, |left| {
                u64::try_from(left.max(0)).unwrap_or(u64::MAX)
            }),
            of_bytes,
            of_packets,
        }
    }
}

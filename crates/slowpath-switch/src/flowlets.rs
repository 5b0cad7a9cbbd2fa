// SPDX-License-Identifier: Apache-2.0
//! Flowlets: bursts of a flow, each of which may take another of several equal ways.
//!
//! LetFlow (Vanini, Pan, Alizadeh, Taheri, Edsall: Let It Flow: Resilient Asymmetric Load Balancing
//! with Flowlet Switching, NSDI 2017): a switch remembers by a hash of the 5-tuple which port a
//! flow's last packet took. A packet that comes after a gap takes a port at random, each as likely
//! as another; the others follow the one before. A slow way makes gaps, and so draws: without any
//! measurement, traffic is shared among ways of different rates.
//!
//! The table is one array with an entry for each hash, as in the paper: two flows that meet in an
//! entry are one flow there, unless different ports lead to their destinations. It differs from the
//! paper's in one thing: an entry has the time of its last packet where theirs has one bit, which a
//! sweep sets and which ends a flowlet after one to two times the gap. Here it is the gap exactly.

use crate::packet::PortId;
use crate::random::{Random, mix};
use crate::time::{Span, Time};
use alloc::vec::Vec;
use core::fmt;

/// How a switch divides flows into flowlets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flowlets {
    /// A packet that comes more than this after the one before it in its flow, at this switch,
    /// begins a flowlet.
    pub gap: Span,
    /// Places for flows; 1 to [`Flowlets::MAX_ENTRIES`].
    pub entries: u32,
}

impl Flowlets {
    /// The largest table: 16 MiB.
    pub const MAX_ENTRIES: u32 = 1 << 20;
}

impl Default for Flowlets {
    /// The gap of LetFlow's evaluation, and a table of 1 MiB.
    fn default() -> Self {
        Flowlets {
            gap: Span::from_micros(500),
            entries: 1 << 16,
        }
    }
}

/// The table of flowlets is empty, or larger than [`Flowlets::MAX_ENTRIES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowletError;

impl fmt::Display for FlowletError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = Flowlets::MAX_ENTRIES;
        write!(f, "a table of flowlets has 1 to {most} entries")
    }
}

impl core::error::Error for FlowletError {}

/// What a switch made of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowletCounts {
    /// Flowlets that began where several ports lead to the destination, the first of each flow
    /// included.
    pub flowlets: u64,
    /// Those that took another port than the flowlet before them.
    pub path_changes: u64,
}

/// When the last packet of an entry came; the set of ports that it chose from, and one; the port.
/// Zeros where none came, so that memory is taken only where entries are used.
type Entry = [u64; 2];

/// The flowlets of a switch.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    gap: Span,
    entries: Vec<Entry>,
    salt: u64,
    random: Random,
    pub counts: FlowletCounts,
}

impl Table {
    pub fn new(flowlets: Flowlets, mut random: Random) -> Result<Self, FlowletError> {
        if flowlets.entries == 0 || flowlets.entries > Flowlets::MAX_ENTRIES {
            return Err(FlowletError);
        }
        Ok(Table {
            gap: flowlets.gap,
            entries: alloc::vec![[0; 2]; flowlets.entries as usize],
            salt: random.next_u64(),
            random,
            counts: FlowletCounts::default(),
        })
    }

    /// The port of a packet that comes now, one of the set of that number. Asked again at the same
    /// moment it is the same.
    pub fn choose(&mut self, now: Time, flow: u64, set: u32, ports: &[PortId]) -> Option<PortId> {
        let hash = mix(flow ^ self.salt) >> 32;
        let at = (hash * self.entries.len() as u64) >> 32;
        let [last, choice] = self.entries.get_mut(at as usize)?;
        let set = u64::from(set) + 1;
        let before = (*choice >> 32 == set).then_some(PortId(*choice as u16));
        let port = match before {
            Some(port) if now.since(Time(*last)) <= self.gap => port,
            _ => {
                let drawn = self.random.below(ports.len() as u32);
                let port = *ports.get(drawn as usize)?;
                self.counts.flowlets += 1;
                self.counts.path_changes += u64::from(before.is_some_and(|it| it != port));
                port
            }
        };
        *last = now.0;
        *choice = set << 32 | u64::from(port.0);
        Some(port)
    }
}
